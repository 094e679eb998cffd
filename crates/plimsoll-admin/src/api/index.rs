//! The pages of the admin API: one table for routing, for the index at `/`, and for the answer to an
//! unknown path.

use std::fmt::Write as _;

use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, patch, post, put};
use serde::Serialize;

use super::answer::Form;
use super::{Shared, backends, live, overrides, process, tap};
use crate::page;

/// A page.
#[derive(Serialize)]
pub(super) struct Page {
    /// The method that it takes.
    method: &'static str,
    path: &'static str,
    /// What it answers with, in a line.
    summary: &'static str,
    #[serde(skip)]
    pub(super) route: fn() -> MethodRouter<Shared>,
}

impl Page {
    pub(super) const fn path(&self) -> &'static str {
        self.path
    }
}

const fn get_page(path: &'static str, summary: &'static str, route: fn() -> MethodRouter<Shared>) -> Page {
    Page { method: "GET", path, summary, route }
}

const fn post_page(path: &'static str, summary: &'static str, route: fn() -> MethodRouter<Shared>) -> Page {
    Page { method: "POST", path, summary, route }
}

const fn page(
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    route: fn() -> MethodRouter<Shared>,
) -> Page {
    Page { method, path, summary, route }
}

/// One backend.
const BACKEND: &str = "/api/v1/clusters/{name}/backends/{address}";

/// All pages.
pub(super) static PAGES: [Page; 26] = [
    get_page("/", "this index; JSON with Accept: application/json; a browser gets /live/", || get(index)),
    get_page("/healthz", "200 while the process runs", || get(async || "ok\n")),
    get_page("/readyz", "200 while it takes requests, else 503 with the reason", || get(super::ready)),
    get_page("/metrics", "all metrics, in the OpenMetrics text format", || get(super::metrics)),
    get_page("/api/v1/live", "verdict, demand, backends, customers at a glance; ?cluster=", || get(live::live)),
    get_page("/api/v1/live/stream", "the same each second, after ten minutes of history", || get(live::stream)),
    get_page("/api/v1/clusters", "all clusters: policy, backends by state, spread of load", || get(super::clusters)),
    get_page("/api/v1/clusters/{name}", "one cluster", || get(super::cluster)),
    get_page(
        "/api/v1/clusters/{name}/backends",
        "its backends; ?state=unhealthy, ?sort=utilization, ?limit=20",
        || get(backends::list),
    ),
    get_page(BACKEND, "one backend", || get(overrides::show)),
    page("PUT", BACKEND, "add or change a backend by hand; body {weight, zone, locality}, ?for=10m", || {
        put(overrides::put)
    }),
    page("PATCH", BACKEND, "weigh or drain it; body {weight, state}, ?for=10m", || patch(overrides::patch)),
    page("DELETE", BACKEND, "remove it, ?for=10m, or end all changes by hand: ?revoke", || delete(overrides::delete)),
    get_page("/api/v1/clusters/{name}/overrides", "changes of its backends by hand, and their ends", || {
        get(overrides::list)
    }),
    post_page("/api/v1/clusters/{name}/backends/{address}/drain", "send no new requests to this backend", || {
        post(super::drain)
    }),
    post_page("/api/v1/clusters/{name}/backends/{address}/undrain", "send requests to it again, after a check", || {
        post(super::undrain)
    }),
    get_page("/api/v1/batch", "listeners for batch work: queue, credit, requests at backends", || get(super::batch)),
    get_page("/api/v1/splits", "splits and mirrors of routes: verdicts on canaries, fate of copies", || {
        get(super::splits)
    }),
    get_page("/api/v1/throttling", "shedding report: verdict, customers, routes; ?window=1m, 10m, 1h or all", || {
        get(super::shedding)
    }),
    get_page("/api/v1/explain", "latest requests not served at once, and why; ?reason=, ?customer=, ?last=20", || {
        get(super::explain)
    }),
    get_page("/api/v1/explain/stream", "the same as they happen; the same filters", || get(tap::stream)),
    get_page("/api/v1/explain/{id}", "one request, by its x-request-id", || get(super::explain_one)),
    get_page("/api/v1/process", "the process: version, uptime, state, listeners, latest reload", || {
        get(process::status)
    }),
    post_page("/api/v1/process/reload", "read the configuration again; 200 once it is in force", || {
        post(process::reload)
    }),
    post_page("/api/v1/process/upgrade", "hand over to a successor; 200 once it serves", || post(process::upgrade)),
    post_page("/api/v1/process/drain", "begin to drain", || post(process::drain)),
];

#[derive(Serialize)]
struct Index {
    version: &'static str,
    pages: &'static [Page],
}

async fn index(form: Form, headers: HeaderMap) -> Response {
    if let Some(page) = page::for_browser(&headers) {
        return page.into_response();
    }
    match form {
        Form::Compact => form.json(&Index { version: env!("CARGO_PKG_VERSION"), pages: &PAGES }),
        Form::Indented => text().into_response(),
    }
}

fn text() -> String {
    let mut text = format!("plimsoll {} admin API\n\n", env!("CARGO_PKG_VERSION"));
    for Page { method, path, summary, .. } in &PAGES {
        let _ = writeln!(text, "{method:<6} {path:<52} {summary}");
    }
    text
}
