//! The answers to probes by UDP about this server.

use std::io;
use std::net::UdpSocket;
use std::sync::Arc;

use plimsoll_core::LoadReport;
use plimsoll_core::probe::ServerState;

use super::layer::ServerLayer;
use super::lifecycle::Phase;
use super::report::Reporter;
use crate::probe::{Responder, ResponderSettings, Subject};

impl ServerLayer {
    /// Answers probes by UDP about this server at `sockets`: its state and its load. Clients with a
    /// lease learn at once when it becomes a lame duck.
    ///
    /// Bind a socket to the address of each TCP listener, with the same port number. Drop the
    /// responder when the server has drained.
    ///
    /// With a keyring of [`hand_out_keys`](crate::probe::hand_out_keys), the layer's own answers to
    /// health checks (gRPC, and `GET` of the [`readiness_path`]) hand a key to each client that requests
    /// one. No other response does. One responder must serve all sockets: a key is of its secret alone.
    ///
    /// [`readiness_path`]: super::ServerLayerBuilder::readiness_path
    ///
    /// # Errors
    /// If a socket cannot be used, or no thread can be started.
    pub fn answer_probes(&self, sockets: Vec<UdpSocket>, settings: ResponderSettings) -> io::Result<Responder> {
        let keyring = settings.keyring.clone();
        let responder = Responder::start(sockets, settings, Probed(Arc::clone(&self.reporter)))?;
        *self.reporter.probe_keys.write() = keyring;
        let waker = responder.waker();
        self.lifecycle().observe(move || waker.wake());
        Ok(responder)
    }
}

struct Probed(Arc<Reporter>);

impl Subject for Probed {
    fn state(&self) -> ServerState {
        match self.0.lifecycle.phase() {
            Phase::Starting => ServerState::Starting,
            Phase::Serving => ServerState::Healthy,
            Phase::LameDuck | Phase::Drained => ServerState::LameDuck,
        }
    }

    fn load(&self) -> Option<LoadReport> {
        Some(self.0.load())
    }
}
