//! The names of moments above a figure over time: where each stands, so that none covers another.

use super::plot::{TEXT, WIDTH, width};
use crate::findings::{Mark, MarkKind};

/// Free space between two names of a row, in pixels.
const GAP: i32 = 12;
/// From a mark's line to the name of a phase.
const BESIDE: i32 = 4;
/// Points at the line of an event.
const POINTER: char = '▾';
/// From the end of a name to the middle of its pointer, in pixels.
const HALF_POINTER: i32 = 5;

/// A name, by the pixel of one end and its row from the top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) text: String,
    pub(super) x: i32,
    /// Whether `x` is the right end.
    pub(super) ends: bool,
    pub(super) row: i32,
}

/// A place for the name of each mark, of which `x_of` gives the pixel. A name begins at its line,
/// or ends there where the figure has no space to the right; each takes the first row in which
/// there is space. The pointer of an event is at the line in both cases.
pub(super) fn places(marks: &[Mark], x_of: impl Fn(f64) -> i32) -> Vec<Place> {
    let mut rows: Vec<Vec<(i32, i32)>> = Vec::new();
    let mut place = |mark: &Mark| {
        let is_event = mark.kind == MarkKind::Event;
        let pointed = |ends: bool| match (is_event, ends) {
            (false, _) => mark.label.clone(),
            (true, false) => format!("{POINTER} {}", mark.label),
            (true, true) => format!("{} {POINTER}", mark.label),
        };
        let beside = if is_event { -HALF_POINTER } else { BESIDE };
        let (line, takes) = (x_of(mark.at), width(&pointed(false), TEXT) as i32);
        let ends = line + beside + takes > WIDTH as i32 && line - beside - takes >= 0;
        let x = if ends { line - beside } else { (line + beside).min(WIDTH as i32 - takes).max(0) };
        let (from, to) = if ends { (x - takes, x + GAP) } else { (x, x + takes + GAP) };
        let is_free = |row: &Vec<(i32, i32)>| row.iter().all(|(taken, until)| from >= *until || to <= *taken);
        let row = rows.iter().position(is_free).unwrap_or(rows.len());
        if row == rows.len() {
            rows.push(Vec::new());
        }
        rows[row].push((from, to));
        Place { text: pointed(ends), x, ends, row: row as i32 }
    };
    marks.iter().map(&mut place).collect()
}

/// How many rows the names take.
pub(super) fn rows(places: &[Place]) -> i32 {
    places.iter().map(|place| place.row + 1).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(at: f64, label: &str, kind: MarkKind) -> Mark {
        Mark { at, label: label.to_owned(), kind }
    }

    fn marks(of: &[(f64, &str)]) -> Vec<Mark> {
        of.iter().map(|(at, label)| mark(*at, label, MarkKind::Phase)).collect()
    }

    #[test]
    fn names_that_would_cover_each_other_stand_in_two_rows() {
        let of = marks(&[(0.0, "before"), (300.0, "after"), (300.0, "zone a: down"), (310.0, "more")]);
        let places = places(&of, |at| at as i32);
        assert_eq!(places.iter().map(|place| place.row).collect::<Vec<_>>(), [0, 0, 1, 2]);
        assert_eq!(rows(&places), 3);
    }

    #[test]
    fn name_at_the_end_of_the_axis_ends_at_its_line() {
        let of = [mark(700.0, "a name that is long", MarkKind::Phase), mark(700.0, "a long event", MarkKind::Event)];
        let places = places(&of, |at| at as i32);
        let shown: Vec<(&str, i32, bool)> = places.iter().map(|place| (&*place.text, place.x, place.ends)).collect();
        assert_eq!(shown, [("a name that is long", 696, true), ("a long event ▾", 705, true)]);
    }

    #[test]
    fn event_points_at_its_line() {
        let places = places(&[mark(300.0, "down", MarkKind::Event)], |at| at as i32);
        assert_eq!(places, [Place { text: "▾ down".to_owned(), x: 295, ends: false, row: 0 }]);
    }
}
