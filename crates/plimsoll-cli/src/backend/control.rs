//! `/control`: the settings of a running backend, to be read and changed.
//!
//! Whoever reaches it can make the backend useless, so it answers only to this machine: the backend
//! must listen on a loopback address, which no other machine can reach, and the request must not have
//! come through a proxy. It shares the listener with the traffic since synthetic backends are started
//! by the dozen, and a second port for each would double what a test has to keep track of.

use http::header::{FORWARDED, VIA};
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;

use super::body::AnswerBody;
use super::service::{Backend, json};

const PATH: &str = "/control";
/// Bytes of a change: far more than all settings together.
const MAX_CHANGE: usize = 64 * 1024;
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Whether a request with this path is for this endpoint.
pub(crate) fn is_meant(path: &str) -> bool {
    path == PATH
}

/// Shows the settings on GET, changes them on POST, PUT and PATCH.
pub(crate) async fn answer(backend: &Backend, request: Request<Incoming>) -> Response<AnswerBody> {
    if !backend.is_local() || is_forwarded(request.headers()) {
        return error(
            StatusCode::FORBIDDEN,
            "only a backend that listens on a loopback address can be controlled, and not through a proxy",
        );
    }
    match *request.method() {
        Method::GET | Method::HEAD => {}
        Method::POST | Method::PUT | Method::PATCH => {
            let Ok(body) = Limited::new(request.into_body(), MAX_CHANGE).collect().await else {
                return error(StatusCode::BAD_REQUEST, "the body did not arrive, or is too long");
            };
            let changed = serde_json::from_slice(&body.to_bytes())
                .map_err(|error| error.to_string())
                .and_then(|change| backend.change(change));
            if let Err(text) = changed {
                return error(StatusCode::BAD_REQUEST, &text);
            }
        }
        _ => return error(StatusCode::METHOD_NOT_ALLOWED, "GET shows the settings; POST, PUT and PATCH change them"),
    }
    let settings = serde_json::to_string(&backend.settings()).expect("settings are plain data");
    json(StatusCode::OK, settings)
}

fn is_forwarded(headers: &HeaderMap) -> bool {
    [FORWARDED, VIA, X_FORWARDED_FOR].iter().any(|name| headers.contains_key(name))
}

fn error(status: StatusCode, text: &str) -> Response<AnswerBody> {
    json(status, serde_json::json!({ "error": text }).to_string())
}
