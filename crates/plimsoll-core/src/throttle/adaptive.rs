//! The adaptive throttle of SRE ch. 21: the probability that a client throttles its own request.
//!
//! ```text
//! p = max(0, (requests − K · accepts) ÷ (requests + 1))        (21-1)
//! ```
//!
//! over the last two minutes. *Requests* are all requests of the application, throttled ones
//! included. *Accepts* are the requests that the backend accepted. While the backend accepts at
//! least one in K, the client throttles nothing. Below that, the client's sent requests tend to K
//! times the accepted ones. The price is K − 1 rejections for each accepted request: the backend
//! pays it so that clients learn its state. The book takes K = 2.
//!
//! # Where it is weak
//!
//! Two minutes are long. When everything fails from one moment to the next, the client sends
//! everything for the first half of the window (until K · accepts < requests). After two minutes
//! without an accept p is 1 − 1/(requests + 1): the client sends one request per window. After such
//! an outage ends, the client waits for that one request, and then grows K-fold in each window. The
//! scenario `throttle-outage` shows it; [`paced`](super::paced) avoids it.
//!
//! # Sliding window
//!
//! The window slides in sixty steps and forgets its oldest sixtieth at each. So it covers 59/60 to
//! 60/60 of its length. Running sums make a query O(1). Sliding costs one operation for each step
//! that has passed, sixty at most.

use core::time::Duration;

use super::draw::Draw;
use super::{Multiple, Outcome, SendKind, ThrottledShare, Verdict, ratio};
use crate::{Random, Ratio, Timestamp};

/// The K of SRE ch. 21.
pub const DEFAULT_K: f64 = 2.0;
/// The window of SRE ch. 21.
pub const DEFAULT_WINDOW: Duration = Duration::from_secs(120);
/// Two seconds each in the book's window: an error of under 2% of it, in half a kilobyte.
const STEPS: usize = 60;

/// The probability, in [0, 1), that a client throttles a request, after `requests` of its
/// application and `accepts` of its backend. `k` is the multiple of `accepts` that the client still
/// sends, at least 1.
#[must_use]
pub fn rejection_probability(requests: f64, accepts: f64, k: f64) -> f64 {
    ((requests - k * accepts) / (requests + 1.0)).max(0.0)
}

/// Requests and accepts of one step or of the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    requests: u32,
    accepts: u32,
}

/// Requests and accepts of one criticality in a sliding window.
#[derive(Clone, Copy, Debug)]
pub struct History {
    steps: [Counts; STEPS],
    /// Sum of all steps.
    sum: Counts,
    /// Number of the present step, counted from the origin of time.
    at: u64,
    /// Length of a step in nanoseconds, above zero.
    step: u64,
    /// End of the present step: no division is needed until then.
    until: Timestamp,
}

impl History {
    /// An empty history. A `window` of less than 60 ns counts as 60 ns.
    #[must_use]
    pub fn new(now: Timestamp, window: Duration) -> Self {
        let step = (u64::try_from(window.as_nanos()).unwrap_or(u64::MAX) / STEPS as u64).max(1);
        let at = now.as_nanos() / step;
        let until = Timestamp::from_nanos((at + 1).saturating_mul(step));
        Self { steps: [Counts::default(); STEPS], sum: Counts::default(), at, step, until }
    }

    /// Decides on a request and counts it.
    pub fn ask(&mut self, now: Timestamp, k: Multiple, rng: &mut impl Random) -> Verdict {
        let verdict = match self.judge(now, k, &mut Draw::new(rng)) {
            Some(sent) => Verdict::Send(sent),
            None => Verdict::Throttle(ThrottledShare { share: ratio(self.probability(k)) }),
        };
        self.count_request();
        verdict
    }

    /// Decides on the next request without counting it.
    pub(super) fn judge(&mut self, now: Timestamp, k: Multiple, draw: &mut Draw<impl Random>) -> Option<SendKind> {
        self.slide(now);
        let probability = self.probability(k);
        (probability == 0.0 || draw.unit() >= probability).then_some(SendKind::Ordinary)
    }

    /// Counts the request of the last decision.
    pub(super) fn count_request(&mut self) {
        self.count(|counts| counts.requests = counts.requests.saturating_add(1));
    }

    /// Counts the outcome of a sent request.
    pub fn on_outcome(&mut self, now: Timestamp, outcome: Outcome) {
        match outcome {
            Outcome::Accepted => {
                self.slide(now);
                self.count(|counts| counts.accepts = counts.accepts.saturating_add(1));
            }
            // It was counted when it was sent.
            Outcome::Rejected => {}
            // No backend was asked in the end. The request may belong to an older step, but its
            // count is the same.
            Outcome::Unknown => self.take_back(),
        }
    }

    /// The share of requests that is throttled now.
    #[must_use]
    pub fn throttled_share(&self, now: Timestamp, k: Multiple) -> Ratio {
        let mut then = *self;
        then.slide(now);
        ratio(then.probability(k))
    }

    fn probability(&self, k: Multiple) -> f64 {
        rejection_probability(f64::from(self.sum.requests), f64::from(self.sum.accepts), k.as_f64())
    }

    fn count(&mut self, change: impl Fn(&mut Counts)) {
        change(&mut self.steps[(self.at % STEPS as u64) as usize]);
        change(&mut self.sum);
    }

    fn take_back(&mut self) {
        let current = (self.at % STEPS as u64) as usize;
        // Backwards from the latest step, to find the latest request first.
        let found = (0..STEPS).map(|back| (current + STEPS - back) % STEPS).find(|i| self.steps[*i].requests > 0);
        if let Some(i) = found {
            self.steps[i].requests -= 1;
            self.sum.requests = self.sum.requests.saturating_sub(1);
        }
    }

    /// Forgets the steps older than the window.
    fn slide(&mut self, now: Timestamp) {
        if now < self.until {
            return;
        }
        let at = now.as_nanos() / self.step;
        self.until = Timestamp::from_nanos((at + 1).saturating_mul(self.step));
        if at.saturating_sub(self.at) >= STEPS as u64 {
            self.steps = [Counts::default(); STEPS];
            self.sum = Counts::default();
        } else {
            for step in self.at + 1..=at {
                let gone = core::mem::take(&mut self.steps[(step % STEPS as u64) as usize]);
                self.sum.requests = self.sum.requests.saturating_sub(gone.requests);
                self.sum.accepts = self.sum.accepts.saturating_sub(gone.accepts);
            }
        }
        self.at = at;
    }
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng as _;
    use rand_pcg::Pcg64Mcg;

    use super::*;

    fn secs(secs: f64) -> Timestamp {
        Timestamp::from_origin(Duration::from_secs_f64(secs))
    }

    #[test]
    fn probability_is_zero_while_one_in_k_is_accepted() {
        assert_eq!(rejection_probability(0.0, 0.0, 2.0), 0.0);
        assert_eq!(rejection_probability(100.0, 100.0, 2.0), 0.0);
        assert_eq!(rejection_probability(100.0, 50.0, 2.0), 0.0);
        assert_eq!(rejection_probability(99.0, 29.0, 2.0), 0.41);
        assert_eq!(rejection_probability(99.0, 29.0, 1.0), 0.7);
        assert_eq!(rejection_probability(99.0, 0.0, 2.0), 0.99);
    }

    #[test]
    fn sent_requests_tend_to_k_times_the_accepted_ones() {
        // The backend accepts 100 of 1,000 requests a second. The client sends 1000 · (1 − p) of
        // them.
        let sent = 1000.0 * (1.0 - rejection_probability(120_000.0, 12_000.0, 2.0));
        assert!((sent - 200.0).abs() < 0.01, "{sent}");
    }

    /// A window of a minute, so a step is a second.
    #[test]
    fn window_forgets_its_oldest_step_first() {
        let (mut history, mut rng) = (History::new(secs(0.0), Duration::from_secs(60)), Pcg64Mcg::seed_from_u64(1));
        for second in 0..30 {
            assert_eq!(
                history.ask(secs(f64::from(second)), Multiple::DEFAULT, &mut rng),
                Verdict::Send(SendKind::Ordinary)
            );
            history.on_outcome(secs(f64::from(second)), Outcome::Accepted);
        }
        for (at, left) in [(59.0, 30), (60.0, 29), (75.5, 14), (88.9, 1), (89.0, 0), (1e6, 0)] {
            history.slide(secs(at));
            assert_eq!(history.sum, Counts { requests: left, accepts: left }, "at {at}");
        }
    }

    #[test]
    fn throttled_requests_count_as_requests() {
        let (mut history, mut rng) = (History::new(secs(0.0), DEFAULT_WINDOW), Pcg64Mcg::seed_from_u64(2));
        for _ in 0..1_000 {
            if let Verdict::Send(_) = history.ask(secs(1.0), Multiple::DEFAULT, &mut rng) {
                history.on_outcome(secs(1.0), Outcome::Rejected);
            }
        }
        assert_eq!(history.sum, Counts { requests: 1_000, accepts: 0 });
        assert_eq!(history.throttled_share(secs(1.0), Multiple::DEFAULT).as_f64(), 1000.0 / 1001.0);
    }

    #[test]
    fn withdrawn_requests_do_not_count() {
        let (mut history, mut rng) = (History::new(secs(0.0), DEFAULT_WINDOW), Pcg64Mcg::seed_from_u64(3));
        for at in [1.0, 5.0] {
            assert_eq!(history.ask(secs(at), Multiple::DEFAULT, &mut rng), Verdict::Send(SendKind::Ordinary));
            history.on_outcome(secs(at), Outcome::Unknown);
        }
        history.on_outcome(secs(6.0), Outcome::Unknown);
        assert_eq!(history.sum, Counts::default());
    }

    #[test]
    fn history_counts_when_time_stands_still_or_goes_back() {
        let (mut history, mut rng) = (History::new(secs(100.0), DEFAULT_WINDOW), Pcg64Mcg::seed_from_u64(4));
        for at in [100.0, 90.0, 100.0] {
            assert_eq!(history.ask(secs(at), Multiple::DEFAULT, &mut rng), Verdict::Send(SendKind::Ordinary));
            history.on_outcome(secs(at), Outcome::Accepted);
        }
        assert_eq!(history.sum, Counts { requests: 3, accepts: 3 });
    }

    /// A window of a minute, so a step is a second. Steps 65 and 5 share a slot.
    #[test]
    fn withdrawal_removes_the_latest_request_only() {
        let (mut history, mut rng) = (History::new(secs(0.0), Duration::from_secs(60)), Pcg64Mcg::seed_from_u64(5));
        for at in [50.0, 65.0] {
            let _verdict = history.ask(secs(at), Multiple::DEFAULT, &mut rng);
        }
        history.on_outcome(secs(70.0), Outcome::Accepted);
        history.on_outcome(secs(70.0), Outcome::Unknown);
        let _verdict = history.ask(secs(100.0), Multiple::DEFAULT, &mut rng);
        for (at, requests) in [(109.0, 2), (110.0, 1), (125.0, 1), (159.0, 1), (160.0, 0)] {
            history.slide(secs(at));
            assert_eq!(history.sum.requests, requests, "at {at}");
        }
    }
}
