//! Quotas over a fleet: the limit of a customer, shared among all tasks of a service.
//!
//! SRE ch. 21: usage of all tasks is aggregated in real time, and effective limits are pushed to
//! each task.
//!
//! ```text
//! Account ── demand, lacking ──▶ Holder ── Report ──▶ Owner      one Account per customer at a task
//!    ▲                             │  ◀── Assignment ──┘         one Holder per task
//!    └── rate, credit, cut ────────┘
//! ```
//!
//! - [`Owner`] has the limits. It grants rates so that the sum of all rates that tasks may use is within
//!   the limit, whatever messages are lost: a rate is free again when its task says that it uses less, or
//!   when its lease is over.
//! - [`Holder`] is a task's side of the messages: reports, leases, and the fallback without owner.
//! - [`Account`] decides on the requests of one customer at one task.
//! - [`Limiter`] has the accounts of all customers at a task, by name.
//! - [`Group`] is a limit for some customers together: a request passes two accounts.
//! - [`CountingTask`] stands for a proxy that reports counts and takes token buckets.
//! - [`Buckets`] keep limits that callers state with their requests.
//! - [`Rollout`] lets one task try new limits before all.
//! - [`Rule`] is the formula of rates, and [`FairShare`] the share of a customer while CPU is short.
//!
//! Each task may also use a small [`floor`] of each limit without asking, so customers with little load
//! cause no messages.
//!
//! Rates are whole numbers of µCPU (reference CPU-microseconds a second): sums over a fleet are then
//! exact, and stay so after any number of updates.

mod account;
mod bucket;
mod buckets;
mod coarse;
mod counting;
mod group;
mod holder;
mod limiter;
mod message;
mod overload;
mod owner;
mod pay_off;
mod rollout;
mod rule;
mod soft;
#[cfg(test)]
mod tests;

pub use account::{Account, Refusal};
pub use bucket::Bucket;
pub use buckets::{BucketAnswer, BucketRequest, Buckets};
pub use counting::{Allowance, CountingTask, Usage};
pub use group::{AccountRefusal, Accounts, Group};
pub use holder::{AssignmentError, Fallback, Holder};
pub use limiter::{
    FleetCharge, FleetStanding, Introduced, Introduction, Limit, LimitedRequest, Limiter, Limits, MAX_LIMITS,
    MAX_NAMED, MAX_OTHERS, Refused,
};
pub use message::{Assignment, AssignmentEntry, CustomerId, FleetUse, Hello, Hold, Report, ReportEntry, TaskId};
pub use owner::{CustomerState, Owner, OwnerConfig, ReportError, Tenure};
pub use rollout::{Rollout, RolloutStep};
pub use rule::{Cut, Rule, Sums};
pub use soft::FairShare;

/// The limit of a customer without a hard one, in µCPU: above any rate.
pub const UNLIMITED: u64 = 1 << 50;
/// Part of a limit that tasks use without asking.
const FLOOR: u64 = 50;

/// The rate that each of `tasks` may use of a limit without asking, in µCPU: 2% of its even share.
#[must_use]
pub const fn floor(limit: u64, tasks: u32) -> u64 {
    limit / FLOOR / if tasks == 0 { 1 } else { tasks as u64 }
}

/// The part of a limit that is granted: the rest is for the floors.
#[must_use]
pub const fn granted(limit: u64) -> u64 {
    limit - limit / FLOOR
}
