//! Random histories of a client and a real responder, with an attacker on a lossy network.
//!
//! The attacker sees all datagrams and repeats, delays, drops and reorders them; it has no key. It
//! forges notices of any content.

extern crate std;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;
use rand_core::SeedableRng;
use rand_pcg::Pcg64Mcg;
use twox_hash::XxHash64;

use super::*;
use crate::probe::{
    COOKIE_MESSAGE, CookieSecret, Instance, Pace, Peer, QueryLimits, Reply, Responder, ResponderConfig,
};

const PORT: u16 = 80;

struct Secret;

impl CookieSecret for Secret {
    fn mac(&self, message: &[u8; COOKIE_MESSAGE]) -> u64 {
        XxHash64::oneshot(1, message)
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Time passes, in milliseconds.
    Wait(u64),
    /// The network delivers everything that is under way.
    Deliver,
    /// It loses everything that is under way.
    Lose,
    /// The attacker repeats a former datagram to the client.
    Replay(prop::sample::Index),
    /// The attacker forges a notice.
    Forge { instance_is_right: bool, seq: u32, state: usize },
    /// The server changes its state.
    State(usize),
    /// The server restarts.
    Restart,
    /// TCP works just now.
    Success,
    /// A request wakes the backend.
    Request,
    /// The outcome of a check.
    Check(bool),
    /// A check passes and brings another key.
    NewKey,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0_u64..5_000).prop_map(Step::Wait),
        1 => (5_000_u64..400_000).prop_map(Step::Wait),
        8 => Just(Step::Deliver),
        2 => Just(Step::Lose),
        2 => any::<prop::sample::Index>().prop_map(Step::Replay),
        2 => (any::<bool>(), 1_u32..9, 0_usize..3)
            .prop_map(|(instance_is_right, seq, state)| Step::Forge { instance_is_right, seq, state }),
        1 => (0_usize..3).prop_map(Step::State),
        1 => Just(Step::Restart),
        2 => Just(Step::Success),
        1 => Just(Step::Request),
        1 => any::<bool>().prop_map(Step::Check),
        1 => Just(Step::NewKey),
    ]
}

/// A datagram to the client.
#[derive(Clone, Copy, Debug)]
enum Datagram {
    Answer(Answer),
    Notice(Notice),
}

struct World {
    prober: Prober,
    config: ProberConfig,
    traffic: Traffic,
    rng: Pcg64Mcg,
    now: Timestamp,
    responder: Responder,
    restarts: u64,
    to_server: Vec<Query>,
    to_client: Vec<Datagram>,
    recorded: Vec<Datagram>,
    /// Every pair of process and state that was ever true, in order.
    truth: Vec<(Instance, u32, ServerState)>,
    queries: Vec<Timestamp>,
    actions: Vec<Action>,
}

fn responder(number: u64) -> Responder {
    let config = ResponderConfig {
        instance: Instance::new(1_000 + number).unwrap(),
        ports: [PORT].into(),
        limits: QueryLimits::default(),
        pace: Pace::NOTICES,
        hash_seed: 1,
    };
    Responder::new(config, ServerState::Healthy)
}

fn peer() -> Peer {
    Peer { address: "10.0.0.1:9".parse().unwrap(), local: 0, key_id: 1, instance: Instance::new(5).unwrap() }
}

impl World {
    fn new() -> Self {
        let config = ProberConfig {
            inactive_after: Some(Duration::from_secs(30)),
            keys: KeySource::Checks,
            ..ProberConfig::new(peer().instance)
        };
        let now = Timestamp::from_origin(Duration::from_secs(10));
        let mut prober = Prober::new(PORT);
        prober.on_connected(now);
        Self {
            prober,
            config,
            traffic: Traffic { last_request: now, in_flight: 0, last_success: Some(now) },
            rng: Pcg64Mcg::seed_from_u64(1),
            now,
            responder: responder(0),
            restarts: 0,
            to_server: Vec::new(),
            to_client: Vec::new(),
            recorded: Vec::new(),
            truth: [(Instance::new(1_000).unwrap(), 1, ServerState::Healthy)].into(),
            queries: Vec::new(),
            actions: Vec::new(),
        }
    }

    fn instance(&self) -> Instance {
        Instance::new(1_000 + self.restarts).unwrap()
    }

    fn receive(&mut self, reply: Datagram, authenticity: Authenticity) -> Verdict {
        let Self { prober, config, rng, now, actions, .. } = self;
        match reply {
            Datagram::Answer(answer) => prober.on_answer(*now, &answer, config, rng, actions),
            Datagram::Notice(notice) => prober.on_notice(*now, &notice, authenticity, config, rng, actions),
        }
    }

    fn deliver(&mut self) {
        for query in std::mem::take(&mut self.to_server) {
            if let Reply::Answer(answer) = self.responder.on_query(self.now, &peer(), &query, || None, &Secret) {
                self.to_client.push(Datagram::Answer(answer));
            }
        }
        for reply in std::mem::take(&mut self.to_client) {
            self.recorded.push(reply);
            self.receive(reply, Authenticity::Keyed);
        }
    }

    fn poll(&mut self) {
        let Self { prober, config, traffic, rng, now, actions, .. } = self;
        prober.poll(*now, config, traffic, rng, actions);
        let mut notices = Vec::new();
        self.responder.poll(self.now, &mut notices);
        self.to_client.extend(notices.into_iter().map(|(_, notice)| Datagram::Notice(notice)));
        self.collect();
    }

    fn collect(&mut self) {
        for action in &self.actions {
            if let Action::Send(query) = action {
                self.queries.push(self.now);
                self.to_server.push(*query);
            }
        }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Wait(millis) => {
                let end = self.now + Duration::from_millis(*millis);
                while let Some(at) = self.prober.poll_timeout().filter(|at| *at <= end) {
                    self.now = self.now.max(at);
                    self.poll();
                    self.judge();
                    // The time between keeps what the network holds.
                }
                self.now = end;
                self.poll();
            }
            Step::Deliver => self.deliver(),
            Step::Lose => {
                self.recorded.append(&mut self.to_client);
                self.to_server.clear();
            }
            Step::Replay(index) => {
                if !self.recorded.is_empty() {
                    let reply = *index.get(&self.recorded);
                    self.receive(reply, Authenticity::Keyed);
                }
            }
            Step::Forge { instance_is_right, seq, state } => {
                let instance = if *instance_is_right { self.instance() } else { Instance::new(3).unwrap() };
                let (state, seq) = (ServerState::ALL[*state], NonZeroU32::new(*seq).unwrap());
                let notice = Notice { nonce: 1, instance, port: PORT, state, seq };
                let before = (self.prober.server(), self.prober.path());
                assert_eq!(self.receive(Datagram::Notice(notice), Authenticity::Forged), Verdict::Doubted);
                assert_eq!((self.prober.server(), self.prober.path()), before);
            }
            Step::State(state) => {
                let (state, seq) = (ServerState::ALL[*state], self.truth.last().unwrap().1);
                if self.responder.state() != state {
                    self.responder.set_state(state);
                    self.truth.push((self.instance(), seq + 1, state));
                }
            }
            Step::Restart => {
                self.restarts += 1;
                self.responder = responder(self.restarts);
                self.truth.push((self.instance(), 1, ServerState::Healthy));
            }
            Step::Success => self.traffic.last_success = Some(self.now),
            Step::Request => {
                self.traffic.last_request = self.now;
                self.prober.wake(self.now, &self.config, &mut self.actions);
            }
            Step::Check(passes) => {
                let outcome = if *passes { CheckOutcome::Passed } else { CheckOutcome::Unreachable };
                self.prober.on_check(self.now, outcome, &mut self.rng, &mut self.actions);
            }
            Step::NewKey => {
                self.prober.on_new_key(self.now, &mut self.actions);
                self.prober.on_check(self.now, CheckOutcome::Passed, &mut self.rng, &mut self.actions);
            }
        }
        if !matches!(step, Step::Wait(_)) {
            self.collect();
        }
    }

    /// The rules that hold after every event.
    fn judge(&mut self) {
        let Self { prober, truth, .. } = &*self;
        if let Some(state) = prober.server() {
            let is_true = |(instance, seq, truth): &(Instance, u32, ServerState)| {
                prober.instances.is_current(*instance) && *seq == prober.seq && *truth == state
            };
            assert!(truth.iter().any(is_true), "the client invented {state:?}");
        }
        assert!(!prober.is_inactive() || prober.path() == Path::Works, "inactive without probes");
        assert!(!prober.is_inactive() || prober.poll_timeout().is_some(), "inactive for ever");
        let recent = |at: &&Timestamp| self.now.since(**at) < Duration::from_secs(1);
        let recent = self.queries.iter().rev().take_while(recent).count();
        // Caused by others: a burst and the rate; its own: losses, and states that change.
        assert!(recent <= 40, "{recent} datagrams in a second");
        self.actions.clear();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn client_believes_only_states_that_were_true(steps in prop::collection::vec(step(), 1..200)) {
        let mut world = World::new();
        for step in &steps {
            world.take(step);
            world.judge();
        }
    }

    #[test]
    fn replays_never_bring_an_older_state_back(steps in prop::collection::vec(step(), 1..200)) {
        let mut world = World::new();
        let mut known = 0;
        for step in &steps {
            world.take(step);
            let prober = &world.prober;
            let is_known = |(instance, seq, _): &(Instance, u32, ServerState)| {
                prober.instances.is_current(*instance) && *seq == prober.seq
            };
            if prober.server().is_some() {
                let place = world.truth.iter().position(is_known).expect("a state that was true");
                prop_assert!(place >= known, "{place} after {known}");
                known = place;
            }
            world.judge();
        }
    }

    #[test]
    fn silence_alone_stops_no_requests(waits in prop::collection::vec(1_u64..60_000, 1..100)) {
        let mut world = World::new();
        world.take(&Step::Wait(1));
        world.deliver();
        world.actions.clear();
        for millis in waits {
            let end = world.now + Duration::from_millis(millis);
            while let Some(at) = world.prober.poll_timeout().filter(|at| *at <= end) {
                world.now = world.now.max(at);
                world.poll();
                let stops = |action: &Action| matches!(action, Action::StopRequests(_) | Action::ProcessEnded);
                prop_assert!(!world.actions.iter().any(stops));
                world.actions.clear();
            }
            world.now = end;
        }
    }
}
