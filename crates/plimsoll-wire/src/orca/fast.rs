//! What balancing needs out of a load report, for little more than finding its header.
//!
//! A proxy reads a report with every response, so the general decoder (a map and its strings on the
//! heap, for keys that nobody asked for) is too dear. This one decodes base64 into a buffer on the
//! stack and walks the message's fields: five numbers are taken, our own names are looked for in
//! `named_metrics`, all else is skipped. Whatever is out of the ordinary (a long report, joined
//! values, groups, the forms in words) goes to the general decoder.
//!
//! It may accept what the general decoder refuses (it does not look into what it skips), never the
//! other way round, and where both accept they agree.

use http::{HeaderMap, HeaderValue};
use plimsoll_core::{LoadReport, Speed};

use super::base64::decode;
use super::{
    ACTIVE_REQUESTS_METRIC, LAME_DUCK_METRIC, LATENCY_METRIC, Malformed, OrcaLoadReport, SPEED_METRIC, checked,
    in_flight, latency, qps,
};
use crate::headers::{ENDPOINT_LOAD_METRICS, ENDPOINT_LOAD_METRICS_BIN};

/// Room for a message on the stack. Reports of this crate take about 100 bytes.
pub(super) const MAX_MESSAGE: usize = 255;

const BINARY_LEN: usize = "endpoint-load-metrics-bin".len();
const WORDS_LEN: usize = "endpoint-load-metrics".len();

/// The part of a response's load report that balancing needs. `None` when there is none.
///
/// Give it the headers, or the trailers of a gRPC call. It does not allocate for a binary report of
/// the usual size.
#[must_use]
pub fn read_load(headers: &HeaderMap) -> Option<Result<LoadReport, Malformed>> {
    match find(headers) {
        (Some(value), _) => Some(from_base64(value)),
        (None, Some(value)) => {
            Some(OrcaLoadReport::from_text(value.as_bytes()).map(|report| LoadReport::from(&report)))
        }
        (None, None) => None,
    }
}

/// The reports among `headers`: in binary, and in words.
pub(super) fn find(headers: &HeaderMap) -> (Option<&HeaderValue>, Option<&HeaderValue>) {
    let (mut binary, mut words) = (None, None);
    // One pass that compares lengths first costs less than hashing two names, for as few headers as
    // responses have. Of several reports the last one is left over.
    for (name, value) in headers {
        match name.as_str().len() {
            BINARY_LEN if *name == ENDPOINT_LOAD_METRICS_BIN => binary = Some(value),
            WORDS_LEN if *name == ENDPOINT_LOAD_METRICS => words = Some(value),
            _ => {}
        }
    }
    (binary, words)
}

fn from_base64(value: &HeaderValue) -> Result<LoadReport, Malformed> {
    let text = value.as_bytes();
    let mut buffer = [0; MAX_MESSAGE];
    if let Some(bytes) = decode(text, &mut buffer)
        && let Some(result) = from_binary(bytes)
    {
        return result;
    }
    OrcaLoadReport::from_base64(text).map(|report| LoadReport::from(&report))
}

/// Walks the message; `None` when the general decoder has to judge.
fn from_binary(mut bytes: &[u8]) -> Option<Result<LoadReport, Malformed>> {
    let mut report = LoadReport::default();
    let (mut memory, mut rps) = (0.0, 0);
    while !bytes.is_empty() {
        match varint(&mut bytes)? {
            CPU => report.cpu_utilization = double(&mut bytes)?,
            MEMORY => memory = double(&mut bytes)?,
            RPS => rps = varint(&mut bytes)?,
            RPS_FRACTIONAL => report.qps = double(&mut bytes)?,
            EPS => report.eps = double(&mut bytes)?,
            APPLICATION => report.application_utilization = double(&mut bytes)?,
            NAMED_METRIC => {
                let (key, value) = entry(delimited(&mut bytes)?)?;
                if key == LAME_DUCK_METRIC.as_bytes() {
                    report.lame_duck = value > 0.0;
                } else if key == ACTIVE_REQUESTS_METRIC.as_bytes() {
                    report.in_flight = in_flight(value);
                } else if key == LATENCY_METRIC.as_bytes() {
                    report.latency = latency(value);
                } else if key == SPEED_METRIC.as_bytes() {
                    report.speed = Speed::new(value);
                }
            }
            // A known field of another wire type: decoders differ in what they make of it.
            other if (1..=9).contains(&(other >> 3)) && other & 7 != DELIMITED => return None,
            other => skip(other, &mut bytes)?,
        }
    }
    let verdict = checked("cpu_utilization", report.cpu_utilization)
        .and_then(|_| checked("mem_utilization", memory))
        .and_then(|_| checked("rps_fractional", report.qps))
        .and_then(|_| checked("eps", report.eps))
        .and_then(|_| checked("application_utilization", report.application_utilization));
    report.qps = qps(report.qps, rps);
    Some(verdict.map(|_| report))
}

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const DELIMITED: u64 = 2;
const FIXED32: u64 = 5;

const CPU: u64 = 1 << 3 | FIXED64;
const MEMORY: u64 = 2 << 3 | FIXED64;
const RPS: u64 = 3 << 3 | VARINT;
const RPS_FRACTIONAL: u64 = 6 << 3 | FIXED64;
const EPS: u64 = 7 << 3 | FIXED64;
const NAMED_METRIC: u64 = 8 << 3 | DELIMITED;
const APPLICATION: u64 = 9 << 3 | FIXED64;

/// An entry of a map from string to double; either part may be absent and is then empty or zero.
pub(super) fn entry(mut bytes: &[u8]) -> Option<(&[u8], f64)> {
    const KEY: u64 = 1 << 3 | DELIMITED;
    const VALUE: u64 = 2 << 3 | FIXED64;
    let (mut key, mut value) = (&[][..], 0.0);
    while !bytes.is_empty() {
        match varint(&mut bytes)? {
            KEY => key = delimited(&mut bytes)?,
            VALUE => value = double(&mut bytes)?,
            other if (1..=2).contains(&(other >> 3)) => return None,
            other => skip(other, &mut bytes)?,
        }
    }
    Some((key, value))
}

/// Steps over the unknown field that `key` announced. The number zero and groups are left to the general decoder, which refuses most of them.
pub(super) fn skip(key: u64, bytes: &mut &[u8]) -> Option<()> {
    if key >> 3 == 0 || key > u64::from(u32::MAX) {
        return None;
    }
    match key & 7 {
        VARINT => varint(bytes).map(drop),
        FIXED64 => take(bytes, 8).map(drop),
        DELIMITED => delimited(bytes).map(drop),
        FIXED32 => take(bytes, 4).map(drop),
        _ => None,
    }
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (head, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(head)
}

fn double(bytes: &mut &[u8]) -> Option<f64> {
    let (head, rest) = bytes.split_first_chunk::<8>()?;
    *bytes = rest;
    Some(f64::from_le_bytes(*head))
}

pub(super) fn delimited<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(varint(bytes)?).ok()?;
    take(bytes, length)
}

pub(super) fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let (&first, rest) = bytes.split_first()?;
    if first < 0x80 {
        *bytes = rest;
        return Some(u64::from(first));
    }
    prost::encoding::decode_varint(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &'static str) -> Result<LoadReport, Malformed> {
        let mut headers = HeaderMap::new();
        headers.insert(ENDPOINT_LOAD_METRICS_BIN, HeaderValue::from_static(text));
        read_load(&headers).unwrap()
    }

    #[test]
    fn fields_of_no_interest_are_stepped_over() {
        let report = load(
            "CQAAAAAAAOA/EQAAAAAAANA/GGMiDgoDY3B1Efyp8dJNYmA/Kg8KBGRpc2sRmpmZmZmZuT8xAAAAAAAAWUA5AAAAAAAAAEBCHQo\
             ScGxpbXNvbGwubGFtZV9kdWNrEQAAAAAAAPA/QhAKBXF1ZXVlEQAAAAAAAAhASQAAAAAAAOg/",
        );
        let expected = LoadReport {
            application_utilization: 0.75,
            cpu_utilization: 0.5,
            qps: 100.0,
            eps: 2.0,
            lame_duck: true,
            ..LoadReport::default()
        };
        assert_eq!(report, Ok(expected));
    }

    #[test]
    fn unusual_reports_are_left_to_the_general_decoder() {
        assert!(from_binary(b"\x0b\x0c").is_none(), "a group");
        assert!(from_binary(b"\x09\0\0").is_none(), "cut short");
        assert!(from_binary(b"\x42\x05\x0a\x7f").is_none(), "an entry that is longer than the message");
        assert!(from_binary(b"\x18\xe5\x18\x2d\0\x18\xcd\0").is_none(), "a map as a number of four bytes");
        assert!(from_binary(b"\x01\0\0\0\0\0\0\0\0").is_none(), "field zero");
        assert!(matches!(from_binary(b"\xa0\x06\x01"), Some(Ok(_))), "an unknown field");
    }
}
