//! TLS with the quota server, by files.

use std::path::PathBuf;

use crate::tls_files::TlsFiles;

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

impl Args {
    /// The files; `None`: in plain text.
    pub(super) fn files(self) -> Option<TlsFiles> {
        Some(TlsFiles { ca: self.quota_tls_ca?, identity: self.quota_tls_cert.zip(self.quota_tls_key) })
    }
}
