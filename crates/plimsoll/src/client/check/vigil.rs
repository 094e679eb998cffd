//! The watch over a lame duck: one silent connection, which ends when its process does.
//!
//! A lame duck serves its requests and ends; then a new process listens on its address. The time of
//! that is not known, and repeated checks are either late or noisy. A silent connection closes when
//! the process ends, so the end is known within a round trip. Should the server close silent
//! connections earlier for reasons of its own, the next check finds the lame duck still there, and
//! the watch begins again.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::sync::oneshot;

use super::connect;
use crate::client::backend::Backend;
use crate::client::config::ClusterConfig;

/// Pause before a new watch after this process lacked a descriptor or a port: no evidence about the
/// backend.
const SHORTAGE_DELAY: Duration = Duration::from_secs(1);

/// Resolves to `true` when the process behind `backend` has ended, to `false` when `released` (its
/// sender was dropped: the backend is a lame duck no more).
pub(crate) async fn vigil(backend: Arc<Backend>, config: Arc<ClusterConfig>, released: oneshot::Receiver<()>) -> bool {
    let watch = async {
        let mut stream = loop {
            match connect(&backend, &config, config.requests.connect_timeout).await {
                Ok(stream) => break stream,
                Err(error) if error.is_own_shortage() => tokio::time::sleep(SHORTAGE_DELAY).await,
                Err(_) => return,
            }
        };
        let mut junk = [0_u8; 64];
        // A server may speak first (HTTP/2 settings); only an end or an error counts.
        while matches!(stream.read(&mut junk).await, Ok(read) if read > 0) {}
    };
    tokio::select! {
        () = watch => true,
        _ = released => false,
    }
}
