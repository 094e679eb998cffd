//! Another path in place of the one that a route matches, for its backends or in a redirect.
//!
//! A whole path takes the place of any. A prefix takes the place of the matched one; the rest is
//! kept as it was sent, as long as all servers read it below the prefix. Otherwise the rest is that
//! of the normal form ([`crate::config`]'s `path`): if the prefix is spelt in another way
//! (`//%61pi/x`), if the path is ambiguous, or if it has `..`. A backend that resolves
//! `/v2/x/../../admin` would leave `/v2`. So `/api/x/../y` goes on as `/v2/y`.
//!
//! Below `/` the rest begins with one slash: `//host/x` is another host to some readers. The query
//! stays. `*`, the target of `OPTIONS` for a server as a whole, is no path and stays, too.

use std::borrow::Cow;

use http::uri::PathAndQuery;
use http::{Request, Uri};
use plimsoll_http1::Fault;

use crate::config::{self, ExactPath, PathPrefix, normalise};
use crate::reason::Refusal;

/// Another path.
#[derive(Clone, Debug)]
pub(crate) enum PathRewrite {
    /// This one.
    Whole(Box<str>),
    /// One with this prefix in place of the matched one.
    Prefix { matched: Box<str>, by: Box<str> },
}

impl PathRewrite {
    /// One of these two, if there is one, for a path that `route` matches.
    pub(crate) fn new(whole: Option<&ExactPath>, prefix: Option<&PathPrefix>, route: &config::Route) -> Option<Self> {
        let whole = whole.map(|path| Self::Whole(path.as_str().into()));
        whole.or_else(|| Some(Self::Prefix { matched: route.path_prefix.as_str().into(), by: prefix?.as_str().into() }))
    }

    /// The path in place of `path`.
    pub(crate) fn path<'p>(&'p self, path: &'p str) -> Cow<'p, str> {
        match self {
            _ if !path.starts_with('/') => Cow::Borrowed(path),
            Self::Whole(whole) => Cow::Borrowed(whole),
            Self::Prefix { matched, by } => {
                let rest = rest(path, matched);
                Cow::Owned(match (&**by, &*rest) {
                    ("", rest) => format!("/{}", rest.trim_start_matches('/')),
                    (by, rest) => format!("{by}{rest}"),
                })
            }
        }
    }

    /// Gives a request that path.
    pub(crate) fn apply<B>(&self, request: &mut Request<B>) -> Result<(), Refusal> {
        let uri = request.uri();
        let path = self.path(uri.path());
        if path == uri.path() {
            return Ok(());
        }
        let target = match uri.query() {
            Some(query) => format!("{path}?{query}"),
            None => path.into_owned(),
        };
        // The type takes targets below 64 KiB.
        let too_long = |_| Refusal::Malformed(Fault::TargetTooLong);
        let target = PathAndQuery::from_maybe_shared(target.into_bytes()).map_err(too_long)?;
        let mut parts = std::mem::take(request.uri_mut()).into_parts();
        parts.path_and_query = Some(target);
        *request.uri_mut() = Uri::from_parts(parts).expect("one path in place of another changes no form");
        Ok(())
    }
}

/// The part of `path` behind the prefix `matched`, empty or with a slash in front.
fn rest<'p>(path: &'p str, matched: &str) -> Cow<'p, str> {
    let normal = normalise(path);
    let has_one_reading = !normal.is_ambiguous && normal.unresolved.is_none();
    match path.strip_prefix(matched) {
        Some(rest) if has_one_reading && (rest.is_empty() || rest.starts_with('/')) => Cow::Borrowed(rest),
        _ => Cow::Owned(normal.text.get(matched.len()..).unwrap_or_default().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn prefix(matched: &str, by: &str) -> PathRewrite {
        let text = |path: &str| PathPrefix::parse_text(path).unwrap().as_str().into();
        PathRewrite::Prefix { matched: text(matched), by: text(by) }
    }

    #[test]
    fn rest_behind_a_prefix_is_kept_as_it_was_sent() {
        for (matched, by, path, rewritten) in [
            ("/api", "/v2", "/api", "/v2"),
            ("/api", "/v2", "/api/", "/v2/"),
            ("/api", "/v2", "/api/x;a=b//y/%7e%c3%a9/./z/", "/v2/x;a=b//y/%7e%c3%a9/./z/"),
            ("/api", "/", "/api", "/"),
            ("/api", "/", "/api/", "/"),
            ("/api", "/", "/api/x", "/x"),
            ("/", "/v2", "/", "/v2/"),
            ("/", "/v2", "/x", "/v2/x"),
            ("/", "/", "/x", "/x"),
            ("/api", "/v2", "*", "*"),
        ] {
            assert_eq!(prefix(matched, by).path(path), rewritten, "{matched} {by} {path}");
        }
    }

    #[test]
    fn rest_is_in_normal_form_when_servers_could_leave_the_prefix() {
        for (path, rewritten) in [
            ("//api/x", "/v2/x"),
            ("/%61pi/x", "/v2/x"),
            ("/api;a/x", "/v2/x"),
            ("/y/../api/x", "/v2/x"),
            ("/api/x/../y", "/v2/y"),
            ("/api/x/../../api/y", "/v2/y"),
            ("/api/..;/api/x", "/v2/x"),
            ("/api/%2e%2e/api/x", "/v2/x"),
            ("/api/x%2fy", "/v2/x%2Fy"),
        ] {
            assert_eq!(prefix("/api", "/v2").path(path), rewritten, "{path}");
        }
        for path in ["/api//evil.example/x", "//api///evil.example/x"] {
            let rewritten = prefix("/api", "/").path(path).into_owned();
            assert_eq!(rewritten, "/evil.example/x", "{path}");
        }
    }

    #[test]
    fn request_keeps_its_query_its_host_and_its_form() {
        for (uri, rewritten) in [
            ("/api/x?a=/api&b", "/v2/x?a=/api&b"),
            ("http://a.b:81/api/x?", "http://a.b:81/v2/x?"),
            ("/api?x", "/v2?x"),
            ("*", "*"),
        ] {
            let mut request = Request::new(());
            *request.uri_mut() = uri.parse().unwrap();
            prefix("/api", "/v2").apply(&mut request).unwrap();
            assert_eq!(request.uri().to_string(), rewritten);
        }
        let mut request = Request::new(());
        *request.uri_mut() = "/api/x?a".parse().unwrap();
        PathRewrite::Whole("/index.html".into()).apply(&mut request).unwrap();
        assert_eq!(request.uri(), "/index.html?a");
        *request.uri_mut() = format!("/api/{}", "x".repeat(65_520)).parse().unwrap();
        let refused = prefix("/api", &format!("/{}", "y".repeat(100))).apply(&mut request);
        assert_eq!(refused, Err(Refusal::Malformed(Fault::TargetTooLong)));
    }

    fn pieces() -> impl Strategy<Value = String> {
        let piece =
            prop_oneof![Just("/"), Just("."), Just(".."), Just(";"), Just("%2e"), Just("api"), Just("a"), Just("%61"),];
        prop::collection::vec(piece, 0..12).prop_map(|pieces| format!("/{}", pieces.concat()))
    }

    proptest! {
        /// A backend that resolves a path stays below the new prefix, and so does one that leaves
        /// `..` in place.
        #[test]
        fn rewritten_path_is_below_the_new_prefix(tail in pieces()) {
            let path = format!("/api{tail}");
            let sent = normalise(&path);
            let is_matched = |text: &str| text == "/api" || text.starts_with("/api/");
            if sent.is_ambiguous || !is_matched(&sent.text) {
                return Ok(());
            }
            let rewritten = prefix("/api", "/v2").path(&path).into_owned();
            let normal = normalise(&rewritten);
            prop_assert!(!normal.is_ambiguous && normal.unresolved.is_none(), "{} {}", path, rewritten);
            prop_assert!(normal.text == "/v2" || normal.text.starts_with("/v2/"), "{} {}", path, rewritten);
            prop_assert_eq!(&normal.text[3..], &sent.text[4..]);
            let root = prefix("/api", "/").path(&path).into_owned();
            prop_assert!(root.starts_with('/') && !root.starts_with("//"), "{} {}", path, root);
        }
    }
}
