//! The end of the certificates that a listener shows, for metrics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use plimsoll::tls::TlsMaterial;

/// Stands for the name of a certificate for addresses only.
const UNNAMED: &str = "unnamed";

/// A certificate that clients are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateExpiry {
    /// Its first name: of a host, else a URI; `unnamed` without one.
    pub name: String,
    /// The last moment at which it is valid.
    pub not_after: SystemTime,
}

impl CertificateExpiry {
    /// Those of a listener, by name. Several of one name, such as one of RSA and one of ECDSA, are the
    /// one that expires first. A certificate whose dates cannot be read is left out.
    #[must_use]
    pub fn of(tls: &TlsMaterial) -> Arc<[Self]> {
        let mut by_name: BTreeMap<String, SystemTime> = BTreeMap::new();
        for identity in &tls.identities {
            let Some(validity) = identity.validity() else { continue };
            let name = identity.names().first().map_or(UNNAMED, |name| &**name).to_owned();
            let not_after = by_name.entry(name).or_insert(validity.not_after);
            *not_after = validity.not_after.min(*not_after);
        }
        by_name.into_iter().map(|(name, not_after)| Self { name, not_after }).collect()
    }
}
