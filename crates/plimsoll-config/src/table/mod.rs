//! A table of the file and its settings, described once for reading, printing, docs and reload.
//!
//! Each table is a struct that starts with its defaults and lists its settings in one method,
//! [`Table::settings`]. All work on settings is a [`Visitor`] of that list: the reader fills them
//! from a file and knows all keys by it, the printer writes them, `flat` compares two files, the test
//! of the documentation names them. So a setting cannot be read and not printed, or be printed under
//! another name.
//!
//! A setting is one line of [`table!`](crate::table!): key, type, default, codec, effect of a
//! reload. A struct of another crate lists its settings in the method itself.
//!
//! The usual way, `serde` with `deny_unknown_fields`, stops at the first problem, and derives the
//! reader and the printer apart.

mod define;
mod keys;
pub(crate) mod print;
pub(crate) mod read;
mod shape;

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::DeValue;

use crate::codec::{Codec, Optional, OrOff, Own};
use crate::table::read::Reading;

/// A table: a struct, holding the defaults before it is read, which lists its settings.
pub trait Table {
    /// The smallest useful file with this table at its root; empty for a table that is never a root.
    const EXAMPLE: &'static str = "";

    /// A setting that the table is useless without, as TOML, where no single one is required; empty
    /// if there is none.
    const NEEDS: &'static str = "";

    /// The setting that turns off the feature of the table, as TOML; empty if there is none.
    const OFF: &'static str = "";

    /// Shows each setting to the visitor: plain values first, then tables within.
    fn settings<V: Visitor>(&mut self, visitor: &mut V);
}

/// A value of one type in the file: a duration, an address, a list.
pub trait Value: Sized {
    /// Reads the value, or reports its flaw at the present place and returns `None`.
    fn read(value: &Spanned<DeValue<'_>>, reading: &mut Reading<'_>) -> Option<Self>;

    /// The value as TOML, readable by [`Value::read`].
    fn print(&self) -> String;
}

/// The effect of a reload that changes a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The new value comes into force; the text names the moment, and the state that stays.
    Applied(&'static str),
    /// The new value waits for a restart; the text says so.
    Restart(&'static str),
    /// It makes another listener, route or backend: the old one is removed, and the new one added.
    Another,
}

/// The name of a setting, and its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    pub(crate) name: &'static str,
    /// `None`: that of the table around it.
    pub(crate) effect: Option<Effect>,
}

impl Key {
    /// The same setting with an effect of its own.
    #[must_use]
    pub const fn with(self, effect: Effect) -> Self {
        Self { effect: Some(effect), ..self }
    }
}

/// A setting with the effect of the table around it, or of a file that is never reloaded.
impl From<&'static str> for Key {
    fn from(name: &'static str) -> Self {
        Self { name, effect: None }
    }
}

impl From<(&'static str, Effect)> for Key {
    fn from((name, effect): (&'static str, Effect)) -> Self {
        Self { name, effect: Some(effect) }
    }
}

/// The value of a setting, with its codec.
pub trait Setting {
    /// Reads the value, or reports its flaw and changes nothing.
    fn read(&mut self, value: &Spanned<DeValue<'_>>, reading: &mut Reading<'_>);

    /// The value as TOML; `None` if it is not set.
    fn print(&self) -> Option<String>;
}

struct Coded<'v, T, C> {
    value: &'v mut T,
    codec: C,
}

impl<T, C: Codec<T>> Setting for Coded<'_, T, C> {
    fn read(&mut self, value: &Spanned<DeValue<'_>>, reading: &mut Reading<'_>) {
        if let Some(read) = self.codec.read(value, reading) {
            *self.value = read;
        }
    }

    fn print(&self) -> Option<String> {
        self.codec.print(self.value)
    }
}

/// Something that is done with each setting of a table.
pub trait Visitor {
    /// A value with its codec. Leaving a required one out is a problem.
    fn setting(&mut self, key: Key, is_required: bool, setting: &mut dyn Setting);

    /// A table within.
    fn table<T: Table>(&mut self, key: impl Into<Key>, table: &mut T);

    /// A table within that may be left out; an empty one differs from none.
    fn optional_table<T: Table + Default>(&mut self, key: impl Into<Key>, table: &mut Option<T>);

    /// A list of tables, `[[key]]`.
    fn tables<T: Table + Default>(&mut self, key: impl Into<Key>, tables: &mut Vec<T>);

    /// Tables with names that the user chose, `[key.NAME]`.
    fn named<T: Table + Default>(&mut self, key: impl Into<Key>, tables: &mut BTreeMap<String, T>);

    /// A value with a default.
    fn value<T: Value>(&mut self, key: impl Into<Key>, value: &mut T) {
        self.value_as(key, value, Own);
    }

    /// A value with a default, in the format of `codec`.
    fn value_as<T>(&mut self, key: impl Into<Key>, value: &mut T, codec: impl Codec<T>) {
        self.setting(key.into(), false, &mut Coded { value, codec });
    }

    /// A value without a default: leaving it out is a problem. The value held before is never used.
    fn required<T: Value>(&mut self, key: impl Into<Key>, value: &mut T) {
        self.required_as(key, value, Own);
    }

    /// A value without a default, in the format of `codec`.
    fn required_as<T>(&mut self, key: impl Into<Key>, value: &mut T, codec: impl Codec<T>) {
        self.setting(key.into(), true, &mut Coded { value, codec });
    }

    /// A value that may be left out and has no default; `None` is then printed as nothing.
    fn optional<T: Value>(&mut self, key: impl Into<Key>, value: &mut Option<T>) {
        self.optional_as(key, value, Own);
    }

    /// A value that may be left out, in the format of `codec`.
    fn optional_as<T>(&mut self, key: impl Into<Key>, value: &mut Option<T>, codec: impl Codec<T>) {
        self.value_as(key, value, Optional(codec));
    }

    /// A value with a default that can be turned off by writing `"off"`.
    fn switch<T: Value>(&mut self, key: impl Into<Key>, value: &mut Option<T>) {
        self.switch_as(key, value, Own);
    }

    /// A value that can be turned off, in the format of `codec`.
    fn switch_as<T>(&mut self, key: impl Into<Key>, value: &mut Option<T>, codec: impl Codec<T>) {
        self.value_as(key, value, OrOff(codec));
    }
}
