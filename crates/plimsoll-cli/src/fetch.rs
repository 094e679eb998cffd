//! One GET of an admin API, by a connection of its own.

use std::net::SocketAddr;

use bytes::Bytes;
use http::Request;
use http::header::{ACCEPT, HOST};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// The status and the body that the API at `admin` has for `path`.
pub(crate) async fn fetch(admin: SocketAddr, path: &str) -> anyhow::Result<(u16, Bytes)> {
    let stream = TcpStream::connect(admin).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let request = Request::get(path)
        .header(HOST, admin.to_string())
        .header(ACCEPT, "application/json")
        .body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await?.to_bytes();
    connection.abort();
    Ok((status, body))
}
