//! Probes beside health: what the prober of a backend sees, and the effect of its actions.

use core::num::NonZeroU32;
use core::time::Duration;

use rand_core::SeedableRng;
use rand_pcg::Pcg64Mcg;

use super::*;
use crate::balancer::{BalancerConfig, Completion, Outcome, Pick};
use crate::health::{CheckConfig, Reason, State};
use crate::pick::{PolicyKind, PrequalConfig, ProbeSource};
use crate::probe::{AnswerState, Instance, Path, ServerState, SilenceCause};
use crate::{LoadReport, Weight};

const PORT: u16 = 80;
const INACTIVE_AFTER: Duration = Duration::from_secs(30);

fn instance(number: u64) -> Instance {
    Instance::new(number).unwrap()
}

/// One backend, its client, and time.
struct Client {
    balancer: Balancer,
    id: BackendId,
    rng: Pcg64Mcg,
    now: Timestamp,
    events: Vec<Event>,
    /// Whether queries are answered, by this process in this state.
    server: Option<(Instance, ServerState)>,
    /// Whether checks pass.
    tcp_works: bool,
    queries: usize,
    checks: usize,
    last_query: Option<Query>,
}

impl Client {
    fn new() -> Self {
        let checks = CheckConfig { active: true, ..CheckConfig::default() };
        let mut balancer = Balancer::new(BalancerConfig { checks, ..BalancerConfig::default() });
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let id = balancer.add(Timestamp::ZERO, Weight::ONE, &mut ());
        let config = ProberConfig { inactive_after: Some(INACTIVE_AFTER), ..ProberConfig::new(instance(1)) };
        balancer.set_probes(Timestamp::ZERO, Some(config), &mut rng);
        balancer.probe(Timestamp::ZERO, id, PORT);
        Self {
            balancer,
            id,
            rng,
            now: Timestamp::ZERO,
            events: Vec::new(),
            server: Some((instance(7), ServerState::Healthy)),
            tcp_works: true,
            queries: 0,
            checks: 0,
            last_query: None,
        }
    }

    /// Lets time pass. Queries and checks are answered at once.
    fn pass(&mut self, seconds: u64) {
        let until = self.now + Duration::from_secs(seconds);
        while self.now < until {
            self.turn();
            let next = self.balancer.poll_timeout().unwrap_or(until);
            self.now = next.clamp(self.now + Duration::from_millis(1), until);
        }
        self.turn();
    }

    fn turn(&mut self) {
        let Self { balancer, id, rng, now, events, .. } = self;
        let mut observe = |_, event| events.push(event);
        balancer.handle_timeout(*now, &mut observe);
        balancer.handle_probes(*now, rng, &mut observe);
        while let Some((to, query)) = balancer.poll_query() {
            assert_eq!((to, query.port), (*id, PORT));
            self.queries += 1;
            self.last_query = Some(query);
            let (Some((instance, state)), Purpose::Ask { .. }) = (self.server, query.purpose) else { continue };
            let answer = Answer {
                nonce: query.nonce,
                instance,
                port: PORT,
                state: AnswerState::Server(state),
                seq: 1,
                lease_s: query.lease_s,
                cookie: 5,
                load: Some(LoadReport { cpu_utilization: 0.5, ..LoadReport::default() }),
                min_delay: Duration::ZERO,
            };
            balancer.on_probe_answer(*now, to, &answer, rng, &mut observe);
        }
        while let Some(id) = balancer.poll_check() {
            self.checks += 1;
            let outcome = if self.tcp_works { CheckOutcome::Passed } else { CheckOutcome::Unreachable };
            balancer.on_check(*now, id, outcome, rng, &mut observe);
        }
    }

    fn notice(&mut self, seq: u32, state: ServerState) {
        let notice = Notice {
            nonce: self.last_query.unwrap().nonce,
            instance: self.server.unwrap().0,
            port: PORT,
            state,
            seq: NonZeroU32::new(seq).unwrap(),
        };
        let Self { balancer, id, rng, now, events, .. } = self;
        balancer.on_probe_notice(*now, *id, &notice, Authenticity::Keyed, rng, &mut |_, event| events.push(event));
    }

    fn request(&mut self, seconds: u64) {
        assert_eq!(self.balancer.pick(self.now, &mut self.rng), Pick::Backend(self.id));
        self.pass(seconds);
        let completion = Completion { outcome: Outcome::Success, latency: Some(Duration::from_millis(1)) };
        self.balancer.finish(self.now, self.id, completion, &mut ());
    }

    fn state(&self) -> State {
        self.balancer.snapshot_of(self.now, self.id).unwrap().state
    }

    fn probe(&self) -> ProbeSnapshot {
        let probe = self.balancer.probe_of(self.id).unwrap();
        let mut census = ProbeCensus::default();
        census.count(probe, true);
        assert_eq!(self.balancer.probe_census(), census);
        probe
    }

    /// A client whose backend is inactive.
    fn idle() -> Self {
        let mut client = Self::new();
        client.pass(60);
        assert_eq!(client.probe(), ProbeSnapshot { path: Path::Works, is_inactive: true });
        (client.queries, client.checks) = (0, 0);
        client
    }
}

#[test]
fn idle_backend_is_queried_and_not_checked() {
    let mut client = Client::idle();
    client.pass(600);
    assert_eq!(client.checks, 0);
    assert!((24..=38).contains(&client.queries), "{} in 600 s, every 20 s ± 20%", client.queries);
    assert_eq!(client.state(), State::Healthy);
    let report = client.balancer.snapshot_of(client.now, client.id).unwrap().report;
    assert!(report.is_some_and(|(_, report)| report.cpu_utilization == 0.5), "answers carry load");
}

#[test]
fn answered_query_causes_no_wake_up_for_its_time_out() {
    let mut client = Client::idle();
    for _ in 0..100 {
        let queries = client.queries;
        while client.queries == queries {
            client.pass(1);
        }
        let next = client.balancer.probes.as_ref().unwrap().poll_timeout().unwrap();
        assert!(next >= client.now + Duration::from_secs(14), "{:?} after {:?}", next, client.now);
    }
}

#[test]
fn pick_wakes_an_inactive_backend() {
    let mut client = Client::idle();
    client.request(0);
    assert!(!client.probe().is_inactive);
    assert_eq!(client.balancer.probe_counts().unwrap().woken, 1);
    client.pass(25);
    assert!(client.checks >= 1, "checks go on");
    assert!(!client.probe().is_inactive);
    client.pass(30);
    assert!(client.probe().is_inactive, "again, 30 seconds after the request");
}

#[test]
fn backend_with_a_request_in_flight_stays_active() {
    let mut client = Client::new();
    client.pass(1);
    client.request(300);
    assert!(!client.probe().is_inactive);
    client.pass(20);
    assert!(!client.probe().is_inactive, "the time begins with the end of the request");
    client.pass(40);
    assert!(client.probe().is_inactive);
}

#[test]
fn notice_makes_an_idle_backend_a_lame_duck_until_a_new_process_passes_a_check() {
    let mut client = Client::idle();
    client.notice(2, ServerState::LameDuck);
    assert_eq!(client.state(), State::LameDuck);
    assert!(client.balancer.is_observed(client.id));
    client.server = Some((instance(7), ServerState::LameDuck));
    client.pass(20);
    assert_eq!((client.state(), client.checks), (State::LameDuck, 0), "a TCP check would bring it back");
    client.server = Some((instance(8), ServerState::Healthy));
    client.pass(3);
    assert_eq!(client.state(), State::Healthy);
    let reasons: Vec<Reason> = client
        .events
        .iter()
        .filter_map(|event| match event {
            Event::StateChanged { reason, .. } => Some(*reason),
            _ => None,
        })
        .collect();
    assert_eq!(reasons, [Reason::CheckPassed, Reason::Reported, Reason::ProcessEnded, Reason::CheckPassed]);
}

#[test]
fn silence_of_an_idle_backend_ends_in_checks_alone() {
    let mut client = Client::idle();
    client.server = None;
    client.pass(30);
    assert_eq!(client.probe(), ProbeSnapshot { path: Path::Silent(SilenceCause::NoAnswer), is_inactive: false });
    assert_eq!(client.state(), State::Healthy);
    let silent = Event::ProbesSilent { backend: client.id, cause: SilenceCause::NoAnswer };
    assert_eq!(client.events.iter().filter(|event| **event == silent).count(), 1);
    let before = client.checks;
    client.pass(100);
    assert!((8..=12).contains(&(client.checks - before)), "one in 10 s");
    assert_eq!(client.balancer.probe_census().silent[SilenceCause::NoAnswer as usize], 1);
}

#[test]
fn idle_backend_that_ends_without_a_word_is_refusing() {
    let mut client = Client::idle();
    (client.server, client.tcp_works) = (None, false);
    client.pass(30);
    assert_eq!(client.state(), State::Refusing);
    (client.server, client.tcp_works) = (Some((instance(9), ServerState::Healthy)), true);
    client.pass(60);
    assert_eq!(client.state(), State::Healthy);
    assert!(client.checks > 1);
}

/// Queries are answered, and connections fail: by a wrong firewall rule, or a responder beside a
/// dead service.
#[test]
fn unreachable_backend_never_becomes_inactive() {
    let mut client = Client::new();
    client.tcp_works = false;
    client.pass(300);
    assert_eq!((client.state(), client.probe().is_inactive), (State::Refusing, false));
    client.tcp_works = true;
    client.pass(60);
    assert_eq!(client.state(), State::Healthy);
}

#[test]
fn drained_idle_backend_is_checked_when_undrained() {
    let mut client = Client::idle();
    client.balancer.drain(client.now, client.id, &mut ());
    client.pass(100);
    assert_eq!((client.state(), client.checks), (State::LameDuck, 0));
    client.balancer.undrain(client.now, client.id, &mut ());
    client.pass(1);
    assert_eq!(client.state(), State::Healthy);
}

#[test]
fn checks_go_on_when_probes_are_switched_off() {
    let mut client = Client::idle();
    client.balancer.set_probes(client.now, None, &mut client.rng);
    client.pass(100);
    assert!((9..=12).contains(&client.checks), "{}", client.checks);
    assert_eq!((client.queries, client.balancer.probe_counts()), (0, None));
    assert_eq!(client.balancer.probe_of(client.id), None);
}

#[test]
fn removed_backend_is_not_queried() {
    let mut client = Client::idle();
    client.balancer.remove(client.now, client.id, &mut ());
    client.pass(100);
    assert_eq!((client.queries, client.balancer.probe_census()), (0, ProbeCensus::default()));
    let id = client.balancer.add(client.now, Weight::ONE, &mut ());
    assert_eq!(id.slot(), client.id.slot());
    assert_eq!(client.balancer.probe_of(id), None, "a new backend in the same slot");
}

#[test]
fn queries_of_many_backends_keep_the_pace() {
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    let mut balancer = Balancer::new(BalancerConfig::default());
    balancer.set_probes(Timestamp::ZERO, Some(ProberConfig::new(instance(1))), &mut rng);
    for _ in 0..1_000 {
        let id = balancer.add(Timestamp::ZERO, Weight::ONE, &mut ());
        balancer.probe(Timestamp::ZERO, id, PORT);
        balancer.on_connected(Timestamp::ZERO, id, &mut ());
    }
    let mut sent = 0;
    for millisecond in 1_000..1_050 {
        let now = Timestamp::from_nanos(millisecond * 1_000_000);
        balancer.handle_probes(now, &mut rng, &mut ());
        let at_once = core::iter::from_fn(|| balancer.poll_query()).count();
        assert!(at_once <= 64, "{at_once}");
        sent += at_once;
    }
    assert_eq!(sent, 1_000, "20,000 in a second, after a burst of 64");
}

#[test]
fn picks_of_prequal_query_backends_without_recent_news() {
    let mut rng = Pcg64Mcg::seed_from_u64(1);
    let prequal = PrequalConfig { source: ProbeSource::Frugal, ..PrequalConfig::default() };
    let config = BalancerConfig { policy: PolicyKind::Prequal, prequal, ..BalancerConfig::default() };
    let mut balancer = Balancer::new(config);
    balancer.set_probes(Timestamp::ZERO, Some(ProberConfig::new(instance(1))), &mut rng);
    let ids: Vec<BackendId> = (0..10).map(|_| balancer.add(Timestamp::ZERO, Weight::ONE, &mut ())).collect();
    for id in ids {
        balancer.probe(Timestamp::ZERO, id, PORT);
        balancer.on_check(Timestamp::ZERO, id, CheckOutcome::Passed, &mut rng, &mut ());
    }
    let answer_all = |balancer: &mut Balancer, now, rng: &mut Pcg64Mcg| {
        balancer.handle_probes(now, rng, &mut ());
        let mut answered = 0;
        while let Some((id, query)) = balancer.poll_query() {
            let answer = Answer {
                nonce: query.nonce,
                instance: instance(7),
                port: PORT,
                state: AnswerState::Server(ServerState::Healthy),
                seq: 1,
                lease_s: 0,
                cookie: 5,
                load: Some(LoadReport { in_flight: Some(3), ..LoadReport::default() }),
                min_delay: Duration::ZERO,
            };
            balancer.on_probe_answer(now, id, &answer, rng, &mut ());
            answered += 1;
        }
        answered
    };
    let mut now = Timestamp::from_nanos(1_000_000_000);
    assert_eq!(answer_all(&mut balancer, now, &mut rng), 10, "the path is known now");
    now = now + Duration::from_secs(5);
    let mut asked = 0;
    for _ in 0..100 {
        assert!(matches!(balancer.pick(now, &mut rng), Pick::Backend(_)));
        let of_pick = answer_all(&mut balancer, now, &mut rng);
        assert!(of_pick <= 1, "{of_pick}");
        asked += of_pick;
    }
    assert_eq!(asked, 10, "each once: then all have news");
}

/// The connections of a pool may outlive the change to inactive, and open another one.
#[test]
fn failed_connection_to_an_inactive_backend_brings_checks_back() {
    let mut client = Client::idle();
    let Client { balancer, id, rng, now, .. } = &mut client;
    balancer.on_connect_failed(*now, *id, rng, &mut ());
    assert_eq!((client.state(), client.probe().is_inactive), (State::Refusing, false));
    client.pass(10);
    assert_eq!(client.state(), State::Healthy);
}

#[test]
fn check_that_began_before_and_failed_brings_checks_back() {
    for (outcome, state) in [(CheckOutcome::Unreachable, State::Refusing), (CheckOutcome::NotServing, State::LameDuck)]
    {
        let mut client = Client::idle();
        let Client { balancer, id, rng, now, .. } = &mut client;
        balancer.on_check(*now, *id, outcome, rng, &mut ());
        assert_eq!((client.state(), client.probe().is_inactive), (state, false));
        client.pass(10);
        assert_eq!(client.state(), State::Healthy, "{outcome:?}");
    }
}

#[test]
fn backend_with_failing_checks_does_not_become_inactive() {
    let mut client = Client::new();
    client.pass(29);
    let checks = client.checks;
    let Client { balancer, id, rng, now, .. } = &mut client;
    balancer.on_check(*now, *id, CheckOutcome::Failed, rng, &mut ());
    client.pass(2);
    assert_eq!(client.checks, checks, "seed 1: the next check comes later");
    assert_eq!((client.state(), client.probe().is_inactive), (State::Healthy, false));
    client.pass(60);
    assert!(client.probe().is_inactive, "after a passed one");
}

#[test]
fn check_that_began_before_a_notice_does_not_end_the_lame_duck() {
    let mut client = Client::idle();
    client.notice(2, ServerState::LameDuck);
    client.server = Some((instance(7), ServerState::LameDuck));
    let Client { balancer, id, rng, now, .. } = &mut client;
    balancer.on_check(*now, *id, CheckOutcome::Passed, rng, &mut ());
    assert_eq!(client.state(), State::LameDuck);
    client.pass(20);
    assert_eq!(client.state(), State::LameDuck);
}

#[test]
fn wake_ups_are_no_more_than_backends_after_thousands_of_queries() {
    let mut client = Client::idle();
    for _ in 0..1_000 {
        client.request(0);
        client.pass(1);
    }
    assert!(client.balancer.probes.as_ref().unwrap().wake_ups() <= 2);
}
