//! How the plan of a fleet experiment is written.
//!
//! What each setting means, and its default, stands beside the code that acts by it
//! ([`experiment::fleet::plan`](crate::experiment::fleet::plan)); here is only what it is called. Choices with settings
//! of their own are in [`choices`](super::choices), rules over several settings in [`fleet_check`](super::fleet_check).

use std::num::NonZeroU32;
use std::time::Duration;

use plimsoll_config::{
    Choice, Codec, DeValue, Flaw, Own, Reading, SpanOrOff, Spanned, Table, Value, Visitor, inline, kind, number,
};
use plimsoll_core::discover::OnEmpty;
use plimsoll_core::health::CheckConfig;
use plimsoll_core::pick::PolicyKind;
use plimsoll_core::subset::{Algorithm, SubsetConfig};

use crate::experiment::fleet::plan::{
    Abandoned, Arm, BackendGroup, Clients, ColdCourse, Discovery, Failures, Happening, Network, Phase, Plan, Reports,
    Requests, SourceState, Speed, Switch,
};

/// The settings of a plan, at the root of the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FleetFile {
    pub(super) plan: Plan,
    /// The place in the file's timeline of each happening of the plan's, which lacks those that could not be read.
    pub(super) timeline_places: Vec<usize>,
    pub(super) sweep: SweepForm,
}

/// A sweep over the size of a group; none without sizes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SweepForm {
    pub(super) group: Option<String>,
    pub(super) count: Vec<NonZeroU32>,
}

impl Table for SweepForm {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.value("count", &mut self.count);
        visitor.optional("group", &mut self.group);
    }
}

impl Default for FleetFile {
    /// Backends and arms are what a scenario is about, so there are none unless the file says so.
    fn default() -> Self {
        let plan = Plan { backends: Vec::new(), arms: Vec::new(), ..Plan::default() };
        Self { plan, timeline_places: Vec::new(), sweep: SweepForm::default() }
    }
}

impl Table for FleetFile {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        let plan = &mut self.plan;
        visitor.value("duration", &mut plan.duration);
        visitor.value_as("warmup", &mut plan.warmup, SpanOrOff);
        visitor.value("sample_every", &mut plan.sample_every);
        visitor.value("arrivals", &mut plan.arrivals);
        visitor.value("cost", &mut plan.cost);
        visitor.value_as("overhead", &mut plan.overhead, SpanOrOff);
        let mut timeline: Vec<Slot> = plan.timeline.drain(..).map(|happening| Slot(Some(happening))).collect();
        visitor.value("timeline", &mut timeline);
        let read = timeline.into_iter().enumerate().filter_map(|(i, slot)| slot.0.map(|happening| (i, happening)));
        (self.timeline_places, plan.timeline) = read.unzip();
        visitor.table("clients", &mut plan.clients);
        visitor.table("requests", &mut plan.requests);
        visitor.table("network", &mut plan.network);
        visitor.tables("backends", &mut plan.backends);
        visitor.tables("phases", &mut plan.phases);
        visitor.tables("arms", &mut plan.arms);
        visitor.table("sweep", &mut self.sweep);
    }
}

/// A place in the timeline; empty when what stands there could not be read.
struct Slot(Option<Happening>);

impl Value for Slot {
    fn read(value: &Spanned<DeValue<'_>>, reading: &mut Reading<'_>) -> Option<Self> {
        Some(Self(Happening::read(value, reading)))
    }

    fn print(&self) -> String {
        self.0.as_ref().map(Value::print).unwrap_or_default()
    }
}

impl Table for Clients {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.value("count", &mut self.count);
        visitor.value("rates", &mut self.rates);
        visitor.value("costs", &mut self.costs);
    }
}

impl Table for Requests {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.value("timeout", &mut self.timeout);
        visitor.value("max_pending", &mut self.max_pending);
        visitor.value("queue_timeout", &mut self.queue_timeout);
        visitor.value_as("abandoned", &mut self.abandoned, ABANDONED);
        visitor.value("probe_timeout", &mut self.probe_timeout);
        visitor.optional("keys", &mut self.keys);
        visitor.value("popularity", &mut self.popularity);
    }
}

impl Table for Network {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.value_as("delay", &mut self.delay, SpanOrOff);
        visitor.value_as("jitter", &mut self.jitter, SpanOrOff);
        visitor.value("loss", &mut self.loss);
    }
}

impl Table for BackendGroup {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.value("name", &mut self.name);
        visitor.value("count", &mut self.count);
        visitor.value("cores", &mut self.cores);
        visitor.value("speed", &mut self.speed);
        visitor.value("weight", &mut self.weight);
        visitor.value("domains", &mut self.domains);
        visitor.value("zones", &mut self.zones);
        visitor.value("antagonist", &mut self.antagonist);
        visitor.optional("concurrency", &mut self.concurrency);
        let mut queue = (self.queue < u32::MAX).then_some(self.queue);
        visitor.optional("queue", &mut queue);
        self.queue = queue.unwrap_or(u32::MAX);
        visitor.value("conduct", &mut self.conduct);
        visitor.value_as("reports", &mut self.reports, REPORTS);
    }
}

impl Table for Phase {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required("name", &mut self.name);
        visitor.required_as("at", &mut self.at, At);
        visitor.value_as("settle", &mut self.settle, SpanOrOff);
        visitor.value("load", &mut self.load);
    }
}

impl Table for Arm {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required("name", &mut self.name);
        let mut subset = self.subset.map(SubsetForm);
        visitor.optional("subset", &mut subset);
        self.subset = subset.map(|form| form.0);
        let mut discovery = self.discovery.map(DiscoveryForm);
        visitor.optional("discovery", &mut discovery);
        self.discovery = discovery.map(|form| form.0);
        visitor.value_as("failures", &mut self.failures, FAILURES);
        visitor.value("retries", &mut self.retries);
        visitor.value("probe_loss", &mut self.probe_loss);
        self.balancer.settings(visitor);
        visitor.table("checks", &mut Checks(&mut self.balancer.checks));
        let mut switches: Vec<SwitchForm> = self.switches.drain(..).map(SwitchForm).collect();
        visitor.tables("switches", &mut switches);
        self.switches.extend(switches.into_iter().map(|form| form.0));
        // A switch is to another policy; whatever else the arm has set holds on.
        for switch in &mut self.switches {
            let policy = switch.balancer.policy;
            switch.balancer = self.balancer;
            switch.balancer.policy = policy;
        }
    }
}

/// When an arm changes its policy, and to which.
struct SwitchForm(Switch);

impl Default for SwitchForm {
    /// A place to read into; both settings are required in the file.
    fn default() -> Self {
        Self(Switch { at: Duration::ZERO, balancer: plimsoll_core::BalancerConfig::default() })
    }
}

impl Table for SwitchForm {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required_as("at", &mut self.0.at, At);
        visitor.required::<PolicyKind>("policy", &mut self.0.balancer.policy);
    }
}

/// The health checks of an arm, which may be off: then only what requests meet with counts.
struct Checks<'a>(&'a mut CheckConfig);

impl Table for Checks<'_> {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        let mut interval = self.0.active.then_some(self.0.interval);
        visitor.switch("interval", &mut interval);
        self.0.active = interval.is_some();
        self.0.interval = interval.unwrap_or(self.0.interval);
        visitor.value("failures_to_refuse", &mut self.0.failures_to_refuse);
        visitor.value("passes_to_heal", &mut self.0.passes_to_heal);
    }
}

/// A subset: `{ algorithm = "rocksteadier", size = 20 }`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SubsetForm(pub(super) SubsetConfig);

impl Table for SubsetForm {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required("algorithm", &mut self.0.algorithm);
        visitor.value("size", &mut self.0.size);
        visitor.value("seed", &mut self.0.seed);
    }
}

impl SubsetForm {
    /// A place to read into; the algorithm is required in the file.
    pub(super) const EMPTY: Self =
        Self(SubsetConfig { algorithm: Algorithm::Rocksteadier, size: SubsetConfig::DEFAULT_SIZE, seed: 0 });
}

impl Value for SubsetForm {
    fn read(value: &Spanned<DeValue<'_>>, reading: &mut Reading<'_>) -> Option<Self> {
        let DeValue::Table(table) = value.get_ref() else {
            let mend = "write { algorithm = \"rocksteadier\", size = 20 }";
            reading.problem(format!("expected a subset, found {}", kind(value.get_ref())), mend);
            return None;
        };
        let mut form = Self::EMPTY;
        reading.fill(table, &mut form);
        Some(form)
    }

    fn print(&self) -> String {
        format!("{{ {} }}", inline(&mut { *self }))
    }
}

/// Discovery of backends: `{ every = "5s", hold = "30s" }`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct DiscoveryForm(Discovery);

impl Table for DiscoveryForm {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.value("every", &mut self.0.every);
        visitor.value_as("hold", &mut self.0.merge.hold, SpanOrOff);
        visitor.value_as("on_empty", &mut self.0.merge.on_empty, ON_EMPTY);
        visitor.value("confirmations", &mut self.0.merge.confirmations);
    }
}

impl Value for DiscoveryForm {
    fn read(value: &Spanned<DeValue<'_>>, reading: &mut Reading<'_>) -> Option<Self> {
        let DeValue::Table(table) = value.get_ref() else {
            let help = "write { every = \"5s\", hold = \"30s\" }";
            reading.problem(format!("expected discovery, found {}", kind(value.get_ref())), help);
            return None;
        };
        let mut form = Self(Discovery::default());
        reading.fill(table, &mut form);
        Some(form)
    }

    fn print(&self) -> String {
        format!("{{ {} }}", inline(&mut { *self }))
    }
}

/// A time from the start of the run, which may be zero: `"0s"`.
pub(super) struct At;

impl Codec<Duration> for At {
    fn read(&self, value: &Spanned<DeValue<'_>>, reading: &mut Reading<'_>) -> Option<Duration> {
        let is_zero = value.get_ref().as_str().is_some_and(|text| {
            let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
            digits != text && digits.parse() == Ok(0_u64)
        });
        if is_zero {
            return Some(Duration::ZERO);
        }
        let at = Duration::read(value, reading)?;
        reading.take(within_reason("the time", at)).map(|()| at)
    }

    fn print(&self, at: &Duration) -> Option<String> {
        Own.print(at)
    }
}

/// The longest that anything in a run may take: beyond it a mistyped unit is likelier than a plan.
pub(super) const LONGEST: Duration = Duration::from_secs(365 * 24 * 3_600);

/// Whether `span` is a time that a run can have.
pub(super) fn within_reason(what: &str, span: Duration) -> Result<(), Flaw> {
    if span <= LONGEST {
        return Ok(());
    }
    Err(Flaw::new(format!("{what} is longer than a year"), "write at most \"365d\""))
}

/// A number where all machines are alike, `{ low = 0.6, high = 1.4 }` where they differ.
impl Value for Speed {
    fn read(value: &Spanned<DeValue<'_>>, reading: &mut Reading<'_>) -> Option<Self> {
        match value.get_ref() {
            DeValue::Table(table) => {
                let mut range = SpeedRange { low: 1.0, high: 1.0 };
                reading.fill(table, &mut range);
                Some(Self::Uniform { low: range.low, high: range.high })
            }
            other if number(other).is_some() => f64::read(value, reading).map(Self::Fixed),
            other => {
                let mend = "write a number, 1 for an ordinary machine, or { low = 0.6, high = 1.4 }";
                reading.problem(format!("expected a speed, found {}", kind(other)), mend);
                None
            }
        }
    }

    fn print(&self) -> String {
        match *self {
            Self::Fixed(speed) => speed.print(),
            Self::Uniform { low, high } => format!("{{ {} }}", inline(&mut SpeedRange { low, high })),
        }
    }
}

struct SpeedRange {
    low: f64,
    high: f64,
}

impl Table for SpeedRange {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required("low", &mut self.low);
        visitor.required("high", &mut self.high);
    }
}

pub(super) const ABANDONED: Choice<Abandoned> = Choice {
    noun: "a way to treat abandoned work",
    names: &[("finished", Abandoned::Finished), ("dropped", Abandoned::Dropped)],
};
const ON_EMPTY: Choice<OnEmpty> =
    Choice { noun: "a meaning of an empty list", names: &[("keep", OnEmpty::Keep), ("obey", OnEmpty::Obey)] };
pub(super) const ANSWERS: Choice<SourceState> = Choice {
    noun: "a state of the source",
    names: &[
        ("complete", SourceState::Complete),
        ("third", SourceState::Third),
        ("empty", SourceState::Empty),
        ("error", SourceState::Error),
    ],
};
const REPORTS: Choice<Reports> = Choice {
    noun: "a kind of reports",
    names: &[
        ("none", Reports::None),
        ("honest", Reports::Honest),
        ("machine", Reports::Machine),
        ("hides-failures", Reports::HidesFailures),
        ("without-rates", Reports::WithoutRates),
        ("slots", Reports::Slots),
    ],
};
pub(super) const FAILURES: Choice<Failures> =
    Choice { noun: "a way to see failures", names: &[("counted", Failures::Counted), ("unseen", Failures::Unseen)] };
pub(super) const COURSE: Choice<ColdCourse> =
    Choice { noun: "a course", names: &[("fixed", ColdCourse::Fixed), ("rising", ColdCourse::Rising)] };
