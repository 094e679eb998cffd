//! The message behind base64: what the general decoder accepts reads back as written, and the
//! decoder of the response path sees the same in it.
#![no_main]

use http::{HeaderMap, HeaderValue};
use libfuzzer_sys::fuzz_target;
use plimsoll_core::LoadReport;
use plimsoll_wire::headers::ENDPOINT_LOAD_METRICS_BIN;
use plimsoll_wire::orca::{self, OrcaLoadReport};

/// Base64 of any bytes, with nothing of the crate under test in it.
fn base64(bytes: &[u8]) -> HeaderValue {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = Vec::new();
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for digit in 0..=chunk.len() {
            text.push(DIGITS[(word >> (18 - 6 * digit) & 63) as usize]);
        }
    }
    HeaderValue::from_bytes(&text).expect("base64 has only visible ASCII")
}

fuzz_target!(|data: &[u8]| {
    let headers = HeaderMap::from_iter([(ENDPOINT_LOAD_METRICS_BIN, base64(data))]);
    let fast = orca::read_load(&headers);
    if let Ok(report) = OrcaLoadReport::from_binary(data) {
        assert_eq!(fast, Some(Ok(LoadReport::from(&report))));
        // Maps may hold numbers that are no numbers, which are equal to nothing.
        let written = report.to_header_value();
        let again = OrcaLoadReport::from_base64(written.as_bytes()).expect("what was accepted once is accepted again");
        assert_eq!(again.to_header_value(), written);
    }
});
