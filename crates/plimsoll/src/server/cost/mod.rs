//! The CPU that each request uses, measured while it runs.
//!
//! Async code shares its threads: what a request uses is the sum of the polls of its tasks, wherever they run. Each poll of a
//! request's future, of its response's body, of the tasks that it starts by [`spawn`] and the closures that it has run by
//! [`spawn_blocking`] is a *section* ([`section`]), timed on its thread ([`thread`]) and charged to the request ([`Request`]). Tasks
//! that are started with `tokio::spawn` are nobody's, and are spread over all requests as are accepting, reading and writing
//! ([`Overhead`](plimsoll_core::meter::Overhead)).

mod request;
mod section;
mod spawn;
mod task;
mod thread;

pub(super) use request::Request;
pub(super) use section::{current, run};
pub use spawn::{RemoteWork, bind, spawn, spawn_blocking};
pub(super) use task::Metered;
