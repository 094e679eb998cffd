//! The names of moments above a figure over time: where each stands, so that none covers another.

use super::plot::{TEXT, WIDTH, width};
use crate::findings::Mark;

/// Free space between two names of a row, in pixels.
const GAP: i32 = 12;
/// From a mark's line to its name.
const BESIDE: i32 = 4;

/// A name, by its left end and its row from the top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) x: i32,
    pub(super) row: i32,
}

/// A place for the name of each mark, of which `x_of` gives the pixel. A name stands right of its
/// line, or further left where the figure ends; each takes the first row in which there is space.
pub(super) fn places(marks: &[Mark], x_of: impl Fn(f64) -> i32) -> Vec<Place> {
    let mut rows: Vec<Vec<(i32, i32)>> = Vec::new();
    let mut place = |mark: &Mark| {
        let takes = width(&mark.label, TEXT) as i32 + GAP;
        let x = (x_of(mark.at) + BESIDE).min(WIDTH as i32 - takes).max(0);
        let is_free = |row: &Vec<(i32, i32)>| row.iter().all(|(from, to)| x >= *to || x + takes <= *from);
        let row = rows.iter().position(is_free).unwrap_or(rows.len());
        if row == rows.len() {
            rows.push(Vec::new());
        }
        rows[row].push((x, x + takes));
        Place { x, row: row as i32 }
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
    use crate::findings::MarkKind;

    fn marks(of: &[(f64, &str)]) -> Vec<Mark> {
        let mark = |(at, label): &(f64, &str)| Mark { at: *at, label: (*label).to_owned(), kind: MarkKind::Phase };
        of.iter().map(mark).collect()
    }

    #[test]
    fn names_that_would_cover_each_other_stand_in_two_rows() {
        let of = marks(&[(0.0, "before"), (300.0, "after"), (300.0, "zone a: down"), (310.0, "more")]);
        let places = places(&of, |at| at as i32);
        assert_eq!(places.iter().map(|place| place.row).collect::<Vec<_>>(), [0, 0, 1, 2]);
        assert_eq!(rows(&places), 3);
    }

    #[test]
    fn name_at_the_end_of_the_axis_stays_within_the_figure() {
        let of = marks(&[(750.0, "a name that is long")]);
        let [place] = &places(&of, |at| at as i32)[..] else { panic!("one mark, one place") };
        assert!(place.x + width("a name that is long", TEXT) as i32 <= WIDTH as i32, "{place:?}");
    }
}
