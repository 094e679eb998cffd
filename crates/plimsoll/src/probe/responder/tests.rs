use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use plimsoll_core::probe::{Answer, AnswerState, Notice, Purpose, Query, VERSION};
use plimsoll_wire::probe::{Key, Message, decode, encode};

use super::*;

const PORT: u16 = 8080;
const CLIENT: Instance = Instance::new(77).unwrap();

#[derive(Clone, Default)]
struct Server(Arc<AtomicBool>);

impl Subject for Server {
    fn state(&self) -> ServerState {
        if self.0.load(Ordering::SeqCst) { ServerState::LameDuck } else { ServerState::Healthy }
    }

    fn load(&self) -> Option<LoadReport> {
        Some(LoadReport { in_flight: Some(7), application_utilization: 0.25, ..LoadReport::default() })
    }
}

fn socket() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").unwrap()
}

fn start(keyring: Keyring, server: Server) -> Responder {
    let settings = ResponderSettings::new([PORT], keyring);
    Responder::start(vec![socket()], settings, server).unwrap()
}

fn keyed() -> Keyring {
    Keyring::default().with_shared(Key::new(3, b"0123456789abcdef").unwrap()).unwrap()
}

struct Client {
    socket: UdpSocket,
    keyring: Keyring,
    key_id: u8,
    cookie: u64,
}

impl Client {
    fn of(responder: &Responder, keyring: Keyring, key_id: u8) -> Self {
        let socket = socket();
        socket.connect(responder.addresses()[0]).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Self { socket, keyring, key_id, cookie: 0 }
    }

    fn send(&self, query: &Query) {
        let bytes = encode(&Message::Query(*query), &self.keyring, self.key_id, CLIENT).unwrap();
        self.socket.send(&bytes).unwrap();
    }

    fn receive(&self) -> Message {
        let mut bytes = [0; 2048];
        let length = self.socket.recv(&mut bytes).expect("a datagram within ten seconds");
        assert_eq!(length, 80, "no longer than a query");
        decode(&bytes[..length], &self.keyring, Some(CLIENT)).unwrap().message
    }

    fn ask(&mut self, query: Query) -> Answer {
        self.send(&Query { cookie: self.cookie, ..query });
        let Message::Answer(answer) = self.receive() else { panic!("no answer") };
        assert_eq!(answer.nonce, query.nonce);
        self.cookie = answer.cookie;
        answer
    }

    fn notice(&self) -> Notice {
        let Message::Notice(notice) = self.receive() else { panic!("no notice") };
        notice
    }
}

fn query(nonce: u64) -> Query {
    let purpose = Purpose::Ask { round_trip_us: 0 };
    Query { version: VERSION, nonce, instance: CLIENT, port: PORT, lease_s: 0, cookie: 0, purpose }
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn query_is_answered_with_state_and_load() {
    let responder = start(Keyring::keyless(), Server::default());
    let mut client = Client::of(&responder, Keyring::keyless(), 0);
    let answer = client.ask(query(1));
    assert_eq!(answer.state, AnswerState::Server(ServerState::Healthy));
    let load = answer.load.unwrap();
    assert_eq!((load.in_flight, load.application_utilization), (Some(7), 0.25));
    assert_eq!(client.ask(Query { port: PORT + 1, ..query(2) }).state, AnswerState::NoSuchPort);
    assert_eq!(client.ask(Query { version: 2, ..query(3) }).state, AnswerState::OtherVersion);
    until("three counted", || responder.counts().responder.answers == 3);
}

#[test]
fn client_with_a_lease_learns_of_a_lame_duck_until_it_acknowledges() {
    let server = Server::default();
    let responder = start(keyed(), server.clone());
    let mut client = Client::of(&responder, keyed(), 3);
    client.ask(query(1));
    assert_eq!(client.ask(Query { lease_s: 60, ..query(2) }).lease_s, 60);
    server.0.store(true, Ordering::SeqCst);
    responder.waker().wake();
    let first = client.notice();
    assert_eq!((first.state, first.nonce), (ServerState::LameDuck, 2));
    assert_eq!(client.notice(), first, "sent again without an acknowledgement");
    let purpose = Purpose::Acknowledge { seq: first.seq };
    client.send(&Query { cookie: client.cookie, purpose, ..query(first.nonce) });
    until("acknowledged", || responder.counts().responder.acknowledged == 1);
    client.socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    while let Ok(length) = client.socket.recv(&mut [0; 80]) {
        assert_eq!(length, 80, "sent before the acknowledgement came");
    }
    let resends = responder.counts().responder.resends;
    assert!((1..=4).contains(&resends), "{resends}");
}

#[test]
fn datagrams_of_strangers_get_no_answer_and_are_counted() {
    let responder = start(keyed(), Server::default());
    let other = Keyring::default().with_shared(Key::new(3, b"another 16 bytes").unwrap()).unwrap();
    Client::of(&responder, other, 3).send(&query(1));
    Client::of(&responder, Keyring::keyless(), 0).send(&query(2));
    let mut client = Client::of(&responder, keyed(), 3);
    for bytes in [&b""[..], b"x", &[0x0F; 80], &[0; 1200], &[0; 1201], &[1; 9000]] {
        client.socket.send(bytes).unwrap();
    }
    client.ask(query(3));
    until("eight counted", || {
        let counts = responder.counts();
        (counts.unauthentic, counts.invalid, counts.responder.answers) == (2, 6, 1)
    });
}

#[test]
fn keys_are_required_beyond_loopback() {
    let start = |address: &str, keyring| {
        let settings = ResponderSettings::new([PORT], keyring);
        Responder::start(vec![UdpSocket::bind(address).unwrap()], settings, Server::default())
    };
    let refused = start("0.0.0.0:0", Keyring::keyless()).err().unwrap();
    assert!(refused.to_string().contains("use keys"), "{refused}");
    assert!(start("0.0.0.0:0", keyed()).is_ok());
    assert!(start("[::1]:0", Keyring::keyless()).is_ok());
}

#[test]
fn dropped_responder_leaves_its_address() {
    let responder = start(Keyring::keyless(), Server::default());
    let address = responder.addresses()[0];
    assert!(UdpSocket::bind(address).is_err(), "one socket for each address");
    drop(responder);
    assert!(UdpSocket::bind(address).is_ok());
}

#[test]
fn paused_responder_answers_nothing_until_it_resumes_as_the_same_process() {
    let server = Server::default();
    let responder = start(Keyring::keyless(), server.clone());
    let mut client = Client::of(&responder, Keyring::keyless(), 0);
    client.ask(query(1));
    let before = client.ask(Query { lease_s: 60, ..query(2) });
    assert!(responder.pause());
    server.0.store(true, Ordering::SeqCst);
    responder.waker().wake();
    client.send(&query(3));
    client.socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(client.socket.recv(&mut [0; 80]).is_err(), "neither an answer nor a notice");
    client.socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    responder.resume();
    let (mut instances, mut kinds) = (Vec::new(), [0, 0]);
    while kinds != [1, 1] {
        match client.receive() {
            Message::Answer(answer) => {
                instances.push(answer.instance);
                kinds[0] += 1;
            }
            Message::Notice(notice) => {
                instances.push(notice.instance);
                kinds[1] = 1;
            }
            Message::Query(_) => unreachable!("a responder asks nothing"),
        }
    }
    assert!(instances.iter().all(|instance| *instance == before.instance), "{instances:?}");
}

#[test]
fn socket_passes_to_another_responder_without_a_lost_query() {
    let socket = socket();
    let copy = socket.try_clone().unwrap();
    let settings = |keyring| ResponderSettings::new([PORT], keyring);
    let old = Responder::start(vec![socket], settings(Keyring::keyless()), Server::default()).unwrap();
    let mut client = Client::of(&old, Keyring::keyless(), 0);
    let first = client.ask(query(1)).instance;
    assert!(old.pause());
    for nonce in 2..100 {
        client.send(&query(nonce));
    }
    let _new = Responder::start(vec![copy], settings(Keyring::keyless()), Server::default()).unwrap();
    drop(old);
    for nonce in 2..100 {
        let Message::Answer(answer) = client.receive() else { panic!("no answer") };
        assert_eq!(answer.nonce, nonce);
        assert_ne!(answer.instance, first);
    }
}

#[test]
fn keys_are_replaced_and_leases_stay() {
    let server = Server::default();
    let responder = start(keyed(), server.clone());
    let mut client = Client::of(&responder, keyed(), 3);
    client.ask(query(1));
    client.ask(Query { lease_s: 60, ..query(2) });
    let next = || Key::new(4, b"fedcba9876543210").unwrap();
    responder.set_keyring(keyed().with_shared(next()).unwrap()).unwrap();
    let mut other = Client::of(&responder, Keyring::default().with_shared(next()).unwrap(), 4);
    // The thread takes the keys at its next turn.
    other.ask(query(1));
    server.0.store(true, Ordering::SeqCst);
    responder.waker().wake();
    assert_eq!(client.notice().state, ServerState::LameDuck);
    assert_eq!(responder.counts().responder.leases_refused, 0);
}

#[test]
fn keyless_keyring_is_refused_later_too() {
    let settings = ResponderSettings::new([PORT], keyed());
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    let responder = Responder::start(vec![socket], settings, Server::default()).unwrap();
    assert!(responder.set_keyring(Keyring::keyless()).is_err());
    assert!(responder.set_keyring(keyed()).is_ok());
}
