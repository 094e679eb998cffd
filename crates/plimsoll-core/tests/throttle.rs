//! Promises of throttles, in virtual time: clients of one cluster, and a backend that limits its
//! accepted requests, fails for a while, or fails at random.
//!
//! Seeds are fixed, so nothing fails by chance. Each promise of `paced` is also put to `adaptive`,
//! which breaks those about seconds: the assertions can fail.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use plimsoll_core::throttle::adaptive::DEFAULT_WINDOW;
use plimsoll_core::throttle::{Multiple, Outcome, SendKind, Throttle, ThrottlePolicy, Verdict};
use plimsoll_core::{Criticality, Ratio, Timestamp};
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

const ADAPTIVE: ThrottlePolicy = ThrottlePolicy::Adaptive { k: Multiple::DEFAULT, window: DEFAULT_WINDOW };
const PACED: ThrottlePolicy = ThrottlePolicy::Paced { k: Multiple::DEFAULT };
const SEEDS: [u64; 3] = [1, 2, 3];

#[test]
fn sent_requests_are_k_times_the_accepted_at_any_overload() {
    for (rate, clients, seconds) in [(10.0, 20, 1_000), (100.0, 10, 150), (1_000.0, 3, 60)] {
        for over in [2.0, 4.0, 10.0, 50.0] {
            for seed in SEEDS {
                let each = rate / over;
                let found = Fleet { policy: PACED, clients, rate, seed }.run(Backend::Accepts(each), seconds);
                let settled = &found[seconds / 4..];
                let of_capacity = |of| mean(settled, of) / each / clients as f64;
                let (sent, accepted) = (of_capacity(|s| s.sent), of_capacity(|s| s.accepted));
                assert!(
                    (1.7..=2.06).contains(&sent) && accepted > 0.97,
                    "{rate}/s at {over}×, seed {seed}: sent {sent}, accepted {accepted}"
                );
            }
        }
    }
}

#[test]
fn throttle_follows_an_outage_within_five_and_six_seconds() {
    let found = |policy, rate, clients, seed| {
        let found = Fleet { policy, clients, rate, seed }.run(Backend::Fails { from: 30.0, to: 210.0 }, 230);
        let each = |from: usize, to: usize| mean(&found[from..to], |s| s.sent) / clients as f64;
        let recovered = (210..230).find(|s| found[*s].accepted as f64 >= 0.9 * found[*s].asked as f64);
        (each(35, 45), each(150, 210), recovered.map_or(f64::INFINITY, |second| second as f64 + 1.0 - 210.0))
    };
    for (rate, clients) in [(10.0, 20), (100.0, 10), (1_000.0, 4)] {
        for seed in SEEDS {
            let (soon, later, recovered) = found(PACED, rate, clients, seed);
            assert!(soon < 2.0 && (0.5..2.0).contains(&later), "{rate}/s, seed {seed}: {soon}/s, then {later}/s");
            assert!(recovered <= 6.0, "{rate}/s, seed {seed}: {recovered} s");
        }
    }
    let (soon, later, recovered) = found(ADAPTIVE, 100.0, 10, 1);
    assert!(soon > 90.0 && later < 0.1 && recovered == f64::INFINITY, "{soon}/s, {later}/s, {recovered} s");
}

#[test]
fn random_errors_within_k_cause_no_throttling() {
    let held = |policy, seed| {
        let found = Fleet { policy, clients: 10, rate: 100.0, seed }.run(Backend::Errs(0.3), 100);
        1.0 - mean(&found, |s| s.sent) / mean(&found, |s| s.asked)
    };
    for seed in SEEDS {
        assert!(held(PACED, seed) <= 0.001, "seed {seed}: {}", held(PACED, seed));
    }
}

#[test]
fn lower_k_sends_less() {
    for (k, low, high) in [(1.2, 1.1, 1.25), (2.0, 1.9, 2.06), (4.0, 3.7, 4.15)] {
        for policy in [
            ThrottlePolicy::Paced { k: Multiple::new(k).unwrap() },
            ThrottlePolicy::Adaptive { k: Multiple::new(k).unwrap(), window: DEFAULT_WINDOW },
        ] {
            let found = Fleet { policy, clients: 10, rate: 100.0, seed: 5 }.run(Backend::Accepts(10.0), 400);
            let sent = mean(&found[200..], |s| s.sent) / 100.0;
            assert!((low..high).contains(&sent), "{} with K = {k}: {sent}", policy.name());
        }
    }
}

#[test]
fn adaptive_sends_k_times_the_accepted_requests() {
    let found = Fleet { policy: ADAPTIVE, clients: 10, rate: 100.0, seed: 1 }.run(Backend::Accepts(10.0), 400);
    let sent = mean(&found[200..], |s| s.sent) / 100.0;
    assert!((1.9..2.06).contains(&sent), "{sent}");
}

/// In a known outage a client sends one probe in about a second and nothing else, at any offered
/// rate.
#[test]
fn only_probes_are_sent_in_an_outage() {
    let mut rng = Pcg64Mcg::seed_from_u64(7);
    let mut throttle = Throttle::new(at(0), PACED);
    let mut probes = Vec::new();
    for ms in 0..120_000 {
        match throttle.ask(at(ms), Criticality::Critical, &mut rng) {
            Verdict::Send(sent) => {
                throttle.on_outcome(at(ms), Criticality::Critical, Outcome::Rejected);
                if ms > 10_000 && sent == SendKind::Probe {
                    probes.push(ms);
                }
            }
            Verdict::Throttle(hold) => assert!(hold.share.as_f64() > 0.0 && hold.share <= Ratio::ONE),
        }
    }
    let gaps: Vec<u64> = probes.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(probes.len() > 40 && gaps.iter().all(|gap| *gap >= 500), "{gaps:?}");
    assert!(gaps.iter().any(|gap| *gap != gaps[0]), "at random");
}

#[test]
fn criticality_is_not_throttled_for_another() {
    for policy in [PACED, ADAPTIVE] {
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let mut throttle = Throttle::new(at(0), policy);
        for ms in 0..60_000 {
            if let Verdict::Send(_) = throttle.ask(at(ms), Criticality::Sheddable, &mut rng) {
                throttle.on_outcome(at(ms), Criticality::Sheddable, Outcome::Rejected);
            }
            let verdict = throttle.ask(at(ms), Criticality::Critical, &mut rng);
            assert_eq!(verdict, Verdict::Send(SendKind::Ordinary), "{}, {ms} ms", policy.name());
            throttle.on_outcome(at(ms), Criticality::Critical, Outcome::Accepted);
        }
        assert!(throttle.throttled_share(at(60_000), Criticality::Sheddable).as_f64() > 0.9, "{}", policy.name());
        assert_eq!(throttle.throttled_share(at(60_000), Criticality::Critical), Ratio::ZERO);
    }
}

#[test]
fn policy_off_throttles_nothing() {
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    let mut throttle = Throttle::new(at(0), ThrottlePolicy::Off);
    for ms in 0..1_000 {
        assert_eq!(throttle.ask(at(ms), Criticality::Critical, &mut rng), Verdict::Send(SendKind::Ordinary));
        throttle.on_outcome(at(ms), Criticality::Critical, Outcome::Rejected);
    }
    assert_eq!(throttle.throttled_share(at(1_000), Criticality::Critical), Ratio::ZERO);
}

/// A client with a request once in a while keeps sending it, though it gets no answer.
#[test]
fn rare_requests_are_always_sent() {
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    let mut throttle = Throttle::new(at(0), PACED);
    for second in (0..1_000).step_by(2) {
        assert!(
            matches!(throttle.ask(at(second * 1_000), Criticality::Critical, &mut rng), Verdict::Send(_)),
            "{second} s"
        );
        throttle.on_outcome(at(second * 1_000), Criticality::Critical, Outcome::Rejected);
    }
}

#[test]
fn withdrawn_requests_cause_no_throttling() {
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    for policy in [PACED, ADAPTIVE] {
        let mut throttle = Throttle::new(at(0), policy);
        for ms in 0..10_000 {
            assert_eq!(throttle.ask(at(ms), Criticality::Critical, &mut rng), Verdict::Send(SendKind::Ordinary));
            throttle.on_outcome(at(ms), Criticality::Critical, Outcome::Unknown);
        }
    }
}

/// The shown share is the present one: requests throttled in the last seconds count for operations
/// alone.
#[test]
fn throttled_share_is_zero_as_soon_as_all_is_sent_again() {
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    let mut throttle = Throttle::new(at(0), PACED);
    for ms in 0..10_000 {
        let outcome = if ms < 5_000 { Outcome::Rejected } else { Outcome::Accepted };
        if let Verdict::Send(_) = throttle.ask(at(ms), Criticality::Critical, &mut rng) {
            throttle.on_outcome(at(ms), Criticality::Critical, outcome);
        }
        if ms == 4_999 {
            assert!(throttle.throttled_share(at(ms), Criticality::Critical).as_f64() > 0.9);
        }
    }
    assert_eq!(throttle.throttled_share(at(10_000), Criticality::Critical), Ratio::ZERO);
}

fn at(ms: u64) -> Timestamp {
    Timestamp::from_nanos(ms * 1_000_000)
}

/// Behaviour of the backend.
#[derive(Clone, Copy)]
enum Backend {
    /// Accepts this many requests a second for each client, all clients together.
    Accepts(f64),
    /// Fails this share at random.
    Errs(f64),
    /// Accepts all requests except between these seconds, when it accepts none.
    Fails { from: f64, to: f64 },
}

/// Clients, and the rate of requests at each, at random instants.
#[derive(Clone, Copy)]
struct Fleet {
    policy: ThrottlePolicy,
    clients: usize,
    rate: f64,
    seed: u64,
}

/// Counts of one second.
#[derive(Clone, Copy, Default)]
struct Second {
    asked: u64,
    sent: u64,
    accepted: u64,
}

fn mean(found: &[Second], of: fn(&Second) -> u64) -> f64 {
    found.iter().map(of).sum::<u64>() as f64 / found.len() as f64
}

/// From a request to its outcome.
const LATENCY: u64 = 5_000_000;

impl Fleet {
    fn run(self, backend: Backend, seconds: usize) -> Vec<Second> {
        let mut rng = Pcg64Mcg::seed_from_u64(self.seed);
        let mut throttles: Vec<Throttle> = (0..self.clients).map(|_| Throttle::new(at(0), self.policy)).collect();
        let mut found = vec![Second::default(); seconds];
        let gap = |rng: &mut Pcg64Mcg| (-(1.0 - unit(rng)).ln() / self.rate * 1e9) as u64;
        // By time and client; an arrival, or an outcome.
        let mut events: BinaryHeap<_> =
            (0..self.clients).map(|client| Reverse((gap(&mut rng), client, None))).collect();
        let (mut tokens, mut filled) = (0.0_f64, 0);
        while let Some(Reverse((now, client, outcome))) = events.pop() {
            let Some(second) = found.get_mut((now / 1_000_000_000) as usize) else { break };
            let (time, throttle) = (Timestamp::from_nanos(now), &mut throttles[client]);
            if let Some(accepted) = outcome {
                let outcome = if accepted { Outcome::Accepted } else { Outcome::Rejected };
                throttle.on_outcome(time, Criticality::Critical, outcome);
                continue;
            }
            events.push(Reverse((now + gap(&mut rng), client, None)));
            second.asked += 1;
            if let Verdict::Throttle(_) = throttle.ask(time, Criticality::Critical, &mut rng) {
                continue;
            }
            second.sent += 1;
            let accepted = match backend {
                Backend::Accepts(each) => {
                    // A queue of a tenth of a second.
                    let capacity = each * self.clients as f64;
                    tokens = (tokens + (now - filled) as f64 / 1e9 * capacity).min((capacity * 0.1).max(10.0));
                    filled = now;
                    let accepted = tokens >= 1.0;
                    tokens -= f64::from(u8::from(accepted));
                    accepted
                }
                Backend::Errs(share) => unit(&mut rng) >= share,
                Backend::Fails { from, to } => !(from..to).contains(&(now as f64 / 1e9)),
            };
            second.accepted += u64::from(accepted);
            events.push(Reverse((now + LATENCY, client, Some(accepted))));
        }
        found
    }
}

fn unit(rng: &mut Pcg64Mcg) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}
