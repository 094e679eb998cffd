//! The customer of a request, by the facts that its listener names ([`CustomerSource`]).
//!
//! The first source that the request has wins. Customers of all sources and listeners share limits
//! by name. So a name by a fact that any client chooses has the kind of its source in front
//! (`path:acme`): else a path could be named as the address of another client.
//!
//! The name goes into limits, routes, reports and logs, so it never has a secret in it: a key is
//! named by the start of its SHA-256 hash. The hash needs no
//! key of the process. A key has 128 random bits or more, so it cannot be guessed by its hash, and
//! all proxies of a fleet give its customer one name.
//!
//! Host and path are compared as routes compare them: in normal form, so that another spelling is no
//! other customer.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::ops::Deref;

use http::{HeaderMap, HeaderName, HeaderValue};
use plimsoll_core::Rejection;
use ring::digest::{SHA256, digest};

use super::{MAX_HOST, normal_host};
use crate::config::{AddressName, CustomerSource, HOST_KIND, KEY_KIND, PATH_KIND};
use crate::forwarded::{Marks, Rules};
use crate::peer::Peer;
use crate::reason::Refusal;

/// Bytes of the hash in the name of a key: two of a billion keys have one name with a chance of 3%.
const HASHED: usize = 8;

/// The name of a customer.
#[derive(Clone, Debug)]
pub(crate) enum Customer {
    /// As its sender wrote it.
    Field(HeaderValue),
    /// Made here.
    Short(ShortText),
    /// A host or a segment.
    Text(Box<str>),
}

impl Deref for Customer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Field(value) => value.as_bytes(),
            Self::Short(text) => &text.bytes[..usize::from(text.len)],
            Self::Text(text) => text.as_bytes(),
        }
    }
}

/// A text that lies on the stack.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShortText {
    len: u8,
    bytes: [u8; AddressName::MAX_LEN],
}

impl std::fmt::Write for ShortText {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let end = usize::from(self.len) + text.len();
        self.bytes.get_mut(usize::from(self.len)..end).ok_or(std::fmt::Error)?.copy_from_slice(text.as_bytes());
        self.len = u8::try_from(end).map_err(|_| std::fmt::Error)?;
        Ok(())
    }
}

/// The facts about a request that may name its customer.
#[derive(Clone, Copy)]
pub(crate) struct CustomerFacts<'r> {
    pub(crate) peer: &'r Peer,
    pub(crate) marks: &'r Marks,
    pub(crate) forwarding: &'r Rules,
    pub(crate) headers: &'r HeaderMap,
    /// Empty if it names none.
    pub(crate) host: &'r str,
}

impl CustomerFacts<'_> {
    /// The client's address: behind a trusted proxy the one that the proxy names. `None` at a Unix
    /// socket without such a proxy.
    fn address(&self) -> Option<IpAddr> {
        self.marks.client(self.forwarding, self.headers).or_else(|| self.peer.address.ip())
    }
}

/// The customer of a request for `path`, which is in normal form.
pub(super) fn find(
    sources: &[CustomerSource],
    facts: &CustomerFacts<'_>,
    path: &str,
) -> Result<Option<Customer>, Refusal> {
    for source in sources {
        let found = match source {
            CustomerSource::Header(name) => only(facts.headers, name)?.cloned().map(Customer::Field),
            CustomerSource::Key(name) => only(facts.headers, name)?.filter(|key| !key.is_empty()).map(of_key),
            CustomerSource::Address => facts.address().map(of_address),
            CustomerSource::Certificate => facts.peer.client_names().first().map(|name| Customer::Text(name.clone())),
            CustomerSource::Host => of_host(facts.host),
            CustomerSource::PathSegment(number) => segment(path, number.get()).map(|name| of_text(PATH_KIND, name)),
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Segment `number` of a path in normal form, counted from 1.
pub(super) fn segment(path: &str, number: u32) -> Option<&str> {
    path.strip_prefix('/')?.split('/').nth(number as usize - 1).filter(|segment| !segment.is_empty())
}

/// The one value of a field. Backends may take the last one of several.
fn only<'r>(headers: &'r HeaderMap, name: &HeaderName) -> Result<Option<&'r HeaderValue>, Refusal> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() { Err(Refusal::of(Rejection::Customers)) } else { Ok(first) }
}

fn of_key(key: &HeaderValue) -> Customer {
    let hash = digest(&SHA256, key.as_bytes());
    let mut text = ShortText::default();
    text.write_str(KEY_KIND).expect("four bytes fit");
    for byte in &hash.as_ref()[..HASHED] {
        write!(text, "{byte:02x}").expect("twenty bytes fit");
    }
    Customer::Short(text)
}

fn of_address(address: IpAddr) -> Customer {
    let mut text = ShortText::default();
    write!(text, "{}", AddressName::new(address)).expect("the longest name fits");
    Customer::Short(text)
}

fn of_host(host: &str) -> Option<Customer> {
    let mut buffer = [0; MAX_HOST];
    let host = normal_host(host, &mut buffer).filter(|host| !host.is_empty())?;
    Some(of_text(HOST_KIND, host))
}

fn of_text(kind: &str, name: &str) -> Customer {
    Customer::Text([kind, name].concat().into())
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::config::{self, Config};
    use crate::peer::Tls;

    struct Case {
        peer: Peer,
        rules: Rules,
        headers: HeaderMap,
        host: &'static str,
    }

    fn case(address: &str) -> Case {
        let text = "[[listeners]]\naddress = \":80\"\ntrusted_proxies = [\"10.0.0.0/8\"]\n[[routes]]\ncluster = \"a\"\n\
                    [clusters.a]\nbackends = [\"127.0.0.1:1\"]";
        let config = Config::parse("test", text).unwrap();
        let listener: &config::Listener = &config.listeners()[0];
        let (address, local) = (format!("{address}:9").parse().unwrap(), "127.0.0.1:80".parse().unwrap());
        let peer = Peer { address, local, user: None, tls: None, is_unnamed: false };
        Case { peer, rules: Rules::from(listener), headers: HeaderMap::new(), host: "" }
    }

    impl Case {
        fn with(mut self, name: &'static str, value: &'static str) -> Self {
            self.headers.append(name, HeaderValue::from_static(value));
            self
        }

        fn of(&self, sources: &[CustomerSource], path: &str) -> Result<Option<String>, Refusal> {
            let marks = Marks::new(&self.peer, &self.rules);
            let facts = CustomerFacts {
                peer: &self.peer,
                marks: &marks,
                forwarding: &self.rules,
                headers: &self.headers,
                host: self.host,
            };
            let found = find(sources, &facts, path)?;
            Ok(found.map(|name| String::from_utf8(name.to_vec()).unwrap()))
        }

        fn by(&self, source: CustomerSource) -> Option<String> {
            self.of(&[source], "/v1/acme/x").unwrap()
        }
    }

    fn header(name: &'static str) -> CustomerSource {
        CustomerSource::Header(HeaderName::from_static(name))
    }

    fn key(name: &'static str) -> CustomerSource {
        CustomerSource::Key(HeaderName::from_static(name))
    }

    #[test]
    fn address_is_the_clients_own_behind_trusted_proxies_only() {
        let by_address = |case: Case| case.by(CustomerSource::Address).unwrap();
        assert_eq!(by_address(case("192.0.2.1")), "192.0.2.1");
        assert_eq!(by_address(case("[2001:db8::1:2:3:4]")), "2001:db8::/64");
        assert_eq!(by_address(case("192.0.2.1").with("x-forwarded-for", "198.51.100.7")), "192.0.2.1");
        assert_eq!(
            by_address(case("10.0.0.1").with("x-forwarded-for", "6.6.6.6, 198.51.100.7, 10.9.9.9")),
            "198.51.100.7"
        );
        assert_eq!(by_address(case("10.0.0.1").with("x-forwarded-for", "2001:db8:1::5")), "2001:db8:1::/64");
        assert_eq!(by_address(case("10.0.0.1")), "10.0.0.1");
    }

    #[test]
    fn key_is_named_by_its_hash_and_never_by_itself() {
        // printf %s secret-1 | sha256sum | cut -c-16
        let one = case("192.0.2.1").with("x-api-key", "secret-1").by(key("x-api-key")).unwrap();
        assert_eq!(one, "key:f7e7c36e458e80e6");
        assert_ne!(case("192.0.2.1").with("x-api-key", "secret-2").by(key("x-api-key")).unwrap(), one);
        assert_eq!(case("192.0.2.1").with("x-api-key", "").by(key("x-api-key")), None);
    }

    #[test]
    fn first_source_that_the_request_has_names_the_customer() {
        let sources = [CustomerSource::Certificate, header("x-customer"), CustomerSource::Address];
        let mut named = case("192.0.2.1").with("x-customer", "acme");
        assert_eq!(case("192.0.2.1").of(&sources, "/"), Ok(Some("192.0.2.1".into())));
        assert_eq!(named.of(&sources, "/"), Ok(Some("acme".into())));
        let client_names = ["spiffe://a/web".into(), "web.internal".into()].into();
        named.peer.tls = Some(Tls { server_name: None, client_names, version: "TLSv1.3", is_http2: false });
        assert_eq!(named.of(&sources, "/"), Ok(Some("spiffe://a/web".into())));
        assert_eq!(named.of(&[], "/"), Ok(None));
    }

    #[test]
    fn host_and_path_segment_have_one_name_for_each_spelling() {
        let mut case = case("192.0.2.1");
        case.host = "Shop.Example.:8080";
        assert_eq!(case.by(CustomerSource::Host), Some("host:shop.example".into()));
        case.host = "";
        assert_eq!(case.by(CustomerSource::Host), None);
        let by_segment = |number| case.by(CustomerSource::PathSegment(NonZeroU32::new(number).unwrap()));
        assert_eq!(
            [1, 2, 3, 4].map(by_segment),
            [Some("path:v1".into()), Some("path:acme".into()), Some("path:x".into()), None]
        );
    }

    #[test]
    fn stranger_cannot_choose_the_name_of_another_source() {
        let victim = case("192.0.2.1");
        let victims = [victim.by(CustomerSource::Address), case("[2001:db8::1]").by(CustomerSource::Address)];
        let key = victim.with("x-api-key", "secret-1").by(key("x-api-key")).unwrap();
        for name in victims.into_iter().flatten().chain([key, "shop.internal".into(), "path:a".into()]) {
            let mut stranger = case("198.51.100.7");
            stranger.host = name.clone().leak();
            let sources = [CustomerSource::Host, CustomerSource::PathSegment(NonZeroU32::MIN)];
            let names = sources.map(|source| stranger.of(&[source], &format!("/{name}/x")).unwrap());
            assert!(names.iter().all(|other| other.as_ref() != Some(&name)), "{name}: {names:?}");
            assert_ne!(names[0], names[1], "{name}");
        }
    }

    #[test]
    fn customer_named_twice_is_refused() {
        for source in [header("x-c"), key("x-c")] {
            let twice = case("192.0.2.1").with("x-c", "a").with("x-c", "b");
            assert_eq!(twice.of(&[source], "/"), Err(Refusal::of(Rejection::Customers)));
        }
    }
}
