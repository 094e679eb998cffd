//! The codecs against published bytes, against themselves, and against junk.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeMap;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode};
use plimsoll_core::trace::{Flags, SpanId, TraceContext, TraceId};
use plimsoll_core::{LoadReport, Speed};
use plimsoll_wire::grpc::{Code, FrameHeader, decode_message, encode_message, unframe};
use plimsoll_wire::headers::{ENDPOINT_LOAD_METRICS, ENDPOINT_LOAD_METRICS_BIN};
use plimsoll_wire::health::{HealthCheckRequest, HealthCheckResponse};
use plimsoll_wire::orca::{self, Malformed, OrcaLoadReport};
use plimsoll_wire::orca_service::OrcaLoadReportRequest;
use plimsoll_wire::shed::Shed;
use plimsoll_wire::trace_context;
use proptest::prelude::*;
use prost::Message as _;

/// Made by the reference implementation (Python `xds-protos` 1.85): every field set.
const FULL: &str = "CQAAAAAAAOA/EQAAAAAAANA/GGMiDgoDY3B1Efyp8dJNYmA/Kg8KBGRpc2sRmpmZmZmZuT8xAAAAAAAAWUA5AAAAAAAAAEBCHQoS\
                    cGxpbXNvbGwubGFtZV9kdWNrEQAAAAAAAPA/QhAKBXF1ZXVlEQAAAAAAAAhASQAAAAAAAOg/";

/// From the same: the numbers that balancing reads, and memory.
const PLAIN: &str = "CQAAAAAAAOA/EQAAAAAAANA/MQAAAAAAAFlAOQAAAAAAAABASQAAAAAAAOg/";

fn full_report() -> OrcaLoadReport {
    OrcaLoadReport {
        cpu_utilization: 0.5,
        mem_utilization: 0.25,
        rps: 99,
        request_cost: [("cpu".to_owned(), 0.002)].into(),
        utilization: [("disk".to_owned(), 0.1)].into(),
        rps_fractional: 100.0,
        eps: 2.0,
        named_metrics: [("plimsoll.lame_duck".to_owned(), 1.0), ("queue".to_owned(), 3.0)].into(),
        application_utilization: 0.75,
    }
}

/// The same message by prost's derive.
#[derive(Clone, PartialEq, prost::Message)]
struct Derived {
    #[prost(double, tag = "1")]
    cpu_utilization: f64,
    #[prost(double, tag = "2")]
    mem_utilization: f64,
    #[prost(uint64, tag = "3")]
    rps: u64,
    #[prost(btree_map = "string, double", tag = "4")]
    request_cost: BTreeMap<String, f64>,
    #[prost(btree_map = "string, double", tag = "5")]
    utilization: BTreeMap<String, f64>,
    #[prost(double, tag = "6")]
    rps_fractional: f64,
    #[prost(double, tag = "7")]
    eps: f64,
    #[prost(btree_map = "string, double", tag = "8")]
    named_metrics: BTreeMap<String, f64>,
    #[prost(double, tag = "9")]
    application_utilization: f64,
}

fn any_derived() -> impl Strategy<Value = Derived> {
    let number = || prop_oneof![Just(0.0), 0.0..1e9_f64];
    let map = || proptest::collection::btree_map("[a-z.]{0,9}", number(), 0..3);
    let numbers = (number(), number(), number(), number(), number());
    (numbers, prop_oneof![Just(0), any::<u64>()], map(), map(), map()).prop_map(|(numbers, rps, a, b, c)| Derived {
        cpu_utilization: numbers.0,
        mem_utilization: numbers.1,
        rps,
        request_cost: a,
        utilization: b,
        rps_fractional: numbers.2,
        eps: numbers.3,
        named_metrics: c,
        application_utilization: numbers.4,
    })
}

proptest! {
    #[test]
    fn reports_are_encoded_as_the_derive_of_prost_does(derived in any_derived(), junk in any::<u32>()) {
        let mut bytes = derived.encode_to_vec();
        let mut report = OrcaLoadReport::decode(bytes.as_slice()).unwrap();
        prop_assert_eq!(report.encode_to_vec(), bytes.clone());
        prop_assert_eq!(report.encoded_len(), bytes.len());
        // A field of the future: tag 15, a varint.
        bytes.push(15 << 3);
        prost::encoding::encode_varint(junk.into(), &mut bytes);
        prop_assert_eq!(OrcaLoadReport::decode(bytes.as_slice()), Ok(report.clone()));
        report.clear();
        prop_assert_eq!(report, OrcaLoadReport::default());
    }
}

fn bin(values: &[&str]) -> HeaderMap {
    values.iter().map(|value| (ENDPOINT_LOAD_METRICS_BIN, HeaderValue::from_str(value).unwrap())).collect()
}

/// Reads both ways and holds them to each other.
fn load(headers: &HeaderMap) -> Option<Result<LoadReport, Malformed>> {
    let fast = orca::read_load(headers);
    if let Some(Ok(report)) = orca::read(headers) {
        assert_eq!(fast, Some(Ok(LoadReport::from(&report))));
    }
    fast
}

#[test]
fn published_bytes_read_as_the_report_that_made_them() {
    assert_eq!(orca::read(&bin(&[FULL])), Some(Ok(full_report())));
    assert_eq!(full_report().to_header_value(), FULL);
    let expected = LoadReport {
        application_utilization: 0.75,
        cpu_utilization: 0.5,
        qps: 100.0,
        eps: 2.0,
        lame_duck: true,
        ..LoadReport::default()
    };
    assert_eq!(load(&bin(&[FULL])), Some(Ok(expected)));
    assert_eq!(load(&bin(&[PLAIN])), Some(Ok(LoadReport { lame_duck: false, ..expected })));
}

#[test]
fn padding_is_a_matter_of_taste() {
    let padded = OrcaLoadReport { eps: 1.0, ..OrcaLoadReport::default() };
    let value = OrcaLoadReport { named_metrics: [("abc".to_owned(), 1.0)].into(), ..padded }.to_header_value();
    let text = value.to_str().unwrap();
    assert!(text.ends_with('='), "{text}");
    assert_eq!(load(&bin(&[text])), load(&bin(&[text.trim_end_matches('=')])));
    assert!(matches!(load(&bin(&[text])), Some(Ok(_))));
}

#[test]
fn last_of_several_reports_counts() {
    let old = OrcaLoadReport { eps: 9.0, ..OrcaLoadReport::default() }.to_header_value();
    let old = old.to_str().unwrap();
    let expected = load(&bin(&[PLAIN]));
    assert_eq!(load(&bin(&[old, PLAIN])), expected);
    assert_eq!(load(&bin(&[&format!("{old},{PLAIN}")])), expected);
    assert_eq!(load(&bin(&[&format!("{old}, {PLAIN}")])), expected);
}

#[test]
fn report_in_words_counts_where_there_is_no_binary_one() {
    let mut headers = HeaderMap::new();
    assert_eq!(load(&headers), None);
    headers.insert(ENDPOINT_LOAD_METRICS, HeaderValue::from_static("TEXT cpu_utilization=0.25,rps_fractional=4"));
    let expected = LoadReport { cpu_utilization: 0.25, qps: 4.0, ..LoadReport::default() };
    assert_eq!(load(&headers), Some(Ok(expected)));
    headers.insert(ENDPOINT_LOAD_METRICS, format!("BIN {PLAIN}").parse().unwrap());
    assert_eq!(load(&headers), load(&bin(&[PLAIN])));
    headers.insert(ENDPOINT_LOAD_METRICS_BIN, HeaderValue::from_static("!"));
    assert_eq!(load(&headers), Some(Err(Malformed::Base64)), "binary wins, even when it is broken");
    orca::strip(&mut headers);
    assert!(headers.is_empty());
}

#[test]
fn superseded_rps_counts_where_rps_fractional_is_absent() {
    let report = OrcaLoadReport { rps: 7, ..OrcaLoadReport::default() };
    assert_eq!(load(&bin(&[report.to_header_value().to_str().unwrap()])).unwrap().unwrap().qps, 7.0);
}

#[test]
fn report_with_a_senseless_number_is_malformed_as_a_whole() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.5] {
        let plain = OrcaLoadReport { rps: 1, ..OrcaLoadReport::default() };
        for (name, report) in [
            ("cpu_utilization", OrcaLoadReport { cpu_utilization: bad, ..plain.clone() }),
            ("mem_utilization", OrcaLoadReport { mem_utilization: bad, ..plain.clone() }),
            ("rps_fractional", OrcaLoadReport { rps_fractional: bad, ..plain.clone() }),
            ("eps", OrcaLoadReport { eps: bad, ..plain.clone() }),
            ("application_utilization", OrcaLoadReport { application_utilization: bad, ..plain.clone() }),
        ] {
            let value = report.to_header_value();
            let headers = bin(&[value.to_str().unwrap()]);
            assert_eq!(orca::read_load(&headers), Some(Err(Malformed::Number(name))), "{bad}");
            assert_eq!(orca::read(&headers), Some(Err(Malformed::Number(name))), "{bad}");
        }
    }
}

#[test]
fn report_too_long_for_the_stack_is_read_all_the_same() {
    let mut report = full_report();
    report.named_metrics.extend((0..100).map(|i| (format!("metric.{i}"), f64::from(i))));
    let value = report.to_header_value();
    assert_eq!(load(&bin(&[value.to_str().unwrap()])), load(&bin(&[FULL])));
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), 0.0..2.0, 0.0..1e9]
}

fn map() -> impl Strategy<Value = std::collections::BTreeMap<String, f64>> {
    proptest::collection::btree_map(
        prop_oneof!["[a-z.]{0,12}", Just(orca::LAME_DUCK_METRIC.to_owned()), Just(orca::SPEED_METRIC.to_owned())],
        -1e3..1e9,
        0..4,
    )
}

fn report() -> impl Strategy<Value = OrcaLoadReport> {
    (number(), number(), any::<u64>(), map(), map(), number(), number(), map(), number()).prop_map(
        |(cpu, mem, rps, request_cost, utilization, rps_fractional, eps, named_metrics, application)| OrcaLoadReport {
            cpu_utilization: cpu,
            mem_utilization: mem,
            rps,
            request_cost,
            utilization,
            rps_fractional,
            eps,
            named_metrics,
            application_utilization: application,
        },
    )
}

proptest! {
    #[test]
    fn trace_reads_back_as_written(trace in 1_u128.., span in 1_u64.., is_sampled: bool, is_random: bool) {
        let (trace, span) = (TraceId::new(trace).unwrap(), SpanId::new(span).unwrap());
        let context = TraceContext { trace, span, flags: Flags { is_sampled, is_random } };
        let mut headers = HeaderMap::new();
        trace_context::write(&mut headers, context);
        prop_assert_eq!(trace_context::read(&headers), Ok(Some(context)));
    }

    /// Junk, and fields with one byte of junk in them: a field that is read is written alike.
    #[test]
    fn field_that_is_read_as_a_trace_has_its_form(
        junk in prop::collection::vec(any::<u8>(), 0..80), at in 0_usize..55, byte: u8, version in "[0-9a-f]{2}",
    ) {
        let mut field = format!("{version}-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").into_bytes();
        field[at] = byte;
        for field in [junk, field] {
            if let Some(context) = trace_context::parse(&field) {
                let written = trace_context::format(context);
                prop_assert_eq!(&written.as_bytes()[2..53], &field[2..53]);
                prop_assert_ne!(&field[..2], b"ff");
            }
        }
    }

    #[test]
    fn report_reads_back_as_written(report in report()) {
        let value = report.to_header_value();
        let headers = bin(&[value.to_str().unwrap()]);
        prop_assert_eq!(orca::read(&headers), Some(Ok(report.clone())));
        prop_assert_eq!(orca::read_load(&headers), Some(Ok(LoadReport::from(&report))));
    }

    #[test]
    fn load_report_survives_the_message(
        cpu in number(), app in number(), qps in number(), eps in number(), lame_duck: bool,
        in_flight: Option<u32>, latency_ms in prop::option::of(0_u64..1 << 40),
        speed in prop::option::of(0.01..=100.0),
    ) {
        // Whole milliseconds: a double holds any latency of less than a century to the nanosecond, not to the last bit.
        let latency = latency_ms.map(|ms| Duration::from_secs_f64(ms as f64 / 1e3));
        let (application_utilization, cpu_utilization) = (app, cpu);
        let speed = speed.and_then(Speed::new);
        let load = LoadReport { application_utilization, cpu_utilization, qps, eps, lame_duck, in_flight, latency, speed };
        prop_assert_eq!(LoadReport::from(&OrcaLoadReport::from(&load)), load);
    }

    /// Two flips of a valid message reach further into the decoders than noise does.
    #[test]
    fn damaged_report_never_panics_and_the_decoders_agree(
        report in report(),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..3),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = report.encode_to_vec();
        if !bytes.is_empty() {
            for (index, byte) in flips {
                let index = index.index(bytes.len());
                bytes[index] = byte;
            }
            bytes.truncate(cut.index(bytes.len()) + 1);
        }
        let mut headers = HeaderMap::new();
        headers.insert(ENDPOINT_LOAD_METRICS, format!("BIN {}", base64(&bytes)).parse().unwrap());
        load(&headers);
        headers.insert(ENDPOINT_LOAD_METRICS_BIN, base64(&bytes).parse().unwrap());
        load(&headers);
    }

    #[test]
    fn arbitrary_headers_never_panic(value in proptest::collection::vec(any::<u8>(), 0..200), form in 0..4_usize) {
        let mut text = [&b""[..], b"TEXT ", b"JSON ", b"BIN "][form].to_vec();
        text.extend(value);
        let Ok(value) = HeaderValue::from_bytes(&text) else { return Ok(()) };
        let mut headers = HeaderMap::new();
        for name in ["endpoint-load-metrics", "x-plimsoll-shed", "retry-after", "grpc-retry-pushback-ms", "grpc-status"] {
            headers.insert(name, value.clone());
            load(&headers);
            let _ = Shed::read(StatusCode::SERVICE_UNAVAILABLE, &headers);
        }
        headers.insert(ENDPOINT_LOAD_METRICS_BIN, value.clone());
        load(&headers);
        let _ = (Code::from_header(&value), decode_message(&value));
    }

    #[test]
    fn text_of_plausible_keys_never_panics(text in "(TEXT|JSON|BIN) [{}\":a-z_=.,0-9 eE+-]{0,60}") {
        let _ = OrcaLoadReport::from_text(text.as_bytes());
    }

    #[test]
    fn grpc_message_reads_back_as_written(message in any::<String>()) {
        prop_assert_eq!(decode_message(&encode_message(&message)), message);
    }

    #[test]
    fn arbitrary_frames_never_panic(body in proptest::collection::vec(any::<u8>(), 0..64), header: [u8; 5]) {
        let _ = unframe::<HealthCheckRequest>(&body);
        let _ = unframe::<HealthCheckResponse>(&body);
        if let Some(request) = unframe::<OrcaLoadReportRequest>(&body) {
            let _ = request.interval();
        }
        if let Some(parsed) = FrameHeader::parse(header) {
            prop_assert_eq!(parsed.to_bytes(), header);
        }
    }
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

#[test]
fn senseless_named_metrics_count_as_not_given() {
    for (key, values) in [
        (orca::ACTIVE_REQUESTS_METRIC, [-1.0, f64::NAN, 1e20]),
        (orca::LATENCY_METRIC, [-1.0, f64::NAN, f64::INFINITY]),
        (orca::SPEED_METRIC, [0.0, f64::NAN, 1e3]),
    ] {
        for value in values {
            let report =
                OrcaLoadReport { eps: 1.0, named_metrics: [(key.to_owned(), value)].into(), ..Default::default() };
            let headers = bin(&[report.to_header_value().to_str().unwrap()]);
            let expected = LoadReport { eps: 1.0, ..LoadReport::default() };
            assert_eq!(load(&headers), Some(Ok(expected)), "{key} {value}");
        }
    }
}
