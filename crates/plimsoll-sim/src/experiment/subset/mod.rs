//! Experiments with subsets: who connects to whom, and what moves when something changes.
//!
//! No time passes and no request is sent; the algorithms are asked for the subset of each client, and connections are
//! counted. Each arm is tried in each row.
//!
//! # What is measured
//!
//! Metrics are named `ARM.CLIENTSxBACKENDSxSIZE.METRIC`, as in `random.300x300x30.least_over_mean`; where some backends
//! fail, with their number, as in `random.300x300x30-5failed.most`:
//!
//! | metric | what |
//! |---|---|
//! | `least`, `most` | connections of the backend that has fewest and of the one that has most |
//! | `spread` | `most` − `least` |
//! | `least_over_mean`, `most_over_mean` | the same over the mean of all backends |
//! | `without` | backends without any connection |
//! | `diversity` | clients of which no other has the same subset, as a share |
//! | `takers` | backends among which the clients of a failed one part, over the most that could be: 1 is all |
//! | `churn_add_backend`, `churn_remove_backend` | connections that move when there is one backend more or less, as a share |
//! | `churn_add_client`, `churn_remove_client` | connections of the other clients that move, as a share |
//! | `excess_add_backend`, `excess_remove_backend` | connections that move beyond the ideal: the new one's even share, those of the one that is gone |
//!
//! with [`Plan::draws`] above 1, of which the above are the means, but for those about changes, which are measured on the
//! first draw:
//!
//! | metric | what |
//! |---|---|
//! | `least_over_mean_p5`, `_p50`, `_p95`; `most_over_mean_p5`, `_p50`, `_p95` | quantiles over the draws |
//!
//! with [`Row::published`]:
//!
//! | metric | what |
//! |---|---|
//! | `published_least_rank`, `published_most_rank` | draws whose least, or most, is at most the published one, as a share |
//!
//! with [`Row::failures`]:
//!
//! | metric | what |
//! |---|---|
//! | `replaced_most_over_mean` | connections of the fullest survivor, replacements made, over the mean of the survivors |
//! | `unreplaced_most_over_mean` | load of the fullest survivor without replacements, each client's parted among what it has left, over the mean |
//!
//! and with [`Plan::even`], `ARM.even_share`: the least share of the backends that a subset must hold for all to be within that
//! much of the mean, of the rows in the plan; 2 when none is enough.

mod assign;
mod figures;
mod measure;

use std::num::NonZeroU32;

use plimsoll_core::Ratio;
use plimsoll_core::subset::{Algorithm, SubsetConfig};

use crate::findings::Findings;
use measure::Measured;

/// What is tried.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Fleets, at least one.
    pub rows: Vec<Row>,
    /// Ways to choose subsets, at least one.
    pub arms: Vec<Arm>,
    /// How often each is drawn. Draw d of a run with seed s has the subset seed s · draws + d, modulo 2⁶⁴.
    pub draws: NonZeroU32,
    /// How far from the mean a backend may be in a fleet that counts as even.
    pub even: Option<Ratio>,
}

impl Default for Plan {
    fn default() -> Self {
        let arms = Algorithm::ALL.into_iter().map(Arm::from).collect();
        Self { rows: vec![Row::default()], arms, draws: NonZeroU32::MIN, even: None }
    }
}

/// A fleet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// How many clients.
    pub clients: NonZeroU32,
    /// How many backends.
    pub backends: NonZeroU32,
    /// Backends that each client wants.
    pub size: NonZeroU32,
    /// What somebody else drew.
    pub published: Option<Published>,
    /// Backends that fail: so many of the first client's subset.
    pub failures: u32,
}

impl Default for Row {
    /// The book's fleet, with subsets of the default size.
    fn default() -> Self {
        let all = NonZeroU32::new(300).expect("not zero");
        Self { clients: all, backends: all, size: SubsetConfig::DEFAULT_SIZE, published: None, failures: 0 }
    }
}

impl Row {
    /// Its name in metrics.
    #[must_use]
    pub fn name(&self) -> String {
        let fleet = format!("{}x{}x{}", self.clients, self.backends, self.size);
        if self.failures == 0 { fleet } else { format!("{fleet}-{}failed", self.failures) }
    }
}

/// The connections that somebody else counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// Of the backend that has fewest.
    pub least: u32,
    /// Of the backend that has most.
    pub most: u32,
}

/// A way to choose subsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arm {
    /// Names it in metrics and legends; no dots.
    pub name: String,
    /// How.
    pub algorithm: Algorithm,
    /// Clients that differ; the next ones do as the first again, as if they had the same numbers. `None`: all differ.
    pub distinct_clients: Option<NonZeroU32>,
}

impl From<Algorithm> for Arm {
    fn from(algorithm: Algorithm) -> Self {
        Self { name: algorithm.name().to_owned(), algorithm, distinct_clients: None }
    }
}

/// Metrics of every row.
const METRICS: [&str; 14] = [
    "least",
    "most",
    "spread",
    "least_over_mean",
    "most_over_mean",
    "without",
    "diversity",
    "takers",
    "churn_add_backend",
    "churn_remove_backend",
    "churn_add_client",
    "churn_remove_client",
    "excess_add_backend",
    "excess_remove_backend",
];
/// Metrics of every row that is drawn several times.
const QUANTILES: [(&str, f64); 3] = [("p5", 0.05), ("p50", 0.5), ("p95", 0.95)];
/// What [`QUANTILES`] are of.
const DISTRIBUTED: [&str; 2] = ["least_over_mean", "most_over_mean"];
/// The share of a subset that is not enough however large: no fleet of the plan is even.
const NEVER_EVEN: f64 = 2.0;

impl Plan {
    /// The metrics that a run finds, by name.
    #[must_use]
    pub fn metrics(&self) -> Vec<String> {
        let mut names = Vec::new();
        for arm in &self.arms {
            for row in &self.rows {
                let mut name = |metric: &str| names.push(format!("{}.{}.{metric}", arm.name, row.name()));
                METRICS.iter().for_each(|metric| name(metric));
                if self.draws > NonZeroU32::MIN {
                    for metric in DISTRIBUTED {
                        QUANTILES.iter().for_each(|(quantile, _)| name(&format!("{metric}_{quantile}")));
                    }
                }
                if row.published.is_some() {
                    ["published_least_rank", "published_most_rank"].iter().for_each(|metric| name(metric));
                }
                if row.failures > 0 {
                    ["replaced_most_over_mean", "unreplaced_most_over_mean"].iter().for_each(|metric| name(metric));
                }
            }
            if self.even.is_some() {
                names.push(format!("{}.even_share", arm.name));
            }
        }
        names
    }

    /// Tries it. `progress` is told the part that is done, in [0, 1].
    pub fn run(&self, seed: u64, progress: &mut dyn FnMut(f64)) -> Findings {
        let mut findings = Findings::default();
        let mut all = Vec::new();
        let steps = (self.arms.len() * self.rows.len()) as f64;
        for arm in &self.arms {
            for row in &self.rows {
                let measured = Measured::of(arm, row, self.draws, seed);
                measured.note(&format!("{}.{}", arm.name, row.name()), &mut findings);
                all.push(measured);
                progress(all.len() as f64 / steps);
            }
        }
        if let Some(even) = self.even {
            for (arm, measured) in self.arms.iter().zip(all.chunks(self.rows.len())) {
                findings.metric(format!("{}.even_share", arm.name), self.even_share(even, measured));
            }
        }
        findings.figures = figures::all(self, &all);
        findings
    }

    fn even_share(&self, even: Ratio, measured: &[Measured]) -> f64 {
        let is_even = |m: &Measured| {
            m.mean_of("least_over_mean") >= 1.0 - even.as_f64() && m.mean_of("most_over_mean") <= 1.0 + even.as_f64()
        };
        let shares = self.rows.iter().zip(measured).filter(|(_, measured)| is_even(measured));
        shares.map(|(row, _)| f64::from(row.size.get()) / f64::from(row.backends.get())).fold(NEVER_EVEN, f64::min)
    }
}

#[cfg(test)]
mod tests;
