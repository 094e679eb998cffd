//! Codecs: how the value of one setting is written in the file.
//!
//! A type with one format everywhere has it as its [`Value`]. Where the same type is written in
//! several ways (a limit of at most 100,000, the name of a choice), or belongs to another crate, the
//! line of the setting names a codec. The usual way is a wrapper type for each format: it puts the
//! format in another file than its setting, and every reader of the value has to unwrap it.

use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use crate::problem::Flaw;
use crate::table::Value;
use crate::table::read::{OFF, Reading, how_to_write, kind, read_alone};
use crate::value::{choice, quoted};

/// How a value of type `T` is written in the file.
pub trait Codec<T> {
    /// Reads the value, or reports its flaw at the present place and returns `None`.
    fn read(&self, value: &Spanned<DeValue<'_>>, reading: &mut Reading<'_>) -> Option<T>;

    /// The value as TOML, readable by [`Codec::read`]; `None` for a value that is written by leaving
    /// the setting out.
    fn print(&self, value: &T) -> Option<String>;
}

/// The format that a type has everywhere, its [`Value`].
#[derive(Clone, Copy, Debug)]
pub struct Own;

impl<T: Value> Codec<T> for Own {
    fn read(&self, value: &Spanned<DeValue<'_>>, reading: &mut Reading<'_>) -> Option<T> {
        T::read(value, reading)
    }

    fn print(&self, value: &T) -> Option<String> {
        Some(value.print())
    }
}

/// A format given by two functions.
pub struct Format<T> {
    /// From the TOML value.
    pub read: fn(&DeValue<'_>) -> Result<T, Flaw>,
    /// To TOML.
    pub print: fn(&T) -> String,
}

impl<T> Codec<T> for Format<T> {
    fn read(&self, value: &Spanned<DeValue<'_>>, reading: &mut Reading<'_>) -> Option<T> {
        reading.take((self.read)(value.get_ref()))
    }

    fn print(&self, value: &T) -> Option<String> {
        Some((self.print)(value))
    }
}

/// One of a fixed choice of names.
pub struct Choice<T: 'static> {
    /// The choice in messages, with its article: `a protocol`.
    pub noun: &'static str,
    /// The names, each with its value.
    pub names: &'static [(&'static str, T)],
}

impl<T: PartialEq> Choice<T> {
    /// The name of `value`.
    ///
    /// # Panics
    /// If it is none of the choice.
    #[must_use]
    pub fn name(&self, value: &T) -> &'static str {
        self.names.iter().find(|(_, known)| known == value).expect("all are listed").0
    }
}

impl<T: Copy + PartialEq> Codec<T> for Choice<T> {
    fn read(&self, value: &Spanned<DeValue<'_>>, reading: &mut Reading<'_>) -> Option<T> {
        reading.take(choice(value.get_ref(), self.noun, self.names))
    }

    fn print(&self, value: &T) -> Option<String> {
        Some(quoted(self.name(value)))
    }
}

/// A value that may be left out; `None` is printed as nothing.
pub struct Optional<C>(pub C);

impl<T, C: Codec<T>> Codec<Option<T>> for Optional<C> {
    fn read(&self, value: &Spanned<DeValue<'_>>, reading: &mut Reading<'_>) -> Option<Option<T>> {
        self.0.read(value, reading).map(Some)
    }

    fn print(&self, value: &Option<T>) -> Option<String> {
        self.0.print(value.as_ref()?)
    }
}

/// A value that `"off"` turns off.
pub struct OrOff<C>(pub C);

impl<T, C: Codec<T>> Codec<Option<T>> for OrOff<C> {
    fn read(&self, value: &Spanned<DeValue<'_>>, reading: &mut Reading<'_>) -> Option<Option<T>> {
        if matches!(value.get_ref(), DeValue::String(text) if text == OFF) {
            return Some(None);
        }
        self.0.read(value, reading).map(Some)
    }

    fn print(&self, value: &Option<T>) -> Option<String> {
        value.as_ref().map_or_else(|| Some(quoted(OFF)), |value| self.0.print(value))
    }
}

/// A duration that is zero while its rule is off, which the file writes as `"off"`.
#[derive(Clone, Copy, Debug)]
pub struct SpanOrOff;

impl Codec<Duration> for SpanOrOff {
    fn read(&self, value: &Spanned<DeValue<'_>>, reading: &mut Reading<'_>) -> Option<Duration> {
        OrOff(Own).read(value, reading).map(Option::unwrap_or_default)
    }

    fn print(&self, span: &Duration) -> Option<String> {
        OrOff(Own).print(&(!span.is_zero()).then_some(*span))
    }
}

/// A list; an element that cannot be read is reported at its index and left out.
pub struct List<C>(pub C);

impl<C> List<C> {
    /// The list that is meant by one element without brackets, or by a text with commas.
    fn meant<T>(&self, value: &Spanned<DeValue<'_>>) -> Option<Vec<T>>
    where
        C: Codec<T>,
    {
        if let Some(element) = read_alone(value, &self.0) {
            return Some(vec![element]);
        }
        let parts = value.get_ref().as_str()?.split([',', ' ']).filter(|part| !part.is_empty());
        parts.map(|part| read_alone(&Spanned::new(0..0, DeValue::String(part.into())), &self.0)).collect()
    }

    fn written<T>(&self, list: &[T]) -> String
    where
        C: Codec<T>,
    {
        let items: Vec<String> = list.iter().filter_map(|item| self.0.print(item)).collect();
        format!("[{}]", items.join(", "))
    }
}

impl<T, C: Codec<T>> Codec<Vec<T>> for List<C> {
    fn read(&self, value: &Spanned<DeValue<'_>>, reading: &mut Reading<'_>) -> Option<Vec<T>> {
        let DeValue::Array(items) = value.get_ref() else {
            let help = match self.meant(value) {
                Some(list) => format!("write it in brackets: {}", self.written(&list)),
                None => {
                    let mut help = "write it in brackets: [..., ...]".to_owned();
                    help.extend(
                        how_to_write(|found, reading| drop(self.0.read(found, reading)))
                            .map(|how| format!("; for each, {how}")),
                    );
                    help
                }
            };
            reading.problem(format!("expected a list, found {}", kind(value.get_ref())), help);
            return None;
        };
        let mut list = Vec::new();
        for (i, item) in items.iter().enumerate() {
            list.extend(reading.within(&format!("[{i}]"), item.span(), |reading| self.0.read(item, reading)));
        }
        Some(list)
    }

    fn print(&self, list: &Vec<T>) -> Option<String> {
        Some(self.written(list))
    }
}

impl<T: Value> Value for Vec<T> {
    fn read(value: &Spanned<DeValue<'_>>, reading: &mut Reading<'_>) -> Option<Self> {
        List(Own).read(value, reading)
    }

    fn print(&self) -> String {
        List(Own).written(self)
    }
}
