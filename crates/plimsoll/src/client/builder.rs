//! A cluster in one expression: its backends, the settings that most programs change, and the checks
//! of both.
//!
//! [`Cluster::new`] takes a whole [`ClusterConfig`], as a program has it that reads its settings from
//! a file. The builder is for programs that state them in code: it begins with the defaults, reads
//! addresses as text, and refuses settings that cannot work. It builds nothing of its own: the result
//! is `Cluster::new`, then [`Cluster::follow_with`] if there is a source.
//!
//! Setters cannot fail, so that they chain. The builder keeps the first problem, and
//! [`build`](ClusterBuilder::build) returns it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use std::{error, fmt};

use plimsoll_core::pick::PolicyKind;
use plimsoll_core::throttle::ThrottlePolicy;
use tokio::runtime::Handle;

use super::batch::Batch;
use super::cluster::{Cluster, Notice};
use super::config::{Check, ClusterConfig, Protocol, RetryPolicy, SubsetChoice};
use super::localities::Localities;
use super::trace::Tracer;
use crate::address::{Address, AddressError};
use crate::discover::{Discover, Endpoint, Fixed, FollowConfig, SourceError};
#[cfg(feature = "tls")]
use crate::tls::{TlsConfig, TlsTrust};

/// Has a cluster follow a source, beside fixed backends.
type Follow = Box<dyn FnOnce(&Cluster, FollowConfig) + Send>;
/// A function that observes the cluster.
type Observer = Box<dyn Fn(&Notice) + Send + Sync>;

/// The settings of a cluster before it exists. Made by [`Cluster::builder`].
#[must_use = "a builder does nothing before `spawn` or `build`"]
pub struct ClusterBuilder {
    name: Arc<str>,
    config: ClusterConfig,
    backends: Vec<Endpoint>,
    /// The description of the source, and the way to follow it.
    source: Option<(Box<str>, Follow)>,
    observers: Vec<Observer>,
    tracer: Option<Arc<dyn Tracer>>,
    batch: Option<Batch>,
    #[cfg(feature = "test-util")]
    seed: Option<u64>,
    /// The first problem.
    problem: Option<BuildError>,
}

impl Cluster {
    /// Begins a cluster with default settings. `name` stands in logs, metrics and spans.
    ///
    /// Three lines are a working client: name the backends, spawn the cluster, send a request.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use http::Request;
    /// use plimsoll::Body;
    /// use plimsoll::client::{Client, Cluster};
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let backends = ["10.0.0.1:8080", "10.0.0.2:8080"];
    /// let cluster = Cluster::builder("search").backends(backends).timeout(Duration::from_secs(2)).spawn()?;
    /// let client = Client::new(&cluster);
    /// let response = client.send(Request::get("/?q=plimsoll").body(Body::empty())?).await?;
    /// # drop(response);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Backends that come and go have a [`source`](ClusterBuilder::source). The crate
    /// `plimsoll-discover` adds `.dns("search:8080")`, `.srv(…)`, `.file(…)`, `.kubernetes(…)` and
    /// `.eds(…)` to the builder, by its trait `Sources`.
    #[doc(alias = "dns")]
    #[doc(alias = "file")]
    pub fn builder(name: &str) -> ClusterBuilder {
        ClusterBuilder {
            name: name.into(),
            config: ClusterConfig::default(),
            backends: Vec::new(),
            source: None,
            observers: Vec::new(),
            tracer: None,
            batch: None,
            #[cfg(feature = "test-util")]
            seed: None,
            problem: None,
        }
    }
}

impl ClusterBuilder {
    /// Adds backends by address: `10.0.0.1:8080`, `[::1]:8080` or `unix:/run/search.sock`.
    ///
    /// They stay beside those of a [`source`](Self::source).
    pub fn backends(mut self, addresses: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        for text in addresses {
            let text = text.as_ref();
            match text.parse::<Address>() {
                Ok(address) => self.backends.push(Endpoint::new(address)),
                Err(cause) => self = self.fail(|cluster| BuildError::no_address(cluster, text, cause)),
            }
        }
        self
    }

    /// Adds backends with a weight, a zone or another property.
    ///
    /// ```
    /// use plimsoll::client::Cluster;
    /// use plimsoll::Weight;
    /// use plimsoll::discover::Endpoint;
    ///
    /// let large = Endpoint::new(([10, 0, 0, 1], 8080)).weight(Weight::new(2.0).expect("a weight"));
    /// let cluster = Cluster::builder("search").endpoints([large]).backends(["10.0.0.2:8080"]).build()?;
    /// assert_eq!(cluster.known(), 2);
    /// # Ok::<_, plimsoll::client::BuildError>(())
    /// ```
    pub fn endpoints(mut self, endpoints: impl IntoIterator<Item = impl Into<Endpoint>>) -> Self {
        self.backends.extend(endpoints.into_iter().map(Into::into));
        self
    }

    /// Takes backends from a source, as they come and go. See [`crate::discover`].
    ///
    /// Until its first list, requests wait: at most
    /// [`queue_timeout`](super::RequestConfig::queue_timeout), and at most
    /// [`max_pending`](super::RequestConfig::max_pending) of them.
    pub fn source(self, source: impl Discover + 'static) -> Self {
        let place = match source.description() {
            description if description.is_empty() => source.kind().to_owned(),
            description => format!("{} {description}", source.kind()),
        };
        if let Some((other, _)) = &self.source {
            let sources = [other.to_string(), place];
            return self.fail(|cluster| BuildError::SecondSource { cluster, sources });
        }
        let follow: Follow = Box::new(|cluster, config| cluster.follow_with(source, config));
        Self { source: Some((place.into(), follow)), ..self }
    }

    /// The same of a source that may be invalid. `place` names the setting in the error.
    pub fn try_source<S, E>(self, place: &str, source: Result<S, E>) -> Self
    where
        S: Discover + 'static,
        E: Into<SourceError>,
    {
        match source {
            Ok(source) => self.source(source),
            Err(cause) => {
                let (place, cause) = (place.to_owned(), cause.into());
                self.fail(|cluster| BuildError::Source { cluster, place, cause })
            }
        }
    }

    /// Sets the time from a call to the head of the response, with all attempts: by default 60 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.config.requests.request_timeout = timeout;
        self
    }

    /// Sets the time of one attempt, after which another backend gets the request: by default none.
    pub fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.config.requests.attempt_timeout = timeout;
        self
    }

    /// Sets the policy that picks a backend.
    pub fn policy(mut self, policy: PolicyKind) -> Self {
        self.config.balancer.policy = policy;
        self
    }

    /// Sets the HTTP version: by default HTTP/2 for gRPC and HTTP/1.1 for all else.
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.config.requests.protocol = protocol;
        self
    }

    /// Sets the active health check: by default none.
    pub fn check(mut self, check: Check) -> Self {
        self.config.check = check;
        self
    }

    /// Sets the retries. [`RetryPolicy::OFF`] turns them off.
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.config.retry = retry;
        self
    }

    /// Sets the throttle of requests that would most likely be shed.
    pub fn throttle(mut self, throttle: ThrottlePolicy) -> Self {
        self.config.throttle = throttle;
        self
    }

    /// Sets the subset of backends that this process connects to: by default all.
    pub fn subset(mut self, subset: SubsetChoice) -> Self {
        self.config.subset = Some(subset);
        self
    }

    /// Sets the order of localities, nearest first.
    pub fn localities(mut self, localities: Localities) -> Self {
        self.config.localities = Some(localities);
        self
    }

    /// Changes any other setting.
    ///
    /// ```
    /// # use plimsoll::client::Cluster;
    /// let builder = Cluster::builder("search").configure(|config| config.pool.min_connections = 1);
    /// ```
    pub fn configure(mut self, change: impl FnOnce(&mut ClusterConfig)) -> Self {
        change(&mut self.config);
        self
    }

    /// Has `tracer` receive the spans of all attempts, as [`Cluster::trace_with`].
    pub fn tracer(mut self, tracer: Arc<dyn Tracer>) -> Self {
        self.tracer = Some(tracer);
        self
    }

    /// Sends all requests as batch work through `batch`, as [`Cluster::batch_with`]: also those of
    /// clients of tower and tonic, which name no options.
    ///
    /// ```
    /// use plimsoll::client::{Batch, BatchConfig, Cluster};
    ///
    /// let batch = Batch::new(BatchConfig::default());
    /// let backends = ["10.0.0.1:8080"];
    /// let cluster = Cluster::builder("index").batch(batch.clone()).backends(backends).build()?;
    /// assert_eq!(batch.view().active, 0);
    /// # drop(cluster);
    /// # Ok::<_, plimsoll::client::BuildError>(())
    /// ```
    #[doc(alias = "background work")]
    pub fn batch(mut self, batch: Batch) -> Self {
        self.batch = Some(batch);
        self
    }

    /// Calls `observer` for every event of the cluster, as [`Cluster::on_event`]. There may be several.
    ///
    /// It misses none, since it is there before the first backend.
    pub fn observe(mut self, observer: impl Fn(&Notice) + Send + Sync + 'static) -> Self {
        self.observers.push(Box::new(observer));
        self
    }

    /// Sets the seed of random decisions, for a test. By default each cluster has another one.
    #[cfg(feature = "test-util")]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The cluster. Nothing happens before [`Cluster::run`] is polled: [`spawn`](Self::spawn) does
    /// that too.
    ///
    /// # Errors
    /// The first problem, with its place and the fix. A source needs a tokio runtime.
    pub fn build(mut self) -> Result<Cluster, BuildError> {
        if let Some(problem) = self.problem.take().or_else(|| self.check_all()) {
            return Err(problem);
        }
        let Self { name, config, backends, source, observers, tracer, batch, .. } = self;
        let cluster = Cluster::new(&name, config, [] as [Endpoint; 0]);
        #[cfg(feature = "test-util")]
        if let Some(seed) = self.seed {
            cluster.set_seed(seed);
        }
        for observer in observers {
            cluster.on_event(observer);
        }
        if let Some(tracer) = tracer {
            cluster.trace_with(tracer);
        }
        if let Some(batch) = batch {
            cluster.batch_with(batch);
        }
        let fixed = Fixed::new(backends);
        match source {
            Some((_, follow)) => {
                cluster.0.wait_for_first_list();
                follow(&cluster, FollowConfig::default().fixed(fixed));
            }
            None => cluster.follow(fixed),
        }
        Ok(cluster)
    }

    /// The cluster, with its task on the current tokio runtime. The task ends after the last handle
    /// to the cluster.
    ///
    /// # Errors
    /// As [`build`](Self::build), and outside of a tokio runtime.
    pub fn spawn(self) -> Result<Cluster, BuildError> {
        let runtime = Handle::try_current().map_err(|_| BuildError::NoRuntime { cluster: self.name.clone() });
        let cluster = self.build()?;
        runtime?.spawn(cluster.run());
        Ok(cluster)
    }

    /// Keeps a problem, if it is the first one.
    fn fail(mut self, problem: impl FnOnce(Arc<str>) -> BuildError) -> Self {
        let cluster = &self.name;
        self.problem.get_or_insert_with(|| problem(cluster.clone()));
        self
    }

    /// The problem of the settings as a whole.
    fn check_all(&self) -> Option<BuildError> {
        let cluster = self.name.clone();
        if cluster.is_empty() {
            return Some(BuildError::NoName);
        }
        if self.backends.is_empty() && self.source.is_none() {
            return Some(BuildError::NoBackends { cluster });
        }
        let mut known = BTreeSet::new();
        if let Some(twice) = self.backends.iter().find(|backend| !known.insert(backend.address.to_string())) {
            return Some(BuildError::Repeated { cluster, address: twice.address });
        }
        let requests = &self.config.requests;
        for (setting, time) in [
            ("timeout", requests.request_timeout),
            ("attempt_timeout", requests.attempt_timeout),
            ("requests.connect_timeout", requests.connect_timeout),
        ] {
            if time.is_zero() {
                return Some(BuildError::NoTime { cluster, setting });
            }
        }
        let (attempt, request) = (requests.attempt_timeout, requests.request_timeout);
        if attempt != Duration::MAX && attempt >= request {
            return Some(BuildError::LongAttempt { cluster, attempt, request });
        }
        (self.source.is_some() && Handle::try_current().is_err()).then_some(BuildError::NoRuntime { cluster })
    }
}

/// TLS to the backends.
#[cfg(feature = "tls")]
impl ClusterBuilder {
    /// Connects by TLS, and accepts the certificate authorities that the system trusts.
    ///
    /// The certificate of a backend must have its host or address, or the name of [`Self::tls`].
    #[doc(alias = "tls")]
    pub fn https(self) -> Self {
        match TlsTrust::system() {
            Ok(trust) => self.tls(TlsConfig::new(trust, None, None)),
            Err(_) => self.fail(|cluster| BuildError::NoSystemRoots { cluster }),
        }
    }

    /// Connects by TLS with this trust, client certificate and server name.
    pub fn tls(mut self, tls: TlsConfig) -> Self {
        self.config.tls = Some(tls);
        self
    }
}

impl fmt::Debug for ClusterBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = self.source.as_ref().map(|(place, _)| place);
        f.debug_struct("ClusterBuilder")
            .field("name", &self.name)
            .field("config", &self.config)
            .field("backends", &self.backends)
            .field("source", &source)
            .field("problem", &self.problem)
            .finish_non_exhaustive()
    }
}

/// The reason why a [`ClusterBuilder`] builds nothing.
///
/// Its text is the place and the problem, and the fix on a second line. `Debug` has the same text,
/// since `unwrap`, and a `main` that returns the error, print that.
#[non_exhaustive]
pub enum BuildError {
    /// The name is empty.
    NoName,
    /// There are no backends.
    NoBackends {
        /// The cluster.
        cluster: Arc<str>,
    },
    /// A backend is a host name.
    HostName {
        /// The cluster.
        cluster: Arc<str>,
        /// The backend as given.
        backend: Box<str>,
    },
    /// A backend is no address.
    Backend {
        /// The cluster.
        cluster: Arc<str>,
        /// The backend as given.
        backend: Box<str>,
        /// The error.
        cause: AddressError,
    },
    /// A backend is listed twice.
    Repeated {
        /// The cluster.
        cluster: Arc<str>,
        /// The backend.
        address: Address,
    },
    /// There are two sources.
    SecondSource {
        /// The cluster.
        cluster: Arc<str>,
        /// Both sources.
        sources: [String; 2],
    },
    /// A source is invalid.
    Source {
        /// The cluster.
        cluster: Arc<str>,
        /// The setting.
        place: String,
        /// The error.
        cause: SourceError,
    },
    /// A time limit is zero.
    NoTime {
        /// The cluster.
        cluster: Arc<str>,
        /// The setting.
        setting: &'static str,
    },
    /// An attempt may take as long as its request.
    LongAttempt {
        /// The cluster.
        cluster: Arc<str>,
        /// The time of an attempt.
        attempt: Duration,
        /// The time of a request.
        request: Duration,
    },
    /// The system trusts no certificate authority.
    NoSystemRoots {
        /// The cluster.
        cluster: Arc<str>,
    },
    /// There is no tokio runtime.
    NoRuntime {
        /// The cluster.
        cluster: Arc<str>,
    },
}

impl BuildError {
    fn no_address(cluster: Arc<str>, text: &str, cause: AddressError) -> Self {
        let has_port =
            text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
        let backend = text.into();
        if has_port && cause == AddressError::Syntax && !text.starts_with(['[', ':']) {
            Self::HostName { cluster, backend }
        } else {
            Self::Backend { cluster, backend, cause }
        }
    }

    /// The name of the cluster, if it has one.
    #[must_use]
    pub fn cluster(&self) -> Option<&str> {
        match self {
            Self::NoName => None,
            Self::NoBackends { cluster }
            | Self::HostName { cluster, .. }
            | Self::Backend { cluster, .. }
            | Self::Repeated { cluster, .. }
            | Self::SecondSource { cluster, .. }
            | Self::Source { cluster, .. }
            | Self::NoTime { cluster, .. }
            | Self::LongAttempt { cluster, .. }
            | Self::NoSystemRoots { cluster }
            | Self::NoRuntime { cluster } => Some(cluster),
        }
    }

    /// The fix.
    #[must_use]
    pub fn help(&self) -> String {
        match self {
            Self::NoName => "name the cluster after its service: Cluster::builder(\"search\")".into(),
            Self::NoBackends { .. } => {
                "add .backends([\"10.0.0.1:8080\"]), or a source: .dns(\"search:8080\") of plimsoll_discover::Sources"
                    .into()
            }
            Self::HostName { backend, .. } => {
                format!("follow the name by .dns(\"{backend}\") of plimsoll_discover::Sources")
            }
            Self::Backend { .. } => {
                "write an address with a port, 10.0.0.1:8080 or [::1]:8080, or unix:/run/app.sock".into()
            }
            Self::Repeated { .. } => "list it once; a larger share is a weight: Endpoint::weight".into(),
            Self::SecondSource { .. } => "keep one; fixed backends beside it go into .backends(…)".into(),
            Self::Source { place, .. } => format!("correct {place}"),
            Self::NoTime { .. } => "set a longer time; Duration::MAX is no limit".into(),
            Self::LongAttempt { .. } => "set a shorter time for an attempt, or none".into(),
            Self::NoSystemRoots { .. } => {
                "install ca-certificates, set SSL_CERT_FILE, or name the authorities by .tls(…)".into()
            }
            Self::NoRuntime { .. } => {
                "call it in async code; without a source, .build() needs no runtime, and Cluster::run is yours to poll"
                    .into()
            }
        }
    }
}

/// The problem, and the fix on a second line.
impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(cluster) = self.cluster() {
            write!(f, "cluster `{cluster}`")?;
        }
        match self {
            Self::NoName => f.write_str("cluster without a name: logs and metrics could not tell it from others"),
            Self::NoBackends { .. } => f.write_str(": no backends"),
            Self::HostName { backend, .. } => write!(f, ", backend `{backend}`: a name is no address"),
            Self::Backend { backend, cause, .. } => write!(f, ", backend `{backend}`: {cause}"),
            Self::Repeated { address, .. } => write!(f, ", backend `{address}`: listed twice"),
            Self::SecondSource { sources: [one, other], .. } => write!(f, ": two sources, {one} and {other}"),
            Self::Source { place, cause, .. } => write!(f, ", {place}: {cause}"),
            Self::NoTime { setting, .. } => write!(f, ", {setting}: every request would fail at once"),
            Self::LongAttempt { attempt, request, .. } => {
                write!(f, ", attempt_timeout: {attempt:?} has no effect, since the request ends after {request:?}")
            }
            Self::NoSystemRoots { .. } => f.write_str(", https: the system trusts no certificate authority"),
            Self::NoRuntime { .. } => f.write_str(": no tokio runtime for its task or its source"),
        }?;
        write!(f, "\nhelp: {}", self.help())
    }
}

impl error::Error for BuildError {}

impl fmt::Debug for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
