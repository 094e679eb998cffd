//! Which lines of a figure are dashed, so that none hides another.
//!
//! Two arms often give nearly the same numbers. Drawn on top of each other, only the last is seen,
//! and a reader takes the other one for missing. A line that runs along an earlier one is therefore
//! dashed, and a third line along both has shorter dashes: through the gaps all of them show. Lines
//! that merely cross stay solid.

/// Lines at most this far apart, in pixels, cover each other.
const NEAR: f64 = 3.0;
/// A line that is near another one over at least this share of its points would hide it.
const SHARE: f64 = 0.08;
/// Length of dashes and of gaps in pixels, by level. Level 0 is solid. No period is a multiple of
/// another one, so lines of two levels never cover each other throughout.
const PATTERNS: [(i32, i32); 6] = [(12, 7), (8, 12), (5, 16), (3, 14), (3, 20), (2, 24)];

/// The dashes of one level; `None` for a solid line.
pub(super) fn pattern(level: usize) -> Option<(i32, i32)> {
    level.checked_sub(1).map(|i| PATTERNS[i.min(PATTERNS.len() - 1)])
}

/// The level of each line, in pixels: 0 for a line that runs along none before it, else one more
/// than the highest of those.
pub(super) fn levels(lines: &[Vec<(f64, f64)>]) -> Vec<usize> {
    let mut levels: Vec<usize> = Vec::with_capacity(lines.len());
    for (k, line) in lines.iter().enumerate() {
        let below = (0..k).filter(|other| covers(line, &lines[*other])).map(|other| levels[other] + 1);
        levels.push(below.max().unwrap_or(0));
    }
    levels
}

fn covers(line: &[(f64, f64)], other: &[(f64, f64)]) -> bool {
    let near = line.iter().filter(|(x, y)| height(other, *x).is_some_and(|at| (at - y).abs() <= NEAR)).count();
    !line.is_empty() && near as f64 >= SHARE * line.len() as f64
}

/// The height of a line at `x`, between its points.
fn height(line: &[(f64, f64)], x: f64) -> Option<f64> {
    let after = line.partition_point(|(at, _)| *at < x);
    let (right, right_y) = *line.get(after)?;
    if right == x || after == 0 {
        return (right == x).then_some(right_y);
    }
    let (left, left_y) = line[after - 1];
    Some(left_y + (right_y - left_y) * (x - left) / (right - left))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(y: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        (0..=100).map(f64::from).map(|x| (x, y(x))).collect()
    }

    #[test]
    fn line_along_an_earlier_one_is_dashed_and_a_third_has_shorter_dashes() {
        let same = || line(|x| 50.0 + x);
        assert_eq!(levels(&[same(), same(), same()]), [0, 1, 2]);
        assert_eq!(levels(&[same(), line(|x| 52.0 + x)]), [0, 1], "two pixels beside it");
        assert!(pattern(1).unwrap().0 > pattern(2).unwrap().0 && pattern(0).is_none());
    }

    #[test]
    fn lines_that_cross_or_run_apart_are_solid() {
        assert_eq!(levels(&[line(|x| x), line(|x| 100.0 - x), line(|x| x + 10.0)]), [0, 0, 0]);
        assert_eq!(levels(&[Vec::new(), line(|x| x), vec![(500.0, 1.0)]]), [0, 0, 0]);
    }

    #[test]
    fn points_of_other_positions_are_compared_between_points() {
        assert_eq!(levels(&[vec![(0.0, 0.0), (100.0, 100.0)], line(|x| x)]), [0, 1]);
    }
}
