//! Load reports as they stand in headers, in every form: the two decoders agree.
#![no_main]

use http::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;
use plimsoll_core::LoadReport;
use plimsoll_wire::headers::{ENDPOINT_LOAD_METRICS, ENDPOINT_LOAD_METRICS_BIN};
use plimsoll_wire::orca;

fn agree(name: HeaderName, value: HeaderValue) {
    let headers = HeaderMap::from_iter([(name, value)]);
    let fast = orca::read_load(&headers);
    if let Some(Ok(report)) = orca::read(&headers) {
        assert_eq!(fast, Some(Ok(LoadReport::from(&report))));
    }
}

fuzz_target!(|data: &[u8]| {
    if let Ok(value) = HeaderValue::from_bytes(data) {
        agree(ENDPOINT_LOAD_METRICS, value.clone());
        agree(ENDPOINT_LOAD_METRICS_BIN, value);
    }
});
