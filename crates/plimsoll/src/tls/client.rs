//! TLS to backends: the trust, the client certificate and the protocol to negotiate.
//!
//! There is one rustls configuration for each HTTP version, since a connection is opened for one
//! version. A client that offered both could get a connection of the wrong version for its request.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use plimsoll_stream::{Socket, Stream};
use tokio_rustls::{TlsConnector, TlsStream};

use super::{Identity, provider};

/// Sessions remembered for each protocol: eight tickets for each of a thousand backends, the most
/// that a cluster is commonly large; the oldest go first.
const SESSIONS: usize = 8 * 1024;

/// Which protocol a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alpn {
    Http1,
    Http2,
}

impl Alpn {
    fn name(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        }
    }
}

/// The certificates that a client accepts.
#[derive(Clone, Debug)]
pub enum TlsTrust {
    /// Those of these certificate authorities.
    Authorities(Arc<RootCertStore>),
    /// Any certificate: an attacker in between can read and change everything. For trials only.
    Anybody,
}

/// The system trusts no certificate authority.
#[derive(Debug, thiserror::Error)]
#[error("the system trusts no certificate authority")]
pub struct NoSystemRoots;

impl TlsTrust {
    /// The authorities that the system trusts, or those of `SSL_CERT_FILE` and `SSL_CERT_DIR`.
    ///
    /// # Errors
    /// If there are none.
    pub fn system() -> Result<Self, NoSystemRoots> {
        let mut roots = RootCertStore::empty();
        // Some of the hundreds of system roots are unusable; a connection that needs one of them
        // fails.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() { Err(NoSystemRoots) } else { Ok(Self::Authorities(Arc::new(roots))) }
    }
}

impl PartialEq for TlsTrust {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Authorities(a), Self::Authorities(b)) => a.roots == b.roots,
            (Self::Anybody, Self::Anybody) => true,
            _ => false,
        }
    }
}

/// TLS to the backends of a cluster. Clones share sessions.
#[derive(Clone)]
pub struct TlsConfig {
    http1: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
    told: Arc<Told>,
}

/// The inputs of a configuration.
#[derive(Debug, PartialEq)]
struct Told {
    trust: TlsTrust,
    identity: Option<Identity>,
    server_name: Option<ServerName<'static>>,
}

/// Equal when they trust and show the same; that their sessions differ does not count.
impl PartialEq for TlsConfig {
    fn eq(&self, other: &Self) -> bool {
        self.told == other.told
    }
}

impl TlsConfig {
    /// TLS with this trust, and `identity` for backends that ask for a client certificate.
    ///
    /// `server_name` is sent to backends (SNI) and must be in their certificates. Without it that
    /// is the host of each backend, as its [`Endpoint`](crate::discover::Endpoint) names it, or its
    /// address. When the source gives a backend another host, its connections get no more requests.
    #[must_use]
    pub fn new(trust: TlsTrust, identity: Option<Identity>, server_name: Option<ServerName<'static>>) -> Self {
        let config = |alpn: Alpn| {
            let builder = ClientConfig::builder_with_provider(provider())
                .with_safe_default_protocol_versions()
                .expect("the provider has cipher suites of both versions");
            let builder = match &trust {
                TlsTrust::Authorities(roots) => builder.with_root_certificates(Arc::clone(roots)),
                TlsTrust::Anybody => builder.dangerous().with_custom_certificate_verifier(Arc::new(Gullible)),
            };
            let mut config = match &identity {
                None => builder.with_no_client_auth(),
                Some(identity) => {
                    let certified = rustls::sign::CertifiedKey::clone(identity.certified());
                    builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified)))
                }
            };
            config.alpn_protocols = vec![alpn.name().to_vec()];
            config.resumption = Resumption::in_memory_sessions(SESSIONS);
            Arc::new(config)
        };
        let (http1, http2) = (config(Alpn::Http1), config(Alpn::Http2));
        Self { http1, http2, told: Arc::new(Told { trust, identity, server_name }) }
    }

    /// A connection for HTTP/2 with a server, after the handshake. `host` is the name or address of the
    /// server, unless the configuration has another name.
    ///
    /// # Errors
    /// The handshake failed, or the host is no name.
    pub async fn connect_http2(&self, socket: impl Into<Socket>, host: &str) -> io::Result<Stream> {
        self.connect(socket.into(), host, Alpn::Http2).await
    }

    /// The same for HTTP/1.1.
    ///
    /// # Errors
    /// As [`Self::connect_http2`].
    pub async fn connect_http1(&self, socket: impl Into<Socket>, host: &str) -> io::Result<Stream> {
        self.connect(socket.into(), host, Alpn::Http1).await
    }

    pub(crate) async fn connect(&self, socket: Socket, host: &str, alpn: Alpn) -> io::Result<Stream> {
        let name = match self.server_name() {
            Some(name) => name.clone(),
            None => server_name(host)?,
        };
        let stream = TlsConnector::from(Arc::clone(self.rustls(alpn))).connect(name, socket).await?;
        Ok(Stream::Tls(Box::new(TlsStream::Client(stream))))
    }

    fn rustls(&self, alpn: Alpn) -> &Arc<ClientConfig> {
        match alpn {
            Alpn::Http1 => &self.http1,
            Alpn::Http2 => &self.http2,
        }
    }

    /// Whether a connection that was opened by `old` may go on: as before the same are trusted, by
    /// the same name, and they see the same names. A certificate of our own that was only renewed
    /// is nothing to begin anew for.
    #[must_use]
    pub fn continues(&self, old: &Self) -> bool {
        let (told, old) = (&*self.told, &*old.told);
        let sees_the_same = match (&told.identity, &old.identity) {
            (Some(identity), Some(old)) => {
                let names = identity.names();
                identity == old || !names.is_empty() && names == old.names()
            }
            (None, None) => true,
            _ => false,
        };
        sees_the_same && (&told.trust, &told.server_name) == (&old.trust, &old.server_name)
    }

    /// The name that every backend is asked for; `None` when each is by its own.
    pub(crate) fn server_name(&self) -> Option<&ServerName<'static>> {
        self.told.server_name.as_ref()
    }
}

impl fmt::Debug for TlsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsConfig").field("server_name", &self.told.server_name).finish_non_exhaustive()
    }
}

/// The name of a host, or of an address.
pub(crate) fn server_name(host: &str) -> io::Result<ServerName<'static>> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    match bare.parse::<IpAddr>() {
        Ok(ip) => Ok(ServerName::from(ip)),
        Err(_) => {
            ServerName::try_from(bare.to_owned()).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
        }
    }
}

/// Accepts every certificate, but still checks that the peer holds its private key.
#[derive(Debug)]
struct Gullible;

impl ServerCertVerifier for Gullible {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &provider().signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &provider().signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::PrivateKeyDer;
    use rustls::pki_types::pem::PemObject as _;

    use super::*;
    use crate::tls::testing::Authority;

    fn identity(authority: &Authority, names: &[&str]) -> Option<Identity> {
        let (certificate, key) = authority.sign(names);
        let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
        Some(Identity::new(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap()).unwrap())
    }

    #[test]
    fn connections_go_on_only_under_the_same_trust_and_names() {
        let authority = Authority::new();
        let shown = identity(&authority, &["proxy.example"]);
        let name = |name: &'static str| Some(ServerName::try_from(name).unwrap());
        let old = TlsConfig::new(TlsTrust::Anybody, shown.clone(), name("web.example"));
        for (continues, trust, shown, name) in [
            (true, TlsTrust::Anybody, shown.clone(), name("web.example")),
            (true, TlsTrust::Anybody, identity(&authority, &["proxy.example"]), name("web.example")),
            (false, TlsTrust::Anybody, identity(&authority, &["other.example"]), name("web.example")),
            (false, TlsTrust::Anybody, None, name("web.example")),
            (false, TlsTrust::Anybody, shown.clone(), name("other.example")),
            (false, TlsTrust::Anybody, shown.clone(), None),
            (false, TlsTrust::Authorities(Arc::new(RootCertStore::empty())), shown.clone(), name("web.example")),
        ] {
            let new = TlsConfig::new(trust, shown, name);
            assert_eq!((new.continues(&old), old.continues(&new)), (continues, continues), "{:?}", new.told);
        }
        // Certificates without names: whether both are for the same client is unknown.
        let [a, b] = [(); 2].map(|()| TlsConfig::new(TlsTrust::Anybody, identity(&authority, &[]), None));
        assert!(!a.continues(&b) && a.continues(&a.clone()));
    }
}
