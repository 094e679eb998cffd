//! Coordination of many processes through a store: the decisions, without the store.
//!
//! The store has keys with a modification revision, leases that take their keys with them, and
//! transactions that write only if their comparisons hold (etcd). It decides races; the machines
//! here decide which operation to try, from a view of the store that may be late. So a machine may
//! be wrong about the present and never breaks a rule: the comparison of its operation fails.
//!
//! - [`trust`]: whether removals are believed. [`members`]: the records under a prefix, by that.
//! - [`lease`]: until when a holder may rely on its lease.
//! - [`numbers`]: the number of a client, or the slot of a backend.
//! - [`assignments`]: the subsets of all clients, written by a leader.
//! - [`shards`]: the owners of the shards of quotas.
//!
//! While the store is unreachable nothing here changes: members, numbers and assignments freeze,
//! and the requests go on.

pub mod assignments;
pub mod lease;
pub mod members;
pub mod numbers;
pub mod shards;
pub mod trust;

pub use assignments::{AssignmentWrite, Assignments, AssignmentsConfig, ListedBackend};
pub use lease::HeldLease;
pub use members::{Members, Presence};
pub use numbers::{Expect, Holes, NumberOperation, NumberOutcome, NumberRecord, Numbers, NumbersConfig, OwnRecord};
pub use shards::{SHARDS, ShardOperation, Shards};
pub use trust::{RemovalTrust, TrustConfig};
