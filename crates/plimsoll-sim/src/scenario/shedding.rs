//! The settings of a shedding experiment in a scenario file.
//!
//! The meaning and the default of each setting stand beside the code
//! ([`experiment::shedding::plan`](crate::experiment::shedding::plan)). Rules over several settings
//! are in [`shedding_check`](super::shedding_check).

use plimsoll_config::{
    DeValue, Flaw, Reading, SpanOrOff, Spanned, Table, Value, Variants, Visitor, choice, inline, kind, quoted, values,
};
use plimsoll_core::Criticality;
use plimsoll_core::admit::AdmissionConfig;

use super::fleet::name_of;
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
        visitor.value("abandoned", &mut plan.abandoned);
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
        let mut criticality = CriticalityForm(self.criticality);
        visitor.value("criticality", &mut criticality);
        self.criticality = criticality.0;
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
        visitor.value("cohorts", &mut self.cohorts);
        let mut schedule = self.schedule.map(ScheduleForm);
        visitor.optional("schedule", &mut schedule);
        self.schedule = schedule.map(|form| form.0);
    }
}

/// Value of a limit before it is read. Both limits are required in the file.
const NO_LIMIT: f64 = 0.0;

impl Variants for Shedder {
    const WHAT: &'static str = "a shedder";

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
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CriticalityForm(pub(super) Criticality);

/// A schedule: `{ full_until = "2s", then = "sheddable", cancelled_after = "10s" }`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ScheduleForm(Schedule);

impl Table for ScheduleForm {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required("full_until", &mut self.0.full_until);
        let mut then = CriticalityForm(self.0.then);
        visitor.required("then", &mut then);
        self.0.then = then.0;
        visitor.optional("cancelled_after", &mut self.0.cancelled_after);
    }
}

impl Value for ScheduleForm {
    fn read(value: &Spanned<DeValue<'_>>, reading: &mut Reading<'_>) -> Option<Self> {
        let DeValue::Table(table) = value.get_ref() else {
            let mend = "write { full_until = \"2s\", then = \"sheddable\", cancelled_after = \"10s\" }";
            reading.problem(format!("expected a schedule, found {}", kind(value.get_ref())), mend);
            return None;
        };
        // A value to read into. Required settings replace it.
        let then = Criticality::Sheddable;
        let mut form = Self(Schedule { full_until: std::time::Duration::ZERO, then, cancelled_after: None });
        reading.fill(table, &mut form);
        Some(form)
    }

    fn print(&self) -> String {
        format!("{{ {} }}", inline(&mut { *self }))
    }
}

const COHORTS: [(&str, Cohorts); 2] = [("told", Cohorts::Told), ("unseen", Cohorts::Unseen)];

values! {
    Cohorts: |v| choice(v, "a way to see cohorts", &COHORTS), |one| name_of(&COHORTS, one);
    CriticalityForm: |v| {
        let choices = Criticality::ALL.map(|criticality| (criticality.name(), criticality));
        choice(v, "a criticality", &choices).map(Self)
    }, |one| quoted(one.0.name());
}
