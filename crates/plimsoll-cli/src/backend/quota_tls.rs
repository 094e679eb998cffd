//! TLS with the quota server, by files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll::tls::{Identity, TlsConfig, Trust, file};

/// Files for TLS with the quota server.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub(super) struct Args {
    /// CA of the quota server, in PEM: speak TLS with it
    #[arg(long, value_name = "FILE", requires_all = ["quota", "quota_tls_cert", "quota_tls_key"])]
    quota_tls_ca: Option<PathBuf>,
    /// Certificate that the quota server knows this task by, in PEM; read again for each connection
    #[arg(long, value_name = "FILE", requires = "quota_tls_ca")]
    quota_tls_cert: Option<PathBuf>,
    /// Key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "quota_tls_ca")]
    quota_tls_key: Option<PathBuf>,
}

/// All three files.
#[derive(Debug)]
pub(super) struct Files {
    ca: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

impl Args {
    /// The files; `None`: in plain text.
    pub(super) fn files(self) -> Option<Files> {
        Some(Files { ca: self.quota_tls_ca?, certificate: self.quota_tls_cert?, key: self.quota_tls_key? })
    }
}

impl Files {
    /// The content of the files now.
    pub(super) fn read(&self) -> Result<TlsConfig, String> {
        let with = |path: &Path, error: &dyn std::error::Error| format!("{} {error}", path.display());
        let roots = file::authorities(&self.ca).map_err(|error| with(&self.ca, &error))?;
        let chain = file::certificates(&self.certificate).map_err(|error| with(&self.certificate, &error))?;
        let key = file::private_key(&self.key).map_err(|error| with(&self.key, &error))?;
        let identity = Identity::new(chain, key).map_err(|error| with(&self.key, &error))?;
        Ok(TlsConfig::new(Trust::Authorities(Arc::new(roots)), Some(identity), None))
    }
}
