//! JSON of the shedding report: `GET /api/v1/throttling`.
//!
//! It is the state machine's account ([`Summary`]) in the words of the API. All rates are per
//! second over their window.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::quota::{Cut, FleetStanding, UNLIMITED};
use plimsoll_core::shedding::{Class, Share, Summary, Tally, Verdict, Window};
use plimsoll_core::signal::Signal;
use plimsoll_core::{Criticality, Rejection, Speed};
use serde::{Deserialize, Serialize};

use crate::round::significant;
use crate::snapshot::{ClusterSnapshot, InboundSnapshot};

/// µCPU of a CPU.
const MICRO: f64 = 1e6;

/// The windows of a shedding report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) enum Windows {
    /// The last minute, which decides the verdict.
    #[default]
    #[serde(rename = "1m")]
    Minute,
    #[serde(rename = "10m")]
    TenMinutes,
    #[serde(rename = "1h")]
    Hour,
    #[serde(rename = "all")]
    All,
}

impl Windows {
    fn include(self, window: Duration) -> bool {
        let [minute, ten_minutes, hour] = Summary::WINDOWS;
        match self {
            Self::Minute => window == minute,
            Self::TenMinutes => window == ten_minutes,
            Self::Hour => window == hour,
            Self::All => true,
        }
    }
}

/// Shedding report of a cluster's gate.
#[derive(Clone, Debug, Serialize)]
pub struct SheddingView {
    /// The cluster.
    pub cluster: String,
    /// `fine`, `as-intended`, `capacity-short`, `users-affected`.
    pub verdict: &'static str,
    /// The verdict in a sentence.
    pub meaning: String,
    /// Time since the verdict began, in seconds.
    pub verdict_for_s: f64,
    /// Time of shedding without a pause of five minutes; `null` while nothing is shed.
    pub throttled_for_s: Option<f64>,
    /// Whether requests are only counted as shed, and none is shed.
    pub dry_run: bool,
    /// Reference CPUs that the process can use. All CPUs of the report are reference CPUs.
    pub capacity_cpus: f64,
    /// Reference CPUs that the process uses; `null` while it cannot be seen.
    pub used_cpus: Option<f64>,
    /// The speed of the machine, relative to the reference core.
    pub speed: f64,
    /// The origin of the speed: `configured`, `calibrated`, or `default`.
    pub speed_origin: &'static str,
    /// The signal that caused shedding in the last second: `cpu`, `load-average`, `memory`,
    /// `cpu-pressure`, `memory-pressure`; `null` while none did.
    pub binding_signal: Option<&'static str>,
    /// Load of the process by each signal, 1 at its limit; signals that are off or unknown are left
    /// out.
    pub signals: BTreeMap<&'static str, f64>,
    /// CPUs that would have been enough since shedding began; `null` while nothing is shed or the
    /// figure is unknown.
    pub enough_cpus: Option<f64>,
    /// The previous period of shedding.
    pub last: Option<EpisodeView>,
    /// Counts of requests over the last minute, ten minutes or hour.
    pub windows: Vec<WindowView>,
    /// The customers that ask for most CPU.
    pub customers: Vec<CustomerView>,
    /// The routes that ask for most CPU.
    pub routes: Vec<ShareView>,
}

/// A past period of shedding.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct EpisodeView {
    /// Time since the last shed request, in seconds.
    pub ended_s: f64,
    /// Length, in seconds.
    pub lasted_s: f64,
    /// CPUs that would have been enough; `null` if unknown.
    pub enough_cpus: Option<f64>,
}

/// Counts over one window.
#[derive(Clone, Debug, Serialize)]
pub struct WindowView {
    /// Nominal length, in seconds.
    pub of_s: u64,
    /// Actual length, in seconds: it begins with a bucket of the account, or with the gate.
    pub seconds: f64,
    /// Share of shed requests that users waited for; `null` if nothing was shed.
    pub user_visible_share: Option<f64>,
    /// Counts by criticality.
    pub by_criticality: BTreeMap<&'static str, ClassView>,
}

/// Counts of the requests of one criticality.
#[derive(Clone, Debug, Serialize)]
pub struct ClassView {
    /// All requests that arrived.
    pub offered: RateView,
    /// Admitted requests.
    pub admitted: RateView,
    /// Requests that were retries.
    pub retried: RateView,
    /// Shed requests by reason; reasons without any are left out.
    pub shed: BTreeMap<&'static str, RateView>,
}

/// A count and its rates.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct RateView {
    /// Requests over the whole window.
    pub requests: u64,
    /// Requests a second.
    pub qps: f64,
    /// CPUs that they were expected to keep busy.
    pub cpus: f64,
}

/// Demand of a customer or a route.
#[derive(Clone, Debug, Serialize)]
pub struct ShareView {
    /// The customer or route.
    pub name: String,
    /// Requests a second.
    pub qps: f64,
    /// CPUs that they were expected to keep busy.
    pub cpus: f64,
    /// CPUs that the admitted ones were expected to keep busy.
    pub used_cpus: f64,
    /// Shed requests a second.
    pub shed_qps: f64,
    /// CPUs that the shed ones were expected to keep busy.
    pub shed_cpus: f64,
    /// Shed requests a second by reason; reasons without any are left out.
    pub shed: BTreeMap<&'static str, f64>,
}

/// A customer, with its limits.
#[derive(Clone, Debug, Serialize)]
pub struct CustomerView {
    /// Its demand and its use.
    #[serde(flatten)]
    pub share: ShareView,
    /// The customer's share of CPUs when there is not enough for all.
    pub soft_limit_cpus: f64,
    /// Largest number of CPUs that it may use; `null` without a limit.
    pub hard_limit_cpus: Option<f64>,
    /// Its limit over a fleet.
    #[serde(flatten)]
    pub fleet: Option<FleetView>,
    /// The same of its group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet_group: Option<FleetGroupView>,
}

/// A customer's limit over a fleet, and the part of it at this task.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct FleetView {
    /// The hard limit over all tasks, in CPUs. `null`: none.
    pub fleet_limit_cpus: Option<f64>,
    /// The soft limit over all tasks. `null`: that of this task's settings.
    pub fleet_soft_limit_cpus: Option<f64>,
    /// The part of the hard limit that this task may use.
    pub fleet_rate_cpus: Option<f64>,
    /// CPUs that the customer uses at all tasks. `null`: not known.
    pub fleet_used_cpus: Option<f64>,
    /// CPUs that it asks for at all tasks, refused requests included.
    pub fleet_demand_cpus: Option<f64>,
    /// The criticality that is admitted in part at all tasks; all below it are refused. `null`: none is.
    pub fleet_cut: Option<&'static str>,
    /// The admitted part of that criticality.
    pub fleet_cut_admitted: Option<f32>,
}

/// The limit over a fleet of a customer's group.
#[derive(Clone, Debug, Serialize)]
pub struct FleetGroupView {
    /// The group's name; a long one is cut.
    pub name: String,
    /// The limit, and the part of it at this task.
    #[serde(flatten)]
    pub standing: FleetView,
}

impl From<FleetStanding> for FleetView {
    fn from(of: FleetStanding) -> Self {
        let cut = (of.cut != Cut::NONE).then_some(of.cut);
        let hard = (of.limit < UNLIMITED).then_some(of.limit);
        Self {
            fleet_limit_cpus: hard.map(|limit| significant(limit as f64 / MICRO)),
            fleet_soft_limit_cpus: of.soft.map(|limit| significant(limit as f64 / MICRO)),
            fleet_rate_cpus: hard.map(|_| significant(of.rate / MICRO)),
            fleet_used_cpus: of.fleet.map(|fleet| significant(fleet.used as f64 / MICRO)),
            fleet_demand_cpus: of.fleet.map(|fleet| significant(fleet.total() as f64 / MICRO)),
            fleet_cut: cut.map(|cut| Criticality::ALL[cut.rank].name()),
            fleet_cut_admitted: cut.map(|cut| cut.part),
        }
    }
}

impl SheddingView {
    /// `None` for a cluster without a gate.
    pub(crate) fn of(cluster: &ClusterSnapshot, windows: Windows) -> Option<Self> {
        let gate = cluster.inbound.as_ref()?;
        let summary = &gate.shedding;
        Some(Self {
            cluster: cluster.view.summary.name.to_string(),
            verdict: summary.verdict.name(),
            meaning: meaning(summary, gate),
            verdict_for_s: seconds(summary.verdict_for),
            throttled_for_s: summary.shedding_for.map(seconds),
            dry_run: gate.dry_run,
            capacity_cpus: significant(gate.capacity),
            used_cpus: gate.cpus.map(significant),
            speed: significant(speed(gate).as_f64()),
            speed_origin: gate.speed.map_or("default", |speed| speed.origin()),
            binding_signal: gate.loads.binding.map(Signal::name),
            signals: gate.loads.known().map(|(signal, load)| (signal.name(), significant(load))).collect(),
            enough_cpus: summary.enough.map(significant),
            last: summary.last.map(|last| EpisodeView {
                ended_s: seconds(last.ended),
                lasted_s: seconds(last.lasted),
                enough_cpus: last.enough.map(significant),
            }),
            windows: Summary::WINDOWS
                .iter()
                .zip(&summary.windows)
                .filter(|(of, _)| windows.include(**of))
                .map(|(of, window)| window_view(*of, window))
                .collect(),
            customers: summary.customers.iter().map(CustomerView::from).collect(),
            routes: summary.routes.iter().map(ShareView::from).collect(),
        })
    }
}

/// The speed of the machine of a gate.
pub(crate) fn speed(gate: &InboundSnapshot) -> Speed {
    gate.speed.map_or(Speed::REFERENCE, |machine| machine.speed())
}

/// The verdict in a sentence.
pub(crate) fn meaning(summary: &Summary, gate: &InboundSnapshot) -> String {
    let enough = || match summary.enough {
        Some(enough) => format!("; {enough:.2} CPUs would have been enough, there are {:.2}", gate.capacity),
        None => "; how many CPUs would have been enough is not known yet".to_owned(),
    };
    let hours = |time: Option<Duration>| time.unwrap_or_default().as_secs_f64() / 3_600.0;
    let text = match summary.verdict {
        Verdict::Fine => "no requests are shed".to_owned(),
        Verdict::AsIntended => {
            "working as intended: only requests that can wait are shed, or a customer is at its limit".to_owned()
        }
        Verdict::CapacityShort => {
            format!("capacity has been short for {:.1} h{}", hours(summary.shedding_for), enough())
        }
        Verdict::UsersAffected => format!("users are affected: critical requests are lost{}", enough()),
    };
    if gate.dry_run && summary.verdict != Verdict::Fine { format!("if this were no dry run: {text}") } else { text }
}

fn window_view(of: Duration, window: &Window) -> WindowView {
    WindowView {
        of_s: of.as_secs(),
        seconds: seconds(window.span),
        user_visible_share: window.user_visible_share().map(significant),
        by_criticality: Criticality::ALL
            .into_iter()
            .zip(&window.classes)
            .map(|(criticality, class)| (criticality.name(), class_view(class, window.span)))
            .collect(),
    }
}

fn class_view(class: &Class, span: Duration) -> ClassView {
    let shed = Rejection::REPORTED.iter().zip(&class.shed).filter(|(_, tally)| tally.requests > 0);
    ClassView {
        offered: rate(class.offered, span),
        admitted: rate(class.admitted, span),
        retried: rate(class.retried, span),
        shed: shed.map(|(reason, tally)| (reason.name(), rate(*tally, span))).collect(),
    }
}

fn rate(tally: Tally, span: Duration) -> RateView {
    let span = span.as_secs_f64();
    let per_second = |of: f64| if span > 0.0 { significant(of / span) } else { 0.0 };
    RateView { requests: tally.requests, qps: per_second(tally.requests as f64), cpus: per_second(tally.cost) }
}

impl From<&Share> for ShareView {
    fn from(share: &Share) -> Self {
        Self {
            name: share.name.to_string(),
            qps: significant(share.offered),
            cpus: significant(share.offered_cost),
            used_cpus: significant((share.offered_cost - share.shed_cost).max(0.0)),
            shed_qps: significant(share.shed),
            shed_cpus: significant(share.shed_cost),
            shed: Rejection::REPORTED
                .iter()
                .zip(share.shed_by)
                // After an hour of decay nothing is left of a count.
                .filter(|(_, qps)| *qps > 1e-6)
                .map(|(reason, qps)| (reason.name(), significant(qps)))
                .collect(),
        }
    }
}

impl From<&Share> for CustomerView {
    fn from(share: &Share) -> Self {
        Self {
            share: share.into(),
            soft_limit_cpus: share.quota.share.as_f64(),
            hard_limit_cpus: share.quota.most,
            fleet: share.fleet.map(FleetView::from),
            fleet_group: share
                .fleet_group
                .map(|(name, of)| FleetGroupView { name: name.as_str().to_owned(), standing: of.into() }),
        }
    }
}

fn seconds(time: Duration) -> f64 {
    significant(time.as_secs_f64())
}
