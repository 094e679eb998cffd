//! How the choices of a fleet's plan are written that have settings of their own, such as
//! `{ kind = "bounded-pareto", mean = "10ms", ratio = 1000 }`.

use std::num::NonZeroU32;
use std::time::Duration;

use plimsoll_config::{Flaw, SpanOrOff, Table, Variants, Visitor};
use plimsoll_core::Ratio;

use super::fleet::{ANSWERS, At, COURSE, within_reason};
use crate::experiment::fleet::plan::{
    Antagonist, Arrivals, BackendGroup, Change, Conduct, Cost, Happening, Interference, Rate, Restart, Selection, Skew,
    SourceState, Usage,
};

/// Where a setting is required, what its place holds before it is read.
const NO_TIME: Duration = Duration::ZERO;
const NO_NUMBER: f64 = 0.0;

fn above(what: &str, number: f64, least: f64) -> Result<(), Flaw> {
    if number > least {
        return Ok(());
    }
    Err(Flaw::new(format!("{what} is {}, not above {least}", shown(number)), format!("write a number above {least}")))
}

/// Standard deviations of a logarithm, at most. Half of what is drawn is then less than one part in 268,000 of the mean, so
/// that the mean is owed to draws that no run makes; beyond it what is drawn becomes zero.
const MOST_SIGMA: f64 = 5.0;
/// The exponent of a power law, at most: beyond it nothing is left but the first.
const MOST_EXPONENT: f64 = 10.0;
/// The dearest over the cheapest, at most: a nanosecond to a quarter of an hour.
const MOST_RATIO: f64 = 1e12;
/// Of power laws, at least: below it the tail is as even as a logarithmic scale.
const LEAST_SHAPE: f64 = 0.01;

fn at_most(what: &str, number: f64, most: f64) -> Result<(), Flaw> {
    if number <= most {
        return Ok(());
    }
    Err(Flaw::new(format!("{what} is {}, more than {most}", shown(number)), format!("write at most {most}")))
}

/// With digits as long as these can be counted.
fn shown(number: f64) -> String {
    if number == 0.0 || (1e-6..1e12).contains(&number.abs()) { format!("{number}") } else { format!("{number:?}") }
}

fn within(what: &str, number: f64, above_this: f64, most: f64) -> Result<(), Flaw> {
    above(what, number, above_this).and_then(|()| at_most(what, number, most))
}

fn ordered(low: f64, high: f64) -> Result<(), Flaw> {
    if low <= high {
        return Ok(());
    }
    Err(Flaw::new(format!("low ({low}) is above high ({high})"), "swap the two"))
}

impl Variants for Arrivals {
    const NOUN: &'static str = "a kind of arrivals";

    fn all() -> Vec<(&'static str, Self)> {
        vec![
            ("load", Self::Open { rate: Rate::OfCapacity(NO_NUMBER) }),
            ("rate", Self::Open { rate: Rate::PerSecond(NO_NUMBER) }),
            ("users", Self::Closed { users: NonZeroU32::MIN, think: NO_TIME }),
        ]
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Open { rate: Rate::OfCapacity(_) } => "load",
            Self::Open { rate: Rate::PerSecond(_) } => "rate",
            Self::Closed { .. } => "users",
        }
    }

    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        match self {
            Self::Open { rate: Rate::OfCapacity(share) } => visitor.required("of_capacity", share),
            Self::Open { rate: Rate::PerSecond(rate) } => visitor.required("per_second", rate),
            Self::Closed { users, think } => {
                visitor.required("count", users);
                visitor.value_as("think", think, SpanOrOff);
            }
        }
    }

    fn check(&self) -> Result<(), Flaw> {
        match *self {
            Self::Open { rate: Rate::OfCapacity(share) } => above("of_capacity", share, 0.0),
            Self::Open { rate: Rate::PerSecond(rate) } => above("per_second", rate, 0.0),
            Self::Closed { .. } => Ok(()),
        }
    }
}

impl Variants for Cost {
    const NOUN: &'static str = "a distribution of costs";

    fn all() -> Vec<(&'static str, Self)> {
        let pareto = Self::BoundedPareto { mean: NO_TIME, ratio: NO_NUMBER, shape: Self::DEFAULT_SHAPE };
        let costs = [
            Self::Fixed { mean: NO_TIME },
            Self::Exponential { mean: NO_TIME },
            Self::LogNormal { mean: NO_TIME, sigma: NO_NUMBER },
            pareto,
            Self::CutNormal { mu: NO_TIME, sigma: NO_TIME },
        ];
        costs.map(|cost| (cost.name(), cost)).into()
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Fixed { .. } => "fixed",
            Self::Exponential { .. } => "exponential",
            Self::LogNormal { .. } => "lognormal",
            Self::BoundedPareto { .. } => "bounded-pareto",
            Self::CutNormal { .. } => "cut-normal",
        }
    }

    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        match self {
            Self::Fixed { mean } | Self::Exponential { mean } => visitor.required("mean", mean),
            Self::LogNormal { mean, sigma } => {
                visitor.required("mean", mean);
                visitor.required("sigma", sigma);
            }
            Self::BoundedPareto { mean, ratio, shape } => {
                visitor.required("mean", mean);
                visitor.required("ratio", ratio);
                visitor.value("shape", shape);
            }
            Self::CutNormal { mu, sigma } => {
                visitor.required("mu", mu);
                visitor.required("sigma", sigma);
            }
        }
    }

    fn check(&self) -> Result<(), Flaw> {
        match *self {
            Self::LogNormal { sigma, .. } => within("sigma", sigma, 0.0, MOST_SIGMA),
            Self::BoundedPareto { ratio, shape, .. } => {
                within("ratio", ratio, 1.0, MOST_RATIO).and(within("shape", shape, LEAST_SHAPE, MOST_EXPONENT))
            }
            Self::CutNormal { mu, sigma } if sigma > mu * 10 => {
                Err(Flaw::new("sigma is more than ten times mu", "lower sigma, or choose a distribution with a tail"))
            }
            Self::Fixed { .. } | Self::Exponential { .. } | Self::CutNormal { .. } => Ok(()),
        }
    }
}

impl Variants for Skew {
    const NOUN: &'static str = "a skew";

    fn all() -> Vec<(&'static str, Self)> {
        let skews = [Self::Even, Self::Zipf { exponent: 1.0 }, Self::LogNormal { sigma: NO_NUMBER }];
        skews.map(|skew| (skew.name(), skew)).into()
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Even => "even",
            Self::Zipf { .. } => "zipf",
            Self::LogNormal { .. } => "lognormal",
        }
    }

    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        match self {
            Self::Even => {}
            Self::Zipf { exponent } => visitor.value("exponent", exponent),
            Self::LogNormal { sigma } => visitor.required("sigma", sigma),
        }
    }

    fn check(&self) -> Result<(), Flaw> {
        match *self {
            Self::Even => Ok(()),
            Self::Zipf { exponent } => within("exponent", exponent, 0.0, MOST_EXPONENT),
            Self::LogNormal { sigma } => within("sigma", sigma, 0.0, MOST_SIGMA),
        }
    }
}

impl Variants for Antagonist {
    const NOUN: &'static str = "a kind of antagonist";

    fn all() -> Vec<(&'static str, Self)> {
        // Constant, unless the file says that it varies.
        let usage = Usage { low: Ratio::ZERO, high: Ratio::ZERO, jitter: Ratio::ZERO, holds: Duration::from_secs(1) };
        let some = |interference| Self::Some { usage, interference };
        let kinds = [
            Self::None,
            some(Interference::Cores),
            some(Interference::Speed),
            some(Interference::Allocation { machine: NO_NUMBER, slowdown: Ratio::ZERO }),
        ];
        kinds.map(|antagonist| (antagonist.name(), antagonist)).into()
    }

    fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Some { interference: Interference::Cores, .. } => "cores",
            Self::Some { interference: Interference::Speed, .. } => "speed",
            Self::Some { interference: Interference::Allocation { .. }, .. } => "allocation",
        }
    }

    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        let Self::Some { usage, interference } = self else { return };
        visitor.required("low", &mut usage.low);
        visitor.required("high", &mut usage.high);
        visitor.value("jitter", &mut usage.jitter);
        visitor.value("holds", &mut usage.holds);
        if let Interference::Allocation { machine, slowdown } = interference {
            visitor.required("machine", machine);
            visitor.value("slowdown", slowdown);
        }
    }

    fn check(&self) -> Result<(), Flaw> {
        match self {
            Self::None => Ok(()),
            Self::Some { usage, .. } => ordered(usage.low.as_f64(), usage.high.as_f64()),
        }
    }
}

impl Variants for Conduct {
    const NOUN: &'static str = "a conduct";

    fn all() -> Vec<(&'static str, Self)> {
        let conducts = [
            Self::Serve,
            Self::Err(Ratio::ZERO),
            Self::FailFast,
            Self::Overloaded,
            Self::Hang,
            Self::LameDuck,
            Self::Down,
        ];
        conducts.map(|conduct| (conduct.name(), conduct)).into()
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Serve => "serve",
            Self::Err(_) => "err",
            Self::FailFast => "fail-fast",
            Self::Overloaded => "overloaded",
            Self::Hang => "hang",
            Self::LameDuck => "lame-duck",
            Self::Down => "down",
        }
    }

    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        if let Self::Err(share) = self {
            visitor.required("share", share);
        }
    }
}

/// Which backends, beside what happens to them.
fn selection<V: Visitor>(visitor: &mut V, selection: &mut Selection) {
    visitor.optional("group", &mut selection.group);
    visitor.optional("zone", &mut selection.zone);
    visitor.value("first", &mut selection.first);
    visitor.optional("count", &mut selection.count);
}

fn restart<V: Visitor>(visitor: &mut V, restart: &mut Restart) {
    visitor.value_as("lame_duck", &mut restart.lame_duck, SpanOrOff);
    visitor.value_as("down", &mut restart.down, SpanOrOff);
    visitor.value("cold_factor", &mut restart.cold.factor);
    visitor.value_as("cold_for", &mut restart.cold.lasts, SpanOrOff);
    visitor.value_as("cold_course", &mut restart.cold.course, COURSE);
    visitor.value_as("stagger", &mut restart.stagger, SpanOrOff);
}

impl Variants for Happening {
    const NOUN: &'static str = "an event";

    fn all() -> Vec<(&'static str, Self)> {
        let backends = Selection::default();
        let changes = [
            Change::Conduct { backends: backends.clone(), conduct: Conduct::Serve },
            Change::Restart { backends: backends.clone(), restart: Restart::default() },
            Change::Antagonist { backends: backends.clone(), antagonist: Antagonist::None },
            Change::Speed { backends: backends.clone(), factor: NO_NUMBER },
            Change::AddBackends { group: BackendGroup::default() },
            Change::RemoveBackends { backends },
            Change::Source { state: SourceState::Complete, lasts: NO_TIME },
            Change::AddClients { count: NonZeroU32::MIN },
            Change::RemoveClients { count: NonZeroU32::MIN },
        ];
        let happenings = changes.map(|change| Self { at: NO_TIME, change });
        happenings.map(|happening| (happening.name(), happening)).into()
    }

    fn name(&self) -> &'static str {
        match self.change {
            Change::Conduct { .. } => "conduct",
            Change::Restart { .. } => "restart",
            Change::Antagonist { .. } => "antagonist",
            Change::Speed { .. } => "speed",
            Change::AddBackends { .. } => "add-backends",
            Change::RemoveBackends { .. } => "remove-backends",
            Change::Source { .. } => "source",
            Change::AddClients { .. } => "add-clients",
            Change::RemoveClients { .. } => "remove-clients",
        }
    }

    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required_as("at", &mut self.at, At);
        match &mut self.change {
            Change::Conduct { backends, conduct } => {
                visitor.required("conduct", conduct);
                selection(visitor, backends);
            }
            Change::Restart { backends, restart: what } => {
                selection(visitor, backends);
                restart(visitor, what);
            }
            Change::Antagonist { backends, antagonist } => {
                visitor.required("antagonist", antagonist);
                selection(visitor, backends);
            }
            Change::Speed { backends, factor } => {
                visitor.required("factor", factor);
                selection(visitor, backends);
            }
            Change::AddBackends { group } => group.settings(visitor),
            Change::RemoveBackends { backends } => selection(visitor, backends),
            Change::Source { state, lasts } => {
                visitor.required_as("answers", state, ANSWERS);
                visitor.required("for", lasts);
            }
            Change::AddClients { count } | Change::RemoveClients { count } => visitor.required("count", count),
        }
    }

    fn check(&self) -> Result<(), Flaw> {
        match &self.change {
            Change::Restart { restart, .. } if !(restart.cold.factor > 0.0 && restart.cold.factor <= 1.0) => {
                let reason = format!("cold_factor is {}, not above 0 and at most 1", restart.cold.factor);
                Err(Flaw::new(reason, "write a share of the ordinary speed, such as 0.5"))
            }
            Change::Restart { restart: Restart { lame_duck, down, cold, stagger }, .. } => {
                let spans = [("lame_duck", lame_duck), ("down", down), ("cold_for", &cold.lasts), ("stagger", stagger)];
                spans.into_iter().try_for_each(|(what, span)| within_reason(what, *span))
            }
            Change::Source { lasts, .. } => within_reason("for", *lasts),
            Change::Speed { factor, .. } => above("factor", *factor, 0.0),
            _ => Ok(()),
        }
    }
}
