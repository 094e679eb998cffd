//! How the demo shows itself: a table that is redrawn on a terminal, plain lines elsewhere.
//!
//! Always on stderr, so that stdout holds the result alone.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};

use crossterm::cursor::MoveToPreviousLine;
use crossterm::queue;
use crossterm::terminal::{Clear, ClearType};

use super::fleet::Fleet;
use super::phase::{Phase, PhaseResult, Usage};

/// Width of the bar of a backend that uses a whole core.
const BAR: f64 = 60.0;

/// The display.
#[derive(Debug)]
pub(crate) struct Table {
    live: bool,
    /// Lines of the last drawing, to be drawn over.
    drawn: u16,
}

impl Table {
    /// On a terminal, if stderr is one.
    pub(crate) fn new() -> Self {
        Self { live: io::stderr().is_terminal(), drawn: 0 }
    }

    /// Whether a drawing replaces the last one, so that it may come often.
    pub(crate) fn is_live(&self) -> bool {
        self.live
    }

    /// Shows the phase as it stands.
    pub(crate) fn show(&mut self, fleet: &Fleet, phase: &Phase, settling: bool) -> io::Result<()> {
        let text = if self.live { table(fleet, phase, settling) } else { line(phase, settling) };
        self.draw(&text)?;
        if self.live {
            self.drawn = text.lines().count().try_into().unwrap_or(0);
        }
        Ok(())
    }

    /// Leaves the last drawing where it is; the next goes below it.
    pub(crate) fn keep(&mut self) -> io::Result<()> {
        self.drawn = 0;
        if self.live { self.draw("\n") } else { Ok(()) }
    }

    fn draw(&self, text: &str) -> io::Result<()> {
        let mut stderr = io::stderr().lock();
        if self.drawn > 0 {
            queue!(stderr, MoveToPreviousLine(self.drawn), Clear(ClearType::FromCursorDown))?;
        }
        stderr.write_all(text.as_bytes())?;
        stderr.flush()
    }
}

fn table(fleet: &Fleet, phase: &Phase, settling: bool) -> String {
    let usage = phase.live_usage();
    let total = usage.0.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    let record = phase.latest();
    let seconds = record.elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
    let mut text = String::new();
    let note = if settling { "   (settling)" } else { "" };
    // Writing to a string does not fail.
    let _ = writeln!(text, "policy {}{note}", phase.policy().name());
    let _ = writeln!(text, "  {:<22} {:>5} {:>11} {:>8} {:>7}", "backend", "speed", "requests/s", "CPU", "share");
    for (member, cores) in fleet.members.iter().zip(&usage.0) {
        let name = member.address.to_string();
        let served = http::HeaderValue::from_str(&name).ok().and_then(|name| record.backends.get(&name).copied());
        let rate = served.unwrap_or(0) as f64 / seconds;
        let bar = "█".repeat((cores * BAR).round().clamp(0.0, BAR) as usize);
        let (percent, share) = (cores * 100.0, cores / total * 100.0);
        let _ = writeln!(text, "  {name:<22} {:>5} {rate:>11.0} {percent:>7.1}% {share:>6.1}%  {bar}", member.speed);
    }
    let _ = writeln!(text, "  {}", figures(phase, &usage));
    text
}

fn line(phase: &Phase, settling: bool) -> String {
    let usage = phase.live_usage();
    let note = if settling { " (settling)" } else { "" };
    let cpu: Vec<String> = usage.0.iter().map(|cores| format!("{:.0}%", cores * 100.0)).collect();
    format!("{}{note}: CPU {}, {}\n", phase.policy().name(), cpu.join(" "), figures(phase, &usage))
}

fn figures(phase: &Phase, usage: &Usage) -> String {
    let record = phase.latest();
    let spread = match usage.spread() {
        Some(spread) => format!("max/mean {:.2}, max/min {:.2}", spread.max_over_mean, spread.max_over_min),
        None => "no CPU used yet".to_owned(),
    };
    format!(
        "{spread}, {:.0} requests/s, p50 {:.1} ms, p99 {:.1} ms, {} failed",
        record.rate(),
        record.latency_ms(0.5),
        record.latency_ms(0.99),
        phase.failed(),
    )
}

/// The results, for people.
pub(crate) fn summary(phases: &[PhaseResult]) -> String {
    let mut text = String::new();
    let heads = ["CPU max/mean", "max/min", "requests", "failed", "p50 ms", "p99 ms"];
    let _ = write!(text, "{:<14}", "policy");
    for head in heads {
        let _ = write!(text, " {head:>12}");
    }
    text.push('\n');
    for phase in phases {
        let ratio = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
        let _ = writeln!(
            text,
            "{:<14} {:>12} {:>12} {:>12} {:>12} {:>12.1} {:>12.1}",
            phase.policy,
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
