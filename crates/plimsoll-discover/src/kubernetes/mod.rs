//! The EndpointSlices of a Kubernetes service.
//!
//! All slices of the service are listed once, and then watched: the API server sends each change when
//! it happens. `mirror` decides on the requests, `slice` on the backends; this and `api` are I/O.
//!
//! ```text
//! terminating                Draining: no new request
//! ready = false              Starting: none yet
//! ready = true, or not said  Ready; also pods that are not, with publishNotReadyAddresses
//! zone                       its zone
//! ```
//!
//! `serving` has no effect: it says whether a pod that ends still answers, and that gets no new request
//! anyway. kube-proxy falls back to such pods if a service has no others. This source does not, as
//! those are about to close their port; the proxy answers 503 at once.

mod account;
mod api;
mod mirror;
mod server;
mod slice;
mod wire;

#[cfg(test)]
mod tests;

use std::hash::{BuildHasher as _, RandomState};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream::{BoxStream, StreamExt as _};
use plimsoll::discover::{Answer, Discover, Endpoint};
use plimsoll_core::Timestamp;
use rand_core::SeedableRng as _;
use rand_pcg::Pcg64Mcg;
use tokio::time::{Instant, sleep_until, timeout_at};

use self::account::{Account, AccountError, FOLDER};
use self::api::{Api, ApiError};
use self::mirror::{Mirror, MirrorError, Outcome, Request};
pub use self::server::{ApiServer, NoApiServer};
use self::slice::SliceError;
pub use self::slice::{NoServicePort, ServicePort};
use self::wire::{Event, Page, WireError};

/// Slices of one page: 50,000 endpoints, about 20 MiB.
const PAGE_SIZE: u32 = 500;
/// Time that a watch has beyond its own before it is abandoned.
const WATCH_SLACK: Duration = Duration::from_secs(10);
/// Events that are taken together before the list is made anew, and the rest gets its turn. A rolling
/// update of a large service sends many at once, and to make the list costs time by its length. A
/// server that never stops to send must not keep the list from its audit.
const MAX_BATCH: u32 = 1_000;

/// A source that watches the EndpointSlices of a service. See the [module](self).
pub struct EndpointSlices {
    service: String,
    namespace: Option<String>,
    port: ServicePort,
    api: Arc<Api>,
    origin: Instant,
    rng: Pcg64Mcg,
    mirror: Mirror,
    listing: Option<BoxFuture<'static, Result<Page, Problem>>>,
    watch: Option<BoxStream<'static, WatchItem>>,
    /// Events since the last list of endpoints, or since the rest had its turn.
    batch: u32,
    /// The slices may have other endpoints than the last list.
    is_new: bool,
    last: Option<Vec<Endpoint>>,
}

/// `None`: a line without an event for this source.
type WatchItem = Result<Option<Event>, Problem>;

/// The reason why a service has no list of backends.
#[derive(Debug, thiserror::Error)]
#[error("Kubernetes service {service}: {problem}")]
pub struct KubernetesError {
    /// The service, with its namespace if that is known.
    service: String,
    /// The problem, and the fix.
    #[source]
    problem: Problem,
}

#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error(transparent)]
    Account(#[from] AccountError),
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    #[error(transparent)]
    Slice(#[from] SliceError),
    #[error("the API server ended the watch: {0}")]
    Ended(String),
}

impl EndpointSlices {
    /// A source for a service in the namespace and the cluster of the pod that this process runs in.
    ///
    /// # Errors
    /// `service` is no name of a service.
    pub fn new(service: &str) -> Result<Self, NoName> {
        let now = Instant::now();
        Ok(Self {
            service: name(service)?,
            namespace: None,
            port: ServicePort::Only,
            api: Arc::new(Api {
                server: None,
                account: Account { folder: PathBuf::from(FOLDER), is_optional: false },
                dial: api::tcp(),
            }),
            origin: now,
            rng: Pcg64Mcg::seed_from_u64(RandomState::new().hash_one(service)),
            mirror: Mirror::new(Timestamp::ZERO),
            listing: None,
            watch: None,
            batch: 0,
            is_new: false,
            last: None,
        })
    }

    /// The same in another namespace.
    ///
    /// # Errors
    /// `namespace` is no name of a namespace.
    pub fn namespace(mut self, namespace: &str) -> Result<Self, NoName> {
        self.namespace = Some(name(namespace)?);
        Ok(self)
    }

    /// The same with another port than the only one.
    #[must_use]
    pub fn port(mut self, port: ServicePort) -> Self {
        self.port = port;
        self
    }

    /// The same from another API server. No token is then needed, as with `kubectl proxy`.
    #[must_use]
    pub fn server(mut self, server: ApiServer) -> Self {
        self.api_mut().server = Some(server);
        self.api_mut().account.is_optional = true;
        self
    }

    /// The same with the files `token`, `ca.crt` and `namespace` in another folder.
    #[must_use]
    pub fn service_account(mut self, folder: impl Into<PathBuf>) -> Self {
        self.api_mut().account.folder = folder.into();
        self
    }

    fn api_mut(&mut self) -> &mut Api {
        Arc::get_mut(&mut self.api).expect("no request was sent yet")
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_origin(self.origin.elapsed())
    }

    /// Begins the requests that are due.
    fn send(&mut self) {
        while let Some(request) = self.mirror.poll_request(self.now(), &mut self.rng) {
            let context = (Arc::clone(&self.api), self.service.clone(), self.namespace.clone());
            match request {
                Request::List { token } => self.listing = Some(list(context, token).boxed()),
                Request::Watch { version, time } => self.watch = Some(watch(context, version, time)),
            }
        }
    }

    fn on_page(&mut self, page: Result<Page, Problem>) -> Result<(), Problem> {
        self.listing = None;
        let now = self.now();
        let taken = page.and_then(|page| Ok(self.mirror.on_page(now, page, &mut self.rng)?));
        match taken {
            Ok(outcome) => self.is_new |= outcome == Outcome::New,
            Err(problem) => {
                let is_expired = matches!(&problem, Problem::Api(error) if error.is_expired());
                if self.mirror.on_list_failed(now, is_expired, &mut self.rng) {
                    return Err(problem);
                }
            }
        }
        Ok(())
    }

    fn on_watch(&mut self, event: Option<WatchItem>) -> Result<(), Problem> {
        let now = self.now();
        let failed = match event {
            Some(Ok(None)) => Ok(Outcome::Same),
            Some(Ok(Some(Event::Failed(message)))) => Err(Problem::Ended(message)),
            Some(Ok(Some(Event::Expired))) => {
                self.watch = None;
                return Ok(self.mirror.on_watch_expired(now, &mut self.rng)?);
            }
            Some(Ok(Some(event))) => self.mirror.on_event(event).map_err(Problem::from),
            Some(Err(problem)) => Err(problem),
            None => {
                self.watch = None;
                return Ok(self.mirror.on_watch_ended(now, &mut self.rng)?);
            }
        };
        match failed {
            Ok(outcome) => {
                self.batch += 1;
                self.is_new |= outcome == Outcome::New;
                Ok(())
            }
            Err(problem) => {
                self.watch = None;
                self.mirror.on_watch_failed(now, &mut self.rng);
                Err(problem)
            }
        }
    }

    /// The list of backends, if it differs from the last answer.
    fn changed(&mut self) -> Result<Option<Vec<Endpoint>>, Problem> {
        (self.batch, self.is_new) = (0, false);
        let endpoints = slice::endpoints(self.mirror.slices(), &self.port)?;
        let is_new = self.last.as_ref() != Some(&endpoints);
        self.last = Some(endpoints.clone());
        Ok(is_new.then_some(endpoints))
    }

    fn error(&mut self, problem: Problem) -> KubernetesError {
        // The same list after an error is an answer again.
        self.last = None;
        KubernetesError { service: self.full_name(), problem }
    }

    /// The service, with its namespace if that is known.
    fn full_name(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{namespace}/{}", self.service),
            None => self.service.clone(),
        }
    }
}

impl Discover for EndpointSlices {
    async fn next(&mut self) -> Option<Answer> {
        loop {
            self.send();
            let due = self.mirror.poll_timeout();
            let due = due.map(|due| self.origin + due.since(Timestamp::ZERO));
            let (listing, watch) = (&mut self.listing, &mut self.watch);
            let is_full = self.batch >= MAX_BATCH;
            let step = tokio::select! {
                biased;
                event = async { watch.as_mut().expect("guarded").next().await }, if watch.is_some() && !is_full =>
                    self.on_watch(event),
                () = std::future::ready(()), if self.is_new => match self.changed() {
                    Ok(None) => Ok(()),
                    Ok(Some(list)) => return Some(Ok(list)),
                    Err(problem) => Err(problem),
                },
                page = async { listing.as_mut().expect("guarded").await }, if listing.is_some() => self.on_page(page),
                () = async { sleep_until(due.expect("guarded")).await }, if due.is_some() => Ok(()),
                () = tokio::task::yield_now(), if is_full => {
                    self.batch = 0;
                    Ok(())
                }
            };
            if let Err(problem) = step {
                return Some(Err(self.error(problem).into()));
            }
        }
    }

    fn kind(&self) -> &'static str {
        "kubernetes"
    }

    /// With everything that decides on the backends: the name is that of their saved list.
    fn description(&self) -> String {
        let port = match &self.port {
            ServicePort::Only => String::new(),
            port => format!(" port {port}"),
        };
        let server = self.api.server.as_ref().map(|server| format!(" at {server}")).unwrap_or_default();
        format!("{}{port}{server}", self.full_name())
    }
}

/// The client, the service and its namespace.
type Context = (Arc<Api>, String, Option<String>);

async fn target((api, service, namespace): &Context, query: &str) -> Result<String, Problem> {
    let namespace = match namespace {
        Some(namespace) => namespace.clone(),
        None => api.account.namespace().await?,
    };
    let label = wire::SERVICE_LABEL;
    Ok(format!(
        "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?labelSelector={label}%3D{service}&{query}"
    ))
}

async fn list(context: Context, token: Option<String>) -> Result<Page, Problem> {
    let token = token.map(|token| format!("&continue={}", encoded(&token))).unwrap_or_default();
    let target = target(&context, &format!("limit={PAGE_SIZE}{token}")).await?;
    Ok(wire::page(&context.0.page(&target).await?, &context.1)?)
}

/// The events of a watch. It ends when the server ends it, or the time is over.
fn watch(context: Context, version: String, time: Duration) -> BoxStream<'static, WatchItem> {
    let latest = Instant::now() + time + WATCH_SLACK;
    let (seconds, version) = (time.as_secs(), encoded(&version));
    let query = format!("watch=true&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds={seconds}");
    let opened = async move {
        let target = target(&context, &query).await?;
        let body = context.0.watch(&target).await?;
        Ok::<_, Problem>((body, context.1))
    };
    let events = move |(mut body, service): (api::Body, String)| async move {
        // The time-out does not see the time while the next line is always there.
        if Instant::now() >= latest {
            return Ok(None);
        }
        let line = timeout_at(latest, body.line()).await.unwrap_or(Ok(None));
        let event = line.map_err(Problem::from).and_then(|line| match line {
            None => Ok(None),
            Some(line) => Ok(Some(wire::event(&line, &service)?)),
        });
        event.map(|event| event.map(|event| (event, (body, service))))
    };
    futures_util::stream::once(opened)
        .map(move |opened| match opened {
            Ok(opened) => futures_util::stream::try_unfold(opened, events).boxed(),
            Err(problem) if matches!(&problem, Problem::Api(error) if error.is_expired()) => {
                futures_util::stream::iter([Ok(Some(Event::Expired))]).boxed()
            }
            Err(problem) => futures_util::stream::iter([Err(problem)]).boxed(),
        })
        .flatten()
        .boxed()
}

/// A value of a query.
fn encoded(value: &str) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => text.push(char::from(byte)),
            _ => write!(text, "%{byte:02X}").expect("writing to a string does not fail"),
        }
    }
    text
}

/// A text that is no name of a service or namespace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no name in Kubernetes: use at most 63 of a-z, 0-9 and -, such as web")]
pub struct NoName(String);

/// Checks the name of a service or namespace.
fn name(text: &str) -> Result<String, NoName> {
    if is_label(text) { Ok(text.to_owned()) } else { Err(NoName(text.chars().take(60).collect())) }
}

/// Whether a text is a DNS label (RFC 1123), as the names of services, namespaces and ports are.
fn is_label(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len()) && text.bytes().all(is_inner) && !text.starts_with('-') && !text.ends_with('-')
}

impl std::fmt::Debug for EndpointSlices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { service, namespace, port, api, .. } = self;
        let mut debug = f.debug_struct("EndpointSlices");
        debug.field("service", service).field("namespace", namespace).field("port", port).field("api", api);
        debug.finish_non_exhaustive()
    }
}
