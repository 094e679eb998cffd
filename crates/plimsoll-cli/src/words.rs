//! The names of the API in plain words, with a glyph beside each colour.

use plimsoll_core::health::State;

/// A verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) glyph: &'static str,
    pub(crate) word: &'static str,
}

/// The word for a verdict; `None` is that of a cluster without a gate.
pub(crate) fn verdict(name: Option<&str>) -> Word {
    let (glyph, word) = match name {
        None => ("–", "no gate"),
        Some("fine") => ("✓", "fine"),
        Some("as-intended") => ("◒", "shedding as intended"),
        Some("capacity-short") => ("▲", "capacity short"),
        Some("users-affected") => ("✕", "users affected"),
        // Of a later version.
        Some(_) => ("…", "no verdict"),
    };
    Word { glyph, word }
}

/// The place of a verdict in the order from mild to bad; 0 for none.
pub(crate) fn rank(name: Option<&str>) -> usize {
    let known = ["fine", "as-intended", "capacity-short", "users-affected"];
    name.and_then(|name| known.iter().position(|each| *each == name)).map_or(0, |place| place + 1)
}

/// The state of a backend with this name; `None` for one of a later version.
pub(crate) fn state(name: &str) -> Option<State> {
    State::ALL.into_iter().find(|state| state.name() == name)
}

/// The glyph of a backend's state.
pub(crate) fn state_glyph(state: Option<State>) -> &'static str {
    match state {
        Some(State::Healthy) => "●",
        Some(State::Connecting) => "○",
        Some(State::LameDuck) => "◑",
        Some(State::Refusing) => "⊘",
        Some(State::Ejected) => "✕",
        None => "?",
    }
}

/// CPUs or requests a second, in five characters where possible.
pub(crate) fn number(value: f64) -> String {
    match value {
        v if v < 0.005 => "0".to_owned(),
        v if v < 10.0 => format!("{v:.2}"),
        v if v < 100.0 => format!("{v:.1}"),
        v if v < 10_000.0 => format!("{v:.0}"),
        v if v < 999_500.0 => format!("{:.0}k", v / 1e3),
        v => format!("{:.1}M", v / 1e6),
    }
}

/// A number that may be unknown.
pub(crate) fn known(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), number)
}

/// A share of one.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// A time in seconds, by its largest unit.
pub(crate) fn span(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7_200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.0} h", s / 3_600.0),
        s => format!("{:.0} d", s / 86_400.0),
    }
}

/// The time of day in UTC, for a moment in seconds since 1970.
pub(crate) fn clock(at: f64) -> String {
    let seconds = if at.is_finite() { at.max(0.0) as u64 % 86_400 } else { 0 };
    format!("{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn numbers_fit_a_column() {
        let shown = [0.0, 0.004, 0.5, 9.876, 98.76, 987.6, 9_876.0, 98_760.0, 9_876_000.0].map(number);
        assert_eq!(shown, ["0", "0", "0.50", "9.88", "98.8", "988", "9876", "99k", "9.9M"]);
    }

    #[test]
    fn times_have_one_unit() {
        assert_eq!([3.2, 119.0, 120.0, 7_200.0, 259_200.0].map(span), ["3 s", "119 s", "2 min", "2 h", "3 d"]);
        assert_eq!([0.0, 1_764_326_400.1, f64::NAN].map(clock), ["00:00:00", "10:40:00", "00:00:00"]);
    }

    #[test]
    fn each_state_has_a_glyph_of_its_own() {
        let glyphs: BTreeSet<_> = State::ALL.map(|of| state_glyph(state(of.name()))).into();
        assert!(glyphs.len() == State::ALL.len() && !glyphs.contains(state_glyph(state("of-a-later-version"))));
    }

    #[test]
    fn verdicts_are_ranked_from_mild_to_bad() {
        let order = [None, Some("fine"), Some("as-intended"), Some("capacity-short"), Some("users-affected")];
        assert_eq!(order.map(rank), [0, 1, 2, 3, 4]);
        let mut glyphs: Vec<_> = order.iter().map(|name| verdict(*name).glyph).collect();
        glyphs.dedup();
        assert_eq!(glyphs.len(), 5, "colour is not needed to tell them apart");
    }
}
