//! Datagrams of probes, for a responder and for a client, and the answers of a responder to them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_core::Timestamp;
use plimsoll_core::probe::{
    Authenticity, Instance, Pace, Peer, QueryLimits, Reply, Responder, ResponderConfig, ServerState,
};
use plimsoll_wire::probe::{CookieKey, Key, Keyring, LENGTH, Message, decode, encode};

const CLIENT: Instance = Instance::new(5).expect("not zero");

fn keyed() -> Keyring {
    Keyring::default().with_shared(Key::new(1, &[7; 32]).expect("long enough")).expect("one key")
}

fn answer(message: &Message, length: usize) {
    let Message::Query(query) = message else { return };
    let config = ResponderConfig {
        instance: CLIENT,
        ports: [query.port].into(),
        limits: QueryLimits::default(),
        pace: Pace::NOTICES,
        hash_seed: 1,
    };
    let mut responder = Responder::new(config, ServerState::Healthy);
    let peer = Peer { address: ([127, 0, 0, 1], 9).into(), local: 0, key_id: 0, instance: query.instance };
    let secret = CookieKey::new(&[3; 32]);
    if let Reply::Answer(answer) = responder.on_query(Timestamp::ZERO, &peer, query, || None, &secret) {
        let reply = encode(&Message::Answer(answer), &Keyring::keyless(), 0, query.instance).expect("needs no key");
        assert!(reply.len() <= length, "an answer is no longer than its query");
        decode(&reply, &Keyring::keyless(), Some(query.instance)).expect("a client reads each answer");
    }
}

/// The fields without the key, since a forged notice may name any. An unknown rate is read as 0, and
/// a utilization of 0 as unknown: both are 0 here.
fn known(datagram: &[u8]) -> [u8; 64] {
    let mut fields: [u8; 64] = datagram[..64].try_into().expect("long enough");
    fields[6] = 0;
    for rate in fields[48..60].as_chunks_mut::<4>().0 {
        if f32::from_be_bytes(*rate).is_nan() || f32::from_be_bytes(*rate) == 0.0 {
            *rate = [0; 4];
        }
    }
    fields
}

fuzz_target!(|data: &[u8]| {
    for client in [None, Some(CLIENT)] {
        if let Ok(received) = decode(data, &Keyring::keyless(), client) {
            answer(&received.message, data.len());
            let of = client.unwrap_or(CLIENT);
            if matches!(received.message, Message::Query(query) if query.version != 1) {
                continue;
            }
            let written = encode(&received.message, &Keyring::keyless(), 0, of).expect("needs no key");
            let again = decode(&written, &Keyring::keyless(), client).expect("own bytes are valid");
            assert_eq!(again.message, received.message);
            assert!(written.len() == LENGTH && LENGTH <= data.len());
            assert_eq!(known(&written), known(data), "each byte has one meaning");
        }
        // Without the key, nothing but a doubtful notice comes through.
        if let Ok(received) = decode(data, &keyed(), client)
            && received.authenticity == Authenticity::Forged
        {
            assert!(matches!(received.message, Message::Notice(_)));
        }
    }
});
