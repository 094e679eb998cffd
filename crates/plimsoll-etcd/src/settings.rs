//! The table `[etcd]` of a file of settings, the same in each program of a fleet.

use std::fs;
use std::path::Path;

use plimsoll::tls::TlsConfig;
use plimsoll_config::{Checker, Effect, Flaw, Format, Places, Problem, quoted, table, text, values};
use plimsoll_tls_config::{ClusterTls, FilePath, Reader};

use crate::client::Client;
use crate::config::{Credentials, DEFAULT_PREFIX, EtcdConfig, InvalidConfig};

const CONNECTED: Effect = Effect::Applied("connected anew; members, numbers and assignments stay");
/// The longest password: a file that is none is larger.
const MAX_PASSWORD: u64 = 4 << 10;

/// An endpoint of etcd: `host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(String);

values! {
    Endpoint: |v| endpoint(text(v, "an endpoint of etcd", "host and port in quotes, such as \"10.0.0.1:2379\"")?), |endpoint| quoted(&endpoint.0);
}

fn endpoint(text: &str) -> Result<Endpoint, Flaw> {
    let help = "write host and port, such as \"10.0.0.1:2379\", without https://: the table etcd.tls turns TLS on";
    let port = text.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    match EtcdConfig::new([text]) {
        Ok(_) if port.is_some_and(|port| port > 0) => Ok(Endpoint(text.to_owned())),
        _ => Err(Flaw::new(format!("\"{text}\" is not an endpoint of etcd"), help)),
    }
}

const PREFIX: Format<String> = Format {
    read: |v| {
        let prefix = text(v, "a prefix of keys", "a prefix in quotes, such as \"/plimsoll/v1/\"")?;
        let help = "begin and end it with a slash, such as \"/plimsoll/v1/\"";
        let is_prefix = prefix.len() > 1 && prefix.starts_with('/') && prefix.ends_with('/');
        let flaw = || Flaw::new(format!("\"{prefix}\" is not a prefix of keys"), help);
        is_prefix.then(|| prefix.to_owned()).ok_or_else(flaw)
    },
    print: |prefix| quoted(prefix),
};

table! {
    /// The etcd that a fleet shares.
    #[derive(Clone, Debug, PartialEq)]
    #[non_exhaustive]
    pub struct EtcdSettings {
        /// Its members, in any order.
        pub endpoints: Vec<Endpoint> = Vec::new(), required, CONNECTED;
        /// The first part of each key.
        pub prefix: String = DEFAULT_PREFIX.to_owned(), value_as(PREFIX), CONNECTED;
        /// The name of the user.
        pub user: Option<String> = None, optional, CONNECTED;
        /// A file with the user's password.
        pub password_file: Option<FilePath> = None, optional, CONNECTED;
        /// TLS with the members; `None`: in plain text.
        pub tls: Option<ClusterTls> = None, optional_table, CONNECTED;
    }
}

impl EtcdSettings {
    /// Reports settings that make no client, and files that cannot be read. `path` is that of the table.
    pub fn check(&self, path: &str, folder: &Path, checker: &mut Checker<'_>) {
        let endpoints = format!("{path}.endpoints");
        if self.endpoints.is_empty() && checker.is_readable(&endpoints) {
            checker.report(endpoints, "names no endpoint", "write its address, such as [\"10.0.0.1:2379\"]");
        }
        let password = format!("{path}.password_file");
        match (&self.user, &self.password_file) {
            (Some(_), None) if checker.is_readable(&password) => {
                checker.report(format!("{path}.user"), "needs password_file", "add password_file = \"...\"");
            }
            (None, Some(_)) if checker.is_readable(&format!("{path}.user")) => {
                checker.report(password, "needs user", "add user = \"...\"");
            }
            (Some(_), Some(file)) => {
                let file = file.within(folder);
                if let Err(reason) = read_password(&file) {
                    let help = "name a readable file that holds the password alone; \
                                a relative path begins at the folder of the configuration";
                    checker.report(password, reason, help);
                }
            }
            _ => {}
        }
    }

    /// A client. It reads the files for each connection and each token, so they may rotate.
    ///
    /// # Errors
    /// Settings that [`Self::check`] reports.
    pub fn client(&self, folder: &Path) -> Result<Client, InvalidConfig> {
        let endpoints = self.endpoints.iter().map(|endpoint| &*endpoint.0);
        let mut config = EtcdConfig::new(endpoints)?.prefix(&*self.prefix)?;
        if let (Some(user), Some(file)) = (self.user.clone(), &self.password_file) {
            let file = file.within(folder);
            config =
                config.credentials(move || Ok(Credentials { user: user.clone(), password: read_password(&file)? }));
        }
        if let Some(tls) = self.tls.clone() {
            let folder = folder.to_owned();
            config = config.tls(move || read_tls(&tls, &folder));
        }
        Ok(Client::new(config))
    }
}

/// The password in a file: all of it but the end of its last line.
///
/// # Errors
/// The file cannot be read, is empty or is larger than a password.
pub fn read_password(file: &Path) -> Result<String, String> {
    let of = file.display();
    let unreadable = |error| format!("{of} cannot be read: {error}");
    if fs::metadata(file).map_err(unreadable)?.len() > MAX_PASSWORD {
        return Err(format!("{of} is larger than {MAX_PASSWORD} bytes"));
    }
    let text = fs::read_to_string(file).map_err(unreadable)?;
    let password = text.trim_end_matches(['\r', '\n']);
    if password.is_empty() { Err(format!("{of} is empty")) } else { Ok(password.to_owned()) }
}

fn read_tls(tls: &ClusterTls, folder: &Path) -> Result<TlsConfig, String> {
    let places = Places::default();
    let mut reader = Reader::new(Checker::new(&places, Vec::new()), folder);
    let config = reader.cluster("etcd.tls", tls);
    let reasons = || {
        let problems: Vec<Problem> = reader.into_problems();
        problems.iter().map(|problem| format!("{}: {}", problem.path, problem.reason)).collect::<Vec<_>>().join("; ")
    };
    config.ok_or_else(reasons)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_needs_host_and_port_and_no_scheme() {
        for good in ["10.0.0.1:2379", "[::1]:2379", "etcd.internal:2379"] {
            assert!(endpoint(good).is_ok(), "{good}");
        }
        for bad in ["", "etcd.internal", "https://etcd.internal:2379", "a@b:1", "etcd:0", ":2379"] {
            assert!(endpoint(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn password_is_the_file_without_its_last_line_end() {
        let folder = std::env::temp_dir().join(format!("plimsoll-etcd-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("password");
        fs::write(&file, " s3cret \n").unwrap();
        assert_eq!(read_password(&file).unwrap(), " s3cret ");
        fs::write(&file, "\n").unwrap();
        assert!(read_password(&file).unwrap_err().ends_with("is empty"));
        fs::remove_dir_all(&folder).unwrap();
        assert!(read_password(&file).unwrap_err().contains("cannot be read"));
    }
}
