//! The chart of ten minutes: admitted load as solid columns, shed load shaded above, and the load line.
//!
//! ```text
//! ╌╌╌╌░░░░╌╌  offered above the load line is shed
//! ▂▄▆█████▆▄  admitted
//! ```
//! A column is the mean of the seconds in it. The newest is on the right. A gap has no data.

use ratatui::text::{Line, Span};

use super::theme::Theme;
use crate::top::points::{Load, MAX_POINTS, Point, Points};
use crate::top::state::Unit;

const EIGHTHS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// One column: means, or nothing.
#[derive(Clone, Copy, Debug, Default)]
struct Column {
    load: Option<Load>,
    load_line: Option<f64>,
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

fn columns(points: &Points, unit: Unit, width: usize) -> Vec<Column> {
    let Some(end) = points.last().map(|point| point.at) else { return vec![Column::default(); width] };
    let step = (MAX_POINTS as f64 / width.max(1) as f64).max(1.0);
    let mut bins: Vec<Vec<&Point>> = vec![Vec::new(); width];
    for point in points.all() {
        let back = ((end - point.at) / step).max(0.0) as usize;
        if back < width {
            bins[width - 1 - back].push(point);
        }
    }
    let load = |point: &&Point| match unit {
        Unit::Cpus => point.cpus,
        Unit::Requests => point.qps,
    };
    let column = |bin: &Vec<&Point>| {
        let loads = || bin.iter().filter_map(load);
        let both = mean(loads().map(|load| load.offered)).zip(mean(loads().map(|load| load.admitted)));
        let load_line = if unit == Unit::Cpus { mean(bin.iter().filter_map(|point| point.load_line)) } else { None };
        Column { load: both.map(|(offered, admitted)| Load { offered, admitted }), load_line }
    };
    bins.iter().map(column).collect()
}

/// The chart, from its top line down. The first columns hold the top of the scale.
pub(super) fn chart(points: &Points, unit: Unit, width: usize, height: usize, theme: Theme) -> Vec<Line<'static>> {
    const SCALE: usize = 6;
    let columns = columns(points, unit, width.saturating_sub(SCALE));
    let highest = |column: &Column| column.load.map_or(0.0, |load| load.offered).max(column.load_line.unwrap_or(0.0));
    // A tenth of headroom shows the load line below the top.
    let top = columns.iter().map(highest).fold(0.0, f64::max) * 1.1;
    let rows = (0..height).map(|row| {
        let bottom = top * (height - 1 - row) as f64 / height as f64;
        let scale =
            if row == 0 { super::cells::right(&crate::words::number(top), SCALE - 1) } else { " ".repeat(SCALE - 1) };
        let mut spans = vec![Span::styled(scale + " ", theme.quiet())];
        spans.extend(columns.iter().map(|column| cell(column, bottom, top / height as f64, theme)));
        Line::from(spans)
    });
    rows.collect()
}

/// The part of a column between `bottom` and `bottom + size`.
fn cell(column: &Column, bottom: f64, size: f64, theme: Theme) -> Span<'static> {
    let has_load_line = column.load_line.is_some_and(|line| line > bottom && line <= bottom + size);
    let share = |value: f64| if size > 0.0 { ((value - bottom) / size).clamp(0.0, 1.0) } else { 0.0 };
    let (admitted, offered) = column.load.map_or((0.0, 0.0), |load| (share(load.admitted), share(load.offered)));
    let eighths = (admitted * 8.0).round() as usize;
    if eighths == 8 || eighths > 0 && offered - admitted < 0.25 {
        return Span::styled(EIGHTHS[eighths], theme.admitted());
    }
    // A cell has one style: the larger part of it counts.
    if offered >= 0.25 && offered - admitted >= admitted {
        return Span::styled("░", theme.shed());
    }
    if eighths > 0 {
        return Span::styled(EIGHTHS[eighths], theme.admitted());
    }
    if has_load_line { Span::styled("╌", theme.load_line()) } else { Span::raw(" ") }
}
