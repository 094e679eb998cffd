//! The client at the other end of a connection.

use plimsoll::address::Address;

/// The client of a connection, as far as it is known before its first request.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// The client's address: the socket's, or the one that a trusted proxy named in the PROXY
    /// protocol. A client at a Unix socket has none of IP.
    pub(crate) address: Address,
    /// The address that it connected to.
    pub(crate) local: Address,
    /// The user of a client at a Unix socket.
    pub(crate) user: Option<u32>,
    /// Facts from TLS; `None` without.
    pub(crate) tls: Option<Tls>,
    /// A proxy in front should have named the client, and did not.
    pub(crate) is_unnamed: bool,
}

/// Facts about a client from its TLS handshake.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    /// The host that the client asked for (SNI).
    pub(crate) server_name: Option<Box<str>>,
    /// The names (DNS, URI) in the client's certificate, which was verified; empty without one.
    pub(crate) client_names: Box<[Box<str>]>,
    /// `"TLSv1.2"` or `"TLSv1.3"`.
    pub(crate) version: &'static str,
    /// ALPN settled on HTTP/2.
    pub(crate) is_http2: bool,
}

impl Peer {
    /// The names in the client's certificate; empty without one.
    pub(crate) fn client_names(&self) -> &[Box<str>] {
        self.tls.as_ref().map_or(&[], |tls| &tls.client_names)
    }
}
