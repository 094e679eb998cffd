//! Whether an answer may be kept to be given again in place of errors, and for how long.
//!
//! The rules are those of RFC 9111 for shared caches and of RFC 5861 for `stale-if-error`, and
//! where they leave a choice, the one by which less is given to the wrong client:
//!
//! ```text
//! kept     200 to a GET without Authorization, that sets no cookie, varies by no *, and says none of private, no-store, no-cache;
//!          to a request with a cookie only if it says public or s-maxage; none that stood in for another itself
//! for      min(max_stale, said) − age
//! said     f                    with must-revalidate or proxy-revalidate: stale answers are forbidden
//!          f + stale-if-error   if that is there
//!          f                    with s-maxage, which implies proxy-revalidate
//!          ∞                    otherwise
//! f        s-maxage, else max-age, else 0: how long it is fresh
//! age      the field Age, else 0: how old it was when it came
//! ```
//!
//! A request's own limit on age (`no-cache`, `max-age`) asks for a backend's response, which was
//! tried; it does not ask for an error. A `Cache-Control` or `Vary` that cannot be read forbids
//! keeping: its unread part may be the `private` that
//! protects one user from another. `Expires` has no effect: where it would count, it could only
//! shorten the time left by `must-revalidate`, and that is nothing without `max-age`.

use std::time::Duration;

use http::header::{AGE, CACHE_CONTROL, COOKIE, SET_COOKIE, VARY};
use http::{HeaderMap, HeaderName, StatusCode};
use plimsoll_wire::headers::X_PLIMSOLL_DEGRADED;

/// How long an answer may be given again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Life {
    /// How old it was when it came.
    pub(super) age: Duration,
    /// For how long from then on.
    pub(super) left: Duration,
}

/// That of the answer to a GET without Authorization; `None` if it may not be kept.
pub(super) fn life(request: &HeaderMap, status: StatusCode, answer: &HeaderMap, max_stale: Duration) -> Option<Life> {
    let is_own = answer.contains_key(SET_COOKIE) || answer.contains_key(X_PLIMSOLL_DEGRADED);
    let is_readable = is_text(request, CACHE_CONTROL) && is_text(answer, CACHE_CONTROL) && names_fields(answer);
    if status != StatusCode::OK || is_own || !is_readable || Directives::read(request).no_store {
        return None;
    }
    let said = Directives::read(answer);
    if said.no_store || said.is_private || said.no_cache {
        return None;
    }
    if request.contains_key(COOKIE) && !said.is_public && said.s_maxage.is_none() {
        return None;
    }
    let age = values(answer, AGE).next().and_then(seconds).unwrap_or(Duration::ZERO);
    let left = said.limit().min(max_stale).saturating_sub(age);
    (left > Duration::ZERO).then_some(Life { age, left })
}

/// Whether all values of these fields are visible ASCII, blanks and tabs.
fn is_text(headers: &HeaderMap, name: HeaderName) -> bool {
    headers.get_all(name).iter().all(|value| value.to_str().is_ok())
}

/// Whether `Vary` is absent or a list of field names; `*` is none.
fn names_fields(answer: &HeaderMap) -> bool {
    let is_name = |member: &str| member != "*" && member.parse::<HeaderName>().is_ok();
    is_text(answer, VARY) && values(answer, VARY).all(is_name)
}

/// The request fields on which `answer` depends.
pub(super) fn vary(answer: &HeaderMap) -> impl Iterator<Item = HeaderName> {
    values(answer, VARY).filter_map(|name| name.parse().ok())
}

/// The members of `Cache-Control` that matter here.
#[derive(Debug, Default)]
struct Directives {
    no_store: bool,
    no_cache: bool,
    is_private: bool,
    is_public: bool,
    must_revalidate: bool,
    max_age: Option<Duration>,
    s_maxage: Option<Duration>,
    stale_if_error: Option<Duration>,
}

impl Directives {
    /// A directive with a list of fields (`private="set-cookie"`) counts as one without: it says
    /// less, and is hardly ever sent.
    fn read(headers: &HeaderMap) -> Self {
        let mut read = Self::default();
        for directive in values(headers, CACHE_CONTROL) {
            let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
            let value = || seconds(value.trim().trim_matches('"'));
            match name.trim().to_ascii_lowercase().as_str() {
                "no-store" => read.no_store = true,
                "no-cache" => read.no_cache = true,
                "private" => read.is_private = true,
                "public" => read.is_public = true,
                "must-revalidate" | "proxy-revalidate" => read.must_revalidate = true,
                // One that cannot be read means stale (RFC 9111, 4.2.1).
                "max-age" => read.max_age = Some(value().unwrap_or_default()),
                "s-maxage" => read.s_maxage = Some(value().unwrap_or_default()),
                "stale-if-error" => read.stale_if_error = Some(value().unwrap_or_default()),
                _ => {}
            }
        }
        read
    }

    fn limit(&self) -> Duration {
        let fresh = self.s_maxage.or(self.max_age).unwrap_or(Duration::ZERO);
        match self.stale_if_error {
            _ if self.must_revalidate => fresh,
            Some(stale) => fresh + stale,
            None if self.s_maxage.is_some() => fresh,
            None => Duration::MAX,
        }
    }
}

/// The members of a list, over all fields of this name.
fn values(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let fields = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    fields.flat_map(|value| value.split(',')).map(str::trim).filter(|member| !member.is_empty())
}

fn seconds(text: &str) -> Option<Duration> {
    // More than fits counts as the most (RFC 9111, 1.2.2).
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| Duration::from_secs(text.parse::<u32>().unwrap_or(u32::MAX).into()))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const MAX_STALE: Duration = Duration::from_secs(600);

    fn headers(text: &str) -> HeaderMap {
        let mut map = HeaderMap::new();
        for line in text.lines() {
            let (name, value) = line.split_once(": ").unwrap();
            map.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap());
        }
        map
    }

    /// Seconds for which a response is stored; 0 if it is not.
    fn kept(request: &str, answer: &str) -> u64 {
        life(&headers(request), StatusCode::OK, &headers(answer), MAX_STALE).map_or(0, |life| life.left.as_secs())
    }

    #[test]
    fn private_responses_are_not_stored() {
        for answer in [
            "cache-control: private",
            "cache-control: max-age=60, No-Store",
            "cache-control: max-age=60\ncache-control: no-cache",
            "cache-control: private=\"x-a, x-b\", max-age=60",
            "set-cookie: a=1",
            "vary: accept, *",
            "x-plimsoll-degraded: static; reason=overloaded",
        ] {
            assert_eq!(kept("", answer), 0, "{answer}");
        }
        assert_eq!(kept("cache-control: no-store", ""), 0);
        assert_eq!(kept("cache-control: no-cache", ""), 600, "a wish to see the backend asked");
        for status in [201, 204, 206, 301, 304, 404, 500] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(life(&HeaderMap::new(), status, &HeaderMap::new(), MAX_STALE), None, "{status}");
        }
    }

    #[test]
    fn response_is_not_kept_when_a_rule_about_it_cannot_be_read() {
        let with = |name: HeaderName, bytes: &[u8]| {
            let mut map = headers("cache-control: max-age=60\nvary: accept");
            map.append(name, HeaderValue::from_bytes(bytes).unwrap());
            map
        };
        let kept = |request: &HeaderMap, answer: &HeaderMap| life(request, StatusCode::OK, answer, MAX_STALE).is_some();
        let (none, plain) = (HeaderMap::new(), headers("vary: accept"));
        for bytes in [&b"private, x=\"\xe9\""[..], b"private;\x80", b"\xff"] {
            assert!(!kept(&none, &with(CACHE_CONTROL, bytes)), "{}", bytes.escape_ascii());
            assert!(!kept(&with(CACHE_CONTROL, bytes), &plain), "{}", bytes.escape_ascii());
            assert!(!kept(&none, &with(VARY, bytes)), "{}", bytes.escape_ascii());
        }
        for name in [&b"x-user\xe9"[..], b"x user", b"x-user;", b"@"] {
            assert!(!kept(&none, &with(VARY, name)), "{}", name.escape_ascii());
        }
        assert!(
            kept(&none, &with(CACHE_CONTROL, b"public\t")) && kept(&none, &with(VARY, b"x-user,")),
            "all can be read"
        );
        assert!(kept(&none, &with(AGE, b"\xe9")), "an age only shortens the time");
    }

    #[test]
    fn the_answer_to_a_request_with_a_cookie_is_kept_only_if_it_is_for_all() {
        assert_eq!(kept("cookie: session=1", ""), 0);
        assert_eq!(kept("cookie: session=1", "cache-control: max-age=60"), 0);
        assert_eq!(kept("cookie: session=1", "cache-control: public"), 600);
        assert_eq!(kept("cookie: session=1", "cache-control: s-maxage=60"), 60);
    }

    #[test]
    fn an_answer_is_kept_for_as_long_as_it_allows_and_no_longer_than_max_stale() {
        for (answer, seconds) in [
            ("", 600),
            ("cache-control: max-age=5", 600),
            ("cache-control: max-age=5, stale-if-error=30", 35),
            ("cache-control: max-age=5, stale-if-error=\"30\"", 35),
            ("cache-control: max-age=5, stale-if-error=3000", 600),
            ("cache-control: stale-if-error=0", 0),
            ("cache-control: max-age=5, must-revalidate", 5),
            ("cache-control: must-revalidate", 0),
            ("cache-control: max-age=5, stale-if-error=30, proxy-revalidate", 5),
            ("cache-control: max-age=50, s-maxage=5", 5),
            ("cache-control: s-maxage=5, stale-if-error=30", 35),
            ("cache-control: s-maxage=junk", 0),
            ("cache-control: max-age=5, must-revalidate\nage: 3", 2),
            ("cache-control: max-age=5, must-revalidate\nage: 5", 0),
            ("age: 590", 10),
            ("age: junk", 600),
            ("cache-control: s-maxage=99999999999", 600),
        ] {
            assert_eq!(kept("", answer), seconds, "{answer}");
        }
    }

    #[test]
    fn the_age_at_arrival_is_remembered() {
        let life = life(&HeaderMap::new(), StatusCode::OK, &headers("age: 100"), MAX_STALE).unwrap();
        assert_eq!(life, Life { age: Duration::from_secs(100), left: Duration::from_secs(500) });
    }
}
