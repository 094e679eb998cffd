//! The proxy: listeners, routes, clusters of backends, reload and drain.
//!
//! ```text
//! config ──▶ Proxy (control) ──plans──▶ worker × threads
//!                │                        listener ─▶ http1 | http2 ─▶ request ─▶ route ─▶ client (pools)
//!                └──────── clusters ◀───────────── shared ──────────────────────────┘
//! ```
//!
//! Imports between folders go downward, in this order (the last imports nothing of the others):
//!
//! - [`Proxy`] starts, reloads and drains; it owns the state that threads share. `worker` is one
//!   thread. `sockets` are bound, or taken over by a successor; `neighbours` share their address.
//!   `probes` are answered at the port numbers of listeners.
//! - `listener` accepts connections: `handshake` (`proxy_protocol`, `tls`, in `turns`), `clients`
//!   (connections of each), `rejections`, then `serve`.
//! - `http1` and `http2` speak the protocol with the client.
//! - `request` is one request: `forward`, and its answers.
//! - `connection` is the state of one client connection: the `context` that its listener gives it,
//!   its activity, `time_limits`, `permits`, and its `end_reason`.
//! - [`route`] finds the destination of a request: a cluster, or an answer of the configuration
//!   (`fixed`).
//! - [`split`] counts and compares the versions of a route, `mirror` counts copies of requests.
//! - `request_body` streams to a backend; `batch` is a listener of batch work.
//! - `classify` decides criticality and quotas; `inbound` is the gate before a process; `degrade`
//!   answers in place of errors.
//! - [`explain`], `access_log` and `trace` report on requests; `pressure` reacts to scarce memory and
//!   descriptors.
//! - `limits`, `forwarded` (the fields that tell backends of a client), `reason` (refusals),
//!   `counts`, `phase`, `peer`, `date` and [`printable`] are used by all of them.
//! - [`config`] is the file, checked as a whole. It returns data.

mod access_log;
mod batch;
mod classify;
pub mod config;
mod connection;
mod counts;
mod date;
mod degrade;
pub mod explain;
mod fixed;
mod fleet;
mod forwarded;
mod http1;
mod http2;
mod inbound;
mod limits;
mod listener;
mod mirror;
mod neighbours;
mod peer;
mod phase;
mod pressure;
mod printable;
mod probes;
mod proxy;
mod reason;
mod request;
mod request_body;
pub mod route;
mod sockets;
pub mod split;
mod state;
mod trace;
mod worker;

pub use batch::BatchListenerView;
pub use degrade::StaleView;
pub use fleet::EtcdView;
pub use inbound::InboundView;
pub use mirror::MirrorView;
pub use plimsoll_discover::file::Watch as FileWatch;
pub use pressure::PressureView;
pub use printable::printable;
pub use probes::Handover as ProbeHandover;
pub use proxy::{
    Error, ListenerView, OverrideDone, OverrideOrder, OverrideRefused, Proxy, Reloads, SourceAnswer, ask_sources,
};
pub use sockets::{LeftFiles, Sockets};
pub use state::{SavedOverride, saved_overrides};
pub use trace::TracesView;

/// Runs the example of the README as a test of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
