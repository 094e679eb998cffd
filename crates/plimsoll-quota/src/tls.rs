//! TLS at the two ports of the server.

use std::sync::Arc;

use parking_lot::RwLock;
use plimsoll::tls::{Acceptor, HTTP2, HandshakeFailure, ServerTls};
use plimsoll_tls_config::CertificateExpiry;

/// The handshakes of both ports.
#[derive(Clone, Debug)]
pub(crate) struct Ports {
    pub(crate) tasks: Arc<Acceptor>,
    pub(crate) admin: Arc<Acceptor>,
    expiries: Arc<RwLock<Arc<[CertificateExpiry]>>>,
}

impl Ports {
    pub(crate) fn new(tls: &ServerTls, expiries: &Arc<[CertificateExpiry]>) -> Self {
        Self {
            expiries: Arc::new(RwLock::new(Arc::clone(expiries))),
            tasks: Arc::new(Acceptor::new(tls, &[HTTP2, b"http/1.1"])),
            admin: Arc::new(Acceptor::new(tls, &[b"http/1.1"])),
        }
    }

    /// Takes other certificates for new connections.
    pub(crate) fn set(&self, tls: &ServerTls, expiries: &Arc<[CertificateExpiry]>) {
        *self.expiries.write() = Arc::clone(expiries);
        self.tasks.set(tls);
        self.admin.set(tls);
    }

    /// The ends of the certificates in use.
    pub(crate) fn expiries(&self) -> Arc<[CertificateExpiry]> {
        Arc::clone(&self.expiries.read())
    }

    /// Failed handshakes at both ports.
    pub(crate) fn failed(&self) -> Vec<(HandshakeFailure, u64)> {
        let both = self.tasks.failed().zip(self.admin.failed());
        both.map(|((failure, one), (_, other))| (failure, one + other)).collect()
    }
}
