//! The keys of a responder: a file that a fleet shares, or keys for each client by health checks.
//!
//! ```text
//! # id  secret, 16 to 64 bytes in hexadecimal
//! 1     2f1c0d…
//! 2     9a77e1…
//! ```
//!
//! The first key signs; the others are accepted. To rotate: add the new key as the last line
//! everywhere, then make it the first everywhere, then remove the old one.

use std::io;

use plimsoll_wire::probe::{Key, KeyFault, Keyring};

use super::random;

/// Longest secret, in bytes: the block of SHA-256, beyond which HMAC gains nothing.
const MAX_SECRET: usize = 64;

/// A line of a file of keys that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidKeys {
    /// There is no key.
    #[error("no key; help: write a line of an id from 1 to 255 and a secret, such as `openssl rand -hex 32` prints")]
    Empty,
    /// A line is not an id and a secret.
    #[error("line {line}: {problem}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// The problem, and its solution.
        problem: String,
    },
}

/// Reads keys: the keyring, and the id of the key to sign with.
///
/// # Errors
/// Names the first line that is no key, or whose key cannot be used.
pub fn read_keys(text: &str) -> Result<(Keyring, u8), InvalidKeys> {
    let mut keyring = Keyring::default();
    let mut signs = None;
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let Some(id) = words.next() else { continue };
        let fault = |problem: String| InvalidKeys::Line { line: number + 1, problem };
        let id = id.parse::<u8>().map_err(|_| fault(format!("{id:?} is no id of a key; help: use 1 to 255")))?;
        let secret = words.next().and_then(bytes).filter(|secret| secret.len() <= MAX_SECRET);
        let (Some(secret), None) = (secret, words.next()) else {
            return Err(fault("expected an id and a secret of 16 to 64 bytes in hexadecimal".to_owned()));
        };
        keyring = Key::new(id, &secret)
            .and_then(|key| keyring.with_shared(key))
            .map_err(|problem| fault(problem.to_string()))?;
        signs = signs.or(Some(id));
    }
    signs.map(|id| (keyring, id)).ok_or(InvalidKeys::Empty)
}

/// Adds a random secret, of which a server derives a key for each client that requests one in a health
/// check. It is never stored: a client gets another key after a restart.
///
/// A client that can reach the health check gets a key, and with it the state and the load of the
/// server. The key of another client needs that client's seed.
///
/// ```
/// use plimsoll::probe::{Keyring, hand_out_keys};
///
/// let keyring = hand_out_keys(Keyring::default())?;
/// # Ok::<_, std::io::Error>(())
/// ```
///
/// # Errors
/// If the system gives no random bytes, or the keyring has two secrets already.
pub fn hand_out_keys(keyring: Keyring) -> io::Result<Keyring> {
    let (secret, [first]) = (random::<32>()?, random::<1>()?);
    // A restarted process mostly has another id, so that its clients keep the former key as well.
    let mut fault = KeyFault::TooMany;
    for id in (first.max(1)..=u8::MAX).chain(1..first) {
        match Key::new(id, &secret).and_then(|key| keyring.clone().with_derived(key)) {
            Ok(keyring) => return Ok(keyring),
            Err(KeyFault::Twice(_)) => {}
            Err(other) => {
                fault = other;
                break;
            }
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, fault))
}

fn bytes(hexadecimal: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        hexadecimal.chars().map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    digits
        .filter(|digits| digits.len() % 2 == 0)
        .map(|digits| digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "000102030405060708090a0b0c0d0e0f";

    #[test]
    fn first_key_signs_and_comments_are_skipped() {
        let text = format!("# keys\n\n7 {SECRET} # the new one\n3\t{SECRET}FF\n");
        assert_eq!(read_keys(&text).unwrap().1, 7);
    }

    #[test]
    fn handed_out_keys_stand_beside_those_of_a_file() {
        let (fleet, _) = read_keys(&format!("1 {SECRET}\n2 {SECRET}")).unwrap();
        let client = plimsoll_core::probe::Instance::new(5).unwrap();
        let one = hand_out_keys(fleet.clone()).unwrap();
        let key = one.client_key(client).unwrap();
        assert!(key.id() > 2);
        assert_ne!(hand_out_keys(fleet).unwrap().client_key(client).unwrap(), key, "of another secret");
        let two = hand_out_keys(one).unwrap();
        assert_eq!(two.client_key(client), Some(key));
        assert!(hand_out_keys(two).unwrap_err().to_string().starts_with("more than two keys"));
    }

    #[test]
    fn unusable_lines_are_named_with_their_problem() {
        let problem = |text: &str| read_keys(text).unwrap_err().to_string();
        assert!(problem("# nothing\n").starts_with("no key; help"));
        assert!(problem(&format!("1 {SECRET}\nx {SECRET}")).starts_with("line 2: \"x\" is no id"));
        assert!(problem("1 abc").starts_with("line 1: expected an id and a secret"));
        assert!(problem(&format!("1 {SECRET} {SECRET}")).starts_with("line 1: expected"));
        assert!(problem(&format!("1 {}", SECRET.repeat(5))).starts_with("line 1: expected"));
        assert!(problem("1 00").contains("at least 16 random bytes"));
        assert!(problem(&format!("0 {SECRET}")).contains("use 1 to 255"));
        assert!(problem(&format!("1 {SECRET}\n1 {SECRET}")).starts_with("line 2: two keys have the id 1"));
        assert!(problem(&format!("1 {SECRET}\n2 {SECRET}\n3 {SECRET}")).starts_with("line 3: more than two"));
    }
}
