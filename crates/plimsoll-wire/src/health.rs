//! `grpc.health.v1`, the standard health service: its two messages and its paths.
//!
//! Written out by hand instead of generated, because there are three fields in all and a build
//! without `protoc` is worth more. Source: `grpc/health/v1/health.proto`.

/// Path of the unary call that answers once.
pub const CHECK_PATH: &str = "/grpc.health.v1.Health/Check";

/// Path of the streaming call that answers now and at every change.
pub const WATCH_PATH: &str = "/grpc.health.v1.Health/Watch";

/// Asks after one service, or after the server as a whole.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HealthCheckRequest {
    /// Full name of the service; empty for the server as a whole.
    #[prost(string, tag = "1")]
    pub service: String,
}

/// The answer.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct HealthCheckResponse {
    /// A [`ServingStatus`]; a number that the enum does not have counts as unknown.
    #[prost(enumeration = "ServingStatus", tag = "1")]
    pub status: i32,
}

impl HealthCheckResponse {
    /// The answer with this status.
    #[must_use]
    pub fn of(status: ServingStatus) -> Self {
        Self { status: status as i32 }
    }
}

/// The health of a server or service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ServingStatus {
    /// Not stated.
    Unknown = 0,
    /// Ready for requests.
    Serving = 1,
    /// Send requests elsewhere: starting, lame duck, or unhealthy.
    NotServing = 2,
    /// Only in answers of `Watch`: the server does not know the service.
    ServiceUnknown = 3,
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    #[test]
    fn messages_match_the_published_bytes() {
        let request = HealthCheckRequest { service: "a.B".into() };
        assert_eq!(request.encode_to_vec(), b"\x0a\x03a.B");
        assert_eq!(HealthCheckResponse::of(ServingStatus::Serving).encode_to_vec(), b"\x08\x01");
        assert_eq!(HealthCheckResponse::of(ServingStatus::NotServing).encode_to_vec(), b"\x08\x02");
        assert_eq!(HealthCheckRequest::default().encode_to_vec(), b"");
    }

    #[test]
    fn status_from_the_future_counts_as_unknown() {
        let response = HealthCheckResponse::decode(&b"\x08\x63"[..]).unwrap();
        assert_eq!(response.status(), ServingStatus::Unknown);
    }
}
