//! The load reports of a cluster's backends: the request for them, and their utilization.
//!
//! Inference servers report their load only to clients that ask, by a header of the request, and
//! under names of their own. A cluster without these settings pays one load of a flag with each
//! request and each response.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use http::{HeaderMap, HeaderValue};
use parking_lot::RwLock;
use plimsoll_core::LoadReport;
use plimsoll_wire::headers::ENDPOINT_LOAD_METRICS_FORMAT;
use plimsoll_wire::orca::{self, Malformed, UtilizationMetric};

/// The load reports of a cluster's backends.
#[derive(Clone, Debug, Default, PartialEq)]
#[doc(alias("ORCA", "backend metrics"))]
#[non_exhaustive]
pub struct LoadReports {
    /// The format to request with each request and HTTP check, in `endpoint-load-metrics-format`;
    /// `None`: reports come unasked.
    pub request: Option<ReportFormat>,
    /// The metrics that are the utilization: the largest one in a report counts (gRFC A114). A
    /// report with none of them, and every report if the list is empty, has its usual utilization.
    pub utilization: Arc<[UtilizationMetric]>,
}

/// A format of load reports that servers send on request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReportFormat {
    /// `TEXT key=value, …`: the shortest.
    Text,
    /// `JSON {…}`.
    Json,
}

impl ReportFormat {
    /// Requests a report in this format with the response to a request.
    pub(crate) fn request(self, headers: &mut HeaderMap) {
        let name = match self {
            Self::Text => "text",
            Self::Json => "json",
        };
        headers.insert(ENDPOINT_LOAD_METRICS_FORMAT, HeaderValue::from_static(name));
    }
}

const UNASKED: u8 = 0;
const TEXT: u8 = 1;
const JSON: u8 = 2;

/// The settings in force, for requests on all threads.
pub(crate) struct ReportReader {
    format: AtomicU8,
    has_metrics: AtomicBool,
    metrics: RwLock<Arc<[UtilizationMetric]>>,
}

impl ReportReader {
    pub(crate) fn new(settings: &LoadReports) -> Self {
        let reader = Self {
            format: AtomicU8::new(UNASKED),
            has_metrics: AtomicBool::new(false),
            metrics: RwLock::new(Arc::from([])),
        };
        reader.set(settings);
        reader
    }

    /// Replaces the settings.
    pub(crate) fn set(&self, settings: &LoadReports) {
        let format = match settings.request {
            None => UNASKED,
            Some(ReportFormat::Text) => TEXT,
            Some(ReportFormat::Json) => JSON,
        };
        *self.metrics.write() = settings.utilization.clone();
        self.has_metrics.store(!settings.utilization.is_empty(), Ordering::Relaxed);
        self.format.store(format, Ordering::Relaxed);
    }

    /// Requests a report with the response to a request, if the settings say so.
    pub(crate) fn request(&self, headers: &mut HeaderMap) {
        match self.format.load(Ordering::Relaxed) {
            TEXT => ReportFormat::Text.request(headers),
            JSON => ReportFormat::Json.request(headers),
            _ => {}
        }
    }

    /// The report among the headers or trailers of a response.
    pub(crate) fn read(&self, headers: &HeaderMap) -> Option<Result<LoadReport, Malformed>> {
        if !self.has_metrics.load(Ordering::Relaxed) {
            return orca::read_load(headers);
        }
        orca::read_load_by(headers, &self.metrics.read())
    }
}
