//! Answers that send a client to another URL.
//!
//! `Location` is always an absolute URL: of a relative one that begins with `//`, clients read a
//! host. Each part that the route does not set is the request's own:
//!
//! - the scheme of the connection, or that of `X-Forwarded-Proto` from a trusted proxy;
//! - the host, if it has characters of names and addresses only; else the request is refused;
//! - the port, unless the route sets the scheme: then it is that of the scheme, left out (as in the
//!   Kubernetes Gateway API);
//! - path and query, as they were sent.
//!
//! A URL that is the request's own is refused (`redirect-loop`): the client would come again until
//! it gives up. `check` finds the loops that are certain.
//!
//! gRPC has no redirects. A call gets `UNIMPLEMENTED`, which is never retried, with the URL in its
//! message.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION};
use http::{Response, StatusCode, Uri};
use plimsoll_core::Rejection;
use plimsoll_http1::Fault;
use plimsoll_wire::grpc::{self, Code};
use plimsoll_wire::headers::{GRPC_MESSAGE, GRPC_RETRY_PUSHBACK_MS, GRPC_STATUS};

use crate::config::{self, UrlScheme};
use crate::forwarded::Marks;
use crate::peer::Peer;
use crate::reason::Refusal;
use crate::route::path_rewrite::PathRewrite;

const PLAIN: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// The scheme by which a client asked: that of its connection, unless a trusted proxy names another.
pub(crate) fn scheme(peer: &Peer, marks: &Marks, headers: &HeaderMap) -> UrlScheme {
    UrlScheme::of(marks.says_https(headers).unwrap_or(peer.tls.is_some()))
}

/// The redirect of a route.
#[derive(Clone, Debug)]
pub(crate) struct Redirect {
    scheme: Option<UrlScheme>,
    host: Option<Box<str>>,
    port: Option<u16>,
    path: Option<PathRewrite>,
    status: StatusCode,
}

impl Redirect {
    /// That of `route`, which is `redirect`.
    pub(crate) fn new(redirect: &config::Redirect, route: &config::Route) -> Self {
        Self {
            scheme: redirect.scheme,
            host: redirect.host.as_deref().map(Into::into),
            port: redirect.port,
            path: PathRewrite::new(redirect.path.as_ref(), redirect.prefix.as_ref(), route),
            status: redirect.status,
        }
    }

    /// The answer to a request for `uri`, which its client sent by `scheme` to `authority`.
    pub(crate) fn answer(
        &self,
        uri: &Uri,
        scheme: UrlScheme,
        authority: &str,
        is_grpc: bool,
    ) -> Result<Response<Bytes>, Refusal> {
        let location = self.location(uri, scheme, authority)?;
        let mut response = Response::new(Bytes::new());
        if is_grpc {
            let message = format!("the route redirects to {location}");
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, grpc::CONTENT_TYPE_GRPC);
            headers.insert(GRPC_STATUS, Code::Unimplemented.to_header_value());
            headers.insert(GRPC_MESSAGE, grpc::encode_message(&message));
            headers.insert(GRPC_RETRY_PUSHBACK_MS, HeaderValue::from_static("-1"));
            return Ok(response);
        }
        // No control characters can be in it: neither targets nor hosts have any.
        let location = HeaderValue::try_from(location).map_err(|_| Refusal::Malformed(Fault::Target))?;
        *response.status_mut() = self.status;
        response.headers_mut().insert(CONTENT_TYPE, PLAIN);
        response.headers_mut().insert(LOCATION, location);
        // The text has nothing of the request in it.
        *response.body_mut() = Bytes::from_static(b"the page is at another address, see Location\n");
        Ok(response)
    }

    fn location(&self, uri: &Uri, own_scheme: UrlScheme, authority: &str) -> Result<String, Refusal> {
        let (own_host, own_port) = parts(authority).ok_or(Refusal::Malformed(Fault::Host))?;
        let scheme = self.scheme.unwrap_or(own_scheme);
        let host = self.host.as_deref().unwrap_or(own_host);
        let port = match (self.port, self.scheme) {
            (Some(port), _) => port,
            (None, Some(scheme)) => scheme.default_port(),
            (None, None) => own_port.unwrap_or(scheme.default_port()),
        };
        let path = self.path.as_ref().map_or(uri.path().into(), |rewrite| rewrite.path(uri.path()));
        let is_same_port = port == own_port.unwrap_or(own_scheme.default_port());
        if scheme == own_scheme && host.eq_ignore_ascii_case(own_host) && is_same_port && path == uri.path() {
            return Err(Refusal::of(Rejection::RedirectLoop));
        }
        // `OPTIONS *` asks about the server as a whole, which has no path in a URL.
        let path = if path.starts_with('/') { &*path } else { "/" };
        let mut location = format!("{}://{host}", scheme.name());
        if port != scheme.default_port() {
            location.push_str(&format!(":{port}"));
        }
        location.push_str(path);
        if let Some(query) = uri.query() {
            location.push('?');
            location.push_str(query);
        }
        Ok(location)
    }
}

/// The host and the port of an authority; `None` if the host has other characters than those of
/// names and addresses.
fn parts(authority: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match authority.rfind(':') {
        Some(colon) if !authority[colon..].contains(']') => (&authority[..colon], &authority[colon + 1..]),
        _ => (authority, ""),
    };
    let is_ipv6 = host.starts_with('[') && host.ends_with(']');
    let name = if is_ipv6 { &host[1..host.len() - 1] } else { host };
    let may_have = |byte: u8| match is_ipv6 {
        true => byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.'),
        false => byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'),
    };
    let port = if port.is_empty() { None } else { Some(port.parse().ok()?) };
    (!name.is_empty() && name.bytes().all(may_have)).then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::Label as _;

    /// The answer to a request; the reason if it is refused.
    fn answer(redirect: &str, prefix: &str, url: &str, is_grpc: bool) -> Result<Response<Bytes>, &'static str> {
        let text = format!(
            "[[listeners]]\naddress = \"127.0.0.1:1\"\n[[routes]]\nhost = \"a.com\"\npath_prefix = \"{prefix}\"\nredirect = {redirect}\n\
             [clusters.a]\nbackends = [\"10.0.0.1:80\"]\n"
        );
        let config = config::Config::parse("test", &text).unwrap_or_else(|error| panic!("{error}"));
        let route = &config.routes()[0];
        let redirect = Redirect::new(route.redirect.as_ref().unwrap(), route);
        let (scheme, rest) = url.split_once("://").unwrap();
        let (authority, path) = rest.split_at(rest.find('/').unwrap());
        let scheme = if scheme == "https" { UrlScheme::Https } else { UrlScheme::Http };
        redirect.answer(&path.parse().unwrap(), scheme, authority, is_grpc).map_err(Refusal::name)
    }

    /// The `Location` for a request; the reason if it is refused.
    fn location(redirect: &str, prefix: &str, url: &str) -> Result<String, &'static str> {
        let answer = answer(redirect, prefix, url, false)?;
        Ok(answer.headers()[LOCATION].to_str().unwrap().to_owned())
    }

    #[test]
    fn call_ends_with_the_url_in_its_message() {
        let answer = answer("\"https\"", "/", "http://a.com/p.S/M", true).unwrap();
        let field = |name: &str| answer.headers().get(name).map(|value| value.to_str().unwrap());
        assert_eq!((answer.status(), answer.body().len(), field("location")), (StatusCode::OK, 0, None));
        assert_eq!((field("grpc-status"), field("grpc-retry-pushback-ms")), (Some("12"), Some("-1")));
        assert_eq!(field("grpc-message"), Some("the route redirects to https://a.com/p.S/M"));
        assert_eq!(field("content-type"), Some("application/grpc"));
    }

    #[test]
    fn parts_that_are_not_set_are_those_of_the_request() {
        for (redirect, prefix, url, expected) in [
            ("\"https\"", "/", "http://a.com/x?y=/z", "https://a.com/x?y=/z"),
            ("\"https\"", "/", "http://a.com:8080/", "https://a.com/"),
            ("\"https\"", "/", "http://[::1]:80/", "https://[::1]/"),
            ("{ scheme = \"https\", port = 8443 }", "/", "http://a.com/x", "https://a.com:8443/x"),
            ("{ port = 81 }", "/", "http://a.com/x", "http://a.com:81/x"),
            ("{ host = \"www.a.com\" }", "/x", "https://a.com:8443/x", "https://www.a.com:8443/x"),
            ("{ host = \"www.a.com\" }", "/x", "https://a.com/x", "https://www.a.com/x"),
            ("{ host = \"www.a.com\", port = 443 }", "/x", "https://a.com:8443/x", "https://www.a.com/x"),
            ("{ prefix = \"/new\" }", "/old", "http://a.com/old/x?y", "http://a.com/new/x?y"),
            ("{ prefix = \"/\" }", "/old", "http://a.com/old//evil.com/x", "http://a.com/evil.com/x"),
            ("{ path = \"/new/\" }", "/old", "http://a.com/old/x?y", "http://a.com/new/?y"),
            ("\"https\"", "/", "http://a.com//evil.com/%0d%0ax", "https://a.com//evil.com/%0d%0ax"),
        ] {
            assert_eq!(location(redirect, prefix, url).as_deref(), Ok(expected), "{redirect} {url}");
        }
    }

    #[test]
    fn redirect_to_the_same_url_is_refused() {
        for (redirect, prefix, url) in [
            ("\"https\"", "/", "https://a.com/x"),
            ("\"https\"", "/", "https://a.com:443/x?y"),
            ("{ host = \"www.a.com\" }", "/x", "http://WWW.a.com/x"),
        ] {
            let found = location(redirect, prefix, url);
            assert_eq!(found, Err("redirect-loop"), "{redirect} {url}");
        }
        // Of another port it is not known that the same listener has it.
        assert_eq!(location("\"https\"", "/", "https://a.com:8443/x").as_deref(), Ok("https://a.com/x"));
    }

    #[test]
    fn strange_host_is_refused() {
        for authority in ["", ":80", "a.com;evil", "a.com'evil", "a(b)", "a$b", "[::1", "a.com:99999", "[x]"] {
            let found = location("\"https\"", "/", &format!("http://{authority}/x"));
            assert!(found.is_err(), "{authority}: {found:?}");
        }
        assert!(location("\"https\"", "/", "http://a_b.c-d.example:/x").is_ok());
    }
}
