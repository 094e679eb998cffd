//! Which certificate a client is shown: by the host that it names (SNI), over the names in the
//! certificates.
//!
//! A name in a certificate that begins with `*.` stands for one label, as clients read it (RFC
//! 9525, 6.3); an exact name wins over it. Of several certificates for one host, as when there is
//! one with an ECDSA and one with an RSA key, the first whose key the client can use is shown. A
//! host that no certificate is for, or none named, gets the first of all: whether that will do is
//! for the client to say, and health checks of balancers before us name no host.

use std::collections::HashMap;
use std::sync::Arc;

use rustls::SignatureScheme;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::tls::Identity;

/// Certificates in the order of the file.
type Choice = Vec<Arc<CertifiedKey>>;

#[derive(Debug)]
pub(super) struct ByHost {
    exact: HashMap<Box<str>, Choice>,
    /// By the part behind `*.`.
    wildcard: HashMap<Box<str>, Choice>,
    default: Arc<CertifiedKey>,
}

impl ByHost {
    pub(super) fn new(identities: &[Identity]) -> Self {
        let first = identities.first().expect("a listener with TLS has a certificate at least");
        let mut by_host =
            Self { exact: HashMap::new(), wildcard: HashMap::new(), default: Arc::clone(first.certified()) };
        for identity in identities {
            for name in identity.names() {
                let choice = match name.strip_prefix("*.") {
                    Some(domain) => by_host.wildcard.entry(domain.into()).or_default(),
                    None => by_host.exact.entry(name).or_default(),
                };
                choice.push(Arc::clone(identity.certified()));
            }
        }
        by_host
    }

    fn find(&self, host: Option<&str>, schemes: &[SignatureScheme]) -> Arc<CertifiedKey> {
        let of_host = host.and_then(|host| {
            let wildcard = || self.wildcard.get(host.split_once('.')?.1);
            self.exact.get(host).or_else(wildcard)
        });
        let usable = |key: &&Arc<CertifiedKey>| key.key.choose_scheme(schemes).is_some();
        let found = of_host.and_then(|choice| choice.iter().find(usable).or_else(|| choice.first()));
        Arc::clone(found.unwrap_or(&self.default))
    }
}

impl ResolvesServerCert for ByHost {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // rustls has put the name into lower case.
        Some(self.find(hello.server_name(), hello.signature_schemes()))
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, SignatureAlgorithm};
    use rustls::pki_types::PrivateKeyDer;

    use super::*;

    fn identity(names: &[&str], kind: &'static SignatureAlgorithm) -> Identity {
        let key = KeyPair::generate_for(kind).unwrap();
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let certificate = rcgen::CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
        Identity::new(vec![certificate.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap()).unwrap()
    }

    #[test]
    fn the_certificate_is_that_of_the_host_and_the_first_otherwise() {
        let ec = |names: &[&str]| identity(names, &PKCS_ECDSA_P256_SHA256);
        let identities = [ec(&["first.example"]), ec(&["*.b.example"]), ec(&["x.b.example", "c.example"])];
        let by_host = ByHost::new(&identities);
        let all = [SignatureScheme::ECDSA_NISTP256_SHA256];
        for (host, index) in [
            (None, 0),
            (Some("first.example"), 0),
            (Some("unknown.example"), 0),
            (Some("a.b.example"), 1),
            (Some("x.b.example"), 2),
            (Some("c.example"), 2),
            (Some("y.a.b.example"), 0),
            (Some("b.example"), 0),
            (Some("localhost"), 0),
        ] {
            assert!(Arc::ptr_eq(&by_host.find(host, &all), identities[index].certified()), "{host:?}");
        }
    }

    #[test]
    fn first_usable_certificate_of_a_host_is_shown() {
        let identities = [identity(&["a.example"], &PKCS_ED25519), identity(&["a.example"], &PKCS_ECDSA_P256_SHA256)];
        let by_host = ByHost::new(&identities);
        let found = |schemes: &[SignatureScheme]| {
            let found = by_host.find(Some("a.example"), schemes);
            identities.iter().position(|identity| Arc::ptr_eq(identity.certified(), &found)).unwrap()
        };
        assert_eq!(found(&[SignatureScheme::ED25519, SignatureScheme::ECDSA_NISTP256_SHA256]), 0);
        assert_eq!(found(&[SignatureScheme::ECDSA_NISTP256_SHA256]), 1);
        assert_eq!(found(&[SignatureScheme::RSA_PSS_SHA256]), 0);
    }
}
