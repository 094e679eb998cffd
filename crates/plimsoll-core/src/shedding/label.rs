//! A name of fixed size.
//!
//! Names of customers come from outside and are unlimited in number and length. At a fixed size
//! they need fixed memory, and an entry changes its name without an allocation.

use core::fmt::{self, Write as _};

/// A name, cut to [`Label::MAX_LEN`] bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Label {
    bytes: [u8; Self::MAX_LEN],
    len: u8,
    is_cut: bool,
}

impl Label {
    /// Longest name in bytes; a longer one is cut.
    pub const MAX_LEN: usize = 62;

    /// The label of a value's `Display` form.
    #[must_use]
    pub fn of(name: impl fmt::Display) -> Self {
        let mut label = Self::default();
        // Only a cut name is an error.
        let _ = write!(label, "{name}");
        label
    }

    /// The name, without the part that was cut.
    #[must_use]
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..usize::from(self.len)]).expect("whole characters were written")
    }

    /// Whether the name was cut.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }
}

impl Default for Label {
    fn default() -> Self {
        Self { bytes: [0; Self::MAX_LEN], len: 0, is_cut: false }
    }
}

/// The same as [`Label::of`] without a formatter.
impl From<&str> for Label {
    fn from(name: &str) -> Self {
        let mut label = Self::default();
        let _ = label.write_str(name);
        label
    }
}

impl fmt::Write for Label {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let begin = usize::from(self.len);
        let fits = text.floor_char_boundary(Self::MAX_LEN - begin);
        self.bytes[begin..begin + fits].copy_from_slice(&text.as_bytes()[..fits]);
        self.len += fits as u8;
        self.is_cut |= fits < text.len();
        if self.is_cut { Err(fmt::Error) } else { Ok(()) }
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())?;
        if self.is_cut { f.write_str("…") } else { Ok(()) }
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::string::ToString as _;

    use super::*;

    #[test]
    fn long_name_is_cut_between_characters() {
        assert_eq!(Label::of("search").to_string(), "search");
        let long = "ä".repeat(40);
        let label = Label::of(format_args!("x{long} and more"));
        assert_eq!(label.as_str(), std::format!("x{}", "ä".repeat(30)));
        assert!(label.is_cut() && label.to_string().ends_with('…'));
        assert!(!Label::of("x".repeat(Label::MAX_LEN)).is_cut());
    }

    #[test]
    fn label_from_text_equals_label_of_its_display() {
        for text in ["", "search", &"ä".repeat(40)] {
            let label = Label::from(text);
            assert_eq!(label, Label::of(text));
            assert_eq!(label.is_cut(), text.len() > Label::MAX_LEN);
        }
    }
}
