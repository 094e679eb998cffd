//! Writes tables as TOML, every setting with the value it has, and lists which settings there are.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::table::read::OFF;
use crate::table::{Table, Value, Visitor};

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
    fn value<T: Value>(&mut self, key: &'static str, value: &mut T) {
        self.line(key, &value.print());
    }

    fn required<T: Value>(&mut self, key: &'static str, value: &mut T) {
        self.line(key, &value.print());
    }

    fn optional<T: Value>(&mut self, key: &'static str, value: &mut Option<T>) {
        if let Some(value) = value {
            self.line(key, &value.print());
        }
    }

    fn switch<T: Value>(&mut self, key: &'static str, value: &mut Option<T>) {
        let text = value.as_ref().map_or_else(|| format!("\"{OFF}\""), Value::print);
        self.line(key, &text);
    }

    fn table<T: Table>(&mut self, key: &'static str, table: &mut T) {
        self.section(key, ["[", "]"], table);
    }

    fn optional_table<T: Table + Default>(&mut self, key: &'static str, table: &mut Option<T>) {
        if let Some(table) = table {
            self.table(key, table);
        }
    }

    fn tables<T: Table + Default>(&mut self, key: &'static str, tables: &mut Vec<T>) {
        for table in tables {
            self.section(key, ["[[", "]]"], table);
        }
    }

    fn named<T: Table + Default>(&mut self, key: &'static str, tables: &mut BTreeMap<String, T>) {
        for (name, table) in tables {
            self.section(&format!("{key}.{}", key_of(name)), ["[", "]"], table);
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
}

/// All settings that a file with this root table can have.
#[must_use]
pub fn settings<T: Table + Default>() -> Vec<Setting> {
    list(&mut T::default())
}

/// All settings of this table.
pub(crate) fn list<T: Table>(table: &mut T) -> Vec<Setting> {
    let mut lister = Lister { path: String::new(), repeats: false, settings: Vec::new() };
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
    settings: Vec<Setting>,
}

impl Lister {
    fn add(&mut self, key: &'static str, default: Option<String>) {
        self.settings.push(Setting { table: self.path.clone(), repeats: self.repeats, key, default });
    }

    fn section<T: Table>(&mut self, key: &str, repeats: bool, table: &mut T) {
        let (outer_length, outer_repeats) = (self.path.len(), std::mem::replace(&mut self.repeats, repeats));
        if outer_length > 0 {
            self.path.push('.');
        }
        self.path.push_str(key);
        table.settings(self);
        self.path.truncate(outer_length);
        self.repeats = outer_repeats;
    }
}

impl Visitor for Lister {
    fn value<T: Value>(&mut self, key: &'static str, value: &mut T) {
        self.add(key, Some(value.print()));
    }

    fn required<T: Value>(&mut self, key: &'static str, _value: &mut T) {
        self.add(key, None);
    }

    fn optional<T: Value>(&mut self, key: &'static str, _value: &mut Option<T>) {
        self.add(key, None);
    }

    fn switch<T: Value>(&mut self, key: &'static str, value: &mut Option<T>) {
        self.add(key, Some(value.as_ref().map_or_else(|| format!("\"{OFF}\""), Value::print)));
    }

    fn table<T: Table>(&mut self, key: &'static str, table: &mut T) {
        self.section(key, false, table);
    }

    fn optional_table<T: Table + Default>(&mut self, key: &'static str, _table: &mut Option<T>) {
        self.section(key, false, &mut T::default());
    }

    fn tables<T: Table + Default>(&mut self, key: &'static str, _tables: &mut Vec<T>) {
        self.section(key, true, &mut T::default());
    }

    fn named<T: Table + Default>(&mut self, key: &'static str, _tables: &mut BTreeMap<String, T>) {
        self.section(&format!("{key}.NAME"), false, &mut T::default());
    }
}
