//! The service account of a pod: files that the kubelet writes and rotates.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use http::HeaderValue;
use plimsoll::tls::{RootCertStore, file};
use tokio::io::AsyncReadExt as _;

/// The place in every pod with a service account.
pub(super) const FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Largest token or namespace, in bytes. Tokens have about a kilobyte.
const MAX_LENGTH: u64 = 64 * 1024;

/// The reason why a pod's account cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum AccountError {
    /// A file cannot be read.
    #[error("{} cannot be read: {cause}; help: {}", path.display(), fix(path))]
    Unreadable {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    /// A file is not of its kind. The message does not show its content.
    #[error("{} holds no {noun}", path.display())]
    Malformed { path: PathBuf, noun: &'static str },
    /// This process runs in no pod.
    #[error(
        "KUBERNETES_SERVICE_HOST is not set, so this process runs in no pod; help: set server, such as \
         http://127.0.0.1:8001 with `kubectl proxy`"
    )]
    NoCluster,
    /// The variables of the environment are no address.
    #[error("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are no address: `{0}`")]
    NoAddress(String),
}

fn fix(path: &Path) -> &'static str {
    match path.file_name().and_then(|name| name.to_str()) {
        Some("namespace") => "set namespace",
        _ => "set automountServiceAccountToken for the pod, or server to the address of `kubectl proxy`",
    }
}

/// The folder of a service account.
#[derive(Clone, Debug)]
pub(super) struct Account {
    pub(super) folder: PathBuf,
    /// Requests without a token are no error, because `kubectl proxy` needs none.
    pub(super) is_optional: bool,
}

impl Account {
    /// The header field with the token. Sensitive: its `Debug` does not show it.
    pub(super) async fn token(&self) -> Result<Option<HeaderValue>, AccountError> {
        let path = self.folder.join("token");
        let token = match read(&path).await {
            Ok(token) => token,
            Err(cause) if self.is_optional && cause.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(cause) => return Err(AccountError::Unreadable { path, cause }),
        };
        let is_token = |text: &&str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
        let token = std::str::from_utf8(&token).ok().map(str::trim).filter(is_token);
        let Some(mut value) = token.and_then(|token| HeaderValue::try_from(format!("Bearer {token}")).ok()) else {
            return Err(AccountError::Malformed { path, noun: "token" });
        };
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// The pod's namespace.
    pub(super) async fn namespace(&self) -> Result<String, AccountError> {
        let path = self.folder.join("namespace");
        let bytes = match read(&path).await {
            Ok(bytes) => bytes,
            Err(cause) => return Err(AccountError::Unreadable { path, cause }),
        };
        let name = std::str::from_utf8(&bytes).ok().map(str::trim).filter(|name| super::is_label(name));
        name.map(str::to_owned).ok_or(AccountError::Malformed { path, noun: "namespace" })
    }

    /// The authorities that sign certificates of the API server.
    pub(super) async fn authorities(&self) -> io::Result<RootCertStore> {
        let path = self.folder.join("ca.crt");
        let problem = |text: &dyn fmt::Display| io::Error::other(format!("{} {text}", path.display()));
        let read = tokio::task::spawn_blocking({
            let path = path.clone();
            move || file::authorities(&path)
        });
        read.await.map_err(|error| problem(&error))?.map_err(|error| problem(&error))
    }
}

async fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    tokio::fs::File::open(path).await?.take(MAX_LENGTH).read_to_end(&mut bytes).await?;
    Ok(bytes)
}
