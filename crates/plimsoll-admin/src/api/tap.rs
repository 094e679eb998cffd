//! Requests as they are shed, fail or are retried: `GET /api/v1/explain/stream`.
//!
//! Requests pay nothing for a viewer: they are remembered anyway, and each viewer looks for new ones
//! four times a second. An event has at most as many as were asked for, and counts the others.

use std::time::Duration;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};

use super::answer::Problem;
use super::{Shared, wanted};
use crate::explain::Wanted;
use crate::lease::Lease;
use crate::live::{MAX_VIEWERS, event};

/// Time between two looks: a refusal is seen as it happens, and a quiet stream costs nothing.
const PERIOD: Duration = Duration::from_millis(250);
/// Looks that may find nothing before the stream says that it still is there. A viewer that has gone
/// is noticed when it is written to.
const MAX_QUIET: u32 = 4;

/// The requests as they end.
pub(crate) async fn stream(
    State(fleet): State<Shared>,
    lease: Option<Extension<Lease>>,
    asked: Result<Query<Wanted>, QueryRejection>,
) -> Result<Response, Problem> {
    let wanted = wanted(asked)?;
    let mut tap = fleet.tap().ok_or_else(|| {
        let error = "no requests are remembered: `entries` in [explain] is \"off\"";
        Problem::new(StatusCode::CONFLICT, error, "give it a number, such as 1000, and reload")
    })?;
    let mut quiet = 0;
    let look = move || {
        let tapped = tap.look(&wanted);
        quiet = if tapped.is_empty() { quiet + 1 } else { 0 };
        match quiet {
            0 => Some(event("requests", &tapped)),
            MAX_QUIET.. => {
                quiet = 0;
                Some(Bytes::from_static(b": no requests\n\n"))
            }
            _ => None,
        }
    };
    let lease = lease.map(|Extension(lease)| lease);
    let first = Bytes::from_static(b"retry: 1000\n\n");
    let body = fleet.page().viewers().poll(first, PERIOD, Box::new(look), lease).ok_or_else(|| {
        let error = format!("{MAX_VIEWERS} pages or programs watch already");
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, error, "close one of them, or ask for /api/v1/explain")
    })?;
    Ok(([(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")], body).into_response())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::body::Body;
    use axum::http::Request;
    use http_body_util::BodyExt as _;
    use serde_json::{Value, json};
    use tower::ServiceExt as _;

    use super::*;
    use crate::api::router;
    use crate::api::tests::{Still, fleet};
    use crate::explain::Explanation;

    async fn get(fleet: &Arc<Still>, path: &str) -> Response {
        let request = Request::get(path).header("host", "localhost").body(Body::empty()).unwrap();
        router(Arc::clone(fleet) as _).oneshot(request).await.unwrap()
    }

    async fn part(response: &mut Response) -> String {
        let part = response.body_mut().frame().await.expect("it goes on").unwrap().into_data().unwrap();
        String::from_utf8(part.to_vec()).unwrap()
    }

    fn requests(part: &str) -> Value {
        let data = part.strip_prefix("event: requests\ndata: ").unwrap_or_else(|| panic!("{part}"));
        serde_json::from_str(data).unwrap()
    }

    fn refused(id: &str, reason: &'static str) -> Explanation {
        Explanation { id: id.to_owned(), outcome: "refused", reason: Some(reason), ..Explanation::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn stream_tells_wanted_requests_once_and_counts_the_others() {
        let fleet = Arc::new(fleet());
        let mut response = get(&fleet, "/api/v1/explain/stream?reason=overloaded&last=2").await;
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        assert_eq!(part(&mut response).await, "retry: 1000\n\n");
        let reasons = ["overloaded", "quota", "overloaded", "overloaded"];
        fleet.tapped.lock().extend(["1", "2", "3", "4"].into_iter().zip(reasons).map(|(id, why)| refused(id, why)));
        let told = requests(&part(&mut response).await);
        let ids: Vec<&str> = told["requests"].as_array().unwrap().iter().filter_map(|of| of["id"].as_str()).collect();
        assert_eq!((ids, &told["left_out"]), (vec!["3", "4"], &json!(1)));
        let begun = tokio::time::Instant::now();
        assert_eq!(part(&mut response).await, ": no requests\n\n");
        assert_eq!(begun.elapsed(), PERIOD * MAX_QUIET);
    }

    #[tokio::test(start_paused = true)]
    async fn taps_count_as_viewers() {
        let fleet = Arc::new(fleet());
        let mut open = Vec::new();
        for _ in 0..MAX_VIEWERS {
            open.push(get(&fleet, "/api/v1/explain/stream").await);
        }
        assert_eq!(get(&fleet, "/api/v1/explain/stream").await.status(), 503);
        assert_eq!(get(&fleet, "/api/v1/live/stream").await.status(), 503);
        open.pop();
        assert_eq!(get(&fleet, "/api/v1/explain/stream").await.status(), 200);
    }

    #[tokio::test]
    async fn wrong_filters_are_refused_with_the_right_ones() {
        let fleet = Arc::new(fleet());
        for query in ["?reasons=quota", "?last=1001"] {
            let response = get(&fleet, &format!("/api/v1/explain/stream{query}")).await;
            assert_eq!(response.status(), 400, "{query}");
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert!(String::from_utf8_lossy(&body).contains("filter by outcome"), "{query}");
        }
    }
}
