//! The settings of an experiment with subsets in a scenario file, and the rules over several of
//! them.
//!
//! The meaning and the default of each setting stand beside the code
//! ([`experiment::subset`](crate::experiment::subset)).

use plimsoll_config::{Checker, DeValue, Reading, Spanned, Table, Value, Visitor, inline, kind};
use plimsoll_core::subset::Algorithm;

use super::budget::{MOST_PREFERENCES, budget};
use super::fleet_check::names;
use super::{Experiment, Kind, Settings};
use crate::experiment::subset::{Arm, Plan, Published, Row};

/// Most draws of each row. More would not improve its quantiles.
const MOST_DRAWS: f64 = 1e5;
/// Most clients or backends of a row: more than any cluster has.
const MOST_OF_ONE_SIDE: f64 = 1e5;
/// Most pairs of a client and a backend in all draws of a row. They take some minutes.
const MOST_DRAWN: f64 = 1e10;

/// The settings of a plan, at the root of the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SubsetFile(Plan);

impl Default for SubsetFile {
    /// A file must list its rows. Without arms it gets all algorithms, after reading.
    fn default() -> Self {
        Self(Plan { rows: Vec::new(), arms: Vec::new(), ..Plan::default() })
    }
}

impl From<SubsetFile> for Experiment {
    fn from(file: SubsetFile) -> Self {
        Self::Subset(file.0)
    }
}

impl Table for SubsetFile {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.value("draws", &mut self.0.draws);
        visitor.optional("even", &mut self.0.even);
        visitor.tables("rows", &mut self.0.rows);
        visitor.tables("arms", &mut self.0.arms);
    }
}

impl Table for Row {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required("clients", &mut self.clients);
        visitor.required("backends", &mut self.backends);
        visitor.value("size", &mut self.size);
        visitor.optional("published", &mut self.published);
        visitor.value("failures", &mut self.failures);
    }
}

impl Default for Arm {
    /// A value to read into. Name and algorithm are required in the file.
    fn default() -> Self {
        Self { name: String::new(), ..Self::from(Algorithm::Random) }
    }
}

impl Table for Arm {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required("name", &mut self.name);
        visitor.required("algorithm", &mut self.algorithm);
        visitor.optional("distinct_clients", &mut self.distinct_clients);
    }
}

impl Table for Published {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required("least", &mut self.least);
        visitor.required("most", &mut self.most);
    }
}

/// `{ least = 57, most = 109 }`
impl Value for Published {
    fn read(value: &Spanned<DeValue<'_>>, reading: &mut Reading<'_>) -> Option<Self> {
        let DeValue::Table(table) = value.get_ref() else {
            let reason = format!("expected a published draw, found {}", kind(value.get_ref()));
            reading.problem(reason, "write { least = 57, most = 109 }");
            return None;
        };
        let mut published = Self { least: 0, most: 0 };
        reading.fill(table, &mut published);
        Some(published)
    }

    fn print(&self) -> String {
        format!("{{ {} }}", inline(&mut { *self }))
    }
}

impl Settings for SubsetFile {
    const KIND: Kind = Kind::Subset;

    fn check(&mut self, checker: &mut Checker<'_>) {
        let plan = &mut self.0;
        if plan.arms.is_empty() && checker.is_readable("arms") {
            plan.arms = Plan::default().arms;
        }
        if plan.rows.is_empty() {
            checker.report("rows", "there is no row", "add [[rows]] with clients = 300, backends = 300 and size = 30");
        }
        let draws = f64::from(plan.draws.get());
        budget(checker, "draws", "draws", draws, MOST_DRAWS);
        for (i, row) in plan.rows.iter().enumerate() {
            let path = format!("rows[{i}]");
            let (clients, backends) = (f64::from(row.clients.get()), f64::from(row.backends.get()));
            budget(checker, format!("{path}.clients"), "clients", clients, MOST_OF_ONE_SIDE);
            budget(checker, format!("{path}.backends"), "backends", backends, MOST_OF_ONE_SIDE);
            if clients.max(backends) <= MOST_OF_ONE_SIDE {
                let pairs = clients * backends;
                budget(checker, &path, "pairs of a client and a backend", pairs, MOST_PREFERENCES);
                if pairs <= MOST_PREFERENCES && draws <= MOST_DRAWS {
                    budget(checker, "draws", "pairs of a client and a backend", draws * pairs, MOST_DRAWN);
                }
            }
            if plan.rows[..i].iter().any(|other| other.name() == row.name()) {
                checker.report(&path, format!("the row {} is there already", row.name()), "remove it");
            }
            let most = row.size.get().min(row.backends.get() - 1);
            if row.failures > most {
                let reason = format!("a subset of {} out of {} cannot lose {}", row.size, row.backends, row.failures);
                checker.report(format!("{path}.failures"), reason, format!("write at most {most}"));
            }
            if row.published.is_some_and(|published| published.least > published.most) {
                checker.report(format!("{path}.published"), "least is above most", "swap the two");
            }
        }
        names(checker, "arms", plan.arms.iter().map(|arm| &*arm.name));
    }

    fn metrics(&self) -> Vec<String> {
        self.0.metrics()
    }
}
