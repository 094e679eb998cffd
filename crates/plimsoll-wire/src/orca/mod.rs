//! Load reports on the wire: the ORCA message and where it stands in a response.
//!
//! `xds.data.orca.v3.OrcaLoadReport` is what Envoy's client-side weighted round robin, gRPC's
//! `weighted_round_robin` and Google's load balancers read; so reports made here are read by them,
//! and theirs here. It comes in four forms:
//!
//! | where | form |
//! |---|---|
//! | header or trailer `endpoint-load-metrics-bin` | base64 of the message, padded or not |
//! | header or trailer `endpoint-load-metrics` | `TEXT cpu_utilization=0.3,named_metrics.x=1` |
//! | same | `JSON {"cpuUtilization":0.3}` |
//! | same | `BIN ` and base64 |
//!
//! The words `TEXT` and `JSON` may be missing: the Rust server of vLLM sends none. The binary header
//! wins when both stand there. A header that stands there several times, or whose
//! values were joined by commas on the way, counts by its last value: the one of the hop nearest to
//! the reader. An unknown key is ignored. A report with a number that is infinite, not a number, or
//! negative where that has no meaning is [`Malformed`] as a whole, because a balancer that believes
//! half of it would believe a broken backend. Numbers in the maps are passed on as they are.
//!
//! [`read_load`] is for the path of every response and gives only what balancing needs; [`read`]
//! gives everything. They agree on every report that [`read`] accepts.
//!
//! Ours, since nothing public exists: a backend in lame duck says so in
//! `named_metrics` under [`LAME_DUCK_METRIC`], its requests in flight under [`ACTIVE_REQUESTS_METRIC`], and
//! the latency that it expects under [`LATENCY_METRIC`]; the last two are what the policy `prequal` goes by. The speed of its
//! machine has the key [`SPEED_METRIC`], and none without a configured speed. Other readers skip unknown keys.
//!
//! Ours as well: in `request_cost`, which nobody has given names for, reference CPU-seconds stand under [`REQUEST_CPU`], and whatever else a
//! handler charges to its request under a name of its own ([`Encoded`], [`request_cpu`]).
//!
//! Sources: gRFC A51, gRFC A58, Envoy's `orca_parser.cc`.

mod base64;
mod cost;
mod fast;
mod message;
mod text;
mod utilization;

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use ::base64::Engine as _;
use ::base64::engine::general_purpose::{STANDARD, STANDARD_PAD_INDIFFERENT};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use plimsoll_core::{LoadReport, Speed};
use prost::Message as _;

pub use cost::{Encoded, request_cpu};
pub use fast::read_load;
pub use utilization::{UnknownMetric, UtilizationMetric, read_load_by};

use crate::headers::{ENDPOINT_LOAD_METRICS, ENDPOINT_LOAD_METRICS_BIN};

/// Key in `named_metrics`: above zero when the backend is a lame duck.
pub const LAME_DUCK_METRIC: &str = "plimsoll.lame_duck";

/// Key in `named_metrics`: requests in flight at the backend, from all of its clients.
pub const ACTIVE_REQUESTS_METRIC: &str = "plimsoll.active_requests";

/// Key in `named_metrics`: the latency, in seconds, that the backend expects for one more request.
pub const LATENCY_METRIC: &str = "plimsoll.latency_seconds";

/// Key in `named_metrics`: the speed of the backend's machine, relative to the reference core.
pub const SPEED_METRIC: &str = "plimsoll.speed";

/// Key in `request_cost`: the reference CPU-seconds that the request of this response has used so
/// far ([`Speed`]).
pub const REQUEST_CPU: &str = "cpu";

/// A load report with all of its fields. Utilizations are shares of what is available, 1.0 = all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OrcaLoadReport {
    /// CPU in use.
    pub cpu_utilization: f64,
    /// Memory in use.
    pub mem_utilization: f64,
    /// Requests per second as an integer. Superseded by `rps_fractional`, and read where that is
    /// absent.
    pub rps: u64,
    /// Cost of this one request, by names and units of the application.
    pub request_cost: BTreeMap<String, f64>,
    /// Further resources in use, by name.
    pub utilization: BTreeMap<String, f64>,
    /// Requests per second, all clients together.
    pub rps_fractional: f64,
    /// Failed requests per second, all clients together.
    pub eps: f64,
    /// Anything else, by name.
    pub named_metrics: BTreeMap<String, f64>,
    /// The utilization by the application's own measure.
    pub application_utilization: f64,
}

/// The reason to drop a load report. It names the place of the error, for a log.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Malformed {
    /// Not base64.
    Base64,
    /// Not an `OrcaLoadReport` message.
    Message,
    /// Neither `TEXT`, `JSON` nor `BIN`.
    Form,
    /// `TEXT` without `key=value`, or JSON that does not parse.
    Syntax,
    /// A field has a value that is not a finite number of zero or more.
    Number(&'static str),
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Base64 => f.write_str("load report is not base64"),
            Self::Message => f.write_str("load report is not an OrcaLoadReport message"),
            Self::Form => f.write_str("load report begins with neither TEXT, JSON nor BIN"),
            Self::Syntax => f.write_str("load report is not a list of keys and values"),
            Self::Number(field) => write!(f, "load report has a bad number in {field}"),
        }
    }
}

impl Error for Malformed {}

impl OrcaLoadReport {
    /// Decodes the message and checks its numbers.
    ///
    /// # Errors
    /// [`Malformed::Message`] and [`Malformed::Number`].
    pub fn from_binary(bytes: &[u8]) -> Result<Self, Malformed> {
        Self::decode(bytes).map_err(|_| Malformed::Message)?.checked()
    }

    /// Decodes base64 of the message, padded or not.
    ///
    /// # Errors
    /// [`Malformed::Base64`] and those of [`Self::from_binary`].
    pub fn from_base64(text: &[u8]) -> Result<Self, Malformed> {
        let text = last_of_list(text);
        Self::from_binary(&STANDARD_PAD_INDIFFERENT.decode(text).map_err(|_| Malformed::Base64)?)
    }

    /// Decodes the value of an `endpoint-load-metrics` header: `TEXT …`, `JSON …` or `BIN …`.
    /// Without such a word, an object is JSON, and a known key begins a text. JSON needs the feature
    /// `json`.
    ///
    /// # Errors
    /// Any [`Malformed`].
    pub fn from_text(value: &[u8]) -> Result<Self, Malformed> {
        let value = value.trim_ascii();
        if let Some(rest) = value.strip_prefix(b"TEXT ") {
            text::from_pairs(rest)?.checked()
        } else if let Some(rest) = value.strip_prefix(b"JSON ") {
            text::from_json(rest)?.checked()
        } else if let Some(rest) = value.strip_prefix(b"BIN ") {
            Self::from_base64(rest.trim_ascii())
        } else if value.starts_with(b"{") {
            text::from_json(value)?.checked()
        } else if text::begins_with_field(value) {
            text::from_pairs(value)?.checked()
        } else {
            Err(Malformed::Form)
        }
    }

    /// The value of an `endpoint-load-metrics-bin` header.
    ///
    /// Base64 *with* padding, although gRPC recommends going without: every gRPC accepts both,
    /// Envoy only this.
    #[must_use]
    pub fn to_header_value(&self) -> HeaderValue {
        let text = STANDARD.encode(self.encode_to_vec());
        HeaderValue::from_maybe_shared(Bytes::from(text)).expect("base64 has only visible ASCII")
    }

    /// Whether the backend says that it is a lame duck.
    #[must_use]
    pub fn lame_duck(&self) -> bool {
        self.named_metrics.get(LAME_DUCK_METRIC).is_some_and(|value| *value > 0.0)
    }

    fn checked(self) -> Result<Self, Malformed> {
        for (name, value) in [
            ("cpu_utilization", self.cpu_utilization),
            ("mem_utilization", self.mem_utilization),
            ("rps_fractional", self.rps_fractional),
            ("eps", self.eps),
            ("application_utilization", self.application_utilization),
        ] {
            checked(name, value)?;
        }
        Ok(self)
    }
}

fn checked(name: &'static str, value: f64) -> Result<f64, Malformed> {
    if value.is_finite() && value >= 0.0 { Ok(value) } else { Err(Malformed::Number(name)) }
}

/// What balancing reads out of a report.
impl From<&OrcaLoadReport> for LoadReport {
    fn from(report: &OrcaLoadReport) -> Self {
        Self {
            application_utilization: report.application_utilization,
            cpu_utilization: report.cpu_utilization,
            qps: qps(report.rps_fractional, report.rps),
            eps: report.eps,
            lame_duck: report.lame_duck(),
            in_flight: report.named_metrics.get(ACTIVE_REQUESTS_METRIC).and_then(|value| in_flight(*value)),
            latency: report.named_metrics.get(LATENCY_METRIC).and_then(|value| latency(*value)),
            speed: report.named_metrics.get(SPEED_METRIC).and_then(|value| Speed::new(*value)),
        }
    }
}

impl From<&LoadReport> for OrcaLoadReport {
    fn from(report: &LoadReport) -> Self {
        let mut named_metrics = BTreeMap::new();
        if report.lame_duck {
            named_metrics.insert(LAME_DUCK_METRIC.to_owned(), 1.0);
        }
        if let Some(in_flight) = report.in_flight {
            named_metrics.insert(ACTIVE_REQUESTS_METRIC.to_owned(), f64::from(in_flight));
        }
        if let Some(latency) = report.latency {
            named_metrics.insert(LATENCY_METRIC.to_owned(), latency.as_secs_f64());
        }
        if let Some(speed) = report.speed {
            named_metrics.insert(SPEED_METRIC.to_owned(), speed.as_f64());
        }
        Self {
            cpu_utilization: report.cpu_utilization,
            application_utilization: report.application_utilization,
            rps_fractional: report.qps,
            eps: report.eps,
            named_metrics,
            ..Self::default()
        }
    }
}

/// A named metric as a number of requests; what makes no sense counts as not given.
fn in_flight(value: f64) -> Option<u32> {
    (0.0..=f64::from(u32::MAX)).contains(&value).then_some(value as u32)
}

/// A named metric as a latency; what makes no sense counts as not given.
fn latency(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok()
}

fn qps(rps_fractional: f64, rps: u64) -> f64 {
    if rps_fractional > 0.0 { rps_fractional } else { rps as f64 }
}

/// The whole report of a response. `None` when there is none.
///
/// Give it the headers, or the trailers of a gRPC call.
#[must_use]
pub fn read(headers: &HeaderMap) -> Option<Result<OrcaLoadReport, Malformed>> {
    if let Some(value) = last(headers, &ENDPOINT_LOAD_METRICS_BIN) {
        return Some(OrcaLoadReport::from_base64(value.as_bytes()));
    }
    last(headers, &ENDPOINT_LOAD_METRICS).map(|value| OrcaLoadReport::from_text(value.as_bytes()))
}

/// Removes all reports from a response, so that they do not leave the fleet.
pub fn strip(headers: &mut HeaderMap) {
    // A pass over the few names costs less than hashing two.
    if headers.keys().any(|name| name.as_str().starts_with(ENDPOINT_LOAD_METRICS.as_str())) {
        headers.remove(ENDPOINT_LOAD_METRICS_BIN);
        headers.remove(ENDPOINT_LOAD_METRICS);
    }
}

fn last<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    headers.get_all(name).iter().next_back()
}

/// The last of several values that were joined by commas; base64 has none itself.
fn last_of_list(text: &[u8]) -> &[u8] {
    text.rsplit(|byte| *byte == b',').next().unwrap_or(text).trim_ascii()
}
