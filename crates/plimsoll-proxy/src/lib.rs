//! The proxy: listeners, routes, clusters of backends, reload and drain.
//!
//! ```text
//! config ──▶ Proxy (control) ──plans──▶ worker × threads
//!                │                        accept ─▶ connection ─▶ forward ─▶ client (pools)
//!                └──────── clusters ◀───────────── shared ───────────────────────┘
//! ```
//!
//! - [`config`]: the file, checked as a whole; [`route`]: which route a request takes.
//! - [`Proxy`]: starts, reloads, drains; owns what the threads share.
//! - `worker`: one thread, one runtime; `accept`: its sockets; `listener`: what holds for all connections of an address.
//! - `handshake`: what comes before requests: `proxy_protocol`, `tls`, in `turns`; `peer`: who the client is, `forwarded`: what backends
//!   are told of it.
//! - `connection`: one client; `http1`, `http2`: its protocol, and what a connection may cost; `activity`: what happens on it,
//!   `time_limits`: for how long, `debt`: how far it may be behind; `clients`: how many from one address, `seats`: how many in all.
//! - `forward`: one request; `request_body` (and `silence`), `response_body`: what streams through; `upgrade`: what follows when both sides leave HTTP; `date`; `access_log`: what is written of it.
//! - `destination`: where a route leads; `fixed`: answers that stand in the file; `degrade`: what is given in place of an error.
//! - `quotas`: what customers may use.
//! - `classify`: how critical a request is; `inbound`: whether the process behind a cluster can take it on.
//! - `sockets`: those that listen, and that a successor takes over; `pressure`: what happens when memory or descriptors run out.
//! - [`explain`]: what became of the latest requests, and why. [`printable`]: what of a client's text a person gets to see.
//! - `reason`: why a request was not served; `answer`: the answer that says so; `ended`, `turned_away`: why a connection was ended,
//!   or not taken.

mod accept;
mod access_log;
mod activity;
mod answer;
mod batch;
mod classify;
mod clients;
pub mod config;
mod connection;
mod context;
mod counts;
mod date;
mod degrade;
mod destination;
mod ended;
pub mod explain;
mod fixed;
mod forward;
mod forwarded;
mod handshake;
mod handshakes;
mod holders;
mod http1;
mod http2;
mod inbound;
mod limits;
mod listener;
mod neighbours;
mod peer;
mod phase;
mod pressure;
mod printable;
mod proxy;
mod proxy_protocol;
mod quotas;
mod reason;
mod request_body;
mod response_body;
pub mod route;
mod routes;
mod seats;
mod silence;
mod sockets;
mod time_limits;
mod tls;
mod turned_away;
mod turns;
mod upgrade;
mod via;
mod worker;

pub use batch::BatchListenerView;
pub use degrade::StaleView;
pub use inbound::InboundView;
pub use pressure::PressureView;
pub use printable::printable;
pub use proxy::{Error, ListenerView, Proxy, Reloads};
pub use sockets::Sockets;
