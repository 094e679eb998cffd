//! The header that hands a client its derived key, in the answer to a health check.
//!
//! ```text
//! request  x-plimsoll-probe-key: seed="00112233445566778899aabbccddeeff"
//! answer   x-plimsoll-probe-key: id=7, secret="…"                    64 digits
//! ```
//!
//! Both are dictionaries of RFC 9651. They are read strictly: one value, these members in this order,
//! digits in lower case.
//!
//! The request names no instance but a *seed*, and the instance is a hash of the seed. Each datagram
//! shows the instance of its client, and must not show the way to the client's key: whoever sends an
//! instance in place of a seed would get the key of any client that it has overheard.

use core::fmt;
use core::num::NonZeroU8;

use http::{HeaderMap, HeaderValue};
use plimsoll_core::probe::Instance;
use ring::digest;

use super::{Key, Keyring};
use crate::headers::X_PLIMSOLL_PROBE_KEY;

const SEED: usize = 16;
const SECRET: usize = 32;

/// A header that is no request for a key, or no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("malformed x-plimsoll-probe-key")]
pub struct MalformedKeyHeader;

/// The random bytes that a client's instance is made of. Only their client and its backends know
/// them: they give access to its derived keys.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Seed([u8; SEED]);

impl Seed {
    /// The seed of these random bytes.
    #[must_use]
    pub const fn new(bytes: [u8; SEED]) -> Self {
        Self(bytes)
    }

    /// The instance of the client: the first 8 bytes of SHA-256 over the seed, 0 replaced by 1.
    #[must_use]
    pub fn instance(&self) -> Instance {
        let hash = digest::digest(&digest::SHA256, &self.0);
        let mut number = [0; 8];
        number.copy_from_slice(&hash.as_ref()[..8]);
        Instance::new(u64::from_be_bytes(number).max(1)).expect("at least 1")
    }

    /// The value that requests the key of this client.
    #[must_use]
    pub fn to_header_value(&self) -> HeaderValue {
        sensitive(format!("seed=\"{}\"", hex(&self.0)))
    }

    /// Reads the seed in the headers of a health check. `None` if it requests no key.
    ///
    /// # Errors
    /// If the header has another form, or several values.
    pub fn read(headers: &HeaderMap) -> Option<Result<Self, MalformedKeyHeader>> {
        let read = |value: &[u8]| unhex(value.strip_prefix(b"seed=\"")?.strip_suffix(b"\"")?).map(Self);
        Some(only_value(headers)?.and_then(|value| read(value).ok_or(MalformedKeyHeader)))
    }
}

/// The derived key of one client.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ClientKey {
    id: NonZeroU8,
    secret: [u8; SECRET],
}

impl ClientKey {
    /// The id of the secret that the key is derived from.
    #[must_use]
    pub fn id(&self) -> u8 {
        self.id.get()
    }

    /// The key, which signs as it is: see [`Keyring::with_shared`].
    #[must_use]
    pub fn key(&self) -> Key {
        Key::new(self.id.get(), &self.secret).expect("an id that is not 0, and 32 bytes")
    }

    /// The value that hands out the key.
    #[must_use]
    pub fn to_header_value(&self) -> HeaderValue {
        sensitive(format!("id={}, secret=\"{}\"", self.id, hex(&self.secret)))
    }

    /// Reads the key in the headers of an answer to a health check. `None` if it has none.
    ///
    /// # Errors
    /// If the header has another form, or several values.
    pub fn read(headers: &HeaderMap) -> Option<Result<Self, MalformedKeyHeader>> {
        let read = |value: &[u8]| {
            let value = value.strip_prefix(b"id=")?;
            let end = value.iter().position(|byte| *byte == b',')?;
            let (digits, rest) = value.split_at(end);
            let is_plain = digits.first()? != &b'0' && digits.iter().all(u8::is_ascii_digit);
            let id = core::str::from_utf8(digits).ok().filter(|_| is_plain)?.parse().ok()?;
            let secret = unhex(rest.strip_prefix(b", secret=\"")?.strip_suffix(b"\"")?)?;
            Some(Self { id, secret })
        };
        Some(only_value(headers)?.and_then(|value| read(value).ok_or(MalformedKeyHeader)))
    }
}

impl Keyring {
    /// The key of this client, to hand out, derived from the first secret; `None` without a secret.
    #[must_use]
    pub fn client_key(&self, client: Instance) -> Option<ClientKey> {
        let secret = self.first_secret()?;
        Some(ClientKey { id: secret.id(), secret: secret.derived_secret(client) })
    }
}

// Secrets must not get into logs.
impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(…)")
    }
}

impl fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A value that is neither printed nor kept in a table of compressed headers.
fn sensitive(text: String) -> HeaderValue {
    let mut value = HeaderValue::try_from(text).expect("printable ASCII");
    value.set_sensitive(true);
    value
}

fn only_value(headers: &HeaderMap) -> Option<Result<&[u8], MalformedKeyHeader>> {
    let mut values = headers.get_all(X_PLIMSOLL_PROBE_KEY).iter();
    let first = values.next()?;
    Some(if values.next().is_none() { Ok(first.as_bytes()) } else { Err(MalformedKeyHeader) })
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| char::from(DIGITS[usize::from(digit)])).collect()
}

fn unhex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED_TEXT: &str = r#"seed="00112233445566778899aabbccddeeff""#;

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (X_PLIMSOLL_PROBE_KEY, HeaderValue::from_str(value).unwrap())).collect()
    }

    fn keyring(id: u8) -> Keyring {
        Keyring::default().with_derived(Key::new(id, &[7; 32]).unwrap()).unwrap()
    }

    #[test]
    fn requests_and_keys_read_as_they_were_written() {
        let seed = Seed::read(&headers(&[SEED_TEXT])).unwrap().unwrap();
        assert_eq!(seed.to_header_value(), SEED_TEXT);
        for id in [1, 9, 10, 99, 100, 255] {
            let key = keyring(id).client_key(seed.instance()).unwrap();
            let value = key.to_header_value();
            assert_eq!(ClientKey::read(&headers(&[value.to_str().unwrap()])), Some(Ok(key)));
            assert_eq!(key.id(), id);
        }
        assert_eq!((Seed::read(&HeaderMap::new()), ClientKey::read(&HeaderMap::new())), (None, None));
    }

    #[test]
    fn other_forms_are_malformed() {
        let secret = "0".repeat(64);
        let seeds = [
            "",
            "seed=00112233445566778899aabbccddeeff",
            r#"seed="""#,
            r#"seed="00112233445566778899aabbccddee""#,
            r#"seed="00112233445566778899aabbccddeeff00""#,
            r#"seed="00112233445566778899AABBCCDDEEFF""#,
            r#"seed="00112233445566778899aabbccddeefg""#,
            r#" seed="00112233445566778899aabbccddeeff""#,
            r#"seed="00112233445566778899aabbccddeeff";a"#,
            r#"instance="0011223344556677""#,
        ];
        for text in seeds {
            assert_eq!(Seed::read(&headers(&[text])), Some(Err(MalformedKeyHeader)), "{text}");
        }
        let key = |id: &str, secret: &str| format!(r#"id={id}, secret="{secret}""#);
        assert!(ClientKey::read(&headers(&[&key("1", &secret)])).unwrap().is_ok());
        let keys = [
            key("0", &secret),
            key("256", &secret),
            key("01", &secret),
            key("+1", &secret),
            key("", &secret),
            key("1", &secret[2..]),
            key("1", &format!("{secret}00")),
            key("1", &secret.replace('0', "A")),
            format!(r#"id=1,secret="{secret}""#),
            format!(r#"secret="{secret}", id=1"#),
            "id=1".to_owned(),
            SEED_TEXT.to_owned(),
        ];
        for text in keys {
            assert_eq!(ClientKey::read(&headers(&[&text])), Some(Err(MalformedKeyHeader)), "{text}");
        }
        assert_eq!(Seed::read(&headers(&[SEED_TEXT; 2])), Some(Err(MalformedKeyHeader)));
    }

    #[test]
    fn first_secret_is_handed_out_and_a_keyring_without_one_has_no_key() {
        let client = Seed::new([1; 16]).instance();
        let both = keyring(3).with_derived(Key::new(4, &[8; 32]).unwrap()).unwrap();
        assert_eq!(both.client_key(client).unwrap(), keyring(3).client_key(client).unwrap());
        let shared = Keyring::default().with_shared(Key::new(1, &[7; 32]).unwrap()).unwrap();
        assert_eq!(shared.client_key(client), None, "a key of the fleet");
        assert_eq!(Keyring::keyless().client_key(client), None);
    }

    #[test]
    fn secrets_are_not_printed() {
        let seed = Seed::new([0x5a; 16]);
        let key = ClientKey { id: NonZeroU8::MIN, secret: [0x5a; 32] };
        for text in [
            format!("{seed:?} {key:?}"),
            format!("{:?}", seed.to_header_value()),
            format!("{:?}", key.to_header_value()),
        ] {
            assert!(!text.contains("5a") && !text.contains("90"), "{text}");
        }
    }
}
