//! Runs a scenario: once for each seed, several at a time, and puts together what was found.
//!
//! Each run is a function of its seed alone. Which thread runs which seed is chance, so results are kept by the place of
//! their seed and put together in that order: the sum of floating-point numbers depends on it, and the result must
//! be the same bytes on any number of threads.
//!
//! Over several seeds a metric is the mean, with `NAME.min` and `NAME.max` beside it; a figure is the mean too, or the
//! greatest, where the runs have the same horizontal positions, so that what is plotted is what is checked, and otherwise
//! that of the first seed.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::experiment::{fleet, probes, quota, rollout, shedding, spill, tiers};
use crate::findings::{Figure, Findings, Level, Merge};
use crate::scenario::{Check, EXTREMES, Experiment, Scenario};

/// Told how much is done, in [0, 1], from any thread.
pub type Progress<'p> = &'p (dyn Fn(f64) + Sync);

/// Threads that are of use: each holds a whole world, and more worlds at a time than this would be a matter of memory.
pub const MOST_THREADS: NonZeroUsize = NonZeroUsize::new(16).expect("not zero");

/// What all runs of a scenario found.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Summary {
    /// The scenario's name.
    pub scenario: String,
    /// One run each.
    pub seeds: Vec<u64>,
    /// By name, all finite; those that every run had something to measure by.
    pub metrics: BTreeMap<String, f64>,
    /// In the order of the scenario.
    pub checks: Vec<Checked>,
    /// In the order in which they are to be read.
    pub figures: Vec<Plotted>,
}

impl Summary {
    /// Whether all is as expected.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.checks.iter().all(Checked::is_ok)
    }
}

/// A check, and what the metric is.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Checked {
    /// What is expected.
    pub check: Check,
    /// What was found.
    pub got: f64,
    /// The lowest and the highest value of the seeds; equal for a single run.
    pub spread: [f64; 2],
}

impl Checked {
    /// Whether it is as expected.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.check.holds(self.got)
    }
}

/// A figure, and of which runs it is.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Plotted {
    /// The figure.
    pub figure: Figure,
    /// Of which runs.
    pub of: Of,
}

/// Of which runs a figure is. Its text stands beside the title; that of the only run is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// The mean of so many, more than one.
    MeanOf(usize),
    /// The greatest value of so many, more than one.
    MaxOf(usize),
    /// The one with this seed, of several.
    Seed(u64),
    /// The only one.
    Only,
}

impl fmt::Display for Of {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MeanOf(count) => write!(f, "mean of {count} seeds"),
            Self::MaxOf(count) => write!(f, "maximum of {count} seeds"),
            Self::Seed(seed) => write!(f, "seed {seed}"),
            Self::Only => Ok(()),
        }
    }
}

/// Why there is no summary.
#[derive(Clone, Debug, PartialEq)]
pub enum RunError {
    /// A metric that is no number: nothing was there to be measured, or it was divided by nothing.
    NotFinite {
        /// The scenario.
        scenario: String,
        /// The metric.
        metric: String,
        /// The seed of the run.
        seed: u64,
        /// What it is.
        value: f64,
    },
    /// A metric that is checked, and that the run did not find.
    Missing {
        /// The scenario.
        scenario: String,
        /// The metric.
        metric: String,
    },
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFinite { scenario, metric, seed, value } => write!(
                f,
                "scenario {scenario}, seed {seed}: metric {metric} is {value}; \
                 help: measure a longer part of the run, or one with some load"
            ),
            Self::Missing { scenario, metric } => write!(
                f,
                "scenario {scenario}: metric {metric} has no value: nothing was measured; \
                 help: measure a longer part of the run, or one with some load"
            ),
        }
    }
}

impl std::error::Error for RunError {}

/// Runs a scenario for each of its seeds, on as many threads as are given and of use.
///
/// # Errors
/// A metric that is no number, or is checked and was not found.
pub fn run(scenario: &Scenario, threads: NonZeroUsize, progress: Progress<'_>) -> Result<Summary, RunError> {
    let all = run_each(&scenario.seeds, threads, progress, |seed, progress| match &scenario.experiment {
        Experiment::Fleet(plan) => fleet::run(plan, seed, progress),
        Experiment::Rollout(plan) => rollout::run(plan, seed, progress),
        Experiment::Shedding(plan) => shedding::run(plan, seed, progress),
        Experiment::Probes(plan) => probes::run(plan, seed, progress),
        Experiment::Quota(plan) => quota::run(plan, seed, progress),
        Experiment::Spill(plan) => spill::run(plan, seed, progress),
        Experiment::Subset(plan) => plan.run(seed, progress),
        Experiment::Tiers(plan) => tiers::run(plan, seed, progress),
        Experiment::Worked(plan) => plan.run(seed),
    });
    summarize(scenario, &all)
}

/// The findings of each seed, in the order of the seeds.
fn run_each(
    seeds: &[u64],
    threads: NonZeroUsize,
    progress: Progress<'_>,
    run_one: impl Fn(u64, &mut dyn FnMut(f64)) -> Findings + Sync,
) -> Vec<Findings> {
    let next = AtomicUsize::new(0);
    let slots: Vec<Mutex<Option<Findings>>> = seeds.iter().map(|_| Mutex::new(None)).collect();
    let done = Mutex::new(vec![0.0; seeds.len()]);
    let work = || {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(seed) = seeds.get(i) else { return };
            let findings = run_one(*seed, &mut |part| {
                let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                done[i] = part.clamp(0.0, 1.0);
                progress(done.iter().sum::<f64>() / seeds.len() as f64);
            });
            *slots[i].lock().unwrap_or_else(PoisonError::into_inner) = Some(findings);
        }
    };
    let threads = threads.min(MOST_THREADS).get().min(seeds.len());
    if threads == 1 {
        work();
    } else {
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(work);
            }
        });
    }
    let take = |slot: Mutex<Option<Findings>>| slot.into_inner().unwrap_or_else(PoisonError::into_inner);
    slots.into_iter().map(|slot| take(slot).expect("the scope ends when every seed was run")).collect()
}

fn summarize(scenario: &Scenario, all: &[Findings]) -> Result<Summary, RunError> {
    let metrics = merge_metrics(scenario, all)?;
    let checked = |check: &Check| {
        let found = match &check.over {
            None => with_spread(&metrics, &check.metric),
            Some(over) => with_spread(&ratios(scenario, all, &check.metric, over)?, &check.metric),
        };
        match found {
            Some((got, spread)) => Ok(Checked { check: check.clone(), got, spread }),
            None => Err(RunError::Missing { scenario: scenario.name.clone(), metric: check.name() }),
        }
    };
    Ok(Summary {
        scenario: scenario.name.clone(),
        seeds: scenario.seeds.clone(),
        checks: scenario.checks.iter().map(checked).collect::<Result<_, _>>()?,
        figures: merge_figures(&scenario.seeds, all)
            .into_iter()
            .map(|plotted| with_objectives(scenario, plotted))
            .collect(),
        metrics,
    })
}

/// The metric; of a single run its least and greatest value too, which are the value.
fn find(metrics: &BTreeMap<String, f64>, name: &str) -> Option<f64> {
    let plain = || EXTREMES.iter().find_map(|end| name.strip_suffix(end)).and_then(|name| metrics.get(name));
    metrics.get(name).or_else(plain).copied()
}

/// The metric, with its least and its greatest value.
fn with_spread(metrics: &BTreeMap<String, f64>, name: &str) -> Option<(f64, [f64; 2])> {
    let plain = EXTREMES.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    let [least, greatest] = EXTREMES.map(|end| find(metrics, &format!("{plain}{end}")));
    Some((find(metrics, name)?, [least?, greatest?]))
}

/// One metric over another, run by run, merged as metrics are.
fn ratios(scenario: &Scenario, all: &[Findings], metric: &str, over: &str) -> Result<BTreeMap<String, f64>, RunError> {
    let plain = EXTREMES.iter().find_map(|end| metric.strip_suffix(end)).unwrap_or(metric);
    let ratio = |findings: &Findings| {
        let mut ratio = Findings::default();
        let parts = findings.metrics.get(plain).zip(findings.metrics.get(over));
        ratio.metric(plain, parts.map(|(part, whole)| part / whole));
        ratio
    };
    let ratios: Vec<Findings> = all.iter().map(ratio).collect();
    merge_metrics(scenario, &ratios)
}

fn merge_metrics(scenario: &Scenario, all: &[Findings]) -> Result<BTreeMap<String, f64>, RunError> {
    let mut values: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (findings, seed) in all.iter().zip(&scenario.seeds) {
        for (metric, value) in &findings.metrics {
            if !value.is_finite() {
                let (scenario, metric) = (scenario.name.clone(), metric.clone());
                return Err(RunError::NotFinite { scenario, metric, seed: *seed, value: *value });
            }
            values.entry(metric).or_default().push(*value);
        }
    }
    let mut merged = BTreeMap::new();
    // What some of the runs could not measure has no mean and no extreme that all stand for.
    for (metric, values) in values.into_iter().filter(|(_, values)| values.len() == all.len()) {
        merged.insert(metric.to_owned(), values.iter().sum::<f64>() / values.len() as f64);
        if all.len() > 1 {
            let [least, greatest] = EXTREMES;
            merged.insert(format!("{metric}{least}"), values.iter().copied().fold(f64::INFINITY, f64::min));
            merged.insert(format!("{metric}{greatest}"), values.iter().copied().fold(f64::NEG_INFINITY, f64::max));
        }
    }
    Ok(merged)
}

fn merge_figures(seeds: &[u64], all: &[Findings]) -> Vec<Plotted> {
    let (Some(first), Some(seed)) = (all.first(), seeds.first()) else { return Vec::new() };
    let merge = |figure: &Figure| {
        let same = |findings: &Findings| findings.figures.iter().find(|other| is_alike(figure, other)).cloned();
        let alike: Vec<Figure> = all.iter().filter_map(same).collect();
        if all.len() == 1 {
            Plotted { figure: figure.clone(), of: Of::Only }
        } else if alike.len() == all.len() {
            let of = match figure.merge {
                Merge::Mean => Of::MeanOf(alike.len()),
                Merge::Max => Of::MaxOf(alike.len()),
            };
            Plotted { figure: merged(figure.clone(), &alike), of }
        } else {
            Plotted { figure: figure.clone(), of: Of::Seed(*seed) }
        }
    };
    first.figures.iter().map(merge).collect()
}

/// Whether the figures have the same series at the same horizontal positions.
fn is_alike(a: &Figure, b: &Figure) -> bool {
    let positions = |figure: &Figure| -> Vec<(String, Vec<f64>)> {
        let of = |points: &[(f64, f64)]| points.iter().map(|(x, _)| *x).collect();
        figure.series.iter().map(|series| (series.name.clone(), of(&series.points))).collect()
    };
    a.id == b.id && positions(a) == positions(b)
}

fn merged(mut figure: Figure, alike: &[Figure]) -> Figure {
    for (k, series) in figure.series.iter_mut().enumerate() {
        for (i, point) in series.points.iter_mut().enumerate() {
            let values = alike.iter().map(|other| other.series[k].points[i].1);
            point.1 = match figure.merge {
                Merge::Mean => values.sum::<f64>() / alike.len() as f64,
                Merge::Max => values.fold(f64::NEG_INFINITY, f64::max),
            };
        }
    }
    figure
}

/// The figure with a level at each upper bound that is checked for its metrics.
fn with_objectives(scenario: &Scenario, mut plotted: Plotted) -> Plotted {
    let Some(metric) = &plotted.figure.objective_of else { return plotted };
    let is_of = |check: &&Check| {
        let name = EXTREMES.iter().find_map(|end| check.metric.strip_suffix(end)).unwrap_or(&check.metric);
        check.over.is_none() && name.strip_suffix(&**metric).is_some_and(|arm| arm.ends_with('.'))
    };
    let mut bounds: Vec<f64> = scenario.checks.iter().filter(is_of).filter_map(|check| check.high).collect();
    bounds.sort_unstable_by(f64::total_cmp);
    bounds.dedup();
    let unit = &plotted.figure.y.unit;
    let levels = bounds.into_iter().map(|at| Level { at, label: format!("objective: {at} {unit}") });
    plotted.figure.levels.extend(levels.collect::<Vec<_>>());
    plotted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::{Axis, Series, SeriesKind};

    fn scenario(seeds: &[u64], metric: &str) -> Scenario {
        let text = format!(
            "name = \"test\"\nkind = \"subset\"\nseeds = {seeds:?}\n[[rows]]\nclients = 40\nbackends = 30\nsize = 4\n\
             [[checks]]\nmetric = \"{metric}\"\nlow = 0\nwhy = \"none\"\n"
        );
        Scenario::parse("test.toml", &text).unwrap_or_else(|error| panic!("{error}"))
    }

    fn threads(count: usize) -> NonZeroUsize {
        NonZeroUsize::new(count).expect("not zero")
    }

    fn findings(values: &[(&str, f64)]) -> Findings {
        let mut findings = Findings::default();
        values.iter().for_each(|(name, value)| findings.metric(*name, *value));
        findings
    }

    fn figure(points: &[(f64, f64)]) -> Figure {
        let axis = || Axis::linear("", "");
        let series =
            vec![Series { name: "a".to_owned(), kind: SeriesKind::Line, points: points.to_vec(), ..Series::default() }];
        Figure { id: "f".to_owned(), title: String::new(), x: axis(), y: axis(), series, ..Figure::default() }
    }

    #[test]
    fn any_number_of_threads_gives_the_same_bytes() {
        let scenario = scenario(&[5, 3, 9, 1, 7], "random.40x30x4.most");
        let alone = run(&scenario, threads(1), &|_| {}).unwrap();
        assert_eq!(alone.seeds, [5, 3, 9, 1, 7]);
        for count in [2, 3, 8] {
            let together = run(&scenario, threads(count), &|_| {}).unwrap();
            assert_eq!(crate::report::json(&together), crate::report::json(&alone));
            assert_eq!(together.figures, alone.figures);
        }
    }

    #[test]
    fn results_are_put_together_by_seed_whoever_ends_first() {
        // The first seed waits until all others are done.
        let others_done = std::sync::Barrier::new(2);
        let left = AtomicUsize::new(3);
        let all = run_each(&[1, 2, 3, 4], threads(2), &|_| {}, |seed, _| {
            if seed == 1 || left.fetch_sub(1, Ordering::Relaxed) == 1 {
                others_done.wait();
            }
            findings(&[("seed", seed as f64)])
        });
        let seeds: Vec<f64> = all.iter().map(|findings| findings.metrics["seed"]).collect();
        assert_eq!(seeds, [1.0, 2.0, 3.0, 4.0]);
    }

    #[test]
    fn progress_is_that_of_all_runs() {
        let told = Mutex::new(Vec::new());
        run_each(&[1, 2], threads(1), &|part| told.lock().unwrap().push(part), |_, progress| {
            progress(0.5);
            progress(1.0);
            Findings::default()
        });
        assert_eq!(*told.lock().unwrap(), [0.25, 0.5, 0.75, 1.0]);
    }

    #[test]
    fn several_seeds_have_a_mean_with_its_extremes() {
        let scenario = scenario(&[1, 2, 3], "random.40x30x4.most");
        let all = [1.0, 2.0, 6.0].map(|value| findings(&[("m", value)]));
        let merged = merge_metrics(&scenario, &all).unwrap();
        let expected = [("m", 3.0), ("m.max", 6.0), ("m.min", 1.0)].map(|(name, value)| (name.to_owned(), value));
        assert_eq!(merged, BTreeMap::from(expected));
    }

    #[test]
    fn an_extreme_of_a_single_run_is_its_value() {
        let scenario = scenario(&[1], "deterministic.40x30x4.least.min");
        let summary = run(&scenario, threads(1), &|_| {}).unwrap();
        assert_eq!(summary.checks[0].got, summary.metrics["deterministic.40x30x4.least"]);
    }

    #[test]
    fn check_has_the_spread_of_the_seeds_whatever_it_judges() {
        let mut scenario = scenario(&[1, 2], "random.40x30x4.most");
        let all = [findings(&[("m", 10.0), ("n", 1.0)]), findings(&[("m", 40.0), ("n", 8.0)])];
        let mut spread = |metric: &str, over: Option<&str>| {
            scenario.checks[0].metric = metric.to_owned();
            scenario.checks[0].over = over.map(str::to_owned);
            summarize(&scenario, &all).unwrap().checks[0].spread
        };
        assert_eq!([spread("m", None), spread("m.max", None)], [[10.0, 40.0]; 2]);
        assert_eq!(spread("m.min", Some("n")), [5.0, 10.0], "of the ratio");
    }

    #[test]
    fn a_ratio_is_taken_run_by_run() {
        let mut scenario = scenario(&[1, 2], "random.40x30x4.most");
        let all = [findings(&[("m", 10.0), ("n", 1.0)]), findings(&[("m", 40.0), ("n", 8.0)])];
        let mut got = |metric: &str, over: &str| {
            scenario.checks[0].metric = metric.to_owned();
            scenario.checks[0].over = Some(over.to_owned());
            summarize(&scenario, &all).map(|summary| summary.checks[0].got)
        };
        assert_eq!([got("m", "n"), got("m.min", "n"), got("m.max", "n")], [Ok(7.5), Ok(5.0), Ok(10.0)]);
        let missing = RunError::Missing { scenario: "test".to_owned(), metric: "m over k".to_owned() };
        assert_eq!(got("m", "k"), Err(missing));
    }

    #[test]
    fn what_is_no_number_is_an_error_that_names_it() {
        let scenario = scenario(&[1, 2], "random.40x30x4.most");
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let error = summarize(&scenario, &[findings(&[("m", 1.0)]), findings(&[("m", value)])]).unwrap_err();
            let text = error.to_string();
            assert!(text.starts_with(&format!("scenario test, seed 2: metric m is {value}")), "{text}");
        }
        let error = summarize(&scenario, &[findings(&[("m", 1.0)]), findings(&[("m", 1.0)])]).unwrap_err();
        assert!(error.to_string().contains("metric random.40x30x4.most has no value"), "{error}");
    }

    /// Runs in which nothing is ever asked, of each kind with time in it.
    const QUIET: [(&str, &str); 5] = [
        ("fleet", "arrivals = { kind = \"rate\", per_second = 1e-9 }\n[[backends]]\n"),
        ("shedding", "[[sources]]\nname = \"u\"\nrate = 1e-9\n"),
        ("tiers", "[[sources]]\nname = \"u\"\nrate = 1e-9\n[[tiers]]\nname = \"t\"\ncapacity = 100\n"),
        ("quota", "[[customers]]\nname = \"c\"\nlimit = 1\n[[sources]]\nname = \"u\"\ncustomer = \"c\"\nrate = 1e-9\n"),
        ("spill", "[[sources]]\nname = \"u\"\nrate = 1e-9\n[[localities]]\nname = \"l\"\ncapacity = 100\n"),
    ];

    /// What can be said of them: how much was asked, and simulated.
    const OF_NOTHING: [&str; 3] = ["requests", "tasks", "events"];

    #[test]
    fn where_nothing_happened_no_check_holds() {
        for (kind, settings) in QUIET {
            let with = |metric: &str| {
                let text = format!(
                    "name = \"quiet\"\nkind = \"{kind}\"\nseeds = [1]\nduration = \"10s\"\n{settings}[[arms]]\nname = \"a\"\n\
                     [[checks]]\nmetric = \"{metric}\"\nlow = 0\nwhy = \"none\"\n"
                );
                Scenario::parse("quiet.toml", &text).unwrap_or_else(|error| panic!("{error}"))
            };
            let summary = run(&with("a.events"), threads(1), &|_| {}).unwrap();
            let is_of_nothing = |name: &String| OF_NOTHING.iter().any(|metric| name.ends_with(metric));
            let said: Vec<&String> = summary.metrics.keys().filter(|name| !is_of_nothing(name)).collect();
            assert!(said.is_empty(), "{kind}: {said:?}");
            let metrics = match &with("a.events").experiment {
                Experiment::Fleet(plan) => fleet::metric_names(plan),
                Experiment::Shedding(plan) => shedding::metric_names(plan),
                Experiment::Quota(plan) => quota::metric_names(plan),
                Experiment::Spill(plan) => spill::metric_names(plan),
                Experiment::Tiers(plan) => tiers::metric_names(plan),
                Experiment::Subset(_) | Experiment::Worked(_) => unreachable!("no time passes in them"),
                Experiment::Probes(_) => unreachable!("clients always probe"),
                Experiment::Rollout(_) => unreachable!("requests always come"),
            };
            for metric in metrics.iter().filter(|name| !is_of_nothing(name)) {
                let error = run(&with(metric), threads(1), &|_| {}).unwrap_err();
                let missing = RunError::Missing { scenario: "quiet".to_owned(), metric: metric.clone() };
                assert_eq!(error, missing);
            }
        }
    }

    #[test]
    fn what_one_run_could_not_measure_is_not_that_of_the_others() {
        let scenario = scenario(&[1, 2], "random.40x30x4.most");
        let merged = merge_metrics(&scenario, &[findings(&[("m", 1.0), ("n", 2.0)]), findings(&[("m", 3.0)])]).unwrap();
        assert_eq!(merged.into_keys().collect::<Vec<_>>(), ["m", "m.max", "m.min"]);
    }

    #[test]
    fn figures_are_means_where_positions_agree_and_the_first_seeds_otherwise() {
        let with = |points: &[(f64, f64)]| Findings { figures: vec![figure(points)], ..Findings::default() };
        let alike = merge_figures(&[7, 8], &[with(&[(1.0, 2.0), (2.0, 4.0)]), with(&[(1.0, 4.0), (2.0, 8.0)])]);
        assert_eq!(alike, [Plotted { figure: figure(&[(1.0, 3.0), (2.0, 6.0)]), of: Of::MeanOf(2) }]);
        let other = merge_figures(&[7, 8], &[with(&[(1.0, 2.0)]), with(&[(1.5, 4.0)])]);
        assert_eq!(other, [Plotted { figure: figure(&[(1.0, 2.0)]), of: Of::Seed(7) }]);
        let only = merge_figures(&[7], &[with(&[(1.0, 2.0)])]);
        assert_eq!(only, [Plotted { figure: figure(&[(1.0, 2.0)]), of: Of::Only }]);
    }

    #[test]
    fn figure_of_the_worst_case_has_the_maximum_of_the_seeds() {
        let worst = |y| Figure { merge: Merge::Max, ..figure(&[(1.0, y)]) };
        let with = |y| Findings { figures: vec![worst(y)], ..Findings::default() };
        let merged = merge_figures(&[7, 8, 9], &[with(2.0), with(5.0), with(3.0)]);
        assert_eq!(merged, [Plotted { figure: worst(5.0), of: Of::MaxOf(3) }]);
    }

    #[test]
    fn upper_bound_of_a_check_is_a_level_of_the_figure_of_its_metric() {
        let levels = |metric: &str, bounds: &str, objective_of: &str| -> Vec<(f64, String)> {
            let mut scenario = scenario(&[1, 2], metric);
            let high = bounds.parse().ok();
            scenario.checks[0].high = high;
            let figure = Figure {
                y: Axis::linear("latency", "ms"),
                objective_of: Some(objective_of.to_owned()),
                ..Figure::default()
            };
            let plotted = with_objectives(&scenario, Plotted { figure, of: Of::MaxOf(2) });
            plotted.figure.levels.into_iter().map(|level| (level.at, level.label)).collect()
        };
        let drawn = [(250.0, "objective: 250 ms".to_owned())];
        assert_eq!(levels("random.40x30x4.most.max", "250", "40x30x4.most"), drawn);
        assert_eq!(levels("random.40x30x4.most", "250", "most"), drawn);
        assert_eq!(levels("random.40x30x4.most", "none", "most"), []);
        assert_eq!(levels("random.40x30x4.most", "250", "least"), []);
        assert_eq!(levels("random.40x30x4.most", "250", "ost"), [], "a part of a name");
    }
}
