//! The part of a report that is about one request: its `request_cost`.
//!
//! All else in a report is the same for many responses, and is encoded once for them; the cost is not. A message in protobuf may be put
//! together from pieces, and base64 goes by threes of bytes: so the text of what is common is kept, and a response pays for some
//! twenty bytes at its end.
//!
//! On the reading side, [`request_cpu`] is for a gate that wants to know one number of each response; it does what
//! [`read`](super::read) does without memory on the heap, where the report is in binary and of the usual size.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use prost::Message as _;
use prost::encoding::encode_varint;

use super::fast::{MAX_MESSAGE, delimited, entry, find, skip, varint};
use super::{OrcaLoadReport, REQUEST_CPU, base64 as plain, read};

/// `request_cost`, an entry of the map.
const COST: u64 = 4 << 3 | 2;

/// An encoded report that many responses share. A request's cost is appended to it.
#[derive(Clone, Debug)]
pub struct Encoded {
    whole: HeaderValue,
    /// Of as many threes of bytes as there are.
    text: Box<str>,
    /// The one or two bytes that are left.
    rest: Box<[u8]>,
}

impl Encoded {
    /// The value of an `endpoint-load-metrics-bin` header.
    #[must_use]
    pub fn header_value(&self) -> &HeaderValue {
        &self.whole
    }

    /// The header value with the cost of one request, by name. Of equal names the last counts.
    #[must_use]
    pub fn with_cost<'n>(&self, cost: impl IntoIterator<Item = (&'n str, f64)>) -> HeaderValue {
        let mut bytes = Vec::with_capacity(64);
        bytes.extend_from_slice(&self.rest);
        for (name, value) in cost {
            encode(name, value, &mut bytes);
        }
        let mut text = String::with_capacity(self.text.len() + bytes.len().div_ceil(3) * 4);
        text.push_str(&self.text);
        STANDARD.encode_string(&bytes, &mut text);
        HeaderValue::from_maybe_shared(Bytes::from(text)).expect("base64 has only visible ASCII")
    }
}

impl From<&OrcaLoadReport> for Encoded {
    fn from(report: &OrcaLoadReport) -> Self {
        let message = report.encode_to_vec();
        let (threes, rest) = message.split_at(message.len() / 3 * 3);
        Self { whole: report.to_header_value(), text: STANDARD.encode(threes).into(), rest: rest.into() }
    }
}

fn encode(name: &str, value: f64, bytes: &mut Vec<u8>) {
    const KEY: u8 = 1 << 3 | 2;
    const VALUE: u8 = 2 << 3 | 1;
    let key_length = prost::encoding::encoded_len_varint(name.len() as u64);
    encode_varint(COST, bytes);
    encode_varint((1 + key_length + name.len() + 1 + 8) as u64, bytes);
    bytes.push(KEY);
    encode_varint(name.len() as u64, bytes);
    bytes.extend_from_slice(name.as_bytes());
    bytes.push(VALUE);
    bytes.extend_from_slice(&value.to_le_bytes());
}

/// The reference CPU-seconds that a request has used, from the headers of its response or the trailers of a
/// call.
///
/// `None` if the backend reports none, or an invalid number.
#[must_use]
pub fn request_cpu(headers: &HeaderMap) -> Option<f64> {
    let (binary, words) = find(headers);
    let mut buffer = [0; MAX_MESSAGE];
    let quick = binary.and_then(|value| in_message(plain::decode(value.as_bytes(), &mut buffer)?));
    let cpu = match quick {
        Some(cpu) => cpu,
        None if binary.is_some() || words.is_some() => read(headers)?.ok()?.request_cost.get(REQUEST_CPU).copied(),
        None => None,
    };
    cpu.filter(|cpu| cpu.is_finite() && *cpu >= 0.0)
}

/// Walks the message; the outer `None` when the general decoder has to judge.
fn in_message(mut bytes: &[u8]) -> Option<Option<f64>> {
    let mut cpu = None;
    while !bytes.is_empty() {
        match varint(&mut bytes)? {
            COST => {
                let (key, value) = entry(delimited(&mut bytes)?)?;
                if key == REQUEST_CPU.as_bytes() {
                    cpu = Some(value);
                }
            }
            other if other >> 3 == COST >> 3 => return None,
            other => skip(other, &mut bytes)?,
        }
    }
    Some(cpu)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::headers::{ENDPOINT_LOAD_METRICS, ENDPOINT_LOAD_METRICS_BIN};

    fn headers(value: HeaderValue) -> HeaderMap {
        HeaderMap::from_iter([(ENDPOINT_LOAD_METRICS_BIN, value)])
    }

    proptest! {
        #[test]
        fn what_is_put_behind_a_report_is_read_as_a_part_of_it(
            cpu in 0.0..1e3_f64,
            eps in 0.0..1e6_f64,
            other in "[a-z]{0,40}",
            long in "[a-z]{120,300}",
        ) {
            let report = OrcaLoadReport { eps, rps_fractional: 0.5, ..OrcaLoadReport::default() };
            let encoded = Encoded::from(&report);
            prop_assert_eq!(encoded.header_value(), &report.to_header_value());
            let value = encoded.with_cost([("tokens", 3.0), (other.as_str(), 812.0), (long.as_str(), 1.0), (REQUEST_CPU, cpu)]);
            let read = OrcaLoadReport::from_base64(value.as_bytes()).unwrap();
            let cost = [("tokens", 3.0), (other.as_str(), 812.0), (long.as_str(), 1.0), (REQUEST_CPU, cpu)];
            let request_cost = cost.map(|(name, value)| (name.to_owned(), value)).into_iter().collect::<BTreeMap<_, _>>();
            prop_assert_eq!(&read, &OrcaLoadReport { request_cost, ..report.clone() });
            prop_assert_eq!(request_cpu(&headers(value)), Some(cpu));
            prop_assert_eq!(request_cpu(&headers(encoded.with_cost([(REQUEST_CPU, cpu)]))), Some(cpu));
            prop_assert_eq!(request_cpu(&headers(encoded.header_value().clone())), None);
        }

        #[test]
        fn the_quick_way_agrees_with_the_general_one(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            if let (Some(quick), Ok(report)) = (in_message(&bytes), OrcaLoadReport::decode(bytes.as_slice())) {
                prop_assert_eq!(quick.map(f64::to_bits), report.request_cost.get(REQUEST_CPU).copied().map(f64::to_bits));
            }
        }
    }

    #[test]
    fn a_cost_is_read_in_all_forms_and_nonsense_is_none() {
        let words =
            |text: &'static str| HeaderMap::from_iter([(ENDPOINT_LOAD_METRICS, HeaderValue::from_static(text))]);
        assert_eq!(request_cpu(&words("TEXT cpu_utilization=0.3,request_cost.cpu=0.25")), Some(0.25));
        assert_eq!(request_cpu(&words("JSON {\"requestCost\":{\"cpu\":0.5}}")), Some(0.5));
        assert_eq!(request_cpu(&words("TEXT cpu_utilization=0.3")), None);
        assert_eq!(request_cpu(&words("TEXT request_cost.cpu=-1")), None);
        assert_eq!(request_cpu(&HeaderMap::new()), None);
        let encoded = Encoded::from(&OrcaLoadReport::default());
        for nonsense in [f64::NAN, f64::INFINITY, -1.0] {
            assert_eq!(request_cpu(&headers(encoded.with_cost([(REQUEST_CPU, nonsense)]))), None, "{nonsense}");
        }
        assert_eq!(request_cpu(&headers(encoded.with_cost([(REQUEST_CPU, 1.0), (REQUEST_CPU, 2.0)]))), Some(2.0));
    }
}
