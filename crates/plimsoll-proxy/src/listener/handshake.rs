//! The part of a connection before its first request: the header of the PROXY protocol, and TLS.
//!
//! A listener with neither costs nothing here. With either, all of it must be done within the time
//! limit of a request's head, since a stalling client can use both alike. A connection that fails
//! is closed and counted; it is no request, and is no evidence about a backend. The log names the
//! reason at `debug`, because port scanners come by here.

use std::io;
use std::sync::Arc;

use plimsoll::tls::{HTTP2, ServerTls, names};
use plimsoll_stream::{Socket, Stream};
use rustls::{InvalidMessage, PeerMisbehaved, ProtocolVersion, ServerConnection};
use tokio::io::AsyncWriteExt as _;
use tokio_rustls::{TlsAcceptor, TlsStream};

use crate::counts::Label as _;
use crate::limits::Limits;
use crate::listener::ListenerState;
use crate::listener::handshakes::{Failure, Session};
use crate::listener::proxy_protocol;

use crate::listener::turns::InTurn;
use crate::peer::{Peer, Tls};

/// The response to a client that speaks HTTP where TLS is spoken, in its own language.
const USE_HTTPS: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 43\r\n\
connection: close\r\n\r\nplain-http: this port speaks TLS; use https";
/// How much of a request for plain HTTP is taken in before it is answered: a close with bytes
/// unread resets the connection, and the answer is lost. Longer than nearly every head.
const PLAIN_HEAD: usize = 8192;

/// Turns an accepted connection into one for requests, and identifies its client; `None` if that
/// fails. `peer` is the client as the socket knows it.
pub(crate) async fn open(
    socket: Socket,
    peer: Peer,
    tls: Option<Arc<ServerTls>>,
    listener: Arc<ListenerState>,
) -> Option<(Stream, Peer)> {
    let limits = listener.context.limits.load_full();
    let address = peer.address;
    let result = tokio::time::timeout(limits.header_read_timeout, shake(socket, peer, &limits, tls, &listener)).await;
    let (failure, cause) = match result {
        Ok(Ok(opened)) => return Some(opened),
        Ok(Err(failed)) => failed,
        Err(_) => (Failure::Timeout, None),
    };
    listener.shared.handshakes.failed.count(failure);
    let cause = cause.map(tracing::field::display);
    tracing::debug!(%address, reason = failure.name(), cause, "connection ended before its first request");
    None
}

/// A failure, and its description.
type Failed = (Failure, Option<Box<dyn std::error::Error + Send + Sync>>);

async fn shake(
    mut socket: Socket,
    mut peer: Peer,
    limits: &Limits,
    tls: Option<Arc<ServerTls>>,
    listener: &ListenerState,
) -> Result<(Stream, Peer), Failed> {
    if let Some(version) = limits.proxy_protocol {
        if !limits.forwarding.trusts_peer(&peer) {
            return Err((Failure::Untrusted, None));
        }
        let said = proxy_protocol::read(&mut socket, version).await;
        match said.map_err(|error| (error.failure(), Some(error.into())))? {
            Some(addresses) => peer.is_for(addresses),
            // The proxy's own connection, such as a check, or a client unknown to it. The trust in
            // the proxy does not extend to that client.
            None => peer.is_unnamed = true,
        }
    }
    let Some(tls) = tls else { return Ok((socket.into(), peer)) };
    if is_plain_http(&socket).await.map_err(closed)? {
        // Whether it arrives is the client's concern.
        let _ = refuse_plain_http(&mut socket).await;
        return Err((Failure::PlainHttp, None));
    }
    let handshakes = &listener.shared.handshakes;
    let agreed = TlsAcceptor::from(Arc::clone(tls.rustls())).accept(socket);
    let stream = InTurn::new(&listener.turns, &handshakes.steps, agreed).await.map_err(tls_failed)?;
    let connection = stream.get_ref().1;
    handshakes.done.count(Session::of(connection));
    peer.tls = Some(what_tls_says(connection));
    Ok((Stream::Tls(Box::new(TlsStream::Server(stream))), peer))
}

fn closed(error: io::Error) -> Failed {
    (Failure::Closed, Some(error.into()))
}

fn tls_failed(error: io::Error) -> Failed {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    let failure = match cause {
        Some(rustls::Error::NoCertificatesPresented | rustls::Error::InvalidCertificate(_)) => {
            Failure::ClientCertificate
        }
        Some(
            rustls::Error::PeerMisbehaved(PeerMisbehaved::ServerNameMustContainOneHostName)
            | rustls::Error::InvalidMessage(InvalidMessage::InvalidServerName),
        ) => Failure::ServerName,
        Some(_) => Failure::Tls,
        None => Failure::Closed,
    };
    (failure, Some(error.into()))
}

fn what_tls_says(connection: &ServerConnection) -> Tls {
    Tls {
        server_name: connection.server_name().map(Into::into),
        client_names: connection.peer_certificates().and_then(<[_]>::first).map(names).unwrap_or_default(),
        version: match connection.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
            _ => "TLSv1.2",
        },
        is_http2: connection.alpn_protocol() == Some(HTTP2),
    }
}

/// Whether the first byte is one of a request in plain HTTP: all methods begin with a capital
/// letter, no record of TLS does.
async fn is_plain_http(socket: &Socket) -> io::Result<bool> {
    let mut first = [0];
    let seen = socket.peek(&mut first).await?;
    Ok(seen > 0 && first[0].is_ascii_uppercase())
}

async fn refuse_plain_http(socket: &mut Socket) -> io::Result<()> {
    let _ = socket.try_read(&mut vec![0; PLAIN_HEAD])?;
    socket.write_all(USE_HTTPS).await?;
    socket.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_plain_http_has_the_length_that_it_says() {
        let text = std::str::from_utf8(USE_HTTPS).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())));
    }
}
