//! The keys of probes: two shared and two derived ones, so that each kind can be rotated.
//!
//! - A *shared* key is the same for the fleet, from a file.
//! - A *derived* key belongs to one client: `HMAC(secret, instance of the client)`. A responder
//!   computes it for each query and keeps nothing. It hands the key out in its answer to a health
//!   check.
//! - Without a key (id 0) anybody on the way can forge. A keyring says whether it accepts that; only
//!   loopback should.
//!
//! To rotate a key, add the new one everywhere, then sign with it everywhere, then remove the old
//! one.

use core::num::NonZeroU8;

use plimsoll_core::probe::{Authenticity, Instance};

use super::mac::MacKey;
use super::{Fault, MAC_LENGTH};

/// Shortest secret: that of 128 bits.
const MIN_SECRET: usize = 16;

/// A secret with its id.
#[derive(Clone, Debug)]
pub struct Key {
    id: NonZeroU8,
    mac: MacKey,
}

impl Key {
    /// The key with this id.
    ///
    /// # Errors
    /// If the id is 0, or the secret has fewer than 16 bytes.
    pub fn new(id: u8, secret: &[u8]) -> Result<Self, KeyFault> {
        let id = NonZeroU8::new(id).ok_or(KeyFault::Id)?;
        if secret.len() < MIN_SECRET {
            Err(KeyFault::Short(secret.len()))
        } else {
            Ok(Self { id, mac: MacKey::new(secret) })
        }
    }

    pub(super) fn id(&self) -> NonZeroU8 {
        self.id
    }

    /// The secret of one client's key, to hand out: `HMAC(secret, instance)`.
    #[must_use]
    pub fn derived_secret(&self, client: Instance) -> [u8; 32] {
        self.mac.derived_secret(client)
    }
}

/// The reason why keys cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum KeyFault {
    /// The id is 0.
    #[error("key id 0 means no key; help: use 1 to 255")]
    Id,
    /// The secret is short.
    #[error("secret of {0} bytes; help: use at least 16 random bytes")]
    Short(usize),
    /// Two keys have one id.
    #[error("two keys have the id {0}; help: give each key its own id")]
    Twice(u8),
    /// There are too many keys.
    #[error("more than two keys of one kind; help: remove the oldest")]
    TooMany,
}

#[derive(Clone, Debug)]
enum Entry {
    Shared(Key),
    Derived(Key),
}

impl Entry {
    fn key(&self) -> &Key {
        match self {
            Self::Shared(key) | Self::Derived(key) => key,
        }
    }
}

/// The keys that a client or a responder knows.
#[derive(Clone, Debug, Default)]
pub struct Keyring {
    entries: [Option<Entry>; 4],
    accepts_keyless: bool,
}

impl Keyring {
    /// No key, and none required: for loopback.
    #[must_use]
    pub fn keyless() -> Self {
        Self { accepts_keyless: true, ..Self::default() }
    }

    /// Whether it accepts datagrams without a key, which anybody can forge.
    #[must_use]
    pub fn accepts_keyless(&self) -> bool {
        self.accepts_keyless
    }

    /// Adds a key that signs as it is: one of a file, or a derived one that a client was given.
    ///
    /// # Errors
    /// If there are two, or one has the same id.
    pub fn with_shared(self, key: Key) -> Result<Self, KeyFault> {
        self.with(Entry::Shared(key))
    }

    /// Adds a secret of a responder, which each client's key is derived from. The first one is handed
    /// out; both are accepted.
    ///
    /// # Errors
    /// If there are two, or one has the same id.
    pub fn with_derived(self, secret: Key) -> Result<Self, KeyFault> {
        self.with(Entry::Derived(secret))
    }

    /// The first secret that clients' keys are derived from.
    pub(super) fn first_secret(&self) -> Option<&Key> {
        self.entries.iter().flatten().find_map(|entry| match entry {
            Entry::Derived(secret) => Some(secret),
            Entry::Shared(_) => None,
        })
    }

    fn with(mut self, entry: Entry) -> Result<Self, KeyFault> {
        let id = entry.key().id;
        if self.entries.iter().flatten().any(|other| other.key().id == id) {
            return Err(KeyFault::Twice(id.get()));
        }
        let slots = match entry {
            Entry::Shared(_) => &mut self.entries[..2],
            Entry::Derived(_) => &mut self.entries[2..],
        };
        let slot = slots.iter_mut().find(|slot| slot.is_none()).ok_or(KeyFault::TooMany)?;
        *slot = Some(entry);
        Ok(self)
    }

    /// The MAC of `content`, of the client at either end.
    pub(super) fn sign(&self, content: &[u8], key_id: u8, client: Instance) -> Option<[u8; MAC_LENGTH]> {
        if key_id == 0 {
            return self.accepts_keyless.then_some([0; MAC_LENGTH]);
        }
        match self.find(key_id)? {
            Entry::Shared(key) => Some(key.mac.sign(content)),
            Entry::Derived(key) => Some(key.mac.derive(client).sign(content)),
        }
    }

    pub(super) fn verify(
        &self,
        content: &[u8],
        mac: &[u8],
        key_id: u8,
        client: Instance,
    ) -> Result<Authenticity, Fault> {
        if key_id == 0 {
            let is_accepted = self.accepts_keyless && mac.iter().all(|byte| *byte == 0);
            return if is_accepted { Ok(Authenticity::Keyless) } else { Err(Fault::Mac) };
        }
        let is_valid = match self.find(key_id).ok_or(Fault::UnknownKey)? {
            Entry::Shared(key) => key.mac.verify(content, mac),
            Entry::Derived(key) => key.mac.derive(client).verify(content, mac),
        };
        if is_valid { Ok(Authenticity::Keyed) } else { Err(Fault::Mac) }
    }

    fn find(&self, key_id: u8) -> Option<&Entry> {
        self.entries.iter().flatten().find(|entry| entry.key().id.get() == key_id)
    }
}
