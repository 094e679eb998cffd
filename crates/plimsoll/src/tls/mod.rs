//! TLS: certificates from files, connections to backends, and listeners.
//!
//! rustls is the implementation, with the cryptography of ring or AWS-LC. It offers versions 1.2 and 1.3, and only cipher suites
//! with forward secrecy and authenticated encryption. So there is no list of ciphers to get wrong.
//!
//! - [`file`](mod@file): certificates and keys in PEM, with clear errors.
//! - [`Identity`]: a certificate with its key, of a server or a client.
//! - [`names`], [`Validity`]: the names and dates of a certificate.
//! - [`TlsConfig`]: the trust and the identity of a client.
//! - [`Acceptor`]: the handshakes of a server.
//! - [`ServerTls`]: the identities of a server, and the certificates that it asks for.

mod certificate;
mod client;
pub mod file;
mod identity;
mod server;

use std::sync::{Arc, LazyLock};

use rustls::server::ProducesTickets;

pub use self::certificate::{Validity, names};
pub(crate) use self::client::Alpn;
#[cfg(test)]
pub(crate) use self::client::server_name;
pub use self::client::{NoSystemRoots, TlsConfig, TlsTrust};
pub use self::identity::{Identity, IdentityError};
pub use self::server::{
    AcceptedConnection, Acceptor, ClientAuth, ClientNames, HTTP2, HandshakeFailure, ServerTls, TlsMaterial, TlsVersion,
    chain,
};

/// The connections of [`TlsConfig`] and [`Acceptor`].
pub use plimsoll_stream::{Socket, Stream};
/// The types of rustls in this interface.
pub use rustls::crypto::CryptoProvider;
pub use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
pub use rustls::sign::CertifiedKey;
pub use rustls::{Error as RustlsError, RootCertStore, ServerConfig};

/// The cryptography of every connection.
///
/// Each configuration names it. A global default would clash with that of the program. That of the
/// feature `tls-aws-lc` comes first, then that of `tls-ring`.
///
/// # Panics
/// If neither feature is on, and the program has installed no default provider in rustls.
#[must_use]
pub fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> = LazyLock::new(chosen);
    Arc::clone(&PROVIDER)
}

#[cfg(feature = "tls-aws-lc")]
fn chosen() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

#[cfg(all(feature = "tls-ring", not(feature = "tls-aws-lc")))]
fn chosen() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

#[cfg(not(any(feature = "tls-ring", feature = "tls-aws-lc")))]
fn chosen() -> Arc<CryptoProvider> {
    let installed = CryptoProvider::get_default();
    Arc::clone(installed.expect("a provider of rustls is installed, or the feature tls-ring or tls-aws-lc is on"))
}

/// A maker of session tickets; `None` where the provider has none.
fn ticketer() -> Result<Option<Arc<dyn ProducesTickets>>, rustls::Error> {
    #[cfg(feature = "tls-aws-lc")]
    return rustls::crypto::aws_lc_rs::Ticketer::new().map(Some);
    #[cfg(all(feature = "tls-ring", not(feature = "tls-aws-lc")))]
    return rustls::crypto::ring::Ticketer::new().map(Some);
    #[cfg(not(any(feature = "tls-ring", feature = "tls-aws-lc")))]
    Ok(None)
}

#[cfg(test)]
pub(crate) mod testing {
    //! Certificates made for a test.

    use std::path::{Path, PathBuf};

    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

    /// An authority that signs the certificates of a test.
    pub(crate) struct Authority {
        issuer: Issuer<'static, KeyPair>,
        certificate: rcgen::Certificate,
    }

    impl Authority {
        pub(crate) fn new() -> Self {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let key = KeyPair::generate().unwrap();
            let certificate = params.self_signed(&key).unwrap();
            Self { issuer: Issuer::new(params, key), certificate }
        }

        /// Its own certificate, in PEM.
        pub(crate) fn pem(&self) -> String {
            self.certificate.pem()
        }

        /// A certificate for these names and its key, in PEM.
        pub(crate) fn sign(&self, names: &[&str]) -> (String, String) {
            self.sign_with(names, |_| {})
        }

        pub(crate) fn sign_with(
            &self,
            names: &[&str],
            change: impl FnOnce(&mut CertificateParams),
        ) -> (String, String) {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.subject_alt_names = names
                .iter()
                .map(|name| {
                    let text = (*name).try_into().unwrap();
                    match name.parse() {
                        Ok(ip) => rcgen::SanType::IpAddress(ip),
                        Err(_) if name.contains("://") => rcgen::SanType::URI(text),
                        Err(_) => rcgen::SanType::DnsName(text),
                    }
                })
                .collect();
            change(&mut params);
            let key = KeyPair::generate().unwrap();
            (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
        }
    }

    /// A folder that goes with the test.
    pub(crate) struct Folder(PathBuf);

    impl Folder {
        pub(crate) fn new(test: &str) -> Self {
            let path = std::env::temp_dir().join(format!("plimsoll-{test}-{}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
            let path = self.0.join(name);
            std::fs::write(&path, text).unwrap();
            path
        }

        pub(crate) fn path(&self) -> &Path {
            &self.0
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}
