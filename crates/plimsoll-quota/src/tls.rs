//! TLS at the two ports of the server.

use std::sync::Arc;

use plimsoll::tls::{Acceptor, HTTP2, HandshakeFailure, ServerTls};

/// The handshakes of both ports.
#[derive(Clone, Debug)]
pub(crate) struct Ports {
    pub(crate) tasks: Arc<Acceptor>,
    pub(crate) admin: Arc<Acceptor>,
}

impl Ports {
    pub(crate) fn new(tls: &ServerTls) -> Self {
        Self {
            tasks: Arc::new(Acceptor::new(tls, &[HTTP2, b"http/1.1"])),
            admin: Arc::new(Acceptor::new(tls, &[b"http/1.1"])),
        }
    }

    /// Takes other certificates for new connections.
    pub(crate) fn set(&self, tls: &ServerTls) {
        self.tasks.set(tls);
        self.admin.set(tls);
    }

    /// Failed handshakes at both ports.
    pub(crate) fn failed(&self) -> Vec<(HandshakeFailure, u64)> {
        let both = self.tasks.failed().zip(self.admin.failed());
        both.map(|((failure, one), (_, other))| (failure, one + other)).collect()
    }
}
