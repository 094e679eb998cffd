//! The names of customers, as requests give them in the `customer_header` of their listener.

use std::fmt;

use http::HeaderValue;
use plimsoll_config::{Flaw, quoted, text, values};

/// The name of a customer: what stands in a field, compared byte for byte.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CustomerName(String);

impl CustomerName {
    pub(crate) fn parse(name: &str) -> Result<Self, Flaw> {
        let mend = "write it as it stands in the customer_header, such as \"acme\"";
        // The codecs take blanks around a value for no part of it.
        let is_value = !name.is_empty() && name.trim() == name && HeaderValue::from_str(name).is_ok();
        is_value
            .then(|| Self(name.to_owned()))
            .ok_or_else(|| Flaw::new(format!("\"{name}\" is not the name of a customer"), mend))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// As it is written in the file.
impl fmt::Display for CustomerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

values! {
    CustomerName: |v| CustomerName::parse(text(v, "the name of a customer", "a name in quotes, such as \"acme\"")?), |name| quoted(name);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_what_a_field_can_hold() {
        for name in ["acme", "Acme Corp.", "team/batch-7", "*"] {
            assert_eq!(CustomerName::parse(name).unwrap().as_str(), name);
        }
        for junk in ["", " acme", "acme ", "a\nb", "a\u{7f}b"] {
            assert!(CustomerName::parse(junk).is_err(), "{junk:?}");
        }
    }
}
