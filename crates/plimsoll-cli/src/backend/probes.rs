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
    /// Binds the port of probes, for a server at `listen`. `None` if it cannot, and nobody asked for it.
    pub(super) fn bind(&self, listen: SocketAddr) -> Result<Option<UdpSocket>, Problem> {
        if self.probe_keys.is_none() && !listen.ip().is_loopback() {
            return Ok(None);
        }
        match UdpSocket::bind(listen).with_context(|| format!("cannot answer probes at UDP {listen}")) {
            Ok(socket) => Ok(Some(socket)),
            Err(error) if self.probe_keys.is_some() => Err(error.into()),
            Err(error) => {
                tracing::warn!("{error:#}; clients fall back to checks");
                Ok(None)
            }
        }
    }

    /// Answers at a bound port.
    pub(super) fn start(
        &self,
        socket: Option<UdpSocket>,
        listen: SocketAddr,
        server: &ServerLayer,
    ) -> Result<Option<Responder>, Problem> {
        let Some(socket) = socket else { return Ok(None) };
        let keyring = self.keyring()?;
        let settings = ResponderSettings { ports: vec![listen.port()], keyring, limits: QueryLimits::default() };
        let responder = server.answer_probes(vec![socket], settings).context("cannot answer probes")?;
        Ok(Some(responder))
    }

    fn keyring(&self) -> Result<Keyring, Problem> {
        self.probe_keys.as_deref().map_or_else(|| Ok(Keyring::keyless()), |file| read(file).map_err(Problem::Usage))
    }
}

fn read(file: &Path) -> Result<Keyring, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("--probe-keys {}: {error}", file.display()))?;
    let (keyring, _) = read_keys(&text).map_err(|problem| format!("--probe-keys {}: {problem}", file.display()))?;
    Ok(keyring)
}
