//! Which stretches of a line are dashed, so that none hides another.
//!
//! Two arms often give nearly the same numbers. Drawn on top of each other, only the last is seen,
//! and a reader takes the other one for missing. Where a line runs along an earlier one it is
//! therefore dashed, and a third line along both has shorter dashes: through the gaps all of them
//! show. Elsewhere lines are solid, and so are lines that merely cross.
//!
//! Earlier lines are stamped on a grid of pixels, each with its level and as wide as it hides
//! others. A line is walked pixel by pixel over that grid.

/// Lines at most this far apart, in pixels, hide each other.
const NEAR: i32 = 3;
/// Shorter stretches along another line stay solid, in pixels: about one dash and its gap.
const SHORTEST: f64 = 30.0;
/// Stretches no farther apart than this are one, in pixels, so that noise does not cut dashes.
const JOINED: f64 = 16.0;
/// Length of dashes and of gaps in pixels, by level. Level 0 is solid. No period is a multiple of
/// another one, so lines of two levels never cover each other throughout.
const PATTERNS: [(u32, u32); 6] = [(16, 10), (13, 20), (11, 28), (10, 37), (9, 44), (8, 53)];
/// A shorter piece at the end of a pattern is left out, in pixels: it would be a dot.
const SPECK: f64 = 2.0;

/// A part of a line, by the distance from the line's beginning in pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stretch {
    pub(super) from: f64,
    pub(super) to: f64,
    /// 0: solid; else the place of its dashes among the patterns, plus one.
    pub(super) level: usize,
}

/// The stretches of each line, given its corners in pixels. `least` has the lowest level of each
/// line: 1 for a line that is dashed throughout.
pub(super) fn stretches(lines: &[Vec<(f64, f64)>], least: &[usize]) -> Vec<Vec<Stretch>> {
    let mut grid = Grid::around(lines);
    let mut all = Vec::with_capacity(lines.len());
    for (line, least) in lines.iter().zip(least) {
        let walk = walk(line);
        let stretches = of_line(&walk, &grid, *least);
        for (at, place) in &walk {
            grid.stamp(*place, level_at(&stretches, *at));
        }
        all.push(stretches);
    }
    all
}

fn of_line(walk: &[(f64, (i32, i32))], grid: &Grid, least: usize) -> Vec<Stretch> {
    let length = walk.last().map_or(0.0, |(at, _)| *at);
    let mut parts: Vec<Stretch> = Vec::new();
    for (at, place) in walk {
        extend(&mut parts, *at, grid.level(*place));
    }
    // Short stretches by themselves between two along other lines belong to these.
    let mut joined: Vec<Stretch> = Vec::new();
    for (i, part) in parts.iter().enumerate() {
        let is_gap = part.level == 0 && part.length() <= JOINED && i > 0 && i + 1 < parts.len();
        let level = joined.last().filter(|_| is_gap).map_or(part.level, |last| last.level);
        extend(&mut joined, part.to, level);
    }
    if length == 0.0 {
        return vec![Stretch { from: 0.0, to: 0.0, level: least }];
    }
    let mut stretches: Vec<Stretch> = Vec::new();
    for run in joined.chunk_by(|a, b| (a.level == 0) == (b.level == 0)) {
        let is_crossing = run[run.len() - 1].to - run[0].from < SHORTEST.min(length);
        if run[0].level == 0 || is_crossing {
            extend(&mut stretches, run[run.len() - 1].to, least);
        } else {
            along(run, &mut |to, level| extend(&mut stretches, to, level.max(least)));
        }
    }
    stretches
}

/// The levels within one stretch along other lines, each given by its end. Levels that change at
/// once are one stretch with the highest of them, so that each is long enough for its dashes.
fn along(run: &[Stretch], push: &mut dyn FnMut(f64, usize)) {
    let mut last_level = None;
    let mut rest = run;
    while let Some(first) = rest.first() {
        let brief = rest.iter().take_while(|part| part.length() < SHORTEST).count();
        let taken = brief.max(1);
        let (part, after) = rest.split_at(taken);
        let to = part[taken - 1].to;
        let highest = part.iter().map(|part| part.level).max().unwrap_or(first.level);
        let is_short = to - first.from < SHORTEST;
        let level = match (is_short, last_level, after.first()) {
            (true, Some(last), _) => last,
            (true, None, Some(next)) => next.level,
            _ => highest,
        };
        push(to, level);
        last_level = Some(level);
        rest = after;
    }
}

/// Extends the stretches of a line to a distance, with a level.
fn extend(stretches: &mut Vec<Stretch>, to: f64, level: usize) {
    match stretches.last_mut() {
        Some(last) if last.level == level => last.to = to,
        last => {
            let from = last.map_or(0.0, |last| last.to);
            stretches.push(Stretch { from, to, level });
        }
    }
}

impl Stretch {
    fn length(&self) -> f64 {
        self.to - self.from
    }
}

/// The level of a line at a distance from its beginning.
pub(super) fn level_at(stretches: &[Stretch], at: f64) -> usize {
    stretches.iter().find(|stretch| at <= stretch.to).or(stretches.last()).map_or(0, |stretch| stretch.level)
}

/// The level of the greatest part of a line: its key in the legend has that.
pub(super) fn main_level(stretches: &[Stretch]) -> usize {
    let levels = 0..=stretches.iter().map(|stretch| stretch.level).max().unwrap_or(0);
    let length = |level: usize| {
        let of_it = stretches.iter().filter(|stretch| stretch.level == level);
        of_it.map(Stretch::length).sum::<f64>()
    };
    levels.max_by(|a, b| length(*a).total_cmp(&length(*b)).then(b.cmp(a))).unwrap_or(0)
}

/// The parts of a line that are drawn, each as its corners.
pub(super) fn pieces(line: &[(f64, f64)], stretches: &[Stretch]) -> Vec<Vec<(f64, f64)>> {
    let mut pieces = Vec::new();
    for stretch in stretches {
        let Some((dash, gap)) = pattern(stretch.level) else {
            pieces.push(cut(line, stretch.from, stretch.to));
            continue;
        };
        let mut from = stretch.from;
        while stretch.to - from >= SPECK {
            pieces.push(cut(line, from, (from + dash).min(stretch.to)));
            from += dash + gap;
        }
    }
    pieces
}

/// The dashes of a key in the legend, as ranges of its length: one at each end, so that it reads as
/// dashed, and the shorter the higher the level.
pub(super) fn key(level: usize, length: f64) -> Vec<(f64, f64)> {
    let Some((dash, _)) = pattern(level) else { return vec![(0.0, length)] };
    let dash = dash.min(0.4 * length).round();
    vec![(0.0, dash), (length - dash, length)]
}

/// The dash and the gap of one level; `None` for a solid line.
fn pattern(level: usize) -> Option<(f64, f64)> {
    let (dash, gap) = PATTERNS[level.checked_sub(1)?.min(PATTERNS.len() - 1)];
    Some((f64::from(dash), f64::from(gap)))
}

fn distance((x, y): (f64, f64), (other_x, other_y): (f64, f64)) -> f64 {
    (other_x - x).hypot(other_y - y)
}

/// The part of a line between two distances from its beginning.
fn cut(line: &[(f64, f64)], from: f64, to: f64) -> Vec<(f64, f64)> {
    let mut corners = Vec::new();
    let mut passed = 0.0;
    for pair in line.windows(2) {
        let length = distance(pair[0], pair[1]);
        let between = |at: f64| {
            let part = ((at - passed) / length).clamp(0.0, 1.0);
            (pair[0].0 + part * (pair[1].0 - pair[0].0), pair[0].1 + part * (pair[1].1 - pair[0].1))
        };
        if length > 0.0 && passed + length >= from && passed <= to {
            if corners.is_empty() {
                corners.push(between(from));
            }
            corners.push(between(to));
        }
        passed += length;
    }
    corners
}

/// The distance of each corner from the beginning of its line.
pub(super) fn distances(line: &[(f64, f64)]) -> Vec<f64> {
    let mut passed = 0.0;
    let steps = line.windows(2).map(|pair| distance(pair[0], pair[1]));
    std::iter::once(0.0)
        .chain(steps.map(|step| {
            passed += step;
            passed
        }))
        .take(line.len())
        .collect()
}

/// The points of a line, one for each pixel.
pub(super) fn pixels(line: &[(f64, f64)]) -> impl Iterator<Item = (f64, f64)> {
    walk(line).into_iter().map(|(_, (x, y))| (f64::from(x), f64::from(y)))
}

/// The pixels of a line, each with its distance from the beginning.
fn walk(line: &[(f64, f64)]) -> Vec<(f64, (i32, i32))> {
    let pixel = |(x, y): (f64, f64)| (x.round() as i32, y.round() as i32);
    let mut walk: Vec<_> = line.first().map(|first| (0.0, pixel(*first))).into_iter().collect();
    let mut passed = 0.0;
    for pair in line.windows(2) {
        let length = distance(pair[0], pair[1]);
        let steps = length.ceil();
        for step in 1..=steps as u32 {
            let part = f64::from(step) / steps;
            let at = |a: f64, b: f64| a + part * (b - a);
            walk.push((passed + part * length, pixel((at(pair[0].0, pair[1].0), at(pair[0].1, pair[1].1)))));
        }
        passed += length;
    }
    walk
}

/// For each pixel, one more than the highest level of the lines near it; 0 where none is.
struct Grid {
    left: i32,
    top: i32,
    width: i32,
    levels: Vec<u8>,
}

impl Grid {
    fn around(lines: &[Vec<(f64, f64)>]) -> Self {
        let ends = |values: &mut dyn Iterator<Item = f64>| {
            let (low, high) = values.fold((0.0_f64, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
            (low.floor() as i32 - NEAR, high.ceil() as i32 + NEAR)
        };
        let (left, right) = ends(&mut lines.iter().flatten().map(|(x, _)| *x));
        let (top, bottom) = ends(&mut lines.iter().flatten().map(|(_, y)| *y));
        let (width, height) = (right - left + 1, bottom - top + 1);
        Self { left, top, width, levels: vec![0; (width * height) as usize] }
    }

    fn index(&self, (x, y): (i32, i32)) -> usize {
        ((y - self.top) * self.width + x - self.left) as usize
    }

    fn level(&self, place: (i32, i32)) -> usize {
        usize::from(self.levels[self.index(place)])
    }

    /// Marks all pixels near `place` as those of a line of `level`.
    fn stamp(&mut self, (x, y): (i32, i32), level: usize) {
        let level = u8::try_from(level + 1).unwrap_or(u8::MAX);
        for dy in -NEAR..=NEAR {
            for dx in (-NEAR..=NEAR).filter(|dx| dx * dx + dy * dy <= NEAR * NEAR) {
                let index = self.index((x + dx, y + dy));
                self.levels[index] = self.levels[index].max(level);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(y: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        (0..=100).map(|i| f64::from(i) * 5.0).map(|x| (x, y(x))).collect()
    }

    fn levels(lines: &[Vec<(f64, f64)>]) -> Vec<Vec<usize>> {
        let of_line = |stretches: &Vec<Stretch>| stretches.iter().map(|stretch| stretch.level).collect();
        stretches(lines, &vec![0; lines.len()]).iter().map(of_line).collect()
    }

    #[test]
    fn line_along_an_earlier_one_is_dashed_and_a_third_has_shorter_dashes() {
        let same = || line(|x| 50.0 + x);
        assert_eq!(levels(&[same(), same(), same()]), [[0], [1], [2]]);
        assert_eq!(levels(&[same(), line(|x| 52.0 + x)]), [[0], [1]], "two pixels beside it");
        assert!(pattern(1).unwrap().0 > pattern(2).unwrap().0 && pattern(0).is_none());
    }

    #[test]
    fn line_is_dashed_only_where_an_earlier_one_is_near() {
        let parts = stretches(&[line(|_| 80.0), line(|x| if x < 250.0 { 80.0 } else { 80.0 + x - 250.0 })], &[0, 0]);
        let [along, apart] = parts[1][..] else { panic!("two stretches: {parts:?}") };
        assert_eq!((along.from, along.level, apart.level), (0.0, 1, 0));
        assert!((250.0..260.0).contains(&along.to) && along.to == apart.from, "{along:?}");
        assert_eq!(main_level(&parts[1]), 0, "most of it is solid");
        let third = stretches(&[line(|_| 80.0), line(|_| 80.0), line(|_| 80.0), line(|_| 10.0)], &[0; 4]);
        assert_eq!(third.iter().map(|parts| main_level(parts)).collect::<Vec<_>>(), [0, 1, 2, 0]);
    }

    #[test]
    fn lines_that_cross_or_run_apart_are_solid() {
        assert_eq!(levels(&[line(|x| x), line(|x| 500.0 - x), line(|x| x + 10.0)]), [[0], [0], [0]]);
        assert_eq!(levels(&[Vec::new(), line(|x| x), vec![(500.0, 1.0)]]), [[0], [0], [0]]);
    }

    #[test]
    fn points_of_other_positions_are_compared_between_points() {
        assert_eq!(levels(&[vec![(0.0, 0.0), (100.0, 100.0)], line(|x| x)])[1], [1, 0]);
    }

    #[test]
    fn dashes_follow_the_corners_and_leave_no_specks() {
        let corner = [(0.0, 0.0), (10.0, 0.0), (10.0, 18.0)];
        let all = |level, to| pieces(&corner, &[Stretch { from: 0.0, to, level }]);
        assert_eq!(all(0, 28.0), [corner]);
        assert_eq!(all(1, 28.0), [vec![(0.0, 0.0), (10.0, 0.0), (10.0, 6.0)], vec![(10.0, 16.0), (10.0, 18.0)]]);
        assert_eq!(all(1, 27.0).len(), 1, "one pixel would be left");
        assert_eq!(distances(&corner), [0.0, 10.0, 28.0]);
    }

    #[test]
    fn level_follows_the_lines_that_are_near() {
        let other = line(|x| if x < 250.0 { 20.0 } else { 80.0 });
        let parts = stretches(&[line(|_| 80.0), other, line(|_| 80.0)], &[0; 3]);
        assert_eq!(parts[2].iter().map(|part| part.level).collect::<Vec<_>>(), [1, 2], "{:?}", parts[2]);
        assert!((240.0..260.0).contains(&parts[2][0].to), "{:?}", parts[2]);
    }

    #[test]
    fn key_of_a_dashed_line_has_a_dash_at_each_end() {
        assert_eq!(key(0, 34.0), [(0.0, 34.0)]);
        assert_eq!(key(1, 34.0), [(0.0, 14.0), (20.0, 34.0)]);
        assert_eq!(key(6, 34.0), [(0.0, 8.0), (26.0, 34.0)]);
    }
}
