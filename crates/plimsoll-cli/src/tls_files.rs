//! TLS of a client, by files that are read for each connection.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll::tls::{Identity, TlsConfig, TlsTrust, file};

/// The files of a client.
#[derive(Debug)]
pub(crate) struct TlsFiles {
    /// The authorities of the server.
    pub(crate) ca: PathBuf,
    /// A certificate and its key.
    pub(crate) identity: Option<(PathBuf, PathBuf)>,
}

impl TlsFiles {
    /// The content of the files now.
    pub(crate) fn read(&self) -> Result<TlsConfig, String> {
        let with = |path: &Path, error: &dyn Error| format!("{} {error}", path.display());
        let roots = file::authorities(&self.ca).map_err(|error| with(&self.ca, &error))?;
        let identity = match &self.identity {
            None => None,
            Some((certificate, key)) => {
                let chain = file::certificates(certificate).map_err(|error| with(certificate, &error))?;
                let private = file::private_key(key).map_err(|error| with(key, &error))?;
                Some(Identity::new(chain, private).map_err(|error| with(key, &error))?)
            }
        };
        Ok(TlsConfig::new(TlsTrust::Authorities(Arc::new(roots)), identity, None))
    }
}
