//! The quota server: streams of tasks to their services, and a timer for each service.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{Request, Response};
use hyper::body::Incoming;
use parking_lot::Mutex;
use plimsoll::server::{DrainEnd, Lifecycle, Phase, ServeConfig, ServerLayer, serve, serve_tls};
use plimsoll_config::ReloadOutcome;
use plimsoll_core::Timestamp;
use plimsoll_etcd::Record;
use tokio::net::TcpListener;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{sleep_until, timeout};
use tonic::server::{Grpc, StreamingService};
use tonic::{Status, Streaming};
use tonic_prost::ProstCodec;

use crate::caller::Caller;
use crate::changes::Outcome;
use crate::config::{Config, ServiceConfig, Unit};
use crate::envoy;
use crate::fleet::{self, Member, Membership, StoredServices};
use crate::hosted::{Beside, Hosted};
use crate::limits::Change;
use crate::locate::Locating;
use crate::message::{FromTask, JOIN, LOCATE, Locate, Located, ToOwner, ToTask};
use crate::ownership::Owners;
use crate::service::{Callers, MAX_QUEUE, Service, StreamError, StreamId};
use crate::services::Services;
use crate::status::status;
use crate::tls::Ports;

/// Time for the first message of a stream.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for the drain. Streams of tasks end before, and those of Envoys never by themselves: both have leases.
const DRAIN: Duration = Duration::from_secs(2);
/// The path that answers whether the server takes streams.
const READINESS: &str = "/readyz";

/// A quota server. It runs until its [`Lifecycle`] has drained.
#[derive(Clone, Debug)]
pub struct Server {
    services: Arc<Services>,
    settings: Arc<Mutex<Settings>>,
    /// `None`: there is no other server.
    membership: Option<Membership>,
    /// `None`: without TLS, at loopback.
    tls: Option<Ports>,
    lifecycle: Lifecycle,
}

/// The settings of services, by their sources.
#[derive(Debug, Default)]
struct Settings {
    file: BTreeMap<String, ServiceConfig>,
    stored: StoredServices,
}

/// The addresses of a server.
#[derive(Debug)]
pub struct Listening {
    /// Streams of tasks.
    pub tasks: TcpListener,
    /// The API; `None`: off.
    pub admin: Option<TcpListener>,
}

impl Listening {
    /// Binds the addresses of a configuration.
    ///
    /// # Errors
    /// An address cannot be bound; the error names it.
    pub async fn bind(config: &Config) -> io::Result<Self> {
        let admin = match config.admin() {
            Some(address) => Some(bind(address).await?),
            None => None,
        };
        Ok(Self { tasks: bind(config.listen()).await?, admin })
    }
}

async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|error| io::Error::new(error.kind(), format!("cannot listen at {address}: {error}")))
}

impl Server {
    /// A server with the services of a configuration. Call it within a runtime.
    #[must_use]
    pub fn new(config: &Config, lifecycle: Lifecycle) -> Self {
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
        let membership = membership(config);
        let owners = if membership.is_some() { Owners::nobody() } else { Owners::Alone { epoch } };
        let services = Services::new(owners, lifecycle.watch());
        let tls = config.tls().map(|tls| Ports::new(tls, config.certificate_expiries()));
        let server = Self { services: Arc::new(services), settings: Arc::default(), membership, tls, lifecycle };
        server.apply(config);
        server
    }

    /// Takes other limits, rights and certificates. Returns the settings that need a restart.
    pub fn reload(&self, config: &Config) -> Vec<String> {
        self.services.last_reload.set(ReloadOutcome::Taken, SystemTime::now());
        self.apply(config)
    }

    /// A configuration was refused before it came to the server: metrics say so.
    pub fn refuse_reload(&self) {
        self.services.last_reload.set(ReloadOutcome::Refused, SystemTime::now());
    }

    fn apply(&self, config: &Config) -> Vec<String> {
        if let (Some(ports), Some(tls)) = (&self.tls, config.tls()) {
            ports.set(tls, config.certificate_expiries());
        }
        *self.services.operators.write() = config.operators().to_vec();
        let mut settings = self.settings.lock();
        settings.file.clone_from(config.services());
        self.set_services(settings.stored.over(&settings.file))
    }

    #[cfg(test)]
    pub(crate) fn services(&self) -> &Services {
        &self.services
    }

    fn set_services(&self, all: BTreeMap<String, ServiceConfig>) -> Vec<String> {
        let waiting = self.change(&all);
        *self.services.configs.write() = all;
        self.settle();
        waiting
    }

    /// Hands other settings to the services that this server owns. Returns those that need a restart.
    fn change(&self, configs: &BTreeMap<String, ServiceConfig>) -> Vec<String> {
        let mut waiting = Vec::new();
        let now = self.services.now();
        for (name, hosted) in self.services.all() {
            let Some(of) = configs.get(&name) else { continue };
            hosted.change(|service| {
                let before = service.config();
                if before.lease != of.lease {
                    waiting.push(format!("services.{name}.lease"));
                }
                if before.outlook != of.outlook {
                    waiting.push(format!("services.{name}.outlook"));
                }
                if before.unit != of.unit {
                    waiting.push(format!("services.{name}.unit"));
                }
                service.change(now, Change::Config(Box::new(of.clone())));
            });
            // Its limits follow when the tasks have tried them.
            if let Some(front) = hosted.front() {
                front.lock().set_reporters(&of.reporters);
            }
        }
        waiting
    }

    /// Begins and ends services by their settings and owners.
    fn settle(&self) {
        self.services.settle(|name, config, epoch| Some(self.host(name, config, epoch)));
    }

    /// A new service, with its owner for Envoys if that is another one.
    fn host(&self, name: &str, config: &ServiceConfig, epoch: u64) -> Arc<Hosted> {
        let now = self.services.now();
        let new = |config: ServiceConfig, beside: Beside| {
            let callers = if matches!(beside, Beside::Front(_)) { Callers::Tasks } else { Callers::Envoys };
            Hosted::new(Service::new(now, epoch, config, callers), beside)
        };
        let hosted = Arc::new_cyclic(|backends| {
            let front = || Arc::new(new(config.front(), Beside::Backends(backends.clone())));
            let beside = match config.unit {
                Unit::Cpus => Beside::Front(front()),
                Unit::Requests => Beside::None,
            };
            new(config.clone(), beside)
        });
        for hosted in [Some(Arc::clone(&hosted)), hosted.front()].into_iter().flatten() {
            tokio::spawn(keep_time(Arc::clone(&self.services), name.to_owned(), Arc::downgrade(&hosted)));
        }
        hosted
    }

    /// Serves tasks, and the API, until the drain has ended.
    pub async fn serve(self, listening: Listening) -> DrainEnd {
        if let Some(membership) = self.membership.clone() {
            // It goes on through the drain, and ends with the runtime.
            tokio::spawn(fleet::run(self.clone(), membership));
        }
        let is_waiting = self.membership.is_some() && self.settings.lock().file.is_empty();
        let Self { services, tls, lifecycle, .. } = self;
        let layer = ServerLayer::builder(lifecycle.clone()).admission(None).readiness_path(READINESS).build();
        let rpc = {
            let (services, is_tls) = (Arc::clone(&services), tls.is_some());
            tower::service_fn(move |mut request: Request<Incoming>| {
                let caller = Caller::of(request.extensions(), is_tls);
                request.extensions_mut().insert(caller);
                answer(Arc::clone(&services), request)
            })
        };
        if is_waiting {
            tracing::info!("waiting for the services in etcd: the file has none");
        } else {
            lifecycle.ready();
        }
        let for_tasks = tls.as_ref().map(|ports| Arc::clone(&ports.tasks));
        let tasks = async {
            let mut config = ServeConfig::default();
            config.drain.drain = DRAIN;
            match for_tasks {
                None => serve([listening.tasks], rpc, layer, config).await,
                Some(tls) => {
                    config.header_read_timeout = Some(HELLO_TIMEOUT);
                    serve_tls([listening.tasks], rpc, layer, config, tls).await
                }
            }
        };
        let ended = Notify::new();
        let admin = async {
            if let Some(listener) = listening.admin {
                crate::api::serve(listener, services, tls, lifecycle, ended.notified()).await;
            }
        };
        let tasks = async {
            let end = tasks.await;
            ended.notify_one();
            end
        };
        tokio::join!(tasks, admin).0
    }
}

impl Member for Server {
    fn set_stored(&self, records: &BTreeMap<String, Record>) {
        let mut settings = self.settings.lock();
        let is_first = !settings.stored.is_known();
        settings.stored.set(records, self.tls.is_some());
        *self.services.bad_settings.lock() = settings.stored.bad();
        for key in self.set_services(settings.stored.over(&settings.file)) {
            tracing::warn!(key, "changed setting needs a restart or another owner");
        }
        if is_first {
            self.lifecycle.ready();
        }
    }

    fn set_owners(&self, owners: Owners) {
        self.services.owners.send_replace(owners);
        self.settle();
    }

    fn phase(&self) -> watch::Receiver<Phase> {
        self.services.phase.clone()
    }
}

/// The part of a server in a fleet.
fn membership(config: &Config) -> Option<Membership> {
    let client = config.etcd()?.inspect_err(|error| tracing::error!(%error, "no client of etcd")).ok()?;
    Some(Membership { client, address: config.advertise()?.into(), on_split: config.on_split() })
}

/// Calls a service when it is time, until it is removed.
async fn keep_time(services: Arc<Services>, name: String, hosted: std::sync::Weak<Hosted>) {
    let mut changes = 0;
    loop {
        let Some(hosted) = hosted.upgrade().filter(|hosted| !hosted.has_ended()) else { return };
        let now = services.now();
        let is_due = hosted.lock().poll_timeout() <= now;
        if is_due {
            hosted.change(|service| service.handle_timeout(now));
        }
        let due = {
            let service = hosted.lock();
            log_change(&name, &service, &mut changes);
            service.poll_timeout().since(Timestamp::ZERO)
        };
        tokio::select! {
            () = sleep_until(services.origin + due) => {}
            () = hosted.is_due.notified() => {}
        }
    }
}

/// Logs the end of a change of limits, of which `before` have ended.
fn log_change(name: &str, service: &Service, before: &mut u64) {
    let counts = service.counts();
    let ended = counts.applied + counts.refused;
    if std::mem::replace(before, ended) == ended {
        return;
    }
    match service.changes().last_outcome() {
        Some(Outcome::Refused(tasks)) => {
            let tasks = tasks.join(", ");
            tracing::error!(service = name, tasks, "new limits not in force: tasks lost their streams with them");
        }
        Some(Outcome::Applied) if service.tasks() > 0 => tracing::info!(service = name, "new limits in force"),
        Some(Outcome::Applied) | None => {}
    }
}

/// Answers a request of a task.
async fn answer(
    services: Arc<Services>,
    request: Request<Incoming>,
) -> Result<Response<tonic::body::Body>, Infallible> {
    let request = match envoy::answer(&services, request).await {
        Ok(answer) => return Ok(answer),
        Err(request) => request,
    };
    if request.uri().path() == LOCATE {
        let codec: ProstCodec<Located, Locate> = ProstCodec::default();
        return Ok(Grpc::new(codec).unary(Locating(services), request).await);
    }
    if request.uri().path() != JOIN {
        let status = Status::unimplemented(format!("no such method: {}", request.uri().path()));
        return Ok(status.into_http());
    }
    let codec: ProstCodec<ToTask, ToOwner> = ProstCodec::default();
    Ok(Grpc::new(codec).streaming(Join(services), request).await)
}

/// The method `Join`.
struct Join(Arc<Services>);

/// Messages to a task; an error is the last one.
type Answers = Pin<Box<dyn futures_util::Stream<Item = Result<ToTask, Status>> + Send>>;

impl StreamingService<ToOwner> for Join {
    type Response = ToTask;
    type ResponseStream = Answers;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<Answers>, Status>> + Send>>;

    fn call(&mut self, request: tonic::Request<Streaming<ToOwner>>) -> Self::Future {
        let caller = request.extensions().get::<Caller>().cloned();
        Box::pin(join(Arc::clone(&self.0), caller.unwrap_or_else(Caller::nobody), request.into_inner()))
    }
}

async fn join(
    services: Arc<Services>,
    caller: Caller,
    mut messages: Streaming<ToOwner>,
) -> Result<tonic::Response<Answers>, Status> {
    let first = timeout(HELLO_TIMEOUT, messages.message()).await;
    let first = first.map_err(|_| Status::deadline_exceeded("no hello within 5 s"))??;
    let Some(ToOwner { message: Some(FromTask::Hello(hello)) }) = first else {
        return Err(Status::invalid_argument("the first message of a stream is to be a hello"));
    };
    if services.get(&hello.service).is_none() {
        services.check_right(&hello.service, &caller)?;
    }
    let Some(hosted) = services.owned(&hello.service, hello.epoch).await else {
        services.redirects.fetch_add(1, Ordering::Relaxed);
        return Err(services.ownership(&hello.service).status(&hello.service));
    };
    hosted.may_report(&hello.service, &caller).inspect_err(|denied| {
        tracing::warn!(service = hello.service, error = %denied, "task refused");
    })?;
    if hosted.lock().config().unit == Unit::Requests {
        let (name, help) = (&hello.service, "use a service of unit \"cpus\"");
        return Err(Status::failed_precondition(format!("service {name:?} counts requests, for Envoy only: {help}")));
    }
    let (queue, answers) = mpsc::channel(MAX_QUEUE);
    let joined = hosted.change(|service| service.join(services.now(), &hello, queue));
    if let Err(StreamError::Outdated(later)) = joined {
        let (service, epoch) = (&hello.service, hosted.epoch);
        tracing::warn!(service, epoch, later, "a task knows a later owner: limits are no longer owned here");
        services.step_down(&hello.service, hosted.epoch);
    }
    let id = joined.map_err(status)?;
    let ended = Box::pin(hosted.ended(&hello.service));
    let ending = services.ending();
    tracing::info!(service = hello.service, instance = hello.instance, cpus = hello.cpus, "task joined");
    let left = Left { services: Arc::clone(&services), hosted: Arc::clone(&hosted), id };
    let task = Task { services, hosted, service: hello.service, caller, id };
    let reports = Box::pin(async move { read(&task, messages).await.err() });
    let stream = TaskStream { answers, left, reports: Some(reports), error: None, ending: Box::pin(ending), ended };
    Ok(tonic::Response::new(Box::pin(futures_util::stream::unfold(Some(stream), TaskStream::next))))
}

/// Both directions of a stream.
struct TaskStream {
    answers: mpsc::Receiver<ToTask>,
    left: Left,
    /// Reads the reports; `None` when they have ended.
    reports: Option<Pin<Box<dyn Future<Output = Option<Status>> + Send>>>,
    error: Option<Status>,
    /// Ends when the server is about to.
    ending: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// Ends when this server is no longer the owner.
    ended: Pin<Box<dyn Future<Output = Status> + Send>>,
}

impl TaskStream {
    /// The next answer; after the last one, the error that ended the stream.
    async fn next(stream: Option<Self>) -> Option<(Result<ToTask, Status>, Option<Self>)> {
        let mut stream = stream?;
        loop {
            let Some(reports) = &mut stream.reports else {
                // The queue has an end, since the stream has left.
                return match stream.answers.recv().await {
                    Some(answer) => Some((Ok(answer), Some(stream))),
                    None => stream.error.take().map(|error| (Err(error), None)),
                };
            };
            tokio::select! {
                answer = stream.answers.recv() => {
                    let ended = || Status::aborted("the lease is over, or another task has joined by this name");
                    let answer = answer.ok_or_else(ended);
                    let next = answer.is_ok().then_some(stream);
                    return Some((answer, next));
                }
                status = &mut stream.ended => {
                    stream.left.services.redirects.fetch_add(1, Ordering::Relaxed);
                    return Some((Err(status), None));
                }
                () = &mut stream.ending => return Some((Err(Status::unavailable("the server is ending")), None)),
                error = reports => {
                    (stream.reports, stream.error) = (None, error);
                    stream.left.leave();
                }
            }
        }
    }
}

/// A task with a stream.
struct Task {
    services: Arc<Services>,
    hosted: Arc<Hosted>,
    service: String,
    caller: Caller,
    id: StreamId,
}

/// Reads the reports of a task until its stream ends.
async fn read(task: &Task, mut messages: Streaming<ToOwner>) -> Result<(), Status> {
    let Task { services, hosted, service: name, caller, id } = task;
    loop {
        let message = match messages.message().await {
            Ok(Some(message)) => message,
            Ok(None) => return Ok(()),
            Err(status) => return Err(status),
        };
        let Some(FromTask::Report(report)) = message.message else {
            return Err(Status::invalid_argument("after the hello each message is to be a report"));
        };
        // Another owner counts what it says, and the stream is about to end.
        if hosted.has_ended() {
            return Ok(());
        }
        // A reload may have taken the right.
        hosted.may_report(name, caller)?;
        hosted.change(|service| service.report(services.now(), *id, &report)).map_err(status)?;
    }
}

/// Ends the stream at its service when it is dropped.
struct Left {
    services: Arc<Services>,
    hosted: Arc<Hosted>,
    id: StreamId,
}

impl Left {
    fn leave(&self) {
        self.hosted.change(|service| service.leave(self.id));
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        self.leave();
    }
}
