//! Lists the settings of one table by name and form, for messages about the table as a whole.

use std::collections::BTreeMap;

use crate::table::{Table, Value, Visitor};

/// The form of a setting in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `key = value`.
    Value,
    /// `key = value`, and the table is incomplete without it.
    Required,
    /// `[key]`.
    Table,
    /// `[[key]]`.
    Tables,
    /// `[key.NAME]`.
    Named,
}

/// A setting of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) form: Form,
}

/// The settings of `table`.
pub(crate) fn keys<T: Table>(table: &mut T) -> Vec<Key> {
    let mut keys = Keys(Vec::new());
    table.settings(&mut keys);
    keys.0
}

struct Keys(Vec<Key>);

impl Keys {
    fn add(&mut self, name: &'static str, form: Form) {
        self.0.push(Key { name, form });
    }
}

impl Visitor for Keys {
    fn value<T: Value>(&mut self, key: &'static str, _value: &mut T) {
        self.add(key, Form::Value);
    }

    fn required<T: Value>(&mut self, key: &'static str, _value: &mut T) {
        self.add(key, Form::Required);
    }

    fn optional<T: Value>(&mut self, key: &'static str, _value: &mut Option<T>) {
        self.add(key, Form::Value);
    }

    fn switch<T: Value>(&mut self, key: &'static str, _value: &mut Option<T>) {
        self.add(key, Form::Value);
    }

    fn table<T: Table>(&mut self, key: &'static str, _table: &mut T) {
        self.add(key, Form::Table);
    }

    fn optional_table<T: Table + Default>(&mut self, key: &'static str, _table: &mut Option<T>) {
        self.add(key, Form::Table);
    }

    fn tables<T: Table + Default>(&mut self, key: &'static str, _tables: &mut Vec<T>) {
        self.add(key, Form::Tables);
    }

    fn named<T: Table + Default>(&mut self, key: &'static str, _tables: &mut BTreeMap<String, T>) {
        self.add(key, Form::Named);
    }
}
