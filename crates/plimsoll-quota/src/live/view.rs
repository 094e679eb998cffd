//! JSON of the live page: `GET /api/v1/live`.
//!
//! One answer has at most 20 KB: the lists are cut, and say by how much. Rates are in the unit of their
//! service.

use plimsoll_admin::{LiveProcess, LiveSample};
use serde::Serialize;

/// A quota server at one moment, with one of its services in detail.
#[derive(Debug, Serialize)]
pub(super) struct Live {
    /// The moment, in seconds since 1970.
    pub(super) at: f64,
    pub(super) process: LiveProcess,
    /// The services, those with a cut first, and then by name.
    pub(super) services: Vec<ServiceRow>,
    /// Services beyond the list.
    pub(super) services_left_off: usize,
    /// The service that was asked for, else the first one; `null` if there is none.
    pub(super) service: Option<ServiceDetail>,
    /// The latest changes, the newest first.
    pub(super) changes: Vec<Change>,
    /// The last second of the service, by series; `null` before the first one.
    pub(super) sample: Option<LiveSample>,
}

/// A service in the list.
#[derive(Debug, Serialize)]
pub(super) struct ServiceRow {
    pub(super) name: String,
    /// `"cpus"`, or `"requests"` a second.
    pub(super) unit: &'static str,
    /// Tasks with a lease.
    pub(super) tasks: u32,
    /// Customers and groups that are cut.
    pub(super) customers_cut: usize,
}

/// A service in detail.
#[derive(Debug, Serialize)]
pub(super) struct ServiceDetail {
    pub(super) name: String,
    pub(super) unit: &'static str,
    /// Tasks with a lease.
    pub(super) tasks: u32,
    /// Those that lack CPU.
    pub(super) tasks_overloaded: u32,
    /// Tasks may hold rates that this server does not know.
    pub(super) is_unsure: bool,
    /// Refusals are only counted, for all customers.
    pub(super) is_dry_run: bool,
    /// Customers and groups with a limit.
    pub(super) customers_limited: usize,
    /// Customers and groups that are cut.
    pub(super) customers_cut: usize,
    /// Customers and groups, the one with most demand over its limit first.
    pub(super) customers: Vec<CustomerRow>,
    /// Customers and groups beyond the list.
    pub(super) customers_left_off: usize,
}

/// A customer, or a group.
#[derive(Debug, Serialize)]
pub(super) struct CustomerRow {
    pub(super) name: String,
    /// `"customer"` or `"group"`.
    pub(super) kind: &'static str,
    /// `null`: no limit.
    pub(super) limit: Option<f64>,
    /// Its share while tasks have not enough CPU for all; `null`: that of the tasks' settings.
    pub(super) soft_limit: Option<f64>,
    /// Demand over all tasks, refused requests included.
    pub(super) demand: f64,
    /// Costs of its admitted requests.
    pub(super) used: f64,
    /// The sum of the rates that tasks may be using.
    pub(super) granted: f64,
    /// The criticality that is admitted in part; all below it are refused. `null`: no cut.
    pub(super) cut: Option<&'static str>,
    /// The part of it that is admitted; `null`: no cut.
    pub(super) cut_admitted: Option<f32>,
    /// Tasks with demand or a rate.
    pub(super) tasks: usize,
    /// Its refusals are only counted.
    pub(super) is_dry_run: bool,
}

/// A change.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Change {
    /// The moment, in seconds since 1970.
    pub(super) at: f64,
    /// `"cut"`, `"override"`, `"reload"`, `"tasks"` or `"process"`.
    pub(super) kind: &'static str,
    pub(super) service: String,
    /// The subject: the name of a customer or a group, or a number of them.
    pub(super) subject: String,
    /// The change in a few words.
    pub(super) text: String,
}
