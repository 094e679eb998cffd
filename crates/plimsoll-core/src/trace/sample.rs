//! Which requests are recorded, and what a request says of its trace when it goes on.
//!
//! | request | recorded | goes on with |
//! |---|---|---|
//! | no trace, or an unreadable one | a share of them, by the new trace's id | a new trace if recorded, else none |
//! | trusted sender, sampled | yes | the flag |
//! | trusted sender, not sampled | no | what it came with |
//! | stranger | the same share, by a draw | its trace id; sampled only if recorded |
//!
//! A trace is only of use as a whole, so a trusted sender's decision stands. A request without a trace
//! that is not recorded goes on without one: the services behind decide as they do without a proxy, and
//! a field in each request would cost more than all else here.
//!
//! **Strangers decide nothing.** A stranger that sets the flag would have each of its requests
//! recorded by every service behind the proxy. The draw is not by its trace id: it could choose one
//! that is always recorded. Its trace id stays, so that its own records fit to these.
//!
//! A new trace is recorded by its id, so that others with the same rule and a higher share record
//! it too:
//!
//! ```text
//! recorded if (id mod 2⁵⁶) ≥ (1 − share) · 2⁵⁶          (W3C level 2, OpenTelemetry's consistent sampling)
//! ```
//!
//! The [`RateLimit`](super::RateLimit) comes last. A sampled request of a trusted sender that it
//! refuses goes on as it came: only this proxy's spans are missing in its trace.
//!
//! A changed flag requires another span id (W3C, 3.4), though no span has it.

use super::{Flags, SpanId, TraceContext, TraceId};
use crate::{Random, Ratio};

/// The part of a trace id that is random.
const RANDOM_BITS: u32 = 56;

/// Decides which requests are recorded.
#[derive(Clone, Copy, Debug)]
pub struct Sampler {
    /// Numbers from here on are recorded, of 2⁵⁶.
    from: u64,
}

/// The trust in the sender of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// Its decision stands.
    Trusted,
    /// It decides nothing.
    Stranger,
}

/// The decision on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Not recorded: it goes on with the trace that it came with, or without one.
    Unchanged,
    /// Not recorded: it goes on with this context, in which the flag is cleared.
    Cleared(TraceContext),
    /// Recorded.
    Recorded(Recording),
}

/// The span of a recorded request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recording {
    /// Its trace, its id and the flags of requests made for it.
    pub context: TraceContext,
    /// The span of the caller; `None` for the first of its trace.
    pub parent: Option<SpanId>,
}

impl Sampler {
    /// Records this share of the requests without a decision.
    #[must_use]
    pub fn new(share: Ratio) -> Self {
        let all = 1u64 << RANDOM_BITS;
        Self { from: all - (share.as_f64() * all as f64) as u64 }
    }

    /// Decides on a request with this trace. `admit` is asked last, about one that would be recorded.
    pub fn decide(
        &self,
        came: Option<TraceContext>,
        sender: Sender,
        rng: &mut impl Random,
        admit: impl FnOnce() -> bool,
    ) -> Decision {
        let Some(came) = came else { return self.begin(rng, admit) };
        let is_wanted = match sender {
            Sender::Trusted => came.flags.is_sampled,
            Sender::Stranger => self.takes(rng.next_u64()),
        };
        let mut with_flag = |is_sampled| {
            let flags = Flags { is_sampled, ..came.flags };
            TraceContext { span: SpanId::random(rng), flags, ..came }
        };
        if is_wanted && admit() {
            return Decision::Recorded(Recording { context: with_flag(true), parent: Some(came.span) });
        }
        match sender {
            Sender::Stranger if came.flags.is_sampled => Decision::Cleared(with_flag(false)),
            Sender::Stranger | Sender::Trusted => Decision::Unchanged,
        }
    }

    /// A request that begins its trace.
    fn begin(&self, rng: &mut impl Random, admit: impl FnOnce() -> bool) -> Decision {
        let trace = TraceId::random(rng);
        if !self.takes(trace.bits() as u64) || !admit() {
            return Decision::Unchanged;
        }
        let flags = Flags { is_sampled: true, is_random: true };
        let context = TraceContext { trace, span: SpanId::random(rng), flags };
        Decision::Recorded(Recording { context, parent: None })
    }

    /// Whether the request with this random number is recorded.
    const fn takes(&self, number: u64) -> bool {
        number & ((1 << RANDOM_BITS) - 1) >= self.from
    }
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng as _;
    use rand_pcg::Pcg64Mcg;

    use super::*;

    fn context(trace: u128, is_sampled: bool) -> TraceContext {
        TraceContext {
            trace: TraceId::new(trace).unwrap(),
            span: SpanId::new(0xc).unwrap(),
            flags: Flags { is_sampled, is_random: false },
        }
    }

    fn sampler(share: f64) -> Sampler {
        Sampler::new(Ratio::new(share).unwrap())
    }

    fn rng() -> Pcg64Mcg {
        Pcg64Mcg::seed_from_u64(1)
    }

    fn recording(decision: Decision) -> Option<Recording> {
        match decision {
            Decision::Recorded(recording) => Some(recording),
            _ => None,
        }
    }

    #[test]
    fn trusted_decision_stands_whatever_the_share() {
        for share in [0.0, 1.0] {
            let decide =
                |is_sampled| sampler(share).decide(Some(context(5, is_sampled)), Sender::Trusted, &mut rng(), || true);
            assert_eq!(decide(false), Decision::Unchanged);
            let recording = recording(decide(true)).unwrap();
            assert_eq!(recording.parent, SpanId::new(0xc));
            assert_eq!((recording.context.trace.bits(), recording.context.flags.is_sampled), (5, true));
            assert_ne!(
                Some(recording.context.span),
                recording.parent,
                "the span of the caller is no span of the proxy"
            );
        }
    }

    #[test]
    fn stranger_gets_the_share_though_it_sets_the_flag_and_chooses_its_id() {
        let (sampler, mut rng, n) = (sampler(0.01), rng(), 100_000);
        // All ones: the id that the rule for new traces always records.
        let came = Some(context(u128::MAX, true));
        let mut recorded = 0;
        for _ in 0..n {
            match sampler.decide(came, Sender::Stranger, &mut rng, || true) {
                Decision::Recorded(_) => recorded += 1,
                Decision::Cleared(context) => {
                    assert!(!context.flags.is_sampled);
                    assert_eq!(context.trace.bits(), u128::MAX);
                    assert_ne!(context.span.bits(), 0xc, "another flag needs another span id");
                }
                Decision::Unchanged => panic!("the flag went on"),
            }
        }
        // Seed 1, n = 100,000, mean 1,000, five standard deviations: false alarms below 1e-6.
        assert!((842..1_158).contains(&recorded), "{recorded}");
    }

    #[test]
    fn stranger_that_is_not_sampled_goes_on_unchanged() {
        let decision = sampler(0.0).decide(Some(context(5, false)), Sender::Stranger, &mut rng(), || true);
        assert_eq!(decision, Decision::Unchanged);
    }

    #[test]
    fn new_trace_is_recorded_by_its_id_alone() {
        let (low, high, mut rng) = (sampler(0.1), sampler(0.3), rng());
        let (mut few, mut more) = (0, 0);
        for seed in 0..20_000 {
            let of =
                |sampler: Sampler| sampler.decide(None, Sender::Stranger, &mut Pcg64Mcg::seed_from_u64(seed), || true);
            let [first, second] = [low, high].map(|sampler| recording(of(sampler)));
            assert!(first.is_none() || first == second, "a higher share records the same traces and more");
            few += u32::from(first.is_some());
            more += u32::from(second.is_some());
        }
        // n = 20,000; five standard deviations on either side.
        assert!((1_788..2_212).contains(&few) && (5_676..6_324).contains(&more), "{few} {more}");
        let none = sampler(0.0).decide(None, Sender::Trusted, &mut rng, || true);
        assert_eq!(none, Decision::Unchanged);
        let all = recording(sampler(1.0).decide(None, Sender::Stranger, &mut rng, || true)).unwrap();
        assert!(all.parent.is_none() && all.context.flags == Flags { is_sampled: true, is_random: true });
    }

    #[test]
    fn rate_limit_is_asked_about_requests_that_would_be_recorded_only() {
        let never = || panic!("nothing is recorded");
        assert_eq!(
            sampler(1.0).decide(Some(context(5, false)), Sender::Trusted, &mut rng(), never),
            Decision::Unchanged
        );
        sampler(0.0).decide(None, Sender::Stranger, &mut rng(), never);
        let refused = sampler(1.0).decide(Some(context(5, true)), Sender::Trusted, &mut rng(), || false);
        assert_eq!(refused, Decision::Unchanged, "the services behind still record");
        let refused = sampler(1.0).decide(None, Sender::Stranger, &mut rng(), || false);
        assert_eq!(refused, Decision::Unchanged);
    }
}
