//! The process behind the API: its status, and the commands that it takes.
//!
//! A command is answered with its outcome. A script that reloads has to know whether the new file is in force, and
//! "the signal was sent" does not say so.
//!
//! The three commands are taken from those who could also send a signal: the user of the process and root, on this
//! machine. The port is often open to a network, for metrics and probes, and a reader must not end the process.

use std::future::Future;
use std::pin::Pin;

use serde::Serialize;

/// The outcome of a command, once it is known.
pub type Pending<T> = Pin<Box<dyn Future<Output = Result<T, Declined>> + Send>>;

/// A process that can be asked for its status, and told to reload, to upgrade and to drain.
pub trait Control: Send + Sync {
    /// The process as it is now.
    fn status(&self) -> ProcessView;

    /// Reads the config again and puts it into force.
    fn reload(&self) -> Pending<ReloadView>;

    /// Starts a successor and hands over to it.
    fn upgrade(&self) -> Pending<UpgradeView>;

    /// Begins to drain; without effect on a process that drains already.
    fn drain(&self);
}

/// A command that was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declined {
    /// The reason.
    pub error: String,
    /// What to do about it.
    pub help: String,
}

/// A process.
#[derive(Clone, Debug, Serialize)]
pub struct ProcessView {
    /// Version of the program.
    pub version: &'static str,
    /// Process id.
    pub pid: u32,
    /// Start of the process, in seconds since 1970.
    pub started_at: f64,
    /// Time since the start, in seconds.
    pub uptime_s: f64,
    /// Its config file; `null` when it was started without one.
    pub config_file: Option<String>,
    /// `"starting"`, `"ready"` or `"draining"`.
    pub state: &'static str,
    /// Time since the drain began, in seconds; `null` when it does not drain.
    pub draining_for_s: Option<f64>,
    /// The end of a drain at the latest, in seconds from its begin.
    pub drain_timeout_s: f64,
    /// Requests in flight, requests that wait included.
    pub requests_in_flight: u64,
    /// Open connections of clients.
    pub connections: usize,
    /// Its listeners, by name.
    pub listeners: Vec<ListenerStatus>,
    /// Its clusters, by name.
    pub clusters: Vec<ClusterStatus>,
    /// The latest reload; `null` when there was none.
    pub last_reload: Option<LastReload>,
    /// The latest upgrade that was given up; `null` when there was none.
    pub last_failed_upgrade: Option<LastFailedUpgrade>,
}

/// A listener.
#[derive(Clone, Debug, Serialize)]
pub struct ListenerStatus {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: String,
    /// Open connections.
    pub connections: usize,
}

/// A cluster.
#[derive(Clone, Debug, Serialize)]
pub struct ClusterStatus {
    /// Its name.
    pub name: String,
    /// Its backends.
    pub backends: usize,
    /// The healthy ones.
    pub healthy: usize,
}

/// The outcome of a reload.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ReloadView {
    /// `"taken"` or `"refused"`.
    pub result: &'static str,
    /// The config file.
    pub file: String,
    /// What the new file changed, a line each; empty when it was refused.
    pub changes: Vec<String>,
    /// Why it was refused, all problems as `plimsoll check` prints them; `null` when it was taken.
    pub error: Option<String>,
    /// The problems of the file, one by one.
    pub problems: Vec<ProblemView>,
}

/// A problem of a config file.
#[derive(Clone, Debug, Serialize)]
pub struct ProblemView {
    /// The setting and its position in the file, as far as they are known.
    pub place: String,
    /// What is wrong.
    pub reason: String,
    /// What to do about it.
    pub help: String,
}

/// The outcome of an upgrade.
#[derive(Clone, Debug, Serialize)]
pub struct UpgradeView {
    /// `"serving"` or `"given-up"`.
    pub result: &'static str,
    /// Process id of the successor; `null` when the upgrade was given up.
    pub pid: Option<u32>,
    /// Why it was given up; `null` when the successor serves.
    pub error: Option<String>,
}

/// The latest reload.
#[derive(Clone, Debug, Serialize)]
pub struct LastReload {
    /// Time since then, in seconds.
    pub ago_s: f64,
    /// `"taken"` or `"refused"`.
    pub result: &'static str,
    /// Number of changes.
    pub changes: usize,
    /// Why it was refused; `null` when it was taken.
    pub error: Option<String>,
}

/// The latest upgrade that was given up.
#[derive(Clone, Debug, Serialize)]
pub struct LastFailedUpgrade {
    /// Time since then, in seconds.
    pub ago_s: f64,
    /// Why.
    pub error: String,
}
