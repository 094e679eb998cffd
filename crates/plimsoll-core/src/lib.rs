//! The decisions of Plimsoll, as pure state machines.
//!
//! The caller passes in facts, the time and random numbers. The crate returns decisions: the
//! backend of a request, the health of a backend, its recovery. Nothing here reads a clock, draws
//! from a global generator, takes a lock or touches a socket. So the proxy, the library and a
//! simulator run the same code, and a seed replays a run byte for byte. The crate is `no_std`, and
//! needs only `alloc`.
//!
//! - [`Balancer`] is a client's view of one cluster: it combines the parts below.
//! - [`health`] keeps the state of each backend and the rules that change it.
//! - [`pick`] holds the policies that choose among the usable backends.
//! - [`discover`] decides on the members of a cluster, from the answers of a source.
//! - [`fleet`] coordinates many processes through a store.
//! - [`subset`] selects the backends that one client connects to.
//! - [`classify`] decides a request's criticality, [`meter`] estimates its cost, and [`admit`]
//!   admits or sheds it at an overloaded server. [`signal`] measures the server's load.
//! - [`Operation`] is the endpoint of a request: evidence is kept per operation.
//! - [`throttle`] decides whether a client sends a request at all, [`retry`] whether it sends a
//!   failed one again.
//! - [`shedding`] keeps the shedding report: an account of shed requests, with a verdict.
//! - [`spill`] assigns requests to localities.
//! - [`batch`] limits the batch requests at backends, and selects the next of the others.
//! - [`split`] selects the version that serves a request, and [`canary`] compares the versions.
//! - [`queue`] selects the waiting request that gets the next slot.
//! - [`quota`] shares the limit of a customer among the tasks of a fleet.
//! - [`request_limit`] limits the requests per second of each customer.
//! - [`trace`] decides which requests have their spans recorded.
//! - [`Speed`] makes costs and limits of different machines comparable.
//! - [`debt`] measures how far a slow client lags behind its minimum rate. [`turns`] shares a thread
//!   between long bodies and usual requests.
//! - [`LoadReport`] is a backend's own account of its load ([`report`]), [`probe`] its answer to a
//!   probe. [`spread`] measures the evenness of load.
//!
//! # One machine on its own
//!
//! Each machine needs no other. Its page has a whole program, in this number of lines without
//! imports:
//!
//! | problem | machine | lines |
//! |---|---|--:|
//! | overloaded backends get too much from this client | [`throttle::Throttle`] | 11 |
//! | retries multiply the load of an outage | [`retry::Budget`] | 17 |
//! | this server has more requests than CPU | [`admit::Gate`] | 22 |
//! | a resource serves few requests at a time | [`admit::Queue`] | 8 |
//! | a customer sends too many requests | [`request_limit::RequestLimits`] | 8 |
//! | a customer has one limit over many tasks | [`quota::Holder`] | 24 |
//! | an index in proportion to weights | [`pick::WeightedPicker`] | 9 |
//! | an index in proportion to reported capacity | [`pick::ReportPicker`] | 11 |
//! | the less loaded of two | [`pick::less_loaded_of_two`] | 7 |
//! | backends with health, slow start and a policy | [`Balancer`] | 14 |
//! | the same backend for the same key | [`pick::HashKey`] | 11 |
//! | too many connections from each client | [`subset::Subset`] | 12 |
//! | a canary for some requests or users | [`split::Split`] | 6 |
//!
//! Random numbers come from any generator: see [`Random`]. The programs draw them from the crate
//! `rand_pcg`, which needs a feature of this one:
//!
//! ```toml
//! [dependencies]
//! plimsoll-core = { version = "0.1", features = ["rand_core_0_10"] }
//! rand_pcg = "0.10"
//! ```
//!
//! *SRE ch. 20* and *ch. 21* are chapters of the book *Site Reliability Engineering* (O'Reilly,
//! 2016): [Load Balancing in the
//! Datacenter](https://sre.google/sre-book/load-balancing-datacenter/) and [Handling
//! Overload](https://sre.google/sre-book/handling-overload/). *CRE* is the article "Using load
//! shedding to survive a success disaster" of Google's blog (2016).
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `rand_core_0_10` | [`Random`] for each generator of rand_core 0.10 |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod admit;
mod balancer;
pub mod batch;
pub mod canary;
pub mod classify;
mod criticality;
pub mod debt;
mod decay;
pub mod discover;
mod event;
pub mod fleet;
mod gcra;
pub mod health;
mod id;
mod median;
pub mod meter;
mod operation;
mod outlook;
pub mod pick;
pub mod probe;
pub mod queue;
pub mod quota;
mod random;
mod ratio;
pub mod rejection;
pub mod report;
pub mod request_limit;
pub mod retry;
mod rng;
pub mod shedding;
pub mod signal;
pub mod slots;
mod speed;
pub mod spill;
pub mod split;
pub mod spread;
pub mod subset;
pub mod throttle;
mod time;
pub mod trace;
pub mod turns;

pub use balancer::{
    BackendSnapshot, Balancer, BalancerConfig, Completion, DEFAULT_MAX_ACTIVE_REQUESTS, Distribution, LOAD_BINS,
    LoadMeasure, LocalitySnapshot, Outcome, Overview, Pick, ProbeCensus, ProbeCounts, ProbeSnapshot, WaitReason,
};
pub use criticality::Criticality;
pub use event::{Event, Observe};
pub use id::BackendId;
pub use operation::Operation;
pub use random::{Random, RandomFn};
pub use ratio::{Ratio, Weight};
pub use rejection::Rejection;
pub use report::LoadReport;
pub use speed::Speed;
pub use time::Timestamp;

/// Runs the example of the README as a test of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
