//! `plimsoll sim run`: one scenario, its metrics, and whether they are as expected.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use plimsoll_sim::report::{json, range, short, svg};
use plimsoll_sim::run::{Summary, run as run_scenario};
use plimsoll_sim::scenario::{EXTREMES, Scenario};

use super::bar::Bar;
use super::{Running, scenarios};
use crate::exit::{Outcome, Verdict};
use crate::output::{errln, out};

/// Arguments of `plimsoll sim run`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The name of a scenario that comes with the binary, or a file that ends in .toml
    #[arg(value_name = "NAME|FILE")]
    scenario: String,
    #[command(flatten)]
    running: Running,
    /// JSON on stdout: {scenario, seeds, metrics, checks}
    #[arg(long)]
    json: bool,
    /// Where to write NAME.json and a NAME-FIGURE.svg for each figure; made if it is not there
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Runs it.
pub(super) fn run(args: &Args) -> Outcome {
    let Some(scenario) = scenarios::find(&args.scenario)? else { return Ok(Verdict::Bad) };
    let scenario = args.running.seeded(scenario);
    let began = Instant::now();
    let summary = summarize(&scenario, &args.running)?;
    let took = began.elapsed();
    if let Some(folder) = &args.out {
        write(folder, &summary)?;
    }
    if args.json {
        out!("{}", json(&summary))?;
    } else {
        out!("{}", table(&scenario, &summary))?;
        errln!("\n{}", speed(&summary, took));
    }
    Ok(verdict(&summary))
}

/// How long it took, and how many events that is a second, all threads together.
fn speed(summary: &Summary, took: Duration) -> String {
    let of_each_seed = summary.metrics.iter().filter(|(name, _)| name.ends_with(".events")).map(|(_, events)| events);
    let events = of_each_seed.sum::<f64>() * summary.seeds.len() as f64;
    let seconds = took.as_secs_f64();
    if events > 0.0 {
        format!("{seconds:.1} s, {:.1} million events a second", events / seconds / 1e6)
    } else {
        format!("{seconds:.1} s")
    }
}

/// Runs a scenario, with a bar.
pub(super) fn summarize(scenario: &Scenario, running: &Running) -> anyhow::Result<Summary> {
    let bar = Bar::new(&scenario.name);
    Ok(run_scenario(scenario, running.threads(), &|part| bar.set(part))?)
}

/// Whether all checks hold.
pub(super) fn verdict(summary: &Summary) -> Verdict {
    if summary.is_ok() { Verdict::Good } else { Verdict::Bad }
}

/// Writes `NAME.json`, and `NAME-FIGURE.svg` for each figure.
pub(super) fn write(folder: &Path, summary: &Summary) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let name = &summary.scenario;
    write_file(&folder.join(format!("{name}.json")), &json(summary))?;
    for plotted in &summary.figures {
        let file = folder.join(format!("{name}-{}.svg", plotted.figure.id));
        write_file(&file, &svg(&plotted.figure))?;
    }
    Ok(())
}

/// Writes one file.
pub(super) fn write_file(file: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// What a person wants to see: the checks, and all metrics.
fn table(scenario: &Scenario, summary: &Summary) -> String {
    let seeds: Vec<String> = summary.seeds.iter().map(u64::to_string).collect();
    let mut text = format!("{}: {}\nseeds: {}\n\n", scenario.name, scenario.title, seeds.join(", "));
    let rows = summary.checks.iter().map(|checked| {
        let check = &checked.check;
        let mark = if checked.is_ok() { "ok" } else { "FAIL" };
        [mark.to_owned(), check.name(), short(checked.got), range(check.low, check.high)]
    });
    text +=
        &columns(&[["", "check", "got", "expected"].map(str::to_owned)].into_iter().chain(rows).collect::<Vec<_>>());
    text += "\n";
    text += &metrics(summary);
    text
}

/// All metrics; of several seeds with the least and the greatest value beside the mean.
fn metrics(summary: &Summary) -> String {
    let value = |name: &str| summary.metrics.get(name).copied().map(short).unwrap_or_default();
    if summary.seeds.len() == 1 {
        let rows = summary.metrics.keys().map(|name| [name.clone(), value(name)]);
        return columns(&[["metric", "value"].map(str::to_owned)].into_iter().chain(rows).collect::<Vec<_>>());
    }
    let extremes = |name: &str| EXTREMES.map(|end| format!("{name}{end}"));
    let is_mean = |name: &&String| extremes(name).iter().all(|extreme| summary.metrics.contains_key(extreme));
    let rows = summary.metrics.keys().filter(is_mean).map(|name| {
        let [least, greatest] = extremes(name);
        [name.clone(), value(name), value(&least), value(&greatest)]
    });
    columns(&[["metric", "mean", "min", "max"].map(str::to_owned)].into_iter().chain(rows).collect::<Vec<_>>())
}

/// Rows with their cells below each other.
fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}
