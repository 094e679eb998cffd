//! A certificate with its key, which a server presents to clients or a client to servers.

use std::sync::Arc;

use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};

use super::certificate::{Validity, names};
use super::provider;

/// A certificate chain with its key.
#[derive(Clone, Debug)]
pub struct Identity {
    certified: Arc<CertifiedKey>,
}

/// Equal when the certificates are: each is for one key.
impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.certified.cert == other.certified.cert
    }
}

/// The reason why certificate and key make no identity.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The key belongs to another certificate.
    #[error("is not the key of this certificate")]
    KeyDoesNotMatch,
    /// The key is of an unsupported kind or size.
    #[error("cannot be used: {0}")]
    BadKey(Error),
    /// The certificate is unreadable.
    #[error("cannot be used: {0}")]
    BadCertificate(Error),
}

impl Identity {
    /// The identity of a certificate chain, leaf first.
    ///
    /// # Errors
    /// If the key does not match the first certificate, or one of the two is unusable.
    pub fn new(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<Self, IdentityError> {
        let key = provider().key_provider.load_private_key(key).map_err(IdentityError::BadKey)?;
        let certified = CertifiedKey::new(chain, key);
        match certified.keys_match() {
            Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => {
                Ok(Self { certified: Arc::new(certified) })
            }
            Err(Error::InconsistentKeys(_)) => Err(IdentityError::KeyDoesNotMatch),
            Err(error) => Err(IdentityError::BadCertificate(error)),
        }
    }

    /// The names in the certificate.
    #[must_use]
    pub fn names(&self) -> Box<[Box<str>]> {
        self.certified.cert.first().map(names).unwrap_or_default()
    }

    /// The validity of the certificate, if it states one.
    #[must_use]
    pub fn validity(&self) -> Option<Validity> {
        self.certified.cert.first().and_then(Validity::of)
    }

    /// The form that rustls takes.
    #[must_use]
    pub fn certified(&self) -> &Arc<CertifiedKey> {
        &self.certified
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::pem::PemObject as _;

    use super::*;
    use crate::tls::testing::Authority;

    #[test]
    fn certificate_and_key_must_be_of_one_pair() {
        let authority = Authority::new();
        let (certificate, key) = authority.sign(&["a.example"]);
        let (_, other_key) = authority.sign(&["a.example"]);
        let chain = || vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
        let read = |pem: &str| PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap();
        let identity = Identity::new(chain(), read(&key)).unwrap();
        assert_eq!(identity.names().first().map(|name| &**name), Some("a.example"));
        assert!(matches!(Identity::new(chain(), read(&other_key)), Err(IdentityError::KeyDoesNotMatch)));
        let junk = vec![CertificateDer::from(vec![1, 2, 3])];
        assert!(matches!(Identity::new(junk, read(&key)), Err(IdentityError::BadCertificate(_))));
    }
}
