//! What a request of a split tells the comparison: recorded once, when the request has ended.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Response};
use plimsoll_core::canary::{Cost, FinishedRequest, RequestEnd};
use plimsoll_wire::grpc::{self, Code};
use plimsoll_wire::orca;

use super::LiveSplit;

/// A request that got a response, or an error. It is recorded when this is dropped: the trailers of
/// a call may still say that it failed, and what it cost.
pub(crate) struct Fact {
    split: Arc<LiveSplit>,
    side: usize,
    request: FinishedRequest,
    /// Its client set a deadline.
    has_deadline: bool,
}

impl Fact {
    /// A request without a response.
    pub(crate) fn ended(split: &Arc<LiveSplit>, side: usize, latency: Duration, end: RequestEnd) -> Self {
        let request = FinishedRequest { end, latency, cost: None };
        Self { split: Arc::clone(split), side, request, has_deadline: false }
    }

    /// A request with this response.
    pub(crate) fn answered<B>(
        split: &Arc<LiveSplit>,
        side: usize,
        latency: Duration,
        response: &Response<B>,
        has_deadline: bool,
    ) -> Self {
        let end = if response.status().is_server_error() { RequestEnd::Failed } else { RequestEnd::Answered };
        let mut fact = Self::ended(split, side, latency, end);
        fact.has_deadline = has_deadline;
        fact.hear(response.headers());
        fact
    }

    /// The headers of the response, or its trailers. The last cost counts: only the trailers of a
    /// call know the whole.
    pub(crate) fn hear(&mut self, fields: &HeaderMap) {
        if let Some(cost) = cost(fields) {
            self.request.cost = Some(cost);
        }
        let code = Code::read(fields).filter(|_| is_of_call(fields));
        if let Some(end) = code.and_then(|code| end_by(code, self.has_deadline, fields)) {
            self.request.end = end;
        }
    }

    /// The body of the response broke off.
    pub(crate) fn broke(&mut self) {
        self.request.end = RequestEnd::Failed;
    }
}

/// The end of a call with this status in these fields, if it did not succeed.
fn end_by(code: Code, has_deadline: bool, fields: &HeaderMap) -> Option<RequestEnd> {
    match code {
        // The deadline is the client's: the backend was not quicker, and that is all. In trailers, the
        // head of the response came in time.
        Code::DeadlineExceeded if has_deadline => {
            fields.contains_key(http::header::CONTENT_TYPE).then_some(RequestEnd::Abandoned)
        }
        code => code.is_failure().then_some(RequestEnd::Failed),
    }
}

/// Whether a status of gRPC is meant: in trailers, which have no content type, or in the head of a
/// call that ends with it.
fn is_of_call(fields: &HeaderMap) -> bool {
    !fields.contains_key(http::header::CONTENT_TYPE) || grpc::is_grpc(fields)
}

/// The CPU of a request, by a load report.
fn cost(fields: &HeaderMap) -> Option<Cost> {
    if let Some(cpu) = orca::request_cpu(fields) {
        return Some(Cost::Measured(cpu));
    }
    let report = orca::read_load(fields)?.ok()?;
    let utilization = report.utilization()?;
    (report.qps > 0.0).then(|| Cost::Mean(utilization / report.qps))
}

impl Drop for Fact {
    fn drop(&mut self) {
        self.split.record(self.side, &self.request);
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn fields(fields: &[(&'static str, &str)]) -> HeaderMap {
        fields.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_str(value).unwrap())).collect()
    }

    #[test]
    fn cost_is_that_of_the_request_before_the_mean_of_the_backend() {
        let report = |text: &str| cost(&fields(&[("endpoint-load-metrics", text)]));
        assert_eq!(
            report("TEXT request_cost.cpu=0.002,cpu_utilization=0.5,rps_fractional=100"),
            Some(Cost::Measured(0.002))
        );
        assert_eq!(report("TEXT cpu_utilization=0.5,rps_fractional=100"), Some(Cost::Mean(0.005)));
        assert_eq!(report("TEXT cpu_utilization=0.5"), None);
        assert_eq!(report("TEXT rps_fractional=5"), None);
        assert_eq!(cost(&HeaderMap::new()), None);
    }

    #[test]
    fn status_of_a_call_counts_and_that_of_a_page_does_not() {
        let failed = [("grpc-status", "14")];
        assert!(is_of_call(&fields(&failed)));
        assert!(is_of_call(&fields(&[failed[0], ("content-type", "application/grpc+proto")])));
        assert!(!is_of_call(&fields(&[failed[0], ("content-type", "text/html")])));
    }

    #[test]
    fn deadline_of_a_client_is_no_failure_of_a_call() {
        let (head, trailers) = (fields(&[("content-type", "application/grpc")]), HeaderMap::new());
        let late = |has_deadline, fields| end_by(Code::DeadlineExceeded, has_deadline, fields);
        assert_eq!(late(true, &head), Some(RequestEnd::Abandoned));
        assert_eq!(late(true, &trailers), None, "the head came before the deadline");
        assert_eq!(late(false, &head), Some(RequestEnd::Failed));
        assert_eq!(end_by(Code::Internal, true, &trailers), Some(RequestEnd::Failed));
        assert_eq!(end_by(Code::Ok, true, &trailers), None);
    }
}
