//! Numbers that cannot be out of range.

use core::fmt;

/// A share of a whole, in [0, 1].
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Ratio(f64);

impl Ratio {
    /// Nothing of it.
    pub const ZERO: Self = Self(0.0);
    /// All of it.
    pub const ONE: Self = Self(1.0);

    /// `value` as a share, or `None` outside [0, 1].
    #[must_use]
    pub const fn new(value: f64) -> Option<Self> {
        if value >= 0.0 && value <= 1.0 { Some(Self(value)) } else { None }
    }

    /// `percent` hundredths; more than 100 counts as 100.
    #[must_use]
    pub const fn from_percent(percent: u8) -> Self {
        if percent >= 100 { Self::ONE } else { Self(percent as f64 / 100.0) }
    }

    /// The share as a number in [0, 1].
    #[must_use]
    pub const fn as_f64(self) -> f64 {
        self.0
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A backend's intended share of the load, relative to others: 1 is ordinary, 2 is a machine twice
/// as large. Finite and above zero.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Weight(f64);

// It is never NaN.
impl Eq for Weight {}

impl Weight {
    /// An ordinary backend.
    pub const ONE: Self = Self(1.0);
    /// Range of weights: further apart, the smaller one would never be picked.
    pub const RANGE: core::ops::RangeInclusive<f64> = 0.001..=1000.0;

    /// `value` as a weight, or `None` outside [`Weight::RANGE`].
    #[must_use]
    pub fn new(value: f64) -> Option<Self> {
        Self::RANGE.contains(&value).then_some(Self(value))
    }

    /// The weight as a number.
    #[must_use]
    pub const fn as_f64(self) -> f64 {
        self.0
    }
}

impl Default for Weight {
    fn default() -> Self {
        Self::ONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_out_of_range_cannot_be_built() {
        for junk in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Ratio::new(junk), None);
        }
        for junk in [0.0, -1.0, 1e9, f64::NAN, f64::INFINITY] {
            assert_eq!(Weight::new(junk), None);
        }
    }
}
