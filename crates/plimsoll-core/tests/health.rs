//! Ejection, panic, slow start, backoff and checks, through a balancer's public calls.

use std::num::NonZeroU32;
use std::time::Duration;

use plimsoll_core::health::{CheckOutcome, OutlierConfig, Reason, State};
use plimsoll_core::pick::PolicyKind;
use plimsoll_core::{
    BackendId, Balancer, BalancerConfig, Completion, Event, LoadReport, Outcome, Pick, Ratio, Timestamp, WaitReason,
    Weight,
};
use plimsoll_testkit::events::Recorder;
use plimsoll_testkit::seeded;
use plimsoll_testkit::stats::assert_share;
use rand_core::Rng as _;
use rand_pcg::Pcg64Mcg;

struct Cluster {
    balancer: Balancer,
    ids: Vec<BackendId>,
    recorder: Recorder,
    rng: Pcg64Mcg,
    now: Timestamp,
}

impl Cluster {
    /// `n` backends, all connecting.
    fn connecting(config: BalancerConfig, n: usize) -> Self {
        let (mut balancer, mut recorder) = (Balancer::new(config), Recorder::default());
        let ids = (0..n).map(|_| balancer.add(Timestamp::ZERO, Weight::ONE, &mut recorder)).collect();
        Self { balancer, ids, recorder, rng: seeded(3), now: Timestamp::ZERO }
    }

    /// `n` backends, healthy for a long time.
    fn healthy(config: BalancerConfig, n: usize) -> Self {
        let mut cluster = Self::connecting(config, n);
        for index in 0..n {
            cluster.check(index, CheckOutcome::Passed);
        }
        cluster.pass_ms(60_000);
        cluster
    }

    fn pass_ms(&mut self, ms: u64) {
        self.now = self.now + Duration::from_millis(ms);
        self.balancer.handle_timeout(self.now, &mut self.recorder);
    }

    fn check(&mut self, index: usize, outcome: CheckOutcome) {
        self.balancer.on_check(self.now, self.ids[index], outcome, &mut self.rng, &mut self.recorder);
    }

    fn checks_to_run(&mut self) -> Vec<usize> {
        let mut due: Vec<usize> = std::iter::from_fn(|| self.balancer.poll_check())
            .map(|id| self.ids.iter().position(|known| *known == id).expect("a member"))
            .collect();
        due.sort_unstable();
        due
    }

    fn pick(&mut self) -> Option<usize> {
        match self.balancer.pick(self.now, &mut self.rng) {
            Pick::Backend(id) => Some(self.ids.iter().position(|known| *known == id).expect("a member")),
            _ => None,
        }
    }

    /// A request at this backend, against the policy if needed.
    fn request(&mut self, index: usize, outcome: Outcome) {
        let mut others = Vec::new();
        loop {
            let picked = self.pick().expect("a backend is usable");
            if picked == index {
                break;
            }
            others.push(picked);
            assert!(others.len() < 10_000, "backend {index} is never picked");
        }
        self.finish(index, outcome);
        others.into_iter().for_each(|index| self.finish(index, Outcome::Cancelled));
    }

    fn finish(&mut self, index: usize, outcome: Outcome) {
        let completion = Completion { outcome, latency: Some(Duration::from_millis(5)) };
        self.balancer.finish(self.now, self.ids[index], completion, &mut self.recorder);
    }

    /// Requests at one a millisecond; each backend fails its share by timeouts.
    fn overloaded(share: impl Fn(usize) -> f64, requests: u32) -> Self {
        let mut cluster = Self::healthy(random(), 10);
        for _ in 0..requests {
            let index = cluster.pick().expect("all are healthy");
            let late = f64::from(cluster.rng.next_u32()) < share(index) * f64::from(u32::MAX);
            cluster.finish(index, if late { Outcome::TimedOut } else { Outcome::Success });
            cluster.pass_ms(1);
        }
        cluster
    }

    fn ejections(&self) -> usize {
        let is_ejection = |event: &Event| matches!(event, Event::StateChanged { to: State::Ejected, .. });
        self.recorder.events.iter().filter(|(_, event)| is_ejection(event)).count()
    }

    fn state(&self, index: usize) -> State {
        let state = self.balancer.snapshot(self.now)[index].state;
        assert_eq!(state, self.recorder.state(self.ids[index]), "according to events");
        state
    }

    fn count(&self, state: State) -> usize {
        (0..self.ids.len()).filter(|index| self.state(*index) == state).count()
    }

    fn changes(&self, index: usize) -> Vec<(State, State, Reason)> {
        self.recorder.changes(self.ids[index])
    }
}

fn random() -> BalancerConfig {
    BalancerConfig::new(PolicyKind::Random)
}

fn active_checks() -> BalancerConfig {
    let mut config = random();
    config.checks.active = true;
    config
}

#[test]
fn five_failures_in_a_row_eject_for_thirty_seconds() {
    let mut cluster = Cluster::healthy(random(), 10);
    for _ in 0..4 {
        cluster.request(0, Outcome::Failure);
    }
    assert_eq!(cluster.state(0), State::Healthy);
    cluster.request(0, Outcome::Failure);
    assert_eq!(cluster.state(0), State::Ejected);
    for _ in 0..1_000 {
        let index = cluster.pick().expect("nine are left");
        assert_ne!(index, 0, "picked though ejected");
        cluster.finish(index, Outcome::Success);
    }
    cluster.pass_ms(29_999);
    assert_eq!(cluster.state(0), State::Ejected);
    cluster.pass_ms(1);
    assert_eq!(cluster.state(0), State::Healthy);
    let ejection = [
        (State::Connecting, State::Healthy, Reason::CheckPassed),
        (State::Healthy, State::Ejected, Reason::ConsecutiveFailures),
        (State::Ejected, State::Healthy, Reason::EjectionOver),
    ];
    assert_eq!(cluster.changes(0), ejection);
}

#[test]
fn neither_overload_nor_cancellation_ejects() {
    let mut cluster = Cluster::healthy(random(), 10);
    for outcome in [Outcome::Overloaded, Outcome::Cancelled] {
        (0..50).for_each(|_| cluster.request(0, outcome));
    }
    assert_eq!(cluster.state(0), State::Healthy);
}

#[test]
fn no_more_than_a_tenth_are_ejected_at_once_and_never_the_last() {
    for (n, most) in [(1, 0), (2, 1), (5, 1), (10, 1), (29, 2), (30, 3)] {
        let mut cluster = Cluster::healthy(random(), n);
        let broken = n.div_ceil(3);
        for _ in 0..n * 200 {
            let index = cluster.pick().expect("a backend is usable");
            cluster.finish(index, if index < broken { Outcome::Failure } else { Outcome::Success });
        }
        assert_eq!(cluster.count(State::Ejected), most, "{broken} of {n} fail");
    }
}

#[test]
fn outage_of_all_backends_ejects_none() {
    for (n, outcome) in [2, 3, 10, 30].into_iter().flat_map(|n| [(n, Outcome::Failure), (n, Outcome::TimedOut)]) {
        let mut cluster = Cluster::healthy(random(), n);
        // Healthy for a long time, so that only the last requests are evidence.
        for outcome in [Outcome::Success, outcome] {
            for _ in 0..n * 500 {
                let index = cluster.pick().expect("all are healthy");
                cluster.finish(index, outcome);
                cluster.pass_ms(1);
            }
        }
        assert_eq!(cluster.count(State::Healthy), n, "{outcome:?} at {n}");
    }
}

/// The first two of ten time out on three requests of ten, the others on one of twenty: an overload
/// of machines of different speeds. It tests both rules, with both kinds of evidence.
#[test]
fn overload_of_the_whole_cluster_ejects_none() {
    let cluster = Cluster::overloaded(|index| if index < 2 { 0.3 } else { 0.05 }, 100_000);
    assert_eq!(cluster.ejections(), 0);
}

/// Three requests of ten fail at each of ten backends: five failures in a row are then frequent.
#[test]
fn row_of_failures_that_peers_explain_ejects_none() {
    let mut cluster = Cluster::healthy(random(), 10);
    for _ in 0..50_000 {
        let index = cluster.pick().expect("all are healthy");
        let failed = cluster.rng.next_u32() % 10 < 3;
        cluster.finish(index, if failed { Outcome::Failure } else { Outcome::Success });
        cluster.pass_ms(1);
    }
    assert_eq!(cluster.ejections(), 0);
}

/// Ten of thirty backends hang, as in the loss of a zone whose machines still accept connections.
#[test]
fn hanging_backends_are_ejected_when_a_third_hang() {
    let mut cluster = Cluster::healthy(random(), 30);
    for _ in 0..30 * 50 {
        let index = cluster.pick().expect("twenty serve");
        cluster.finish(index, if index < 10 { Outcome::TimedOut } else { Outcome::Success });
    }
    assert_eq!((cluster.count(State::Ejected), cluster.count(State::Healthy)), (3, 27));
    assert!((10..30).all(|index| cluster.state(index) == State::Healthy));
}

/// The peers of each broken backend are one other broken backend and one that serves. Sixteen
/// failures in a row suffice, or twenty-one if the other broken one got more requests.
#[test]
fn two_broken_backends_of_three_do_not_protect_each_other() {
    for outcome in [Outcome::Failure, Outcome::TimedOut] {
        let mut cluster = Cluster::healthy(random(), 3);
        let mut failed = 0;
        while cluster.count(State::Ejected) == 0 {
            let index = cluster.pick().expect("one serves");
            failed += u32::from(index < 2);
            cluster.finish(index, if index < 2 { outcome } else { Outcome::Success });
            assert!(failed < 2 * 27, "{outcome:?}");
        }
        assert_eq!(cluster.state(2), State::Healthy, "{outcome:?}");
    }
}

#[test]
fn low_success_rate_ejects_at_the_next_sweep() {
    let mut config = random();
    config.outlier.consecutive_failures = None;
    let mut cluster = Cluster::healthy(config, 10);
    // Backend 0 fails every second request, all others one in fifty.
    let mut requests = [0_u32; 10];
    for _ in 0..4_000 {
        let index = cluster.pick().expect("all are healthy");
        requests[index] += 1;
        let failed = requests[index].is_multiple_of(if index == 0 { 2 } else { 50 });
        cluster.finish(index, if failed { Outcome::Failure } else { Outcome::Success });
    }
    assert_eq!(cluster.count(State::Ejected), 0, "only once per interval");
    cluster.pass_ms(OutlierConfig::DEFAULT_INTERVAL.as_millis() as u64);
    assert_eq!(cluster.state(0), State::Ejected);
    assert_eq!(cluster.count(State::Ejected), 1);
    assert_eq!(cluster.changes(0).last(), Some(&(State::Healthy, State::Ejected, Reason::SuccessRate)));
}

/// One of ten fails every fifth request. At 85% CPU the other nine would be at 94% without it.
#[test]
fn success_rate_ejects_only_if_the_others_have_the_capacity() {
    for (utilization, ejected) in [(None, 1), (Some(0.5), 1), (Some(0.85), 0)] {
        let mut config = random();
        config.outlier.consecutive_failures = None;
        let mut cluster = Cluster::healthy(config, 10);
        for request in 0..4_000 {
            let index = cluster.pick().expect("all are healthy");
            let failed = index == 0 && request % 5 == 0;
            cluster.finish(index, if failed { Outcome::Failure } else { Outcome::Success });
        }
        for id in utilization.map(|_| cluster.ids.clone()).unwrap_or_default() {
            let report = LoadReport { cpu_utilization: utilization.unwrap_or_default(), ..LoadReport::default() };
            cluster.balancer.on_report(cluster.now, id, &report, &mut cluster.recorder);
        }
        cluster.pass_ms(10_000);
        assert_eq!(cluster.count(State::Ejected), ejected, "{utilization:?}");
    }
}

/// All fail one request in two hundred at random: one of ten is always 1.9 standard deviations
/// below the mean.
#[test]
fn success_rates_that_differ_by_chance_eject_none() {
    let mut config = random();
    config.outlier.consecutive_failures = None;
    let mut cluster = Cluster::healthy(config, 10);
    for _ in 0..60_000 {
        let index = cluster.pick().expect("all are healthy");
        let failed = cluster.rng.next_u32().is_multiple_of(200);
        cluster.finish(index, if failed { Outcome::Failure } else { Outcome::Success });
        cluster.pass_ms(2);
    }
    assert_eq!(cluster.ejections(), 0);
}

#[test]
fn success_rates_of_few_requests_or_backends_eject_none() {
    for (n, requests) in [(10, 300), (4, 4_000)] {
        let mut config = random();
        config.outlier.consecutive_failures = None;
        let mut cluster = Cluster::healthy(config, n);
        for _ in 0..requests {
            let index = cluster.pick().expect("all are healthy");
            cluster.finish(index, if index == 0 { Outcome::Failure } else { Outcome::Success });
        }
        cluster.pass_ms(10_000);
        assert_eq!(cluster.count(State::Ejected), 0, "{n} backends, {requests} requests");
    }
}

#[test]
fn ejected_lame_duck_stays_out_when_its_ejection_expires() {
    let mut cluster = Cluster::healthy(active_checks(), 10);
    (0..5).for_each(|_| cluster.request(0, Outcome::Failure));
    assert_eq!(cluster.state(0), State::Ejected);
    let report = LoadReport { lame_duck: true, ..LoadReport::default() };
    cluster.balancer.on_report(cluster.now, cluster.ids[0], &report, &mut cluster.recorder);
    cluster.pass_ms(60_000);
    assert_eq!(cluster.state(0), State::LameDuck);
}

#[test]
fn verdicts_are_set_aside_and_reported_when_below_half_healthy() {
    let mut cluster = Cluster::healthy(active_checks(), 5);
    cluster.recorder.events.clear();
    for index in 0..3 {
        (0..3).for_each(|_| cluster.check(index, CheckOutcome::Failed));
    }
    assert_eq!(cluster.count(State::Healthy), 2);
    assert!(cluster.balancer.panicking());
    let panic = |event: &Event| matches!(event, Event::PanicBegan { healthy: 2, candidates: 5 });
    assert_eq!(cluster.recorder.events.iter().filter(|(_, event)| panic(event)).count(), 1);
    let mut seen = [0_u64; 5];
    for _ in 0..5_000 {
        let index = cluster.pick().expect("panic lets all in");
        seen[index] += 1;
        cluster.finish(index, Outcome::Success);
    }
    // Seed 3, false alarm 1e-6 each.
    seen.iter().for_each(|count| assert_share("panic", *count, 5_000, 0.2, 1e-6));
    cluster.check(0, CheckOutcome::Passed);
    assert!(!cluster.balancer.panicking());
    assert!(matches!(cluster.recorder.events.last(), Some((_, Event::PanicEnded { healthy: 3, candidates: 5 }))));
}

#[test]
fn panic_never_chooses_a_lame_duck() {
    let mut cluster = Cluster::healthy(active_checks(), 4);
    cluster.check(0, CheckOutcome::NotServing);
    cluster.balancer.drain(cluster.now, cluster.ids[1], &mut cluster.recorder);
    (0..3).for_each(|_| cluster.check(2, CheckOutcome::Failed));
    (0..3).for_each(|_| cluster.check(3, CheckOutcome::Failed));
    assert!(cluster.balancer.panicking());
    for _ in 0..500 {
        let index = cluster.pick().expect("two fail their checks, and may be tried");
        assert!(index >= 2, "a lame duck was picked");
        cluster.finish(index, Outcome::Success);
    }
}

#[test]
fn while_some_are_still_connecting_a_refused_connection_is_no_panic() {
    let mut cluster = Cluster::connecting(random(), 3);
    cluster.balancer.on_connect_failed(cluster.now, cluster.ids[0], &mut cluster.rng, &mut cluster.recorder);
    assert_eq!(cluster.balancer.pick(cluster.now, &mut cluster.rng), Pick::Wait(WaitReason::Starting));
    assert!(!cluster.balancer.panicking());
}

#[test]
fn long_requests_do_not_make_a_backend_unhealthy() {
    let max_active_requests = NonZeroU32::new(2).expect("not zero");
    let mut config = random();
    config.max_active_requests = max_active_requests;
    let mut cluster = Cluster::healthy(config, 2);
    let picks: Vec<usize> = (0..4).map(|_| cluster.pick().expect("below the limits")).collect();
    assert_eq!(cluster.balancer.pick(cluster.now, &mut cluster.rng), Pick::Wait(WaitReason::Saturated));
    assert_eq!(cluster.count(State::Healthy), 2);
    cluster.finish(picks[0], Outcome::Success);
    assert_eq!(cluster.pick(), Some(picks[0]));
}

#[test]
fn changed_limit_of_active_requests_holds_at_once() {
    let limit = |n| {
        let mut config = random();
        config.max_active_requests = NonZeroU32::new(n).expect("not zero");
        config
    };
    let mut cluster = Cluster::healthy(limit(3), 1);
    (0..3).for_each(|_| assert!(cluster.pick().is_some()));
    cluster.balancer.set_config(cluster.now, limit(1));
    cluster.finish(0, Outcome::Success);
    assert_eq!(cluster.pick(), None);
    cluster.finish(0, Outcome::Success);
    assert_eq!(cluster.pick(), None);
    cluster.finish(0, Outcome::Success);
    assert_eq!(cluster.pick(), Some(0));
    cluster.balancer.set_config(cluster.now, limit(2));
    assert_eq!(cluster.pick(), Some(0));
}

#[test]
fn refusing_backend_is_checked_with_growing_jittered_delay() {
    let mut cluster = Cluster::connecting(random(), 20);
    cluster.pass_ms(0);
    let mut gaps: Vec<Vec<u64>> = vec![Vec::new(); 20];
    let mut last = [0_u64; 20];
    for ms in 0..60_000 {
        if ms > 0 {
            cluster.pass_ms(1);
        }
        for index in cluster.checks_to_run() {
            gaps[index].push(ms - last[index]);
            last[index] = ms;
            cluster.check(index, CheckOutcome::Unreachable);
        }
    }
    for gaps in &gaps {
        let nominal = [0.0, 100.0, 200.0, 400.0, 800.0, 1600.0, 3200.0];
        for (gap, nominal) in gaps.iter().zip(nominal) {
            assert!((*gap as f64) <= 1.2 * nominal + 1.0 && (*gap as f64) >= 0.8 * nominal, "{gaps:?}");
        }
        assert!(gaps[7..].iter().all(|gap| (4_000..=6_001).contains(gap)), "{gaps:?}");
    }
    let seconds: std::collections::BTreeSet<u64> = gaps.iter().map(|gaps| gaps[6]).collect();
    assert!(seconds.len() > 10, "twenty backends in step: {seconds:?}");
}

/// The times of each backend's checks in milliseconds, for a minute from now; all checks pass at
/// once.
fn checks_in_a_minute(cluster: &mut Cluster) -> Vec<Vec<u64>> {
    let mut times = vec![Vec::new(); cluster.ids.len()];
    let begin = cluster.now;
    let end = begin + Duration::from_secs(60);
    while cluster.now < end {
        cluster.balancer.handle_timeout(cluster.now, &mut cluster.recorder);
        for index in cluster.checks_to_run() {
            times[index].push(cluster.now.since(begin).as_millis() as u64);
            cluster.check(index, CheckOutcome::Passed);
        }
        cluster.now = cluster.balancer.poll_timeout().expect("there are backends").min(end).max(cluster.now);
    }
    times
}

/// Largest number of checks within 100 ms, in windows that begin at multiples of it, from each
/// backend's second check on.
fn most_at_once(times: &[Vec<u64>]) -> usize {
    let mut windows = vec![0; 601];
    times.iter().flat_map(|times| &times[1..]).for_each(|ms| windows[(ms / 100) as usize] += 1);
    windows.into_iter().max().expect("there are windows")
}

/// Of 500 checks in an interval of 10 s, five are due in 100 ms on average. A Poisson window has 20
/// or more with a probability of 3e-7; the seed decides.
#[test]
fn checks_of_500_backends_are_spread_over_the_interval() {
    let mut cluster = Cluster::connecting(active_checks(), 500);
    let times = checks_in_a_minute(&mut cluster);
    assert!(times.iter().all(|times| times[0] == 0), "the first check comes at once");
    assert!(most_at_once(&times) < 20, "{} checks within 100 ms", most_at_once(&times));
    for times in &times {
        assert!(times[1] <= 10_000, "{times:?}");
        let gaps = times[1..].windows(2).map(|pair| pair[1] - pair[0]);
        assert!(times.len() >= 6 && gaps.clone().all(|gap| (8_999..=11_001).contains(&gap)), "{times:?}");
    }
}

#[test]
fn checks_are_spread_when_a_reload_turns_them_on() {
    let mut cluster = Cluster::healthy(random(), 500);
    cluster.checks_to_run();
    cluster.balancer.set_config(cluster.now, active_checks());
    let times = checks_in_a_minute(&mut cluster);
    assert!(most_at_once(&times) < 20, "{} checks within 100 ms", most_at_once(&times));
}

#[test]
fn checks_are_spread_after_an_outage_of_all_backends() {
    let mut cluster = Cluster::healthy(active_checks(), 500);
    for index in 0..500 {
        cluster.check(index, CheckOutcome::Unreachable);
    }
    cluster.checks_to_run();
    for index in 0..500 {
        cluster.check(index, CheckOutcome::Passed);
    }
    let mut times = checks_in_a_minute(&mut cluster);
    times.iter_mut().for_each(|times| times.insert(0, 0));
    assert!(most_at_once(&times) < 20, "{} checks within 100 ms", most_at_once(&times));
}

#[test]
fn reload_keeps_the_phase_of_checks() {
    let next = |is_reloaded: bool| {
        let mut cluster = Cluster::healthy(active_checks(), 20);
        if is_reloaded {
            let mut further = active_checks();
            further.panic_threshold = Ratio::ZERO;
            cluster.balancer.set_config(cluster.now, further);
        }
        checks_in_a_minute(&mut cluster).iter().map(|times| times[0]).collect::<Vec<_>>()
    };
    assert_eq!(next(true), next(false));
}

#[test]
fn healthy_backends_are_checked_once_per_interval_when_checks_are_on() {
    let mut cluster = Cluster::connecting(active_checks(), 200);
    let checked: usize = checks_in_a_minute(&mut cluster).iter().map(Vec::len).sum();
    // One check at once, one after half an interval, and one per interval from then on.
    assert!((200 * 69 / 10..200 * 71 / 10).contains(&checked), "{checked}");
}

#[test]
fn healthy_backends_are_checked_when_a_reload_turns_checks_on() {
    let mut cluster = Cluster::healthy(random(), 2);
    cluster.checks_to_run();
    cluster.pass_ms(60_000);
    assert_eq!(cluster.checks_to_run(), [], "off");
    cluster.balancer.set_config(cluster.now, active_checks());
    cluster.pass_ms(10_000);
    assert_eq!(cluster.checks_to_run(), [0, 1], "on");
    assert_eq!(cluster.count(State::Healthy), 2, "in the meantime they serve");
}

#[test]
fn removed_backend_gets_no_check() {
    let mut cluster = Cluster::connecting(random(), 2);
    cluster.pass_ms(0);
    cluster.balancer.remove(cluster.now, cluster.ids[0], &mut cluster.recorder);
    assert_eq!(cluster.checks_to_run(), [1]);
}

#[test]
fn drained_backend_finishes_requests_and_gets_none_until_undrained() {
    for policy in PolicyKind::ALL {
        let mut cluster = Cluster::healthy(BalancerConfig::new(policy), 3);
        let mut had = Vec::new();
        while !had.contains(&0) {
            had.push(cluster.pick().expect("all are healthy"));
        }
        cluster.balancer.drain(cluster.now, cluster.ids[0], &mut cluster.recorder);
        for _ in 0..300 {
            assert_ne!(cluster.pick(), Some(0), "{policy}");
        }
        let active = cluster.balancer.snapshot(cluster.now)[0].active;
        assert_eq!(active as usize, had.iter().filter(|index| **index == 0).count(), "{policy}");
        cluster.finish(0, Outcome::Success);
        cluster.pass_ms(120_000);
        cluster.check(0, CheckOutcome::Passed);
        assert_eq!(cluster.state(0), State::LameDuck, "{policy}");
        cluster.balancer.undrain(cluster.now, cluster.ids[0], &mut cluster.recorder);
        assert_eq!(cluster.state(0), State::Connecting, "{policy}");
        cluster.pass_ms(0);
        assert!(cluster.checks_to_run().contains(&0), "{policy}");
        cluster.check(0, CheckOutcome::Passed);
        assert_eq!(cluster.state(0), State::Healthy, "{policy}");
    }
}

#[test]
fn slow_start_raises_the_share_in_a_straight_line() {
    for policy in [PolicyKind::Random, PolicyKind::RoundRobin, PolicyKind::Weighted, PolicyKind::LeastLoaded] {
        let mut cluster = Cluster::healthy(BalancerConfig::new(policy), 10);
        cluster.balancer.drain(cluster.now, cluster.ids[0], &mut cluster.recorder);
        cluster.balancer.undrain(cluster.now, cluster.ids[0], &mut cluster.recorder);
        cluster.check(0, CheckOutcome::Passed);
        for second in 0..12 {
            let mut picked = 0;
            for _ in 0..1_000 {
                for _ in 0..10 {
                    let index = cluster.pick().expect("all are healthy");
                    picked += u32::from(index == 0);
                    cluster.finish(index, Outcome::Success);
                }
                cluster.pass_ms(1);
            }
            let got = f64::from(picked) / 1_000.0;
            let want = (0.1 + 0.9 * (f64::from(second) + 0.5) / 10.0).min(1.0);
            assert!(
                (got - want).abs() < 0.25 * want + 0.03,
                "{policy}, second {second}: {got:.3} of a share, not {want:.3}"
            );
        }
    }
}

#[test]
fn founding_backends_are_warm_but_an_early_returning_one_is_not() {
    for policy in [PolicyKind::Random, PolicyKind::RoundRobin, PolicyKind::Weighted, PolicyKind::LeastLoaded] {
        let mut cluster = Cluster::connecting(BalancerConfig::new(policy), 10);
        for index in 0..10 {
            cluster.check(index, CheckOutcome::Passed);
            cluster.pass_ms(50);
        }
        let share_of_first = |cluster: &mut Cluster| {
            let mut picked = 0;
            for _ in 0..10_000 {
                let index = cluster.pick().expect("nine and more are healthy");
                picked += u32::from(index == 0);
                cluster.finish(index, Outcome::Success);
            }
            f64::from(picked) / 1_000.0
        };
        let whole = share_of_first(&mut cluster);
        // Seed 3, 10,000 draws at 1 in 10: five standard deviations are 0.15; false alarm 6e-7.
        assert!((whole - 1.0).abs() < 0.15, "{policy}: {whole:.3} of a share at the start");
        cluster.check(0, CheckOutcome::Unreachable);
        assert_eq!(cluster.state(0), State::Refusing, "{policy}");
        cluster.check(0, CheckOutcome::Passed);
        let returned = share_of_first(&mut cluster);
        assert!(returned < 0.15, "{policy}: {returned:.3} of a share after its return");
    }
}

#[test]
fn simultaneous_slow_start_favours_no_backend() {
    for policy in PolicyKind::ALL {
        let mut cluster = Cluster::connecting(BalancerConfig::new(policy), 4);
        for index in 0..4 {
            cluster.check(index, CheckOutcome::Passed);
            // They become healthy a moment after each other.
            cluster.now = cluster.now + Duration::from_micros(700);
        }
        let mut counts = [0_u64; 4];
        for _ in 0..8_000 {
            let index = cluster.pick().expect("all are healthy");
            counts[index] += 1;
            cluster.finish(index, Outcome::Success);
        }
        // Seed 3; peak-ewma and p2c draw, the others take turns; false alarm 1e-6 each.
        counts.iter().for_each(|count| assert_share(policy.name(), *count, 8_000, 0.25, 1e-6));
    }
}

#[test]
fn a_recovered_backend_is_forgiven_within_seconds() {
    for policy in PolicyKind::ALL {
        let mut config = BalancerConfig::new(policy);
        config.outlier.consecutive_failures = None;
        let mut cluster = Cluster::healthy(config, 4);
        for _ in 0..400 {
            let index = cluster.pick().expect("all are healthy");
            cluster.finish(index, if index == 0 { Outcome::Failure } else { Outcome::Success });
            cluster.pass_ms(1);
        }
        let share = |cluster: &mut Cluster| {
            let mut picked = 0;
            for _ in 0..4_000 {
                let index = cluster.pick().expect("all are healthy");
                picked += u32::from(index == 0);
                cluster.finish(index, Outcome::Success);
                cluster.pass_ms(5);
            }
            f64::from(picked) / 1_000.0
        };
        share(&mut cluster);
        let after = share(&mut cluster);
        assert!(after > 0.85, "{policy}: {after:.2} of its share, twenty seconds after its last failure");
    }
}
