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
//! - `connection`: one client, its protocol and time limits; `activity`: what happens on it.
//! - `forward`: one request; `request_body`, `response_body`: what streams through; `hop`: fields that are not passed on.
//! - `reason`: why a request was not served; `answer`: the answer that says so.

mod accept;
mod activity;
mod answer;
pub mod config;
mod connection;
mod forward;
mod hop;
mod listener;
mod phase;
mod proxy;
mod reason;
mod request_body;
mod response_body;
pub mod route;
mod worker;

pub use proxy::{Error, ListenerView, Proxy, Reloads};
