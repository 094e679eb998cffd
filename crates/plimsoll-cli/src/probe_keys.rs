//! Decides the keys with which a command answers probes by UDP.
//!
//! Without keys at loopback alone: elsewhere anybody on the way could forge what clients believe.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use plimsoll::probe::{Keyring, read_keys};

use crate::exit::Problem;

#[derive(Debug, clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Keys of probes by UDP, a line each: ID HEX. Without them, probes at loopback need no key
    #[arg(long, value_name = "FILE")]
    probe_keys: Option<PathBuf>,
}

impl Args {
    /// Whether a file is named.
    pub(crate) fn is_given(&self) -> bool {
        self.probe_keys.is_some()
    }

    /// The keys for answers at `addresses`. `None` if they need a file, and none is named.
    pub(crate) fn keyring(&self, addresses: &[SocketAddr]) -> Result<Option<Keyring>, Problem> {
        match &self.probe_keys {
            Some(file) => read(file).map(Some).map_err(Problem::Usage),
            None => Ok(addresses.iter().all(|address| address.ip().is_loopback()).then(Keyring::keyless)),
        }
    }
}

fn read(file: &Path) -> Result<Keyring, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("--probe-keys {}: {error}", file.display()))?;
    let (keyring, _) = read_keys(&text).map_err(|problem| format!("--probe-keys {}: {problem}", file.display()))?;
    Ok(keyring)
}
