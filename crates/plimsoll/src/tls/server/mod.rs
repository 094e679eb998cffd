//! How a listener speaks TLS with clients: one configuration of rustls for all its threads, made
//! from the certificates that were read with the file.
//!
//! **Resumption.** Sessions are kept in tickets, which the client holds: nothing to share between
//! threads, and nothing to fill up. The key of the tickets stays over a reload, or each reload
//! would cost every client a full handshake. No two listeners share one. rustls itself changes keys
//! every six hours.
//!
//! Where clients show certificates no session is resumed. rustls looks at a client's certificate in
//! a full handshake only: a ticket restores it with neither its dates nor its authority checked,
//! and each resumption hands out new tickets that hold it. A client that returns within six hours
//! each time would be admitted for ever. A check of the dates after a resumption would reject a
//! client that has renewed its certificate and still holds a ticket with the former.

mod acceptor;
mod by_host;

use std::fmt;
use std::sync::Arc;

use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig};

pub use self::acceptor::{AcceptedConnection, Acceptor, ClientNames, HandshakeFailure, chain};
use self::by_host::ByHost;
use super::{Identity, provider, ticketer};

/// The protocols offered, the preferred one first. A client that names others only is refused (RFC
/// 7301, 3.2); old tools name HTTP/1.0 alone.
const PROTOCOLS: [&[u8]; 3] = [HTTP2, b"http/1.1", b"http/1.0"];
/// HTTP/2 in ALPN.
pub const HTTP2: &[u8] = b"h2";

/// The oldest version of TLS that is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsVersion {
    /// TLS 1.2, which some clients of services still need, with the ciphers of 1.3's kind only.
    V1_2,
    /// TLS 1.3.
    V1_3,
}

/// The certificate that clients have to show.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ClientAuth {
    /// None.
    None,
    /// A certificate by one of these authorities, or none.
    Optional(Arc<RootCertStore>),
    /// A certificate by one of these authorities.
    Required(Arc<RootCertStore>),
}

/// The content of the files that a listener's TLS needs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TlsMaterial {
    /// At least one.
    pub identities: Vec<Identity>,
    /// The certificates that clients show.
    pub client_auth: ClientAuth,
    /// The oldest version that is spoken.
    pub min_version: TlsVersion,
}

impl TlsMaterial {
    /// These identities, without certificates of clients, for TLS 1.2 and 1.3.
    #[must_use]
    pub fn new(identities: Vec<Identity>) -> Self {
        Self { identities, client_auth: ClientAuth::None, min_version: TlsVersion::V1_2 }
    }
}

/// TLS of one listener.
pub struct ServerTls {
    rustls: Arc<ServerConfig>,
    client_auth: ClientAuth,
}

impl ServerTls {
    /// Shows the first of the identities that is for the host a client names, else the first of
    /// all.
    ///
    /// # Panics
    /// There is no identity, or no authority for the certificates of clients.
    #[must_use]
    pub fn new(material: &TlsMaterial) -> Self {
        let TlsMaterial { identities, client_auth, min_version } = material;
        let versions = match min_version {
            TlsVersion::V1_2 => &[&TLS13, &TLS12][..],
            TlsVersion::V1_3 => &[&TLS13][..],
        };
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .expect("the provider has cipher suites of both versions");
        let verifier =
            |roots: &Arc<RootCertStore>| WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), provider());
        let built = "a file of authorities holds one at least, and no list of revocations is given";
        let verifier = match client_auth {
            ClientAuth::None => WebPkiClientVerifier::no_client_auth(),
            ClientAuth::Optional(roots) => verifier(roots).allow_unauthenticated().build().expect(built),
            ClientAuth::Required(roots) => verifier(roots).build().expect(built),
        };
        let mut rustls =
            builder.with_client_cert_verifier(verifier).with_cert_resolver(Arc::new(ByHost::new(identities)));
        rustls.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        if let ClientAuth::None = client_auth {
            match ticketer() {
                Ok(Some(ticketer)) => rustls.ticketer = ticketer,
                // Sessions are kept in memory instead.
                Ok(None) => {}
                // Without randomness no handshake will work either, and each says so.
                Err(error) => tracing::warn!(%error, "no tickets to resume TLS sessions"),
            }
        } else {
            rustls.session_storage = Arc::new(NoServerSessionStorage {});
            rustls.send_tls13_tickets = 0;
        }
        Self { rustls: Arc::new(rustls), client_auth: client_auth.clone() }
    }

    /// The same, taking the sessions of `earlier` over where neither asks for certificates.
    #[must_use]
    pub fn continuing(&self, earlier: Option<&Self>) -> Self {
        let mut rustls = Arc::clone(&self.rustls);
        if let Some(earlier) = earlier
            && let (ClientAuth::None, ClientAuth::None) = (&earlier.client_auth, &self.client_auth)
        {
            let rustls = Arc::make_mut(&mut rustls);
            rustls.ticketer = Arc::clone(&earlier.rustls.ticketer);
            rustls.session_storage = Arc::clone(&earlier.rustls.session_storage);
        }
        Self { rustls, client_auth: self.client_auth.clone() }
    }

    /// As rustls takes it.
    #[must_use]
    pub fn rustls(&self) -> &Arc<ServerConfig> {
        &self.rustls
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").field("client_auth", &self.client_auth).finish_non_exhaustive()
    }
}
