//! The keys that a backend hands out in answers to health checks.
//!
//! They belong to that backend alone, and change when its process restarts. The newest signs. The one
//! before is still accepted: notices of an earlier lease carry its MAC. They are kept as bytes, since
//! an expanded key is seven times as large and a backend is queried every 20 seconds.

use plimsoll_wire::probe::{ClientKey, Keyring};

use super::keys::Keys;

/// The keys of one backend, the newest first.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HandedKeys([Option<ClientKey>; 2]);

impl HandedKeys {
    /// Whether there is no key yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.0[0].is_none()
    }

    /// Takes a key that the backend handed out. Returns whether it is new.
    ///
    /// Behind a packet balancer two processes hand out theirs in turn: those are not new.
    pub(crate) fn take(&mut self, key: ClientKey) -> bool {
        let [newest, former] = self.0;
        if newest != Some(key) {
            self.0 = [Some(key), newest.filter(|newest| newest.id() != key.id())];
        }
        newest != Some(key) && former != Some(key)
    }

    /// The keys, ready to sign.
    pub(super) fn expand(&self) -> Keys {
        let add = |keyring: Keyring, key: &ClientKey| {
            keyring.with_shared(key.key()).expect("two keys at most, of different ids")
        };
        let keyring = self.0.iter().flatten().fold(Keyring::default(), add);
        Keys { keyring, signs: self.0[0].map_or(0, |key| key.id()) }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::probe::Instance;
    use plimsoll_wire::probe::Key;

    use super::*;

    fn key(id: u8, secret: u8) -> ClientKey {
        let keyring = Keyring::default().with_derived(Key::new(id, &[secret; 32]).unwrap()).unwrap();
        keyring.client_key(Instance::new(5).unwrap()).unwrap()
    }

    #[test]
    fn newest_key_signs_and_the_one_before_is_kept() {
        let mut keys = HandedKeys::default();
        assert!(keys.is_empty() && keys.take(key(1, 1)) && !keys.take(key(1, 1)));
        assert!(keys.take(key(2, 2)));
        assert_eq!((keys.0, keys.expand().signs), ([Some(key(2, 2)), Some(key(1, 1))], 2));
        assert!(!keys.take(key(1, 1)), "in turn");
        assert_eq!(keys.expand().signs, 1);
        assert!(keys.take(key(3, 3)));
        assert_eq!(keys.0, [Some(key(3, 3)), Some(key(1, 1))]);
    }

    #[test]
    fn key_of_a_restarted_process_replaces_one_of_the_same_id() {
        let mut keys = HandedKeys::default();
        assert!(keys.take(key(1, 1)) && keys.take(key(1, 2)));
        assert_eq!(keys.0, [Some(key(1, 2)), None]);
        keys.expand();
    }

    #[test]
    fn memory_of_a_backend_is_within_its_bound() {
        assert!(size_of::<HandedKeys>() <= 72, "{} bytes", size_of::<HandedKeys>());
    }
}
