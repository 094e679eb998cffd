//! One request to an admin API, by a connection of its own.

use std::net::SocketAddr;

use bytes::Bytes;
use http::header::{ACCEPT, HOST};
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, ToSocketAddrs};
use tokio::task::JoinHandle;

/// Largest answer. A thousand explained requests have less than one megabyte.
const MAX_BODY: usize = 2 << 20;

/// The status and the body that the API at `admin` has for `path`.
pub(crate) async fn fetch(admin: SocketAddr, path: &str) -> anyhow::Result<(u16, Bytes)> {
    send(admin, Method::GET, path).await?.whole().await
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
    pub(crate) async fn whole(self) -> anyhow::Result<(u16, Bytes)> {
        let status = self.response.status().as_u16();
        let body = Limited::new(self.response.into_body(), MAX_BODY).collect().await;
        let body = body.map_err(|error| anyhow::anyhow!("the answer cannot be read: {error}"))?.to_bytes();
        drop(self.connection);
        Ok((status, body))
    }
}

/// Sends a request without a body to the API at `admin`.
pub(crate) async fn send(admin: impl ToSocketAddrs, method: Method, path: &str) -> anyhow::Result<Answer> {
    let stream = TcpStream::connect(admin).await?;
    // The API answers to addresses under any name.
    let host = stream.peer_addr()?.to_string();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = Connection(tokio::spawn(connection));
    let request = Request::builder().method(method).uri(path);
    let request = request.header(HOST, host).header(ACCEPT, "application/json").body(Empty::<Bytes>::new())?;
    Ok(Answer { response: sender.send_request(request).await?, connection })
}
