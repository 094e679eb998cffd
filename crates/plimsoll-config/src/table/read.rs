//! Fills tables from a file, and collects its problems.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::codec::Codec;
use crate::foreign::Foreign;
use crate::problem::{ConfigError, Flaw, Position, Problem};
use crate::table::keys::{Form, Key, keys};
use crate::table::print::tables_with;
use crate::table::shape;
use crate::table::{self, Setting, Table, Visitor};
use crate::{syntax, unknown};

/// The places of the settings that a file has.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// By path.
    positions: BTreeMap<String, Position>,
    /// Lines with syntax errors, and those below a header that has one.
    garbled_lines: BTreeSet<usize>,
    /// Paths of settings that the file has under a wrong name.
    misnamed: BTreeSet<String>,
}

impl Places {
    /// Whether the file has a setting at `path`.
    #[must_use]
    pub fn holds(&self, path: &str) -> bool {
        self.positions.contains_key(path)
    }

    /// Whether a syntax error makes the contents of this place a guess. The parser skips unreadable
    /// text, and guesses at the rest of the line: a setting that seems missing may be unreadable,
    /// and a value beside an error may be another than the user meant.
    #[must_use]
    pub fn is_guess(&self, position: Option<Position>) -> bool {
        !self.garbled_lines.is_empty() && position.is_none_or(|position| self.garbled_lines.contains(&position.line))
    }

    /// Whether the file has the setting at `path` under a wrong name, so that its value is unknown.
    pub(crate) fn is_misnamed(&self, path: &str) -> bool {
        self.misnamed.contains(path)
    }

    /// The place of a setting; for one that the file leaves out, the place of its table.
    #[must_use]
    pub fn find(&self, path: &str) -> Option<Position> {
        let mut path = path;
        loop {
            if let Some(position) = self.positions.get(path) {
                return Some(*position);
            }
            path = &path[..path.rfind(['.', '['])?];
        }
    }
}

/// A file as read: each value is valid by itself, combinations are not checked yet.
#[derive(Clone, Debug, Default)]
pub struct Read<T> {
    /// The table at the root. A setting that could not be read keeps its default, so the table is
    /// only good for use when there are no problems.
    pub root: T,
    /// The places of its settings.
    pub places: Places,
    /// The problems of single values.
    pub problems: Vec<Problem>,
}

/// The text of a file.
///
/// # Errors
/// A file that cannot be read.
pub fn load(file: &Path) -> Result<String, ConfigError> {
    fs::read_to_string(file).map_err(|error| {
        let help = "name a TOML file in UTF-8 that this user may read".to_owned();
        let problem = Problem { path: String::new(), position: None, reason: format!("cannot be read: {error}"), help };
        ConfigError::new(&file.display().to_string(), vec![problem])
    })
}

/// Reads the text of a file into a root table.
#[must_use]
pub fn read<T: Table + Default>(text: &str) -> Read<T> {
    let (document, syntax_errors) = DeTable::parse_recoverable(text);
    if !syntax_errors.is_empty()
        && let Some((language, position)) = Foreign::of(text)
    {
        return foreign(language, position);
    }
    let mut reading = Reading::new(text, tables_with::<T>);
    for error in &syntax_errors {
        reading.span = error.span().unwrap_or(0..0);
        let line = Position::of(text, reading.span.start).line;
        // Behind the first error of a line the parser guesses.
        if reading.places.garbled_lines.insert(line) {
            let help = syntax::help(error.message(), text.lines().nth(line - 1).unwrap_or_default());
            reading.problem(error.message(), help);
        }
    }
    let syntax_problems = reading.problems.len();
    let mut root = T::default();
    reading.span = document.span();
    reading.fill(document.get_ref(), &mut root);
    let mut problems = reading.problems;
    let others = problems.split_off(syntax_problems);
    let mut places = reading.places;
    extend_below_headers(text, &mut places.garbled_lines);
    let is_guess = |problem: &Problem| {
        let seems_missing = problem.reason == MISSING && !places.garbled_lines.is_empty();
        seems_missing || places.is_guess(problem.position)
    };
    problems.extend(others.into_iter().filter(|problem| !is_guess(problem)));
    Read { root, places, problems }
}

/// The result for a file in another `language`, whose first line is at `position`.
fn foreign<T: Table + Default>(language: Foreign, position: Position) -> Read<T> {
    let reason = format!("this looks like {}, but Plimsoll reads TOML", language.name());
    let mut help = "write [table] headers and key = \"value\" lines".to_owned();
    if !T::EXAMPLE.is_empty() {
        help = format!("write TOML; a small file is\n{}", T::EXAMPLE);
    }
    let problems = vec![Problem { path: String::new(), position: Some(position), reason, help }];
    let places = Places { garbled_lines: BTreeSet::from([position.line]), ..Places::default() };
    Read { root: T::default(), places, problems }
}

/// Adds the lines below each header with an error: the parser takes them for settings of the table
/// before.
fn extend_below_headers(text: &str, garbled_lines: &mut BTreeSet<usize>) {
    let mut is_below = false;
    for (i, line) in text.lines().enumerate() {
        let is_garbled = garbled_lines.contains(&(i + 1));
        if line.trim_start().starts_with('[') {
            is_below = is_garbled;
        } else if is_below {
            garbled_lines.insert(i + 1);
        }
    }
}

/// The reason given for a required setting that is not there.
const MISSING: &str = "is missing";

/// The place being read, and all problems found until now.
pub struct Reading<'t> {
    text: &'t str,
    path: String,
    span: Range<usize>,
    places: Places,
    problems: Vec<Problem>,
    /// Gives the tables of the whole file that have a setting of this name.
    tables_with: fn(&str) -> Vec<String>,
}

impl<'t> Reading<'t> {
    fn new(text: &'t str, tables_with: fn(&str) -> Vec<String>) -> Self {
        let places = Places::default();
        Self { text, path: String::new(), span: 0..0, places, problems: Vec::new(), tables_with }
    }
}

impl Reading<'_> {
    /// Reports a problem at the present place.
    pub fn problem(&mut self, reason: impl Into<String>, help: impl Into<String>) {
        self.problems.push(Problem {
            path: self.path.clone(),
            position: Some(Position::of(self.text, self.span.start)),
            reason: reason.into(),
            help: help.into(),
        });
    }

    /// How many problems were found until now.
    pub(crate) fn problem_count(&self) -> usize {
        self.problems.len()
    }

    /// The value, or the report of its flaw.
    pub fn take<T>(&mut self, value: Result<T, Flaw>) -> Option<T> {
        value.map_err(|flaw| self.problem(flaw.reason, flaw.help)).ok()
    }

    /// Does `read` with `segment` (`.key` or `[index]`) as the present place.
    pub fn within<R>(&mut self, segment: &str, span: Range<usize>, read: impl FnOnce(&mut Self) -> R) -> R {
        let (outer_length, outer_span) = (self.path.len(), std::mem::replace(&mut self.span, span));
        self.path.push_str(if outer_length == 0 { segment.trim_start_matches('.') } else { segment });
        self.places.positions.insert(self.path.clone(), Position::of(self.text, self.span.start));
        let result = read(self);
        self.path.truncate(outer_length);
        self.span = outer_span;
        result
    }

    /// Reads the settings of a table into `target`, and reports keys that are none of them.
    pub fn fill<T: Table>(&mut self, table: &DeTable<'_>, target: &mut T) {
        let mut reader = Reader { reading: self, table, known: Vec::new(), missing: Vec::new(), misnamed: None };
        target.settings(&mut reader);
        let Reader { known, missing, .. } = reader;
        let names: Vec<&'static str> = known.iter().map(|key| key.name).collect();
        let mut misnamed = BTreeMap::new();
        let is_root = self.path.is_empty();
        for (key, _) in table.iter().filter(|(key, _)| !names.contains(&key.get_ref().as_ref())) {
            if let [meant] = unknown::meant(key.get_ref(), &names)[..]
                && !table.contains_key(meant)
            {
                misnamed.entry(meant).or_insert_with(|| key.get_ref().to_string());
            }
            self.within(&format!(".{}", key.get_ref()), key.span(), |reading| {
                let write = |name: &'static str| written(name, &known, is_root);
                let help = unknown::help(key.get_ref(), &names, reading.tables_with, write);
                reading.problem("there is no such setting", help);
            });
        }
        self.problems.extend(missing.into_iter().filter(|(key, _)| !misnamed.contains_key(key)).map(|(_, lack)| lack));
        self.read_misnamed(table, target, &known, misnamed);
    }

    /// Reads the tables of `misnamed` under their right names: a cluster below a misspelt header has
    /// to be there for its routes. A value is left out, since it may mean something else.
    fn read_misnamed<T: Table>(
        &mut self,
        table: &DeTable<'_>,
        target: &mut T,
        known: &[Key],
        mut misnamed: BTreeMap<&'static str, String>,
    ) {
        for key in known.iter().filter(|key| matches!(key.form, Form::Value | Form::Required)) {
            if misnamed.remove(key.name).is_some() {
                let path = self.path_of(key.name);
                self.places.misnamed.insert(path);
            }
        }
        if !misnamed.is_empty() {
            let missing = Vec::new();
            let mut reader = Reader { reading: self, table, known: Vec::new(), missing, misnamed: Some(misnamed) };
            target.settings(&mut reader);
        }
    }

    /// The path of the setting `key` of the table at the present place.
    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Reads a value that has to be a table, and may be left out if `is_optional`.
    fn fill_from<T: Table>(&mut self, value: &Spanned<DeValue<'_>>, target: &mut T, is_optional: bool) {
        match value.get_ref() {
            DeValue::Table(table) => self.fill(table, target),
            other => {
                let help = shape::help(&self.path, other, target, is_optional);
                self.problem(format!("expected a table, found {}", kind(other)), help);
            }
        }
    }
}

/// The setting `name` as help names it: a table of the root by its header.
fn written(name: &'static str, known: &[Key], is_root: bool) -> String {
    match known.iter().find(|key| key.name == name).map(|key| key.form) {
        Some(Form::Tables) if is_root => format!("[[{name}]]"),
        Some(Form::Named) if is_root => format!("[{name}.NAME]"),
        Some(Form::Table) if is_root => format!("[{name}]"),
        _ => format!("\"{name}\""),
    }
}

/// The `value` by itself; `None` where anything is wrong with it.
pub(crate) fn read_alone<T>(value: &Spanned<DeValue<'_>>, codec: &impl Codec<T>) -> Option<T> {
    let mut reading = Reading::new("", |_| Vec::new());
    codec.read(value, &mut reading).filter(|_| reading.problems.is_empty())
}

/// How to write the value that `read` reads: the help for a value of another type says it. `None` if
/// there is none.
pub(crate) fn how_to_write(read: impl FnOnce(&Spanned<DeValue<'_>>, &mut Reading<'_>)) -> Option<String> {
    let mut reading = Reading::new("", |_| Vec::new());
    read(&Spanned::new(0..0, DeValue::Boolean(false)), &mut reading);
    reading.problems.into_iter().next().map(|problem| problem.help)
}

/// The kind of a value, in the words of TOML's users.
#[must_use]
pub fn kind(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("\"{text}\""),
        DeValue::Integer(number) => format!("the number {number}"),
        DeValue::Float(number) => format!("the number {number}"),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

/// The visitor that looks each setting up in one table of the file.
struct Reader<'f, 't, 'd> {
    reading: &'f mut Reading<'t>,
    table: &'d DeTable<'d>,
    known: Vec<Key>,
    /// Required settings that are not there, each with the problem.
    missing: Vec<(&'static str, Problem)>,
    /// Reads these tables only, each from under the wrong name that it has in the file.
    misnamed: Option<BTreeMap<&'static str, String>>,
}

impl Reader<'_, '_, '_> {
    /// Reads the value of `key`, if there is one, with its key as the present place.
    fn at<R>(
        &mut self,
        key: &'static str,
        form: Form,
        read: impl FnOnce(&mut Reading<'_>, &Spanned<DeValue<'_>>) -> R,
    ) -> Option<R> {
        self.known.push(Key { name: key, form });
        let name = match &self.misnamed {
            Some(misnamed) => misnamed.get(key)?,
            None => key,
        };
        let value = self.table.get(name)?;
        Some(self.reading.within(&format!(".{key}"), value.span(), |reading| read(reading, value)))
    }
}

impl Visitor for Reader<'_, '_, '_> {
    fn setting(&mut self, key: table::Key, is_required: bool, setting: &mut dyn Setting) {
        let found = self.at(key.name, Form::of_value(is_required), |reading, found| setting.read(found, reading));
        if found.is_none() && is_required {
            let position = Position::of(self.reading.text, self.reading.span.start);
            let problem = Problem {
                path: self.reading.path_of(key.name),
                position: Some(position),
                reason: MISSING.to_owned(),
                help: match how_to_write(|found, reading| setting.read(found, reading)) {
                    Some(how) => format!("add {} = ...; {how}", key.name),
                    None => format!("add {} = ...", key.name),
                },
            };
            self.missing.push((key.name, problem));
        }
    }

    fn table<T: Table>(&mut self, key: impl Into<table::Key>, table: &mut T) {
        self.at(key.into().name, Form::Table, |reading, found| reading.fill_from(found, table, false));
    }

    fn optional_table<T: Table + Default>(&mut self, key: impl Into<table::Key>, table: &mut Option<T>) {
        self.at(key.into().name, Form::Table, |reading, found| {
            let mut read = table.take().unwrap_or_default();
            reading.fill_from(found, &mut read, true);
            // Rules about the settings of a value that is no table would only echo.
            *table = matches!(found.get_ref(), DeValue::Table(_)).then_some(read);
        });
    }

    fn tables<T: Table + Default>(&mut self, key: impl Into<table::Key>, tables: &mut Vec<T>) {
        let key = key.into().name;
        self.at(key, Form::Tables, |reading, found| {
            let DeValue::Array(items) = found.get_ref() else {
                let help = format!("write [[{key}]], with two brackets: there can be several");
                return reading.problem(format!("expected a list of tables, found {}", kind(found.get_ref())), help);
            };
            for (i, item) in items.iter().enumerate() {
                let mut table = T::default();
                reading.within(&format!("[{i}]"), item.span(), |reading| reading.fill_from(item, &mut table, false));
                tables.push(table);
            }
        });
    }

    fn named<T: Table + Default>(&mut self, key: impl Into<table::Key>, tables: &mut BTreeMap<String, T>) {
        let key = key.into().name;
        self.at(key, Form::Named, |reading, found| {
            let DeValue::Table(items) = found.get_ref() else {
                let help = format!("write [{key}.NAME], with a name of your choice");
                return reading.problem(format!("expected named tables, found {}", kind(found.get_ref())), help);
            };
            let own = keys(&mut T::default());
            for (name, item) in items.iter() {
                let mut table = T::default();
                let (span, name) = (name.span(), name.get_ref());
                let is_setting =
                    !matches!(item.get_ref(), DeValue::Table(_)) && own.iter().any(|key| key.name == name.as_ref());
                reading.within(&format!(".{name}"), span, |reading| {
                    if is_setting {
                        let reason = "a table with a name of your choice is missing around this setting";
                        reading.problem(reason, format!("write [{key}.NAME] above it, such as [{key}.web]"));
                    } else {
                        reading.fill_from(item, &mut table, false);
                    }
                });
                if !is_setting {
                    tables.insert(name.to_string(), table);
                }
            }
        });
    }
}

/// The text that turns a setting off.
pub const OFF: &str = "off";
