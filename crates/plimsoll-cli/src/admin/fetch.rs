//! One request to an admin API, by a connection of its own.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HOST};
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, ToSocketAddrs};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::failure::Failure;

/// Largest answer. A thousand explained requests have less than one megabyte.
const MAX_BODY: usize = 2 << 20;

/// The status and the body that the API at `admin` has for `path`, within `patience`.
pub(crate) async fn exchange(
    admin: impl ToSocketAddrs,
    method: Method,
    path: &str,
    patience: Duration,
) -> Result<(u16, Bytes), Failure> {
    let exchange = async { send(admin, method, path).await?.whole().await };
    timeout(patience, exchange).await.unwrap_or(Err(Failure::Silent(patience)))
}

/// A connection, which ends with its last owner.
#[derive(Debug)]
pub(crate) struct Connection(JoinHandle<hyper::Result<()>>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// An answer whose body is yet to come.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) response: Response<Incoming>,
    pub(crate) connection: Connection,
}

impl Answer {
    /// The status and the whole body.
    pub(crate) async fn whole(self) -> Result<(u16, Bytes), Failure> {
        let status = self.response.status().as_u16();
        let body = Limited::new(self.response.into_body(), MAX_BODY).collect().await;
        let body = body.map_err(Failure::broken)?.to_bytes();
        drop(self.connection);
        Ok((status, body))
    }
}

/// Sends a request without a body to the API at `admin`.
pub(crate) async fn send(admin: impl ToSocketAddrs, method: Method, path: &str) -> Result<Answer, Failure> {
    let stream = TcpStream::connect(admin).await.map_err(|error| Failure::unreachable(&error))?;
    // The API answers to addresses under any name.
    let host = stream.peer_addr().map_err(Failure::broken)?.to_string();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(Failure::broken)?;
    let connection = Connection(tokio::spawn(connection));
    let request = Request::builder().method(method).uri(path);
    let request = request.header(HOST, host).header(ACCEPT, "application/json").body(Empty::<Bytes>::new());
    let request = request.expect("the paths of the API are valid");
    Ok(Answer { response: sender.send_request(request).await.map_err(Failure::broken)?, connection })
}
