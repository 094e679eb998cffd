//! A figure as SVG.
//!
//! Lines and text have the colour of the text around (`currentColor`), and the colours of series are of middling lightness, so
//! a figure can be read on a light page, on a dark one and in print. The drawing library knows fixed colours only: it
//! is given a colour that nothing else has, which is replaced in what it wrote.
//!
//! The legend stands above the plot, where it hides nothing.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::ticks::Ruler;
use crate::findings::{Axis, Figure, Series, SeriesKind};

/// Width of a figure, in pixels.
pub(super) const WIDTH: u32 = 760;
/// Height of the plot with its axes, in pixels; title and legend come on top.
const PLOT_HEIGHT: u32 = 340;
/// Room for the marks of the axes, in pixels.
const MARKS_BELOW: u32 = 48;
const MARKS_LEFT: u32 = 72;
/// Sizes of text in the library's units, of which 1.24 are a pixel.
const TEXT: f64 = 16.0;
const TITLE: f64 = 19.0;
/// Mean width of a character of sans-serif text, as a part of its size.
const CHARACTER: f64 = 0.56;
const PIXELS_PER_UNIT: f64 = 1.0 / 1.24;
const LEGEND_ROW: i32 = 21;
/// A line with at most so many points shows them.
const MANY_POINTS: usize = 30;
/// Share of the room between two positions that their bars fill.
const BARS_FILL: f64 = 0.8;

/// Stands for the colour of the text around.
const INK: RGBColor = RGBColor(1, 2, 3);
/// As the library writes it.
const INK_WRITTEN: &str = "#010203";
/// Told apart by people with any kind of colour vision as far as eight colours can be, and with a contrast of at least
/// 3:1 against both white and near black.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0x2f, 0x7f, 0xd1),
    RGBColor(0xd5, 0x6b, 0x00),
    RGBColor(0x1f, 0x95, 0x67),
    RGBColor(0xc9, 0x52, 0x94),
    RGBColor(0x7d, 0x6f, 0xd6),
    RGBColor(0xa8, 0x7a, 0x1c),
    RGBColor(0x1a, 0x96, 0xa6),
    RGBColor(0x80, 0x86, 0x8f),
];

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Ruler, Ruler>>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// The figure as an SVG document.
#[must_use]
pub fn svg(figure: &Figure) -> String {
    let title = wrap(&figure.title);
    let legend = legend_places(figure);
    let title_height = 8 + 24 * title.len() as u32;
    let legend_rows = legend.last().map_or(0, |(_, (_, row))| row + 1);
    let top = title_height + (legend_rows * LEGEND_ROW) as u32 + 4;
    let mut text = String::new();
    {
        let root = SVGBackend::with_string(&mut text, (WIDTH, top + PLOT_HEIGHT)).into_drawing_area();
        draw(&root, figure, &title, &legend, (title_height, top)).expect("writing to a string does not fail");
    }
    let label = format!("role=\"img\" aria-label=\"{}\" viewBox=", super::page::escape(&figure.title));
    text.replace(INK_WRITTEN, "currentColor").replacen("viewBox=", &label, 1)
}

fn draw(
    root: &DrawingArea<SVGBackend<'_>, Shift>,
    figure: &Figure,
    title: &[String],
    legend: &[(&Series, (i32, i32))],
    (title_height, top): (u32, u32),
) -> Drawn {
    let heading = style(TITLE).pos(Pos::new(HPos::Left, VPos::Top));
    for (i, line) in title.iter().enumerate() {
        root.draw(&Text::new(line.clone(), (8, 6 + 24 * i as i32), heading.clone()))?;
    }
    for (k, (series, (x, row))) in legend.iter().enumerate() {
        let y = title_height as i32 + row * LEGEND_ROW + LEGEND_ROW / 2;
        key(root, series, k, (*x, y))?;
        let text = style(TEXT).pos(Pos::new(HPos::Left, VPos::Center));
        root.draw(&Text::new(series.name.clone(), (x + 26, y), text))?;
    }
    let (_, below) = root.split_vertically(top);
    let all = || figure.series.iter().flat_map(|series| &series.points);
    let bars = figure.series.iter().any(|series| series.kind == SeriesKind::Bars);
    let half = if bars { bar_room(figure) / 2.0 } else { 0.0 };
    let xs = all().flat_map(|(x, _)| [x - half, x + half]);
    // Bars stand on zero.
    let ys = all().map(|(_, y)| *y).chain(bars.then_some(0.0));
    let (mut x, y) = (Ruler::horizontal(xs, figure.x.scale), Ruler::vertical(ys, figure.y.scale));
    if bars {
        // Between two bars there is nothing to be marked.
        x.marks.retain(|(at, _)| all().any(|(x, _)| (x - at).abs() < 1e-9));
        x.marks.iter_mut().for_each(|(at, text)| *text = at.to_string());
    }
    let mut chart = ChartBuilder::on(&below)
        .margin_left(6)
        .margin_right(24)
        .margin_top(8)
        .x_label_area_size(MARKS_BELOW)
        .y_label_area_size(MARKS_LEFT)
        .build_cartesian_2d(x.clone(), y.clone())?;
    mesh(&mut chart, figure)?;
    let bar_count = figure.series.iter().filter(|series| series.kind == SeriesKind::Bars).count();
    let mut bar = 0;
    for (k, series) in figure.series.iter().enumerate() {
        match series.kind {
            SeriesKind::Line => line(&mut chart, &places(&series.points, &x, &y), k, true)?,
            SeriesKind::Steps => line(&mut chart, &places(&steps(&series.points), &x, &y), k, false)?,
            SeriesKind::Points => dots(&mut chart, &places(&series.points, &x, &y), k)?,
            SeriesKind::Bars => {
                let width = bar_room(figure) * BARS_FILL / bar_count as f64;
                let left = (bar as f64 - bar_count as f64 / 2.0) * width;
                let shifted: Vec<(f64, f64)> = series.points.iter().map(|(x, y)| (x + left, *y)).collect();
                columns(&mut chart, &shifted, width, (&x, &y), k)?;
                bar += 1;
            }
        }
    }
    root.present()
}

/// The least distance between two positions with bars; what a bar and its neighbours share.
fn bar_room(figure: &Figure) -> f64 {
    let bars = figure.series.iter().filter(|series| series.kind == SeriesKind::Bars);
    let mut xs: Vec<f64> = bars.flat_map(|series| &series.points).map(|(x, _)| *x).collect();
    xs.sort_by(f64::total_cmp);
    let least = xs.windows(2).map(|pair| pair[1] - pair[0]).filter(|gap| *gap > 0.0).fold(f64::INFINITY, f64::min);
    if least.is_finite() { least } else { 1.0 }
}

impl Ranged for Ruler {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, place: &f64, (start, end): (i32, i32)) -> i32 {
        let part = (place - self.low) / (self.high - self.low);
        start + (part * f64::from(end - start)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.marks.iter().map(|(place, _)| *place).collect()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Ruler {
    fn format_ext(&self, place: &f64) -> String {
        let mark = self.marks.iter().find(|(mark, _)| mark == place);
        mark.map(|(_, text)| text.clone()).unwrap_or_default()
    }
}

/// The points that have a place on both axes.
fn places(points: &[(f64, f64)], x: &Ruler, y: &Ruler) -> Vec<(f64, f64)> {
    points.iter().filter_map(|(at, value)| Some((x.place(*at)?, y.place(*value)?))).collect()
}

/// The corners of a line on which each value holds until the next.
fn steps(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut corners: Vec<(f64, f64)> = Vec::with_capacity(points.len() * 2);
    for (x, y) in points {
        if let Some((_, before)) = corners.last() {
            corners.push((*x, *before));
        }
        corners.push((*x, *y));
    }
    corners
}

fn colour(k: usize) -> RGBColor {
    COLOURS[k % COLOURS.len()]
}

/// When all colours are used once, dashes tell the second round from the first.
fn is_dashed(k: usize) -> bool {
    k >= COLOURS.len()
}

fn style(size: f64) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK)
}

fn mesh(chart: &mut Chart<'_, '_>, figure: &Figure) -> Drawn {
    chart
        .configure_mesh()
        .x_desc(with_unit(&figure.x))
        .y_desc(with_unit(&figure.y))
        .label_style(style(TEXT))
        .axis_desc_style(style(TEXT))
        .axis_style(INK.mix(0.6))
        .bold_line_style(INK.mix(0.15))
        .light_line_style(TRANSPARENT)
        .draw()
}

/// What is measured, and in what.
fn with_unit(axis: &Axis) -> String {
    if axis.unit.is_empty() { axis.label.clone() } else { format!("{} ({})", axis.label, axis.unit) }
}

fn line(chart: &mut Chart<'_, '_>, points: &[(f64, f64)], k: usize, marks: bool) -> Drawn {
    let stroke = colour(k).stroke_width(2);
    if is_dashed(k) {
        chart.draw_series(DashedLineSeries::new(points.iter().copied(), 7, 4, stroke))?;
    } else {
        chart.draw_series(LineSeries::new(points.iter().copied(), stroke))?;
    }
    if marks && points.len() <= MANY_POINTS { dots(chart, points, k) } else { Ok(()) }
}

fn dots(chart: &mut Chart<'_, '_>, points: &[(f64, f64)], k: usize) -> Drawn {
    chart.draw_series(points.iter().map(|point| Circle::new(*point, 3, colour(k).filled())))?;
    Ok(())
}

fn columns(chart: &mut Chart<'_, '_>, lefts: &[(f64, f64)], width: f64, (x, y): (&Ruler, &Ruler), k: usize) -> Drawn {
    // On a logarithmic axis there is no zero to stand on.
    let foot = y.place(0.0).unwrap_or(y.low);
    let corners = lefts
        .iter()
        .filter_map(|(left, value)| Some([(x.place(*left)?, foot), (x.place(left + width)?, y.place(*value)?)]));
    chart.draw_series(corners.map(|corners| Rectangle::new(corners, colour(k).filled())))?;
    Ok(())
}

/// The sign of a series in the legend, its left middle at `(x, y)`.
fn key(root: &DrawingArea<SVGBackend<'_>, Shift>, series: &Series, k: usize, (x, y): (i32, i32)) -> Drawn {
    let colour = colour(k);
    let stroke = |from: i32, to: i32| PathElement::new(vec![(x + from, y), (x + to, y)], colour.stroke_width(3));
    match series.kind {
        SeriesKind::Line if is_dashed(k) => {
            root.draw(&stroke(0, 8))?;
            root.draw(&stroke(12, 20))
        }
        SeriesKind::Line | SeriesKind::Steps => root.draw(&stroke(0, 20)),
        SeriesKind::Points => root.draw(&Circle::new((x + 10, y), 4, colour.filled())),
        SeriesKind::Bars => root.draw(&Rectangle::new([(x + 4, y - 6), (x + 16, y + 6)], colour.filled())),
    }
}

/// Width of text, about, in pixels.
fn width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * CHARACTER * size * PIXELS_PER_UNIT
}

/// The places of the series in the legend: pixels from the left, and the row. A single series without a name has none.
fn legend_places(figure: &Figure) -> Vec<(&Series, (i32, i32))> {
    let (mut x, mut row) = (8, 0);
    let mut places = Vec::new();
    for series in figure.series.iter().filter(|series| !series.name.is_empty()) {
        let takes = 26 + width(&series.name, TEXT) as i32 + 18;
        if x > 8 && x + takes > WIDTH as i32 {
            (x, row) = (8, row + 1);
        }
        places.push((series, (x, row)));
        x += takes;
    }
    places
}

/// The title in lines that fit.
fn wrap(title: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in title.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(line, TITLE) + width(word, TITLE) < f64::from(WIDTH) - 30.0 => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
