//! Sheds the same share of all requests, by the position of one load between two limits (CRE,
//! "Using load shedding to survive a success disaster").
//!
//! ```text
//! tenths = ⌈10 · (load − soft) ÷ (hard − soft)⌉, from 0 to 10
//! ```
//!
//! of each ten successive requests. The share rises between the limits, and is all at the hard one.
//! The rule needs to know neither requests nor their costs, and any number serves as the load. That
//! is also its weakness: it sheds the most important requests as soon as the least important ones.

use plimsoll_core::admit::Shed;

/// The limits between which the share rises.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProcrusteanConfig {
    soft: f64,
    hard: f64,
}

impl ProcrusteanConfig {
    /// Sheds nothing up to a load of `soft`, and everything from `hard` on. `None` unless 0 ≤
    /// `soft` < `hard` and both are finite.
    #[must_use]
    pub fn new(soft: f64, hard: f64) -> Option<Self> {
        (soft >= 0.0 && soft < hard && hard.is_finite()).then_some(Self { soft, hard })
    }
}

/// Sheds the same share of all requests.
#[derive(Clone, Debug)]
pub struct Procrustean {
    config: ProcrusteanConfig,
    /// Tenths of a request still to be shed, below ten.
    owed: u8,
}

impl Procrustean {
    /// A new shedder.
    #[must_use]
    pub fn new(config: ProcrusteanConfig) -> Self {
        Self { config, owed: 0 }
    }

    /// The rejection of a request that arrives at this load, in the unit of the limits; `None` if
    /// it is admitted. Call it once for each request.
    pub fn shed(&mut self, load: f64) -> Option<Shed> {
        let ProcrusteanConfig { soft, hard } = self.config;
        let over = ((load - soft) / (hard - soft)).clamp(0.0, 1.0) * 10.0;
        let whole = over as u8;
        let tenths = if over > f64::from(whole) { whole + 1 } else { whole };
        // Spread over ten requests, so that a burst of five is neither admitted nor shed as a
        // whole.
        self.owed += tenths;
        let shed = self.owed >= 10;
        if shed {
            self.owed -= 10;
        }
        shed.then_some(Shed::OVERLOADED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_of_ten_that_is_shed_rises_between_the_limits() {
        let config = ProcrusteanConfig::new(25.0, 45.0).expect("in order");
        for (load, tenths) in [(0.0, 0), (25.0, 0), (25.1, 1), (27.0, 1), (35.0, 5), (44.9, 10), (45.0, 10), (1e9, 10)]
        {
            let mut shedder = Procrustean::new(config);
            for _ in 0..5 {
                assert_eq!((0..10).filter(|_| shedder.shed(load).is_some()).count(), tenths, "{load}");
            }
        }
    }

    #[test]
    fn half_of_the_requests_is_every_other_one() {
        let mut shedder = Procrustean::new(ProcrusteanConfig::new(0.0, 2.0).expect("in order"));
        assert_eq!([(); 6].map(|()| shedder.shed(1.0).is_some()), [false, true, false, true, false, true]);
    }

    #[test]
    fn limits_out_of_order_cannot_be_built() {
        for (soft, hard) in [(1.0, 1.0), (2.0, 1.0), (-1.0, 1.0), (0.0, f64::INFINITY), (f64::NAN, 1.0)] {
            assert_eq!(ProcrusteanConfig::new(soft, hard), None, "{soft} {hard}");
        }
    }
}
