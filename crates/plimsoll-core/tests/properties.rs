//! Any sequence of facts, under every policy, against the plain model of the rules.
//!
//! After each fact, states, active requests and panic are those of the model. A pick names only
//! backends that the model admits, and events report each change once.

use std::num::NonZeroU32;
use std::time::Duration;

use plimsoll_core::health::{CheckOutcome, Scope};
use plimsoll_core::pick::PolicyKind;
use plimsoll_core::{
    BackendId, Balancer, BalancerConfig, Completion, Event, LoadReport, Outcome, Pick, Ratio, Timestamp, WaitReason,
    Weight,
};
use plimsoll_testkit::events::Recorder;
use plimsoll_testkit::model::Model;
use plimsoll_testkit::seeded;
use proptest::prelude::*;
use rand_pcg::Pcg64Mcg;

/// One fact. Numbers name backends or requests modulo their count; a removed backend can be named.
#[derive(Clone, Debug)]
enum Fact {
    Add(u32),
    Remove(usize),
    Pick { except: Option<usize> },
    Finish(usize, Outcome),
    Connected(usize),
    ConnectFailed(usize),
    Check(usize, CheckOutcome),
    Report { backend: usize, lame_duck: bool, utilization: f64 },
    Weigh(usize, u32),
    ProcessEnded(usize),
    Drain(usize),
    Undrain(usize),
    Pass(Duration),
}

fn facts() -> impl Strategy<Value = Vec<Fact>> {
    let index = 0..16_usize;
    let outcome = prop_oneof![
        5 => Just(Outcome::Success),
        4 => Just(Outcome::Failure),
        2 => Just(Outcome::TimedOut),
        1 => Just(Outcome::Overloaded),
        1 => Just(Outcome::RateLimited),
        1 => Just(Outcome::Cancelled),
    ];
    let checked = prop_oneof![
        6 => Just(CheckOutcome::Passed),
        1 => Just(CheckOutcome::NotServing),
        2 => Just(CheckOutcome::Failed),
        1 => Just(CheckOutcome::Unreachable),
        1 => Just(CheckOutcome::NotMade),
    ];
    let fact = prop_oneof![
        3 => (1..4_u32).prop_map(Fact::Add),
        1 => index.clone().prop_map(Fact::Remove),
        24 => prop::option::weighted(0.2, index.clone()).prop_map(|except| Fact::Pick { except }),
        22 => (0..64_usize, outcome).prop_map(|(request, outcome)| Fact::Finish(request, outcome)),
        4 => index.clone().prop_map(Fact::Connected),
        1 => index.clone().prop_map(Fact::ConnectFailed),
        6 => (index.clone(), checked).prop_map(|(backend, outcome)| Fact::Check(backend, outcome)),
        2 => (index.clone(), prop::bool::weighted(0.2), 0.0..2.0_f64)
            .prop_map(|(backend, lame_duck, utilization)| Fact::Report { backend, lame_duck, utilization }),
        2 => (index.clone(), 1..4_u32).prop_map(|(backend, weight)| Fact::Weigh(backend, weight)),
        1 => index.clone().prop_map(Fact::ProcessEnded),
        1 => index.clone().prop_map(Fact::Drain),
        1 => index.prop_map(Fact::Undrain),
        4 => prop_oneof![Just(1_u64), Just(100), Just(3_000), Just(31_000)]
            .prop_map(|ms| Fact::Pass(Duration::from_millis(ms))),
    ];
    prop::collection::vec(fact, 1..250)
}

fn configs() -> impl Strategy<Value = BalancerConfig> {
    let policy = prop::sample::select(PolicyKind::ALL.to_vec());
    let small = |most: u32| (1..=most).prop_map(|n| NonZeroU32::new(n).expect("from one up"));
    (policy, small(4), any::<bool>(), small(2), prop::option::of(small(4)), prop::sample::select(vec![10, 50, 100]))
        .prop_map(|(policy, max_active_requests, active, passes_to_heal, consecutive_failures, max_ejected)| {
            let mut config = BalancerConfig::new(policy);
            config.max_active_requests = max_active_requests;
            config.checks.active = active;
            config.checks.passes_to_heal = passes_to_heal;
            config.outlier.consecutive_failures = consecutive_failures;
            // Depends on the whole fleet's history, and has its own tests.
            config.outlier.success_rate_stdev = None;
            config.outlier.max_ejected = Ratio::from_percent(max_ejected);
            config.panic_threshold = Scope::DEFAULT_PANIC_THRESHOLD;
            config
        })
}

struct Run {
    balancer: Balancer,
    model: Model,
    recorder: Recorder,
    rng: Pcg64Mcg,
    now: Timestamp,
    /// All backends ever added, including removed ones.
    known: Vec<BackendId>,
    outstanding: Vec<BackendId>,
    picks: Vec<Pick>,
}

impl Run {
    fn new(config: BalancerConfig) -> Self {
        Self {
            balancer: Balancer::new(config),
            model: Model::new(config),
            recorder: Recorder::default(),
            rng: seeded(11),
            now: Timestamp::ZERO,
            known: Vec::new(),
            outstanding: Vec::new(),
            picks: Vec::new(),
        }
    }

    fn id(&self, index: usize) -> BackendId {
        if self.known.is_empty() { BackendId::new(7, 7) } else { self.known[index % self.known.len()] }
    }

    fn take(&mut self, fact: &Fact) {
        let (now, obs) = (self.now, &mut self.recorder);
        match *fact {
            Fact::Add(weight) => {
                let weight = Weight::new(f64::from(weight)).expect("in range");
                let id = self.balancer.add(now, weight, obs);
                self.model.add(id);
                self.known.push(id);
            }
            Fact::Remove(index) => {
                let id = self.id(index);
                self.balancer.remove(now, id, &mut self.recorder);
                self.model.remove(id);
            }
            Fact::Pick { except } => self.pick(except.map(|index| self.id(index))),
            Fact::Finish(index, outcome) => {
                if self.outstanding.is_empty() {
                    return;
                }
                let id = self.outstanding.swap_remove(index % self.outstanding.len());
                let latency = (index % 3 != 0).then(|| Duration::from_millis(index as u64));
                self.balancer.finish(now, id, Completion { outcome, latency }, obs);
                self.model.finish(now, id, outcome);
            }
            Fact::Connected(index) => {
                let id = self.id(index);
                self.balancer.on_connected(now, id, &mut self.recorder);
                self.model.connected(id);
            }
            Fact::ConnectFailed(index) => {
                let id = self.id(index);
                self.balancer.on_connect_failed(now, id, &mut self.rng, &mut self.recorder);
                self.model.connect_failed(id);
            }
            Fact::Check(index, outcome) => self.check(self.id(index), outcome),
            Fact::Report { backend, lame_duck, utilization } => {
                let id = self.id(backend);
                let report = LoadReport { cpu_utilization: utilization, qps: 50.0, lame_duck, ..LoadReport::default() };
                self.balancer.on_report(now, id, &report, &mut self.recorder);
                self.model.report(id, lame_duck);
            }
            Fact::Weigh(index, weight) => {
                // The model's knowledge does not depend on it.
                let id = self.id(index);
                self.balancer.set_weight(now, id, Weight::new(f64::from(weight)).expect("in range"));
            }
            Fact::ProcessEnded(index) => {
                let id = self.id(index);
                self.balancer.on_process_ended(now, id, &mut self.recorder);
                self.model.process_ended(id);
            }
            Fact::Drain(index) => {
                let id = self.id(index);
                self.balancer.drain(now, id, &mut self.recorder);
                self.model.drain(id);
            }
            Fact::Undrain(index) => {
                let id = self.id(index);
                self.balancer.undrain(now, id, &mut self.recorder);
                self.model.undrain(id);
            }
            Fact::Pass(duration) => self.pass(duration),
        }
    }

    fn pick(&mut self, except: Option<BackendId>) {
        let usable = self.model.usable();
        let tried: Vec<BackendId> = except.into_iter().collect();
        let pick = self.balancer.pick_except(self.now, &mut self.rng, &tried);
        self.picks.push(pick);
        match pick {
            Pick::Backend(id) => {
                assert!(usable.contains(&id), "{id} was picked, usable are {usable:?}");
                let others = usable.iter().any(|id| !tried.contains(id));
                assert!(!(others && tried.contains(&id)), "{id} was tried already, and there are others in {usable:?}");
                self.model.picked(id);
                self.outstanding.push(id);
            }
            other => {
                assert!(usable.is_empty(), "{other:?}, although {usable:?} are usable");
                let want = if !self.model.in_scope().is_empty() {
                    Pick::Wait(WaitReason::Saturated)
                } else if self.model.starting() {
                    Pick::Wait(WaitReason::Starting)
                } else {
                    Pick::NoBackend
                };
                assert_eq!(other, want);
            }
        }
    }

    fn check(&mut self, id: BackendId, outcome: CheckOutcome) {
        self.balancer.on_check(self.now, id, outcome, &mut self.rng, &mut self.recorder);
        self.model.check(id, outcome);
    }

    fn pass(&mut self, duration: Duration) {
        self.now = self.now + duration;
        self.balancer.handle_timeout(self.now, &mut self.recorder);
        self.model.timeout(self.now);
        while let Some(id) = self.balancer.poll_check() {
            assert!(self.model.backends().any(|(member, _)| member == id), "{id} is no member, yet to be checked");
            self.check(id, CheckOutcome::Passed);
        }
        assert!(self.balancer.poll_timeout().is_none_or(|at| at > self.now), "asks again for work just done");
    }

    /// Compares balancer, model and events.
    fn compare(&self) {
        let snapshot = self.balancer.snapshot(self.now);
        assert_eq!(snapshot.len(), self.model.backends().count());
        for (id, want) in self.model.backends() {
            let got = snapshot.iter().find(|backend| backend.id == id).expect("members are in the snapshot");
            assert_eq!((got.state, got.active), (want.state, want.active), "{id} (state, active requests)");
            assert_eq!(self.recorder.state(id), want.state, "{id} according to events");
            assert!(got.active <= got.requests as u32 && got.failures <= got.requests, "{id}: {got:?}");
            assert!((0.0..=1.0).contains(&got.error_share) && got.weight > 0.0, "{id}: {got:?}");
        }
        assert_eq!(self.balancer.panicking(), self.model.panicking(), "panic");
        assert_eq!(self.recorder.panicking(), self.model.panicking(), "panic according to events");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_facts_keeps_to_the_rules(config in configs(), facts in facts()) {
        let mut run = Run::new(config);
        for _ in 0..4 {
            run.take(&Fact::Add(1));
        }
        for fact in &facts {
            let events_before = run.recorder.events.len();
            run.take(fact);
            run.compare();
            if !matches!(fact, Fact::Pass(_)) {
                let told = &run.recorder.events[events_before..];
                let changes = told.iter().filter(|(_, event)| matches!(event, Event::StateChanged { .. })).count();
                prop_assert!(changes <= 1, "one fact, {} changes: {:?}", changes, told);
            }
        }
    }

    #[test]
    fn the_same_seed_makes_the_same_picks(config in configs(), facts in facts()) {
        let picks = || {
            let mut run = Run::new(config);
            facts.iter().for_each(|fact| run.take(fact));
            (run.picks, run.recorder.events)
        };
        prop_assert_eq!(picks(), picks());
    }

    /// Facts about a removed backend do not reach its successor in the slot.
    #[test]
    fn facts_about_a_removed_backend_have_no_effect(config in configs(), late in facts()) {
        let mut run = Run::new(config);
        run.take(&Fact::Add(1));
        let gone = run.known[0];
        run.take(&Fact::Remove(0));
        run.take(&Fact::Add(1));
        let heir = run.known[1];
        prop_assert_eq!(gone.slot(), heir.slot());
        let before = run.balancer.snapshot(run.now);
        // All facts are about the removed backend.
        run.known = vec![gone];
        run.outstanding = vec![gone; late.len()];
        for fact in late.iter().filter(|fact| !matches!(fact, Fact::Add(_) | Fact::Pick { .. } | Fact::Pass(_))) {
            run.take(fact);
        }
        prop_assert_eq!(run.balancer.snapshot(run.now), before);
    }
}

#[test]
fn requests_of_a_removed_backend_do_not_count_against_its_slot() {
    let mut run = Run::new(BalancerConfig::default());
    run.take(&Fact::Add(1));
    run.take(&Fact::Connected(0));
    run.take(&Fact::Pick { except: None });
    run.take(&Fact::Remove(0));
    run.take(&Fact::Add(1));
    run.take(&Fact::Finish(0, Outcome::Failure));
    run.compare();
    let heir = &run.balancer.snapshot(run.now)[0];
    assert_eq!((heir.active, heir.failures, heir.error_share), (0, 0, 0.0));
}
