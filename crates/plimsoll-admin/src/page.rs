//! The live page: files that are part of the program, below [`PATH`].
//!
//! They come with a policy that lets the page load scripts and styles from here alone, and talk to this
//! address alone. So a name that a stranger chose, shown on the page, can do nothing there.

use axum::Router;
use axum::extract::Path;
use axum::http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::get;

use crate::api::answer::Problem;

/// The folder of the page.
pub const PATH: &str = "/live/";

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";
const TEXT: &str = "text/plain; charset=utf-8";

/// A file: its path, its type and its content.
type File = (&'static str, &'static str, &'static [u8]);

macro_rules! files {
    ($($path:literal: $kind:ident),* $(,)?) => {
        [$(($path, $kind, include_bytes!(concat!("page/", $path)))),*]
    };
}

/// All files of the page.
static FILES: &[File] = &files![
    "index.html": HTML,
    "page.css": CSS,
    "icon.svg": SVG,
    "backends.js": SCRIPT,
    "canary.js": SCRIPT,
    "changes.js": SCRIPT,
    "chart.js": SCRIPT,
    "confirm.js": SCRIPT,
    "customers.js": SCRIPT,
    "demand.js": SCRIPT,
    "dom.js": SCRIPT,
    "explain.js": SCRIPT,
    "format.js": SCRIPT,
    "history.js": SCRIPT,
    "main.js": SCRIPT,
    "proxies.js": SCRIPT,
    "quota.js": SCRIPT,
    "stream.js": SCRIPT,
    "theme.js": SCRIPT,
    "traffic.js": SCRIPT,
    "verdict.js": SCRIPT,
    "words.js": SCRIPT,
    "vendor/uPlot.iife.min.js": SCRIPT,
    "vendor/uPlot.min.css": CSS,
    "vendor/LICENSE": TEXT,
];

/// The page, for the API of any process.
pub fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let index = async || file(Path("index.html".to_owned())).await;
    Router::new()
        .route("/live", get(async || Redirect::permanent(PATH)))
        .route(PATH, get(index))
        .route("/live/{*path}", get(file))
}

/// Where a browser that asks for the index is sent; `None` for other clients.
pub fn for_browser(headers: &HeaderMap) -> Option<Redirect> {
    let accepts = headers.get(ACCEPT)?.to_str().ok()?;
    accepts.contains("text/html").then(|| Redirect::temporary(PATH))
}

async fn file(Path(path): Path<String>) -> Response {
    let Some((_, kind, content)) = FILES.iter().find(|(known, ..)| *known == path) else {
        let error = format!("the live page has no file {path:?}");
        return Problem::new(StatusCode::NOT_FOUND, error, format!("the page is at {PATH}")).into_response();
    };
    let headers = [
        (CONTENT_TYPE, *kind),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        // Another version of the program has other files.
        (CACHE_CONTROL, "no-cache"),
    ];
    (headers, *content).into_response()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path as FilePath;

    use axum::body::Body;
    use axum::http::Request;
    use http_body_util::BodyExt as _;
    use tower::ServiceExt as _;

    use super::*;

    async fn fetch(path: &str) -> Response {
        router::<()>().with_state(()).oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap()
    }

    #[test]
    fn every_file_of_the_folder_is_served() {
        let folder = FilePath::new(env!("CARGO_MANIFEST_DIR")).join("src/page");
        let names = |folder: &FilePath, prefix: &str| -> Vec<String> {
            let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
            let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
            files.map(|entry| format!("{prefix}{}", entry.file_name().to_str().unwrap())).collect()
        };
        let present: BTreeSet<String> =
            names(&folder, "").into_iter().chain(names(&folder.join("vendor"), "vendor/")).collect();
        assert_eq!(present, FILES.iter().map(|(path, ..)| (*path).to_owned()).collect());
    }

    #[tokio::test]
    async fn page_loads_from_its_own_address_only() {
        let response = fetch("/live/").await;
        assert_eq!(response.headers()["content-type"], HTML);
        assert_eq!(response.headers()["content-security-policy"], POLICY);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert!(!text.contains("http://") && !text.contains("https://"), "{text}");
        assert_eq!(fetch("/live").await.headers()["location"], "/live/");
        assert_eq!(fetch("/live/vendor/uPlot.min.css").await.headers()["content-type"], CSS);
        assert_eq!(fetch("/live/../lib.rs").await.status(), 404);
        assert_eq!(fetch("/live/no.js").await.status(), 404);
    }
}
