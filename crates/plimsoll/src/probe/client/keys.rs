//! The keys of a client: one signs its queries, all are accepted in answers.

use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll_core::probe::{Authenticity, Instance, Query};
use plimsoll_wire::probe::{Fault, Keyring, LENGTH, Message, Received, decode, encode};

use super::handed::HandedKeys;
use crate::probe::keys::{InvalidKeys, read_keys};

/// The keys of a client's probes. Equal if one is a clone of the other.
#[derive(Clone, Debug)]
pub struct ProbeKeys(Arc<Keys>);

#[derive(Debug)]
pub(super) struct Keys {
    pub(super) keyring: Keyring,
    /// The key that signs queries; 0 for none.
    pub(super) signs: u8,
}

impl Keys {
    fn sign(&self, query: &Query) -> Option<[u8; LENGTH]> {
        encode(&Message::Query(*query), &self.keyring, self.signs, query.instance)
    }

    fn verify(&self, bytes: &[u8], instance: Instance) -> Result<(Message, Authenticity), Fault> {
        let Received { message, authenticity, .. } = decode(bytes, &self.keyring, Some(instance))?;
        Ok((message, authenticity))
    }
}

/// The keys with which one backend is probed.
#[derive(Clone, Debug)]
pub(crate) enum KeysInUse {
    /// Those of the whole cluster.
    Cluster(ProbeKeys),
    /// Those that the backend handed out.
    Handed(HandedKeys),
}

impl KeysInUse {
    /// The datagram of a query.
    pub(crate) fn sign(&self, query: &Query) -> Option<[u8; LENGTH]> {
        match self {
            Self::Cluster(keys) => keys.0.sign(query),
            Self::Handed(keys) => keys.expand().sign(query),
        }
    }

    /// Reads a datagram to the client `instance`.
    pub(crate) fn verify(&self, bytes: &[u8], instance: Instance) -> Result<(Message, Authenticity), Fault> {
        match self {
            Self::Cluster(keys) => keys.0.verify(bytes, instance),
            Self::Handed(keys) => keys.expand().verify(bytes, instance),
        }
    }
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
}

impl PartialEq for ProbeKeys {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ProbeKeys {}
