//! The watch over a lame duck: one silent connection, which ends when its process does.
//!
//! A lame duck serves what it has and goes; then a new process listens on its address. How soon is not
//! known, and asking again and again is either late or noisy. A connection on which nothing is sent
//! closes when the process ends, so the end is known within a round trip. Should the server close
//! silent connections earlier for reasons of its own, the check that follows finds the lame duck
//! still there, and the watch begins again.

use std::sync::Arc;

use tokio::io::AsyncReadExt as _;
use tokio::sync::oneshot;

use super::connect;
use crate::client::cluster::Backend;
use crate::client::config::ClusterConfig;

/// Resolves to `true` when the process behind `backend` has ended, to `false` when `released` (its
/// sender was dropped: the backend is a lame duck no more).
pub(crate) async fn vigil(backend: Arc<Backend>, config: Arc<ClusterConfig>, released: oneshot::Receiver<()>) -> bool {
    let watch = async {
        let Ok(mut stream) = connect(&backend, config.requests.connect_timeout).await else {
            return;
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
