//! The quota of a customer: a soft and a hard limit on its CPU usage.
//!
//! Both are in reference CPU-seconds a second ([`Speed`]), so that one number holds on every type of
//! machine. A fast machine does the same work in fewer seconds of its own: the local limit is the
//! quota divided by the speed ([`Quota::on`]). A number for a whole fleet is also divided by the
//! machines that serve the customer, before it becomes a quota.
//!
//! An invalid limit must not become "no limit": a typing error in a limit would then remove it, and
//! be noticed in the next overload. So constructors return an error that has to be handled, and
//! there is no [`Default`]. [`Quota::UNLIMITED`] is a choice that the code states.

use core::fmt;

use crate::quota::FairShare;
use crate::{Speed, Weight};

/// The limits of one customer on its CPU usage.
///
/// ```
/// use plimsoll_core::admit::{InvalidQuota, Quota};
///
/// let quota = Quota::soft(2.0)?.at_most(3.0)?;
/// assert_eq!(quota.most, Some(3.0));
/// assert_eq!(Quota::hard(-1.0), Err(InvalidQuota::Hard(-1.0)));
/// # Ok::<_, InvalidQuota>(())
/// ```
///
/// There is no default, because that would be no limit:
///
/// ```compile_fail,E0277
/// use plimsoll_core::admit::Quota;
///
/// let quota = Quota::hard(-1.0).unwrap_or_default();
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quota {
    /// The soft limit. It binds only while there is not enough for all. Only the ratio of
    /// customers' shares counts; where they are given in reference CPU-seconds a second they are
    /// these numbers.
    pub share: Weight,
    /// The hard limit, in reference CPU-seconds a second. It is kept at any load; 0 sheds every request.
    /// `None` and infinity are no limit. A negative number and NaN count as 0.
    pub most: Option<f64>,
}

impl Quota {
    /// No hard limit, and the same share as every other unlimited customer.
    pub const UNLIMITED: Self = Self { share: Weight::ONE, most: None };

    /// A share of `cpus` CPU-seconds a second under overload, and no hard limit.
    ///
    /// # Errors
    /// Unless `cpus` is within [`Weight::RANGE`].
    pub fn soft(cpus: f64) -> Result<Self, InvalidQuota> {
        let share = Weight::new(cpus).ok_or(InvalidQuota::Soft(cpus))?;
        Ok(Self { share, most: None })
    }

    /// At most `cpus` CPU-seconds a second at any load, and a share of as much under overload.
    ///
    /// # Errors
    /// Unless `cpus` is finite and at least 0.
    pub fn hard(cpus: f64) -> Result<Self, InvalidQuota> {
        let (least, most) = (*Weight::RANGE.start(), *Weight::RANGE.end());
        let limit = limit(cpus)?;
        let share = Weight::new(limit.clamp(least, most)).expect("clamped to the range of weights");
        Ok(Self { share, most: Some(limit) })
    }

    /// The same, with a hard limit of `cpus` CPU-seconds a second.
    ///
    /// # Errors
    /// Unless `cpus` is finite and at least 0.
    pub fn at_most(self, cpus: f64) -> Result<Self, InvalidQuota> {
        Ok(Self { most: Some(limit(cpus)?), ..self })
    }

    /// The share of a customer, with its demand measured at this server.
    pub(super) fn own_share(&self) -> FairShare {
        FairShare { share: self.share.as_f64(), demand: None }
    }

    /// The same quota in CPU-seconds of a machine of this speed: divided by it. The share stays,
    /// because only the ratio of shares counts.
    #[must_use]
    pub fn on(self, speed: Speed) -> Self {
        Self { most: self.most.map(|most| speed.local(most)), ..self }
    }

    /// The hard limit that is kept, if there is one.
    pub(super) fn limit(&self) -> Option<f64> {
        // The greater of 0 and NaN is 0.
        self.most.map(|most| most.max(0.0)).filter(|most| most.is_finite())
    }
}

fn limit(cpus: f64) -> Result<f64, InvalidQuota> {
    if cpus >= 0.0 && cpus.is_finite() { Ok(cpus) } else { Err(InvalidQuota::Hard(cpus)) }
}

/// A number of CPUs that cannot be a limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum InvalidQuota {
    /// A soft limit outside [`Weight::RANGE`].
    Soft(f64),
    /// A hard limit that is negative or not finite.
    Hard(f64),
}

impl fmt::Display for InvalidQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Soft(cpus) => {
                let (least, most) = (Weight::RANGE.start(), Weight::RANGE.end());
                write!(f, "invalid soft limit: {cpus} is not from {least} to {most} CPUs")
            }
            Self::Hard(cpus) => write!(f, "invalid hard limit: {cpus} is not a finite number of CPUs, at least 0"),
        }
    }
}

impl core::error::Error for InvalidQuota {}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use super::*;

    #[test]
    fn limit_that_makes_no_sense_is_an_error_that_names_it() {
        for junk in [-1.0, f64::NEG_INFINITY, f64::INFINITY] {
            assert_eq!(Quota::soft(junk), Err(InvalidQuota::Soft(junk)));
            assert_eq!(Quota::hard(junk), Err(InvalidQuota::Hard(junk)));
            assert_eq!(Quota::UNLIMITED.at_most(junk), Err(InvalidQuota::Hard(junk)));
        }
        assert!(Quota::soft(f64::NAN).is_err() && Quota::hard(f64::NAN).is_err());
        assert_eq!(
            [InvalidQuota::Soft(5000.0), InvalidQuota::Hard(-1.0)].map(|error| error.to_string()),
            [
                "invalid soft limit: 5000 is not from 0.001 to 1000 CPUs",
                "invalid hard limit: -1 is not a finite number of CPUs, at least 0"
            ]
        );
    }

    #[test]
    fn limits_are_those_that_were_asked_for() {
        let both = Quota::soft(2.0).and_then(|quota| quota.at_most(3.0)).unwrap();
        assert_eq!((both.share.as_f64(), both.most), (2.0, Some(3.0)));
        let hard = Quota::hard(3.0).unwrap();
        assert_eq!((hard.share.as_f64(), hard.limit()), (3.0, Some(3.0)));
        let nothing = Quota::hard(0.0).unwrap();
        assert_eq!((nothing.share.as_f64(), nothing.limit()), (0.001, Some(0.0)));
    }

    #[test]
    fn local_limit_is_the_quota_divided_by_the_speed() {
        let quota = Quota::soft(2.0).and_then(|quota| quota.at_most(3.0)).unwrap();
        for (speed, local) in [(0.5, 6.0), (1.0, 3.0), (2.0, 1.5)] {
            let on = quota.on(Speed::new(speed).unwrap());
            assert_eq!((on.share.as_f64(), on.limit()), (2.0, Some(local)), "speed {speed}");
        }
        let fast = Speed::new(2.0).unwrap();
        assert_eq!(Quota::UNLIMITED.on(fast), Quota::UNLIMITED);
        assert_eq!(Quota::hard(0.0).unwrap().on(fast).limit(), Some(0.0));
    }

    #[test]
    fn hard_limit_that_is_set_by_hand_is_kept_or_0() {
        let limit = |most| Quota { most: Some(most), ..Quota::UNLIMITED }.limit();
        assert_eq!([f64::NAN, -1.0, 0.5].map(limit), [Some(0.0), Some(0.0), Some(0.5)]);
        assert_eq!(limit(f64::INFINITY), None);
    }
}
