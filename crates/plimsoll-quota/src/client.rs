//! The client of a task: its stream to the quota server, kept up for as long as the task runs.
//!
//! Without a server the task goes on by itself ([`Holder`](plimsoll_core::quota::Holder)), and no request
//! fails for lack of one.

use std::error::Error as _;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use http::uri::Authority;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use plimsoll::server::FleetLimits;
use plimsoll::stream::Stream;
use plimsoll::tls::{TlsConfig, chain};
use plimsoll_core::quota::{Introduced, Report};
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic_prost::ProstCodec;

use crate::convert;
use crate::message::{self, FromOwner, FromTask, JOIN, ToOwner, ToTask};

/// Time for a connection, and for the first answer on it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time between two attempts. It doubles up to the second one, and is half to one and a half of it.
const BACKOFF: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];
/// A stream that lasted this long was a good one.
const GOOD: Duration = Duration::from_secs(10);
/// Reports that wait for a server which does not read.
const MAX_QUEUE: usize = 64;
/// Time between pings on a connection, and for the answer.
const KEEP_ALIVE: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(10)];

/// Time for a connection to end after its stream.
const CAUSE_TIMEOUT: Duration = Duration::from_millis(500);
/// The answer of a server with TLS to plain text.
const REFUSED_PLAIN: &str = "this port speaks TLS";

/// A setting that makes no client.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidClient {
    /// There is no server.
    #[error("no quota server is named")]
    NoServer,
    /// Not a server's address.
    #[error("{0:?} is not a server's address, such as quota.internal:9800")]
    Server(String),
    /// The service has no name.
    #[error("the service has no name")]
    NoService,
}

/// A client of the quota server.
#[derive(Clone, Debug)]
pub struct Client {
    servers: Vec<Authority>,
    service: String,
    instance: String,
    /// `None`: in plain text.
    tls: Option<TlsSource>,
}

/// Where the trust and the certificate for a connection come from.
#[derive(Clone)]
struct TlsSource(Arc<dyn Fn() -> Result<TlsConfig, String> + Send + Sync>);

impl fmt::Debug for TlsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsSource")
    }
}

impl Client {
    /// A client of the first of these servers that answers, for tasks of this service.
    ///
    /// # Errors
    /// No server, or not an address of one; a service without a name.
    pub fn new<S: AsRef<str>>(
        servers: impl IntoIterator<Item = S>,
        service: impl Into<String>,
    ) -> Result<Self, InvalidClient> {
        let parse = |server: S| {
            let server = server.as_ref();
            let authority: Option<Authority> = server.parse().ok();
            authority
                .filter(|authority| authority.port_u16().is_some() && !authority.as_str().contains('@'))
                .ok_or_else(|| InvalidClient::Server(server.to_owned()))
        };
        let servers = servers.into_iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        if servers.is_empty() {
            return Err(InvalidClient::NoServer);
        }
        let service = service.into();
        if service.is_empty() {
            return Err(InvalidClient::NoService);
        }
        let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "task".to_owned());
        let instance = format!("{host}/{}/{:08x}", std::process::id(), rng().next_u32());
        Ok(Self { servers, service, instance, tls: None })
    }

    /// The name of this task: by default one that no other has. A later task of this name replaces it.
    #[must_use]
    pub fn instance(self, name: impl Into<String>) -> Self {
        Self { instance: name.into(), ..self }
    }

    /// Speaks TLS with the server, which knows the task by the names in its certificate.
    #[must_use]
    pub fn tls(self, config: TlsConfig) -> Self {
        self.tls_from(move || Ok(config.clone()))
    }

    /// The same by a function, which is called for each connection: renewed certificates are taken with
    /// the next one. Its error is logged like that of a connection.
    #[must_use]
    pub fn tls_from(self, source: impl Fn() -> Result<TlsConfig, String> + Send + Sync + 'static) -> Self {
        Self { tls: Some(TlsSource(Arc::new(source))), ..self }
    }

    /// Keeps up a stream for the gate of `limits`, for ever.
    pub async fn run(self, limits: FleetLimits) {
        let mut rng = rng();
        let (mut backoff, mut is_connected) = (BACKOFF[0], true);
        for server in self.servers.iter().cycle() {
            let begun = Instant::now();
            let ended = {
                let stream = self.stream(server, &limits);
                tokio::select! {
                    ended = stream => ended,
                    // Leases end without a stream too.
                    never = keep_leases(&limits) => match never {},
                }
            };
            limits.with(|_, limiter| limiter.disconnect());
            if begun.elapsed() > GOOD {
                (backoff, is_connected) = (BACKOFF[0], true);
            }
            if std::mem::replace(&mut is_connected, false) {
                let (service, error) = (&self.service, &ended);
                tracing::warn!(%server, service, error, "quota server unreachable: limits hold by leases");
            }
            let wait = backoff.mul_f64(0.5 + f64::from(rng.next_u32()) / f64::from(u32::MAX));
            tokio::select! {
                () = sleep(wait) => {}
                never = keep_leases(&limits) => match never {},
            }
            backoff = (2 * backoff).min(BACKOFF[1]);
        }
    }

    /// One stream. Returns the reason of its end.
    async fn stream(&self, server: &Authority, limits: &FleetLimits) -> String {
        match self.try_stream(server, limits).await {
            Ok(()) => "the server ended the stream".to_owned(),
            Err(error) => error,
        }
    }

    async fn try_stream(&self, server: &Authority, limits: &FleetLimits) -> Result<(), String> {
        let opened = timeout(CONNECT_TIMEOUT, self.open(server, limits)).await;
        let (reports, mut messages, epoch) = opened.map_err(|_| "no answer within 5 s".to_owned())??;
        tracing::info!(%server, service = self.service, instance = self.instance, "quota server connected");
        loop {
            send(&reports, epoch, limits)?;
            if !limits.with(|_, limiter| limiter.is_connected()) {
                return Err("no answer until the end of the lease".to_owned());
            }
            let due = limits.with(|now, limiter| limiter.poll_timeout(now));
            let due = due.map_or_else(|| Instant::now() + KEEP_ALIVE[0], |due| limits.instant(due));
            tokio::select! {
                message = messages.message() => match message {
                    Ok(Some(message)) => take(message, epoch, limits)?,
                    Ok(None) => return Ok(()),
                    Err(status) => return Err(status.message().to_owned()),
                },
                () = sleep_until(due) => {}
                () = limits.hurried() => {}
            }
        }
    }

    /// A stream whose limits have come.
    async fn open(
        &self,
        server: &Authority,
        limits: &FleetLimits,
    ) -> Result<(mpsc::Sender<ToOwner>, tonic::Streaming<ToTask>, u64), String> {
        let tls = self.tls.as_ref().map(|TlsSource(source)| source()).transpose()?;
        let tcp = connect(server).await.map_err(|error| format!("cannot connect: {error}"))?;
        let (scheme, stream) = match tls {
            None => ("http", Stream::Tcp(tcp)),
            Some(tls) => {
                let stream = tls.connect_http2(tcp, server.host()).await;
                ("https", stream.map_err(|error| format!("no TLS with the server: {}", chain(&error)))?)
            }
        };
        let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        builder.timer(TokioTimer::new()).keep_alive_interval(KEEP_ALIVE[0]).keep_alive_timeout(KEEP_ALIVE[1]);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.map_err(|error| chain(&error))?;
        let connection = tokio::spawn(connection);
        let service = tower::service_fn(move |request| sender.clone().send_request(request));
        let origin = Uri::builder().scheme(scheme).authority(server.clone()).path_and_query("/").build();
        let mut grpc = Grpc::with_origin(service, origin.map_err(|error| error.to_string())?);
        let (reports, queue) = mpsc::channel(MAX_QUEUE);
        let cpus = limits.capacity();
        let hello = limits.with(|now, limiter| limiter.connect(now, cpus));
        let hello = convert::hello(&self.service, &self.instance, limits.speed().as_f64(), hello);
        let hello = ToOwner { message: Some(FromTask::Hello(hello)) };
        reports.try_send(hello).map_err(|_| "the queue is full".to_owned())?;
        let codec: ProstCodec<ToOwner, ToTask> = ProstCodec::default();
        let request = tonic::Request::new(ReceiverStream::new(queue));
        let path = http::uri::PathAndQuery::from_static(JOIN);
        let answer = grpc.streaming(request, path, codec).await;
        let mut messages = match answer {
            Ok(answer) => answer.into_inner(),
            Err(status) => return Err(described(&status, connection).await),
        };
        let first = match messages.message().await {
            Ok(first) => first,
            Err(status) => return Err(described(&status, connection).await),
        };
        let Some(ToTask { message: Some(FromOwner::Limits(first)) }) = first else {
            return Err("the first message of the server is to be the limits".to_owned());
        };
        let epoch = first.epoch;
        if !limits.with(|_, limiter| limiter.accept_epoch(epoch)) {
            return Err(format!("epoch {epoch}: a later owner has been there"));
        }
        set_limits(&first, limits)?;
        Ok((reports, messages, epoch))
    }
}

/// The reason why a stream did not begin. The server states it, or else the connection: an alert of
/// TLS is no error of a stream.
async fn described(status: &tonic::Status, connection: JoinHandle<hyper::Result<()>>) -> String {
    if status.source().is_none() {
        return status.message().to_owned();
    }
    let cause = match timeout(CAUSE_TIMEOUT, connection).await {
        Ok(Ok(Err(error))) => chain(&error),
        _ => chain(status),
    };
    if cause.contains(REFUSED_PLAIN) {
        return format!("the server speaks TLS, and this task does not: {cause}");
    }
    cause
}

/// Takes a message of the owner.
fn take(message: ToTask, epoch: u64, limits: &FleetLimits) -> Result<(), String> {
    let of = match &message.message {
        Some(FromOwner::Limits(message)) => message.epoch,
        Some(FromOwner::Assignment(message)) => message.epoch,
        None => return Err("an empty message".to_owned()),
    };
    if of != epoch {
        return Err(format!("epoch {of} on a stream of epoch {epoch}"));
    }
    match message.message {
        Some(FromOwner::Limits(message)) => set_limits(&message, limits)?,
        Some(FromOwner::Assignment(message)) => {
            let assignment = convert::to_assignment(&message).map_err(|error| error.to_string())?;
            limits.with(|now, limiter| limiter.assign(now, &assignment)).map_err(|error| error.to_string())?;
        }
        None => {}
    }
    Ok(())
}

/// Puts limits in force. Those that make no sense end the stream, and the last ones stay.
fn set_limits(message: &message::Limits, limits: &FleetLimits) -> Result<(), String> {
    let all = convert::to_limits(message, |name| limits.key(name)).map_err(|error| error.to_string())?;
    limits.with(|now, limiter| limiter.set_limits(now, message.tasks, all));
    Ok(())
}

/// Sends the report that is due.
fn send(reports: &mpsc::Sender<ToOwner>, epoch: u64, limits: &FleetLimits) -> Result<(), String> {
    let Some(report) = limits.with(|now, limiter| limiter.poll(now)) else { return Ok(()) };
    let report: Introduced<Report> = report;
    let report = ToOwner { message: Some(FromTask::Report(convert::report(epoch, report))) };
    reports.try_send(report).map_err(|_| "the server does not read its stream".to_owned())
}

/// Ends leases, also while there is no stream.
async fn keep_leases(limits: &FleetLimits) -> std::convert::Infallible {
    loop {
        let due = limits.with(|now, limiter| {
            limiter.end_lease(now);
            limiter.lease_timeout()
        });
        // A lease that begins meanwhile is longer.
        let due = due.map_or_else(|| Instant::now() + Duration::from_secs(1), |due| limits.instant(due));
        sleep_until(due).await;
    }
}

async fn connect(server: &Authority) -> std::io::Result<TcpStream> {
    let host = server.host().trim_start_matches('[').trim_end_matches(']');
    let addresses: Vec<SocketAddr> =
        tokio::net::lookup_host((host, server.port_u16().unwrap_or_default())).await?.collect();
    let tcp = TcpStream::connect(&*addresses).await?;
    tcp.set_nodelay(true)?;
    Ok(tcp)
}

/// Tasks of one service do not return alike.
fn rng() -> Pcg64Mcg {
    use std::hash::{BuildHasher as _, RandomState};
    Pcg64Mcg::seed_from_u64(RandomState::new().hash_one(std::process::id()))
}
