//! `plimsoll sim run`: one scenario, its results, and whether its checks hold.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use plimsoll_sim::report::{Table, all_metrics, json, overview_with_spread, range, short, svg};
use plimsoll_sim::run::{Checked, Summary, run as run_scenario};
use plimsoll_sim::scenario::Scenario;

use super::bar::Bar;
use super::{Running, scenarios};
use crate::exit::{Outcome, Verdict};
use crate::output::{errln, out};

/// Arguments of `plimsoll sim run`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Name of a built-in scenario, or a file that ends in .toml
    #[arg(value_name = "NAME|FILE")]
    scenario: String,
    #[command(flatten)]
    running: Running,
    /// Also print every metric with its unit, and with several seeds its lowest and highest value
    #[arg(long, conflicts_with = "json")]
    all: bool,
    /// Print JSON instead: {scenario, seeds, metrics, checks}, with every metric
    #[arg(long)]
    json: bool,
    /// Folder for NAME.json and the figures NAME-FIGURE.svg; created if missing
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
        out!("{}", text(&scenario, &summary, args.all))?;
        errln!("\n{}", speed(&summary, took));
    }
    Ok(verdict(&summary))
}

/// The duration of the run, and events per second of all threads together.
fn speed(summary: &Summary, took: Duration) -> String {
    let of_each_seed = summary.metrics.iter().filter(|(name, _)| name.ends_with(".events")).map(|(_, events)| events);
    let events = of_each_seed.sum::<f64>() * summary.seeds.len() as f64;
    let seconds = took.as_secs_f64();
    if events > 0.0 {
        format!("{seconds:.1} s, {:.1} million events/s", events / seconds / 1e6)
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
        write_file(&file, &svg(plotted))?;
    }
    Ok(())
}

/// Writes one file.
pub(super) fn write_file(file: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// Printed in place of checks for a file that has none.
const NOT_CHECKED: &str = "Nothing is checked: the file has no [[checks]].\n";

/// The results for a person: the overview, the checks, and with `all` every metric.
fn text(scenario: &Scenario, summary: &Summary, all: bool) -> String {
    let seeds: Vec<String> = summary.seeds.iter().map(u64::to_string).collect();
    let (plural, mean) = if seeds.len() == 1 { ("", "") } else { ("s", " (values are means)") };
    let mut text = format!("{}: {}\nseed{plural}: {}{mean}\n\n", scenario.name, scenario.title, seeds.join(", "));
    if let Some(overview) = overview_with_spread(scenario, summary) {
        text += &columns(&overview);
        text += "\n";
    }
    if summary.checks.is_empty() {
        text += NOT_CHECKED;
    } else {
        text += &columns(&checks(summary));
    }
    text += "\n";
    if all {
        text += &columns(&all_metrics(summary));
    } else {
        let count = all_metrics(summary).rows.len();
        text += &format!("--all prints all {count} metrics.\n");
    }
    text
}

fn checks(summary: &Summary) -> Table {
    let row = |checked: &Checked| {
        let mark = if checked.is_ok() { "ok" } else { "FAIL" };
        let check = &checked.check;
        vec![mark.to_owned(), check.name(), short(checked.got), range(check.low, check.high)]
    };
    // All left-aligned: the expected range is text.
    let headings = ["", "check", "got", "expected"].map(str::to_owned).to_vec();
    Table { headings, names: 4, rows: summary.checks.iter().map(row).collect() }
}

/// The table as text: columns of names to the left, columns of numbers to the right.
fn columns(table: &Table) -> String {
    let all = || std::iter::once(&table.headings).chain(&table.rows);
    let width = |column: usize| all().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..table.headings.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cell = |(column, (text, width)): (usize, (&String, &usize))| {
            if column < table.names { format!("{text:width$}") } else { format!("{text:>width$}") }
        };
        let cells: Vec<String> = row.iter().zip(&widths).enumerate().map(cell).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    all().map(line).collect()
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;

    const EXPLORED: &str = r#"
name = "explored"
kind = "fleet"
duration = "3s"
[[backends]]
count = 2
[[arms]]
name = "weighted"
"#;

    fn printed(seeds: Vec<u64>) -> (Summary, String) {
        let scenario = Scenario::parse("explored.toml", EXPLORED).expect("a good file").with_seeds(seeds);
        let summary = run_scenario(&scenario, NonZeroUsize::MIN, &|_| {}).expect("every metric is a number");
        let text = text(&scenario, &summary, false);
        (summary, text)
    }

    #[test]
    fn table_has_the_spread_below_the_mean_of_several_seeds() {
        let (summary, text) = printed(vec![1, 2, 3]);
        let cells = |name: &str| -> Vec<String> {
            let line = text.lines().find(|line| line.trim_start().starts_with(name)).expect("such a line");
            line.split_whitespace().map(str::to_owned).collect()
        };
        let p50 = |end: &str| format!("{:.1}", summary.metrics[&format!("weighted.p50{end}")]);
        assert_eq!(cells("weighted")[1], p50(""));
        assert_eq!(cells("min-max")[1], format!("{}-{}", p50(".min"), p50(".max")));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let (_, alone) = printed(vec![1]);
        assert!(!alone.contains("min-max"), "{alone}");
    }

    #[test]
    fn run_without_checks_says_that_nothing_is_checked() {
        let (summary, text) = printed(vec![1]);
        assert!(text.contains("Nothing is checked") && verdict(&summary) == Verdict::Good, "{text}");
        assert!(!text.contains("expected"), "no heading of checks without checks: {text}");
    }
}
