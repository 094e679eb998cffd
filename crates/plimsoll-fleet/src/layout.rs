//! The keys of a fleet in etcd, after the prefix of the client.
//!
//! ```text
//! services/S/backends/INSTANCE   a backend             ends with its process's lease
//! services/S/slots/N             the backend of slot N
//! clients/G/members/CLIENT       a client is live      ends with its process's lease
//! clients/G/numbers/N            the client of index N
//! ledger/S/G/leader              the writer            ends with its process's lease
//! ledger/S/G/of/CLIENT           the client's backends
//! ```
//!
//! Numbers and assignments have no lease. They outlive an outage that ends all leases, and each
//! process finds its own again.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// The longest name, in bytes.
pub const MAX_NAME: usize = 128;

/// Not a name of a service, a group, a client or a backend.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is not a name: use 1 to {MAX_NAME} visible ASCII characters without a slash")]
pub struct InvalidName(pub String);

/// A name in a key: of a service, a group of clients, a client or a backend.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    /// A name.
    ///
    /// # Errors
    /// Not 1 to 128 visible ASCII characters, or one is a slash.
    pub fn new(name: impl Into<String>) -> Result<Self, InvalidName> {
        let name = name.into();
        let is_name =
            (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/');
        if is_name { Ok(Self(name)) } else { Err(InvalidName(name)) }
    }

    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = InvalidName;

    fn from_str(name: &str) -> Result<Self, InvalidName> {
        Self::new(name)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The folder of a service: [`BACKENDS`] and [`SLOTS`] are in it.
pub(crate) fn service(service: &Name) -> String {
    format!("services/{service}/")
}

/// The folder of a group of clients: [`MEMBERS`] and [`NUMBERS`] are in it.
pub(crate) fn clients(group: &Name) -> String {
    format!("clients/{group}/")
}

/// The folder of a ledger: [`LEADER`] and [`OF`] are in it.
pub(crate) fn ledger(service: &Name, group: &Name) -> String {
    format!("ledger/{service}/{group}/")
}

/// Backends of a service, by instance.
pub(crate) const BACKENDS: &str = "backends/";
/// Slots of a service, by number.
pub(crate) const SLOTS: &str = "slots/";
/// Live clients of a group, by client.
pub(crate) const MEMBERS: &str = "members/";
/// Indices of a group, by number.
pub(crate) const NUMBERS: &str = "numbers/";
/// The writer of a ledger.
pub(crate) const LEADER: &str = "leader";
/// Assignments of a ledger, by client.
pub(crate) const OF: &str = "of/";

/// The number that is the last part of a key. `007` and `+7` would be other keys than that of 7: they are none.
pub(crate) fn number(part: &str) -> Option<u32> {
    part.parse().ok().filter(|number: &u32| number.to_string() == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_has_one_key() {
        assert_eq!(["0", "7", "4294967295"].map(number), [Some(0), Some(7), Some(u32::MAX)]);
        for other in ["", "00", "07", "+7", "-1", "7 ", "7/7", "4294967296", "seven"] {
            assert_eq!(number(other), None, "{other}");
        }
    }

    #[test]
    fn name_is_visible_text_without_a_slash() {
        for good in ["web", "10.0.0.1:8080", "[::1]:80"] {
            assert!(Name::new(good).is_ok(), "{good}");
        }
        for bad in ["", "a/b", "a b", "ü", "a\n", &"x".repeat(MAX_NAME + 1)] {
            assert!(Name::new(bad).is_err(), "{bad}");
        }
    }
}
