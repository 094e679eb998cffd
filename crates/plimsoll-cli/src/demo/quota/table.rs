//! The figures of the scene `quota` as text: of a phase under way, and of all phases at the end.

use std::fmt::Write as _;

use super::customer::{CUSTOMERS, GREEDY};
use super::phase::{CustomerResult, Phase, QuotaResult};
use super::stage::Stage;

/// The drawing of a phase under way.
pub(super) fn drawing(phase: &Phase, result: &QuotaResult) -> String {
    let stage = phase.stage();
    let server =
        if phase.is_server_lost() { "\n  the quota server is lost: tasks go on with their leases" } else { "" };
    format!("{}\n    look at {}\n{}{server}\n", headline(stage, phase.is_settling()), stage.look_at(), rows(result))
}

fn headline(stage: Stage, is_settling: bool) -> String {
    let note = if is_settling { " (settling)" } else { "" };
    format!("{}/{} {}{note}: {}", stage.number(), Stage::ALL.len(), stage.name(), stage.headline())
}

/// The same in one line.
pub(super) fn line(phase: &Phase, result: &QuotaResult) -> String {
    let note = if phase.is_settling() { " (settling)" } else { "" };
    let lost = if phase.is_server_lost() { ", no quota server" } else { "" };
    let acme = &result.customers[GREEDY];
    let others = result.customers.iter().enumerate().filter(|(at, _)| *at != GREEDY);
    let refused: Vec<String> = others.map(|(_, of)| format!("{} {}", of.name, percent(of.refused))).collect();
    format!(
        "{}{note}{lost}: {} uses {:.2} of {:.2} CPUs, refused {}, cut {}; refused {}\n",
        phase.stage().name(),
        acme.name,
        acme.used,
        acme.limit,
        percent(acme.refused),
        cut(acme),
        refused.join(", "),
    )
}

/// The results, for people.
pub(crate) fn summary(results: &[QuotaResult]) -> String {
    let stages = Stage::ALL.iter().zip(results);
    let texts: Vec<String> =
        stages.map(|(stage, result)| format!("{}\n{}\n", headline(*stage, false), rows(result))).collect();
    texts.join("\n")
}

fn rows(result: &QuotaResult) -> String {
    let mut text = String::new();
    let heads = ["limit", "offered", "used", "refused", "p99 ms"];
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "  {:<9} {:>6} {:>8} {:>8} {:>8} {:>8}  cut (admitted part)",
        "customer", heads[0], heads[1], heads[2], heads[3], heads[4]
    );
    for of in &result.customers {
        let number =
            |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
        let _ = writeln!(
            text,
            "  {:<9} {:>6.2} {:>8} {:>8.3} {:>8} {:>8}  {}",
            of.name,
            of.limit,
            number(of.offered, 3),
            of.used,
            percent(of.refused),
            number(of.p99_ms, 1),
            cut(of),
        );
        if of.cut.is_some() {
            let each = of.refused_by_criticality.iter().map(|(name, part)| format!("{name} {}", short_percent(*part)));
            let _ = writeln!(text, "  refused {}", each.collect::<Vec<_>>().join(", "));
        }
    }
    let (greedy, held) = (CUSTOMERS[GREEDY], &result.held);
    if !held.is_empty() {
        let parts: Vec<String> = held.iter().map(|held| format!("{:.0}", 100.0 * held / greedy.limit)).collect();
        let (name, count) = (greedy.name, held.iter().filter(|held| **held > 0.0).count());
        let _ = writeln!(
            text,
            "  {count} of {} backends hold parts of the limit of {name}, in %: {}",
            held.len(),
            parts.join(" ")
        );
    }
    if result.overloaded > 0 {
        let _ = writeln!(text, "  this machine is busy: backends shed {} requests by themselves", result.overloaded);
    }
    let QuotaResult { backends_cpus, requests_cpus, .. } = result;
    let _ = write!(text, "  CPUs of all backends: {backends_cpus:.2} by the kernel, {requests_cpus:.2} for requests");
    text
}

fn cut(of: &CustomerResult) -> String {
    of.cut.as_ref().map_or("-".to_owned(), |cut| format!("{} ({:.0}%)", cut.criticality, 100.0 * cut.admitted))
}

fn percent(part: Option<f64>) -> String {
    part.map_or("-".to_owned(), |part| format!("{:.1}%", 100.0 * part))
}

/// Without a digit that four parts in a line have no space for.
fn short_percent(part: Option<f64>) -> String {
    part.map_or(
        "-".to_owned(),
        |part| if part < 0.0995 { percent(Some(part)) } else { format!("{:.0}%", 100.0 * part) },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::quota::state::Cut;

    fn result(stage: Stage) -> QuotaResult {
        let names = ["critical-plus", "critical", "sheddable-plus", "sheddable"];
        let customer = |name| CustomerResult {
            name,
            limit: 0.2,
            offered: Some(0.6),
            used: 0.199,
            requests: 9_999,
            refused: Some(0.999),
            refused_by_criticality: names.map(|name| (name.to_owned(), Some(1.0))).to_vec(),
            cut: Some(Cut { criticality: "sheddable-plus".to_owned(), admitted: 1.0 }),
            p99_ms: Some(5_000.0),
        };
        QuotaResult {
            phase: stage.name(),
            backends_cpus: 0.6,
            requests_cpus: 0.5,
            held: vec![0.2; 8],
            overloaded: 99_999,
            failed: 0,
            customers: CUSTOMERS.map(|of| customer(of.name)).to_vec(),
        }
    }

    #[test]
    fn summary_fits_eighty_columns() {
        let text = summary(&Stage::ALL.map(result));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        for stage in Stage::ALL {
            assert!(text.contains(stage.headline()) && headline(stage, true).len() <= 80, "{text}");
        }
    }

    #[test]
    fn small_parts_keep_a_digit() {
        assert_eq!(
            [Some(0.0), Some(0.004), Some(0.0996), Some(1.0), None].map(short_percent),
            ["0.0%", "0.4%", "10%", "100%", "-"]
        );
    }
}
