//! How a table of the file and its settings are described: once, for reading, printing and docs.
//!
//! Each table is a struct that starts with its defaults and lists its settings in one method,
//! [`Table::settings`]. Whoever wants to do something with all settings is a [`Visitor`] of that
//! list: the reader fills them from a file and knows by it which keys exist, the printer writes
//! them, the test of the documentation names them. So a setting cannot be read and not printed, or be
//! printed under another name; adding one is one line.
//!
//! The usual way, `serde` with `deny_unknown_fields`, stops at the first problem, and derives the
//! reader and the printer apart.

mod keys;
pub(crate) mod print;
pub(crate) mod read;
mod shape;

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::DeValue;

use crate::table::read::Reading;

/// A table: a struct, holding the defaults before it is read, which lists its settings.
pub trait Table {
    /// The smallest useful file with this table at its root; empty for a table that is never a root.
    const EXAMPLE: &'static str = "";

    /// A setting that the table is useless without, as TOML, where no single one is required; empty if there is none.
    const NEEDS: &'static str = "";

    /// The setting that turns off what the table describes, as TOML; empty if there is none.
    const OFF: &'static str = "";

    /// Shows each setting to the visitor: plain values first, then tables within.
    fn settings<V: Visitor>(&mut self, visitor: &mut V);
}

/// A value of one type in the file: a duration, an address, a list.
pub trait Value: Sized {
    /// Reads the value, or reports what is wrong with it at the present place and returns `None`.
    fn read(value: &Spanned<DeValue<'_>>, reading: &mut Reading<'_>) -> Option<Self>;

    /// The value as TOML, readable by [`Value::read`].
    fn print(&self) -> String;
}

/// Something that is done with each setting of a table.
pub trait Visitor {
    /// A value with a default.
    fn value<T: Value>(&mut self, key: &'static str, value: &mut T);

    /// A value without a default: leaving it out is a problem. What `value` holds before is never used.
    fn required<T: Value>(&mut self, key: &'static str, value: &mut T);

    /// A value that may be left out and has no default; `None` is then printed as nothing.
    fn optional<T: Value>(&mut self, key: &'static str, value: &mut Option<T>);

    /// A value with a default that can be turned off by writing `"off"`.
    fn switch<T: Value>(&mut self, key: &'static str, value: &mut Option<T>);

    /// A table within.
    fn table<T: Table>(&mut self, key: &'static str, table: &mut T);

    /// A table within that may be left out, which says something by itself.
    fn optional_table<T: Table + Default>(&mut self, key: &'static str, table: &mut Option<T>);

    /// A list of tables, `[[key]]`.
    fn tables<T: Table + Default>(&mut self, key: &'static str, tables: &mut Vec<T>);

    /// Tables with names that the user chose, `[key.NAME]`.
    fn named<T: Table + Default>(&mut self, key: &'static str, tables: &mut BTreeMap<String, T>);
}
