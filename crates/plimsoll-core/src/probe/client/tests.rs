//! The five rules, one by one, against a backend that the test plays.

extern crate std;
use std::vec;
use std::vec::Vec;

use rand_core::SeedableRng;
use rand_pcg::Pcg64Mcg;

use super::*;
use crate::LoadReport;
use crate::probe::Instance;

const PORT: u16 = 8080;
const IDLE: Duration = Duration::from_secs(100);

fn instance(number: u64) -> Instance {
    Instance::new(number).unwrap()
}

/// A client of one backend, and the time.
struct Client {
    prober: Prober,
    config: ProberConfig,
    traffic: Traffic,
    rng: Pcg64Mcg,
    now: Timestamp,
    /// Everything since the last look.
    actions: Vec<Action>,
}

impl Client {
    fn new() -> Self {
        let config = ProberConfig { inactive_after: Some(IDLE), ..ProberConfig::new(instance(77)) };
        let now = Timestamp::from_origin(Duration::from_secs(1000));
        let traffic = Traffic { last_request: now, in_flight: 0, last_success: Some(now) };
        let rng = Pcg64Mcg::seed_from_u64(5);
        Self { prober: Prober::new(PORT), config, traffic, rng, now, actions: Vec::new() }
    }

    /// Connected, with one query answered.
    fn working() -> Self {
        let mut client = Self::new();
        client.prober.on_connected(client.now);
        let query = client.next_query();
        assert_eq!(client.answer(&query, 1, 1, ServerState::Healthy), Verdict::Believed);
        client.take();
        client
    }

    /// Inactive, with a lease.
    fn inactive() -> Self {
        let mut client = Self::working();
        while !client.prober.is_inactive() {
            client.answer_next(1, 1, ServerState::Healthy);
        }
        client.take();
        client
    }

    fn lame_duck() -> Self {
        let mut client = Self::inactive();
        client.answer_next(1, 2, ServerState::LameDuck);
        assert!(client.take().contains(&Action::StopRequests(ServerState::LameDuck)));
        client
    }

    fn take(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// The actions that are no queries and no reports.
    fn news(&mut self) -> Vec<Action> {
        let is_news = |action: &Action| !matches!(action, Action::Send(_) | Action::Report(_));
        self.take().into_iter().filter(is_news).collect()
    }

    fn poll(&mut self) {
        let Self { prober, config, traffic, rng, now, actions } = self;
        prober.poll(*now, config, traffic, rng, actions);
    }

    /// Lets time pass until the next wake-up.
    fn step(&mut self) {
        self.now = self.now.max(self.prober.poll_timeout().expect("a wake-up"));
        self.poll();
    }

    fn run_for(&mut self, secs: u64) {
        let end = self.now + Duration::from_secs(secs);
        while self.prober.poll_timeout().is_some_and(|at| at <= end) {
            self.step();
        }
        self.now = end;
    }

    fn sent(&self) -> Option<Query> {
        let queries = self.actions.iter().rev();
        queries.filter_map(|action| if let Action::Send(query) = action { Some(*query) } else { None }).next()
    }

    /// Waits for the next query.
    fn next_query(&mut self) -> Query {
        let before = self.queries();
        while self.queries() == before {
            self.step();
        }
        self.sent().unwrap()
    }

    fn queries(&self) -> usize {
        self.actions.iter().filter(|action| matches!(action, Action::Send(_))).count()
    }

    fn reply(query: &Query, by: u64, seq: u32, state: ServerState) -> Answer {
        Answer {
            nonce: query.nonce,
            instance: instance(by),
            port: PORT,
            state: AnswerState::Server(state),
            seq,
            lease_s: query.lease_s,
            cookie: 99,
            load: None,
            min_delay: Duration::ZERO,
        }
    }

    fn on_answer(&mut self, answer: &Answer) -> Verdict {
        let Self { prober, config, rng, now, actions, .. } = self;
        prober.on_answer(*now, answer, config, rng, actions)
    }

    fn answer(&mut self, query: &Query, by: u64, seq: u32, state: ServerState) -> Verdict {
        self.now = self.now + Duration::from_millis(2);
        self.on_answer(&Self::reply(query, by, seq, state))
    }

    fn answer_next(&mut self, by: u64, seq: u32, state: ServerState) {
        let query = self.next_query();
        assert_eq!(self.answer(&query, by, seq, state), Verdict::Believed);
    }

    fn notice(&mut self, by: u64, seq: u32, authenticity: Authenticity, nonce: u64) -> Verdict {
        let (state, seq) = (ServerState::LameDuck, NonZeroU32::new(seq).unwrap());
        let notice = Notice { nonce, instance: instance(by), port: PORT, state, seq };
        let Self { prober, config, rng, now, actions, .. } = self;
        prober.on_notice(*now, &notice, authenticity, config, rng, actions)
    }

    fn refuse(&mut self) {
        let Self { prober, config, rng, now, actions, .. } = self;
        prober.on_refused(*now, config, rng, actions);
    }

    fn check(&mut self, outcome: CheckOutcome) {
        self.prober.on_check(self.now, outcome, &mut self.rng, &mut self.actions);
    }

    fn new_key(&mut self) {
        self.prober.on_new_key(self.now, &mut self.actions);
    }

    /// Loses the answers to queries in a row.
    fn lose(&mut self, losses: usize) {
        for _ in 0..losses {
            while self.prober.sent.is_none() {
                self.step();
            }
            let sent = self.prober.sent;
            while self.prober.sent == sent {
                self.step();
            }
        }
    }
}

#[test]
fn memory_of_a_backend_is_within_its_bound() {
    assert!(size_of::<Prober>() <= 256, "{} bytes", size_of::<Prober>());
}

#[test]
fn first_query_follows_the_connection_and_others_every_twenty_seconds() {
    let mut client = Client::new();
    assert_eq!(client.prober.poll_timeout(), None);
    client.prober.on_connected(client.now);
    assert_eq!(client.prober.poll_timeout(), Some(client.now));
    let mut waits = Vec::new();
    client.config.inactive_after = None;
    for _ in 0..500 {
        let before = client.now;
        let query = client.next_query();
        waits.push(client.now.since(before).as_secs_f64());
        assert_eq!((query.lease_s, query.instance, query.port), (0, instance(77), PORT));
        client.answer(&query, 1, 1, ServerState::Healthy);
    }
    let waits = &waits[1..];
    assert!(waits.iter().all(|wait| (16.0..=24.0).contains(wait)));
    // Seed 5, uniform on 16..24, n = 499: five standard errors are 0.52.
    let mean = waits.iter().sum::<f64>() / waits.len() as f64;
    assert!((mean - 20.0).abs() < 0.52, "{mean}");
    assert_eq!(client.news(), []);
}

#[test]
fn answer_counts_once_in_time_for_the_outstanding_query() {
    let mut client = Client::working();
    let query = client.next_query();
    let lame = |nonce| Answer { nonce, ..Client::reply(&query, 1, 2, ServerState::LameDuck) };
    assert_eq!(client.on_answer(&lame(query.nonce ^ 1)), Verdict::Doubted);
    assert_eq!(client.on_answer(&Answer { port: 1, ..lame(query.nonce) }), Verdict::Doubted);
    assert_eq!(client.answer(&query, 1, 1, ServerState::Healthy), Verdict::Believed);
    assert_eq!(client.on_answer(&lame(query.nonce)), Verdict::Doubted, "a second answer");
    let late = client.next_query();
    client.now = client.now + ANSWER_TIMEOUT + Duration::from_nanos(1);
    assert_eq!(client.on_answer(&lame(late.nonce)), Verdict::Doubted, "too late");
    client.next_query();
    assert_eq!(client.on_answer(&lame(late.nonce)), Verdict::Doubted, "of the query before");
    assert_eq!((client.prober.server(), client.news()), (Some(ServerState::Healthy), vec![]));
}

#[test]
fn three_losses_while_tcp_works_make_the_path_silent_with_one_log_line() {
    let mut client = Client::working();
    client.lose(2);
    assert_eq!((client.prober.path(), client.news()), (Path::Works, vec![]));
    client.traffic.last_success = Some(client.now);
    let began = client.now;
    client.lose(1);
    let cause = SilenceCause::NoAnswer;
    assert_eq!((client.prober.path(), client.news()), (Path::Silent(cause), vec![Action::PathSilent(cause)]));
    assert!(client.now.since(began) <= ANSWER_TIMEOUT);
    client.take();
    let mut waits = Vec::new();
    for _ in 0..40 {
        let before = client.now;
        client.next_query();
        waits.push(client.now.since(before).as_secs_f64());
    }
    for (wait, expected) in waits.iter().zip([20.0, 40.0, 80.0, 160.0].into_iter().chain(std::iter::repeat(300.0))) {
        assert!((expected * 0.8..=expected * 1.2 + 1.0).contains(wait), "{waits:?}");
    }
    assert_eq!(client.news(), [], "no second line");
}

#[test]
fn losses_without_working_tcp_are_no_evidence() {
    let mut client = Client::working();
    client.config.inactive_after = None;
    client.run_for(3600);
    assert_eq!((client.prober.path(), client.news()), (Path::Works, vec![]));
    client.traffic.last_success = Some(client.now);
    client.lose(1);
    assert_eq!(client.prober.path(), Path::Silent(SilenceCause::NoAnswer), "TCP works again");
}

#[test]
fn answers_in_between_start_the_count_of_losses_again() {
    let mut client = Client::working();
    client.config.inactive_after = None;
    for _ in 0..20 {
        client.lose(2);
        client.traffic.last_success = Some(client.now);
        let third = client.sent().unwrap();
        client.answer(&third, 1, 1, ServerState::Healthy);
    }
    assert_eq!((client.prober.path(), client.news()), (Path::Works, vec![]));
}

#[test]
fn path_that_worked_for_an_hour_is_logged_again() {
    let mut client = Client::working();
    client.config.inactive_after = None;
    let lines = |client: &mut Client, answers: usize| {
        for _ in 0..answers {
            client.answer_next(1, 1, ServerState::Healthy);
        }
        client.traffic.last_success = Some(client.now + Duration::from_secs(30));
        client.lose(3);
        assert_eq!(client.prober.path(), Path::Silent(SilenceCause::NoAnswer));
        client.news().len()
    };
    assert_eq!([1, 2, 10, 300].map(|answers| lines(&mut client, answers)), [1, 0, 0, 1]);
}

#[test]
fn refusal_makes_an_active_path_silent_and_an_answer_ends_that() {
    let mut client = Client::working();
    client.refuse();
    assert_eq!(client.prober.path(), Path::Works, "no query is outstanding");
    client.next_query();
    client.refuse();
    let cause = SilenceCause::Refused;
    assert_eq!((client.prober.path(), client.news()), (Path::Silent(cause), vec![Action::PathSilent(cause)]));
    let before = client.now;
    client.answer_next(1, 1, ServerState::Healthy);
    assert!((16..=24).contains(&client.now.since(before).as_secs()), "{:?}", client.now.since(before));
    assert_eq!((client.prober.path(), client.news()), (Path::Works, vec![]));
}

#[test]
fn responder_of_another_port_or_version_counts_as_a_refusal() {
    let states =
        [(AnswerState::NoSuchPort, SilenceCause::NoSuchPort), (AnswerState::OtherVersion, SilenceCause::OtherVersion)];
    for (state, cause) in states {
        let mut client = Client::working();
        let query = client.next_query();
        client.on_answer(&Answer { state, ..Client::reply(&query, 1, 1, ServerState::Healthy) });
        assert_eq!((client.prober.path(), client.news()), (Path::Silent(cause), vec![Action::PathSilent(cause)]));
    }
}

#[test]
fn alternating_processes_make_the_path_silent_until_one_answers_thrice() {
    let mut client = Client::working();
    client.answer_next(2, 9, ServerState::Healthy);
    assert_eq!((client.prober.path(), client.news()), (Path::Works, vec![]), "a restart");
    client.answer_next(1, 1, ServerState::LameDuck);
    let cause = SilenceCause::Alternating;
    assert_eq!((client.prober.path(), client.news()), (Path::Silent(cause), vec![Action::PathSilent(cause)]));
    for (by, works) in [(2, false), (2, false), (1, false), (1, false), (1, true)] {
        client.answer_next(by, 1, ServerState::Healthy);
        assert_eq!(client.prober.path() == Path::Works, works);
    }
    assert_eq!(client.news(), [], "no second line");
}

#[test]
fn idle_backend_becomes_inactive_only_where_the_path_works() {
    let mut client = Client::working();
    let began = client.traffic.last_request;
    while client.news().is_empty() {
        client.answer_next(1, 1, ServerState::Healthy);
    }
    assert!(client.now.since(began) >= IDLE && client.now.since(began) < IDLE + Duration::from_secs(1));
    assert!(client.prober.is_inactive() && client.prober.replaces_checks());

    let mut unknown = Client::new();
    unknown.prober.on_connected(unknown.now);
    unknown.run_for(1000);
    assert_eq!(unknown.news(), [Action::PathSilent(SilenceCause::NoAnswer)], "never answered, never inactive");

    let mut busy = Client::working();
    busy.traffic.in_flight = 1;
    for _ in 0..20 {
        busy.answer_next(1, 1, ServerState::Healthy);
    }
    assert_eq!(busy.news(), [], "a long request");

    let mut never = Client::working();
    never.config.inactive_after = None;
    for _ in 0..20 {
        never.answer_next(1, 1, ServerState::Healthy);
    }
    assert_eq!(never.news(), []);
}

#[test]
fn inactive_backend_closes_connections_requests_a_lease_and_wakes() {
    let mut client = Client::working();
    while !client.prober.is_inactive() {
        client.answer_next(1, 1, ServerState::Healthy);
    }
    assert_eq!(client.news(), [Action::CloseConnections, Action::PauseChecks]);
    let query = client.next_query();
    assert_eq!((query.lease_s, query.cookie), (60, 99));
    client.answer(&query, 1, 1, ServerState::Healthy);
    assert!(client.prober.wake(client.now, &client.config, &mut client.actions));
    assert!(!client.prober.wake(client.now, &client.config, &mut client.actions), "it is awake");
    client.traffic.last_request = client.now;
    assert_eq!(client.news(), [Action::ResumeChecks]);
    assert_eq!(client.next_query().lease_s, 0);
}

#[test]
fn backend_is_inactive_again_after_a_silence_but_not_after_a_failed_check() {
    for (outcome, is_inactive) in [(CheckOutcome::Passed, true), (CheckOutcome::Unreachable, false)] {
        let mut client = Client::inactive();
        client.lose(3);
        client.check(outcome);
        client.prober.on_connected(client.now);
        client.answer_next(1, 1, ServerState::Healthy);
        client.poll();
        assert_eq!(client.prober.is_inactive(), is_inactive, "no request or check since: {outcome:?}");
    }
}

#[test]
fn lease_refused_for_an_old_cookie_is_requested_again_at_once() {
    let mut client = Client::inactive();
    let refuse = |client: &mut Client, cookie| {
        let query = client.next_query();
        let answer = Answer { lease_s: 0, cookie, ..Client::reply(&query, 1, 1, ServerState::Healthy) };
        client.on_answer(&answer);
        client.prober.poll_timeout().unwrap() <= client.now
    };
    assert!(refuse(&mut client, 100), "the cookie is new");
    assert!(!refuse(&mut client, 100), "the table is full");
    let hasty = (101..200).filter(|cookie| refuse(&mut client, *cookie)).count();
    assert!(hasty < 99, "a responder with a new cookie each time is asked at its own pace: {hasty}");
}

#[test]
fn short_lease_is_renewed_in_time() {
    let mut client = Client::inactive();
    for _ in 0..20 {
        let query = client.next_query();
        client.on_answer(&Answer { lease_s: 12, ..Client::reply(&query, 1, 1, ServerState::Healthy) });
        let before = client.now;
        let wait = client.prober.poll_timeout().unwrap().since(before).as_secs_f64();
        assert!((3.2..=4.8).contains(&wait), "{wait}");
    }
}

#[test]
fn losses_while_inactive_cause_a_check_within_five_seconds() {
    for (outcome, path) in
        [(CheckOutcome::Passed, Path::Silent(SilenceCause::NoAnswer)), (CheckOutcome::Unreachable, Path::Unknown)]
    {
        let mut client = Client::inactive();
        client.next_query();
        let began = client.now;
        while !client.actions.contains(&Action::CheckNow) {
            client.step();
        }
        assert_eq!(client.now.since(began), 3 * ANSWER_TIMEOUT);
        assert_eq!(client.news(), [Action::CheckNow], "silence alone changes nothing");
        assert!(client.prober.is_inactive());
        client.check(outcome);
        assert_eq!((client.prober.path(), client.prober.is_inactive()), (path, false));
        let news = client.news();
        assert!(news.contains(&Action::ResumeChecks) && !news.contains(&Action::ProcessEnded), "{news:?}");
        assert_eq!(client.prober.poll_timeout().is_some(), path != Path::Unknown);
        client.check(CheckOutcome::Passed);
        assert!(client.prober.poll_timeout().is_some(), "a reachable backend is asked");
    }
}

#[test]
fn refusal_while_inactive_causes_a_check_and_an_answer_cancels_it() {
    let mut client = Client::inactive();
    client.next_query();
    client.refuse();
    assert_eq!(client.news(), [Action::CheckNow]);
    client.check(CheckOutcome::NotMade);
    assert_eq!(client.news(), []);
    client.answer_next(1, 1, ServerState::Healthy);
    client.check(CheckOutcome::Passed);
    assert_eq!((client.prober.path(), client.news()), (Path::Works, vec![]));
    client.next_query();
    client.refuse();
    client.check(CheckOutcome::Passed);
    assert_eq!(client.prober.path(), Path::Silent(SilenceCause::Refused));
}

#[test]
fn believed_notice_is_acknowledged_and_stops_requests() {
    let mut client = Client::inactive();
    client.answer_next(1, 1, ServerState::Healthy);
    let nonce = client.sent().unwrap().nonce;
    client.take();
    assert_eq!(client.notice(1, 2, Authenticity::Keyed, nonce), Verdict::Believed);
    let seq = NonZeroU32::new(2).unwrap();
    let acknowledgement = client.sent().unwrap();
    assert_eq!((acknowledgement.purpose, acknowledgement.nonce), (Purpose::Acknowledge { seq }, nonce));
    assert_eq!(acknowledgement.cookie, 99);
    assert_eq!(client.news(), [Action::StopRequests(ServerState::LameDuck)]);
    assert_eq!(client.notice(1, 2, Authenticity::Keyed, nonce), Verdict::Repeated);
    assert!(matches!(client.sent().unwrap().purpose, Purpose::Acknowledge { .. }), "acknowledged again");
    let next = client.prober.poll_timeout().unwrap().since(client.now).as_secs_f64();
    assert!((0.8..=1.2).contains(&next), "{next}");
}

#[test]
fn notices_without_proof_cause_ten_queries_a_second_and_change_nothing() {
    let doubtful: [(u64, u32, Authenticity, bool); 4] = [
        (1, 2, Authenticity::Forged, true),
        (2, 2, Authenticity::Keyed, true),
        (1, 2, Authenticity::Keyless, false),
        (1, 1, Authenticity::Forged, true),
    ];
    for (by, seq, authenticity, knows_nonce) in doubtful {
        let mut client = Client::inactive();
        client.take();
        let mut queries = 0;
        for _ in 0..10_000 {
            let nonce = if knows_nonce { client.prober.nonces[0] } else { 4 };
            assert_eq!(client.notice(by, seq, authenticity, nonce), Verdict::Doubted);
            if let Some(query) = client.sent() {
                client.answer(&query, 1, 1, ServerState::Healthy);
                queries += client.queries();
                assert_eq!(client.news(), []);
            }
            client.now = client.now + Duration::from_micros(100);
            client.poll();
        }
        // Ten a second, a burst of ten, and the clock of answers.
        assert!((18..=22).contains(&queries), "{queries}");
        assert_eq!(client.prober.server(), Some(ServerState::Healthy));
    }
}

#[test]
fn keyless_notice_must_repeat_one_of_the_last_two_nonces() {
    let mut client = Client::inactive();
    let [old, _, last] = [(); 3].map(|()| {
        client.answer_next(1, 1, ServerState::Healthy);
        client.prober.nonces[0]
    });
    assert_eq!(client.notice(1, 2, Authenticity::Keyless, old), Verdict::Doubted);
    let [caused, before] = client.prober.nonces;
    assert_eq!(before, last, "the doubted notice caused a query");
    assert_eq!(client.notice(1, 2, Authenticity::Keyless, 0), Verdict::Doubted);
    assert_eq!(client.notice(1, 2, Authenticity::Keyless, before), Verdict::Believed);
    assert_eq!(client.notice(1, 3, Authenticity::Keyless, caused), Verdict::Believed);
}

#[test]
fn replayed_notice_of_an_older_state_is_doubted() {
    let mut client = Client::lame_duck();
    client.answer_next(1, 3, ServerState::Healthy);
    client.news();
    assert_eq!(client.notice(1, 2, Authenticity::Keyed, client.prober.nonces[0]), Verdict::Doubted);
    assert_eq!((client.prober.server(), client.news()), (Some(ServerState::Healthy), vec![]));
}

#[test]
fn answer_overtaken_by_a_notice_does_not_revive_a_lame_duck() {
    let mut client = Client::inactive();
    let query = client.next_query();
    assert_eq!(client.notice(1, 2, Authenticity::Keyed, query.nonce), Verdict::Believed);
    client.news();
    assert_eq!(client.answer(&query, 1, 1, ServerState::Healthy), Verdict::Believed);
    assert_eq!((client.prober.server(), client.news()), (Some(ServerState::LameDuck), vec![]));
}

#[test]
fn losses_of_a_lame_duck_do_not_count_once_it_is_healthy() {
    let mut client = Client::lame_duck();
    client.lose(5);
    let notice = Notice {
        nonce: 0,
        instance: instance(1),
        port: PORT,
        state: ServerState::Healthy,
        seq: NonZeroU32::new(3).unwrap(),
    };
    let Client { prober, config, rng, now, actions, .. } = &mut client;
    assert_eq!(prober.on_notice(*now, &notice, Authenticity::Keyed, config, rng, actions), Verdict::Believed);
    client.traffic.last_success = Some(client.now + Duration::from_secs(9));
    client.lose(2);
    assert_eq!(client.prober.path(), Path::Works);
}

#[test]
fn notice_during_a_query_has_it_asked_again_after_the_answer() {
    let mut client = Client::inactive();
    let query = client.next_query();
    client.notice(1, 2, Authenticity::Forged, 0);
    client.answer(&query, 1, 1, ServerState::Healthy);
    assert!(client.prober.poll_timeout().unwrap() <= client.now);
}

#[test]
fn lame_duck_is_asked_every_second_until_another_process_answers() {
    let mut client = Client::lame_duck();
    assert!(client.prober.replaces_checks());
    let began = client.now;
    for _ in 0..30 {
        client.answer_next(1, 2, ServerState::LameDuck);
    }
    let seconds = client.now.since(began).as_secs_f64();
    assert!((25.0..35.0).contains(&seconds), "{seconds}");
    assert_eq!(client.news(), []);
    client.answer_next(2, 1, ServerState::Starting);
    assert_eq!(client.news(), [], "not ready yet");
    client.answer_next(2, 2, ServerState::Healthy);
    assert_eq!(client.news(), [Action::CheckNow, Action::ResumeChecks]);
}

#[test]
fn healthy_process_in_place_of_a_lame_duck_ends_it_and_is_checked() {
    let mut client = Client::lame_duck();
    client.answer_next(2, 1, ServerState::Healthy);
    assert_eq!(client.news(), [Action::ProcessEnded, Action::ResumeChecks]);
    client.run_for(1);
    assert!(!client.prober.is_inactive(), "TCP has not worked since");
    client.check(CheckOutcome::Passed);
    client.traffic.last_success = Some(client.now);
    client.answer_next(2, 1, ServerState::Healthy);
    client.poll();
    assert!(client.prober.is_inactive());
}

#[test]
fn refused_port_of_a_lame_duck_means_that_it_ended() {
    let mut client = Client::lame_duck();
    client.next_query();
    client.refuse();
    assert_eq!(client.news(), [Action::ProcessEnded, Action::ResumeChecks]);
    assert_eq!((client.prober.path(), client.prober.poll_timeout()), (Path::Unknown, None));
    client.check(CheckOutcome::Passed);
    assert_eq!(client.prober.poll_timeout(), Some(client.now));
}

#[test]
fn lame_duck_that_falls_silent_is_kept_for_thirty_seconds() {
    let mut client = Client::lame_duck();
    client.run_for(28);
    assert_eq!(client.news(), []);
    client.run_for(4);
    let cause = SilenceCause::NoAnswer;
    assert_eq!(client.news(), [Action::PathSilent(cause), Action::ResumeChecks]);
    assert_eq!(client.prober.path(), Path::Silent(cause));
}

#[test]
fn responder_sets_the_least_delay_up_to_a_minute() {
    for (asked, expected) in [(30_000, 30), (u64::from(u32::MAX), 60)] {
        let mut client = Client::working();
        let query = client.next_query();
        let min_delay = Duration::from_millis(asked);
        client.on_answer(&Answer { min_delay, ..Client::reply(&query, 1, 1, ServerState::Healthy) });
        let Client { prober, config, rng, now, actions, .. } = &mut client;
        assert!(!prober.ask(*now, config, rng, actions));
        assert_eq!(prober.poll_timeout().unwrap().since(*now).as_secs(), expected);
    }
}

#[test]
fn reports_of_answers_are_passed_on_with_the_state() {
    let mut client = Client::working();
    for (state, lame_duck) in [(ServerState::Healthy, false), (ServerState::LameDuck, true)] {
        let query = client.next_query();
        let load = LoadReport { qps: 7.0, in_flight: Some(3), ..LoadReport::default() };
        client.on_answer(&Answer { load: Some(load), seq: 2, ..Client::reply(&query, 1, 1, state) });
        assert!(client.take().contains(&Action::Report(LoadReport { lame_duck, ..load })));
    }
}

#[test]
fn round_trip_follows_the_samples() {
    let mut client = Client::working();
    assert_eq!(client.prober.round_trip(), Some(Duration::from_millis(2)));
    for _ in 0..60 {
        let query = client.next_query();
        client.now = client.now + Duration::from_millis(8);
        client.answer(&query, 1, 1, ServerState::Healthy);
    }
    let round_trip = client.prober.round_trip().unwrap();
    assert!(round_trip.abs_diff(Duration::from_millis(10)) < Duration::from_micros(100), "{round_trip:?}");
}

#[test]
fn live_probe_is_sent_only_where_the_path_works_and_none_is_outstanding() {
    let mut unknown = Client::new();
    let ask = |client: &mut Client| {
        let Client { prober, config, rng, now, actions, .. } = client;
        prober.ask(*now, config, rng, actions)
    };
    assert!(!ask(&mut unknown));
    let mut client = Client::working();
    assert!(ask(&mut client) && !ask(&mut client));
    let query = client.sent().unwrap();
    client.answer(&query, 1, 1, ServerState::Healthy);
    assert!(ask(&mut client));
}

fn with_keys_by_checks(mut client: Client) -> Client {
    client.config.keys = KeySource::Checks;
    client
}

#[test]
fn restarted_process_is_known_by_its_key_while_inactive() {
    let mut client = with_keys_by_checks(Client::inactive());
    client.next_query();
    let began = client.now;
    while !client.actions.contains(&Action::CheckNow) {
        client.step();
    }
    assert_eq!(client.now.since(began), 3 * ANSWER_TIMEOUT);
    client.take();
    client.new_key();
    client.check(CheckOutcome::Passed);
    client.traffic.last_success = Some(client.now);
    assert_eq!(client.news(), [Action::ResumeChecks], "no line about silence");
    client.poll();
    let query = client.sent().expect("a query at once");
    client.answer(&query, 2, 1, ServerState::Healthy);
    client.poll();
    assert_eq!((client.prober.path(), client.prober.is_inactive()), (Path::Works, true));
}

#[test]
fn new_key_has_a_silent_path_queried_at_once_and_once() {
    let mut client = Client::working();
    client.next_query();
    client.refuse();
    client.take();
    client.new_key();
    client.poll();
    let query = client.sent().expect("a query at once");
    client.lose(1);
    let wait = client.prober.poll_timeout().unwrap().since(client.now);
    assert!(wait > Duration::from_secs(15), "{wait:?}");
    assert_eq!(client.prober.path(), Path::Silent(SilenceCause::Refused));
    assert_eq!(client.answer(&query, 1, 1, ServerState::Healthy), Verdict::Doubted, "late");

    client.new_key();
    client.answer_next(1, 1, ServerState::Healthy);
    assert_eq!(client.prober.path(), Path::Works);
}

#[test]
fn new_key_ends_the_delay_that_the_former_process_asked_for() {
    let mut client = Client::working();
    let query = client.next_query();
    let min_delay = Duration::from_secs(60);
    client.on_answer(&Answer { min_delay, ..Client::reply(&query, 1, 1, ServerState::Healthy) });
    client.new_key();
    assert_eq!(client.prober.poll_timeout(), Some(client.now));
}

#[test]
fn silent_lame_duck_is_checked_after_three_losses_if_checks_bring_keys() {
    let mut fixed = Client::lame_duck();
    fixed.lose(5);
    assert_eq!(fixed.news(), []);

    let mut client = with_keys_by_checks(Client::lame_duck());
    client.lose(6);
    assert_eq!(client.news(), [Action::CheckNow; 2]);
    client.check(CheckOutcome::NotServing);
    assert!(client.prober.replaces_checks(), "still a lame duck");
    client.new_key();
    client.check(CheckOutcome::Passed);
    assert_eq!((client.prober.server(), client.news()), (None, vec![Action::ResumeChecks]));
    client.answer_next(2, 1, ServerState::Healthy);
    assert_eq!(client.news(), []);
}
