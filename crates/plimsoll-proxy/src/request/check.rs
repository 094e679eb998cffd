//! Refuses requests on HTTP/2 that would be refused on HTTP/1.
//!
//! hyper and h2 see to the protocol: framing, pseudo-fields, lengths. The rest of what
//! `plimsoll-http1` looks at they let pass, and two clients that ask for the same in two protocols
//! must not get two answers. Some of it could not even be said on HTTP/1, where a blank ends a
//! word; so it is how one would smuggle a request through a proxy that translates.

use http::header::{COOKIE, HOST, HeaderMap, HeaderValue};
use http::uri::Scheme;
use http::{Method, Request, Uri};
use plimsoll_http1::{Fault, MAX_METHOD, are_valid, has_valid_length, is_host, is_miscased};

use crate::limits::Limits;

/// Whether a request may be passed on.
pub(crate) fn check<B>(request: &Request<B>, limits: &Limits) -> Result<(), Fault> {
    if request.method().as_str().len() > MAX_METHOD {
        return Err(Fault::MethodTooLong);
    }
    if is_miscased(request.method()) {
        return Err(Fault::MethodCase);
    }
    check_target(request, limits.max_uri)?;
    check_host(request)?;
    if has_more_than(limits.max_headers, request.headers()) {
        return Err(Fault::TooManyFields);
    }
    // h2 reads the first and passes all on; a backend that speaks it might take the request for
    // malformed. An empty one it takes for zero, and any 19 digits for a number.
    if !has_valid_length(request.headers()) {
        return Err(Fault::ContentLength);
    }
    if are_valid(request.headers()) { Ok(()) } else { Err(Fault::Field) }
}

/// Whether there are more fields. The pieces of a cookie, which HTTP/2 may send one by one, go on
/// as one field, and count as one.
fn has_more_than(most: usize, headers: &HeaderMap) -> bool {
    let pieces = || headers.get_all(COOKIE).iter().count();
    headers.len() > most && headers.len() - pieces().saturating_sub(1) > most
}

fn check_target<B>(request: &Request<B>, max_uri: usize) -> Result<(), Fault> {
    let target = request.uri().path_and_query().map_or("", |target| target.as_str());
    if target.len() > max_uri {
        return Err(Fault::TargetTooLong);
    }
    let is_path = target.starts_with('/');
    let is_asterisk = target == "*" && request.method() == Method::OPTIONS;
    let is_absent = target.is_empty() && request.method() == Method::CONNECT;
    // Without `:path` and `:authority` h2 makes an empty target, which the type shows as a slash.
    let has_none = |uri: &Uri| uri.authority().is_none() && uri.clone().into_parts().path_and_query.is_none();
    let is_missing = target == "/" && has_none(request.uri());
    // h2 accepts any scheme, an empty one too.
    let is_web = request.uri().scheme().is_none_or(|scheme| *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS);
    let is_good = (is_path || is_asterisk || is_absent)
        && is_web
        && !is_missing
        && target.bytes().all(|byte| byte.is_ascii_graphic());
    if is_good { Ok(()) } else { Err(Fault::Target) }
}

/// The authority of a request lists hosts, so that it names none.
#[derive(Clone, Copy, Debug)]
struct NamesNoHost;

/// Removes the host of a request if its authority is a list of addresses.
///
/// gRPC's C core makes such an authority of a target that lists addresses. To route by one of them
/// would let clients get past a proxy that decides by the whole of it. So routes for hosts do not
/// match, and the backend is asked for by its own name, as for a client of HTTP/1.0 that names
/// none. The first must be a host, and there must be no field `host` beside.
pub(crate) fn drop_host_list<B>(request: &mut Request<B>) {
    let authority = request.uri().authority().map_or("", |authority| authority.as_str());
    let Some((first, _)) = authority.split_once(',') else { return };
    if !is_host(first.as_bytes()) || request.headers().contains_key(HOST) {
        return;
    }
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    (parts.scheme, parts.authority) = (None, None);
    *request.uri_mut() = Uri::from_parts(parts).expect("a path alone is a target");
    request.extensions_mut().insert(NamesNoHost);
}

/// Whether it names one host (RFC 9113, 8.3.1).
fn check_host<B>(request: &Request<B>) -> Result<(), Fault> {
    let authority = request.uri().authority().map(|authority| authority.as_str());
    let mut fields = request.headers().get_all(HOST).iter();
    let names_none = request.extensions().get::<NamesNoHost>().is_some();
    let is_one = match (authority, fields.next(), fields.next()) {
        (None, None, None) => names_none,
        (_, _, Some(_)) => false,
        (Some(authority), field, None) => {
            let is_same = |field: &HeaderValue| field.as_bytes().eq_ignore_ascii_case(authority.as_bytes());
            is_host(authority.as_bytes()) && field.is_none_or(is_same)
        }
        (None, Some(field), None) => is_host(field.as_bytes()),
    };
    if is_one { Ok(()) } else { Err(Fault::Host) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    fn faults(uri: &str, fields: &[(&'static str, &'static str)]) -> Option<Fault> {
        let mut request = Request::new(());
        *request.uri_mut() = uri.parse().unwrap();
        for (name, value) in fields {
            request.headers_mut().append(*name, HeaderValue::from_static(value));
        }
        let limits = Limits { max_uri: 100, max_headers: 3, ..Limits::from(&config::Listener::default()) };
        check(&request, &limits).err()
    }

    #[test]
    fn long_method_is_refused() {
        for (len, fault) in [(MAX_METHOD, None), (MAX_METHOD + 1, Some(Fault::MethodTooLong))] {
            let mut request = Request::new(());
            *request.uri_mut() = "http://a/".parse().unwrap();
            *request.method_mut() = Method::from_bytes(&b"M".repeat(len)).unwrap();
            assert_eq!(check(&request, &Limits::from(&config::Listener::default())).err(), fault, "{len}");
        }
    }

    #[test]
    fn known_method_is_refused_when_written_in_another_case() {
        for (method, fault) in [("post", Some(Fault::MethodCase)), ("POST", None), ("brew", None)] {
            let mut request = Request::new(());
            *request.uri_mut() = "http://a/".parse().unwrap();
            *request.method_mut() = Method::from_bytes(method.as_bytes()).unwrap();
            assert_eq!(check(&request, &Limits::from(&config::Listener::default())).err(), fault, "{method}");
        }
    }

    #[test]
    fn target_that_was_not_sent_is_no_slash() {
        for (path, fault) in [(None, Some(Fault::Target)), (Some("/"), None)] {
            let mut parts = http::uri::Parts::default();
            parts.path_and_query = path.map(http::uri::PathAndQuery::from_static);
            let mut request = Request::new(());
            *request.uri_mut() = parts.try_into().unwrap();
            request.headers_mut().insert(HOST, HeaderValue::from_static("a"));
            assert_eq!(check(&request, &Limits::from(&config::Listener::default())).err(), fault, "{path:?}");
        }
    }

    #[test]
    fn list_of_addresses_names_no_host() {
        let listed = |uri: &str, host: Option<&'static str>| {
            let mut request = Request::new(());
            *request.uri_mut() = uri.parse().unwrap();
            host.map(|host| request.headers_mut().insert(HOST, HeaderValue::from_static(host)));
            drop_host_list(&mut request);
            let checked = check(&request, &Limits::from(&config::Listener::default()));
            checked.map(|()| request.uri().to_string())
        };
        assert_eq!(listed("http://10.0.0.1:1,10.0.0.2;2/x?y", None), Ok("/x?y".to_owned()));
        assert_eq!(listed("http://[::1]:1,Z;;1~/", None), Ok("/".to_owned()));
        assert_eq!(listed("http://a/x", None), Ok("http://a/x".to_owned()));
        for (uri, host) in [("http://,a/", None), ("http://u@a,b/", None), ("http://a,b/", Some("a"))] {
            assert_eq!(listed(uri, host), Err(Fault::Host), "{uri}");
        }
    }

    #[test]
    fn check_refuses_requests_that_http1_refuses() {
        for (uri, fields, fault) in [
            ("http://a/x?y", &[][..], None),
            ("/x", &[("host", "a")], None),
            ("http://a/x", &[("host", "A")], None),
            ("http://a/x", &[("host", "b")], Some(Fault::Host)),
            ("http://u@a/x", &[], Some(Fault::Host)),
            ("/x", &[], Some(Fault::Host)),
            ("/x", &[("host", "a b")], Some(Fault::Host)),
            ("/x", &[("host", "a,b")], Some(Fault::Host)),
            ("/x", &[("host", "a/../b?c")], Some(Fault::Host)),
            ("/x", &[("host", "[::1]x")], Some(Fault::Host)),
            ("/x", &[("host", "")], Some(Fault::Host)),
            ("/x", &[("host", "a"), ("host", "a")], Some(Fault::Host)),
            ("http://a/\u{e4}", &[], Some(Fault::Target)),
            ("http://a/x", &[("x", " y")], Some(Fault::Field)),
            ("http://a/x", &[("x", "y ")], Some(Fault::Field)),
            ("ftp://a/x", &[], Some(Fault::Target)),
            ("HTTPS://a/x", &[], None),
            ("http://a/x", &[("content-length", "5")], None),
            ("http://a/x", &[("content-length", "5"), ("content-length", "5")], Some(Fault::ContentLength)),
            ("http://a/x", &[("content-length", "9223372036854775807")], None),
            ("http://a/x", &[("content-length", "9223372036854775808")], Some(Fault::ContentLength)),
            ("http://a/x", &[("content-length", "")], Some(Fault::ContentLength)),
            ("http://a/x", &[("a", ""), ("b", ""), ("c", ""), ("d", "")], Some(Fault::TooManyFields)),
            ("http://a/x", &[("a", ""), ("b", ""), ("cookie", "c"), ("cookie", "d"), ("cookie", "e")], None),
            (
                "http://a/x",
                &[("a", ""), ("b", ""), ("c", ""), ("cookie", "d"), ("cookie", "e")],
                Some(Fault::TooManyFields),
            ),
        ] {
            assert_eq!(faults(uri, fields), fault, "{uri} {fields:?}");
        }
        assert_eq!(faults(&format!("http://a/{}", "x".repeat(100)), &[]), Some(Fault::TargetTooLong));
    }
}
