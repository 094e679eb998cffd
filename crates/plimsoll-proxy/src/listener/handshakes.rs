//! How connections began: handshakes that failed, by reason, and those that came to their end.

use rustls::{HandshakeKind, ServerConnection};

use crate::counts::{Counts, Label};
use crate::listener::turns::Steps;

/// Why a connection did not come to its first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The listener takes connections of trusted proxies only, and this is none.
    Untrusted,
    /// It does not begin with the header of the PROXY protocol that the listener asks for.
    ProxyHeader,
    /// Plain HTTP, where TLS is spoken.
    PlainHttp,
    /// The client's certificate is missing, or not good.
    ClientCertificate,
    /// The client asks for a server by a name that is no host name (RFC 6066, 3).
    ServerName,
    /// TLS could not be agreed on.
    Tls,
    /// It was not done in time.
    Timeout,
    /// The client went away, or the connection broke.
    Closed,
}

impl Label for Failure {
    type Name = &'static str;

    const ALL: &'static [Self] = &[
        Self::Untrusted,
        Self::ProxyHeader,
        Self::PlainHttp,
        Self::ClientCertificate,
        Self::ServerName,
        Self::Tls,
        Self::Timeout,
        Self::Closed,
    ];

    fn index(self) -> usize {
        self as usize
    }

    fn name(self) -> &'static str {
        match self {
            Self::Untrusted => "untrusted",
            Self::ProxyHeader => "proxy-header",
            Self::PlainHttp => "plain-http",
            Self::ClientCertificate => "client-certificate",
            Self::ServerName => "server-name",
            Self::Tls => "tls",
            Self::Timeout => "timeout",
            Self::Closed => "closed",
        }
    }
}

/// The session of TLS that a handshake led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Session {
    /// A new one, with a certificate.
    Full,
    /// An earlier one.
    Resumed,
}

impl Session {
    pub(crate) fn of(connection: &ServerConnection) -> Self {
        match connection.handshake_kind() {
            Some(HandshakeKind::Resumed) => Self::Resumed,
            _ => Self::Full,
        }
    }
}

impl Label for Session {
    type Name = &'static str;

    const ALL: &'static [Self] = &[Self::Full, Self::Resumed];

    fn index(self) -> usize {
        self as usize
    }

    fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Resumed => "resumed",
        }
    }
}

/// How the connections of a listener began.
#[derive(Debug, Default)]
pub(crate) struct Handshakes {
    /// Connections that came to no request.
    pub(crate) failed: Counts<Failure>,
    /// TLS handshakes that came to their end.
    pub(crate) done: Counts<Session>,
    /// Time and turns that TLS takes of the threads.
    pub(crate) steps: Steps,
}
