//! Rounding of figures for people.

/// Rounds to three significant digits, or to a whole number if that is more exact: people read it,
/// and the figures are estimates.
#[must_use]
pub fn significant(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let digits = (2.0 - value.abs().log10().floor()).clamp(0.0, 9.0);
    let scale = 10_f64.powi(digits as i32);
    (value * scale).round() / scale
}
