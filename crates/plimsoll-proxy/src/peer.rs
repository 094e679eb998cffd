//! Who is at the other end of a client's connection.

use std::net::SocketAddr;

/// The client of a connection, as far as it is known before its first request.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// The client's address: the socket's, or what a trusted proxy in front said in the PROXY protocol.
    pub(crate) address: SocketAddr,
    /// The address that it connected to.
    pub(crate) local: SocketAddr,
    /// What TLS says; `None` without.
    pub(crate) tls: Option<Tls>,
    /// A proxy in front was to say who the client is, and did not.
    pub(crate) is_unnamed: bool,
}

/// What a TLS handshake says about a client.
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
