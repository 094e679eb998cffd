//! The members of a cluster, from the answers of a source that may fail, lie or flap.
//!
//! A source (a file, a DNS name, a registry) yields whole lists, or errors. [`Merge`] decides on the
//! members, and when a change takes effect, [`Refresh`] on the time of the next question, and
//! [`ErrorPause`] on the wait of a source that fails without one. The caller turns the members into
//! backends of a [`Balancer`](crate::Balancer): the address identifies a backend, and a removed one
//! becomes a lame duck. [`overrides`] are the word of an operator on single backends, over that of the
//! source.
//!
//! The obvious way is to obey each list. Load balancers that do so lose whole clusters: to an empty
//! answer of a DNS server, to the first half of a long answer, to a registry that restarts with no
//! entries. The other way, to remove a backend only when it also fails its health checks, sends
//! requests to processes that belong to another service by now. So a source is obeyed, with three
//! exceptions, each bounded in time or loudly reported:
//!
//! - An **error is no answer**: the members stay.
//! - An **empty list** is believed only if the operator says so ([`OnEmpty::Obey`]).
//! - After a **sudden loss** of more than half of the backends, the missing ones stay for
//!   [`MergeConfig::hold`], unless the source stated that they drain.
//!
//! Where it is weak: a source that loses less than half in each of several lists is obeyed to the end,
//! a hold ends after its time also while the source fails, and a removal of more than half on purpose
//! takes `hold`.

mod error_pause;
mod gather;
mod merge;
pub mod overrides;
mod refresh;

#[cfg(test)]
mod tests;

pub use error_pause::ErrorPause;
pub use merge::{Census, Freshness, Listed, Member, Merge, MergeConfig, MergeCounts, MergeEvent, OnEmpty, Readiness};
pub use refresh::{Refresh, RefreshConfig};
