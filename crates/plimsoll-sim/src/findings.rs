//! What one run of an experiment found: numbers to check, and figures to look at.
//!
//! A number that a figure shows is the number that is checked: experiments put both together from the same measurement.

use std::collections::BTreeMap;

/// What one run with one seed found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// By name: dotted, the arm first, as in `weighted.max_over_mean`. Those that nothing was there to measure by are missing.
    pub metrics: BTreeMap<String, f64>,
    /// In the order in which they are to be read.
    pub figures: Vec<Figure>,
}

/// A plot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figure {
    /// Names it among the figures of its scenario: lower case, digits and hyphens.
    pub id: String,
    /// What it shows, in a line.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// What is drawn, in the order of the legend.
    pub series: Vec<Series>,
    /// Moments of the run, on a horizontal axis that is time.
    pub marks: Vec<Mark>,
    /// Values of the vertical axis to compare with. Those outside the axis are not drawn.
    pub levels: Vec<Level>,
    /// How the figures of several seeds become one.
    pub merge: Merge,
    /// End of the names of the metrics that are drawn, as in `zone-lost.p99`. An upper bound that
    /// the scenario checks for them becomes a level.
    pub objective_of: Option<String>,
}

/// A value of the vertical axis with a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// The value.
    pub at: f64,
    /// Its name.
    pub label: String,
}

/// How the values of several seeds become one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Merge {
    /// Their mean.
    #[default]
    Mean,
    /// The greatest, for a question about the worst case.
    Max,
}

/// A moment that a figure over time marks and names.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// Seconds from the start of the run.
    pub at: f64,
    /// Its name.
    pub label: String,
    /// What begins or happens then.
    pub kind: MarkKind,
}

/// What a mark stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkKind {
    /// A phase begins.
    Phase,
    /// Something happens.
    Event,
}

/// One axis of a plot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Axis {
    /// What is measured.
    pub label: String,
    /// In what; empty for a bare number.
    pub unit: String,
    /// Whether equal distances are equal ratios.
    pub scale: Scale,
    /// Names of the positions 1, 2, 3 and so on; empty where positions are numbers.
    pub names: Vec<String>,
}

/// How an axis is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Equal distances are equal differences.
    #[default]
    Linear,
    /// Equal distances are equal ratios.
    Logarithmic,
}

/// One set of points of a plot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// How it is drawn.
    pub kind: SeriesKind,
    /// In the order of x.
    pub points: Vec<(f64, f64)>,
    /// How it is told apart from others.
    pub look: Look,
}

/// How a series is told apart from others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Its place in the palette; `None`: its place among the series. A fixed one gives the same
    /// subject the same colour in several figures.
    pub colour: Option<usize>,
    /// Whether its line is dashed, to tell apart two series of one colour.
    pub dashed: bool,
}

/// How points are drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SeriesKind {
    /// Joined by lines.
    #[default]
    Line,
    /// Each value holds halfway to its neighbours.
    Steps,
    /// One mark each.
    Points,
    /// One bar each, side by side with those of other series.
    Bars,
}

impl Findings {
    /// Notes a number; nothing where there was nothing to measure it by, so that no check of it can pass.
    pub fn metric(&mut self, name: impl Into<String>, value: impl Into<Option<f64>>) {
        if let Some(value) = value.into() {
            self.metrics.insert(name.into(), value);
        }
    }
}

impl Axis {
    /// A linear axis.
    #[must_use]
    pub fn linear(label: impl Into<String>, unit: impl Into<String>) -> Self {
        Self { label: label.into(), unit: unit.into(), scale: Scale::Linear, names: Vec::new() }
    }

    /// An axis whose positions 1, 2, 3 and so on have names instead of numbers.
    pub fn named<'n>(label: impl Into<String>, names: impl IntoIterator<Item = &'n str>) -> Self {
        Self { names: names.into_iter().map(str::to_owned).collect(), ..Self::linear(label, "") }
    }

    /// A logarithmic axis.
    #[must_use]
    pub fn logarithmic(label: impl Into<String>, unit: impl Into<String>) -> Self {
        Self { scale: Scale::Logarithmic, ..Self::linear(label, unit) }
    }
}

/// A name as part of a figure's id.
pub(crate) fn slug(name: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    name.chars().map(letter).collect()
}
