//! The moments that a fleet's figures over time mark: beginnings of phases, and the events of the
//! timeline.

use std::time::Duration;

use super::plan::{Arm, BackendGroup, Change, Conduct, Plan, Selection, SourceState};
use crate::experiment::windows;
use crate::findings::{Mark, MarkKind};

/// Phases first, then events; with `arm`, also the switches of that arm.
pub(super) fn marks(plan: &Plan, arm: Option<&Arm>) -> Vec<Mark> {
    let mut marks = windows::marks(&plan.phases);
    let event = |at: Duration, label: String| Mark { at: at.as_secs_f64(), label, kind: MarkKind::Event };
    marks.extend(plan.timeline.iter().map(|happening| event(happening.at, label(&happening.change))));
    let switches = arm.into_iter().flat_map(|arm| &arm.switches);
    marks.extend(switches.map(|switch| event(switch.at, format!("switch to {}", switch.balancer.policy.name()))));
    marks
}

fn label(change: &Change) -> String {
    match change {
        Change::Conduct { backends, conduct } => format!("{}{}", of(backends), words(*conduct)),
        Change::Restart { backends, restart } if restart.stagger.is_zero() => format!("{}restart", of(backends)),
        Change::Restart { backends, restart } => {
            format!("{}a restart every {}", of(backends), spaced(restart.stagger))
        }
        Change::Antagonist { backends, .. } => format!("{}new antagonist", of(backends)),
        Change::Speed { backends, factor } => format!("{}speed ×{factor}", of(backends)),
        Change::AddBackends { group: BackendGroup { name, count, .. } } => format!("{name}: +{count} backends"),
        Change::RemoveBackends { backends } => format!("{}removed", of(backends)),
        Change::Source { state, lasts } => format!("source {} for {}", answers(*state), spaced(*lasts)),
        Change::AddClients { count } => format!("+{count} clients"),
        Change::RemoveClients { count } => format!("−{count} clients"),
    }
}

/// A duration with a space before each unit, as in `2 s`.
fn spaced(duration: Duration) -> String {
    let mut text = String::new();
    for character in humantime::format_duration(duration).to_string().chars() {
        if character.is_alphabetic() && text.ends_with(|last: char| last.is_ascii_digit()) {
            text.push(' ');
        }
        text.push(character);
    }
    text
}

/// The selected backends as the beginning of a name; empty for all.
fn of(selection: &Selection) -> String {
    let Selection { group, zone, count, .. } = selection;
    let part = match (group, zone) {
        (Some(group), Some(zone)) => Some(format!("{group} in {zone}")),
        (Some(name), None) => Some(name.clone()),
        (None, Some(zone)) => Some(format!("zone {zone}")),
        (None, None) => None,
    };
    match (part, count) {
        (Some(part), None) => format!("{part}: "),
        (Some(part), Some(count)) => format!("{count} of {part}: "),
        (None, Some(count)) if count.get() == 1 => "1 backend: ".to_owned(),
        (None, Some(count)) => format!("{count} backends: "),
        (None, None) => String::new(),
    }
}

fn answers(state: SourceState) -> &'static str {
    match state {
        SourceState::Complete => "complete",
        SourceState::Third => "lists a third",
        SourceState::Empty => "lists nothing",
        SourceState::Error => "fails",
    }
}

fn words(conduct: Conduct) -> String {
    match conduct {
        Conduct::Serve => "restored".to_owned(),
        Conduct::Err(share) => format!("{}% failures", (100.0 * share.as_f64()).round()),
        Conduct::FailFast => "fast failures".to_owned(),
        Conduct::Overloaded => "overloaded".to_owned(),
        Conduct::Hang => "hangs".to_owned(),
        Conduct::LameDuck => "lame duck".to_owned(),
        Conduct::Down => "down".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::fleet::plan::{Cold, Restart};

    #[test]
    fn event_names_its_backends_unless_it_concerns_all() {
        let stagger = |seconds| Restart {
            lame_duck: Duration::ZERO,
            down: Duration::ZERO,
            cold: Cold::default(),
            stagger: Duration::from_secs(seconds),
        };
        let restart = |backends, seconds| label(&Change::Restart { backends, restart: stagger(seconds) });
        let zone = || Selection { zone: Some("a".to_owned()), ..Selection::default() };
        assert_eq!(restart(Selection::default(), 2), "a restart every 2 s");
        assert_eq!(restart(zone(), 90), "zone a: a restart every 1 m 30 s");
        assert_eq!(label(&Change::Conduct { backends: zone(), conduct: Conduct::Down }), "zone a: down");
    }
}
