//! The file's settings of TLS, towards clients and towards backends. The files that it names are
//! read in `files`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll::tls::{Identity, RootCertStore, ServerName};
use plimsoll_config::{DeValue, Flaw, Reading, Spanned, Table, Value, Visitor, choice, kind, quoted, text, values};

/// A file that the configuration names: absolute, or as seen from the folder of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FilePath(PathBuf);

impl FilePath {
    /// Where it is, for a configuration in `folder`.
    pub(super) fn within(&self, folder: &Path) -> PathBuf {
        folder.join(&self.0)
    }

    /// The extension of its name, which tells its type.
    pub(crate) fn extension(&self) -> Option<&str> {
        self.0.extension()?.to_str()
    }
}

/// Whether clients are asked for a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificate {
    /// They are not.
    #[default]
    Off,
    /// They are, and are served without one too; a bad one ends the handshake.
    Optional,
    /// A client without one is not served.
    Required,
}

impl ClientCertificate {
    const ALL: [(&'static str, Self); 3] =
        [("off", Self::Off), ("optional", Self::Optional), ("required", Self::Required)];
}

/// The oldest version of TLS that is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2, which some clients of services still need, with the ciphers of 1.3's kind only.
    #[default]
    V1_2,
    /// TLS 1.3.
    V1_3,
}

impl TlsVersion {
    const ALL: [(&'static str, Self); 2] = [("1.2", Self::V1_2), ("1.3", Self::V1_3)];
}

/// The certificate that clients have to show.
#[derive(Clone, Debug)]
pub(crate) enum ClientAuth {
    None,
    /// A certificate by one of these authorities, or none.
    Optional(Arc<RootCertStore>),
    /// A certificate by one of these authorities.
    Required(Arc<RootCertStore>),
}

/// The content of the files that a listener's TLS needs.
#[derive(Clone, Debug)]
pub(crate) struct TlsMaterial {
    /// At least one.
    pub(crate) identities: Vec<Identity>,
    pub(crate) client_auth: ClientAuth,
    pub(crate) min_version: TlsVersion,
}

fn name_of<T: PartialEq>(all: &[(&'static str, T)], value: &T) -> String {
    quoted(all.iter().find(|(_, known)| known == value).expect("all are listed").0)
}

fn file_path(text: &str) -> Result<FilePath, Flaw> {
    if text.is_empty() {
        return Err(Flaw::new("is empty", "write the path of a file"));
    }
    Ok(FilePath(PathBuf::from(text)))
}

/// The name that a server is asked for, as the file writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerNameText(pub(super) ServerName<'static>);

fn server_name(text: &str) -> Result<ServerNameText, Flaw> {
    let help = "write a host name without a port, such as \"web.internal\", or an IP address";
    let parsed = ServerName::try_from(text.to_owned());
    parsed.map(ServerNameText).map_err(|_| Flaw::new(format!("\"{text}\" is not the name of a server"), help))
}

values! {
    FilePath: |v| file_path(text(v, "a path", "a path in quotes, such as \"/etc/plimsoll/tls.pem\"")?), |path| quoted(path.0.display());
    ClientCertificate: |v| choice(v, "a rule for certificates of clients", &Self::ALL), |rule| name_of(&ClientCertificate::ALL, rule);
    TlsVersion: |v| choice(v, "a version of TLS", &Self::ALL), |version| name_of(&TlsVersion::ALL, version);
    ServerNameText: |v| server_name(text(v, "a name", "a name in quotes, such as \"web.internal\"")?), |name| quoted(name.0.to_str());
}

/// A certificate and its key, in files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, and those of the authorities between it and a root.
    pub certificate: FilePath,
    /// Its key.
    pub key: FilePath,
}

impl Table for CertificateFiles {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required("certificate", &mut self.certificate);
        visitor.required("key", &mut self.key);
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

/// How a listener speaks TLS.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ListenerTls {
    /// Certificates, at least one: the first that is for the host a client names, else the first.
    pub certificates: Vec<CertificateFiles>,
    /// Authorities that vouch for clients.
    pub client_ca: Option<FilePath>,
    /// Whether clients are asked for a certificate.
    pub client_certificate: ClientCertificate,
    /// The oldest version spoken.
    pub min_version: TlsVersion,
}

impl Table for ListenerTls {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required("certificates", &mut self.certificates);
        visitor.optional("client_ca", &mut self.client_ca);
        visitor.value("client_certificate", &mut self.client_certificate);
        visitor.value("min_version", &mut self.min_version);
    }
}

/// How a cluster's backends are spoken to in TLS.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ClusterTls {
    /// Authorities that vouch for backends; `None` for those that the system trusts.
    pub ca: Option<FilePath>,
    /// The name asked of every backend; `None` for its own host.
    pub server_name: Option<ServerNameText>,
    /// The certificate that is shown to backends.
    pub certificate: Option<FilePath>,
    /// Its key.
    pub key: Option<FilePath>,
    /// Believes any certificate.
    pub insecure_accept_any_certificate: bool,
}

impl Table for ClusterTls {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.optional("ca", &mut self.ca);
        visitor.optional("server_name", &mut self.server_name);
        visitor.optional("certificate", &mut self.certificate);
        visitor.optional("key", &mut self.key);
        visitor.value("insecure_accept_any_certificate", &mut self.insecure_accept_any_certificate);
    }
}
