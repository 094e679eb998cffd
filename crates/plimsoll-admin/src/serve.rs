//! The connections of the admin port: how many, and for how long.
//!
//! Each takes a file descriptor of the process that it tells of, and whoever reaches the port can open them. So there is a most of
//! them, and beyond it the one goes that was longest without a request: who turned new ones away would be shut out by any that
//! stay. Those who ask and go are served whoever else is there.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use lru::LruCache;
use parking_lot::Mutex;
use plimsoll::tls::{Acceptor, ClientNames};
use plimsoll_stream::Stream;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tower::ServiceExt as _;

use crate::api::router;
use crate::caller::Caller;
use crate::fleet::Fleet;
use crate::lease::Lease;

/// Connections at a time: several scrapers, scripts and people, each with a few, and no more than the proxy sets descriptors aside
/// for beside those of its clients.
const MAX_CONNECTIONS: NonZeroUsize = NonZeroUsize::new(32).expect("is not zero");
/// From the beginning of a connection, or the last answer, to the end of the next head. As long as hyper itself gives it.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// A head, and what of an answer waits in this process: heads of scrapers have a few hundred bytes.
const MAX_BUFFER: usize = 64 << 10;
/// For requests that are in progress at the end; answers are ready within milliseconds.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// After an accept that failed for want of descriptors or memory, which does not pass at once.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Serves the API until `until` is ready, and then until the requests that it has are answered.
pub async fn serve(listener: TcpListener, fleet: Arc<dyn Fleet>, until: impl Future<Output = ()>) {
    serve_router(listener, router(fleet), until).await;
}

/// The same for an API of another process.
pub async fn serve_router(listener: TcpListener, router: Router, until: impl Future<Output = ()>) {
    serve_router_tls(listener, router, None, until).await;
}

/// The same over TLS. Each request has the names in the certificate of its client
/// ([`ClientNames`](plimsoll::tls::ClientNames)) as an extension.
pub async fn serve_router_tls(
    listener: TcpListener,
    router: Router,
    tls: Option<Arc<Acceptor>>,
    until: impl Future<Output = ()>,
) {
    // Each connection by its number, with what ends it; the one that was longest without a request is last.
    let connections = Arc::new(Mutex::new(LruCache::new(MAX_CONNECTIONS)));
    let graceful = GracefulShutdown::new();
    let (end, ending) = watch::channel(false);
    let mut tasks = JoinSet::new();
    let mut until = pin!(until);
    let mut next: u64 = 0;
    loop {
        let (stream, peer) = tokio::select! {
            accepted = accept(&listener) => accepted,
            Some(_) = tasks.join_next() => continue,
            () = &mut until => break,
        };
        let number = next;
        next += 1;
        let caller = Caller::new(peer, stream.local_addr());
        let lease = {
            let connections = Arc::clone(&connections);
            let renew = move || {
                connections.lock().promote(&number);
            };
            Lease::new(renew, ending.clone())
        };
        let service = {
            let router = router.clone();
            move |mut request: Request<_>, names: Option<ClientNames>| {
                request.extensions_mut().insert(caller);
                if let Some(names) = names {
                    request.extensions_mut().insert(names);
                }
                lease.renew();
                request.extensions_mut().insert(lease.clone());
                router.clone().oneshot(request)
            }
        };
        let (tls, watcher) = (tls.clone(), graceful.watcher());
        let ended = Arc::clone(&connections);
        // Held until it is among them: it may end at once on another thread.
        let mut open = connections.lock();
        let task = tasks.spawn(async move {
            let accepted = match tls {
                None => Some((Stream::Tcp(stream), None)),
                Some(tls) => tls.accept(stream).await.ok().map(|of| (of.stream, Some(of.client))),
            };
            if let Some((stream, names)) = accepted {
                let service = service_fn(move |request: Request<_>| service(request, names.clone()));
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEAD_TIMEOUT)
                    .max_buf_size(MAX_BUFFER)
                    .serve_connection(TokioIo::new(stream), service);
                // How a connection broke is its client's business.
                let _ = watcher.watch(connection).await;
            }
            ended.lock().pop(&number);
        });
        if let Some((_, longest_without)) = open.push(number, task) {
            longest_without.abort();
        }
    }
    drop(listener);
    end.send_replace(true);
    let _ = timeout(END_TIMEOUT, graceful.shutdown()).await;
}

/// The next connection.
async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) if is_of_one_connection(&error) => {}
            Err(_) => sleep(ACCEPT_PAUSE).await,
        }
    }
}

fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionAborted
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionRefused
            | ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::sync::oneshot;
    use tokio::task::JoinHandle;

    use super::*;
    use crate::api::tests::fleet;

    async fn start() -> (SocketAddr, oneshot::Sender<()>, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (end, ended) = oneshot::channel::<()>();
        let server = tokio::spawn(serve(listener, Arc::new(fleet()), async {
            let _ = ended.await;
        }));
        (address, end, server)
    }

    /// Asks, and reads the answer, which is `ok`.
    async fn ask(stream: &mut TcpStream) {
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\nok\n") {
            assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0, "{}", answer.escape_ascii());
        }
    }

    #[tokio::test]
    async fn beyond_the_most_the_connection_goes_that_was_longest_without_a_request() {
        let (address, _end, _server) = start().await;
        let mut streams = Vec::new();
        for _ in 0..MAX_CONNECTIONS.get() {
            streams.push(TcpStream::connect(address).await.unwrap());
        }
        ask(&mut streams[0]).await;
        let mut further = TcpStream::connect(address).await.unwrap();
        ask(&mut further).await;
        assert_eq!(streams[1].read(&mut [0]).await.unwrap_or(0), 0, "closed");
        ask(&mut streams[0]).await;
        ask(&mut streams[2]).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_sends_no_head_is_closed() {
        let (address, _end, _server) = start().await;
        let begun = tokio::time::Instant::now();
        for said in [&b""[..], b"GET /metrics HTTP/1.1\r\nHost: 127"] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(said).await.unwrap();
            let mut answer = Vec::new();
            let closed = timeout(4 * HEAD_TIMEOUT, stream.read_to_end(&mut answer)).await;
            assert!(closed.is_ok(), "{} s", begun.elapsed().as_secs());
        }
    }

    #[tokio::test]
    async fn it_ends_when_told_to_and_idle_connections_with_it() {
        let (address, end, server) = start().await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        ask(&mut stream).await;
        end.send(()).unwrap();
        server.await.unwrap();
        assert_eq!(stream.read(&mut [0]).await.unwrap_or(0), 0, "closed");
    }
}
