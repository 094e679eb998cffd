//! The form that a request must have on each protocol.
//!
//! On HTTP/1.1 the target is the path and the host stands in a header (RFC 9112, 3.2.1); on HTTP/2 both
//! are parts of the target (RFC 9113, 8.3.1). The host that the caller named is kept, wherever it
//! stood; a request that names none gets the backend's own.

use http::header::HOST;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Method, Request, Uri, Version};

use super::backend::Backend;

/// Puts `request` into the form of HTTP/1.1. `lent` remembers that the host is a backend's, so that
/// another backend's replaces it at a further attempt.
pub(super) fn http1<B>(request: &mut Request<B>, backend: &Backend, lent: &mut bool) {
    *request.version_mut() = Version::HTTP_11;
    if request.method() == Method::CONNECT {
        return;
    }
    let named = request.uri().authority().is_some();
    if *lent || !request.headers().contains_key(HOST) {
        let host = match request.uri().authority().filter(|_| !*lent) {
            Some(authority) => HeaderValue::from_str(host_of(authority)).ok(),
            None => None,
        };
        *lent = host.is_none();
        request.headers_mut().insert(HOST, host.unwrap_or_else(|| backend.host().clone()));
    }
    if named || request.uri().scheme().is_some() {
        let path = std::mem::take(request.uri_mut()).into_parts().path_and_query;
        *request.uri_mut() = Uri::from(path.unwrap_or(PathAndQuery::from_static("/")));
    }
}

/// Puts `request` into the form of HTTP/2. `scheme` is that of the connection: the caller's own may
/// differ.
pub(super) fn http2<B>(request: &mut Request<B>, backend: &Backend, scheme: &Scheme, lent: &mut bool) {
    *request.version_mut() = Version::HTTP_2;
    if request.method() == Method::CONNECT {
        return;
    }
    let host = request.headers_mut().remove(HOST);
    let names_user = request.uri().authority().is_some_and(|authority| authority.as_str().contains('@'));
    let uri = request.uri();
    if uri.authority().is_some() && uri.scheme() == Some(scheme) && !*lent && !names_user {
        return;
    }
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    let named = host.filter(|_| !*lent).and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let own = parts.authority.take().filter(|_| !*lent);
    let own = if names_user { own.and_then(|own| Authority::try_from(host_of(&own)).ok()) } else { own }.or(named);
    *lent = own.is_none();
    parts.authority = Some(own.unwrap_or_else(|| backend.authority().clone()));
    parts.scheme = Some(scheme.clone());
    parts.path_and_query = Some(parts.path_and_query.unwrap_or(PathAndQuery::from_static("/")));
    // Never the default: only a URI that lacks one of these three is refused.
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
}

/// The host and port of an authority, without a user's name before them: that has no place in a request.
fn host_of(authority: &Authority) -> &str {
    authority.as_str().rsplit_once('@').map_or(authority.as_str(), |(_, host)| host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::Endpoint;

    fn backend(port: u16) -> Backend {
        Backend::new(Endpoint::new(([10, 0, 0, 1], port)))
    }

    fn request(uri: &str, host: Option<&'static str>) -> Request<()> {
        let mut request = Request::new(());
        *request.uri_mut() = uri.parse().unwrap();
        if let Some(host) = host {
            request.headers_mut().insert(HOST, HeaderValue::from_static(host));
        }
        request
    }

    #[test]
    fn host_and_target_stand_where_each_protocol_wants_them() {
        // (target, host header) -> (HTTP/1.1 target, host), HTTP/2 target
        for (uri, host, want1, want_host, want2) in [
            ("/a?b", Some("h.example"), "/a?b", "h.example", "http://h.example/a?b"),
            ("/a?b", None, "/a?b", "10.0.0.1:80", "http://10.0.0.1:80/a?b"),
            ("http://u@h.example:8/a", None, "/a", "h.example:8", "http://h.example:8/a"),
            ("http://h.example", None, "/", "h.example", "http://h.example/"),
            ("https://h.example/a", None, "/a", "h.example", "http://h.example/a"),
        ] {
            let mut one = request(uri, host);
            http1(&mut one, &backend(80), &mut false);
            assert_eq!((one.uri().to_string().as_str(), &one.headers()[HOST]), (want1, &want_host.parse().unwrap()));
            let mut two = request(uri, host);
            http2(&mut two, &backend(80), &Scheme::HTTP, &mut false);
            assert_eq!(two.uri().to_string(), want2, "from {uri} {host:?}");
            assert!(!two.headers().contains_key(HOST));
        }
    }

    #[test]
    fn a_lent_host_is_replaced_by_that_of_the_next_backend() {
        let (mut one, mut two, mut lent) = (request("/", None), request("/", None), false);
        http1(&mut one, &backend(80), &mut lent);
        http1(&mut one, &backend(81), &mut lent);
        assert_eq!(one.headers()[HOST], "10.0.0.1:81");
        lent = false;
        http2(&mut two, &backend(80), &Scheme::HTTPS, &mut lent);
        http2(&mut two, &backend(81), &Scheme::HTTPS, &mut lent);
        assert_eq!(two.uri().scheme(), Some(&Scheme::HTTPS));
        assert_eq!(two.uri().authority().unwrap(), "10.0.0.1:81");
    }

    #[test]
    fn the_callers_host_is_kept_at_every_backend() {
        let (mut one, mut lent) = (request("http://h.example/", None), false);
        http1(&mut one, &backend(80), &mut lent);
        http1(&mut one, &backend(81), &mut lent);
        assert_eq!(one.headers()[HOST], "h.example");
    }
}
