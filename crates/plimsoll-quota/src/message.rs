//! The messages of `plimsoll.quota.v1`, as protocol buffers.
//!
//! ```proto
//! service Quota {
//!   rpc Join(stream ToOwner) returns (stream ToTask);
//!   rpc Locate(Locate) returns (Located);
//! }
//! ```
//!
//! A task sends `Hello` first, then reports. The owner answers the first message with `Limits`, and sends
//! them again when one changes. Each report gets an `Assignment`; others follow when rates change.
//!
//! A server that does not own the limits of the service refuses a `Hello` with FAILED_PRECONDITION. The owner's address
//! is in the metadata field [`OWNER`], and its epoch in [`OWNER_EPOCH`]. The task joins there. An owner that is no longer
//! one ends its streams in the same way. `Locate` asks for the owner only, and may wait for one.
//!
//! A task numbers its customers and groups together: the first message that mentions one on a stream has its name
//! too. Rates are in µCPU (CPU-microseconds of the reference core a second), costs and credits in
//! CPU-microseconds.

use prost::{Message, Oneof};

/// The path of the method `Join`.
pub(crate) const JOIN: &str = "/plimsoll.quota.v1.Quota/Join";

/// The path of the method `Locate`.
pub(crate) const LOCATE: &str = "/plimsoll.quota.v1.Quota/Locate";
/// The metadata of a redirect: the address of the owner, and its epoch.
pub(crate) const OWNER: &str = "plimsoll-quota-owner";
pub(crate) const OWNER_EPOCH: &str = "plimsoll-quota-owner-epoch";

/// Asks for the owner of a service.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Locate {
    #[prost(string, tag = "1")]
    pub(crate) service: String,
    /// An owner of this epoch or an earlier one is no answer.
    #[prost(fixed64, tag = "2")]
    pub(crate) above: u64,
    /// The time to wait for an owner, at most 10 s.
    #[prost(uint32, tag = "3")]
    pub(crate) wait_ms: u32,
}

/// The owner of a service.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Located {
    /// 0: none came above the epoch of the question.
    #[prost(fixed64, tag = "1")]
    pub(crate) epoch: u64,
    /// Empty: the server that answers.
    #[prost(string, tag = "2")]
    pub(crate) address: String,
}

/// A message of a task.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ToOwner {
    #[prost(oneof = "FromTask", tags = "1, 2")]
    pub(crate) message: Option<FromTask>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum FromTask {
    #[prost(message, tag = "1")]
    Hello(Hello),
    #[prost(message, tag = "2")]
    Report(Report),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Hello {
    #[prost(string, tag = "1")]
    pub(crate) service: String,
    /// The name of the task. A later task of this name replaces it.
    #[prost(string, tag = "2")]
    pub(crate) instance: String,
    /// Reference CPUs that it may use.
    #[prost(double, tag = "3")]
    pub(crate) cpus: f64,
    #[prost(double, tag = "4")]
    pub(crate) speed: f64,
    /// Tasks of the service by its last assignment.
    #[prost(uint32, optional, tag = "5")]
    pub(crate) tasks: Option<u32>,
    #[prost(message, repeated, tag = "6")]
    pub(crate) holds: Vec<Hold>,
    /// The epoch of the last owner that the task knows; 0: none.
    #[prost(fixed64, tag = "7")]
    pub(crate) epoch: u64,
    /// The same of groups.
    #[prost(message, repeated, tag = "10")]
    pub(crate) groups: Vec<Hold>,
}

/// A rate that the task uses already.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Hold {
    #[prost(uint32, tag = "1")]
    pub(crate) id: u32,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) name: Vec<u8>,
    #[prost(uint32, tag = "3")]
    pub(crate) rate: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Report {
    /// The epoch of the owner that it is for.
    #[prost(fixed64, tag = "1")]
    pub(crate) epoch: u64,
    /// 1, 2, 3 ... on each stream.
    #[prost(uint32, tag = "2")]
    pub(crate) number: u32,
    /// The number of the last assignment that is in force.
    #[prost(uint32, tag = "3")]
    pub(crate) acknowledged: u32,
    #[prost(message, repeated, tag = "4")]
    pub(crate) entries: Vec<ReportEntry>,
    /// Customers that the task has removed.
    #[prost(uint32, repeated, tag = "5")]
    pub(crate) dropped: Vec<u32>,
    /// The rank of the most critical requests that the task lacks CPU for. Absent: it has enough.
    #[prost(uint32, optional, tag = "8")]
    pub(crate) overloaded: Option<u32>,
    /// Entries of groups. An owner that knows no groups would take them for customers if they were among the others.
    #[prost(message, repeated, tag = "10")]
    pub(crate) groups: Vec<ReportEntry>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ReportEntry {
    #[prost(uint32, tag = "1")]
    pub(crate) id: u32,
    /// With the first mention.
    #[prost(bytes = "vec", optional, tag = "2")]
    pub(crate) name: Option<Vec<u8>>,
    /// By criticality, the most critical first.
    #[prost(uint64, repeated, tag = "3")]
    pub(crate) demand: Vec<u64>,
    #[prost(uint32, tag = "4")]
    pub(crate) cost: u32,
    #[prost(uint32, tag = "5")]
    pub(crate) lacking: u32,
    #[prost(uint64, tag = "6")]
    pub(crate) used: u64,
    #[prost(uint32, tag = "7")]
    pub(crate) unused: u32,
}

/// A message of the owner.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ToTask {
    #[prost(oneof = "FromOwner", tags = "1, 2")]
    pub(crate) message: Option<FromOwner>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum FromOwner {
    #[prost(message, tag = "1")]
    Limits(Limits),
    #[prost(message, tag = "2")]
    Assignment(Assignment),
}

/// The limits of the service.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Limits {
    #[prost(fixed64, tag = "1")]
    pub(crate) epoch: u64,
    /// Tasks of the service.
    #[prost(uint32, tag = "2")]
    pub(crate) tasks: u32,
    /// Of each customer without a limit of its own, without a name; absent: no limit.
    #[prost(message, optional, tag = "3")]
    pub(crate) others: Option<Limit>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) named: Vec<Limit>,
    /// Of customers together, by the name of their group.
    #[prost(message, repeated, tag = "10")]
    pub(crate) groups: Vec<Limit>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Limit {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) name: Vec<u8>,
    /// In µCPU.
    #[prost(uint64, tag = "2")]
    pub(crate) limit: u64,
    /// Refusals are only counted.
    #[prost(bool, tag = "3")]
    pub(crate) dry_run: bool,
    /// The share while tasks have not enough CPU for all, in µCPU; absent: that of the task's settings.
    #[prost(uint64, optional, tag = "5")]
    pub(crate) soft: Option<u64>,
    /// The name of the customer's group. Absent: it is in none.
    #[prost(bytes = "vec", optional, tag = "10")]
    pub(crate) group: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Assignment {
    #[prost(fixed64, tag = "1")]
    pub(crate) epoch: u64,
    /// 1, 2, 3 ... on each stream.
    #[prost(uint32, tag = "2")]
    pub(crate) number: u32,
    /// The last report that the owner got. The lease lasts from its sending.
    #[prost(uint32, tag = "3")]
    pub(crate) answers: u32,
    #[prost(uint32, tag = "4")]
    pub(crate) lease_ms: u32,
    #[prost(uint32, tag = "5")]
    pub(crate) tasks: u32,
    #[prost(message, repeated, tag = "6")]
    pub(crate) entries: Vec<AssignmentEntry>,
    /// The rank of the most critical requests that most tasks lack CPU for. Absent: there is enough.
    #[prost(uint32, optional, tag = "8")]
    pub(crate) overloaded: Option<u32>,
    /// Another owner may have begun: the task is to look for one.
    #[prost(bool, tag = "9")]
    pub(crate) overdue: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AssignmentEntry {
    #[prost(uint32, tag = "1")]
    pub(crate) id: u32,
    #[prost(uint64, tag = "2")]
    pub(crate) limit: u64,
    #[prost(uint32, tag = "3")]
    pub(crate) rate: u32,
    #[prost(uint32, tag = "4")]
    pub(crate) credit: u32,
    /// Requests below the criticality of this rank are refused, and so is a part at it. Absent: none.
    #[prost(message, optional, tag = "5")]
    pub(crate) cut: Option<Cut>,
    /// Absent: not known.
    #[prost(message, optional, tag = "8")]
    pub(crate) fleet: Option<FleetUse>,
}

/// A customer at all tasks.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct FleetUse {
    /// By criticality, the most critical first. µCPU.
    #[prost(uint64, repeated, tag = "1")]
    pub(crate) demand: Vec<u64>,
    /// Costs of admitted requests a second, in µCPU.
    #[prost(uint64, tag = "2")]
    pub(crate) used: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Cut {
    /// 0 is the most critical.
    #[prost(uint32, tag = "1")]
    pub(crate) rank: u32,
    /// The part that is admitted, from 0 to 1.
    #[prost(float, tag = "2")]
    pub(crate) part: f32,
}
