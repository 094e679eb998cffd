//! What a customer may use.
//!
//! In CPU-seconds a second of a machine of speed 1. Machines differ: whoever has numbers for the fleet multiplies them with the
//! speed of this one before they are used here, and divides them by the number of machines that serve the customer.

use crate::Weight;

/// What a customer may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quota {
    /// The soft limit, which binds only when there is not enough for all: what the customer is entitled to, beside others. What counts
    /// is how customers' shares compare; where they are given in CPU-seconds a second they are these numbers.
    pub share: Weight,
    /// The hard limit, in CPU-seconds a second: at least 0, for nothing at all. It is kept at any load. `None`, and what is not finite: no
    /// such limit. Below zero is 0, and so is what is not a number.
    pub most: Option<f64>,
}

impl Quota {
    /// No limit, and entitled to as much as others of whom nothing is said.
    pub const UNLIMITED: Self = Self { share: Weight::ONE, most: None };

    /// Entitled to so many CPU-seconds a second when there is not enough, and to what is left otherwise; `None` outside of
    /// [`Weight::RANGE`].
    #[must_use]
    pub fn soft(cpus: f64) -> Option<Self> {
        Some(Self { share: Weight::new(cpus)?, most: None })
    }

    /// Never more than so many CPU-seconds a second, and entitled to as much beside others; `None` unless that is finite and at least 0.
    #[must_use]
    pub fn hard(cpus: f64) -> Option<Self> {
        let (least, most) = (*Weight::RANGE.start(), *Weight::RANGE.end());
        let limit = limit(cpus)?;
        Some(Self { share: Weight::new(limit.clamp(least, most))?, most: Some(limit) })
    }

    /// The same, and never more than so many CPU-seconds a second; `None` unless that is finite and at least 0.
    #[must_use]
    pub fn at_most(self, cpus: f64) -> Option<Self> {
        Some(Self { most: Some(limit(cpus)?), ..self })
    }

    /// The hard limit that is kept, if there is one.
    pub(super) fn limit(&self) -> Option<f64> {
        // The greater of nothing and what is not a number is nothing.
        self.most.map(|most| most.max(0.0)).filter(|most| most.is_finite())
    }
}

fn limit(cpus: f64) -> Option<f64> {
    (cpus >= 0.0 && cpus.is_finite()).then_some(cpus)
}

impl Default for Quota {
    fn default() -> Self {
        Self::UNLIMITED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_make_no_sense_cannot_be_built() {
        for junk in [-1.0, f64::NAN, f64::INFINITY] {
            assert_eq!((Quota::soft(junk), Quota::hard(junk), Quota::default().at_most(junk)), (None, None, None));
        }
        assert_eq!(Quota::soft(2.0).and_then(|quota| quota.at_most(3.0)).map(|quota| quota.most), Some(Some(3.0)));
        assert_eq!(Quota::hard(3.0).map(|quota| quota.share.as_f64()), Some(3.0));
        assert_eq!(Quota::hard(0.0).map(|quota| quota.limit()), Some(Some(0.0)));
    }

    #[test]
    fn a_limit_that_was_written_without_care_is_nothing_or_none() {
        let limit = |most| Quota { most: Some(most), ..Quota::default() }.limit();
        assert_eq!([f64::NAN, -1.0, 0.5].map(limit), [Some(0.0), Some(0.0), Some(0.5)]);
        assert_eq!(limit(f64::INFINITY), None);
    }
}
