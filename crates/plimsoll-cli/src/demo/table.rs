//! The figures of the scene `fleet` as text: of a phase under way, and of all phases at the end.

use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use super::fleet::Fleet;
use super::phase::{BalanceResult, OverloadResult, Phase, PhaseResult, Served, Usage};
use super::screen::Screen;
use super::stage::Stage;
use crate::load::tally::Group;

/// Columns before the bar of a row.
const BEFORE_BAR: usize = 64;
/// No bar is longer, however wide the terminal.
const MAX_BAR: usize = 60;
/// No bar at all below this.
const MIN_BAR: usize = 4;

/// The display of the scene `fleet`.
#[derive(Debug)]
pub(crate) struct Table {
    screen: Screen,
    criticalities: Vec<String>,
    /// All stages of the scene.
    stages: Vec<Stage>,
}

impl Table {
    /// On a screen, of a scene with these stages.
    pub(crate) fn new(screen: Screen, stages: Vec<Stage>) -> Self {
        Self { screen, criticalities: Vec::new(), stages }
    }

    /// Names of the groups of an overload stage.
    pub(crate) fn set_criticalities(&mut self, names: &[String]) {
        self.criticalities = names.to_vec();
    }

    /// Time between two calls of [`show`](Self::show).
    pub(crate) fn interval(&self) -> Duration {
        self.screen.interval()
    }

    /// Shows the current figures of the phase.
    pub(crate) fn show(&mut self, fleet: &Fleet, phase: &Phase, settling: bool) -> io::Result<()> {
        let (names, stages) = (&self.criticalities, &self.stages);
        self.screen.show(
            |width| headline(stages, phase.stage(), settling, &rows(fleet, phase, names, width)),
            || line(phase, settling, names),
        )
    }

    /// Leaves the last drawing in place; the next goes below it.
    pub(crate) fn keep(&mut self) -> io::Result<()> {
        self.screen.keep()
    }
}

fn headline(stages: &[Stage], stage: Stage, settling: bool, rows: &str) -> String {
    let note = if settling { " (settling)" } else { "" };
    let number = 1 + stages.iter().position(|other| *other == stage).unwrap_or(0);
    format!(
        "{number}/{} {}{note}: {}\n    look at {}\n{rows}",
        stages.len(),
        stage.name(),
        stage.headline(),
        stage.look_at(),
    )
}

fn rows(fleet: &Fleet, phase: &Phase, criticalities: &[String], width: usize) -> String {
    if phase.stage().is_overload() {
        overload_rows(phase, criticalities, width)
    } else {
        balance_rows(fleet, phase, width)
    }
}

fn balance_rows(fleet: &Fleet, phase: &Phase, width: usize) -> String {
    let usage = phase.live_usage();
    let total = usage.0.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    let record = phase.latest();
    let seconds = record.elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(text, "  {:<22} {:>6} {:>11} {:>8} {:>8}", "backend", "speed", "requests/s", "CPU", "share");
    for (member, cores) in fleet.members.iter().zip(&usage.0) {
        let name = member.address.to_string();
        let served = http::HeaderValue::from_str(&name).ok().and_then(|name| record.backends.get(&name).copied());
        let rate = served.unwrap_or(0) as f64 / seconds;
        let (percent, share, bar) = (cores * 100.0, cores / total * 100.0, bar(*cores, width));
        let _ = writeln!(text, "  {name:<22} {:>6} {rate:>11.0} {percent:>7.1}% {share:>7.1}%  {bar}", member.speed);
    }
    let _ = writeln!(text, "  {}", balance_figures(phase, &usage));
    text
}

fn overload_rows(phase: &Phase, criticalities: &[String], width: usize) -> String {
    let record = phase.latest();
    let seconds = record.elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
    let mut text = String::new();
    let heads = ["requests/s", "in time", "shed", "lost"];
    let _ = writeln!(text, "  {:<16} {:>11} {:>9} {:>9} {:>9}", "criticality", heads[0], heads[1], heads[2], heads[3]);
    let groups = criticalities.iter().enumerate();
    for (name, group) in groups.map(|(number, name)| (name.as_str(), Group::Criticality(number))) {
        let served = Served::of(name, group, record);
        let rate = served.requests as f64 / seconds;
        let bar = bar(served.in_time.unwrap_or(0.0), width);
        let (in_time, shed, lost) = (percent(served.in_time), percent(served.shed), percent(served.lost));
        let _ = writeln!(text, "  {name:<16} {rate:>11.0} {in_time:>9} {shed:>9} {lost:>9}  {bar}");
    }
    let _ = writeln!(text, "  {}", overload_figures(phase));
    text
}

/// A bar for a share of one.
fn bar(share: f64, width: usize) -> String {
    let longest = width.saturating_sub(BEFORE_BAR).min(MAX_BAR);
    if longest < MIN_BAR {
        return String::new();
    }
    "█".repeat((share * longest as f64).round().clamp(0.0, longest as f64) as usize)
}

fn percent(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), |share| format!("{:.1}%", 100.0 * share))
}

fn line(phase: &Phase, settling: bool, criticalities: &[String]) -> String {
    let note = if settling { " (settling)" } else { "" };
    let name = phase.stage().name();
    if phase.stage().is_overload() {
        let in_time: Vec<String> = criticalities
            .iter()
            .enumerate()
            .map(|(number, name)| Served::of(name, Group::Criticality(number), phase.latest()))
            .map(|served| format!("{} {}", served.name, percent(served.in_time)))
            .collect();
        return format!("{name}{note}: in time {}, {}\n", in_time.join(", "), overload_figures(phase));
    }
    let usage = phase.live_usage();
    let cpu: Vec<String> = usage.0.iter().map(|cores| format!("{:.0}%", cores * 100.0)).collect();
    format!("{name}{note}: CPU {}, {}\n", cpu.join(" "), balance_figures(phase, &usage))
}

fn balance_figures(phase: &Phase, usage: &Usage) -> String {
    let record = phase.latest();
    let spread = match usage.spread() {
        Some(spread) => format!("max/mean {:.2}, max/min {:.2}", spread.max_over_mean, spread.max_over_min),
        None => "no CPU used yet".to_owned(),
    };
    format!(
        "{spread}, {:.0}/s, p50 {:.1} ms, p99 {:.1} ms, {} failed",
        record.rate(),
        record.latency_ms(0.5),
        record.latency_ms(0.99),
        phase.failed(),
    )
}

fn overload_figures(phase: &Phase) -> String {
    let cores: f64 = phase.live_usage().0.iter().sum();
    let all = Served::of("all", Group::All, phase.latest());
    format!("service CPU {:.0}%, all requests: {} in time", 100.0 * cores, percent(all.in_time))
}

/// The results, for people.
pub(crate) fn summary(phases: &[PhaseResult]) -> String {
    let balance: Vec<&BalanceResult> = phases
        .iter()
        .filter_map(|phase| if let PhaseResult::Balance(result) = phase { Some(result) } else { None })
        .collect();
    let overload: Vec<&OverloadResult> = phases
        .iter()
        .filter_map(|phase| if let PhaseResult::Overload(result) = phase { Some(result) } else { None })
        .collect();
    balance_summary(&balance) + "\n" + &overload_summary(&overload)
}

fn balance_summary(phases: &[&BalanceResult]) -> String {
    let mut text = String::from("Balancing: CPU of the most loaded backend over the mean\n");
    let heads = ["max/mean", "max/min", "requests", "failed", "p50 ms", "p99 ms"];
    let _ = write!(text, "  {:<14}", "policy");
    for head in heads {
        let _ = write!(text, " {head:>9}");
    }
    text.push('\n');
    for phase in phases {
        let ratio = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
        let _ = writeln!(
            text,
            "  {:<14} {:>9} {:>9} {:>9} {:>9} {:>9.1} {:>9.1}",
            phase.phase,
            ratio(phase.max_over_mean),
            ratio(phase.max_over_min),
            phase.requests,
            phase.failed,
            phase.p50_ms,
            phase.p99_ms,
        );
    }
    text
}

fn overload_summary(phases: &[&OverloadResult]) -> String {
    let [unprotected, protected] = phases else { return String::new() };
    let mut text = format!(
        "Overload: {:.0} requests/s for a service of {:.0}, answered in time\n",
        protected.rate, protected.capacity
    );
    let heads = ["requests", "unprotected", "protected", "shed", "p99 ms"];
    let _ = write!(text, "  {:<14}", "criticality");
    for head in heads {
        let _ = write!(text, " {head:>11}");
    }
    text.push('\n');
    let before = unprotected.criticalities.iter().chain([&unprotected.all]);
    for (before, after) in before.zip(protected.criticalities.iter().chain([&protected.all])) {
        let p99 = after.p99_ms.map_or("-".to_owned(), |ms| format!("{ms:.0}"));
        let _ = writeln!(
            text,
            "  {:<14} {:>11} {:>11} {:>11} {:>11} {p99:>11}",
            after.name,
            after.requests,
            percent(before.in_time),
            percent(after.in_time),
            percent(after.shed),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(name: &str) -> Served {
        let half = Some(0.5);
        Served { name: name.to_owned(), requests: 99_999, in_time: half, shed: half, lost: None, p99_ms: Some(499.0) }
    }

    #[test]
    fn summary_fits_eighty_columns() {
        let balance = |phase| {
            PhaseResult::Balance(BalanceResult {
                phase,
                policy: phase,
                max_over_mean: Some(1.4),
                max_over_min: None,
                requests: 99_999,
                failed: 0,
                p50_ms: 1.0,
                p99_ms: 999.0,
            })
        };
        let overload = |phase| {
            PhaseResult::Overload(OverloadResult {
                phase,
                capacity: 200.0,
                rate: 600.0,
                all: served("all"),
                criticalities: vec![served("critical-plus"), served("sheddable-plus")],
            })
        };
        let text = summary(&[
            balance("round-robin"),
            balance("weighted"),
            overload("overload-unprotected"),
            overload("overload"),
        ]);
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(text.contains("critical-plus"), "{text}");
    }

    #[test]
    fn headline_of_each_stage_fits_eighty_columns() {
        for stage in Stage::ALL {
            let text = headline(&Stage::ALL, stage, true, "");
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        }
    }

    #[test]
    fn bar_leaves_room_for_the_figures() {
        assert_eq!(bar(1.0, 80).chars().count(), 16);
        assert_eq!(bar(0.5, 300).chars().count(), 30);
        assert_eq!(bar(1.0, 60), "");
    }
}
