//! The file's settings of TLS, towards clients and towards backends. The files that it names are
//! read in `reader`.

use std::path::{Path, PathBuf};

use plimsoll::tls::{ServerName, TlsVersion};
use plimsoll_config::{
    Choice, DeValue, Effect, Flaw, Format, Reading, Spanned, Value, kind, quoted, table, text, values,
};

/// A file that the configuration names: absolute, or as seen from the folder of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FilePath(PathBuf);

impl FilePath {
    /// Where it is, for a configuration in `folder`.
    #[must_use]
    pub fn within(&self, folder: &Path) -> PathBuf {
        folder.join(&self.0)
    }

    /// The extension of its name, which tells its type.
    #[must_use]
    pub fn extension(&self) -> Option<&str> {
        self.0.extension()?.to_str()
    }
}

/// Whether clients are asked for a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificate {
    /// They are not.
    Off,
    /// They are, and are served without one too; a bad one ends the handshake.
    Optional,
    /// A client without one is not served.
    Required,
}

const CLIENT_CERTIFICATE: Choice<ClientCertificate> = Choice {
    noun: "a rule for certificates of clients",
    names: &[
        ("off", ClientCertificate::Off),
        ("optional", ClientCertificate::Optional),
        ("required", ClientCertificate::Required),
    ],
};

const TLS_VERSION: Choice<TlsVersion> =
    Choice { noun: "a version of TLS", names: &[("1.2", TlsVersion::V1_2), ("1.3", TlsVersion::V1_3)] };

fn file_path(text: &str) -> Result<FilePath, Flaw> {
    if text.is_empty() {
        return Err(Flaw::new("is empty", "write the path of a file"));
    }
    Ok(FilePath(PathBuf::from(text)))
}

/// The name that a server is asked for.
const SERVER_NAME: Format<ServerName<'static>> = Format {
    read: |v| {
        let name = text(v, "a name", "a name in quotes, such as \"web.internal\"")?;
        let help = "write a host name without a port, such as \"web.internal\", or an IP address";
        let flaw = |_| Flaw::new(format!("\"{name}\" is not the name of a server"), help);
        ServerName::try_from(name.to_owned()).map_err(flaw)
    },
    print: |name| quoted(name.to_str()),
};

values! {
    FilePath: |v| file_path(text(v, "a path", "a path in quotes, such as \"/etc/plimsoll/tls.pem\"")?), |path| quoted(path.0.display());
}

table! {
    /// A certificate and its key, in files.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct CertificateFiles {
        /// The certificate, and those of the authorities between it and a root.
        pub certificate: FilePath = FilePath::default(), required;
        /// Its key.
        pub key: FilePath = FilePath::default(), required;
    }
}

impl Value for CertificateFiles {
    fn read(value: &Spanned<DeValue<'_>>, reading: &mut Reading<'_>) -> Option<Self> {
        let DeValue::Table(table) = value.get_ref() else {
            let reason = format!("expected a certificate and its key, found {}", kind(value.get_ref()));
            reading.problem(reason, "write { certificate = \"a.pem\", key = \"a.key\" }");
            return None;
        };
        let mut files = Self::default();
        reading.fill(table, &mut files);
        Some(files)
    }

    fn print(&self) -> String {
        format!("{{ certificate = {}, key = {} }}", self.certificate.print(), self.key.print())
    }
}

table! {
    /// How a listener speaks TLS.
    #[derive(Clone, Debug, PartialEq)]
    #[non_exhaustive]
    pub struct ListenerTls {
        /// Certificates, at least one: the first that is for the host a client names, else the first.
        pub certificates: Vec<CertificateFiles> = Vec::new(), required;
        /// Authorities that vouch for clients.
        pub client_ca: Option<FilePath> = None, optional;
        /// Whether clients are asked for a certificate.
        pub client_certificate: ClientCertificate = ClientCertificate::Off, value_as(CLIENT_CERTIFICATE);
        /// The oldest version spoken.
        pub min_version: TlsVersion = TlsVersion::V1_2, value_as(TLS_VERSION);
    }
}

table! {
    /// How a cluster's backends are spoken to in TLS.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct ClusterTls {
        /// Authorities that vouch for backends; `None` for those that the system trusts.
        pub ca: Option<FilePath> = None, optional;
        /// The name asked of every backend; `None` for its own host.
        pub server_name: Option<ServerName<'static>> = None, optional_as(SERVER_NAME);
        /// The certificate that is shown to backends.
        pub certificate: Option<FilePath> = None, optional, SAME_NAMES;
        /// Its key.
        pub key: Option<FilePath> = None, optional, SAME_NAMES;
        /// Believes any certificate.
        pub insecure_accept_any_certificate: bool = false, value;
    }
}

const SAME_NAMES: Effect =
    Effect::Applied("for new connections; open ones stay if the new certificate has the same names");
