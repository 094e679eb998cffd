//! `xds.service.orca.v3.OpenRcaService`, load reports out of band: its request and its path.
//!
//! The client asks once and gets an [`OrcaLoadReport`](crate::orca::OrcaLoadReport) every
//! `report_interval`; the server may send more rarely than asked. Source: gRFC A51.

use std::time::Duration;

/// Path of the server-streaming call.
pub const STREAM_CORE_METRICS_PATH: &str = "/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics";

/// The request for a stream of load reports.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct OrcaLoadReportRequest {
    /// Time between reports; the server chooses when absent.
    #[prost(message, optional, tag = "1")]
    pub report_interval: Option<ProtoDuration>,
    /// Names of the request costs that the client wants; empty for all.
    #[prost(string, repeated, tag = "2")]
    pub request_cost_names: Vec<String>,
}

impl OrcaLoadReportRequest {
    /// Asks for a report every `interval`.
    #[must_use]
    pub fn every(interval: Duration) -> Self {
        Self { report_interval: Some(interval.into()), request_cost_names: Vec::new() }
    }

    /// The requested interval. `None` when there is none, or when it is negative.
    #[must_use]
    pub fn interval(&self) -> Option<Duration> {
        let asked = self.report_interval?;
        Some(Duration::new(
            u64::try_from(asked.seconds).ok()?,
            u32::try_from(asked.nanos).ok().filter(|n| *n < 1_000_000_000)?,
        ))
    }
}

/// `google.protobuf.Duration`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ProtoDuration {
    /// Whole seconds.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// The rest, in nanoseconds, with the sign of `seconds`.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

impl From<Duration> for ProtoDuration {
    fn from(duration: Duration) -> Self {
        Self {
            seconds: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
            nanos: i32::try_from(duration.subsec_nanos()).expect("below one billion"),
        }
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    #[test]
    fn request_matches_the_published_bytes() {
        let request = OrcaLoadReportRequest::every(Duration::from_millis(1_500));
        assert_eq!(request.encode_to_vec(), b"\x0a\x08\x08\x01\x10\x80\xca\xb5\xee\x01");
        assert_eq!(request.interval(), Some(Duration::from_millis(1_500)));
    }

    #[test]
    fn negative_or_overflowing_intervals_are_as_good_as_none() {
        for (seconds, nanos) in [(-1, 0), (0, -1), (0, 1_000_000_000), (i64::MIN, i32::MIN)] {
            let request = OrcaLoadReportRequest {
                report_interval: Some(ProtoDuration { seconds, nanos }),
                ..OrcaLoadReportRequest::default()
            };
            assert_eq!(request.interval(), None, "{seconds} {nanos}");
        }
    }
}
