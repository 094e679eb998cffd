//! The CPU that each request uses, measured while it runs.
//!
//! Async code shares its threads, so a request's use is the sum of the polls of its tasks, on any
//! thread. A *section* ([`section`]) is one poll of a request's future, of its response's body or
//! of a task that it starts by [`spawn`], or one closure that it runs by [`spawn_blocking`]. It is
//! timed on its thread ([`thread`]) and charged to the request ([`Request`]). Tasks started with
//! `tokio::spawn` belong to no request. Their cost is spread over all requests, as is that of
//! accepting, reading and writing ([`Overhead`](plimsoll_core::meter::Overhead)).

mod request;
mod section;
mod spawn;
mod task;
mod thread;

pub(super) use request::Request;
pub(super) use section::{current, run};
pub use spawn::{RemoteWork, bind, spawn, spawn_blocking};
pub(super) use task::Metered;
pub(super) use thread::calibrate;
