//! The speed of a machine, and with it the unit of CPU cost in a fleet.
//!
//! A second of a fast core does more work than a second of a slow one. So costs and limits of
//! several machines compare only in a common unit: the second of a *reference core*.
//!
//! ```text
//! reference CPU-seconds = local CPU-seconds · speed
//! local limit           = limit of the fleet ÷ speed
//! ```
//!
//! A server decides in its own seconds, because deadlines, its CPUs and its CPU clock are in them.
//! It converts once, at its border: a quota as it comes in, a cost as it goes out. Why not
//! everything in reference seconds: a request with a cost of 20 ms may then end after 10 ms, and
//! "too late" could not be computed from costs.
//!
//! # Where it is weak
//!
//! One number for a machine: requests that wait for memory profit less from a fast core than
//! requests that compute. Between two types of machines, costs of one kind of request agree as well
//! as the number fits that kind. Utilization and weights need no speed. A fast machine has a low
//! utilization with the same requests, and its weight rises by that alone
//! ([`Weighted`](crate::pick)).

use core::fmt;

/// The speed of a core of a machine, relative to the reference core. Finite and above zero.
///
/// ```
/// use plimsoll_core::Speed;
///
/// let fast = Speed::new(2.0).expect("within the range");
/// assert_eq!(fast.reference(0.010), 0.020);
/// assert_eq!(fast.local(0.020), 0.010);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Speed(f64);

// It is never NaN.
impl Eq for Speed {}

impl Speed {
    /// The reference core, and every machine without a known speed.
    pub const REFERENCE: Self = Self(1.0);
    /// Range of speeds. Cores of servers in use differ by a factor of five; more than a hundred is
    /// an error of units.
    pub const RANGE: core::ops::RangeInclusive<f64> = 0.01..=100.0;

    /// `value` as a speed, or `None` outside [`Speed::RANGE`].
    #[must_use]
    pub fn new(value: f64) -> Option<Self> {
        Self::RANGE.contains(&value).then_some(Self(value))
    }

    /// The speed as a number.
    #[must_use]
    pub const fn as_f64(self) -> f64 {
        self.0
    }

    /// CPU-seconds of this machine as reference CPU-seconds. Also CPUs: they are CPU-seconds a
    /// second.
    #[must_use]
    pub fn reference(self, local: f64) -> f64 {
        local * self.0
    }

    /// Reference CPU-seconds as CPU-seconds of this machine.
    #[must_use]
    pub fn local(self, reference: f64) -> f64 {
        reference / self.0
    }
}

impl Default for Speed {
    fn default() -> Self {
        Self::REFERENCE
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_out_of_range_cannot_be_built() {
        for junk in [0.0, -1.0, 0.009, 100.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Speed::new(junk), None, "{junk}");
        }
        for value in [0.01, 1.0, 100.0] {
            assert_eq!(Speed::new(value).map(Speed::as_f64), Some(value));
        }
    }

    #[test]
    fn faster_machine_has_fewer_local_seconds_for_the_same_cost() {
        let fast = Speed::new(4.0).unwrap();
        assert_eq!((fast.local(2.0), fast.reference(0.5)), (0.5, 2.0));
        assert_eq!((Speed::default().local(2.0), Speed::default().reference(2.0)), (2.0, 2.0));
    }
}
