//! Answers without service, with the same junk in every header that tells of them.
#![no_main]

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use libfuzzer_sys::fuzz_target;
use plimsoll_wire::shed::Shed;

const NAMES: [&str; 6] = [
    "x-plimsoll-shed",
    "retry-after",
    "grpc-retry-pushback-ms",
    "grpc-status",
    "x-envoy-ratelimited",
    "x-envoy-overloaded",
];

fuzz_target!(|data: &[u8]| {
    let Some((&[which, status], data)) = data.split_first_chunk::<2>() else { return };
    let Ok(value) = HeaderValue::from_bytes(data) else { return };
    let present = NAMES.iter().enumerate().filter(|(index, _)| which >> index & 1 == 1);
    let headers: HeaderMap = present.map(|(_, name)| (HeaderName::from_static(name), value.clone())).collect();
    let status = StatusCode::from_u16(400 + u16::from(status)).expect("from 100 to 999");
    let _ = Shed::read(status, &headers);
    if headers.is_empty() {
        assert_eq!(Shed::read(status, &headers), None);
    }
});
