//! The datagrams of probes: 80 bytes, either way, big-endian.
//!
//! No public specification exists; `docs/probes.md` is this one. The first byte lies outside the
//! ranges of QUIC, STUN and DTLS, so a UDP port can be shared with them (RFC 9443).
//!
//! ```text
//!  at len  query                  answer                     notice
//!   0   4  0x0F 'P' 'L' version   =                          =
//!   4   1  kind 1                 2                          3
//!   5   1  flags: 1 acknowledges  2 load fields count        0
//!   6   1  key id, 0 none         =                          =
//!   7   1  0                      state                      state
//!   8   8  nonce                  of the query               of the client's last query
//!  16   8  instance               own                        own
//!  24   2  TCP port               =                          =
//!  26   2  requested lease, s     granted                    0
//!  28   4  round trip, µs; seq    seq                        seq
//!  32   8  cookie                 cookie                     0
//!  40   8  0                      in flight, latency in µs   0
//!  48  12  0                      utilization, qps, eps      0
//!  60   4  0                      least delay, ms            0
//!  64  16  MAC                    MAC                        MAC
//! ```
//!
//! A longer datagram, up to 1,200 bytes, has fields of later versions from 64 on, which are skipped;
//! the MAC is always last. All bytes below 64 have one meaning in a version, so those without one
//! are zero.

mod fields;
mod key_header;
mod keyring;
mod mac;

use plimsoll_core::probe::{Answer, AnswerState, Authenticity, Instance, Notice, Purpose, Query, ServerState, VERSION};

pub use key_header::{ClientKey, MalformedKeyHeader, Seed};
pub use keyring::{Key, KeyFault, Keyring};
pub use mac::CookieKey;

use fields::{Fields, LoadFields};

/// Length of a datagram without fields of later versions.
pub const LENGTH: usize = 80;
/// Largest length: fits into a packet on any path of today.
pub const MAX_LENGTH: usize = 1200;

const MAC_LENGTH: usize = 16;
const MAGIC: [u8; 3] = [0x0F, b'P', b'L'];
const ACKNOWLEDGES: u8 = 1;
const HAS_LOAD: u8 = 2;

/// The kind of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// From a client.
    Query,
    /// To a client that asked.
    Answer,
    /// To a client with a lease.
    Notice,
}

/// A datagram as a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Message {
    /// From a client.
    Query(Query),
    /// To a client that asked.
    Answer(Answer),
    /// To a client with a lease.
    Notice(Notice),
}

/// A datagram that was read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Received {
    /// Its content.
    pub message: Message,
    /// The key of its MAC; 0 for none.
    pub key_id: u8,
    /// The proof of its origin. Only a notice may be [`Authenticity::Forged`]: it causes a query and
    /// changes nothing.
    pub authenticity: Authenticity,
}

/// The reason why bytes are no datagram of this protocol, or not of a holder of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// Too short or too long.
    #[error("length outside 80 to 1,200 bytes")]
    Length,
    /// Of another protocol.
    #[error("no probe")]
    Magic,
    /// An answer or notice of another version.
    #[error("version of a probe not spoken")]
    Version,
    /// An unknown kind.
    #[error("unknown kind of a probe")]
    Kind,
    /// A field has a value that it cannot have.
    #[error("field {0} of a probe out of range")]
    Field(&'static str),
    /// The key is not known.
    #[error("unknown key of a probe")]
    UnknownKey,
    /// The MAC is wrong, or missing where one is required.
    #[error("wrong MAC of a probe")]
    Mac,
}

/// Writes a datagram and signs it with the key of this id; 0 for none. `None` if the keyring has no
/// such key, or requires one.
///
/// `client` is the instance of the client at either end: a key may be derived from it.
#[must_use]
pub fn encode(message: &Message, keyring: &Keyring, key_id: u8, client: Instance) -> Option<[u8; LENGTH]> {
    let mut bytes = write(message, key_id).bytes();
    let (content, mac) = bytes.split_at_mut(LENGTH - MAC_LENGTH);
    mac.copy_from_slice(&keyring.sign(content, key_id, client)?);
    Some(bytes)
}

/// Reads a datagram and verifies its MAC.
///
/// `client` is the reader's own instance if it is a client; `None` reads queries, which name it.
///
/// # Errors
/// If the bytes are no valid datagram, or the MAC of a query or answer is not valid.
pub fn decode(bytes: &[u8], keyring: &Keyring, client: Option<Instance>) -> Result<Received, Fault> {
    if !(LENGTH..=MAX_LENGTH).contains(&bytes.len()) {
        return Err(Fault::Length);
    }
    let (content, mac) = bytes.split_at(bytes.len() - MAC_LENGTH);
    let Some((head, _)) = content.split_first_chunk() else { return Err(Fault::Length) };
    let fields = Fields::read(head);
    let message = read(&fields)?;
    let from = match (&message, client) {
        (Message::Query(query), None) => query.instance,
        (Message::Answer(_) | Message::Notice(_), Some(client)) => client,
        _ => return Err(Fault::Kind),
    };
    let judged = keyring.verify(content, mac, fields.key_id, from);
    let authenticity = match (judged, &message) {
        (Ok(authenticity), _) => authenticity,
        (Err(_), Message::Notice(_)) => Authenticity::Forged,
        (Err(fault), _) => return Err(fault),
    };
    Ok(Received { message, key_id: fields.key_id, authenticity })
}

fn write(message: &Message, key_id: u8) -> Fields {
    let blank = Fields { version: VERSION, key_id, ..Fields::default() };
    match *message {
        Message::Query(Query { version, nonce, instance, port, lease_s, cookie, purpose }) => {
            let (flags, number) = match purpose {
                Purpose::Ask { round_trip_us } => (0, round_trip_us),
                Purpose::Acknowledge { seq } => (ACKNOWLEDGES, seq.get()),
            };
            let instance = instance.number();
            Fields { version, kind: 1, flags, nonce, instance, port, lease_s, number, cookie, ..blank }
        }
        Message::Answer(Answer { nonce, instance, port, state, seq, lease_s, cookie, load, min_delay }) => Fields {
            kind: 2,
            flags: if load.is_some() { HAS_LOAD } else { 0 },
            state: state_number(state),
            nonce,
            instance: instance.number(),
            port,
            lease_s,
            number: seq,
            cookie,
            load: load.as_ref().map_or_else(LoadFields::default, LoadFields::of),
            min_delay_ms: u32::try_from(min_delay.as_millis()).unwrap_or(u32::MAX),
            ..blank
        },
        Message::Notice(Notice { nonce, instance, port, state, seq }) => Fields {
            kind: 3,
            state: state_number(AnswerState::Server(state)),
            nonce,
            instance: instance.number(),
            port,
            number: seq.get(),
            ..blank
        },
    }
}

fn read(fields: &Fields) -> Result<Message, Fault> {
    if fields.magic != MAGIC {
        return Err(Fault::Magic);
    }
    let Fields { version, nonce, port, lease_s, number, cookie, .. } = *fields;
    if version != VERSION && fields.kind != 1 {
        return Err(Fault::Version);
    }
    let instance = Instance::new(fields.instance).ok_or(Fault::Field("instance"))?;
    if port == 0 {
        return Err(Fault::Field("port"));
    }
    if version != VERSION {
        // The answer to a query of another version needs its nonce, instance and port alone.
        let purpose = Purpose::Ask { round_trip_us: 0 };
        return Ok(Message::Query(Query { version, nonce, instance, port, lease_s: 0, cookie: 0, purpose }));
    }
    let seq = || number.try_into().map_err(|_| Fault::Field("seq"));
    match fields.kind {
        1 => {
            fields.expect_blank(ACKNOWLEDGES, &["state", "load", "min_delay"])?;
            let purpose = match fields.flags {
                0 => Purpose::Ask { round_trip_us: number },
                _ => Purpose::Acknowledge { seq: seq()? },
            };
            if fields.flags != 0 && lease_s != 0 {
                return Err(Fault::Field("lease"));
            }
            Ok(Message::Query(Query { version, nonce, instance, port, lease_s, cookie, purpose }))
        }
        2 => {
            fields.expect_blank(HAS_LOAD, if fields.flags == 0 { &["load"] } else { &[] })?;
            let load = if fields.flags == 0 { None } else { Some(fields.load.report()?) };
            let min_delay = core::time::Duration::from_millis(fields.min_delay_ms.into());
            let state = state_of(fields.state).ok_or(Fault::Field("state"))?;
            Ok(Message::Answer(Answer {
                nonce,
                instance,
                port,
                state,
                seq: number,
                lease_s,
                cookie,
                load: load.map(|load| plimsoll_core::LoadReport { lame_duck: is_unready(state), ..load }),
                min_delay,
            }))
        }
        3 => {
            fields.expect_blank(0, &["lease", "cookie", "load", "min_delay"])?;
            let Some(AnswerState::Server(state)) = state_of(fields.state) else { return Err(Fault::Field("state")) };
            Ok(Message::Notice(Notice { nonce, instance, port, state, seq: seq()? }))
        }
        _ => Err(Fault::Kind),
    }
}

fn is_unready(state: AnswerState) -> bool {
    matches!(state, AnswerState::Server(ServerState::Starting | ServerState::LameDuck))
}

fn state_number(state: AnswerState) -> u8 {
    match state {
        AnswerState::Server(ServerState::Starting) => 1,
        AnswerState::Server(ServerState::Healthy) => 2,
        AnswerState::Server(ServerState::LameDuck) => 3,
        AnswerState::NoSuchPort => 4,
        AnswerState::OtherVersion => 255,
    }
}

fn state_of(number: u8) -> Option<AnswerState> {
    let states = ServerState::ALL.map(AnswerState::Server).into_iter();
    states.chain([AnswerState::NoSuchPort, AnswerState::OtherVersion]).find(|state| state_number(*state) == number)
}
