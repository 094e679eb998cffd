//! Answers probes by UDP at the port number of the listener.
//!
//! Without keys at loopback alone: elsewhere anybody on the way could forge what clients believe.

use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use plimsoll::probe::{Keyring, QueryLimits, Responder, ResponderSettings, read_keys};
use plimsoll::server::ServerLayer;

use crate::exit::Problem;

#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct Args {
    /// Keys of probes by UDP, a line each: ID HEX. Without them probes are answered at loopback alone
    #[arg(long, value_name = "FILE")]
    probe_keys: Option<PathBuf>,
}

impl Args {
    /// Starts to answer. `None` if it cannot, and nobody asked for it.
    pub(super) fn start(&self, listen: SocketAddr, server: &ServerLayer) -> Result<Option<Responder>, Problem> {
        let Some(keyring) = self.keyring(listen)? else { return Ok(None) };
        let settings = ResponderSettings { ports: vec![listen.port()], keyring, limits: QueryLimits::default() };
        let started = UdpSocket::bind(listen)
            .and_then(|socket| server.answer_probes(vec![socket], settings))
            .with_context(|| format!("cannot answer probes at UDP {listen}"));
        match started {
            Ok(responder) => Ok(Some(responder)),
            Err(error) if self.probe_keys.is_some() => Err(error.into()),
            Err(error) => {
                tracing::warn!("{error:#}; clients fall back to checks");
                Ok(None)
            }
        }
    }

    fn keyring(&self, listen: SocketAddr) -> Result<Option<Keyring>, Problem> {
        match &self.probe_keys {
            Some(file) => read(file).map(Some).map_err(Problem::Usage),
            None => Ok(listen.ip().is_loopback().then(Keyring::keyless)),
        }
    }
}

fn read(file: &Path) -> Result<Keyring, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("--probe-keys {}: {error}", file.display()))?;
    let (keyring, _) = read_keys(&text).map_err(|problem| format!("--probe-keys {}: {problem}", file.display()))?;
    Ok(keyring)
}
