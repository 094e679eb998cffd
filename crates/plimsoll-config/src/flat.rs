//! Lists what a table says, setting by setting, so that two tables can be compared.

use std::collections::BTreeMap;

use crate::table::read::OFF;
use crate::table::{Table, Value, Visitor};

/// Each setting of `table` that says something, by its path within it, with its value as TOML; in the order of the file.
#[must_use]
pub fn flat<T: Table + Clone>(table: &T) -> Vec<(String, String)> {
    let mut flattener = Flattener { path: String::new(), out: Vec::new() };
    table.clone().settings(&mut flattener);
    flattener.out
}

struct Flattener {
    path: String,
    out: Vec<(String, String)>,
}

impl Flattener {
    fn add(&mut self, key: &str, value: String) {
        let path = if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
        self.out.push((path, value));
    }

    fn within<T: Table>(&mut self, key: &str, table: &mut T) {
        let outer_length = self.path.len();
        if outer_length > 0 {
            self.path.push('.');
        }
        self.path.push_str(key);
        table.settings(self);
        self.path.truncate(outer_length);
    }
}

impl Visitor for Flattener {
    fn value<T: Value>(&mut self, key: &'static str, value: &mut T) {
        self.add(key, value.print());
    }

    fn required<T: Value>(&mut self, key: &'static str, value: &mut T) {
        self.add(key, value.print());
    }

    fn optional<T: Value>(&mut self, key: &'static str, value: &mut Option<T>) {
        if let Some(value) = value {
            self.add(key, value.print());
        }
    }

    fn switch<T: Value>(&mut self, key: &'static str, value: &mut Option<T>) {
        self.add(key, value.as_ref().map_or_else(|| format!("\"{OFF}\""), Value::print));
    }

    fn table<T: Table>(&mut self, key: &'static str, table: &mut T) {
        self.within(key, table);
    }

    fn optional_table<T: Table + Default>(&mut self, key: &'static str, table: &mut Option<T>) {
        if let Some(table) = table {
            self.within(key, table);
        }
    }

    fn tables<T: Table + Default>(&mut self, key: &'static str, tables: &mut Vec<T>) {
        for (i, table) in tables.iter_mut().enumerate() {
            self.within(&format!("{key}[{i}]"), table);
        }
    }

    fn named<T: Table + Default>(&mut self, key: &'static str, tables: &mut BTreeMap<String, T>) {
        for (name, table) in tables {
            self.within(&format!("{key}.{name}"), table);
        }
    }
}
