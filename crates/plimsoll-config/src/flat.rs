//! Lists the values of a table by setting, so that two tables can be compared.

use std::collections::BTreeMap;

use crate::table::{Effect, Key, Setting, Table, Visitor};

/// A setting that has a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its path within the table.
    pub path: String,
    /// Its value, as TOML.
    pub value: String,
    /// The effect of a reload that changes it; `None` if neither it nor a table around names one.
    pub effect: Option<Effect>,
    /// It is in a table that a file may leave out, and has its default there.
    pub is_default: bool,
    /// The paths of those tables around it, outermost first: optional ones, listed ones, named ones.
    pub parts: Vec<String>,
}

/// Each setting of `table` that has a value, in the order of the file.
#[must_use]
pub fn flat<T: Table + Clone>(table: &T) -> Vec<Entry> {
    let mut flattener = Flattener::default();
    table.clone().settings(&mut flattener);
    flattener.entries
}

#[derive(Default)]
struct Flattener {
    path: String,
    /// The effect of the table around.
    effect: Option<Effect>,
    /// The parts around.
    parts: Vec<String>,
    entries: Vec<Entry>,
}

impl Flattener {
    fn within<T: Table>(&mut self, path: &str, key: Key, table: &mut T) {
        let outer_length = self.path.len();
        let outer_effect = self.effect;
        self.effect = key.effect.or(outer_effect);
        if outer_length > 0 {
            self.path.push('.');
        }
        self.path.push_str(path);
        table.settings(self);
        self.path.truncate(outer_length);
        self.effect = outer_effect;
    }

    /// A table that makes a part.
    fn part<T: Table + Default>(&mut self, path: &str, key: Key, table: &mut T) {
        let whole = if self.path.is_empty() { path.to_owned() } else { format!("{}.{path}", self.path) };
        let mut defaults = Self { path: self.path.clone(), ..Self::default() };
        defaults.within(path, key, &mut T::default());
        self.parts.push(whole);
        let first = self.entries.len();
        self.within(path, key, table);
        for entry in &mut self.entries[first..] {
            entry.is_default |=
                defaults.entries.iter().any(|each| each.path == entry.path && each.value == entry.value);
        }
        self.parts.pop();
    }
}

impl Visitor for Flattener {
    fn setting(&mut self, key: Key, _is_required: bool, setting: &mut dyn Setting) {
        if let Some(value) = setting.print() {
            let path = if self.path.is_empty() { key.name.to_owned() } else { format!("{}.{}", self.path, key.name) };
            let (effect, parts) = (key.effect.or(self.effect), self.parts.clone());
            self.entries.push(Entry { path, value, effect, is_default: false, parts });
        }
    }

    fn table<T: Table>(&mut self, key: impl Into<Key>, table: &mut T) {
        let key = key.into();
        self.within(key.name, key, table);
    }

    fn optional_table<T: Table + Default>(&mut self, key: impl Into<Key>, table: &mut Option<T>) {
        if let Some(table) = table {
            let key = key.into();
            self.part(key.name, key, table);
        }
    }

    fn tables<T: Table + Default>(&mut self, key: impl Into<Key>, tables: &mut Vec<T>) {
        let key = key.into();
        for (i, table) in tables.iter_mut().enumerate() {
            self.part(&format!("{}[{i}]", key.name), key, table);
        }
    }

    fn named<T: Table + Default>(&mut self, key: impl Into<Key>, tables: &mut BTreeMap<String, T>) {
        let key = key.into();
        for (name, table) in tables {
            self.part(&format!("{}.{name}", key.name), key, table);
        }
    }
}
