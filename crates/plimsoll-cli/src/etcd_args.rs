//! Arguments of commands that are clients of etcd.

use std::path::PathBuf;
use std::sync::Arc;

use plimsoll::tls::{Identity, TlsConfig, Trust, file};
use plimsoll_etcd::{Client, Credentials, DEFAULT_PREFIX, EtcdConfig, read_password};

use crate::exit::Problem;

/// The etcd of the fleet.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Endpoint of etcd, as HOST:PORT; may be repeated, or a list with commas
    #[arg(long, value_name = "ADDR", value_delimiter = ',', required = true)]
    etcd: Vec<String>,
    /// First part of each key in etcd
    #[arg(long, value_name = "KEY", default_value = DEFAULT_PREFIX)]
    etcd_prefix: String,
    /// User of etcd
    #[arg(long, value_name = "NAME", requires = "etcd_password_file")]
    etcd_user: Option<String>,
    /// File with the password of the user
    #[arg(long, value_name = "FILE", requires = "etcd_user")]
    etcd_password_file: Option<PathBuf>,
    /// CA of etcd, in PEM: speak TLS with it
    #[arg(long, value_name = "FILE")]
    etcd_tls_ca: Option<PathBuf>,
    /// Certificate that etcd knows this client by, in PEM; read again for each connection
    #[arg(long, value_name = "FILE", requires_all = ["etcd_tls_ca", "etcd_tls_key"])]
    etcd_tls_cert: Option<PathBuf>,
    /// Key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "etcd_tls_cert")]
    etcd_tls_key: Option<PathBuf>,
}

impl Args {
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
            let files = Files { ca, identity: self.etcd_tls_cert.clone().zip(self.etcd_tls_key.clone()) };
            files.read().map_err(|error| usage("--etcd-tls", &error))?;
            config = config.tls(move || files.read());
        }
        Ok(Client::new(config))
    }
}

/// The files of TLS.
struct Files {
    ca: PathBuf,
    /// A certificate and its key.
    identity: Option<(PathBuf, PathBuf)>,
}

impl Files {
    fn read(&self) -> Result<TlsConfig, String> {
        let with = |path: &PathBuf, error: &dyn std::error::Error| format!("{} {error}", path.display());
        let roots = file::authorities(&self.ca).map_err(|error| with(&self.ca, &error))?;
        let identity = match &self.identity {
            None => None,
            Some((certificate, key)) => {
                let chain = file::certificates(certificate).map_err(|error| with(certificate, &error))?;
                let private = file::private_key(key).map_err(|error| with(key, &error))?;
                Some(Identity::new(chain, private).map_err(|error| with(key, &error))?)
            }
        };
        Ok(TlsConfig::new(Trust::Authorities(Arc::new(roots)), identity, None))
    }
}
