//! What the simulator is asked to try: a TOML file, read and checked as a whole, as the proxy's is.
//!
//! ```text
//! text ──read──▶ File<plan> ──check──▶ Scenario
//!        each value by itself   all of them together
//! ```
//!
//! A scenario names an experiment and what is expected of it: each check is a range for one metric, with the reason why
//! the range is what it is. A [`Scenario`] can only be had by parsing, so whoever holds one may rely on it: metrics of
//! checks exist, phases lie within the run, no two arms share a name. The file says of what `kind` the experiment is,
//! and the other settings are those of that kind; so the kind is looked at first, and without it nothing else can be
//! judged.

mod budget;
mod builtin;
mod checks;
mod choices;
mod fleet;
mod fleet_check;
mod probes;
mod quota;
mod quota_check;
mod rollout;
mod shedding;
mod shedding_check;
mod spill;
mod subset;
mod sweep_check;
mod tiers;
mod tiers_check;
mod worked;

use std::path::Path;

use plimsoll_config::{Checker, ConfigError, Read, Table, Visitor, choice, load, quoted, read, values};

pub use budget::MOST_SEEDS;
pub use builtin::built_in;
pub use checks::{Check, EXTREMES};

use crate::experiment::fleet::Plan as FleetPlan;
use crate::experiment::probes::Plan as ProbesPlan;
use crate::experiment::quota::Plan as QuotaPlan;
use crate::experiment::rollout::Plan as RolloutPlan;
use crate::experiment::shedding::Plan as SheddingPlan;
use crate::experiment::spill::Plan as SpillPlan;
use crate::experiment::subset::Plan as SubsetPlan;
use crate::experiment::tiers::Plan as TiersPlan;
use crate::experiment::worked::Plan as WorkedPlan;
use fleet::FleetFile;
use probes::ProbesFile;
use quota::QuotaFile;
use rollout::RolloutFile;
use shedding::SheddingFile;
use spill::SpillFile;
use subset::SubsetFile;
use tiers::TiersFile;
use worked::WorkedFile;

/// An experiment, and what is expected of it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Scenario {
    /// Its name: lower case, digits and hyphens.
    pub name: String,
    /// What it shows, in a line.
    pub title: String,
    /// What it belongs to, among other scenarios.
    pub group: String,
    /// Where what it repeats was published; empty when it repeats nothing.
    pub source: String,
    /// What was published, in our words.
    pub says: String,
    /// One run each; at least one, none twice.
    pub seeds: Vec<u64>,
    /// What is tried.
    pub experiment: Experiment,
    /// The expected results. None while a user explores; every built-in scenario has some.
    pub checks: Vec<Check>,
}

/// What is tried.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Experiment {
    /// A fleet under load, under several ways to balance.
    Fleet(Box<FleetPlan>),
    /// A server that is asked for more than it can do, under several shedders.
    Shedding(Box<SheddingPlan>),
    /// Clients that probe backends by UDP.
    Probes(Box<ProbesPlan>),
    /// Customers with limits over all tasks of a fleet.
    Quota(Box<QuotaPlan>),
    /// A canary beside the main version.
    Rollout(Box<RolloutPlan>),
    /// Clients that choose among localities.
    Spill(Box<SpillPlan>),
    /// Who connects to whom, under several algorithms.
    Subset(SubsetPlan),
    /// Clients that hold back and try again, and the services behind them, which may be clients themselves.
    Tiers(Box<TiersPlan>),
    /// Examples from the literature, worked by the shipped code.
    Worked(WorkedPlan),
}

/// The kinds of experiments, by their names in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Fleet,
    Shedding,
    Probes,
    Quota,
    Rollout,
    Spill,
    Subset,
    Tiers,
    Worked,
}

impl Kind {
    const ALL: [(&'static str, Self); 9] = [
        ("fleet", Self::Fleet),
        ("shedding", Self::Shedding),
        ("probes", Self::Probes),
        ("quota", Self::Quota),
        ("rollout", Self::Rollout),
        ("spill", Self::Spill),
        ("subset", Self::Subset),
        ("tiers", Self::Tiers),
        ("worked", Self::Worked),
    ];
}

values! {
    Kind: |v| choice(v, "a kind of experiment", &Kind::ALL), |kind| {
        quoted(Kind::ALL.into_iter().find(|(_, known)| known == kind).expect("all are listed").0)
    };
}

/// The settings of one kind of experiment, at the root of its file.
trait Settings: Table + Default + Clone + Into<Experiment> {
    /// Its kind.
    const KIND: Kind;

    /// Reports what they say together and must not, and fits defaults to what is set.
    fn check(&mut self, checker: &mut Checker<'_>);

    /// The metrics that such an experiment finds, by name.
    fn metrics(&self) -> Vec<String>;
}

/// The root of a file.
#[derive(Clone, Debug)]
struct File<S> {
    name: String,
    title: Option<String>,
    group: String,
    source: Option<String>,
    says: Option<String>,
    kind: Kind,
    seeds: Vec<u64>,
    settings: S,
    checks: Vec<Check>,
}

/// The group of a scenario that names none: a user's own.
pub(crate) const DEFAULT_GROUP: &str = "own";
/// Three runs: the fewest whose spread shows how much is chance, at three times the cost of one.
const DEFAULT_SEEDS: [u64; 3] = [1, 2, 3];

impl<S: Settings> Default for File<S> {
    fn default() -> Self {
        Self {
            name: String::new(),
            title: None,
            group: DEFAULT_GROUP.to_owned(),
            source: None,
            says: None,
            kind: S::KIND,
            seeds: DEFAULT_SEEDS.to_vec(),
            settings: S::default(),
            checks: Vec::new(),
        }
    }
}

impl<S: Settings> Table for File<S> {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required("name", &mut self.name);
        visitor.required("kind", &mut self.kind);
        visitor.optional("title", &mut self.title);
        visitor.value("group", &mut self.group);
        visitor.optional("source", &mut self.source);
        visitor.optional("says", &mut self.says);
        visitor.value("seeds", &mut self.seeds);
        self.settings.settings(visitor);
        visitor.tables("checks", &mut self.checks);
    }
}

/// Reads only of what kind the experiment of a file is.
#[derive(Clone, Debug, Default)]
struct KindOnly(Kind);

impl Table for KindOnly {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.required("kind", &mut self.0);
    }
}

impl Experiment {
    /// The names of the metrics that it finds in a run with one seed.
    #[must_use]
    pub fn metrics(&self) -> Vec<String> {
        match self {
            Self::Fleet(plan) => crate::experiment::fleet::metric_names(plan),
            Self::Shedding(plan) => crate::experiment::shedding::metric_names(plan),
            Self::Probes(plan) => crate::experiment::probes::metric_names(plan),
            Self::Quota(plan) => crate::experiment::quota::metric_names(plan),
            Self::Rollout(plan) => crate::experiment::rollout::metric_names(plan),
            Self::Spill(plan) => crate::experiment::spill::metric_names(plan),
            Self::Subset(plan) => plan.metrics(),
            Self::Tiers(plan) => crate::experiment::tiers::metric_names(plan),
            Self::Worked(plan) => plan.metrics(),
        }
    }
}

impl Scenario {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// That the file cannot be read, or all that is wrong with it.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        Self::parse(&file.display().to_string(), &load(file)?)
    }

    /// Reads and checks the text of a file; `source_name` is what messages call it.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn parse(source_name: &str, text: &str) -> Result<Self, ConfigError> {
        let Read { root: KindOnly(kind), mut problems, .. } = read(text);
        // Settings beside the kind are unknown to this first look only. What is left is about the kind, or is syntax.
        problems.retain(|problem| problem.path == "kind" || problem.path.is_empty());
        if problems.iter().any(|problem| problem.path == "kind") {
            return Err(ConfigError::new(source_name, problems));
        }
        match kind {
            Kind::Fleet => File::<FleetFile>::parse(source_name, text),
            Kind::Shedding => File::<SheddingFile>::parse(source_name, text),
            Kind::Probes => File::<ProbesFile>::parse(source_name, text),
            Kind::Quota => File::<QuotaFile>::parse(source_name, text),
            Kind::Rollout => File::<RolloutFile>::parse(source_name, text),
            Kind::Spill => File::<SpillFile>::parse(source_name, text),
            Kind::Subset => File::<SubsetFile>::parse(source_name, text),
            Kind::Tiers => File::<TiersFile>::parse(source_name, text),
            Kind::Worked => File::<WorkedFile>::parse(source_name, text),
        }
    }

    /// The same scenario with other seeds.
    ///
    /// # Panics
    /// If there are none.
    #[must_use]
    pub fn with_seeds(self, seeds: Vec<u64>) -> Self {
        assert!(!seeds.is_empty(), "a run has a seed");
        Self { seeds, ..self }
    }
}

impl<S: Settings> File<S> {
    fn parse(source_name: &str, text: &str) -> Result<Scenario, ConfigError> {
        let Read { root: mut file, places, problems } = read::<Self>(text);
        let mut checker = Checker::new(&places, problems);
        file.check_head(&mut checker);
        file.settings.check(&mut checker);
        checks::check(&file.checks, &file.settings.metrics(), &mut checker);
        let problems = checker.into_problems();
        if !problems.is_empty() {
            return Err(ConfigError::new(source_name, problems));
        }
        Ok(Scenario {
            title: file.title.unwrap_or_else(|| file.name.clone()),
            name: file.name,
            group: file.group,
            source: file.source.unwrap_or_default(),
            says: file.says.unwrap_or_default(),
            seeds: file.seeds,
            experiment: file.settings.into(),
            checks: file.checks,
        })
    }

    fn check_head(&self, checker: &mut Checker<'_>) {
        if !is_name(&self.name) {
            let reason = format!("\"{}\" is not a valid name", self.name);
            checker.report("name", reason, "use lower case, digits and \"-\"; result files are named after it");
        }
        if self.seeds.is_empty() {
            checker.report("seeds", "there is no seed", "write at least one, such as [1]");
        }
        budget::budget(checker, "seeds", "seeds", self.seeds.len() as f64, MOST_SEEDS as f64);
        for (i, seed) in self.seeds.iter().enumerate() {
            if self.seeds[..i].contains(seed) {
                let reason = format!("seed {seed} is there already");
                checker.report(format!("seeds[{i}]"), reason, "remove it");
            }
        }
    }
}

/// Whether `name` can be a scenario's.
fn is_name(name: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !name.is_empty() && name.bytes().all(good) && !name.starts_with('-')
}

#[cfg(test)]
mod tests;
