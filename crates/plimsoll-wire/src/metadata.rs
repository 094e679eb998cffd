//! The metadata of a request: criticality, time left and attempt.
//!
//! | value | HTTP | gRPC |
//! |---|---|---|
//! | criticality | `x-criticality`, else the member `criticality` of W3C `baggage` | the same |
//! | time left | `x-envoy-expected-rq-timeout-ms` | `grpc-timeout` |
//! | attempt | `x-envoy-attempt-count`, from 1 | `grpc-previous-rpc-attempts`, from 0 |
//!
//! Both columns are read for either protocol, the gRPC one first. An unreadable value is counted,
//! and has no other effect.
//!
//! A reader may name one more field for criticality, with an integer ([`PriorityHeader`]). It counts
//! after the two others: those are what an earlier proxy or service of the fleet has decided.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use plimsoll_core::Criticality;
use plimsoll_core::classify::Priorities;

use crate::headers::{BAGGAGE, X_CRITICALITY};

/// The metadata of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// The criticality that its sender claims.
    pub criticality: Option<Criticality>,
    /// The header of that claim.
    pub claimed_in: Option<Claim>,
    /// The time from sending after which the sender no longer wants an answer.
    pub timeout: Option<Duration>,
    /// The number of the attempt, from 1.
    pub attempt: Option<u32>,
    /// Unreadable values.
    pub malformed: u8,
}

/// The place where a request claims its criticality.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// In `x-criticality`.
    Header,
    /// In a member of `baggage`.
    Baggage,
    /// In an integer, in the field of a [`PriorityHeader`].
    Priority,
}

/// A field in which requests claim their criticality as an integer.
///
/// Its value is a decimal number without a sign. Of several fields the first counts, as in Envoy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriorityHeader {
    /// The name of the field.
    pub name: HeaderName,
    /// The levels of its numbers.
    pub levels: Priorities,
}

impl Metadata {
    /// Reads the metadata from the headers of a request.
    #[must_use]
    pub fn read(headers: &HeaderMap) -> Self {
        Self::read_with(headers, None)
    }

    /// Reads the metadata, with an integer priority where nothing else claims a criticality.
    #[must_use]
    pub fn read_with(headers: &HeaderMap, priority: Option<&PriorityHeader>) -> Self {
        let said = Said::among(headers);
        let mut reader = Reader { headers, malformed: 0 };
        let claim = reader.claim(&said).or_else(|| reader.priority(priority?));
        let (criticality, claimed_in) = claim.unzip();
        let timeout =
            reader.first([(said.grpc_timeout, grpc_timeout), (said.x_envoy_expected_rq_timeout_ms, milliseconds)]);
        let attempt =
            reader.first([(said.grpc_previous_rpc_attempts, previous_attempts), (said.x_envoy_attempt_count, attempt)]);
        Self { criticality, claimed_in, timeout, attempt, malformed: reader.malformed }
    }
}

/// Sets the criticality of a request, in place of any claim.
///
/// It writes `x-criticality`, and replaces the member of `baggage` if there is one. Services that
/// do not know `x-criticality` pass `baggage` on.
pub fn say_criticality(headers: &mut HeaderMap, criticality: Criticality) {
    headers.insert(X_CRITICALITY, HeaderValue::from_static(criticality.name()));
    if !has_member(headers) {
        return;
    }
    let lists = headers.get_all(BAGGAGE).iter().flat_map(|list| list.as_bytes().split(|byte| *byte == b','));
    let mut baggage = Vec::new();
    for member in lists.filter(|member| !is_criticality(member) && !member.trim_ascii().is_empty()) {
        baggage.extend_from_slice(member.trim_ascii());
        baggage.push(b',');
    }
    baggage.extend_from_slice(b"criticality=");
    baggage.extend_from_slice(criticality.name().as_bytes());
    let baggage = HeaderValue::from_bytes(&baggage).expect("each piece was part of a value, and so is what joins them");
    headers.insert(BAGGAGE, baggage);
}

/// Whether a request claims a criticality in a header or `baggage`, readable or not.
#[must_use]
pub fn claims_criticality(headers: &HeaderMap) -> bool {
    headers.contains_key(X_CRITICALITY) || has_member(headers)
}

fn has_member(headers: &HeaderMap) -> bool {
    let has_one = |list: &HeaderValue| list.as_bytes().split(|byte| *byte == b',').any(is_criticality);
    headers.get_all(BAGGAGE).iter().any(has_one)
}

/// Whether a member of `baggage` is the one for criticality.
fn is_criticality(member: &[u8]) -> bool {
    let key = member.split(|byte| *byte == b'=').next().unwrap_or(member);
    key.trim_ascii() == b"criticality"
}

/// The value of `grpc-timeout` for a duration, rounded up to eight digits.
#[must_use]
pub fn to_grpc_timeout(timeout: Duration) -> HeaderValue {
    const MOST: u128 = 99_999_999;
    for (unit, nanos) in [('n', 1), ('u', 1_000), ('m', 1_000_000), ('S', 1_000_000_000), ('M', 60_000_000_000)] {
        let count = timeout.as_nanos().div_ceil(nanos);
        if count <= MOST {
            return value(format!("{count}{unit}"));
        }
    }
    value(format!("{}H", timeout.as_nanos().div_ceil(3_600_000_000_000).min(MOST)))
}

fn value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("digits and a letter")
}

/// None for what cannot be read.
type Parse<T> = fn(&str) -> Option<T>;

/// The headers that are there, each at its first value: most of them are not, and a pass over the names costs less than to look for
/// each.
#[derive(Default)]
struct Said<'a> {
    x_criticality: Option<&'a HeaderValue>,
    baggage: Option<&'a HeaderValue>,
    grpc_timeout: Option<&'a HeaderValue>,
    x_envoy_expected_rq_timeout_ms: Option<&'a HeaderValue>,
    grpc_previous_rpc_attempts: Option<&'a HeaderValue>,
    x_envoy_attempt_count: Option<&'a HeaderValue>,
}

impl<'a> Said<'a> {
    fn among(headers: &'a HeaderMap) -> Self {
        let mut said = Self::default();
        for (name, value) in headers {
            let place = match name.as_str() {
                "x-criticality" => &mut said.x_criticality,
                "baggage" => &mut said.baggage,
                "grpc-timeout" => &mut said.grpc_timeout,
                "x-envoy-expected-rq-timeout-ms" => &mut said.x_envoy_expected_rq_timeout_ms,
                "grpc-previous-rpc-attempts" => &mut said.grpc_previous_rpc_attempts,
                "x-envoy-attempt-count" => &mut said.x_envoy_attempt_count,
                _ => continue,
            };
            place.get_or_insert(value);
        }
        said
    }
}

struct Reader<'a> {
    headers: &'a HeaderMap,
    malformed: u8,
}

impl Reader<'_> {
    fn claim(&mut self, said: &Said<'_>) -> Option<(Criticality, Claim)> {
        if let Some(criticality) = self.first([(said.x_criticality, Criticality::from_name)]) {
            return Some((criticality, Claim::Header));
        }
        said.baggage?;
        self.baggage().map(|criticality| (criticality, Claim::Baggage))
    }

    fn priority(&mut self, header: &PriorityHeader) -> Option<(Criticality, Claim)> {
        let priority = self.first([(self.headers.get(&header.name), priority)])?;
        header.levels.criticality(priority).map(|criticality| (criticality, Claim::Priority))
    }

    /// The first of the values that can be read.
    fn first<T, const N: usize>(&mut self, values: [(Option<&HeaderValue>, Parse<T>); N]) -> Option<T> {
        for (value, parse) in values {
            let Some(value) = value else { continue };
            match value.to_str().ok().and_then(|text| parse(text.trim())) {
                Some(read) => return Some(read),
                None => self.malformed = self.malformed.saturating_add(1),
            }
        }
        None
    }

    /// Other members are none of our business, however they look.
    fn baggage(&mut self) -> Option<Criticality> {
        for list in self.headers.get_all(BAGGAGE) {
            let members = list.as_bytes().split(|byte| *byte == b',');
            for (key, value) in members.filter_map(|member| std::str::from_utf8(member).ok()?.split_once('=')) {
                if key.trim() != "criticality" {
                    continue;
                }
                let name = value.split(';').next().unwrap_or(value).trim();
                match Criticality::from_name(name) {
                    Some(criticality) => return Some(criticality),
                    None => self.malformed = self.malformed.saturating_add(1),
                }
            }
        }
        None
    }
}

/// At most eight digits, and a unit.
fn grpc_timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let count = number(digits).filter(|_| digits.len() <= 8)?;
    Some(match unit {
        "H" => Duration::from_secs(count * 3_600),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

/// Zero means none, as Envoy has it.
fn milliseconds(text: &str) -> Option<Duration> {
    number(text).filter(|millis| *millis > 0).map(Duration::from_millis)
}

fn previous_attempts(text: &str) -> Option<u32> {
    u32::try_from(number(text)?).ok()?.checked_add(1)
}

fn attempt(text: &str) -> Option<u32> {
    u32::try_from(number(text)?).ok().filter(|attempt| *attempt > 0)
}

fn priority(text: &str) -> Option<u32> {
    number(text).map(|priority| u32::try_from(priority).unwrap_or(u32::MAX))
}

/// Digits and nothing else: `parse` would take a sign.
fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;
    use crate::headers::{
        GRPC_PREVIOUS_RPC_ATTEMPTS, GRPC_TIMEOUT, X_ENVOY_ATTEMPT_COUNT, X_ENVOY_EXPECTED_RQ_TIMEOUT_MS,
    };

    fn read(pairs: &[(&'static str, &'static [u8])]) -> Metadata {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap());
        }
        Metadata::read(&headers)
    }

    #[test]
    fn criticality_stands_in_its_header_or_else_in_the_baggage() {
        use Criticality::{CriticalPlus, Sheddable};
        for (pairs, criticality, malformed) in [
            (&[][..], None, 0),
            (&[("x-criticality", &b"critical-plus"[..])], Some(CriticalPlus), 0),
            (&[("x-criticality", b" sheddable ")], Some(Sheddable), 0),
            (&[("x-criticality", b"CRITICAL")], None, 1),
            (&[("x-criticality", b"\xff")], None, 1),
            (&[("baggage", b"user=7,criticality=sheddable;ttl=3")], Some(Sheddable), 0),
            (&[("baggage", b"a=b"), ("baggage", b" criticality = critical-plus ")], Some(CriticalPlus), 0),
            (&[("baggage", b"\xff=\xff,,=,criticality=high,criticality=sheddable")], Some(Sheddable), 1),
            (&[("x-criticality", b"critical-plus"), ("baggage", b"criticality=sheddable")], Some(CriticalPlus), 0),
            (&[("x-criticality", b"?"), ("baggage", b"criticality=sheddable")], Some(Sheddable), 1),
        ] {
            let found = read(pairs);
            let expected = Metadata { criticality, malformed, claimed_in: found.claimed_in, ..Metadata::default() };
            assert_eq!(found, expected, "{pairs:?}");
            let in_header = pairs.iter().any(|(name, value)| *name == "x-criticality" && value.len() > 5);
            let claimed_in = criticality.map(|_| if in_header { Claim::Header } else { Claim::Baggage });
            assert_eq!(found.claimed_in, claimed_in, "{pairs:?}");
        }
    }

    #[test]
    fn integer_priority_is_a_claim_where_there_is_no_other() {
        use plimsoll_core::classify::PriorityRange;
        let levels = Priorities::new(|level| match level {
            Criticality::CriticalPlus => PriorityRange::new(0, 7),
            Criticality::Sheddable => PriorityRange::new(24, u32::MAX),
            _ => None,
        });
        let header = PriorityHeader { name: HeaderName::from_static("x-message-priority"), levels: levels.unwrap() };
        let priority = |text| ("x-message-priority", text);
        let (plus, sheddable) = (Criticality::CriticalPlus, Criticality::Sheddable);
        for (pairs, expected, malformed) in [
            (&[priority("0")][..], Some((plus, Claim::Priority)), 0),
            (&[priority(" 31 ")], Some((sheddable, Claim::Priority)), 0),
            (&[priority("9999999999")], Some((sheddable, Claim::Priority)), 0),
            (&[priority("7"), priority("31")], Some((plus, Claim::Priority)), 0),
            (&[priority("8")], None, 0),
            (&[priority("-1")], None, 1),
            (&[priority("+1")], None, 1),
            (&[priority("")], None, 1),
            (&[priority("1, 2")], None, 1),
            (&[priority("high")], None, 1),
            (&[priority("31"), ("x-criticality", "critical-plus")], Some((plus, Claim::Header)), 0),
            (&[priority("31"), ("x-criticality", "?")], Some((sheddable, Claim::Priority)), 1),
            (&[priority("0"), ("baggage", "criticality=sheddable")], Some((sheddable, Claim::Baggage)), 0),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
            }
            let found = Metadata::read_with(&headers, Some(&header));
            assert_eq!((found.criticality.zip(found.claimed_in), found.malformed), (expected, malformed), "{pairs:?}");
            let without = Metadata::read(&headers);
            assert_ne!(without.claimed_in, Some(Claim::Priority), "{pairs:?}");
        }
    }

    #[test]
    fn each_name_is_the_one_that_is_written_elsewhere() {
        let value = HeaderValue::from_static("1");
        let names = [
            X_CRITICALITY,
            BAGGAGE,
            GRPC_TIMEOUT,
            X_ENVOY_EXPECTED_RQ_TIMEOUT_MS,
            GRPC_PREVIOUS_RPC_ATTEMPTS,
            X_ENVOY_ATTEMPT_COUNT,
        ];
        let found = names.map(|name| {
            let headers = HeaderMap::from_iter([(name, value.clone())]);
            let said = Said::among(&headers);
            [
                said.x_criticality,
                said.baggage,
                said.grpc_timeout,
                said.x_envoy_expected_rq_timeout_ms,
                said.grpc_previous_rpc_attempts,
                said.x_envoy_attempt_count,
            ]
            .map(|value| value.is_some())
        });
        let each_its_own = std::array::from_fn(|place| std::array::from_fn(|other| place == other));
        assert_eq!(found, each_its_own);
    }

    #[test]
    fn what_is_said_of_it_takes_the_place_of_every_claim() {
        let said = |baggage: &[&'static str]| {
            let mut headers = HeaderMap::new();
            headers.insert(X_CRITICALITY, HeaderValue::from_static("critical-plus"));
            headers.append(X_CRITICALITY, HeaderValue::from_static("critical-plus"));
            for list in baggage {
                headers.append(BAGGAGE, HeaderValue::from_static(list));
            }
            say_criticality(&mut headers, Criticality::Sheddable);
            let lines = headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
            lines.collect::<Vec<_>>()
        };
        assert_eq!(said(&[]), ["x-criticality: sheddable"]);
        assert_eq!(said(&["user=7;a=b, x=y"]), ["x-criticality: sheddable", "baggage: user=7;a=b, x=y"]);
        assert_eq!(
            said(&["criticality = critical-plus;ttl=3,user=7", "a=b,,criticality=x"]),
            ["x-criticality: sheddable", "baggage: user=7,a=b,criticality=sheddable"]
        );
    }

    #[test]
    fn claim_is_noticed_wherever_it_stands_and_however_it_reads() {
        for (pairs, claims) in [
            (&[][..], false),
            (&[("x-criticality", &b"\xff"[..])], true),
            (&[("baggage", b"a=b"), ("baggage", b"c=d, criticality = urgent")], true),
            (&[("baggage", b"xcriticality=sheddable,criticality2=a,b=criticality")], false),
        ] {
            let headers = pairs
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap()));
            assert_eq!(claims_criticality(&headers.collect()), claims, "{pairs:?}");
        }
    }

    #[test]
    fn of_a_header_that_comes_twice_the_first_counts() {
        let found = read(&[("x-criticality", b"sheddable"), ("x-criticality", b"critical-plus")]);
        assert_eq!(found.criticality, Some(Criticality::Sheddable));
    }

    #[test]
    fn time_left_and_attempt_are_read_in_both_forms() {
        let ms = |ms| Some(Duration::from_millis(ms));
        for (name, text, timeout, attempt, malformed) in [
            ("grpc-timeout", "250m", ms(250), None, 0),
            ("grpc-timeout", "99999999H", Some(Duration::from_secs(99_999_999 * 3_600)), None, 0),
            ("grpc-timeout", "0n", ms(0), None, 0),
            ("grpc-timeout", "100000000n", None, None, 1),
            ("grpc-timeout", "+5S", None, None, 1),
            ("grpc-timeout", "S", None, None, 1),
            ("grpc-timeout", "", None, None, 1),
            ("grpc-timeout", "5é", None, None, 1),
            ("x-envoy-expected-rq-timeout-ms", "250", ms(250), None, 0),
            ("x-envoy-expected-rq-timeout-ms", "0", None, None, 1),
            ("x-envoy-expected-rq-timeout-ms", "-1", None, None, 1),
            ("x-envoy-attempt-count", "1", None, Some(1), 0),
            ("x-envoy-attempt-count", "0", None, None, 1),
            ("x-envoy-attempt-count", "99999999999", None, None, 1),
            ("grpc-previous-rpc-attempts", "2", None, Some(3), 0),
            ("grpc-previous-rpc-attempts", "4294967295", None, None, 1),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_bytes(text.as_bytes()).unwrap());
            let expected = Metadata { timeout, attempt, malformed, ..Metadata::default() };
            assert_eq!(Metadata::read(&headers), expected, "{name}: {text:?}");
        }
    }

    #[test]
    fn timeouts_are_written_so_that_they_are_never_shorter() {
        for nanos in [0, 1, 99_999_999, 100_000_000, 123_456_789_012, 8_640_000_000_000_000] {
            let timeout = Duration::from_nanos(nanos);
            let written = to_grpc_timeout(timeout);
            let back = grpc_timeout(written.to_str().unwrap()).unwrap();
            assert!(
                back >= timeout && back.as_nanos() <= u128::from(nanos) * 10_001 / 10_000 + 1,
                "{written:?} for {timeout:?}"
            );
        }
        assert_eq!(to_grpc_timeout(Duration::MAX), "99999999H");
    }
}
