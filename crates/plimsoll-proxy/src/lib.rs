//! The proxy: listeners, routes, clusters of backends, reload and drain.
//!
//! ```text
//! config ──▶ Proxy (control) ──plans──▶ worker × threads
//!                │                        listener ─ connection ─ forward ─▶ client (pools)
//!                └──────── clusters ◀───────────── shared ─────────────────────┘
//! ```
//!
//! - [`config`]: the file, checked as a whole; [`route`]: which route a request takes.
//! - [`Proxy`]: starts, reloads, drains; owns what the threads share.
//! - `worker`: one thread, one runtime; `listener`: accepts; `connection`: one client; `forward`: one request.
//! - `hop`: fields that are not passed on; `answer`: what the proxy answers itself.

mod answer;
mod body;
pub mod config;
mod connection;
mod forward;
mod hop;
mod listener;
mod phase;
mod proxy;
pub mod route;
mod worker;

pub use proxy::{Error, ListenerView, Proxy, Reloads};
