//! Reads a client's remaining bytes after it was sent the reason for its connection's end.
//!
//! A socket that is closed with bytes unread is reset, and the reset overtakes the GOAWAY: the
//! client would learn nothing but that the connection broke. The same limits as on HTTP/1.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::connection::time_limits::{LINGER, LINGER_BYTES};
use crate::request::upgrade::PrefixedStream;

/// Read at once, in bytes.
const PIECE: usize = 16 * 1024;

/// Closes a connection after the last write: at its end, or when it lasts too long.
pub(super) async fn linger(mut io: PrefixedStream) {
    let closed = async {
        if io.shutdown().await.is_err() {
            return;
        }
        let (mut piece, mut left) = (vec![0; PIECE], LINGER_BYTES);
        while let Ok(read @ 1..) = io.read(&mut piece).await {
            match left.checked_sub(read) {
                Some(rest) => left = rest,
                None => return,
            }
        }
    };
    let _ = tokio::time::timeout(LINGER, closed).await;
}
