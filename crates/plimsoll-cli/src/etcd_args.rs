//! Arguments of commands that are clients of etcd.

use std::path::PathBuf;

use plimsoll_etcd::{Client, Credentials, DEFAULT_PREFIX, EtcdConfig, read_password};

use crate::exit::Problem;
use crate::tls_files::TlsFiles;

/// The etcd of the fleet.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Endpoint of etcd, as HOST:PORT; may be repeated, or a list with commas
    #[arg(long, value_name = "ADDR", value_delimiter = ',')]
    etcd: Vec<String>,
    /// First part of each key in etcd
    #[arg(long, value_name = "KEY", requires = "etcd", default_value = DEFAULT_PREFIX)]
    etcd_prefix: String,
    /// User of etcd
    #[arg(long, value_name = "NAME", requires_all = ["etcd", "etcd_password_file"])]
    etcd_user: Option<String>,
    /// File with the password of the user
    #[arg(long, value_name = "FILE", requires = "etcd_user")]
    etcd_password_file: Option<PathBuf>,
    /// CA of etcd, in PEM: speak TLS with it
    #[arg(long, value_name = "FILE", requires = "etcd")]
    etcd_tls_ca: Option<PathBuf>,
    /// Certificate that etcd knows this client by, in PEM; read again for each connection
    #[arg(long, value_name = "FILE", requires_all = ["etcd_tls_ca", "etcd_tls_key"])]
    etcd_tls_cert: Option<PathBuf>,
    /// Key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "etcd_tls_cert")]
    etcd_tls_key: Option<PathBuf>,
}

impl Args {
    /// Whether an endpoint is named.
    pub(crate) fn is_named(&self) -> bool {
        !self.etcd.is_empty()
    }

    /// A client. The files are read once here, so that a wrong one is found at the start.
    pub(crate) fn client(&self) -> Result<Client, Problem> {
        let usage = |option: &str, error: &dyn std::fmt::Display| Problem::Usage(format!("{option}: {error}"));
        let mut config = EtcdConfig::new(&self.etcd).map_err(|error| usage("--etcd", &error))?;
        config = config.prefix(&*self.etcd_prefix).map_err(|error| usage("--etcd-prefix", &error))?;
        if let (Some(user), Some(file)) = (self.etcd_user.clone(), self.etcd_password_file.clone()) {
            read_password(&file).map_err(|error| usage("--etcd-password-file", &error))?;
            config =
                config.credentials(move || Ok(Credentials { user: user.clone(), password: read_password(&file)? }));
        }
        if let Some(ca) = self.etcd_tls_ca.clone() {
            let files = TlsFiles { ca, identity: self.etcd_tls_cert.clone().zip(self.etcd_tls_key.clone()) };
            files.read().map_err(|error| usage("--etcd-tls-ca", &error))?;
            config = config.tls(move || files.read());
        }
        Ok(Client::new(config))
    }
}
