//! The certificates, keys and authorities that settings of TLS name.
//!
//! An expired certificate is no problem but a warning: refusing to start, or to reload for another
//! reason, would make an outage of a fault that some clients may bear.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use plimsoll::tls::{ClientAuth, Identity, IdentityError, RootCertStore, TlsConfig, TlsMaterial, TlsTrust, file};
use plimsoll_config::{Checker, Problem};

use crate::settings::{ClientCertificate, ClusterTls, FilePath, ListenerTls};

/// A certificate is warned of while there is time to get another: those of ACME live 90 days and
/// are renewed after 60.
const EXPIRY_WARNING: Duration = Duration::from_secs(14 * 24 * 3600);

/// Reads files, and reports their problems.
#[derive(Debug)]
pub struct Reader<'p> {
    checker: Checker<'p>,
    folder: &'p Path,
}

impl<'p> Reader<'p> {
    /// A reader of files whose relative paths begin at `folder`.
    #[must_use]
    pub fn new(checker: Checker<'p>, folder: &'p Path) -> Self {
        Self { checker, folder }
    }

    /// All problems, in no order.
    #[must_use]
    pub fn into_problems(self) -> Vec<Problem> {
        self.checker.into_problems()
    }

    /// Where problems of further files go.
    pub fn checker(&mut self) -> &mut Checker<'p> {
        &mut self.checker
    }

    /// The files of a listener, whose table is at `path`; `None` after a problem.
    pub fn listener(&mut self, path: &str, tls: &ListenerTls) -> Option<TlsMaterial> {
        if tls.certificates.is_empty() {
            let help = "list at least one, such as { certificate = \"a.pem\", key = \"a.key\" }";
            self.checker.report(format!("{path}.certificates"), "there is no certificate", help);
        }
        let identities: Vec<Option<Identity>> = tls
            .certificates
            .iter()
            .enumerate()
            .map(|(k, files)| {
                let path = format!("{path}.certificates[{k}]");
                let settings = [format!("{path}.certificate"), format!("{path}.key")];
                self.identity(settings, &files.certificate, &files.key)
            })
            .collect();
        let client_auth = self.client_auth(path, tls)?;
        let identities: Vec<Identity> = identities.into_iter().collect::<Option<_>>()?;
        if identities.is_empty() {
            return None;
        }
        let mut material = TlsMaterial::new(identities);
        material.client_auth = client_auth;
        material.min_version = tls.min_version;
        Some(material)
    }

    /// Whether and how clients are asked; `None` after a problem.
    fn client_auth(&mut self, path: &str, tls: &ListenerTls) -> Option<ClientAuth> {
        let setting = format!("{path}.client_ca");
        match (tls.client_certificate, &tls.client_ca) {
            (ClientCertificate::Off, None) => Some(ClientAuth::None),
            (ClientCertificate::Off, Some(_)) => {
                let help = "write client_certificate = \"required\" or \"optional\", or remove it";
                self.checker.report(setting, "has no effect while client_certificate is \"off\"", help);
                None
            }
            (_, None) => {
                let help = "add client_ca = \"...\", a file with the certificates of the authorities that sign clients";
                self.checker.report(format!("{path}.client_certificate"), "needs client_ca", help);
                None
            }
            (rule, Some(ca)) => {
                let roots = Arc::new(self.authorities(setting, ca)?);
                Some(match rule {
                    ClientCertificate::Required => ClientAuth::Required(roots),
                    _ => ClientAuth::Optional(roots),
                })
            }
        }
    }

    /// TLS to servers, by the table at `path`; `None` after a problem.
    pub fn cluster(&mut self, path: &str, tls: &ClusterTls) -> Option<TlsConfig> {
        let identity = match (&tls.certificate, &tls.key) {
            (None, None) => Some(None),
            (Some(certificate), Some(key)) => {
                let settings = [format!("{path}.certificate"), format!("{path}.key")];
                self.identity(settings, certificate, key).map(Some)
            }
            (Some(_), None) => {
                self.checker.report(format!("{path}.certificate"), "needs key", "add key = \"...\"");
                None
            }
            (None, Some(_)) => {
                let help = "add certificate = \"...\"";
                self.checker.report(format!("{path}.key"), "needs certificate", help);
                None
            }
        };
        let trust = self.trust(path, tls);
        let server_name = tls.server_name.clone();
        Some(TlsConfig::new(trust?, identity?, server_name))
    }

    fn trust(&mut self, path: &str, tls: &ClusterTls) -> Option<TlsTrust> {
        let setting = format!("{path}.ca");
        match &tls.ca {
            Some(_) if tls.insecure_accept_any_certificate => {
                let help = "remove insecure_accept_any_certificate, or this";
                self.checker.report(setting, "has no effect while any certificate is accepted", help);
                None
            }
            Some(ca) => self.authorities(setting, ca).map(|roots| TlsTrust::Authorities(Arc::new(roots))),
            None if tls.insecure_accept_any_certificate => {
                tracing::warn!(
                    setting = path,
                    "backend certificates are not verified: any server can pose as a backend"
                );
                Some(TlsTrust::Anybody)
            }
            None => {
                let help = "add ca = \"...\", a file with the certificate of the authority that signs backends";
                TlsTrust::system().map_err(|error| self.checker.report(setting, error.to_string(), help)).ok()
            }
        }
    }

    fn authorities(&mut self, setting: String, path: &FilePath) -> Option<RootCertStore> {
        let at = path.within(self.folder);
        file::authorities(&at).map_err(|error| self.report(setting, &at, &error)).ok()
    }

    fn identity(
        &mut self,
        [certificate_setting, key_setting]: [String; 2],
        certificate: &FilePath,
        key: &FilePath,
    ) -> Option<Identity> {
        let (certificate, key) = (certificate.within(self.folder), key.within(self.folder));
        let chain = file::certificates(&certificate).map_err(|error| {
            self.report(certificate_setting.clone(), &certificate, &error);
        });
        let private = file::private_key(&key).map_err(|error| self.report(key_setting.clone(), &key, &error));
        match Identity::new(chain.ok()?, private.ok()?) {
            Ok(identity) => {
                warn_of_dates(&identity, &certificate);
                Some(identity)
            }
            Err(IdentityError::KeyDoesNotMatch) => {
                let reason = format!("{} is not the key of {}", key.display(), certificate.display());
                self.checker.report(key_setting, reason, "name the key of this certificate");
                None
            }
            Err(error @ IdentityError::BadKey(_)) => {
                let help = "use an ECDSA key of P-256 or P-384, an RSA key of 2048 to 4096 bits, or an Ed25519 key";
                self.checker.report(key_setting, format!("{} {error}", key.display()), help);
                None
            }
            Err(error) => {
                let help = "use an X.509 certificate of version 3";
                self.checker.report(certificate_setting, format!("{} {error}", certificate.display()), help);
                None
            }
        }
    }

    fn report(&mut self, setting: String, path: &Path, error: &file::FileError) {
        let help = match error {
            file::FileError::Unreadable(_) => {
                "name a readable file; a relative path begins at the folder of the configuration"
            }
            file::FileError::EncryptedKey => "remove the password: openssl pkey -in KEY -out PLAIN",
            file::FileError::NoKey => "name the file that has -----BEGIN PRIVATE KEY-----",
            file::FileError::NoCertificate => "name the file that has -----BEGIN CERTIFICATE-----",
            _ => "name a file in PEM",
        };
        self.checker.report(setting, format!("{} {error}", path.display()), help);
    }
}

fn warn_of_dates(identity: &Identity, path: &Path) {
    let Some(validity) = identity.validity() else { return };
    let (now, file) = (SystemTime::now(), path.display());
    let until = humantime::format_rfc3339_seconds(validity.not_after);
    if now > validity.not_after {
        tracing::warn!(%file, %until, "certificate expired");
    } else if now < validity.not_before {
        let from = humantime::format_rfc3339_seconds(validity.not_before);
        tracing::warn!(%file, %from, "certificate not valid yet");
    } else if now + EXPIRY_WARNING > validity.not_after {
        tracing::warn!(%file, %until, "certificate expires soon");
    }
}
