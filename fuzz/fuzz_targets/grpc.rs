//! Framed messages, status codes and messages of gRPC.
#![no_main]

use http::HeaderValue;
use libfuzzer_sys::fuzz_target;
use plimsoll_wire::grpc::{Code, decode_message, encode_message, frame, is_grpc_content_type, unframe};
use plimsoll_wire::health::{HealthCheckRequest, HealthCheckResponse};
use plimsoll_wire::orca_service::OrcaLoadReportRequest;

fn read_back<M: prost::Message + Default + PartialEq + std::fmt::Debug>(data: &[u8]) {
    if let Some(message) = unframe::<M>(data) {
        assert_eq!(unframe::<M>(&frame(&message)).as_ref(), Some(&message));
    }
}

fuzz_target!(|data: &[u8]| {
    read_back::<HealthCheckRequest>(data);
    read_back::<HealthCheckResponse>(data);
    read_back::<OrcaLoadReportRequest>(data);
    if let Some(request) = unframe::<OrcaLoadReportRequest>(data) {
        let _ = request.interval();
    }
    let _ = is_grpc_content_type(data);
    if let Ok(value) = HeaderValue::from_bytes(data) {
        let _ = Code::from_header(&value);
        let message = decode_message(&value);
        assert_eq!(decode_message(&encode_message(&message)), message);
    }
});
