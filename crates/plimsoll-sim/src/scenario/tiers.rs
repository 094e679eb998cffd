//! How the plan of an experiment with tiers is written.
//!
//! What each setting means, and its default, stands beside the code that acts by it
//! ([`experiment::tiers::plan`](crate::experiment::tiers::plan)); rules over several settings are in [`tiers_check`](super::tiers_check).

use plimsoll_config::{Choice, Flaw, SpanOrOff, Table, Variants, Visitor};
use plimsoll_core::retry::{BudgetConfig, MaxAttempts};
use plimsoll_core::throttle::Multiple;

use super::shedding::CRITICALITY;
use crate::experiment::tiers::plan::{Arm, Holding, Plan, Retries, Server, Source, Tier};

/// The settings of a plan, at the root of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TiersFile(pub(super) Plan);

impl Table for TiersFile {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        let plan = &mut self.0;
        visitor.value("duration", &mut plan.duration);
        visitor.value_as("warmup", &mut plan.warmup, SpanOrOff);
        visitor.value("sample_every", &mut plan.sample_every);
        visitor.value("clients", &mut plan.clients);
        visitor.value("timeout", &mut plan.timeout);
        visitor.value("patience", &mut plan.patience);
        visitor.tables("sources", &mut plan.sources);
        visitor.tables("tiers", &mut plan.tiers);
        visitor.tables("phases", &mut plan.phases);
        visitor.tables("arms", &mut plan.arms);
    }
}

impl Table for Source {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required("name", &mut self.name);
        visitor.value_as("criticality", &mut self.criticality, CRITICALITY);
        visitor.required("rate", &mut self.rate);
    }
}

impl Table for Tier {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required("name", &mut self.name);
        visitor.value("tasks", &mut self.tasks);
        visitor.required("capacity", &mut self.capacity);
        visitor.value("strength", &mut self.strength);
        visitor.value_as("server", &mut self.server, SERVER);
        visitor.value("errors", &mut self.errors);
        visitor.value_as("latency", &mut self.latency, SpanOrOff);
    }
}

impl Table for Arm {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required("name", &mut self.name);
        visitor.value("throttle", &mut self.throttle);
        visitor.value("retries", &mut self.retries);
        visitor.optional("clients", &mut self.clients);
        visitor.value("load", &mut self.load);
        visitor.optional_as("server", &mut self.server, SERVER);
    }
}

impl Variants for Holding {
    const NOUN: &'static str = "a throttle";

    fn all() -> Vec<(&'static str, Self)> {
        let all = [Self::Off, Self::ADAPTIVE, Self::PACED, Self::AdmissionControl];
        all.map(|throttle| (throttle.name(), throttle)).into()
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Adaptive { .. } => "adaptive",
            Self::Paced { .. } => "paced",
            Self::AdmissionControl => "admission-control",
        }
    }

    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        match self {
            Self::Off | Self::AdmissionControl => {}
            Self::Adaptive { k, window } => {
                visitor.value("k", k);
                visitor.value("window", window);
            }
            Self::Paced { k } => visitor.value("k", k),
        }
    }

    fn check(&self) -> Result<(), Flaw> {
        match *self {
            Self::Adaptive { k, .. } | Self::Paced { k } if Multiple::new(k).is_none() => {
                let (low, high) = (Multiple::RANGE.start(), Multiple::RANGE.end());
                Err(Flaw::new(format!("k ({k}) is out of range"), format!("write a number from {low} to {high}")))
            }
            _ => Ok(()),
        }
    }
}

/// The attempts that the core's default has.
const ATTEMPTS: u32 = MaxAttempts::DEFAULT.get() as u32;

impl Variants for Retries {
    const NOUN: &'static str = "a way to retry";

    fn all() -> Vec<(&'static str, Self)> {
        let budgeted = Self::Budgeted { attempts: ATTEMPTS, share: BudgetConfig::DEFAULT_SHARE };
        [Self::None, Self::Naive { attempts: ATTEMPTS }, budgeted].map(|retries| (retries.name(), retries)).into()
    }

    fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Naive { .. } => "naive",
            Self::Budgeted { .. } => "budgeted",
        }
    }

    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        match self {
            Self::None => {}
            Self::Naive { attempts } => visitor.value("attempts", attempts),
            Self::Budgeted { attempts, share } => {
                visitor.value("attempts", attempts);
                visitor.value("share", share);
            }
        }
    }

    fn check(&self) -> Result<(), Flaw> {
        match *self {
            Self::Naive { attempts } | Self::Budgeted { attempts, .. }
                if u8::try_from(attempts).ok().and_then(MaxAttempts::new).is_none() =>
            {
                let mend = format!("write a number from 1 to {}", MaxAttempts::MAX);
                Err(Flaw::new(format!("attempts ({attempts}) is out of range"), mend))
            }
            _ => Ok(()),
        }
    }
}

const SERVER: Choice<Server> = Choice {
    noun: "a kind of server",
    names: &[("limited", Server::Limited), ("queue", Server::Queue), ("ranked", Server::Ranked)],
};
