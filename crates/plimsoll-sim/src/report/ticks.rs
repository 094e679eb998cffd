//! Where an axis has its marks, and how they are written.
//!
//! An axis is drawn on a line: a logarithmic one on the line of the logarithms. So there is one kind of plot, and the marks
//! alone know what they stand for. Steps are 1, 2 or 5 times a power of ten, which people read without thinking.

use crate::findings::Scale;

/// Marks that an axis has about, where there is a choice.
const MARKS: f64 = 6.0;
/// A vertical axis begins at zero unless its values lie in less than this share of the way from zero to the greatest:
/// then zero would leave nothing to be seen of their differences.
const FROM_ZERO: f64 = 0.3;
/// A horizontal axis that begins within this share of its length from zero might as well begin there.
const NEARLY_ZERO: f64 = 0.1;
/// Digits behind the point of a mark at a value, at most.
const MOST_DECIMALS: usize = 2;
/// The extent of no values.
const NOTHING: (f64, f64) = (1.0, 10.0);
/// From this many decades on a logarithmic axis has a mark for each power of ten only.
const MANY_DECADES: f64 = 2.5;

/// An axis with a range and marks, both on the line that it is drawn on.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ruler {
    pub(super) low: f64,
    pub(super) high: f64,
    /// In ascending order, with the text of each.
    pub(super) marks: Vec<(f64, String)>,
    scale: Scale,
}

impl Ruler {
    /// For the horizontal axis: from the least of `values` to the greatest, so that no width is given away.
    pub(super) fn horizontal(values: impl Iterator<Item = f64>, scale: Scale) -> Self {
        let (mut low, high) = extent(values, scale);
        if scale == Scale::Linear && low > 0.0 && low < NEARLY_ZERO * (high - low) {
            low = 0.0;
        }
        let mut ruler = Self::around(low, high, scale);
        (ruler.low, ruler.high) = match scale {
            Scale::Linear if low < high => (low, high),
            Scale::Logarithmic if low < high => (low.log10(), high.log10()),
            Scale::Linear | Scale::Logarithmic => (ruler.low, ruler.high),
        };
        let slack = (ruler.high - ruler.low) * 1e-9;
        ruler.marks.retain(|(mark, _)| *mark >= ruler.low - slack && *mark <= ruler.high + slack);
        ruler
    }

    /// For the vertical axis: from mark to mark, so that the heights at both ends can be read.
    pub(super) fn vertical(values: impl Iterator<Item = f64>, scale: Scale) -> Self {
        let (mut low, mut high) = extent(values, scale);
        if scale == Scale::Linear && low > 0.0 && high - low > FROM_ZERO * high {
            low = 0.0;
        }
        if scale == Scale::Linear && high < 0.0 && high - low > FROM_ZERO * -low {
            high = 0.0;
        }
        Self::around(low, high, scale)
    }

    /// Puts the marks at `values`, in ascending order, if these have short texts.
    pub(super) fn mark_at(&mut self, values: &[f64]) {
        let are_short = |decimals: usize| {
            let unit = 10_f64.powi(-(decimals as i32));
            values.iter().all(|value| (value / unit - (value / unit).round()).abs() < 1e-6)
        };
        let Some(decimals) = (0..=MOST_DECIMALS).find(|decimals| are_short(*decimals)) else { return };
        self.marks = values.iter().map(|value| (*value, number(*value, decimals))).collect();
    }

    /// Where a value is drawn; `None` where the scale has no place for it.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        let place = match self.scale {
            Scale::Linear => value,
            Scale::Logarithmic => value.log10(),
        };
        place.is_finite().then_some(place)
    }

    /// From the mark at or below `low` to that at or above `high`.
    fn around(low: f64, high: f64, scale: Scale) -> Self {
        match scale {
            Scale::Linear => Self::linear(low, high),
            Scale::Logarithmic => Self::logarithmic(low, high),
        }
    }

    fn linear(mut low: f64, mut high: f64) -> Self {
        if low == high {
            // All alike: a little to either side.
            let beside = if low == 0.0 { 1.0 } else { low.abs() / 10.0 };
            (low, high) = (low - beside, high + beside);
        }
        let step = step((high - low) / MARKS);
        let (first, last) = ((low / step + 1e-9).floor(), (high / step - 1e-9).ceil());
        let decimals = decimals(step);
        let count = (last - first) as usize;
        let marks = (0..=count).map(|i| {
            let value = (first + i as f64) * step;
            (value, number(value, decimals))
        });
        Self { low: first * step, high: last * step, marks: marks.collect(), scale: Scale::Linear }
    }

    fn logarithmic(low: f64, high: f64) -> Self {
        let decades = high.log10() - low.log10();
        let multiples: &[f64] = if decades >= MANY_DECADES { &[1.0] } else { &[1.0, 2.0, 5.0] };
        // With very many decades only some of them.
        let every = (decades / (2.0 * MARKS)).ceil().max(1.0) as usize;
        // Marks beyond, of which those stay that are next to the values or between them.
        let beyond = (low.log10().floor() as i32 - every as i32)..=(high.log10().ceil() as i32 + every as i32);
        let all: Vec<f64> = beyond
            .step_by(every)
            .flat_map(|decade| multiples.iter().map(move |multiple| multiple * 10_f64.powi(decade)))
            .filter(|mark| mark.is_normal())
            .collect();
        let first = all.iter().rposition(|mark| *mark <= low * (1.0 + 1e-9)).unwrap_or(0);
        let last = all.iter().position(|mark| *mark >= high * (1.0 - 1e-9)).unwrap_or(all.len() - 1);
        let last = last.max(first + 1);
        let marks = all[first..=last].iter().map(|mark| (mark.log10(), number(*mark, decimals(*mark))));
        Self { low: all[first].log10(), high: all[last].log10(), marks: marks.collect(), scale: Scale::Logarithmic }
    }
}

/// The least and the greatest of the values that the scale has a place for.
fn extent(values: impl Iterator<Item = f64>, scale: Scale) -> (f64, f64) {
    let has_place = |value: &f64| value.is_finite() && (scale == Scale::Linear || *value > 0.0);
    let ends = |(low, high): (f64, f64), value: f64| (low.min(value), high.max(value));
    let (low, high) = values.filter(has_place).fold((f64::INFINITY, f64::NEG_INFINITY), ends);
    if low > high { NOTHING } else { (low, high) }
}

/// The least of 1, 2 and 5 times a power of ten that is at least `size`.
fn step(size: f64) -> f64 {
    let power = 10_f64.powf(size.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|multiple| multiple * power)
        .into_iter()
        .find(|step| *step >= size)
        .unwrap_or(power * 10.0)
}

/// Digits behind the point that multiples of `step` need.
fn decimals(step: f64) -> usize {
    (-(step.log10() + 1e-9).floor()).max(0.0) as usize
}

/// A number with spaces between thousands; from a million on, and below a millionth, as a power of ten.
fn number(value: f64, decimals: usize) -> String {
    let size = value.abs();
    if size >= 1e6 || decimals > 6 {
        let text = format!("{value:.3e}");
        let (factor, power) = text.split_once('e').expect("the form has an exponent");
        let factor = factor.trim_end_matches('0').trim_end_matches('.');
        return format!("{factor}·10{}", power.chars().map(superscript).collect::<String>());
    }
    let text = format!("{size:.decimals$}");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let mut grouped = String::new();
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            grouped.push('\u{202f}');
        }
        grouped.push(digit);
    }
    let sign = if value < 0.0 && size > 0.0 { "−" } else { "" };
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{grouped}{point}{fraction}")
}

fn superscript(digit: char) -> char {
    match digit {
        '-' => '⁻',
        '0' => '⁰',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        '4' => '⁴',
        '5' => '⁵',
        '6' => '⁶',
        '7' => '⁷',
        '8' => '⁸',
        _ => '⁹',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(values: &[f64], scale: Scale) -> Vec<String> {
        Ruler::vertical(values.iter().copied(), scale).marks.into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn linear_marks_are_round_and_begin_at_zero_unless_differences_are_small() {
        assert_eq!(texts(&[3.0, 97.0], Scale::Linear), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(texts(&[0.96, 1.04], Scale::Linear), ["0.96", "0.98", "1.00", "1.02", "1.04"]);
        assert_eq!(texts(&[-0.4, 0.4], Scale::Linear), ["−0.4", "−0.2", "0.0", "0.2", "0.4"]);
        assert_eq!(texts(&[12_000.0], Scale::Linear).first().map(String::as_str), Some("10\u{202f}500"));
    }

    #[test]
    fn a_horizontal_axis_ends_where_its_values_do() {
        let ruler = Ruler::horizontal([0.75, 1.74].into_iter(), Scale::Linear);
        assert_eq!((ruler.low, ruler.high), (0.75, 1.74));
        let marks: Vec<&str> = ruler.marks.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(marks, ["0.8", "1.0", "1.2", "1.4", "1.6"]);
        assert_eq!(Ruler::horizontal([1.0, 60.0].into_iter(), Scale::Linear).low, 0.0);
        let ruler = Ruler::horizontal([3.0, 700.0].into_iter(), Scale::Logarithmic);
        assert_eq!((ruler.low, ruler.high), (3_f64.log10(), 700_f64.log10()));
    }

    #[test]
    fn marks_at_values_have_the_digits_that_all_need() {
        let at = |values: &[f64]| {
            let mut ruler = Ruler::horizontal(values.iter().copied(), Scale::Linear);
            ruler.mark_at(values);
            ruler.marks.into_iter().map(|(_, text)| text).collect::<Vec<_>>()
        };
        assert_eq!(at(&[9.0, 12.0, 21.0]), ["9", "12", "21"]);
        assert_eq!(at(&[0.5, 56.000_000_000_01]), ["0.5", "56.0"]);
        assert_eq!(at(&[0.0, 100.0 / 3.0]), ["0", "10", "20", "30"], "no short text");
    }

    #[test]
    fn logarithmic_marks_are_powers_of_ten_with_steps_between_when_there_are_few() {
        assert_eq!(
            texts(&[0.3, 20_000.0], Scale::Logarithmic),
            ["0.1", "1", "10", "100", "1\u{202f}000", "10\u{202f}000", "100\u{202f}000"]
        );
        assert_eq!(texts(&[30.0, 180.0], Scale::Logarithmic), ["20", "50", "100", "200"]);
    }

    #[test]
    fn values_without_a_place_make_no_harm() {
        for values in [&[][..], &[f64::NAN], &[0.0], &[f64::INFINITY, 5.0], &[-3.0, 0.0, 7.0], &[1e-300, 1e300]] {
            for scale in [Scale::Linear, Scale::Logarithmic] {
                let values = || values.iter().copied();
                for ruler in [Ruler::vertical(values(), scale), Ruler::horizontal(values(), scale)] {
                    assert!(ruler.low < ruler.high && ruler.marks.len() >= 2, "{ruler:?}");
                    assert!(ruler.marks.len() < 40, "{ruler:?}");
                }
            }
        }
        assert_eq!(Ruler::vertical([1.0].into_iter(), Scale::Logarithmic).place(0.0), None);
    }

    #[test]
    fn every_value_lies_within() {
        for (low, high) in [(1.0, 1.0), (0.1, 0.7), (17.0, 18.0), (-5.0, -4.0), (1e-7, 2e-7), (0.0, 1e7)] {
            for ruler in [Ruler::vertical, Ruler::horizontal].map(|of| of([low, high].into_iter(), Scale::Linear)) {
                assert!(ruler.low <= low && high <= ruler.high, "{low}..{high}: {ruler:?}");
            }
        }
    }

    #[test]
    fn very_large_and_very_small_numbers_are_powers_of_ten() {
        assert_eq!(number(2_500_000.0, 0), "2.5·10⁶");
        assert_eq!(number(1e-8, 8), "1·10⁻⁸");
        assert_eq!(number(-12_345.5, 1), "−12\u{202f}345.5");
    }
}
