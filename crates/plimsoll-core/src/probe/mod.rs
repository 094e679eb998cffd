//! Probes by UDP: health of inactive backends, lame duck in a round trip, and load.
//!
//! A client that has sent nothing to a backend for long closes its connections and stops its
//! checks. Queries by UDP keep it informed at a fraction of the cost, and a backend that becomes a
//! lame duck tells its idle clients by notices (SRE ch. 20). The state machines here have no
//! socket: `plimsoll-wire` holds the datagrams, and a caller sends them.
//!
//! - [`Prober`]: a client's probes of one backend, as events and [`Action`]s.
//! - [`Responder`]: the backend's side: answers, leases and notices.
//! - [`Query`], [`Answer`], [`Notice`]: the messages.
//! - [`Pacer`]: the pace of a round of datagrams.
//! - [`FrugalProbes`]: the backends to probe for the policy `prequal`.
//! - [`LatencyByLoad`]: the latency that an answer states.

mod client;
mod frugal;
mod latency_by_load;
mod message;
mod pacer;
mod responder;

pub use client::{ANSWER_TIMEOUT, Action, KeySource, Path, Prober, ProberConfig, SilenceCause, Traffic, Verdict};
pub use frugal::FrugalProbes;
pub use latency_by_load::LatencyByLoad;
pub use message::{Answer, AnswerState, Authenticity, Instance, Notice, Peer, Purpose, Query, ServerState, VERSION};
pub use pacer::{Pace, Pacer};
pub use responder::{
    COOKIE_MESSAGE, CookieSecret, ExceededLimit, MAX_LEASES, QueryLimits, Reply, Responder, ResponderConfig,
    ResponderCounts,
};
