//! A figure as SVG.
//!
//! Lines and text have the colour of the text around (`currentColor`), and the colours of series are of middling lightness, so
//! a figure can be read on a light page, on a dark one and in print. The drawing library knows fixed colours only: it
//! is given a colour that nothing else has, which is replaced in what it wrote.
//!
//! The legend stands above the plot, where it hides nothing, and so do the names of phases and events. Lines that run along
//! each other are [dashed](super::dashes). Bars stand on zero; on a logarithmic axis, which has none, their values are
//! points, side by side as the bars would be.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::ticks::Ruler;
use super::{dashes, marks, page};
use crate::findings::{Axis, Figure, MarkKind, Scale, Series, SeriesKind};

/// Width of a figure, in pixels.
pub(super) const WIDTH: u32 = 760;
/// Height of the plot with its axes, in pixels; title and legend come on top.
const PLOT_HEIGHT: u32 = 340;
/// Room for the marks of the axes, in pixels.
const MARKS_BELOW: u32 = 48;
const MARKS_LEFT: u32 = 72;
/// Space around the plot, in pixels.
const MARGIN_LEFT: u32 = 6;
const MARGIN_RIGHT: u32 = 24;
/// Sizes of text in the library's units, of which 1.24 are a pixel.
pub(super) const TEXT: f64 = 16.0;
const TITLE: f64 = 19.0;
const SMALL: f64 = 14.0;
/// Mean width of a character of sans-serif text, as a part of its size.
const CHARACTER: f64 = 0.56;
const PIXELS_PER_UNIT: f64 = 1.0 / 1.24;
const LEGEND_ROW: i32 = 21;
/// Height of a row of names of moments, and of a line of names below the axis.
const NAME_ROW: i32 = 18;
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
    let layout = Layout::new(figure);
    let mut text = String::new();
    {
        let size = (WIDTH, layout.top + PLOT_HEIGHT + layout.names_height());
        let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
        draw(&root, figure, &layout).expect("writing to a string does not fail");
    }
    let label = format!("role=\"img\" aria-label=\"{}\" viewBox=", page::escape(&figure.title));
    text.replace(INK_WRITTEN, "currentColor").replacen("viewBox=", &label, 1)
}

/// Where everything is.
struct Layout<'f> {
    title: Vec<String>,
    legend: Vec<(&'f Series, (i32, i32))>,
    /// The names of moments.
    moments: Vec<marks::Place>,
    /// Height of title, and of title, legend and names of moments, in pixels.
    title_height: u32,
    legend_height: u32,
    top: u32,
    x: Ruler,
    y: Ruler,
    /// Lines of each name below a named axis.
    names: Vec<Vec<String>>,
}

impl<'f> Layout<'f> {
    fn new(figure: &'f Figure) -> Self {
        let (x, y) = rulers(figure);
        let title = wrap(&figure.title);
        let legend = legend_places(figure);
        let moments = marks::places(&figure.marks, |at| x_pixel(&x, at));
        let title_height = 8 + 24 * title.len() as u32;
        let legend_rows = legend.last().map_or(0, |(_, (_, row))| row + 1);
        let legend_height = (legend_rows * LEGEND_ROW) as u32;
        let top = title_height + legend_height + (marks::rows(&moments) * NAME_ROW) as u32 + 4;
        let slot = f64::from(PLOT_WIDTH) / figure.x.names.len().max(1) as f64;
        let names = figure.x.names.iter().map(|name| split(name, slot - 6.0)).collect();
        Self { title, legend, moments, title_height, legend_height, top, x, y, names }
    }

    /// What names below the axis take beyond the line that numbers take.
    fn names_height(&self) -> u32 {
        let lines = self.names.iter().map(Vec::len).max().unwrap_or(1);
        (lines.saturating_sub(1) as i32 * NAME_ROW) as u32
    }
}

/// Width of the plot itself, in pixels.
const PLOT_WIDTH: u32 = WIDTH - MARGIN_LEFT - MARKS_LEFT - MARGIN_RIGHT;

/// The pixel of a horizontal position.
fn x_pixel(x: &Ruler, at: f64) -> i32 {
    let part = (at - x.low) / (x.high - x.low);
    (f64::from(MARGIN_LEFT + MARKS_LEFT) + part * f64::from(PLOT_WIDTH)) as i32
}

fn rulers(figure: &Figure) -> (Ruler, Ruler) {
    let all = || figure.series.iter().flat_map(|series| &series.points);
    let bars = has_bars(figure);
    let half = if bars { bar_room(figure) / 2.0 } else { 0.0 };
    let named = || (1..=figure.x.names.len()).flat_map(|place| [place as f64 - 0.5, place as f64 + 0.5]);
    let xs = all().flat_map(|(x, _)| [x - half, x + half]).chain(named());
    // Bars stand on zero.
    let ys = all().map(|(_, y)| *y).chain(bars.then_some(0.0));
    let (mut x, y) = (Ruler::horizontal(xs, figure.x.scale), Ruler::vertical(ys, figure.y.scale));
    if !figure.x.names.is_empty() {
        // The names are drawn apart, since they may take several lines.
        x.marks.clear();
    } else if bars {
        // Between two bars there is nothing to be marked.
        x.marks.retain(|(at, _)| all().any(|(x, _)| (x - at).abs() < 1e-9));
        x.marks.iter_mut().for_each(|(at, text)| *text = at.to_string());
    }
    (x, y)
}

fn has_bars(figure: &Figure) -> bool {
    figure.series.iter().any(|series| series.kind == SeriesKind::Bars)
}

fn draw(root: &DrawingArea<SVGBackend<'_>, Shift>, figure: &Figure, layout: &Layout<'_>) -> Drawn {
    let heading = style(TITLE).pos(Pos::new(HPos::Left, VPos::Top));
    for (i, line) in layout.title.iter().enumerate() {
        root.draw(&Text::new(line.clone(), (8, 6 + 24 * i as i32), heading.clone()))?;
    }
    let (x, y) = (&layout.x, &layout.y);
    let (_, below) = root.split_vertically(layout.top);
    let mut chart = ChartBuilder::on(&below)
        .margin_left(MARGIN_LEFT)
        .margin_right(MARGIN_RIGHT)
        .margin_top(8)
        .x_label_area_size(MARKS_BELOW + layout.names_height())
        .y_label_area_size(MARKS_LEFT)
        .build_cartesian_2d(x.clone(), y.clone())?;
    mesh(&mut chart, figure)?;
    moments(root, &mut chart, figure, layout)?;
    names(root, &chart, layout)?;
    let levels = dash_levels(&chart, figure, layout);
    for (k, (series, (x, row))) in layout.legend.iter().enumerate() {
        let y = layout.title_height as i32 + row * LEGEND_ROW + LEGEND_ROW / 2;
        key(root, figure, series, (k, levels[k]), (*x, y))?;
        let text = style(TEXT).pos(Pos::new(HPos::Left, VPos::Center));
        root.draw(&Text::new(series.name.clone(), (x + 26, y), text))?;
    }
    let bar_count = figure.series.iter().filter(|series| series.kind == SeriesKind::Bars).count();
    let mut bar = 0;
    for (k, series) in figure.series.iter().enumerate() {
        let level = (k, levels[k]);
        match series.kind {
            SeriesKind::Line => line(&mut chart, &places(&series.points, x, y), level, true)?,
            SeriesKind::Steps => line(&mut chart, &places(&steps(&series.points), x, y), level, false)?,
            SeriesKind::Points => dots(&mut chart, &places(&series.points, x, y), level)?,
            SeriesKind::Bars => {
                let width = bar_room(figure) * BARS_FILL / bar_count as f64;
                let left = (bar as f64 - bar_count as f64 / 2.0) * width;
                let shifted = |by: f64| series.points.iter().map(|(x, y)| (x + by, *y)).collect::<Vec<_>>();
                if figure.y.scale == Scale::Logarithmic {
                    dots(&mut chart, &places(&shifted(left + width / 2.0), x, y), (k, 0))?;
                } else {
                    columns(&mut chart, &shifted(left), width, (x, y), k)?;
                    values(root, &chart, &shifted(left + width / 2.0), (x, y), width / BARS_FILL)?;
                }
                bar += 1;
            }
        }
    }
    root.present()
}

/// How each series is dashed: by its company, and in the second round of colours always.
fn dash_levels(chart: &Chart<'_, '_>, figure: &Figure, layout: &Layout<'_>) -> Vec<usize> {
    let in_pixels = |series: &Series| {
        let corners = match series.kind {
            SeriesKind::Line => series.points.clone(),
            SeriesKind::Steps => steps(&series.points),
            SeriesKind::Points | SeriesKind::Bars => Vec::new(),
        };
        let pixel = |place: &(f64, f64)| {
            let (x, y) = chart.backend_coord(place);
            (f64::from(x), f64::from(y))
        };
        places(&corners, &layout.x, &layout.y).iter().map(pixel).collect()
    };
    let lines: Vec<Vec<(f64, f64)>> = figure.series.iter().map(in_pixels).collect();
    let second_round = |(k, level): (usize, usize)| level.max(usize::from(k >= COLOURS.len()));
    dashes::levels(&lines).into_iter().enumerate().map(second_round).collect()
}

/// A line at each moment of the run that has a name, and the name above the plot. Phases are dashed.
fn moments(
    root: &DrawingArea<SVGBackend<'_>, Shift>,
    chart: &mut Chart<'_, '_>,
    figure: &Figure,
    layout: &Layout<'_>,
) -> Drawn {
    let (x, y) = (&layout.x, &layout.y);
    let first = (layout.title_height + layout.legend_height) as i32;
    for (mark, place) in figure.marks.iter().zip(&layout.moments) {
        let is_event = mark.kind == MarkKind::Event;
        if mark.at >= x.low && mark.at <= x.high {
            let ends = [(mark.at, y.low), (mark.at, y.high)];
            if is_event {
                chart.draw_series(LineSeries::new(ends, INK.mix(0.7).stroke_width(1)))?;
            } else {
                chart.draw_series(DashedLineSeries::new(ends, 3, 3, INK.mix(0.5).stroke_width(1)))?;
            }
        }
        let text = style(TEXT).pos(Pos::new(HPos::Left, VPos::Center));
        let at = (place.x, first + place.row * NAME_ROW + NAME_ROW / 2);
        root.draw(&Text::new(mark.label.clone(), at, text))?;
    }
    Ok(())
}

/// The names below a named axis, each in the middle of its slot.
fn names(root: &DrawingArea<SVGBackend<'_>, Shift>, chart: &Chart<'_, '_>, layout: &Layout<'_>) -> Drawn {
    let text = style(TEXT).pos(Pos::new(HPos::Center, VPos::Top));
    for (place, lines) in layout.names.iter().enumerate() {
        let (x, y) = chart.backend_coord(&((place + 1) as f64, layout.y.low));
        for (i, line) in lines.iter().enumerate() {
            root.draw(&Text::new(line.clone(), (x, y + 6 + i as i32 * NAME_ROW), text.clone()))?;
        }
    }
    Ok(())
}

/// The value above each bar, where there is space for all: so a bar of height zero is not taken for a missing one.
fn values(
    root: &DrawingArea<SVGBackend<'_>, Shift>,
    chart: &Chart<'_, '_>,
    middles: &[(f64, f64)],
    (x, y): (&Ruler, &Ruler),
    slot: f64,
) -> Drawn {
    let slot = slot / (x.high - x.low) * f64::from(PLOT_WIDTH);
    let fits = |(_, value): &(f64, f64)| width(&rounded(*value), SMALL) <= slot;
    if !middles.iter().all(fits) {
        return Ok(());
    }
    let text = style(SMALL).pos(Pos::new(HPos::Center, VPos::Bottom));
    for (at, value) in middles {
        let Some(place) = x.place(*at).zip(y.place(*value)) else { continue };
        let (x, y) = chart.backend_coord(&place);
        root.draw(&Text::new(rounded(*value), (x, y - 2), text.clone()))?;
    }
    Ok(())
}

/// Two digits, or all of a whole number.
fn rounded(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let decimals = (1 - value.abs().log10().floor() as i32).clamp(0, 3) as usize;
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
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

fn line(chart: &mut Chart<'_, '_>, points: &[(f64, f64)], (k, level): (usize, usize), marks: bool) -> Drawn {
    let stroke = colour(k).stroke_width(2);
    match dashes::pattern(level) {
        Some((dash, gap)) => {
            chart.draw_series(DashedLineSeries::new(points.iter().copied(), dash as u32, gap as u32, stroke))?
        }
        None => chart.draw_series(LineSeries::new(points.iter().copied(), stroke))?,
    };
    if marks && points.len() <= MANY_POINTS { dots(chart, points, (k, level)) } else { Ok(()) }
}

/// Dots of a line along another one are smaller, so that those beneath them show.
fn dots(chart: &mut Chart<'_, '_>, points: &[(f64, f64)], (k, level): (usize, usize)) -> Drawn {
    let radius = 4 - level.min(2) as i32;
    chart.draw_series(points.iter().map(|point| Circle::new(*point, radius, colour(k).filled())))?;
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
fn key(
    root: &DrawingArea<SVGBackend<'_>, Shift>,
    figure: &Figure,
    series: &Series,
    (k, level): (usize, usize),
    (x, y): (i32, i32),
) -> Drawn {
    let colour = colour(k);
    let stroke = |from: i32, to: i32| PathElement::new(vec![(x + from, y), (x + to, y)], colour.stroke_width(3));
    match series.kind {
        SeriesKind::Line | SeriesKind::Steps => {
            let (dash, gap) = dashes::pattern(level).unwrap_or((KEY, 1));
            for from in (0..KEY).step_by((dash + gap) as usize) {
                root.draw(&stroke(from, (from + dash).min(KEY)))?;
            }
            Ok(())
        }
        SeriesKind::Bars if figure.y.scale == Scale::Linear => {
            root.draw(&Rectangle::new([(x + 4, y - 6), (x + 16, y + 6)], colour.filled()))
        }
        SeriesKind::Points | SeriesKind::Bars => root.draw(&Circle::new((x + 10, y), 4, colour.filled())),
    }
}

/// Width of a sign in the legend, in pixels.
const KEY: i32 = 20;

/// Width of text, about, in pixels.
pub(super) fn width(text: &str, size: f64) -> f64 {
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

/// A name in lines of at most `most` pixels, broken at spaces and hyphens.
fn split(name: &str, most: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for piece in name.split_inclusive([' ', '-']) {
        match lines.last_mut() {
            Some(line) if width(line, TEXT) + width(piece.trim_end(), TEXT) <= most => line.push_str(piece),
            _ => lines.push(piece.to_owned()),
        }
    }
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}
