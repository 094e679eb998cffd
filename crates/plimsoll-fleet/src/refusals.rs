//! Refusals of etcd in the log: a right that is missing, say. They last until a person does something.
//!
//! That etcd is unreachable is told by its client, once for all of the process.

use plimsoll_etcd::EtcdError;

/// Logs each refusal once, until another one or a success.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Option<EtcdError>);

impl Refusals {
    /// A request for `key`, or for the keys that begin with it, failed.
    pub(crate) fn on_error(&mut self, key: &str, error: &EtcdError) {
        let is_refusal =
            matches!(error, EtcdError::Refused(_) | EtcdError::Credentials(_) | EtcdError::TooLarge { .. });
        if is_refusal && self.0.as_ref() != Some(error) {
            tracing::warn!(key, %error, "etcd refuses a request: its user needs the right to read and write there");
            self.0 = Some(error.clone());
        }
    }

    /// A request was done.
    pub(crate) fn on_success(&mut self) {
        self.0 = None;
    }
}
