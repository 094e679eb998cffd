//! The settings of a shedding experiment in a scenario file.
//!
//! The meaning and the default of each setting stand beside the code
//! ([`experiment::shedding::plan`](crate::experiment::shedding::plan)). Rules over several settings
//! are in [`shedding_check`](super::shedding_check).

use std::time::Duration;

use plimsoll_config::{
    Choice, Codec, DeValue, Flaw, Format, Reading, SpanOrOff, Spanned, Table, Variants, Visitor, choice, inline, kind,
    quoted,
};
use plimsoll_core::Criticality;
use plimsoll_core::admit::AdmissionConfig;

use super::fleet::ABANDONED;
use crate::experiment::shedding::plan::{Arm, Cohorts, Plan, Shedder, Source};
use crate::reference::schedule::Schedule;

/// The settings of a plan, at the root of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SheddingFile(pub(super) Plan);

impl Table for SheddingFile {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        let plan = &mut self.0;
        visitor.value("duration", &mut plan.duration);
        visitor.value_as("warmup", &mut plan.warmup, SpanOrOff);
        visitor.value("tick", &mut plan.tick);
        visitor.value("sample_every", &mut plan.sample_every);
        visitor.value("cores", &mut plan.cores);
        visitor.optional("concurrency", &mut plan.concurrency);
        visitor.value("cost", &mut plan.cost);
        visitor.value_as("overhead", &mut plan.overhead, SpanOrOff);
        visitor.value_as("rejection", &mut plan.rejection, SpanOrOff);
        visitor.value("patience", &mut plan.patience);
        visitor.value_as("abandoned", &mut plan.abandoned, ABANDONED);
        visitor.value("tells_deadline", &mut plan.tells_deadline);
        visitor.value("target_delay", &mut plan.target_delay);
        visitor.tables("sources", &mut plan.sources);
        visitor.tables("phases", &mut plan.phases);
        visitor.tables("arms", &mut plan.arms);
    }
}

impl Table for Source {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required("name", &mut self.name);
        visitor.value_as("criticality", &mut self.criticality, CRITICALITY);
        visitor.value("customer", &mut self.customer);
        visitor.value("customers", &mut self.customers);
        visitor.value("share", &mut self.share);
        visitor.optional("most", &mut self.most);
        visitor.required("rate", &mut self.rate);
        visitor.value("load", &mut self.load);
        visitor.optional("cost", &mut self.cost);
        visitor.optional("patience", &mut self.patience);
        visitor.value_as("age", &mut self.age, SpanOrOff);
        visitor.value("calls", &mut self.calls);
        visitor.value("retries", &mut self.retries);
        visitor.value_as("wait", &mut self.wait, SpanOrOff);
    }
}

impl Table for Arm {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required("name", &mut self.name);
        visitor.value("shedder", &mut self.shedder);
        visitor.optional("cores", &mut self.cores);
        visitor.optional("concurrency", &mut self.concurrency);
        visitor.value_as("cohorts", &mut self.cohorts, COHORTS);
        visitor.optional_as("schedule", &mut self.schedule, ScheduleCodec);
    }
}

/// Value of a limit before it is read. Both limits are required in the file.
const NO_LIMIT: f64 = 0.0;

impl Variants for Shedder {
    const NOUN: &'static str = "a shedder";

    fn all() -> Vec<(&'static str, Self)> {
        let shedders = [Self::None, Self::Procrustean { soft: NO_LIMIT, hard: NO_LIMIT }, Self::RANKED];
        shedders.map(|shedder| (shedder.name(), shedder)).into()
    }

    fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Procrustean { .. } => "procrustean",
            Self::Ranked { .. } => "ranked",
        }
    }

    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        match self {
            Self::None => {}
            Self::Procrustean { soft, hard } => {
                visitor.required("soft", soft);
                visitor.required("hard", hard);
            }
            Self::Ranked { load_line, target_delay, outlook } => {
                visitor.value("load_line", load_line);
                visitor.value("target_delay", target_delay);
                visitor.value("outlook", outlook);
            }
        }
    }

    fn check(&self) -> Result<(), Flaw> {
        match *self {
            Self::Procrustean { soft, hard } if soft >= hard => {
                Err(Flaw::new(format!("soft ({soft}) is not below hard ({hard})"), "lower soft, or raise hard"))
            }
            Self::Ranked { load_line, .. } if load_line.as_f64() <= 0.0 => {
                let mend =
                    format!("write a share above 0; \"{}\" is ordinary", percent(AdmissionConfig::DEFAULT_LOAD_LINE));
                Err(Flaw::new("load_line is 0, so nothing would be admitted", mend))
            }
            Self::None | Self::Procrustean { .. } | Self::Ranked { .. } => Ok(()),
        }
    }
}

fn percent(ratio: plimsoll_core::Ratio) -> String {
    format!("{}%", (100.0 * ratio.as_f64()).round())
}

/// A criticality by its name.
pub(super) const CRITICALITY: Format<Criticality> = Format {
    read: |v| {
        let choices = Criticality::ALL.map(|criticality| (criticality.name(), criticality));
        choice(v, "a criticality", &choices)
    },
    print: |criticality| quoted(criticality.name()),
};

/// A schedule as its table.
struct ScheduleTable(Schedule);

impl Table for ScheduleTable {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required("full_until", &mut self.0.full_until);
        visitor.required_as("then", &mut self.0.then, CRITICALITY);
        visitor.optional("cancelled_after", &mut self.0.cancelled_after);
    }
}

/// A schedule: `{ full_until = "2s", then = "sheddable", cancelled_after = "10s" }`.
struct ScheduleCodec;

impl Codec<Schedule> for ScheduleCodec {
    fn read(&self, value: &Spanned<DeValue<'_>>, reading: &mut Reading<'_>) -> Option<Schedule> {
        let DeValue::Table(table) = value.get_ref() else {
            let mend = "write { full_until = \"2s\", then = \"sheddable\", cancelled_after = \"10s\" }";
            reading.problem(format!("expected a schedule, found {}", kind(value.get_ref())), mend);
            return None;
        };
        // A value to read into. Required settings replace it.
        let then = Criticality::Sheddable;
        let mut schedule = ScheduleTable(Schedule { full_until: Duration::ZERO, then, cancelled_after: None });
        reading.fill(table, &mut schedule);
        Some(schedule.0)
    }

    fn print(&self, schedule: &Schedule) -> Option<String> {
        Some(format!("{{ {} }}", inline(&mut ScheduleTable(*schedule))))
    }
}

const COHORTS: Choice<Cohorts> =
    Choice { noun: "a way to see cohorts", names: &[("told", Cohorts::Told), ("unseen", Cohorts::Unseen)] };
