//! The responder against clients that the tests play.

extern crate std;
use std::vec::Vec;

use twox_hash::XxHash64;

use super::*;

/// A secret that is none: the tests check the message.
struct Secret(u64);

impl CookieSecret for Secret {
    fn mac(&self, message: &[u8; COOKIE_MESSAGE]) -> u64 {
        XxHash64::oneshot(self.0, message)
    }
}

const SECRET: Secret = Secret(9);
const PORT: u16 = 8080;

fn at(secs: u64) -> Timestamp {
    Timestamp::from_origin(Duration::from_secs(secs))
}

fn instance(number: u64) -> Instance {
    Instance::new(number).unwrap()
}

fn responder() -> Responder {
    let config = ResponderConfig {
        instance: instance(500),
        ports: [PORT, 9090].into(),
        limits: QueryLimits::default(),
        pace: Pace::NOTICES,
        hash_seed: 3,
    };
    Responder::new(config, ServerState::Healthy)
}

fn peer(number: u32) -> Peer {
    let [_, b, c, d] = number.to_be_bytes();
    let address = std::format!("10.{b}.{c}.{d}:4000").parse().unwrap();
    Peer { address, local: 2, key_id: 5, instance: instance(u64::from(number) + 1) }
}

fn query(peer: &Peer, cookie: u64, lease_s: u16) -> Query {
    let purpose = Purpose::Ask { round_trip_us: 2_000 };
    Query { version: VERSION, nonce: 11, instance: peer.instance, port: PORT, lease_s, cookie, purpose }
}

fn ask(responder: &mut Responder, now: Timestamp, peer: &Peer, query: &Query) -> Answer {
    match responder.on_query(now, peer, query, || None, &SECRET) {
        Reply::Answer(answer) => answer,
        reply => panic!("{reply:?}"),
    }
}

/// Two queries: the second one proves the address. Returns the cookie.
fn lease(responder: &mut Responder, now: Timestamp, peer: &Peer) -> u64 {
    let cookie = ask(responder, now, peer, &query(peer, 0, 60)).cookie;
    assert_eq!(ask(responder, now, peer, &query(peer, cookie, 60)).lease_s, 60);
    cookie
}

fn acknowledge(responder: &mut Responder, now: Timestamp, peer: &Peer, cookie: u64, seq: u32) -> Reply {
    let purpose = Purpose::Acknowledge { seq: NonZeroU32::new(seq).unwrap() };
    responder.on_query(now, peer, &Query { purpose, ..query(peer, cookie, 0) }, || None, &SECRET)
}

/// Runs all wake-ups until `end`. Returns the notices with their times.
fn run(responder: &mut Responder, end: Timestamp) -> Vec<(Timestamp, Peer, Notice)> {
    let mut sent = Vec::new();
    while let Some(at) = responder.poll_timeout().filter(|at| *at <= end) {
        let mut notices = Vec::new();
        let number = responder.poll(at, &mut notices);
        assert_eq!(number, notices.len());
        sent.extend(notices.into_iter().map(|(peer, notice)| (at, peer, notice)));
    }
    sent
}

#[test]
fn answer_repeats_nonce_and_port_and_states_the_server() {
    let mut responder = responder();
    let load = LoadReport { qps: 5.0, ..LoadReport::default() };
    let reply = responder.on_query(at(1), &peer(1), &query(&peer(1), 0, 0), || Some(load), &SECRET);
    let Reply::Answer(answer) = reply else { panic!("{reply:?}") };
    assert_eq!((answer.nonce, answer.port, answer.instance, answer.seq), (11, PORT, instance(500), 1));
    assert_eq!((answer.state, answer.load), (AnswerState::Server(ServerState::Healthy), Some(load)));
    assert_eq!((answer.lease_s, answer.min_delay), (0, Duration::ZERO));
    responder.set_state(ServerState::LameDuck);
    responder.set_state(ServerState::LameDuck);
    let answer = ask(&mut responder, at(1), &peer(1), &query(&peer(1), 0, 0));
    assert_eq!((answer.state, answer.seq), (AnswerState::Server(ServerState::LameDuck), 2));
}

#[test]
fn other_ports_and_versions_get_answers_that_say_so() {
    let mut responder = responder();
    let other = Query { port: 81, lease_s: 60, ..query(&peer(1), 0, 0) };
    let answer = ask(&mut responder, at(1), &peer(1), &other);
    assert_eq!((answer.state, answer.cookie, answer.port), (AnswerState::NoSuchPort, 0, 81));
    let newer = Query { version: 2, ..query(&peer(1), 0, 60) };
    let answer = ask(&mut responder, at(1), &peer(1), &newer);
    assert_eq!((answer.state, answer.cookie, answer.nonce), (AnswerState::OtherVersion, 0, 11));
    let second = Query { port: 9090, ..query(&peer(1), 0, 0) };
    assert_eq!(ask(&mut responder, at(1), &peer(1), &second).state, AnswerState::Server(ServerState::Healthy));
}

#[test]
fn lease_needs_the_cookie_of_the_same_address_port_and_instance() {
    let mut responder = responder();
    let client = peer(1);
    let cookie = ask(&mut responder, at(1), &client, &query(&client, 0, 60)).cookie;
    let moved = Peer { address: "10.0.0.9:4000".parse().unwrap(), ..client };
    let rebound = Peer { address: "10.0.0.1:4001".parse().unwrap(), ..client };
    let restarted = Peer { instance: instance(99), ..client };
    for other in [moved, rebound, restarted] {
        assert_eq!(ask(&mut responder, at(1), &other, &query(&other, cookie, 60)).lease_s, 0, "{other:?}");
    }
    for wrong in [0, cookie ^ 1] {
        assert_eq!(ask(&mut responder, at(1), &client, &query(&client, wrong, 60)).lease_s, 0);
    }
    assert_eq!(responder.leases(), 0);
    assert_eq!(ask(&mut responder, at(1), &client, &query(&client, cookie, 60)).lease_s, 60);
    assert_eq!(ask(&mut responder, at(1), &client, &query(&client, cookie, u16::MAX)).lease_s, MAX_LEASE_S);
    let other_secret = responder.on_query(at(1), &client, &query(&client, cookie, 60), || None, &Secret(8));
    assert!(matches!(other_secret, Reply::Answer(Answer { lease_s: 0, .. })));
}

#[test]
fn cookie_is_valid_in_its_hour_and_the_next() {
    let mut responder = responder();
    let client = peer(1);
    let cookie = ask(&mut responder, at(3_599), &client, &query(&client, 0, 0)).cookie;
    for (secs, lease_s) in [(3_599, 60), (3_600, 60), (7_199, 60), (7_200, 0)] {
        assert_eq!(ask(&mut responder, at(secs), &client, &query(&client, cookie, 60)).lease_s, lease_s, "{secs}");
    }
}

#[test]
fn flood_of_one_source_and_of_all_is_dropped_and_counted() {
    let mut responder = responder();
    let mut answered = [0, 0];
    for i in 0..200_000_u32 {
        let now = Timestamp::from_nanos(u64::from(i) * 5_000);
        let flooder = peer(if i % 2 == 0 { 7 } else { i });
        let reply = responder.on_query(now, &flooder, &query(&flooder, 0, 60), || None, &SECRET);
        answered[i as usize % 2] += u32::from(matches!(reply, Reply::Answer(_)));
    }
    let counts = responder.counts();
    // 200 per second and a burst of as many, less what others of the same row take.
    assert!((390..=399).contains(&answered[0]), "{answered:?}");
    assert!((99_000..=99_999).contains(&(answered[0] + answered[1])), "{answered:?}: a second and its burst");
    assert_eq!(counts.answers, u64::from(answered[0] + answered[1]));
    assert_eq!(counts.answers + counts.dropped_source + counts.dropped_total, 200_000);
    assert!(counts.dropped_total > 0 && responder.leases() == 0);
}

#[test]
fn pressed_responder_asks_for_a_delay() {
    let mut responder = responder();
    let delays: Vec<Duration> =
        (0..30_000).map(|i| ask(&mut responder, at(1), &peer(i), &query(&peer(i), 0, 0)).min_delay).collect();
    assert_eq!((delays[0], delays[29_999]), (Duration::ZERO, PRESSED_DELAY));
}

#[test]
fn notice_goes_to_leases_alone_until_acknowledged() {
    let mut responder = responder();
    let cookie = lease(&mut responder, at(1), &peer(1));
    lease(&mut responder, at(1), &peer(2));
    ask(&mut responder, at(1), &peer(3), &query(&peer(3), 0, 60));
    assert_eq!(responder.poll_timeout(), None);
    responder.set_state(ServerState::LameDuck);
    let mut first = Vec::new();
    assert_eq!(responder.poll(at(2), &mut first), 2);
    let (to, notice) = first[0];
    assert_eq!((to, notice.nonce, notice.port, notice.instance), (peer(1), 11, PORT, instance(500)));
    assert_eq!((notice.state, notice.seq.get()), (ServerState::LameDuck, 2));
    assert_eq!(acknowledge(&mut responder, at(2), &peer(1), cookie, 2), Reply::Acknowledged);
    assert_eq!(acknowledge(&mut responder, at(2), &peer(1), cookie, 2), Reply::Ignored, "a duplicate");
    let sent = run(&mut responder, at(60));
    assert!(sent.iter().all(|(_, to, _)| *to == peer(2)));
    let waits: Vec<u128> = sent.iter().map(|(time, ..)| time.since(at(2)).as_millis()).collect();
    assert_eq!(waits, [10, 30, 70, 150, 310, 630, 1_270, 2_550]);
    assert!(!responder.is_informing());
    let ResponderCounts { notices, resends, acknowledged, abandoned, .. } = responder.counts();
    assert_eq!((notices, resends, acknowledged, abandoned), (2, 8, 1, 1));
}

#[test]
fn acknowledgement_needs_cookie_number_and_a_notice() {
    let mut responder = responder();
    let cookie = lease(&mut responder, at(1), &peer(1));
    assert_eq!(acknowledge(&mut responder, at(1), &peer(1), cookie, 1), Reply::Ignored, "no notice yet");
    responder.set_state(ServerState::LameDuck);
    assert_eq!(acknowledge(&mut responder, at(1), &peer(1), cookie, 2), Reply::Ignored, "not sent yet");
    responder.poll(at(1), &mut Vec::new());
    for (client, cookie, seq) in [(peer(1), cookie ^ 1, 2), (peer(1), cookie, 1), (peer(2), cookie, 2)] {
        assert_eq!(acknowledge(&mut responder, at(1), &client, cookie, seq), Reply::Ignored);
    }
    assert!(responder.is_informing());
    assert_eq!(acknowledge(&mut responder, at(1), &peer(1), cookie, 2), Reply::Acknowledged);
}

#[test]
fn acknowledgements_of_nothing_count_against_the_rate() {
    let mut responder = responder();
    let accepted = (0..1_000).filter(|_| acknowledge(&mut responder, at(1), &peer(1), 5, 2) == Reply::Ignored).count();
    assert_eq!(accepted, 200);
}

#[test]
fn new_state_restarts_the_round_with_its_own_number() {
    let mut responder = responder();
    let cookie = lease(&mut responder, at(1), &peer(1));
    responder.set_state(ServerState::LameDuck);
    responder.poll(at(1), &mut Vec::new());
    responder.set_state(ServerState::Healthy);
    assert_eq!(acknowledge(&mut responder, at(1), &peer(1), cookie, 2), Reply::Ignored, "of the former state");
    let sent = run(&mut responder, at(60));
    assert_eq!(sent.len(), 9);
    assert!(sent.iter().all(|(.., notice)| (notice.seq.get(), notice.state) == (3, ServerState::Healthy)));
}

#[test]
fn expired_and_released_leases_get_no_notice() {
    let mut responder = responder();
    for number in 1..=3 {
        let cookie = lease(&mut responder, at(1), &peer(number));
        if number == 2 {
            ask(&mut responder, at(1), &peer(2), &query(&peer(2), cookie, 0));
        }
        if number == 3 {
            ask(&mut responder, at(50), &peer(3), &query(&peer(3), cookie, 60));
        }
    }
    responder.set_state(ServerState::LameDuck);
    let mut sent = Vec::new();
    responder.poll(at(61), &mut sent);
    assert_eq!(sent.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [peer(3)]);
}

#[test]
fn burst_to_all_leases_keeps_its_pace_and_ends_without_acknowledgements() {
    let mut responder = responder();
    let clients = MAX_LEASES as u32;
    for number in 0..clients {
        let now = Timestamp::from_nanos(u64::from(number) * 45_000);
        lease(&mut responder, now, &peer(number));
    }
    let full = ask(&mut responder, at(4), &peer(clients), &query(&peer(clients), 0, 60)).cookie;
    assert_eq!(ask(&mut responder, at(4), &peer(clients), &query(&peer(clients), full, 60)).lease_s, 0);
    assert_eq!(responder.counts().leases_refused, 1);
    responder.set_state(ServerState::LameDuck);
    // The clock of the pacer begins with the first poll.
    responder.poll(at(5), &mut Vec::new());
    let sent = run(&mut responder, at(20));
    assert!(!responder.is_informing());
    let mut by_millisecond = std::collections::BTreeMap::<u128, u32>::new();
    for (time, ..) in &sent {
        *by_millisecond.entry(time.since(at(5)).as_millis()).or_default() += 1;
    }
    let most = by_millisecond.values().max().copied().unwrap();
    assert!(most <= 160 + 64, "{most} in one millisecond");
    let counts = responder.counts();
    assert_eq!((counts.notices, counts.resends), (u64::from(clients), 8 * u64::from(clients)));
    assert_eq!(counts.abandoned, u64::from(clients));
    let first_pass = sent[clients as usize - 65].0.since(at(5));
    assert!(first_pass < Duration::from_millis(415), "{first_pass:?}");
}
