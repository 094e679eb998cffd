//! A sent request as a token, so that its outcome is reported once.
//!
//! [`Throttle::ask`] trusts its caller with the second call, [`Throttle::on_outcome`]. A forgotten
//! one is silent: the throttle never learns. [`Throttle::begin`] returns a token, which
//! [`Throttle::end`] consumes. An ignored token is a warning, and a second report does not compile.

use super::{Outcome, SendKind, Throttle, ThrottledShare, Verdict};
use crate::{Criticality, Operation, Random, Timestamp};

/// A sent request without an outcome yet.
///
/// It is used once:
///
/// ```compile_fail,E0382
/// # use plimsoll_core::throttle::{Outcome, Throttle, ThrottlePolicy};
/// # use plimsoll_core::{Criticality, Operation, Timestamp};
/// # let (mut rng, now) = (rand_pcg::Pcg64Mcg::new(1), Timestamp::ZERO);
/// # let mut throttle = Throttle::new(now, ThrottlePolicy::default());
/// let sent = throttle.begin(now, Criticality::Critical, Operation::UNKNOWN, &mut rng).unwrap();
/// throttle.end(now, sent, Outcome::Accepted);
/// throttle.end(now, sent, Outcome::Accepted);
/// ```
///
/// A token that nobody keeps is a warning:
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # use plimsoll_core::throttle::{Throttle, ThrottlePolicy, ThrottledShare};
/// # use plimsoll_core::{Criticality, Operation, Timestamp};
/// # let (mut rng, now) = (rand_pcg::Pcg64Mcg::new(1), Timestamp::ZERO);
/// # let mut throttle = Throttle::new(now, ThrottlePolicy::default());
/// throttle.begin(now, Criticality::Critical, Operation::UNKNOWN, &mut rng).unwrap();
/// ```
#[derive(Debug, PartialEq, Eq)]
#[must_use = "the throttle learns from outcomes: pass the token to `Throttle::end`"]
pub struct SentRequest {
    criticality: Criticality,
    operation: Operation,
    kind: SendKind,
}

impl SentRequest {
    /// Its criticality.
    #[must_use]
    pub const fn criticality(&self) -> Criticality {
        self.criticality
    }

    /// The reason for sending it.
    #[must_use]
    pub const fn kind(&self) -> SendKind {
        self.kind
    }
}

impl Throttle {
    /// As [`ask_for`](Self::ask_for), with a token for the outcome.
    ///
    /// ```
    /// use plimsoll_core::throttle::{Outcome, Throttle, ThrottlePolicy};
    /// use plimsoll_core::{Criticality, Operation, Timestamp};
    ///
    /// let (mut rng, now) = (rand_pcg::Pcg64Mcg::new(1), Timestamp::ZERO);
    /// let mut throttle = Throttle::new(now, ThrottlePolicy::default());
    /// match throttle.begin(now, Criticality::Critical, Operation::UNKNOWN, &mut rng) {
    ///     Ok(sent) => throttle.end(now, sent, Outcome::Accepted), // after the answer
    ///     Err(throttled) => println!("not sent: {} of such requests", throttled.share),
    /// }
    /// ```
    ///
    /// # Errors
    /// The request is throttled: it fails here, and has no outcome.
    pub fn begin(
        &mut self,
        now: Timestamp,
        criticality: Criticality,
        operation: Operation,
        rng: &mut impl Random,
    ) -> Result<SentRequest, ThrottledShare> {
        match self.ask_for(now, criticality, operation, rng) {
            Verdict::Send(kind) => Ok(SentRequest { criticality, operation, kind }),
            Verdict::Throttle(share) => Err(share),
        }
    }

    /// Reports the outcome of a sent request.
    pub fn end(&mut self, now: Timestamp, sent: SentRequest, outcome: Outcome) {
        self.on_outcome_of(now, sent.criticality, sent.operation, outcome);
    }
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng as _;
    use rand_pcg::Pcg64Mcg;

    use super::*;
    use crate::throttle::ThrottlePolicy;

    /// Seed 5. Two throttles with the same history decide alike.
    #[test]
    fn token_reports_to_the_history_of_its_request() {
        let at = |millis| Timestamp::from_nanos(millis * 1_000_000);
        let mut rngs = [5, 5].map(Pcg64Mcg::seed_from_u64);
        let [mut by_token, mut by_hand] = [(); 2].map(|()| Throttle::new(at(0), ThrottlePolicy::default()));
        let mut throttled = 0;
        for millis in 0..2_000 {
            let criticality = Criticality::ALL[millis as usize % 4];
            let operation = Operation::new(millis % 3, 1);
            let outcome = if criticality == Criticality::Sheddable { Outcome::Rejected } else { Outcome::Accepted };
            let [token_rng, hand_rng] = &mut rngs;
            let sent = by_token.begin(at(millis), criticality, operation, token_rng);
            match by_hand.ask_for(at(millis), criticality, operation, hand_rng) {
                Verdict::Send(kind) => {
                    let sent = sent.expect("both send");
                    assert_eq!(sent.kind(), kind);
                    by_token.end(at(millis), sent, outcome);
                    by_hand.on_outcome_of(at(millis), criticality, operation, outcome);
                }
                Verdict::Throttle(share) => {
                    throttled += 1;
                    assert_eq!(sent, Err(share));
                }
            }
        }
        assert!((300..500).contains(&throttled), "{throttled} of 500 sheddable requests");
    }
}
