//! The hold of a lasting answer on its connection.

use std::sync::Arc;

use tokio::sync::watch;

/// The use of a connection by an answer without an end, such as a stream of events.
///
/// Such an answer is one request for hours, and the connection that was longest without a request is the
/// first to be closed. It would also delay the end of the server.
#[derive(Clone)]
pub struct Lease {
    renew: Arc<dyn Fn() + Send + Sync>,
    ending: watch::Receiver<bool>,
}

impl Lease {
    /// Of a connection that `renew` marks as used, and a server that says here when it ends.
    pub(crate) fn new(renew: impl Fn() + Send + Sync + 'static, ending: watch::Receiver<bool>) -> Self {
        Self { renew: Arc::new(renew), ending }
    }

    /// The connection is in use, as by a request.
    pub fn renew(&self) {
        (self.renew)();
    }

    /// Completes when the server ends.
    pub async fn until_end(&self) {
        // Without its sender the server has ended.
        let _ = self.ending.clone().wait_for(|is_ending| *is_ending).await;
    }
}
