//! Opening one connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::client::error::ConnectError;

/// A TCP connection to `address`, within `limit`.
///
/// Nagle's algorithm is off: a request must leave at once, and hyper writes whole messages anyway.
pub(super) async fn connect(address: SocketAddr, limit: Duration) -> Result<TokioIo<TcpStream>, ConnectError> {
    let io = |cause| ConnectError::Io(Arc::new(cause));
    match tokio::time::timeout(limit, TcpStream::connect(address)).await {
        Err(_) => Err(ConnectError::Timeout(limit)),
        Ok(Err(cause)) => Err(io(cause)),
        Ok(Ok(stream)) => {
            stream.set_nodelay(true).map_err(io)?;
            Ok(TokioIo::new(stream))
        }
    }
}
