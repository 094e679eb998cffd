//! Writes tables as TOML, every setting with its value, and lists the settings that exist.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::table::{self, Effect, Key, Table, Visitor};

/// A root table as TOML, with every default written out.
#[must_use]
pub fn print<T: Table + Clone>(root: &T) -> String {
    let mut printer = Printer { path: String::new(), out: String::new() };
    root.clone().settings(&mut printer);
    printer.out
}

/// A name as a TOML key: in quotes when it needs them.
fn key_of(name: &str) -> String {
    let bare =
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    if bare { name.to_owned() } else { toml::Value::from(name).to_string() }
}

/// The settings of a table that has no tables within, in one line without braces.
#[must_use]
pub fn inline<T: Table>(table: &mut T) -> String {
    let mut printer = Printer { path: String::new(), out: String::new() };
    table.settings(&mut printer);
    printer.out.lines().collect::<Vec<_>>().join(", ")
}

struct Printer {
    path: String,
    out: String,
}

impl Printer {
    fn line(&mut self, key: &str, value: &str) {
        writeln!(self.out, "{key} = {value}").expect("writing to a string does not fail");
    }

    /// Writes `table` under the header of `key`, one level further in.
    fn section<T: Table>(&mut self, key: &str, brackets: [&str; 2], table: &mut T) {
        let outer_length = self.path.len();
        if outer_length > 0 {
            self.path.push('.');
        }
        self.path.push_str(key);
        let [open, close] = brackets;
        writeln!(self.out, "\n{open}{}{close}", self.path).expect("writing to a string does not fail");
        table.settings(self);
        self.path.truncate(outer_length);
    }
}

impl Visitor for Printer {
    fn setting(&mut self, key: Key, _is_required: bool, setting: &mut dyn table::Setting) {
        if let Some(text) = setting.print() {
            self.line(key.name, &text);
        }
    }

    fn table<T: Table>(&mut self, key: impl Into<Key>, table: &mut T) {
        self.section(key.into().name, ["[", "]"], table);
    }

    fn optional_table<T: Table + Default>(&mut self, key: impl Into<Key>, table: &mut Option<T>) {
        if let Some(table) = table {
            self.table(key, table);
        }
    }

    fn tables<T: Table + Default>(&mut self, key: impl Into<Key>, tables: &mut Vec<T>) {
        let key = key.into();
        for table in tables {
            self.section(key.name, ["[[", "]]"], table);
        }
    }

    fn named<T: Table + Default>(&mut self, key: impl Into<Key>, tables: &mut BTreeMap<String, T>) {
        let key = key.into();
        for (name, table) in tables {
            self.section(&format!("{}.{}", key.name, key_of(name)), ["[", "]"], table);
        }
    }
}

/// One setting that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its table, as in `clusters.NAME.health`; empty at the root.
    pub table: String,
    /// Whether there can be several such tables, written `[[table]]`.
    pub repeats: bool,
    /// Its key.
    pub key: &'static str,
    /// Its default as TOML; `None` when it has none.
    pub default: Option<String>,
    /// The effect of a reload that changes it; `None` for one of a file that is never reloaded.
    pub effect: Option<Effect>,
}

/// All settings that a file with this root table can have.
#[must_use]
pub fn settings<T: Table + Default>() -> Vec<Setting> {
    list(&mut T::default())
}

/// All settings of this table.
pub(crate) fn list<T: Table>(table: &mut T) -> Vec<Setting> {
    let mut lister = Lister { path: String::new(), repeats: false, effect: None, settings: Vec::new() };
    table.settings(&mut lister);
    lister.settings
}

/// The tables, as the user would write their headers, that have a setting of this name.
pub(crate) fn tables_with<T: Table + Default>(key: &str) -> Vec<String> {
    settings::<T>()
        .into_iter()
        .filter(|setting| setting.key == key)
        .map(|Setting { table, repeats, .. }| match (table.as_str(), repeats) {
            ("", _) => "the top of the file, before the first [table]".to_owned(),
            (_, true) => format!("[[{table}]]"),
            (_, false) => format!("[{table}]"),
        })
        .collect()
}

struct Lister {
    path: String,
    repeats: bool,
    /// The effect of the table around.
    effect: Option<Effect>,
    settings: Vec<Setting>,
}

impl Lister {
    fn section<T: Table>(&mut self, path: &str, key: Key, repeats: bool, table: &mut T) {
        let (outer_length, outer_repeats) = (self.path.len(), std::mem::replace(&mut self.repeats, repeats));
        let outer_effect = self.effect;
        self.effect = key.effect.or(outer_effect);
        if outer_length > 0 {
            self.path.push('.');
        }
        self.path.push_str(path);
        table.settings(self);
        self.path.truncate(outer_length);
        self.repeats = outer_repeats;
        self.effect = outer_effect;
    }
}

impl Visitor for Lister {
    fn setting(&mut self, key: Key, is_required: bool, setting: &mut dyn table::Setting) {
        self.settings.push(Setting {
            table: self.path.clone(),
            repeats: self.repeats,
            key: key.name,
            default: if is_required { None } else { setting.print() },
            effect: key.effect.or(self.effect),
        });
    }

    fn table<T: Table>(&mut self, key: impl Into<Key>, table: &mut T) {
        let key = key.into();
        self.section(key.name, key, false, table);
    }

    fn optional_table<T: Table + Default>(&mut self, key: impl Into<Key>, _table: &mut Option<T>) {
        self.table(key, &mut T::default());
    }

    fn tables<T: Table + Default>(&mut self, key: impl Into<Key>, _tables: &mut Vec<T>) {
        let key = key.into();
        self.section(key.name, key, true, &mut T::default());
    }

    fn named<T: Table + Default>(&mut self, key: impl Into<Key>, _tables: &mut BTreeMap<String, T>) {
        let key = key.into();
        self.section(&format!("{}.NAME", key.name), key, false, &mut T::default());
    }
}
