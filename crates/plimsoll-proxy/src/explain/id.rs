//! The id of a request, for questions about it: its sender's, or one of the proxy's own.
//!
//! The header is `x-request-id`, which Envoy, ingress controllers and most frameworks know. A
//! request without one goes on without one: an id would be another field for each backend to read.
//! Only the sender of a request that was not served gets an id from the proxy.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{HeaderMap, HeaderName, HeaderValue};
use plimsoll_core::shedding::Label;

pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The id of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestId {
    /// Its sender's.
    Given(Label),
    /// Its sender gave none, or one that is empty or too long to be kept.
    None,
}

impl RequestId {
    pub(crate) fn read(headers: &HeaderMap) -> Self {
        let text = headers.get(X_REQUEST_ID).and_then(|value| value.to_str().ok());
        match text.filter(|text| (1..=Label::MAX_LEN).contains(&text.len())) {
            Some(text) => Self::Given(text.into()),
            None => Self::None,
        }
    }

    /// The sender's, or a new one.
    pub(crate) fn or_own(self) -> Id {
        match self {
            Self::Given(id) => Id { text: id, is_own: false },
            Self::None => Id { text: own(), is_own: true },
        }
    }
}

/// The id of a recorded request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Id {
    pub(crate) text: Label,
    /// It is the proxy's own, and only its receivers know it.
    pub(crate) is_own: bool,
}

impl Id {
    /// Says so in the head of an answer.
    pub(crate) fn put_into(&self, headers: &mut HeaderMap) {
        if let Ok(value) = HeaderValue::from_str(self.text.as_str()) {
            headers.insert(X_REQUEST_ID, value);
        }
    }
}

/// Sixteen hexadecimal digits, others for each request of all processes.
fn own() -> Label {
    static KEYS: OnceLock<RandomState> = OnceLock::new();
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = KEYS.get_or_init(RandomState::new).hash_one(NUMBER.fetch_add(1, Ordering::Relaxed));
    // By hand: a formatter costs ten times as much, which in a storm of refusals is to be seen.
    let digits: [u8; 16] = std::array::from_fn(|place| b"0123456789abcdef"[(number >> (60 - 4 * place) & 15) as usize]);
    std::str::from_utf8(&digits).expect("digits and letters").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_keeps_its_senders_id_or_gets_one() {
        let read = |value: &str| {
            let headers = HeaderMap::from_iter([(X_REQUEST_ID, HeaderValue::from_bytes(value.as_bytes()).unwrap())]);
            RequestId::read(&headers).or_own()
        };
        let given = read("7d4e-1");
        assert_eq!((given.text.as_str(), given.is_own), ("7d4e-1", false));
        for value in ["", &"x".repeat(Label::MAX_LEN + 1), "ä"] {
            let own = read(value);
            assert!(own.is_own && own.text.as_str().len() == 16, "{value:?}: {own:?}");
        }
        assert_ne!(read(""), read(""));
    }
}
