//! The connections of the load: which one carries the next request, and when another is opened.
//!
//! * HTTP/1: the connection used last goes first (LIFO), so that as few as possible are in use; when
//!   none is idle another is opened, since an open loop must not wait for a slow answer to come back.
//! * HTTP/2: the connection with the fewest streams; another is opened when all carry
//!   [`STREAMS_PER_CONNECTION`] or when one of those opened at the start has closed.
//!
//! A connection that the server closed, or announced to close (`connection: close`, GOAWAY), is never
//! used again.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use super::plan::Protocol;

/// Streams on one HTTP/2 connection before another is opened: the least that RFC 9113 (6.5.2) advises
/// servers to allow, and what most of them do.
const STREAMS_PER_CONNECTION: u32 = 100;
/// Flow-control windows of HTTP/2, bytes: the protocol's default of 64 KiB would measure itself.
const H2_WINDOW: u32 = 1 << 20;

type Payload = Full<Bytes>;
type Sent = Result<Response<Incoming>, TrySendError<Request<Payload>>>;

/// A connection could not be opened.
#[derive(Debug)]
pub(crate) struct ConnectFailed;

/// The connections to one server.
#[derive(Debug)]
pub(crate) struct Pool {
    addresses: Vec<SocketAddr>,
    /// Kept open; HTTP/2 replaces the ones that close.
    wanted: u32,
    opened: Cell<u64>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Http1 { idle: RefCell<Vec<http1::SendRequest<Payload>>> },
    Http2 { open: RefCell<Vec<Rc<Multiplexed>>>, opening: tokio::sync::Mutex<()> },
}

#[derive(Debug)]
struct Multiplexed {
    sender: http2::SendRequest<Payload>,
    streams: Cell<u32>,
}

/// A connection on loan for one request.
#[derive(Debug)]
pub(crate) enum Loan {
    /// Nobody else's until it is given back.
    Http1(http1::SendRequest<Payload>),
    /// One stream of a shared connection.
    Http2(StreamLoan),
}

/// Counts one stream for as long as it lives.
#[derive(Debug)]
pub(crate) struct StreamLoan(Rc<Multiplexed>);

impl Drop for StreamLoan {
    fn drop(&mut self) {
        self.0.streams.set(self.0.streams.get() - 1);
    }
}

impl StreamLoan {
    fn new(connection: &Rc<Multiplexed>) -> Self {
        connection.streams.set(connection.streams.get() + 1);
        Self(Rc::clone(connection))
    }
}

impl Pool {
    /// Without a connection yet. `addresses` are tried in order.
    pub(crate) fn new(addresses: Vec<SocketAddr>, protocol: Protocol, wanted: u32) -> Self {
        let kind = match protocol {
            Protocol::Http1 => Kind::Http1 { idle: RefCell::default() },
            Protocol::H2c | Protocol::Grpc => {
                Kind::Http2 { open: RefCell::default(), opening: tokio::sync::Mutex::default() }
            }
        };
        Self { addresses, wanted, opened: Cell::new(0), kind }
    }

    /// Opens the connections that are kept. A server that is not there shows when requests are sent.
    pub(crate) async fn warm_up(&self) {
        for _ in 0..self.wanted {
            let connected = match &self.kind {
                Kind::Http1 { idle } => self.connect_http1().await.map(|sender| idle.borrow_mut().push(sender)),
                Kind::Http2 { open, .. } => self.connect_http2().await.map(|shared| open.borrow_mut().push(shared)),
            };
            if connected.is_err() {
                return;
            }
        }
    }

    /// Connections opened until now.
    pub(crate) fn opened(&self) -> u64 {
        self.opened.get()
    }

    /// A connection for one request.
    pub(crate) async fn borrow(&self) -> Result<Loan, ConnectFailed> {
        match &self.kind {
            Kind::Http1 { idle } => loop {
                let Some(sender) = idle.borrow_mut().pop() else {
                    return Ok(Loan::Http1(self.connect_http1().await?));
                };
                if sender.is_ready() {
                    return Ok(Loan::Http1(sender));
                }
            },
            Kind::Http2 { open, opening } => Ok(Loan::Http2(self.borrow_stream(open, opening).await?)),
        }
    }

    async fn borrow_stream(
        &self,
        open: &RefCell<Vec<Rc<Multiplexed>>>,
        opening: &tokio::sync::Mutex<()>,
    ) -> Result<StreamLoan, ConnectFailed> {
        let mut turn = None;
        loop {
            let (count, least) = {
                let mut open = open.borrow_mut();
                open.retain(|connection| !connection.sender.is_closed());
                (open.len() as u64, open.iter().min_by_key(|connection| connection.streams.get()).cloned())
            };
            let enough = count >= u64::from(self.wanted)
                && least.as_ref().is_some_and(|connection| connection.streams.get() < STREAMS_PER_CONNECTION);
            if enough {
                return Ok(StreamLoan::new(least.as_ref().expect("enough connections include one")));
            }
            if turn.is_some() {
                let connection = match (self.connect_http2().await, least) {
                    (Ok(connection), _) => {
                        open.borrow_mut().push(Rc::clone(&connection));
                        connection
                    }
                    (Err(ConnectFailed), Some(least)) => least,
                    (Err(failed), None) => return Err(failed),
                };
                return Ok(StreamLoan::new(&connection));
            }
            // One request opens the connection; the others go on with what there is, or wait for it.
            turn = match (opening.try_lock(), least) {
                (Ok(turn), _) => Some(turn),
                (Err(_), Some(least)) => return Ok(StreamLoan::new(&least)),
                (Err(_), None) => Some(opening.lock().await),
            };
        }
    }

    /// Takes a connection back whose answer was read to its end.
    pub(crate) async fn give_back(&self, loan: Loan) {
        let (Loan::Http1(mut sender), Kind::Http1 { idle }) = (loan, &self.kind) else { return };
        // An error here is `connection: close`, or a server that closed: the connection is dropped.
        if sender.ready().await.is_ok() {
            idle.borrow_mut().push(sender);
        }
    }

    async fn connect(&self) -> Result<TokioIo<TcpStream>, ConnectFailed> {
        let stream = TcpStream::connect(&self.addresses[..]).await.map_err(|_| ConnectFailed)?;
        // Without it Nagle's algorithm holds back a small body until the head was acknowledged.
        let _ = stream.set_nodelay(true);
        self.opened.set(self.opened.get() + 1);
        Ok(TokioIo::new(stream))
    }

    async fn connect_http1(&self) -> Result<http1::SendRequest<Payload>, ConnectFailed> {
        let stream = self.connect().await?;
        let (mut sender, connection) = http1::handshake(stream).await.map_err(|_| ConnectFailed)?;
        tokio::task::spawn_local(connection);
        sender.ready().await.map_err(|_| ConnectFailed)?;
        Ok(sender)
    }

    async fn connect_http2(&self) -> Result<Rc<Multiplexed>, ConnectFailed> {
        let stream = self.connect().await?;
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(H2_WINDOW)
            .initial_connection_window_size(H2_WINDOW)
            .handshake(stream)
            .await
            .map_err(|_| ConnectFailed)?;
        tokio::task::spawn_local(connection);
        Ok(Rc::new(Multiplexed { sender, streams: Cell::new(0) }))
    }
}

impl Loan {
    /// Sends the request. The error gives it back when nothing of it was sent.
    pub(crate) async fn send(&mut self, request: Request<Payload>) -> Sent {
        match self {
            Self::Http1(sender) => sender.try_send_request(request).await,
            Self::Http2(stream) => stream.0.sender.clone().try_send_request(request).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn request_that_finds_its_connection_closed_comes_back_unsent() {
        tokio::task::LocalSet::new()
            .run_until(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let pool = Pool::new(vec![listener.local_addr().unwrap()], Protocol::Http1, 1);
                let mut loan = pool.borrow().await.unwrap();
                drop(listener.accept().await.unwrap());
                let Loan::Http1(sender) = &mut loan else { panic!("an HTTP/1 pool lends HTTP/1") };
                while !sender.is_closed() {
                    tokio::task::yield_now().await;
                }
                let mut error = loan.send(Request::new(Full::default())).await.unwrap_err();
                assert!(error.take_message().is_some());
                pool.give_back(loan).await;
                let Kind::Http1 { idle } = &pool.kind else { unreachable!() };
                assert!(idle.borrow().is_empty(), "a closed connection does not come back");
            })
            .await;
    }

    #[tokio::test]
    async fn http2_opens_another_connection_only_when_the_streams_are_used_up() {
        tokio::task::LocalSet::new()
            .run_until(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let pool = Pool::new(vec![listener.local_addr().unwrap()], Protocol::H2c, 1);
                let mut loans = Vec::new();
                for _ in 0..STREAMS_PER_CONNECTION {
                    loans.push(pool.borrow().await.unwrap());
                }
                assert_eq!(pool.opened(), 1);
                loans.push(pool.borrow().await.unwrap());
                assert_eq!(pool.opened(), 2);
                loans.clear();
                drop(pool.borrow().await.unwrap());
                assert_eq!(pool.opened(), 2);
            })
            .await;
    }
}
