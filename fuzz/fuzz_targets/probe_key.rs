//! The header of health checks that requests and hands out the key of probes.
#![no_main]

use http::{HeaderMap, HeaderValue};
use libfuzzer_sys::fuzz_target;
use plimsoll_wire::headers::X_PLIMSOLL_PROBE_KEY;
use plimsoll_wire::probe::{ClientKey, Seed};

fuzz_target!(|data: &[u8]| {
    let Ok(value) = HeaderValue::from_bytes(data) else { return };
    let headers: HeaderMap = [(X_PLIMSOLL_PROBE_KEY, value)].into_iter().collect();
    if let Some(Ok(seed)) = Seed::read(&headers) {
        assert_eq!(seed.to_header_value().as_bytes(), data, "one form alone");
    }
    if let Some(Ok(key)) = ClientKey::read(&headers) {
        assert_eq!(key.to_header_value().as_bytes(), data, "one form alone");
        let _ = key.key();
    }
});
