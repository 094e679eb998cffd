//! A figure as SVG.
//!
//! Lines and text have the colour of the text around (`currentColor`), and the colours of series are of middling lightness, so
//! a figure can be read on a light page, on a dark one and in print. The drawing library knows fixed colours only: it
//! is given a colour that nothing else has, which is replaced in what it wrote.
//!
//! The legend stands above the plot, where it hides nothing, and so do the names of phases and events. Lines are
//! [dashed](super::dashes) where they run along each other. Beside the title stands which runs the figure is of. Bars stand on zero; on a logarithmic axis, which has none, their values are
//! points, side by side as the bars would be.

use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::ticks::Ruler;
use super::{dashes, marks, page};
use crate::findings::{Axis, Figure, Level, MarkKind, Scale, Series, SeriesKind};
use crate::run::Plotted;

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
/// A linear horizontal axis has its marks at the positions of points if these are at most so many.
const FEW_POSITIONS: usize = 8;
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
pub fn svg(Plotted { figure, of }: &Plotted) -> String {
    let layout = Layout::new(figure, of.to_string());
    let mut text = String::new();
    {
        let size = (WIDTH, layout.top + PLOT_HEIGHT + layout.names_height());
        let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
        draw(&root, figure, &layout).expect("writing to a string does not fail");
    }
    // Round joins: the spikes of a noisy line would otherwise reach beyond its values.
    let label =
        format!("role=\"img\" aria-label=\"{}\" stroke-linejoin=\"round\" viewBox=", page::escape(&figure.title));
    text.replace(INK_WRITTEN, "currentColor").replacen("viewBox=", &label, 1)
}

/// Where everything is.
struct Layout<'f> {
    title: Vec<String>,
    /// Which runs the figure is of.
    of: String,
    legend: Vec<Entry<'f>>,
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

/// A series in the legend: its name there, and its place in pixels from the left and in rows.
struct Entry<'f> {
    series: &'f Series,
    name: String,
    place: (i32, i32),
}

impl<'f> Layout<'f> {
    fn new(figure: &'f Figure, of: String) -> Self {
        let (x, y) = rulers(figure);
        let mut title = wrap(&figure.title);
        let fits = |line: &String| width(line, TITLE) + width(&of, TEXT) < f64::from(WIDTH) - 30.0;
        if !of.is_empty() && !title.last().is_some_and(fits) {
            title.push(String::new());
        }
        let legend = legend(figure, &x, &y);
        let moments = marks::places(&figure.marks, |at| x_pixel(&x, at));
        let title_height = 8 + 24 * title.len() as u32;
        let legend_rows = legend.last().map_or(0, |entry| entry.place.1 + 1);
        let legend_height = (legend_rows * LEGEND_ROW) as u32;
        let top = title_height + legend_height + (marks::rows(&moments) * NAME_ROW) as u32 + 4;
        let slot = f64::from(PLOT_WIDTH) / figure.x.names.len().max(1) as f64;
        let names = figure.x.names.iter().map(|name| split(name, slot - 6.0)).collect();
        Self { title, of, legend, moments, title_height, legend_height, top, x, y, names }
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
    let all = || figure.series.iter().flat_map(corners);
    let bars = has_bars(figure);
    let half = if bars { bar_room(figure) / 2.0 } else { 0.0 };
    let named = || (1..=figure.x.names.len()).flat_map(|place| [place as f64 - 0.5, place as f64 + 0.5]);
    let xs = all().flat_map(|(x, _)| [x - half, x + half]).chain(named());
    // Bars stand on zero.
    let ys = all().map(|(_, y)| y).chain(bars.then_some(0.0));
    let (mut x, y) = (Ruler::horizontal(xs, figure.x.scale), Ruler::vertical(ys, figure.y.scale));
    if !figure.x.names.is_empty() {
        // The names are drawn apart, since they may take several lines.
        x.marks.clear();
    } else if bars {
        // Between two bars there is nothing to be marked.
        x.marks.retain(|(at, _)| all().any(|(x, _)| (x - at).abs() < 1e-9));
        x.marks.iter_mut().for_each(|(at, text)| *text = at.to_string());
    } else if figure.x.scale == Scale::Linear {
        mark_few(&mut x, figure);
    }
    (x, y)
}

/// Marks the positions of the points themselves, if they are few and their texts do not meet.
fn mark_few(x: &mut Ruler, figure: &Figure) {
    let mut at: Vec<f64> = figure.series.iter().flat_map(|series| &series.points).map(|(x, _)| *x).collect();
    at.retain(|at| at.is_finite());
    at.sort_unstable_by(f64::total_cmp);
    at.dedup_by(|a, b| (*a - *b).abs() < 1e-9);
    if !(2..=FEW_POSITIONS).contains(&at.len()) {
        return;
    }
    let mut marked = x.clone();
    marked.mark_at(&at);
    let space = |pair: &[(f64, String)]| f64::from(x_pixel(x, pair[1].0) - x_pixel(x, pair[0].0));
    let takes = |pair: &[(f64, String)]| (width(&pair[0].1, TEXT) + width(&pair[1].1, TEXT)) / 2.0 + 8.0;
    if marked.marks.windows(2).all(|pair| takes(pair) <= space(pair)) {
        *x = marked;
    }
}

fn has_bars(figure: &Figure) -> bool {
    figure.series.iter().any(|series| series.kind == SeriesKind::Bars)
}

fn draw(root: &DrawingArea<SVGBackend<'_>, Shift>, figure: &Figure, layout: &Layout<'_>) -> Drawn {
    let heading = style(TITLE).pos(Pos::new(HPos::Left, VPos::Top));
    for (i, line) in layout.title.iter().enumerate() {
        root.draw(&Text::new(line.clone(), (8, 6 + 24 * i as i32), heading.clone()))?;
    }
    let of = style(TEXT).pos(Pos::new(HPos::Right, VPos::Top));
    let (right, low) = ((WIDTH - MARGIN_RIGHT) as i32, 8 + 24 * (layout.title.len() as i32 - 1));
    if !layout.of.is_empty() {
        root.draw(&Text::new(layout.of.clone(), (right, low), of))?;
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
    levels(root, &chart, figure, layout)?;
    let lines: Vec<Vec<(f64, f64)>> = figure.series.iter().map(|series| line_pixels(&chart, series, layout)).collect();
    let least: Vec<usize> = (figure.series.iter().enumerate())
        .map(|(k, series)| usize::from(series.look.dashed || colour_place(k, series) >= COLOURS.len()))
        .collect();
    let stretches = dashes::stretches(&lines, &least);
    for (k, series) in figure.series.iter().enumerate() {
        let Some(Entry { name, place: (x, row), .. }) =
            layout.legend.iter().find(|entry| std::ptr::eq(entry.series, series))
        else {
            continue;
        };
        let y = layout.title_height as i32 + row * LEGEND_ROW + LEGEND_ROW / 2;
        let level = if lines[k].is_empty() { least[k] } else { dashes::main_level(&stretches[k]) };
        key(root, figure, series, (colour(k, series), level), (*x, y))?;
        let text = style(TEXT).pos(Pos::new(HPos::Left, VPos::Center));
        root.draw(&Text::new(name.clone(), (x + KEY + BESIDE_KEY, y), text))?;
    }
    let bar_count = figure.series.iter().filter(|series| series.kind == SeriesKind::Bars).count();
    let mut bar = 0;
    for (k, series) in figure.series.iter().enumerate() {
        let colour = colour(k, series);
        match series.kind {
            SeriesKind::Line | SeriesKind::Steps => {
                line(root, series, &lines[k], &stretches[k], colour)?;
            }
            SeriesKind::Points => dots(&mut chart, &places(&series.points, x, y), colour)?,
            SeriesKind::Bars => {
                let width = bar_room(figure) * BARS_FILL / bar_count as f64;
                let left = (bar as f64 - bar_count as f64 / 2.0) * width;
                let shifted = |by: f64| series.points.iter().map(|(x, y)| (x + by, *y)).collect::<Vec<_>>();
                if figure.y.scale == Scale::Logarithmic {
                    dots(&mut chart, &places(&shifted(left + width / 2.0), x, y), colour)?;
                } else {
                    columns(&mut chart, &shifted(left), width, (x, y), colour)?;
                    values(root, &chart, &shifted(left + width / 2.0), (x, y), width / BARS_FILL)?;
                }
                bar += 1;
            }
        }
    }
    root.present()
}

/// The corners of a series as its line is drawn; for bars and dots, its points.
fn corners(series: &Series) -> Vec<(f64, f64)> {
    if series.kind == SeriesKind::Steps { steps(&series.points) } else { series.points.clone() }
}

/// The corners of the line of a series, in pixels; none where it has no line.
fn line_pixels(chart: &Chart<'_, '_>, series: &Series, layout: &Layout<'_>) -> Vec<(f64, f64)> {
    if !has_line(series) {
        return Vec::new();
    }
    let pixel = |place: &(f64, f64)| {
        let (x, y) = chart.backend_coord(place);
        (f64::from(x), f64::from(y))
    };
    places(&corners(series), &layout.x, &layout.y).iter().map(pixel).collect()
}

fn has_line(series: &Series) -> bool {
    matches!(series.kind, SeriesKind::Line | SeriesKind::Steps)
}

/// A line across the plot at each level, and its name where no series is, if there is such a place.
fn levels(
    root: &DrawingArea<SVGBackend<'_>, Shift>,
    chart: &Chart<'_, '_>,
    figure: &Figure,
    layout: &Layout<'_>,
) -> Drawn {
    let (x, y) = (&layout.x, &layout.y);
    let lines: Vec<Vec<(f64, f64)>> = figure.series.iter().map(|series| line_pixels(chart, series, layout)).collect();
    let within = |level: &&Level| y.place(level.at).is_some_and(|at| at >= y.low && at <= y.high);
    for level in figure.levels.iter().filter(within) {
        let Some(at) = y.place(level.at) else { continue };
        let ((left, pixel), (right, _)) = (chart.backend_coord(&(x.low, at)), chart.backend_coord(&(x.high, at)));
        root.draw(&PathElement::new(vec![(left, pixel), (right, pixel)], INK.mix(0.8).stroke_width(1)))?;
        let (_, top) = chart.backend_coord(&(x.low, y.high));
        let takes = width(&level.label, SMALL) as i32 + 8;
        let low_ends = [pixel, pixel + NAME_ROW].into_iter().filter(|low| low - NAME_ROW >= top);
        let boxes = low_ends.flat_map(|low| [(right - takes, low), (left, low)]);
        let is_free = |(from, low): &(i32, i32)| {
            let (from, to) = (f64::from(*from), f64::from(from + takes));
            let (high, low) = (f64::from(low - NAME_ROW), f64::from(*low));
            let inside = |(x, y): (f64, f64)| x >= from && x <= to && y >= high && y <= low;
            lines.iter().all(|line| !dashes::pixels(line).any(inside))
        };
        let all: Vec<(i32, i32)> = boxes.collect();
        let Some((from, low)) = all.iter().copied().find(is_free).or(all.first().copied()) else { continue };
        let text = style(SMALL).pos(Pos::new(HPos::Left, VPos::Center));
        root.draw(&Text::new(level.label.clone(), (from + 4, low - NAME_ROW / 2), text))?;
    }
    Ok(())
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
        let anchor = if place.ends { HPos::Right } else { HPos::Left };
        let text = style(TEXT).pos(Pos::new(anchor, VPos::Center));
        let at = (place.x, first + place.row * NAME_ROW + NAME_ROW / 2);
        root.draw(&Text::new(place.text.clone(), at, text))?;
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

/// The corners of a line on which each value holds halfway to its neighbours, and as far at the ends.
fn steps(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let half = |i: usize| points.get(i + 1).map(|next| (next.0 - points[i].0) / 2.0);
    let mut corners: Vec<(f64, f64)> = Vec::with_capacity(points.len() * 2);
    for (i, (x, y)) in points.iter().enumerate() {
        let before = i.checked_sub(1).and_then(half);
        let after = half(i).or(before).unwrap_or(0.5);
        corners.push((x - before.unwrap_or(after), *y));
        corners.push((x + after, *y));
    }
    corners
}

/// The place of a series in the palette.
fn colour_place(k: usize, series: &Series) -> usize {
    series.look.colour.unwrap_or(k)
}

fn colour(k: usize, series: &Series) -> RGBColor {
    COLOURS[colour_place(k, series) % COLOURS.len()]
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

fn line(
    root: &DrawingArea<SVGBackend<'_>, Shift>,
    series: &Series,
    corners: &[(f64, f64)],
    stretches: &[dashes::Stretch],
    colour: RGBColor,
) -> Drawn {
    let pixel = |(x, y): &(f64, f64)| (x.round() as i32, y.round() as i32);
    for piece in dashes::pieces(corners, stretches) {
        root.draw(&PathElement::new(piece.iter().map(pixel).collect::<Vec<_>>(), colour.stroke_width(2)))?;
    }
    if shows_points(series) {
        for (corner, at) in corners.iter().zip(dashes::distances(corners)) {
            // Smaller along another line, so that the dots beneath show.
            let radius = 4 - dashes::level_at(stretches, at).min(2) as i32;
            root.draw(&Circle::new(pixel(corner), radius, dot(series, colour)))?;
        }
    }
    Ok(())
}

fn shows_points(series: &Series) -> bool {
    series.kind == SeriesKind::Line && series.points.len() <= MANY_POINTS
}

/// The dots of a dashed series are rings: a solid line has dashes too where it runs along another.
fn dot(series: &Series, colour: RGBColor) -> ShapeStyle {
    if series.look.dashed { colour.stroke_width(2) } else { colour.filled() }
}

fn dots(chart: &mut Chart<'_, '_>, points: &[(f64, f64)], colour: RGBColor) -> Drawn {
    chart.draw_series(points.iter().map(|point| Circle::new(*point, 4, colour.filled())))?;
    Ok(())
}

fn columns(
    chart: &mut Chart<'_, '_>,
    lefts: &[(f64, f64)],
    width: f64,
    (x, y): (&Ruler, &Ruler),
    colour: RGBColor,
) -> Drawn {
    // On a logarithmic axis there is no zero to stand on.
    let foot = y.place(0.0).unwrap_or(y.low);
    let corners = lefts
        .iter()
        .filter_map(|(left, value)| Some([(x.place(*left)?, foot), (x.place(left + width)?, y.place(*value)?)]));
    chart.draw_series(corners.map(|corners| Rectangle::new(corners, colour.filled())))?;
    Ok(())
}

/// The sign of a series in the legend, its left middle at `(x, y)`.
fn key(
    root: &DrawingArea<SVGBackend<'_>, Shift>,
    figure: &Figure,
    series: &Series,
    (colour, level): (RGBColor, usize),
    (x, y): (i32, i32),
) -> Drawn {
    let middle = x + KEY / 2;
    match series.kind {
        SeriesKind::Line | SeriesKind::Steps => {
            for (from, to) in dashes::key(level, f64::from(KEY)) {
                let ends = vec![(x + from as i32, y), (x + to as i32, y)];
                root.draw(&PathElement::new(ends, colour.stroke_width(3)))?;
            }
            if shows_points(series) {
                root.draw(&Circle::new((middle, y), 4, dot(series, colour)))?;
            }
            Ok(())
        }
        SeriesKind::Bars if figure.y.scale == Scale::Linear => {
            root.draw(&Rectangle::new([(middle - 6, y - 6), (middle + 6, y + 6)], colour.filled()))
        }
        SeriesKind::Points | SeriesKind::Bars => root.draw(&Circle::new((middle, y), 4, colour.filled())),
    }
}

/// Width of a sign in the legend, in pixels: that of a dashed line shows two dashes.
const KEY: i32 = 34;
/// From a sign to its name, in pixels.
const BESIDE_KEY: i32 = 6;

/// Width of text, about, in pixels.
pub(super) fn width(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * CHARACTER * size * PIXELS_PER_UNIT
}

/// The series in the legend, without those that have no name. The name says which earlier series
/// a line hides.
fn legend<'f>(figure: &'f Figure, x: &Ruler, y: &Ruler) -> Vec<Entry<'f>> {
    let (mut left, mut row) = (8, 0);
    let mut entries = Vec::new();
    for (k, series) in figure.series.iter().enumerate().filter(|(_, series)| !series.name.is_empty()) {
        let same = figure.series[..k].iter().find(|earlier| is_same(earlier, series, x, y));
        let name =
            same.map_or_else(|| series.name.clone(), |earlier| format!("{} (same as {})", series.name, earlier.name));
        let takes = KEY + BESIDE_KEY + width(&name, TEXT) as i32 + 12;
        if left > 8 && left + takes > WIDTH as i32 {
            (left, row) = (8, row + 1);
        }
        entries.push(Entry { series, name, place: (left, row) });
        left += takes;
    }
    entries
}

/// Whether two lines are nowhere farther than a pixel apart.
fn is_same(a: &Series, b: &Series, x: &Ruler, y: &Ruler) -> bool {
    let places = |series: &Series| places(&series.points, x, y);
    let (a_places, b_places) = (places(a), places(b));
    let pixel_x = f64::from(PLOT_WIDTH) / (x.high - x.low);
    let pixel_y = f64::from(PLOT_HEIGHT - MARKS_BELOW) / (y.high - y.low);
    let is_near = |(a, b): (&(f64, f64), &(f64, f64))| {
        ((a.0 - b.0) * pixel_x).abs() <= 1.0 && ((a.1 - b.1) * pixel_y).abs() <= 1.0
    };
    a.kind == b.kind
        && has_line(a)
        && !a_places.is_empty()
        && a_places.len() == b_places.len()
        && a_places.iter().zip(&b_places).all(is_near)
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
