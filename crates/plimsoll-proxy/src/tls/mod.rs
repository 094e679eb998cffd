//! How a listener speaks TLS with clients: one configuration of rustls for all its threads, made from the
//! certificates that were read with the file.
//!
//! **Resumption.** Sessions are kept in tickets, which the client holds: nothing to share between threads, and nothing
//! to fill up. The key of the tickets stays over a reload, or each reload would cost every client a full handshake. But a
//! ticket stands for a client that was let in once, by the rules of that time: where the reload asks for other client
//! certificates the key is a fresh one, since rustls looks at a client's certificate in a full handshake only. For the same
//! reason no two listeners share one. rustls itself changes keys every six hours.

mod by_host;

use std::fmt;
use std::sync::Arc;

use plimsoll::tls::{Identity, RootCertStore, provider};
use rustls::ServerConfig;
use rustls::crypto::ring::Ticketer;
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};

use self::by_host::ByHost;
use crate::config::TlsVersion;

/// The protocols offered, the preferred one first. A client that names others only is refused (RFC 7301, 3.2); old tools name
/// HTTP/1.0 alone.
const PROTOCOLS: [&[u8]; 3] = [HTTP2, b"http/1.1", b"http/1.0"];
/// What ALPN calls HTTP/2.
pub(crate) const HTTP2: &[u8] = b"h2";

/// What clients have to show.
#[derive(Clone, Debug)]
pub(crate) enum ClientAuth {
    None,
    /// A certificate by one of these authorities, or none.
    Optional(Arc<RootCertStore>),
    /// A certificate by one of these authorities.
    Required(Arc<RootCertStore>),
}

impl ClientAuth {
    /// Whether whoever is let in by one is let in by the other, as the same.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::None, Self::None) => true,
            (Self::Optional(a), Self::Optional(b)) | (Self::Required(a), Self::Required(b)) => a.roots == b.roots,
            _ => false,
        }
    }
}

/// TLS of one listener.
pub(crate) struct ServerTls {
    rustls: Arc<ServerConfig>,
    client_auth: ClientAuth,
}

impl ServerTls {
    /// Shows the first of `identities` that is for the host a client names, else the first of all; there is one at least.
    pub(crate) fn new(identities: &[Identity], client_auth: ClientAuth, min_version: TlsVersion) -> Self {
        let versions = match min_version {
            TlsVersion::V1_2 => &[&TLS13, &TLS12][..],
            TlsVersion::V1_3 => &[&TLS13][..],
        };
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .expect("the cipher suites of ring are for both versions");
        let verifier =
            |roots: &Arc<RootCertStore>| WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), provider());
        let built = "a file of authorities holds one at least, and no list of revocations is given";
        let verifier = match &client_auth {
            ClientAuth::None => WebPkiClientVerifier::no_client_auth(),
            ClientAuth::Optional(roots) => verifier(roots).allow_unauthenticated().build().expect(built),
            ClientAuth::Required(roots) => verifier(roots).build().expect(built),
        };
        let mut rustls =
            builder.with_client_cert_verifier(verifier).with_cert_resolver(Arc::new(ByHost::new(identities)));
        rustls.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        match Ticketer::new() {
            Ok(ticketer) => rustls.ticketer = ticketer,
            // Without randomness no handshake will work either, and each says so.
            Err(error) => tracing::warn!(%error, "TLS sessions will not be resumed by tickets"),
        }
        Self { rustls: Arc::new(rustls), client_auth }
    }

    /// The same, taking the sessions of `earlier` over where their clients would be let in now.
    pub(crate) fn continuing(&self, earlier: Option<&Self>) -> Self {
        let mut rustls = Arc::clone(&self.rustls);
        if let Some(earlier) = earlier
            && earlier.client_auth.is_same(&self.client_auth)
        {
            let rustls = Arc::make_mut(&mut rustls);
            rustls.ticketer = Arc::clone(&earlier.rustls.ticketer);
            rustls.session_storage = Arc::clone(&earlier.rustls.session_storage);
        }
        Self { rustls, client_auth: self.client_auth.clone() }
    }

    /// As rustls takes it.
    pub(crate) fn rustls(&self) -> &Arc<ServerConfig> {
        &self.rustls
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").field("client_auth", &self.client_auth).finish_non_exhaustive()
    }
}
