//! The trace of a request, with junk in its fields, split over two of each.
#![no_main]

use http::{HeaderMap, HeaderValue};
use libfuzzer_sys::fuzz_target;
use plimsoll_wire::headers::{TRACEPARENT, TRACESTATE};
use plimsoll_wire::trace_context;

fuzz_target!(|data: &[u8]| {
    let mut headers = HeaderMap::new();
    for (name, part) in [TRACEPARENT, TRACESTATE, TRACESTATE].into_iter().zip(data.splitn(3, |byte| *byte == 0)) {
        let Ok(value) = HeaderValue::from_bytes(part) else { return };
        headers.append(name, value);
    }
    if let Ok(Some(context)) = trace_context::read(&headers) {
        let mut again = HeaderMap::new();
        trace_context::write(&mut again, context);
        assert_eq!(trace_context::read(&again), Ok(Some(context)));
    }
    if let Some(state) = trace_context::state(&headers) {
        assert!(state.len() <= 512 && !state.is_empty());
    }
});
