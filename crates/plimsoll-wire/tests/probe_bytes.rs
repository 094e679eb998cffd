//! Datagrams of probes from random bytes, and from vectors with changed bytes: nothing panics, and
//! an accepted datagram is written again as it was read.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::path::Path;

use plimsoll_core::probe::{Authenticity, Instance, VERSION};
use plimsoll_wire::probe::{Key, Keyring, LENGTH, MAX_LENGTH, Message, decode, encode};
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use serde_json::Value;

const CLIENT: Instance = Instance::new(0x1122_3344_5566_7788).unwrap();
const DATAGRAMS: usize = 500_000;
const MAC: usize = 16;

/// All vectors that are long enough, as they are without a key.
fn vectors() -> Vec<Vec<u8>> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/probe-vectors.json");
    let vectors: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let all = ["valid", "invalid"].into_iter().flat_map(|name| vectors[name].as_array().unwrap());
    let bytes = |vector: &Value| {
        let text = vector["bytes"].as_str().unwrap();
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect::<Vec<_>>()
    };
    let mut datagrams: Vec<_> = all.map(bytes).filter(|bytes| (LENGTH..=MAX_LENGTH).contains(&bytes.len())).collect();
    assert!(datagrams.len() >= 50);
    for datagram in &mut datagrams {
        datagram[6] = 0;
        without_mac(datagram);
    }
    datagrams
}

fn without_mac(datagram: &mut [u8]) {
    let content = datagram.len().saturating_sub(MAC);
    datagram[content..].fill(0);
}

/// Changes up to three bytes, and the length of one datagram of eight.
fn mutate(datagram: &mut Vec<u8>, rng: &mut TestRng) {
    let random = rng.next_u64().to_be_bytes();
    for change in random[..6].chunks(2).take(usize::from(random[6] % 4)) {
        let at = usize::from(change[0]) % 64;
        datagram[at] = match change[1] % 4 {
            0 => 0,
            1 => 0xFF,
            2 => datagram[at] ^ 1 << (change[0] >> 5),
            _ => change[1],
        };
    }
    if random[7].is_multiple_of(8) {
        datagram.resize(rng.next_u32() as usize % (MAX_LENGTH + 2), random[0]);
        without_mac(datagram);
    }
}

/// The fields without the key, since a forged notice may name any. An unknown rate is read as 0, and
/// a utilization of 0 as unknown: both are 0 here.
fn fields(datagram: &[u8]) -> [u8; 64] {
    let mut fields: [u8; 64] = datagram[..64].try_into().unwrap();
    fields[6] = 0;
    for at in [48, 52, 56] {
        let rate = f32::from_be_bytes(fields[at..at + 4].try_into().unwrap());
        if rate.is_nan() || rate == 0.0 {
            fields[at..at + 4].fill(0);
        }
    }
    fields
}

#[test]
fn accepted_bytes_are_written_as_they_were_read() {
    let (vectors, keyring) = (vectors(), Keyring::keyless());
    let mut rng = TestRng::from_seed(RngAlgorithm::XorShift, &[7; 16]);
    let mut accepted = [0_usize; 4];
    let mut datagram = Vec::new();
    for number in 0..DATAGRAMS {
        datagram.clone_from(&vectors[number % vectors.len()]);
        mutate(&mut datagram, &mut rng);
        for reader in [None, Some(CLIENT)] {
            let Ok(received) = decode(&datagram, &keyring, reader) else { continue };
            let kind = match received.message {
                Message::Query(query) if query.version != VERSION => 3,
                Message::Query(_) => 0,
                Message::Answer(_) => 1,
                Message::Notice(_) => 2,
            };
            accepted[kind] += 1;
            if kind < 3 {
                let written = encode(&received.message, &keyring, 0, CLIENT).unwrap();
                assert_eq!(fields(&written), fields(&datagram), "{datagram:02x?}");
                let again = decode(&written, &keyring, reader).unwrap();
                assert_eq!(again.message, received.message, "{datagram:02x?}");
            }
        }
    }
    assert!(accepted.iter().all(|number| *number > 1_000), "{accepted:?} are enough to see a fault");
}

#[test]
fn bytes_without_the_key_give_a_doubtful_notice_at_most() {
    let keyring = Keyring::default().with_shared(Key::new(1, &[7; 32]).unwrap()).unwrap();
    let vectors = vectors();
    let mut rng = TestRng::from_seed(RngAlgorithm::XorShift, &[9; 16]);
    let mut notices = 0;
    for number in 0..DATAGRAMS / 5 {
        let mut datagram = vectors[number % vectors.len()].clone();
        datagram[6] = u8::from(number % 3 > 0);
        mutate(&mut datagram, &mut rng);
        if number.is_multiple_of(5) {
            datagram.iter_mut().for_each(|byte| *byte = rng.next_u32() as u8);
        }
        for reader in [None, Some(CLIENT)] {
            let Ok(received) = decode(&datagram, &keyring, reader) else { continue };
            assert!(matches!(received.message, Message::Notice(_)), "{datagram:02x?}");
            assert_eq!(received.authenticity, Authenticity::Forged, "{datagram:02x?}");
            notices += 1;
        }
    }
    assert!(notices > 1_000, "{notices}");
}
