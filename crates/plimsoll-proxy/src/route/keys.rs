//! The key of a request for the policy `hash`, and the cookie that gives a client one.
//!
//! A sticky client carries a random number in a cookie, and its requests go to the backend of that
//! number. The usual alternative, a cookie that names the backend, was rejected: its value needs a
//! secret that all proxies share, or it gives away addresses, and lets a client choose the backend
//! to load. With a number no proxy keeps anything, and a lost backend's clients spread over the
//! others. Its price: a backend that joins takes over some clients.
//!
//! The value of a cookie is hashed as it comes. A client that invents one gets some backend, within
//! its bound.
//!
//! A response that shared caches may store gets no cookie, as many clients would share it. Other
//! responses with the cookie say `Cache-Control: private`, unless they say so or `no-store` already.
//!
//! An address counts as in [`holders`](super::holders): of IPv6 the first 64 bits, which a client
//! cannot choose.

use std::fmt::Write as _;
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use http::header::{CACHE_CONTROL, COOKIE, EXPIRES, HeaderMap, HeaderValue, SET_COOKIE};
use http::{Request, Response};
use plimsoll_core::pick::{HashKey, PolicyKind};

use crate::config::client_network;
use crate::config::{self, KeySource, Sticky};

/// The rule for the keys of a cluster's requests.
pub(crate) struct Keys {
    sources: Box<[KeySource]>,
    sticky: Option<Sticky>,
    /// The sources in words, the sticky cookie last.
    names: Box<[Arc<str>]>,
}

/// The key of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Keyed {
    /// `None`: the request has none.
    pub(crate) key: Option<HashKey>,
    /// The value of the cookie that its client is to get.
    new_cookie: Option<u64>,
    /// The source of the key, by its place among the names.
    source: u8,
}

impl Keys {
    /// `None` for a cluster with another policy.
    pub(crate) fn new(cluster: &config::Cluster) -> Option<Self> {
        let config::HashKeys { sources, sticky, .. } = &cluster.hash_keys;
        let is_hash = cluster.balancer.policy == PolicyKind::Hash;
        is_hash.then(|| Self::of_sources(sources, sticky.clone()))
    }

    fn of_sources(sources: &[KeySource], sticky: Option<Sticky>) -> Self {
        let names = sources.iter().map(|source| source.to_string().into());
        let cookie = sticky.as_ref().map(|sticky| KeySource::Cookie(sticky.cookie.clone()).to_string().into());
        Self { names: names.chain(cookie).collect(), sources: sources.into(), sticky }
    }

    /// The source of a key, in words; `None` for a request without one.
    pub(crate) fn source(&self, keyed: &Keyed) -> Option<&Arc<str>> {
        keyed.key.and_then(|_| self.names.get(usize::from(keyed.source)))
    }

    /// The key of a request as it came from this client.
    pub(crate) fn of<B>(&self, request: &Request<B>, client: impl Fn() -> Option<IpAddr>) -> Keyed {
        let headers = request.headers();
        for (source, at) in self.sources.iter().zip(0..) {
            let key = match source {
                KeySource::Header(name) => headers.get(name).and_then(|value| key_of(value.as_bytes())),
                KeySource::Cookie(name) => cookie(headers, name).and_then(key_of),
                KeySource::Address => client().map(key_of_address),
                KeySource::Path => Some(HashKey::of(request.uri().path().as_bytes())),
            };
            if key.is_some() {
                return Keyed { key, new_cookie: None, source: at };
            }
        }
        let Some(sticky) = &self.sticky else { return Keyed::default() };
        let source = self.sources.len() as u8;
        match cookie(headers, &sticky.cookie).and_then(key_of) {
            Some(key) => Keyed { key: Some(key), new_cookie: None, source },
            None => {
                let number = random();
                Keyed { key: Some(HashKey::of(text_of(number).as_bytes())), new_cookie: Some(number), source }
            }
        }
    }

    /// The key that a request has without a new cookie.
    pub(crate) fn own<B>(&self, request: &Request<B>, client: impl Fn() -> Option<IpAddr>) -> Option<HashKey> {
        let keyed = self.of(request, client);
        keyed.key.filter(|_| keyed.new_cookie.is_none())
    }

    /// Gives the client its cookie, if it needs one and the response is for this client alone.
    pub(crate) fn mark<B>(&self, keyed: Keyed, is_tls: bool, response: &mut Response<B>) {
        let (Some(number), Some(sticky)) = (keyed.new_cookie, &self.sticky) else { return };
        let headers = response.headers_mut();
        let is_private = has_directive(headers, &["private", "no-store"]);
        let is_fresh = headers.contains_key(EXPIRES)
            || has_directive(headers, &["public", "max-age", "s-maxage", "immutable", "stale-while-revalidate"]);
        if is_fresh && !is_private {
            return;
        }
        if !is_private {
            headers.append(CACHE_CONTROL, HeaderValue::from_static("private"));
        }
        let mut text = format!("{}={}; Path={}; HttpOnly", sticky.cookie, text_of(number), sticky.path);
        if let Some(age) = sticky.max_age {
            let _ = write!(text, "; Max-Age={}", age.as_secs());
        }
        if sticky.secure || is_tls {
            text.push_str("; Secure");
        }
        let _ = write!(text, "; SameSite={}", sticky.same_site.name());
        let value = HeaderValue::from_str(&text).expect("name and path were read as visible ASCII");
        headers.append(SET_COOKIE, value);
    }
}

/// An empty value is no key.
fn key_of(value: &[u8]) -> Option<HashKey> {
    (!value.is_empty()).then(|| HashKey::of(value))
}

fn key_of_address(address: IpAddr) -> HashKey {
    match client_network(address) {
        IpAddr::V4(address) => HashKey::of(&address.octets()),
        IpAddr::V6(address) => HashKey::of(&address.octets()),
    }
}

/// The value of the first cookie of this name.
fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h [u8]> {
    let pairs = headers.get_all(COOKIE).iter().flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
    pairs.map(<[u8]>::trim_ascii).find_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

/// Whether `Cache-Control` has one of these directives, with an argument or without.
fn has_directive(headers: &HeaderMap, names: &[&str]) -> bool {
    let lines = headers.get_all(CACHE_CONTROL).iter().filter_map(|line| line.to_str().ok());
    let mut given =
        lines.flat_map(|line| line.split(',')).map(|part| part.split('=').next().unwrap_or_default().trim());
    given.any(|given| names.iter().any(|name| given.eq_ignore_ascii_case(name)))
}

/// A number that no other client gets.
fn random() -> u64 {
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    KEY.hash_one(NUMBER.fetch_add(1, Ordering::Relaxed))
}

fn text_of(number: u64) -> String {
    format!("{number:016x}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::Ipv4Addr;

    use super::*;

    fn keys(sources: &[KeySource], sticky: bool) -> Keys {
        Keys::of_sources(sources, sticky.then(Sticky::default))
    }

    fn request(fields: &[(&'static str, &'static str)]) -> Request<()> {
        let mut request = Request::builder().uri("/a/b?c=d");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap()
    }

    fn of(keys: &Keys, fields: &[(&'static str, &'static str)]) -> Keyed {
        keys.of(&request(fields), || Some(Ipv4Addr::new(192, 0, 2, 1).into()))
    }

    /// The fields that a response with these gets.
    fn marked(fields: &[(&'static str, &'static str)], is_tls: bool) -> Vec<String> {
        let keys = keys(&[], true);
        let mut response = Response::builder();
        for (name, value) in fields {
            response = response.header(*name, *value);
        }
        let mut response = response.body(()).unwrap();
        keys.mark(Keyed { new_cookie: Some(0xabc), ..Keyed::default() }, is_tls, &mut response);
        let shown = response.headers().iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
        shown.skip(fields.len()).collect()
    }

    #[test]
    fn first_source_that_a_request_has_is_its_key() {
        let sources =
            [KeySource::Header("x-user".parse().unwrap()), KeySource::Cookie("session".to_owned()), KeySource::Path];
        let keys = keys(&sources, false);
        let key = |fields: &[_]| of(&keys, fields).key;
        assert_eq!(key(&[("x-user", "alice"), ("cookie", "session=bob")]), Some(HashKey::of(b"alice")));
        assert_eq!(key(&[("x-user", ""), ("cookie", "a=1; session=bob")]), Some(HashKey::of(b"bob")));
        assert_eq!(key(&[("cookie", "xsession=1;session2=2"), ("cookie", "session=bob")]), Some(HashKey::of(b"bob")));
        assert_eq!(key(&[("cookie", "session=")]), Some(HashKey::of(b"/a/b")), "without the query");
        let source = |fields: &[_]| keys.source(&of(&keys, fields)).map(ToString::to_string);
        let sources = [source(&[("x-user", "alice")]), source(&[("cookie", "session=bob")]), source(&[])];
        assert_eq!(sources.map(Option::unwrap), ["header:x-user", "cookie:session", "path"]);
    }

    #[test]
    fn address_counts_without_the_part_that_a_client_chooses() {
        let key = |address: &str| {
            keys(&[KeySource::Address], false).of(&request(&[]), || Some(address.parse().unwrap())).key.unwrap()
        };
        assert_eq!(key("192.0.2.1"), key("::ffff:192.0.2.1"));
        assert_ne!(key("192.0.2.1"), key("192.0.2.2"));
        assert_eq!(key("2001:db8::1"), key("2001:db8::2:3:4:5"));
        assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
        let unix = keys(&[KeySource::Address, KeySource::Path], false).of(&request(&[]), || None);
        assert_eq!(unix.key, Some(HashKey::of(b"/a/b")), "a client at a Unix socket has no address");
    }

    #[test]
    fn new_cookie_brings_its_client_back() {
        let keys = keys(&[KeySource::Header("x-user".parse().unwrap())], true);
        let first = of(&keys, &[]);
        let number = first.new_cookie.expect("it has no cookie");
        let line: &'static str = format!("plimsoll={number:016x}").leak();
        let back = of(&keys, &[("cookie", line)]);
        assert_eq!(back, Keyed { new_cookie: None, ..first });
        assert_eq!(keys.source(&back).map(|name| &**name), Some("cookie:plimsoll"));
        assert_eq!(of(&keys, &[("x-user", "alice")]).new_cookie, None, "it has a key");
        let numbers: BTreeSet<_> = (0..100).map(|_| of(&keys, &[]).new_cookie).collect();
        assert_eq!(numbers.len(), 100);
    }

    #[test]
    fn cookie_is_set_with_its_attributes() {
        let cookie = "set-cookie: plimsoll=0000000000000abc; Path=/; HttpOnly; SameSite=Lax";
        let private = "cache-control: private";
        assert_eq!(marked(&[], false), [private, cookie]);
        assert_eq!(marked(&[], true)[1], cookie.replace("; Same", "; Secure; Same"));
        assert_eq!(marked(&[("cache-control", "Max-Age=5, PRIVATE")], false), [cookie]);
        let sticky = Sticky { max_age: Some(std::time::Duration::from_secs(60)), secure: true, ..Sticky::default() };
        let keys = Keys::of_sources(&[], Some(sticky));
        let mut response = Response::new(());
        keys.mark(Keyed { new_cookie: Some(1), ..Keyed::default() }, false, &mut response);
        let set = response.headers()[SET_COOKIE].to_str().unwrap();
        assert_eq!(set, "plimsoll=0000000000000001; Path=/; HttpOnly; Max-Age=60; Secure; SameSite=Lax");
    }

    #[test]
    fn response_for_shared_caches_gets_no_cookie() {
        for field in [
            ("cache-control", "public"),
            ("cache-control", "max-age=60"),
            ("cache-control", "no-transform, S-MaxAge=60"),
            ("expires", "Thu, 01 Dec 2033 16:00:00 GMT"),
        ] {
            assert_eq!(marked(&[field], false), Vec::<String>::new(), "{field:?}");
        }
        assert_eq!(marked(&[("cache-control", "no-store")], false).len(), 1);
        assert_eq!(marked(&[("cache-control", "no-cache")], false).len(), 2);
    }
}
