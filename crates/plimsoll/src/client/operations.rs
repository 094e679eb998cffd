//! The operation of a request: its method, its host and its path, without the parts of the path
//! that name one thing.
//!
//! | request | endpoint | group |
//! |---|---|---|
//! | `GET a.example/users/123/avatar?size=2` | `GET a.example users * avatar` | `users` |
//! | `POST /search.Search/Find`, gRPC | `POST search.Search Find` | `search.Search` |
//!
//! A segment names one thing if a quarter of its characters or more are digits, as in numbers,
//! UUIDs and hashes; `v2` is no such segment. Names in words look like endpoints, so each counts as
//! one, in one group. The query and segments after the fourth do not count.
//!
//! The hash has a seed of this process, so that no stranger knows which paths collide. It need not
//! withstand more: a client that may send a request has its endpoint judged by it anyway. Why no
//! configured list of routes? Most have only the route `/`. Why not the template of the server's
//! router? It is on the other side.

use std::hash::{BuildHasher as _, Hash as _, Hasher as _};

use foldhash::quality::RandomState;
use http::Request;
use http::header::HOST;
use plimsoll_core::Operation;

/// Segments of a path that are looked at. Deeper endpoints are one.
const MAX_SEGMENTS: usize = 4;
/// Stands for a segment that names one thing. No segment has it, since it is not printable.
const ANY: &[u8] = b"\0";

/// Tells operations apart, by hashes that only this process knows.
#[derive(Debug, Default)]
pub(super) struct Operations(RandomState);

impl Operations {
    pub(super) fn of<B>(&self, request: &Request<B>) -> Operation {
        let mut endpoint = self.0.build_hasher();
        request.method().as_str().hash(&mut endpoint);
        let host = request.headers().get(HOST).map(http::HeaderValue::as_bytes);
        host.or_else(|| Some(request.uri().host()?.as_bytes())).hash(&mut endpoint);
        let mut segments = request.uri().path().as_bytes().split(|byte| *byte == b'/').filter(|part| !part.is_empty());
        let first = segments.next().map(kind_of);
        first.hash(&mut endpoint);
        for segment in segments.take(MAX_SEGMENTS - 1) {
            kind_of(segment).hash(&mut endpoint);
        }
        Operation::new(endpoint.finish(), self.0.hash_one(first))
    }
}

/// The distinguishing part of a segment.
fn kind_of(segment: &[u8]) -> &[u8] {
    let is_version = segment.len() <= 3 && segment.first() == Some(&b'v');
    let digits = segment.iter().filter(|byte| byte.is_ascii_digit()).count();
    if digits * 4 >= segment.len() && !is_version { ANY } else { segment }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, uri: &str) -> Request<()> {
        Request::builder().method(method).uri(uri).body(()).expect("a request")
    }

    #[test]
    fn paths_that_differ_in_what_they_name_are_one_operation() {
        let operations = Operations::default();
        let of = |method, uri| operations.of(&request(method, uri));
        for (one, other, is_same) in [
            ("/users/123/avatar", "/users/9/avatar?size=2", true),
            ("/users/123/avatar", "/users/123/name", false),
            ("/o/550e8400-e29b-11d4-a716-446655440000", "/o/9b2f1d60-77aa-4c1e-8d33-0a1b2c3d4e5f", true),
            ("/a/b/c/d/e", "/a/b/c/d/f", true),
            ("/a/b/c/d", "/a/b/c/e", false),
            ("//a//b", "/a/b", true),
            ("/v1/users", "/v2/users", false),
            ("/shop.v1.Cart/Add", "/shop.v2.Cart/Add", false),
            ("/oauth2/token", "/oauth1/token", false),
            ("/", "/?a", true),
            ("/", "/a", false),
            ("http://a.example/", "http://b.example/", false),
        ] {
            assert_eq!(of("GET", one) == of("GET", other), is_same, "{one} {other}");
        }
        assert_ne!(of("GET", "/a"), of("POST", "/a"));
    }

    #[test]
    fn host_field_and_authority_are_one() {
        let operations = Operations::default();
        let mut named = request("GET", "/a");
        named.headers_mut().insert(HOST, "a.example".parse().expect("a host"));
        assert_eq!(operations.of(&named), operations.of(&request("GET", "http://a.example/a")));
    }
}
