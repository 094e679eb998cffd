//! Choices with settings of their own: `{ kind = "bounded-pareto", mean = "10ms", ratio = 1000 }`.
//!
//! The obvious way is one table with the settings of all choices. Most of them must then be absent:
//! each file would need rules that tie settings to choices, and the list of "settings here" would
//! name settings of other choices. Instead the choice is read first. The table then has the settings
//! of that choice and no others, required ones included. In the code it is an enum with fields, which
//! cannot hold a setting of another choice.
//!
//! A choice that needs no settings may be written as its bare name: `rates = "even"`.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::problem::{Flaw, help_for_name};
use crate::table::print::{Setting, inline, list};
use crate::table::read::{Reading, kind};
use crate::table::{Table, Value, Visitor};
use crate::value::quoted;

/// The setting that names the variant.
const KEY: &str = "kind";

/// A choice among variants that have settings.
pub trait Variants: Sized + Clone {
    /// The choice in messages, with its article: `a distribution of costs`.
    const NOUN: &'static str;

    /// The variants by name, each with the defaults of its settings.
    fn all() -> Vec<(&'static str, Self)>;

    /// The name of the variant held.
    fn name(&self) -> &'static str;

    /// Shows the settings of the variant held.
    fn settings<V: Visitor>(&mut self, visitor: &mut V);

    /// Checks its settings together.
    ///
    /// # Errors
    /// The flaw that they have together.
    fn check(&self) -> Result<(), Flaw> {
        Ok(())
    }
}

/// A variant as a table: its name, and its settings.
struct Whole<T>(T);

impl<T: Variants> Table for Whole<T> {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        // The name was read before: it decides on the settings that follow.
        visitor.value(KEY, &mut self.0.name().to_owned());
        self.0.settings(visitor);
    }
}

/// The settings of one variant alone.
struct Own<T>(T);

impl<T: Variants> Table for Own<T> {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        self.0.settings(visitor);
    }
}

/// The variant of this name, or the flaw of a name that is none.
fn named<T: Variants>(name: &str) -> Result<T, Flaw> {
    let all = T::all();
    let names: Vec<&str> = all.iter().map(|(known, _)| *known).collect();
    let found = all.iter().find(|(known, _)| *known == name).map(|(_, variant)| variant.clone());
    found.ok_or_else(|| Flaw::new(format!("\"{name}\" is not {}", T::NOUN), help_for_name(name, names)))
}

/// Reads the settings of `variant` from `table`.
fn fill<T: Variants>(variant: T, table: &DeTable<'_>, reading: &mut Reading<'_>) -> Option<T> {
    let problems = reading.problem_count();
    let mut whole = Whole(variant);
    reading.fill(table, &mut whole);
    // A rule over settings that could not be read would only echo.
    if reading.problem_count() > problems {
        return None;
    }
    let checked = reading.take(whole.0.check());
    checked.map(|()| whole.0)
}

fn example<T: Variants>() -> String {
    let names: Vec<String> = T::all().iter().map(|(name, _)| format!("\"{name}\"")).collect();
    format!("{{ {} = ..., ... }}, with {} one of {}", KEY, KEY, names.join(", "))
}

impl<T: Variants> Value for T {
    fn read(value: &Spanned<DeValue<'_>>, reading: &mut Reading<'_>) -> Option<Self> {
        match value.get_ref() {
            DeValue::String(name) => {
                let variant = reading.take(named::<T>(name))?;
                fill(variant, &DeTable::new(), reading)
            }
            DeValue::Table(table) => {
                let Some(name) = table.get(KEY) else {
                    let reason = format!("does not say which it is: {} is missing", KEY);
                    reading.problem(reason, format!("write {}", example::<T>()));
                    return None;
                };
                let variant = reading.within(&format!(".{}", KEY), name.span(), |reading| match name.get_ref() {
                    DeValue::String(name) => reading.take(named::<T>(name)),
                    other => {
                        reading.problem(
                            format!("expected {}, found {}", T::NOUN, kind(other)),
                            "write its name in quotes",
                        );
                        None
                    }
                })?;
                fill(variant, table, reading)
            }
            other => {
                reading.problem(
                    format!("expected {}, found {}", T::NOUN, kind(other)),
                    format!("write {}", example::<T>()),
                );
                None
            }
        }
    }

    fn print(&self) -> String {
        let own = inline(&mut Own(self.clone()));
        if own.is_empty() {
            return quoted(self.name());
        }
        format!("{{ {} = {}, {own} }}", KEY, quoted(self.name()))
    }
}

/// The variants by name, and the settings of each.
#[must_use]
pub fn variants<T: Variants>() -> Vec<(&'static str, Vec<Setting>)> {
    T::all().into_iter().map(|(name, variant)| (name, list(&mut Own(variant)))).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::table::read::read;

    #[derive(Clone, Debug, PartialEq)]
    enum Course {
        Flat,
        Ramp { over: Duration, steps: u32 },
    }

    impl Variants for Course {
        const NOUN: &'static str = "a course";

        fn all() -> Vec<(&'static str, Self)> {
            vec![("flat", Self::Flat), ("ramp", Self::Ramp { over: Duration::ZERO, steps: 4 })]
        }

        fn name(&self) -> &'static str {
            match self {
                Self::Flat => "flat",
                Self::Ramp { .. } => "ramp",
            }
        }

        fn settings<V: Visitor>(&mut self, visitor: &mut V) {
            if let Self::Ramp { over, steps } = self {
                visitor.required("over", over);
                visitor.value("steps", steps);
            }
        }

        fn check(&self) -> Result<(), Flaw> {
            match self {
                Self::Ramp { steps: 0, .. } => Err(Flaw::new("has no steps", "write steps = 1 or more")),
                _ => Ok(()),
            }
        }
    }

    #[derive(Clone, Debug, Default)]
    struct File {
        course: Option<Course>,
    }

    impl Table for File {
        fn settings<V: Visitor>(&mut self, visitor: &mut V) {
            visitor.optional("course", &mut self.course);
        }
    }

    fn problems(text: &str) -> Vec<String> {
        let problems = read::<File>(text).problems;
        problems.iter().map(|problem| format!("{}: {} ({})", problem.path, problem.reason, problem.help)).collect()
    }

    #[test]
    fn a_variant_has_its_own_settings_and_prints_what_it_reads() {
        for (text, course) in [
            ("course = \"flat\"\n", Course::Flat),
            (
                "course = { kind = \"ramp\", over = \"10s\", steps = 4 }\n",
                Course::Ramp { over: Duration::from_secs(10), steps: 4 },
            ),
        ] {
            let file = read::<File>(text);
            assert_eq!((file.root.course, file.problems), (Some(course.clone()), Vec::new()));
            assert_eq!(format!("course = {}\n", course.print()), text);
        }
        let file = read::<File>("[course]\nkind = \"ramp\"\nover = \"10s\"\n");
        assert_eq!(file.root.course, Some(Course::Ramp { over: Duration::from_secs(10), steps: 4 }));
    }

    #[test]
    fn what_belongs_to_another_variant_or_is_missing_is_told() {
        let help = "(write { kind = ..., ... }, with kind one of \"flat\", \"ramp\")";
        for (text, problem) in [
            ("course = \"rampp\"", "course: \"rampp\" is not a course (did you mean \"ramp\"?)".to_owned()),
            ("course = \"ramp\"", "course.over: is missing (add over = ...; write it as a number with a unit, in quotes, such as \"10s\" or \"250ms\")".to_owned()),
            ("course = 3", format!("course: expected a course, found the number 3 {help}")),
            ("course = {}", format!("course: does not say which it is: kind is missing {help}")),
            (
                "course = { kind = \"flat\", steps = 2 }",
                "course.steps: there is no such setting (remove it; settings here: kind)".to_owned(),
            ),
            (
                "course = { kind = \"ramp\", over = \"1s\", steps = 0 }",
                "course: has no steps (write steps = 1 or more)".to_owned(),
            ),
        ] {
            assert_eq!(problems(text), [problem]);
        }
    }

    #[test]
    fn settings_of_each_variant_are_listed() {
        let listed = variants::<Course>();
        let keys = |i: usize| listed[i].1.iter().map(|setting| setting.key).collect::<Vec<_>>();
        assert_eq!((keys(0), keys(1)), (vec![], vec!["over", "steps"]));
        assert_eq!(listed[1].1[1].default.as_deref(), Some("4"));
    }
}
