//! The decisions of Plimsoll, as pure state machines.
//!
//! Which backend gets a request, when a backend counts as ill, how it comes back: each is decided
//! here, from facts, the time and random numbers that the caller passes in. Nothing in this crate
//! reads a clock, draws from a global generator, takes a lock or touches a socket; so the proxy, the
//! library and a simulator run the same code, and a seed replays a run byte for byte.
//!
//! - [`Balancer`] is one cluster as its client sees it: it puts the parts below together.
//! - [`health`] keeps the state of each backend and the rules that change it.
//! - [`pick`] holds the policies that choose among the usable backends.
//! - [`subset`] decides which of many backends one client connects to.
//! - [`classify`] decides how critical a request is, [`meter`] what it is expected to cost, [`admit`] whether a server takes it on
//!   when it cannot take all; [`signal`] is how busy the server is.
//! - [`Operation`] is the endpoint of a request: evidence is kept per operation.
//! - [`throttle`] decides whether a client sends a request at all, [`retry`] whether it sends one again that failed.
//! - [`throttling`] remembers what was turned away, and says whether that is as it should be.
//! - [`spill`] decides to which of several localities a request goes.
//! - [`batch`] decides how many batch requests are at backends, and who of the others is next.
//! - [`queue`] decides who of the requests that wait gets the next place.
//! - [`LoadReport`] is what backends say of themselves ([`report`]), [`probe`] what they answer when asked; [`spread`] measures how even the result is.
//!
//! ```
//! use plimsoll_core::{Balancer, BalancerConfig, Completion, Outcome, Pick, Timestamp, Weight};
//! use rand_core::SeedableRng;
//!
//! let mut rng = rand_pcg::Pcg64Mcg::seed_from_u64(1);
//! let mut balancer = Balancer::new(BalancerConfig::default());
//! let now = Timestamp::ZERO;
//! let id = balancer.add(now, Weight::ONE, &mut ());
//! balancer.on_connected(now, id, &mut ());
//! assert_eq!(balancer.pick(now, &mut rng), Pick::Backend(id));
//! balancer.finish(now, id, Completion { outcome: Outcome::Success, latency: None }, &mut ());
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod admit;
mod balancer;
pub mod batch;
pub mod classify;
mod criticality;
mod decay;
mod event;
pub mod health;
mod id;
mod median;
pub mod meter;
mod operation;
pub mod pick;
pub mod probe;
pub mod queue;
mod ratio;
pub mod report;
pub mod retry;
mod rng;
pub mod signal;
pub mod slots;
pub mod spill;
pub mod spread;
pub mod subset;
pub mod throttle;
pub mod throttling;
mod time;

pub use balancer::{
    BackendSnapshot, Balancer, BalancerConfig, Completion, DEFAULT_MAX_ACTIVE_REQUESTS, LocalitySnapshot, Outcome,
    Pick, WaitReason,
};
pub use criticality::Criticality;
pub use event::{Event, Observe};
pub use id::BackendId;
pub use operation::Operation;
pub use ratio::{Ratio, Weight};
pub use report::LoadReport;
pub use time::Timestamp;
