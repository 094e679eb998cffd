//! How the admin API writes its answers.
//!
//! JSON is indented unless the request names `application/json` in `Accept`: curl and browsers name
//! other types, programs that care about bytes name this one. It ends with a newline either way, so
//! that a shell prompt begins a line of its own.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::explain::Explained;
use crate::snapshot::ClusterSnapshot;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The form in which a client reads JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Indented, for people.
    Indented,
    /// On one line, for programs.
    Compact,
}

impl<S: Send + Sync> FromRequestParts<S> for Form {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let mut accepted = parts.headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let names_json = accepted.any(|value| value.to_ascii_lowercase().contains("application/json"));
        Ok(if names_json { Self::Compact } else { Self::Indented })
    }
}

impl Form {
    /// The answer that holds this.
    ///
    /// # Panics
    /// A map of the value has keys that are no strings.
    #[must_use]
    pub fn json(self, value: &impl Serialize) -> Response {
        let written = match self {
            Self::Indented => serde_json::to_string_pretty(value),
            Self::Compact => serde_json::to_string(value),
        };
        let text = written.expect("views have only string keys, and no number in them is refused") + "\n";
        ([(CONTENT_TYPE, JSON)], text).into_response()
    }
}

/// An error, and what to do about it.
#[derive(Debug, Serialize)]
pub struct Problem {
    #[serde(skip)]
    status: StatusCode,
    error: String,
    help: String,
    /// The earlier name of `help`.
    mend: String,
}

impl Problem {
    /// A problem that is answered with this status.
    #[must_use]
    pub fn new(status: StatusCode, error: impl Into<String>, help: impl Into<String>) -> Self {
        let help = help.into();
        Self { status, error: error.into(), mend: help.clone(), help }
    }

    pub(super) fn no_cluster(name: &str, clusters: &[ClusterSnapshot]) -> Self {
        let names: Vec<&str> = clusters.iter().map(|cluster| &*cluster.view.summary.name).collect();
        let error = format!("there is no cluster {name:?}");
        Self::new(StatusCode::NOT_FOUND, error, format!("use one of: {}", names.join(", ")))
    }

    pub(super) fn no_request(id: &str, explained: &Explained) -> Self {
        let error = format!("no request with the id {id:?} is remembered");
        let reach = explained.remembered.iter().filter_map(|kind| {
            let back = kind.reaches_back_s?;
            Some(format!("{} {} (back to {back:.0} s ago)", kind.requests, kind.outcome))
        });
        let reach: Vec<String> = reach.collect();
        let help = if reach.is_empty() {
            "no request is remembered yet; see [explain] in the configuration if that surprises you".to_owned()
        } else {
            format!(
                "remembered: {}; of requests served at once only a sample is kept: raise entries or sample in [explain], \
                 or look in the access log",
                reach.join(", ")
            )
        };
        Self::new(StatusCode::NOT_FOUND, error, help)
    }

    pub(super) fn no_backend(address: &str, cluster: &ClusterSnapshot) -> Self {
        let addresses: Vec<String> = cluster.view.backends.iter().map(|each| each.backend.label().to_owned()).collect();
        let error = format!("there is no backend {address:?} in cluster {:?}", cluster.view.summary.name);
        Self::new(StatusCode::NOT_FOUND, error, format!("use one of: {}", addresses.join(", ")))
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        (self.status, Form::Indented.json(&self)).into_response()
    }
}
