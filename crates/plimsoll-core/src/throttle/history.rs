//! History of one criticality or one operation, under either policy.

use alloc::boxed::Box;

use super::draw::Draw;
use super::{Outcome, SendKind, ThrottlePolicy, adaptive, paced, ratio};
use crate::{Random, Ratio, Timestamp};

/// The outcomes of requests so far, and the decision on the next one.
#[derive(Clone, Debug)]
pub(super) enum History {
    /// Half a kilobyte, boxed to keep the common variant small.
    Adaptive(Box<adaptive::History>, super::Multiple),
    Paced(paced::Pace, super::Multiple),
}

impl History {
    /// A history without outcomes; `None` if the policy is off.
    pub(super) fn new(now: Timestamp, policy: ThrottlePolicy) -> Option<Self> {
        match policy {
            ThrottlePolicy::Off => None,
            ThrottlePolicy::Adaptive { k, window } => {
                Some(Self::Adaptive(Box::new(adaptive::History::new(now, window)), k))
            }
            ThrottlePolicy::Paced { k } => Some(Self::Paced(paced::Pace::new(now, k), k)),
        }
    }

    /// Decides whether to send the next request. [`History::on_sent`] or [`History::on_throttled`]
    /// must follow if the decision stands.
    pub(super) fn judge(&mut self, now: Timestamp, draw: &mut Draw<'_, impl Random>) -> Option<SendKind> {
        match self {
            Self::Adaptive(history, k) => history.judge(now, *k, draw),
            Self::Paced(pace, _) => pace.judge(now, draw),
        }
    }

    pub(super) fn on_sent(&mut self, now: Timestamp, sent: SendKind, draw: &mut Draw<'_, impl Random>) {
        match self {
            Self::Adaptive(history, _) => history.count_request(),
            Self::Paced(pace, _) => pace.on_sent(now, sent, draw),
        }
    }

    pub(super) fn on_throttled(&mut self) {
        match self {
            Self::Adaptive(history, _) => history.count_request(),
            Self::Paced(pace, _) => pace.on_throttled(),
        }
    }

    pub(super) fn on_outcome(&mut self, now: Timestamp, outcome: Outcome) {
        match self {
            Self::Adaptive(history, _) => history.on_outcome(now, outcome),
            Self::Paced(pace, k) => pace.on_outcome(now, *k, outcome),
        }
    }

    /// Counts accepts that change nothing else: see [`is_like_new`](Self::is_like_new).
    pub(super) fn on_quiet_accepts(&mut self, now: Timestamp, count: u32) {
        match self {
            Self::Adaptive(history, _) => (0..count).for_each(|_| history.on_outcome(now, Outcome::Accepted)),
            Self::Paced(pace, _) => pace.on_quiet_accepts(now, count),
        }
    }

    pub(super) fn throttled_share(&self, now: Timestamp) -> Ratio {
        match self {
            Self::Adaptive(history, k) => history.throttled_share(now, *k),
            Self::Paced(pace, _) => pace.throttled_share(),
        }
    }

    /// Whether a new history would decide the same.
    pub(super) fn is_like_new(&self) -> bool {
        match self {
            // Its window differs from a new one's. It is dropped when another operation needs its
            // slot.
            Self::Adaptive(..) => false,
            Self::Paced(pace, _) => pace.is_like_new(),
        }
    }

    /// Whether an accept is news.
    pub(super) fn is_in_outage(&self, now: Timestamp) -> bool {
        match self {
            Self::Adaptive(history, k) => history.throttled_share(now, *k) > ratio(0.5),
            Self::Paced(pace, _) => pace.is_in_outage(),
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::throttle::Multiple;

    /// Without accepts the throttled share is n / (n + 1).
    #[test]
    fn adaptive_history_is_in_outage_when_more_than_half_is_throttled() {
        let now = Timestamp::ZERO;
        let policy = ThrottlePolicy::Adaptive { k: Multiple::DEFAULT, window: Duration::from_secs(120) };
        let mut history = History::new(now, policy).expect("it is on");
        let in_outage = [(); 3].map(|()| {
            let is_in_outage = history.is_in_outage(now);
            history.on_throttled();
            is_in_outage
        });
        assert_eq!(in_outage, [false, false, true]);
    }
}
