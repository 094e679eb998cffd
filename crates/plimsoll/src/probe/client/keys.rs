//! The keys of a client: one signs its queries, all are accepted in answers.

use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll_core::probe::{Authenticity, Instance, Query};
use plimsoll_wire::probe::{Fault, Keyring, LENGTH, Message, Received, decode, encode};

use crate::probe::keys::{InvalidKeys, read_keys};

/// The keys of a client's probes. Equal if one is a clone of the other.
#[derive(Clone, Debug)]
pub struct ProbeKeys(Arc<Keys>);

#[derive(Debug)]
struct Keys {
    keyring: Keyring,
    /// The key that signs queries; 0 for none.
    signs: u8,
}

impl ProbeKeys {
    /// Reads the keys of a fleet, as [`read_keys`] does.
    ///
    /// # Errors
    /// Names the first line that is no key, or whose key cannot be used.
    pub fn read(text: &str) -> Result<Self, InvalidKeys> {
        let (keyring, signs) = read_keys(text)?;
        Ok(Self(Arc::new(Keys { keyring, signs })))
    }

    /// No key: only for backends on the same machine.
    #[must_use]
    pub(crate) fn keyless() -> Self {
        Self(Arc::new(Keys { keyring: Keyring::keyless(), signs: 0 }))
    }

    /// Whether this backend may be probed. Without a key, anybody on the way can forge.
    pub(crate) fn suffice_for(&self, backend: SocketAddr) -> bool {
        !self.0.keyring.accepts_keyless() || backend.ip().to_canonical().is_loopback()
    }

    /// The datagram of a query.
    pub(crate) fn sign(&self, query: &Query) -> Option<[u8; LENGTH]> {
        encode(&Message::Query(*query), &self.0.keyring, self.0.signs, query.instance)
    }

    /// Reads a datagram to the client `instance`.
    pub(crate) fn verify(&self, bytes: &[u8], instance: Instance) -> Result<(Message, Authenticity), Fault> {
        let Received { message, authenticity, .. } = decode(bytes, &self.0.keyring, Some(instance))?;
        Ok((message, authenticity))
    }
}

impl PartialEq for ProbeKeys {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ProbeKeys {}
