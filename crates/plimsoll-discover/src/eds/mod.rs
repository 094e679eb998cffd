//! The endpoints of a service at an xDS control plane, by EDS over ADS.
//!
//! The control plane sends the whole list of the service with each change (state of the world).
//! `subscription` decides on the requests, `assignment` and `levels` on the backends; this and `connection` are I/O.
//!
//! ```text
//! health_status  UNKNOWN, HEALTHY: Ready; DRAINING: Draining; others: Starting, no request
//! priority       the first level with a usable endpoint; the higher ones are Starting
//! weight         of the endpoint, times the share of its locality if localities have weights
//! zone           its zone
//! region         its locality, unless the zone or the priority was chosen for that
//! ```
//!
//! ```no_run
//! use plimsoll::client::{Cluster, ClusterConfig};
//! use plimsoll::discover::Endpoint;
//! use plimsoll_discover::eds::Eds;
//!
//! # async fn follow() -> Result<(), plimsoll_discover::eds::InvalidEds> {
//! let cluster = Cluster::new("web", ClusterConfig::default(), [] as [Endpoint; 0]);
//! cluster.follow(Eds::new("xds.internal:18000", "web")?);
//! # Ok(())
//! # }
//! ```

mod assignment;
mod connection;
mod levels;
mod message;
mod repeated;
mod subscription;

#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::hash::{BuildHasher as _, RandomState};

use futures_util::stream::{BoxStream, StreamExt as _};
use http::uri::Authority;
use plimsoll::discover::{Answer, Discover};
use plimsoll::tls::TlsConfig;
use plimsoll_core::Timestamp;
use rand_core::SeedableRng as _;
use rand_pcg::Pcg64Mcg;
use tokio::time::{Instant, sleep_until};

use self::connection::{ControlPlane, Event, Requests, StreamError};
pub use self::levels::LocalityFrom;
use self::message::{ASSIGNMENT, DiscoveryRequest, Node, Status};
use self::subscription::{ANSWER_TIME, Request, ResponseError, Subscription};

/// The kind of client that a control plane sees.
const PROGRAM: &str = "plimsoll";
/// The longest name of a service or node, in bytes.
const MAX_NAME: usize = 1024;
/// `INVALID_ARGUMENT` of gRPC.
const INVALID_ARGUMENT: i32 = 3;

/// A setting that makes no source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEds {
    /// Not the address of a control plane.
    #[error("`{0}` is no address of a control plane: use a host and a port, such as xds.internal:18000")]
    Server(String),
    /// Not the name of a service, or the id or cluster of a node.
    #[error("`{0}` is no name: use 1 to {MAX_NAME} characters without control characters")]
    Name(String),
}

/// A source that follows the endpoints of a service. See the [module](self).
pub struct Eds {
    plane: ControlPlane,
    id: Option<String>,
    cluster: Option<String>,
    origin: Instant,
    rng: Pcg64Mcg,
    subscription: Subscription,
    stream: Option<(Requests, BoxStream<'static, Result<Event, StreamError>>)>,
}

/// The reason why a service has no list of backends.
#[derive(Debug, thiserror::Error)]
#[error("EDS {service} at {server}: {problem}")]
pub struct EdsError {
    service: String,
    server: Authority,
    #[source]
    problem: Problem,
}

#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error(transparent)]
    Response(#[from] ResponseError),
    #[error(
        "no endpoints of it within {} s; help: look for a ClusterLoadAssignment with this cluster_name at the \
         control plane, for node {node}",
        ANSWER_TIME.as_secs()
    )]
    Unknown { node: String },
}

impl Eds {
    /// A source for `service`, the name of a `ClusterLoadAssignment`, from the control plane at `server`, a
    /// host and a port. In plain text: anybody on the path can read and change the list.
    ///
    /// # Errors
    /// `server` is no such address, or `service` is empty or too long.
    pub fn new(server: &str, service: &str) -> Result<Self, InvalidEds> {
        let authority = server.parse().ok().filter(|authority: &Authority| {
            authority.port_u16().is_some_and(|port| port > 0) && !authority.host().is_empty() && !server.contains('@')
        });
        let now = Instant::now();
        Ok(Self {
            plane: ControlPlane {
                server: authority.ok_or_else(|| InvalidEds::Server(assignment::short(server)))?,
                tls: None,
                dial: connection::dial(),
            },
            id: None,
            cluster: None,
            origin: now,
            rng: Pcg64Mcg::seed_from_u64(RandomState::new().hash_one(service)),
            subscription: Subscription::new(name(service)?, Timestamp::ZERO),
            stream: None,
        })
    }

    /// The same with this id of the node in place of the name of the machine. Some control planes choose the
    /// endpoints by it.
    ///
    /// # Errors
    /// `id` is empty or too long.
    pub fn node_id(mut self, id: &str) -> Result<Self, InvalidEds> {
        self.id = Some(name(id)?);
        Ok(self)
    }

    /// The same with this cluster of the node in place of `plimsoll`.
    ///
    /// # Errors
    /// `cluster` is empty or too long.
    pub fn node_cluster(mut self, cluster: &str) -> Result<Self, InvalidEds> {
        self.cluster = Some(name(cluster)?);
        Ok(self)
    }

    /// The same in TLS. The name in the certificate is the host of the server, unless `tls` has another.
    #[must_use]
    pub fn tls(mut self, tls: TlsConfig) -> Self {
        self.plane.tls = Some(tls);
        self
    }

    /// The same with another property of the endpoints as their locality.
    #[must_use]
    pub fn locality_from(mut self, from: LocalityFrom) -> Self {
        self.subscription.set_locality_from(from);
        self
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_origin(self.origin.elapsed())
    }

    fn node(&self) -> Node {
        let machine = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        Node {
            id: self.id.clone().unwrap_or_else(machine),
            cluster: self.cluster.clone().unwrap_or_else(|| PROGRAM.to_owned()),
            user_agent_name: PROGRAM.to_owned(),
            user_agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// The node is in the first request of a stream only.
    fn message(&self, request: Request, node: Option<Node>) -> DiscoveryRequest {
        DiscoveryRequest {
            version_info: request.version,
            node,
            resource_names: vec![self.subscription.service().to_owned()],
            type_url: ASSIGNMENT.to_owned(),
            response_nonce: request.nonce,
            error_detail: request.rejected.map(|message| Status { code: INVALID_ARGUMENT, message }),
        }
    }

    /// Begins the stream that is due.
    fn open(&mut self) {
        if let Some(first) = self.subscription.poll_stream(self.now()) {
            let (requests, events) = connection::open(self.plane.clone());
            // An empty queue takes it.
            let _ = requests.send(self.message(first, Some(self.node())));
            self.stream = Some((requests, events));
        }
    }

    fn on_event(&mut self, event: Option<Result<Event, StreamError>>) -> Result<(), Problem> {
        let problem = match event {
            Some(Ok(Event::Connected)) => {
                self.subscription.on_connected(self.now());
                return Ok(());
            }
            Some(Ok(Event::Response(response))) => {
                let (request, outcome) = self.subscription.on_response(response);
                match request.map(|request| self.send(request)) {
                    Some(Ok(())) => return Ok(outcome?),
                    Some(Err(error)) => error.into(),
                    None => match outcome {
                        Ok(()) => return Ok(()),
                        Err(error) => error.into(),
                    },
                }
            }
            Some(Err(error)) => error.into(),
            None => StreamError::Ended.into(),
        };
        self.stream = None;
        let is_error = self.subscription.on_ended(self.now(), &mut self.rng);
        // A response that makes no sense is an error, whatever came before it.
        let is_error = is_error || matches!(problem, Problem::Response(_));
        if is_error { Err(problem) } else { Ok(()) }
    }

    fn send(&self, request: Request) -> Result<(), StreamError> {
        let message = self.message(request, None);
        self.stream.as_ref().map_or(Ok(()), |(requests, _)| requests.send(message))
    }

    fn on_due(&mut self) -> Result<(), Problem> {
        match self.subscription.on_due(self.now()) {
            true => Err(Problem::Unknown { node: assignment::short(&self.node().id) }),
            false => Ok(()),
        }
    }

    fn error(&mut self, problem: Problem) -> EdsError {
        self.subscription.on_error();
        EdsError { service: self.subscription.service().to_owned(), server: self.plane.server.clone(), problem }
    }
}

impl Discover for Eds {
    async fn next(&mut self) -> Option<Answer> {
        loop {
            self.open();
            if let Some(list) = self.subscription.poll_list() {
                return Some(Ok(list));
            }
            let due = self.subscription.poll_timeout().map(|due| self.origin + due.since(Timestamp::ZERO));
            let stream = &mut self.stream;
            let step = tokio::select! {
                biased;
                event = async { stream.as_mut().expect("guarded").1.next().await }, if stream.is_some() => self.on_event(event),
                () = async { sleep_until(due.expect("guarded")).await }, if due.is_some() => self.on_due(),
            };
            if let Err(problem) = step {
                return Some(Err(self.error(problem).into()));
            }
        }
    }

    fn kind(&self) -> &'static str {
        "eds"
    }

    /// With everything that decides on the backends: the name is that of their saved list.
    fn description(&self) -> String {
        let mut text = format!("{} at {}", self.subscription.service(), self.plane.server);
        for (word, value) in [("as", &self.id), ("of", &self.cluster)] {
            if let Some(value) = value {
                let _ = write!(text, " {word} {value}");
            }
        }
        match self.subscription.locality_from() {
            LocalityFrom::Region => {}
            LocalityFrom::Zone => text.push_str(" by zone"),
            LocalityFrom::Priority => text.push_str(" by priority"),
        }
        text
    }
}

/// Checks the name of a service, or a part of a node.
fn name(text: &str) -> Result<String, InvalidEds> {
    let is_name = (1..=MAX_NAME).contains(&text.len()) && !text.chars().any(char::is_control);
    if is_name { Ok(text.to_owned()) } else { Err(InvalidEds::Name(assignment::short(text))) }
}

impl std::fmt::Debug for Eds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { plane, id, cluster, subscription, .. } = self;
        let mut debug = f.debug_struct("Eds");
        debug.field("plane", plane).field("id", id).field("cluster", cluster).field("subscription", subscription);
        debug.finish_non_exhaustive()
    }
}
