//! Answers probes by UDP at the port number of the listener.
//!
//! Beyond loopback and without a file of keys, its answers to health checks hand out keys.

use std::net::{SocketAddr, UdpSocket};

use anyhow::Context as _;
use plimsoll::probe::{Keyring, Responder, ResponderSettings, hand_out_keys};
use plimsoll::server::ServerLayer;

use crate::exit::Problem;
use crate::probe_keys;

/// The bound port of probes.
pub(super) struct Bound {
    socket: UdpSocket,
    settings: ResponderSettings,
}

/// Binds the port of probes for a server at `listen`. `None` if it cannot, and nobody asked for it.
pub(super) fn bind(keys: &probe_keys::Args, listen: SocketAddr) -> Result<Option<Bound>, Problem> {
    let keyring = match keys.keyring(&[listen])? {
        Some(keyring) => keyring,
        None => hand_out_keys(Keyring::default()).context("cannot make keys of probes")?,
    };
    let settings = ResponderSettings::new([listen.port()], keyring);
    match UdpSocket::bind(listen).with_context(|| format!("cannot answer probes at UDP {listen}")) {
        Ok(socket) => Ok(Some(Bound { socket, settings })),
        Err(error) if keys.is_given() => Err(error.into()),
        Err(error) => {
            tracing::warn!("{error:#}; clients fall back to checks");
            Ok(None)
        }
    }
}

/// Answers at a bound port.
pub(super) fn start(bound: Option<Bound>, server: &ServerLayer) -> Result<Option<Responder>, Problem> {
    let Some(Bound { socket, settings }) = bound else { return Ok(None) };
    let responder = server.answer_probes(vec![socket], settings).context("cannot answer probes")?;
    Ok(Some(responder))
}
