//! The settings of a quota experiment in a scenario file.
//!
//! The meaning and the default of each setting stand beside the code
//! ([`experiment::quota::plan`](crate::experiment::quota::plan)). Rules over several settings are in
//! [`quota_check`](super::quota_check).

use std::time::Duration;

use plimsoll_config::{Flaw, SpanOrOff, Table, Variants, Visitor};

use super::Experiment;
use super::budget::MOST_PARTIES;
use super::fleet::within_reason;
use super::shedding::CRITICALITY;
use crate::experiment::quota::plan::{Accidents, Arm, Change, Customer, Group, Outage, Plan, Rule, Source, Spread};

/// Servers of the last level of a tree.
const MOST_SERVERS: f64 = 1e4;
/// Levels of servers: the refresh halves at each.
const MOST_LEVELS: u32 = 6;
/// The settings of a plan, at the root of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct QuotaFile(pub(super) Plan);

impl Table for QuotaFile {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        let plan = &mut self.0;
        visitor.value("duration", &mut plan.duration);
        visitor.value_as("warmup", &mut plan.warmup, SpanOrOff);
        visitor.value("sample_every", &mut plan.sample_every);
        visitor.value("span", &mut plan.span);
        visitor.value("tasks", &mut plan.tasks);
        visitor.optional("cpus", &mut plan.cpus);
        visitor.value_as("delay", &mut plan.delay, SpanOrOff);
        visitor.value_as("reconnect", &mut plan.reconnect, SpanOrOff);
        visitor.value_as("restart", &mut plan.restart, SpanOrOff);
        visitor.tables("customers", &mut plan.customers);
        visitor.tables("groups", &mut plan.groups);
        visitor.tables("sources", &mut plan.sources);
        visitor.tables("phases", &mut plan.phases);
        visitor.tables("outages", &mut plan.outages);
        visitor.tables("changes", &mut plan.changes);
        visitor.table("accidents", &mut plan.accidents);
        visitor.tables("arms", &mut plan.arms);
    }
}

impl Table for Customer {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required("name", &mut self.name);
        visitor.required("limit", &mut self.limit);
        visitor.optional("soft_limit", &mut self.soft_limit);
        visitor.value("count", &mut self.count);
        visitor.optional("group", &mut self.group);
    }
}

impl Table for Group {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required("name", &mut self.name);
        visitor.required("limit", &mut self.limit);
    }
}

impl Table for Source {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required("name", &mut self.name);
        visitor.required("customer", &mut self.customer);
        visitor.value_as("criticality", &mut self.criticality, CRITICALITY);
        visitor.required("rate", &mut self.rate);
        visitor.value("cost", &mut self.cost);
        visitor.value("loads", &mut self.loads);
        visitor.value("spread", &mut self.spread);
        visitor.value("skew", &mut self.skew);
    }
}

impl Table for Change {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required("at", &mut self.at);
        visitor.required("customer", &mut self.customer);
        visitor.required("limit", &mut self.limit);
        visitor.value("breaks", &mut self.breaks);
    }
}

impl Table for Outage {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required("at", &mut self.at);
        visitor.required("lasts", &mut self.lasts);
    }
}

impl Table for Accidents {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.optional("every", &mut self.every);
        visitor.value("spikes", &mut self.spikes);
        visitor.value("spike", &mut self.spike);
        visitor.value("losses", &mut self.losses);
        visitor.value("longest", &mut self.longest);
        visitor.value("elections", &mut self.elections);
    }
}

impl Table for Arm {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required("name", &mut self.name);
        visitor.value("rule", &mut self.rule);
    }
}

impl Variants for Spread {
    const NOUN: &'static str = "a choice of tasks";

    fn all() -> Vec<(&'static str, Self)> {
        [Self::Even, Self::BURSTS, Self::MOVING, Self::Uneven, Self::DRIFTING]
            .map(|spread| (spread.name(), spread))
            .into()
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Even => "even",
            Self::Bursts { .. } => "bursts",
            Self::Moving { .. } => "moving",
            Self::Uneven => "uneven",
            Self::Drifting { .. } => "drifting",
        }
    }

    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        match self {
            Self::Even | Self::Uneven => {}
            Self::Bursts { requests, over } => {
                visitor.value("requests", requests);
                visitor.value("over", over);
            }
            Self::Moving { tasks, every } => {
                visitor.value("tasks", tasks);
                visitor.value("every", every);
            }
            Self::Drifting { every, by } => {
                visitor.value("every", every);
                visitor.value("by", by);
            }
        }
    }

    fn check(&self) -> Result<(), Flaw> {
        match self {
            Self::Even | Self::Uneven => Ok(()),
            Self::Bursts { requests, over } => {
                within_reason("over", *over)?;
                if f64::from(requests.get()) > MOST_PARTIES {
                    return Err(Flaw::new("requests is too large", "write at most 10000 requests for each burst"));
                }
                Ok(())
            }
            Self::Moving { every, .. } | Self::Drifting { every, .. } => within_reason("every", *every),
        }
    }
}

impl Variants for Rule {
    const NOUN: &'static str = "a rule for limits";

    fn all() -> Vec<(&'static str, Self)> {
        [Self::LEASES, Self::Even, Self::WEIGHTS, Self::DOORMAN].map(|rule| (rule.name(), rule)).into()
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Leases { .. } => "leases",
            Self::Even => "even",
            Self::Weights { .. } => "weights",
            Self::Doorman { .. } => "doorman",
        }
    }

    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        match self {
            Self::Leases { outlook, lease, trial, groups } => {
                visitor.value("outlook", outlook);
                visitor.value("lease", lease);
                visitor.value("trial", trial);
                visitor.value("groups", groups);
            }
            Self::Even => {}
            Self::Weights { every } => visitor.value("every", every),
            Self::Doorman { levels, branches, refresh, lease } => {
                visitor.value("levels", levels);
                visitor.value("branches", branches);
                visitor.value("refresh", refresh);
                visitor.value("lease", lease);
            }
        }
    }

    fn check(&self) -> Result<(), Flaw> {
        match self {
            Self::Leases { lease, .. } => longer_than_a_message("lease", *lease),
            Self::Weights { every } => longer_than_a_message("every", *every),
            Self::Even => Ok(()),
            Self::Doorman { levels, branches, refresh, lease } => {
                longer_than_a_message("refresh", *refresh)?;
                longer_than_a_message("lease", *lease)?;
                if lease <= refresh {
                    let reason = "lease is over before it is refreshed";
                    return Err(Flaw::new(reason, "make lease longer than refresh"));
                }
                let last = f64::from(branches.get()).powf(f64::from(levels.get()) - 1.0);
                if last > MOST_SERVERS || levels.get() > MOST_LEVELS {
                    let help = format!("lower branches, or levels to at most {MOST_LEVELS}");
                    return Err(Flaw::new("the tree has too many servers", help));
                }
                Ok(())
            }
        }
    }
}

fn longer_than_a_message(key: &str, span: Duration) -> Result<(), Flaw> {
    if span < Duration::from_millis(100) {
        let reason = format!("{key} is shorter than a message takes");
        return Err(Flaw::new(reason, "write at least \"100ms\""));
    }
    within_reason(key, span)
}

impl From<QuotaFile> for Experiment {
    fn from(file: QuotaFile) -> Self {
        Self::Quota(Box::new(file.0))
    }
}
