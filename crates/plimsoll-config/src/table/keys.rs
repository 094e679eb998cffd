//! Lists the settings of one table by name and form, for messages about the table as a whole.

use std::collections::BTreeMap;

use crate::table::{self, Setting, Table, Visitor};

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

impl Form {
    /// The form of a value.
    pub(crate) fn of_value(is_required: bool) -> Self {
        if is_required { Self::Required } else { Self::Value }
    }
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
    fn add(&mut self, key: impl Into<table::Key>, form: Form) {
        self.0.push(Key { name: key.into().name, form });
    }
}

impl Visitor for Keys {
    fn setting(&mut self, key: table::Key, is_required: bool, _setting: &mut dyn Setting) {
        self.add(key, Form::of_value(is_required));
    }

    fn table<T: Table>(&mut self, key: impl Into<table::Key>, _table: &mut T) {
        self.add(key, Form::Table);
    }

    fn optional_table<T: Table + Default>(&mut self, key: impl Into<table::Key>, _table: &mut Option<T>) {
        self.add(key, Form::Table);
    }

    fn tables<T: Table + Default>(&mut self, key: impl Into<table::Key>, _tables: &mut Vec<T>) {
        self.add(key, Form::Tables);
    }

    fn named<T: Table + Default>(&mut self, key: impl Into<table::Key>, _tables: &mut BTreeMap<String, T>) {
        self.add(key, Form::Named);
    }
}
