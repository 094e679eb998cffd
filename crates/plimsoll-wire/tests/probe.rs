//! Datagrams of probes: against vectors that a Python script made, against themselves, and against
//! junk.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use plimsoll_core::LoadReport;
use plimsoll_core::probe::{
    Answer, AnswerState, Authenticity, COOKIE_MESSAGE, CookieSecret as _, Instance, Notice, Purpose, Query,
    ServerState, VERSION,
};
use plimsoll_wire::headers::X_PLIMSOLL_PROBE_KEY;
use plimsoll_wire::probe::{
    ClientKey, CookieKey, Fault, Key, KeyFault, Keyring, LENGTH, MAX_LENGTH, Message, Seed, decode, encode,
};
use proptest::prelude::*;
use serde_json::Value;

fn vectors() -> Value {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/probe-vectors.json");
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

fn bytes(value: &Value) -> Vec<u8> {
    let text = value.as_str().unwrap();
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn number(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().unwrap(), 16).unwrap()
}

fn instance(value: &Value) -> Instance {
    Instance::new(number(value)).unwrap()
}

fn small<N: TryFrom<u64>>(value: &Value) -> N
where
    N::Error: std::fmt::Debug,
{
    value.as_u64().unwrap().try_into().unwrap()
}

fn keyring(key: &Value) -> Keyring {
    match small(&key["id"]) {
        0 => Keyring::keyless(),
        id => {
            let secret = Key::new(id, &bytes(&key["secret"])).unwrap();
            let is_derived = key["derived"].as_bool().unwrap();
            let keyring = Keyring::default();
            if is_derived { keyring.with_derived(secret) } else { keyring.with_shared(secret) }.unwrap()
        }
    }
}

fn state(value: &Value) -> AnswerState {
    match value.as_str().unwrap() {
        "starting" => AnswerState::Server(ServerState::Starting),
        "healthy" => AnswerState::Server(ServerState::Healthy),
        "lame-duck" => AnswerState::Server(ServerState::LameDuck),
        "no-such-port" => AnswerState::NoSuchPort,
        "other-version" => AnswerState::OtherVersion,
        other => panic!("unknown state {other}"),
    }
}

fn load(value: &Value, lame_duck: bool) -> Option<LoadReport> {
    let rate = |name: &str| value[name].as_f64().unwrap_or_default();
    value.is_object().then(|| LoadReport {
        application_utilization: rate("utilization"),
        qps: rate("qps"),
        eps: rate("eps"),
        lame_duck,
        in_flight: value["in_flight"].as_u64().map(|number| number.try_into().unwrap()),
        latency: value["latency_us"].as_u64().map(Duration::from_micros),
        ..LoadReport::default()
    })
}

fn message(vector: &Value) -> Message {
    let (nonce, port) = (number(&vector["nonce"]), small(&vector["port"]));
    let instance = instance(&vector["instance"]);
    let seq = |value: &Value| NonZeroU32::new(small(value)).unwrap();
    match vector["kind"].as_str().unwrap() {
        "query" => {
            let purpose = match &vector["acknowledges"] {
                Value::Null => Purpose::Ask { round_trip_us: small(&vector["round_trip_us"]) },
                acknowledged => Purpose::Acknowledge { seq: seq(acknowledged) },
            };
            let (lease_s, cookie) = (small(&vector["lease_s"]), number(&vector["cookie"]));
            Message::Query(Query { version: VERSION, nonce, instance, port, lease_s, cookie, purpose })
        }
        "answer" => {
            let state = state(&vector["state"]);
            let lame_duck = matches!(state, AnswerState::Server(ServerState::Starting | ServerState::LameDuck));
            Message::Answer(Answer {
                nonce,
                instance,
                port,
                state,
                seq: small(&vector["seq"]),
                lease_s: small(&vector["lease_s"]),
                cookie: number(&vector["cookie"]),
                load: load(&vector["load"], lame_duck),
                min_delay: Duration::from_millis(small(&vector["min_delay_ms"])),
            })
        }
        "notice" => {
            let AnswerState::Server(state) = state(&vector["state"]) else { panic!("no state of a server") };
            Message::Notice(Notice { nonce, instance, port, state, seq: seq(&vector["seq"]) })
        }
        other => panic!("unknown kind {other}"),
    }
}

/// The instance that reads a message: a client reads what is not a query.
fn reader(message: &Message, client: Instance) -> Option<Instance> {
    (!matches!(message, Message::Query(_))).then_some(client)
}

#[test]
fn valid_vectors_are_read_and_written_byte_for_byte() {
    let vectors = vectors();
    let valid = vectors["valid"].as_array().unwrap();
    assert!(valid.len() >= 17);
    for vector in valid {
        let (expected, keyring) = (message(vector), keyring(&vector["key"]));
        let (datagram, client) = (bytes(&vector["bytes"]), instance(&vector["client"]));
        let key_id = small(&vector["key"]["id"]);
        let received = decode(&datagram, &keyring, reader(&expected, client)).unwrap();
        assert_eq!((received.message, received.key_id), (expected, key_id), "{}", vector["name"]);
        let authenticity = if key_id == 0 { Authenticity::Keyless } else { Authenticity::Keyed };
        assert_eq!(received.authenticity, authenticity, "{}", vector["name"]);
        // An unknown rate is read as 0.
        let has_rates = vector["load"].as_object().is_none_or(|load| !load["qps"].is_null());
        if datagram.len() == LENGTH && has_rates {
            let written = encode(&expected, &keyring, key_id, client).unwrap();
            assert_eq!(written.as_slice(), datagram, "{}", vector["name"]);
        }
    }
}

#[test]
fn invalid_vectors_fail_for_their_reason() {
    let vectors = vectors();
    let invalid = vectors["invalid"].as_array().unwrap();
    assert!(invalid.len() >= 40);
    for vector in invalid {
        let client = (vector["reader"] == "client").then(|| instance(&vector["client"]));
        let fault = decode(&bytes(&vector["bytes"]), &keyring(&vector["key"]), client).unwrap_err();
        assert_eq!(fault.to_string(), vector["fault"].as_str().unwrap(), "{}", vector["name"]);
    }
}

#[test]
fn query_of_another_version_gives_what_its_answer_needs() {
    let vectors = vectors();
    let vector = &vectors["other_version"];
    let received = decode(&bytes(&vector["bytes"]), &keyring(&vector["key"]), None).unwrap();
    let Message::Query(query) = received.message else { panic!("{received:?}") };
    assert_eq!((query.version, query.nonce, query.cookie), (2, number(&vector["nonce"]), 0));
    assert_eq!((query.instance, query.port), (instance(&vector["instance"]), small(&vector["port"])));
    let mut without_port = bytes(&vector["bytes"]);
    without_port[24..26].fill(0);
    let read = decode(&without_port, &keyring(&vector["key"]), None);
    assert_eq!(read, Err(Fault::Field("port")), "a client would drop the answer");
}

#[test]
fn key_of_a_client_is_the_mac_of_its_instance() {
    let vectors = vectors();
    let vector = &vectors["derived"];
    let (secret, client) = (Key::new(200, &bytes(&vector["secret"])).unwrap(), instance(&vector["client"]));
    let derived = secret.derived_secret(client);
    assert_eq!(derived.as_slice(), bytes(&vector["key"]));
    // The client holds the derived key, the responder the secret.
    let of_client = Keyring::default().with_shared(Key::new(200, &derived).unwrap()).unwrap();
    let of_responder = Keyring::default().with_derived(secret).unwrap();
    let query = query(client);
    let datagram = encode(&Message::Query(query), &of_client, 200, client).unwrap();
    assert_eq!(decode(&datagram, &of_responder, None).unwrap().message, Message::Query(query));
    let stranger = Message::Query(Query { instance: Instance::new(4).unwrap(), ..query });
    let forged = encode(&stranger, &of_client, 200, client).unwrap();
    assert_eq!(decode(&forged, &of_responder, None), Err(Fault::Mac), "a key is that of one client");
}

#[test]
fn cookies_are_those_of_the_vectors() {
    for vector in vectors()["cookies"].as_array().unwrap() {
        let secret = CookieKey::new(&bytes(&vector["secret"]).try_into().unwrap());
        let address: IpAddr = vector["address"].as_str().unwrap().parse().unwrap();
        let octets = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => address.octets(),
        };
        let mut message = [0; COOKIE_MESSAGE];
        message[..16].copy_from_slice(&octets);
        message[16..18].copy_from_slice(&small::<u16>(&vector["port"]).to_be_bytes());
        message[18..26].copy_from_slice(&number(&vector["instance"]).to_be_bytes());
        message[26..].copy_from_slice(&vector["hour"].as_u64().unwrap().to_be_bytes());
        assert_eq!(secret.mac(&message), number(&vector["cookie"]));
    }
}

#[test]
fn responder_gives_the_cookie_of_the_vectors() {
    use plimsoll_core::Timestamp;
    use plimsoll_core::probe::{Pace, Peer, QueryLimits, Reply, Responder, ResponderConfig};
    for vector in vectors()["cookies"].as_array().unwrap() {
        let secret = CookieKey::new(&bytes(&vector["secret"]).try_into().unwrap());
        let client = instance(&vector["instance"]);
        let address = SocketAddr::new(vector["address"].as_str().unwrap().parse().unwrap(), small(&vector["port"]));
        let config = ResponderConfig {
            instance: Instance::new(1).unwrap(),
            ports: [8080].into(),
            limits: QueryLimits::default(),
            pace: Pace::NOTICES,
            hash_seed: 0,
        };
        let mut responder = Responder::new(config, ServerState::Healthy);
        let now = Timestamp::from_origin(Duration::from_secs(vector["hour"].as_u64().unwrap() * 3600 + 1800));
        let peer = Peer { address, local: 0, key_id: 0, instance: client };
        let reply = responder.on_query(now, &peer, &query(client), || None, &secret);
        assert!(matches!(reply, Reply::Answer(answer) if answer.cookie == number(&vector["cookie"])), "{reply:?}");
    }
}

#[test]
fn notice_with_a_wrong_mac_is_forged_and_other_kinds_are_faults() {
    let client = Instance::new(9).unwrap();
    let [ours, theirs] = [b"0123456789abcdef", b"fedcba9876543210"]
        .map(|secret| Keyring::default().with_shared(Key::new(1, secret).unwrap()).unwrap());
    for message in [notice(), answer()] {
        let datagram = encode(&message, &theirs, 1, client).unwrap();
        match (message, decode(&datagram, &ours, Some(client))) {
            (Message::Notice(_), Ok(received)) => assert_eq!(received.authenticity, Authenticity::Forged),
            (_, other) => assert_eq!(other, Err(Fault::Mac)),
        }
        let keyless = encode(&message, &Keyring::keyless(), 0, client).unwrap();
        let received = decode(&keyless, &ours, Some(client)).map(|received| received.authenticity);
        let expected = if matches!(message, Message::Notice(_)) { Ok(Authenticity::Forged) } else { Err(Fault::Mac) };
        assert_eq!(received, expected, "a keyring with keys accepts nothing without");
    }
}

#[test]
fn rotation_reads_both_keys_and_removes_the_old_one() {
    let client = Instance::new(9).unwrap();
    let key = |id: u8| Key::new(id, &[id; 32]).unwrap();
    let both = Keyring::default().with_shared(key(1)).unwrap().with_shared(key(2)).unwrap();
    let new = Keyring::default().with_shared(key(2)).unwrap();
    for id in [1, 2] {
        let datagram = encode(&notice(), &both, id, client).unwrap();
        assert_eq!(decode(&datagram, &both, Some(client)).unwrap().key_id, id);
        let by_new = decode(&datagram, &new, Some(client)).unwrap().authenticity;
        assert_eq!(by_new, if id == 2 { Authenticity::Keyed } else { Authenticity::Forged });
    }
    assert_eq!(encode(&notice(), &both, 3, client), None);
    assert_eq!(encode(&notice(), &both, 0, client), None, "no way around the keys");
}

#[test]
fn keys_that_cannot_work_are_refused() {
    assert_eq!(Key::new(0, &[1; 32]).unwrap_err(), KeyFault::Id);
    assert_eq!(Key::new(1, &[1; 15]).unwrap_err(), KeyFault::Short(15));
    let key = |id: u8| Key::new(id, &[id; 16]).unwrap();
    let two = Keyring::default().with_shared(key(1)).unwrap().with_shared(key(2)).unwrap();
    assert_eq!(two.clone().with_shared(key(3)).unwrap_err(), KeyFault::TooMany);
    assert_eq!(two.clone().with_derived(key(2)).unwrap_err(), KeyFault::Twice(2));
    assert!(two.with_derived(key(3)).unwrap().with_derived(key(4)).is_ok());
    assert!(!format!("{:?}", key(65)).contains("65, 65"), "no secret in a log");
}

fn query(client: Instance) -> Query {
    let purpose = Purpose::Ask { round_trip_us: 9 };
    Query { version: VERSION, nonce: 5, instance: client, port: 8080, lease_s: 60, cookie: 0, purpose }
}

fn answer() -> Message {
    Message::Answer(Answer {
        nonce: 5,
        instance: Instance::new(8).unwrap(),
        port: 8080,
        state: AnswerState::Server(ServerState::Healthy),
        seq: 1,
        lease_s: 60,
        cookie: 3,
        load: None,
        min_delay: Duration::ZERO,
    })
}

fn notice() -> Message {
    let (instance, seq) = (Instance::new(8).unwrap(), NonZeroU32::new(2).unwrap());
    Message::Notice(Notice { nonce: 5, instance, port: 8080, state: ServerState::LameDuck, seq })
}

prop_compose! {
    fn any_load()(
        in_flight in prop::option::of(0..u32::MAX),
        latency in prop::option::of(0_u64..u64::from(u32::MAX)),
        rates in [0.0_f32..1e30, 0.0_f32..1e30, 0.001_f32..1e30],
    ) -> LoadReport {
        LoadReport {
            qps: rates[0].into(),
            eps: rates[1].into(),
            application_utilization: rates[2].into(),
            in_flight,
            latency: latency.map(Duration::from_micros),
            ..LoadReport::default()
        }
    }
}

fn any_instance() -> impl Strategy<Value = Instance> + Clone {
    (1..=u64::MAX).prop_map(|number| Instance::new(number).unwrap())
}

fn any_message() -> impl Strategy<Value = Message> {
    let state = (0_usize..3).prop_map(|state| ServerState::ALL[state]);
    let seq = (1..=u32::MAX).prop_map(|seq| NonZeroU32::new(seq).unwrap());
    let head = (any::<u64>(), any_instance(), 1..=u16::MAX);
    let answer_state = prop_oneof![
        state.clone().prop_map(AnswerState::Server),
        Just(AnswerState::NoSuchPort),
        Just(AnswerState::OtherVersion)
    ];
    prop_oneof![
        (head.clone(), any::<u16>(), any::<u64>(), any::<u32>()).prop_map(
            |((nonce, instance, port), lease_s, cookie, round_trip_us)| {
                let purpose = Purpose::Ask { round_trip_us };
                Message::Query(Query { version: VERSION, nonce, instance, port, lease_s, cookie, purpose })
            }
        ),
        (head.clone(), any::<u64>(), seq.clone()).prop_map(|((nonce, instance, port), cookie, seq)| {
            let purpose = Purpose::Acknowledge { seq };
            Message::Query(Query { version: VERSION, nonce, instance, port, lease_s: 0, cookie, purpose })
        }),
        (head.clone(), answer_state, any::<(u32, u16, u64, u32)>(), prop::option::of(any_load())).prop_map(
            |((nonce, instance, port), state, (seq, lease_s, cookie, min_delay), load)| {
                let lame_duck = matches!(state, AnswerState::Server(ServerState::Starting | ServerState::LameDuck));
                let load = load.map(|load| LoadReport { lame_duck, ..load });
                let min_delay = Duration::from_millis(min_delay.into());
                Message::Answer(Answer { nonce, instance, port, state, seq, lease_s, cookie, load, min_delay })
            }
        ),
        (head, state, seq).prop_map(|((nonce, instance, port), state, seq)| {
            Message::Notice(Notice { nonce, instance, port, state, seq })
        }),
    ]
}

fn shared() -> Keyring {
    Keyring::default().with_shared(Key::new(1, b"0123456789abcdef").unwrap()).unwrap()
}

fn handing(value: &str) -> HeaderMap {
    [(X_PLIMSOLL_PROBE_KEY, HeaderValue::from_str(value).unwrap())].into_iter().collect()
}

#[test]
fn handed_keys_have_the_text_and_the_instance_of_the_vectors() {
    for vector in vectors()["handed"].as_array().unwrap() {
        let (request, answer) = (vector["request"].as_str().unwrap(), vector["answer"].as_str().unwrap());
        let seed = Seed::read(&handing(request)).unwrap().unwrap();
        assert_eq!(seed, Seed::new(bytes(&vector["seed"]).try_into().unwrap()));
        assert_eq!(
            (seed.instance(), seed.to_header_value()),
            (instance(&vector["instance"]), request.parse().unwrap())
        );
        let key = keyring(&vector["secret"]).client_key(seed.instance()).unwrap();
        assert_eq!(key.to_header_value(), answer);
        assert_eq!(ClientKey::read(&handing(answer)), Some(Ok(key)));
    }
}

#[test]
fn client_and_responder_understand_each_other_by_a_handed_key() {
    let seed = Seed::new([9; 16]);
    let responder = Keyring::default().with_derived(Key::new(200, &[3; 32]).unwrap()).unwrap();
    let client = Keyring::default().with_shared(responder.client_key(seed.instance()).unwrap().key()).unwrap();
    let ask = |instance| {
        let datagram = encode(&Message::Query(query(instance)), &client, 200, instance).unwrap();
        decode(&datagram, &responder, None).map(|received| received.message)
    };
    assert!(ask(seed.instance()).is_ok());
    assert_eq!(ask(Seed::new([8; 16]).instance()), Err(Fault::Mac), "the key of one client is of no use to another");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn messages_are_read_as_they_were_written(message in any_message(), client in any_instance()) {
        for (keyring, key_id) in [(shared(), 1), (Keyring::keyless(), 0)] {
            let datagram = encode(&message, &keyring, key_id, client).unwrap();
            let received = decode(&datagram, &keyring, reader(&message, client)).unwrap();
            prop_assert_eq!(received.message, message);
        }
    }

    #[test]
    fn any_changed_bit_is_noticed(message in any_message(), at in 0_usize..LENGTH * 8) {
        let client = Instance::new(9).unwrap();
        let mut datagram = encode(&message, &shared(), 1, client).unwrap();
        datagram[at / 8] ^= 1 << (at % 8);
        if let Ok(received) = decode(&datagram, &shared(), reader(&message, client)) {
            prop_assert_eq!(received.authenticity, Authenticity::Forged);
        }
    }

    #[test]
    fn no_key_header_panics(
        head in prop::sample::select(vec!["", "seed=\"", "id=", "id=7, secret=\""]),
        rest in "[0-9a-f]{0,70}[\"a-z =,]{0,3}",
    ) {
        let headers = handing(&format!("{head}{rest}"));
        let text = &headers[X_PLIMSOLL_PROBE_KEY];
        // Each value has one reading, and each reading one form.
        if let Some(Ok(seed)) = Seed::read(&headers) {
            prop_assert_eq!(&seed.to_header_value(), text);
        }
        if let Some(Ok(key)) = ClientKey::read(&headers) {
            prop_assert_eq!(&key.to_header_value(), text);
        }
    }

    #[test]
    fn no_bytes_panic(mut junk in prop::collection::vec(any::<u8>(), 0..MAX_LENGTH + 20), begins_well in any::<bool>()) {
        if begins_well && junk.len() > 8 {
            let head = [0x0F, b'P', b'L', 1, 1 + junk[4] % 3, junk[5] % 3, 0];
            junk[..7].copy_from_slice(&head);
            let zeros = junk.len() - 16.min(junk.len());
            junk[zeros..].fill(0);
        }
        for client in [None, Some(Instance::new(1).unwrap())] {
            if let Ok(received) = decode(&junk, &Keyring::keyless(), client) {
                let client = client.unwrap_or(Instance::new(1).unwrap());
                let again = encode(&received.message, &Keyring::keyless(), 0, client).unwrap();
                prop_assert!(again.len() <= junk.len());
            }
        }
    }
}
