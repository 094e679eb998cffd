//! The fields that tell backends of a client: `X-Forwarded-*`, `Forwarded` (RFC 7239), `Via` (RFC
//! 9110, 7.6.3).
//!
//! A backend can believe these fields only if nobody but trusted proxies can set them. So every
//! such field of an untrusted peer is dropped, in any form: all of `X-Forwarded-`, `Forwarded`, and
//! `X-Real-IP`, which as many backends believe. Underscores count as dashes, since servers that
//! pass fields on as variables (CGI, WSGI) make no difference. The fields of a trusted proxy are
//! continued: addresses are appended to its list, and its scheme, host and port stay. Two kinds of
//! its fields are dropped. Names with underscores: such servers make one variable of
//! `X_Forwarded_For` and the list, and a proxy that knows only the usual spelling passes on its
//! clients' fields. And the form that the listener does not send: a proxy that does not know
//! `Forwarded` passes on its clients' fields.
//!
//! Trust is decided by the client's address, after the PROXY protocol: a balancer that passes
//! connections on does not read them.
//!
//! All that is the same for the requests of a connection is written once ([`Marks`]).

mod via;

use std::cell::RefCell;
use std::fmt::Write as _;
use std::net::IpAddr;

use http::header::{FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue, VIA};
use http::uri::Authority;
use http::{Request, Uri, Version};
use ipnet::IpNet;
use plimsoll_wire::hop::Claim;

use crate::config;
use crate::peer::Peer;

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const AT_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const PORT: HeaderName = HeaderName::from_static("x-forwarded-port");

/// A listener's rules for these fields.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rules {
    trusted: Box<[IpNet]>,
    /// Clients at a Unix socket are proxies.
    trusts_unix: bool,
    x_forwarded: bool,
    rfc7239: bool,
    /// `None` for no such field.
    via: Option<Via>,
}

/// The field for each version that a message came in.
#[derive(Clone, Debug, PartialEq)]
struct Via {
    name: Box<str>,
    http10: HeaderValue,
    http11: HeaderValue,
    http2: HeaderValue,
}

impl Via {
    fn new(name: &str) -> Self {
        let of = |version| {
            HeaderValue::from_str(&format!("{version} {name}")).expect("a pseudonym is a token, and a token is a value")
        };
        Self { name: name.into(), http10: of("1.0"), http11: of("1.1"), http2: of("2.0") }
    }

    fn add(&self, headers: &mut HeaderMap, version: Version) {
        let value = match version {
            Version::HTTP_2 => &self.http2,
            Version::HTTP_10 => &self.http10,
            _ => &self.http11,
        };
        headers.append(VIA, value.clone());
    }
}

impl From<&config::Listener> for Rules {
    fn from(listener: &config::Listener) -> Self {
        use config::Forwarded::{Both, Rfc7239, XForwarded};
        Self {
            trusted: listener.trusted_proxies.iter().filter_map(|proxy| proxy.network()).collect(),
            trusts_unix: listener.trusts_unix(),
            x_forwarded: matches!(listener.forwarded, XForwarded | Both),
            rfc7239: matches!(listener.forwarded, Rfc7239 | Both),
            via: listener.via.as_ref().map(|name| Via::new(name.as_str())),
        }
    }
}

impl Rules {
    /// Whether the fields of this client are trusted.
    pub(crate) fn trusts_peer(&self, peer: &Peer) -> bool {
        peer.address.ip().map_or(self.trusts_unix, |ip| self.trusts(ip))
    }

    /// Whether fields from this address are trusted.
    pub(crate) fn trusts(&self, address: IpAddr) -> bool {
        self.trusted.iter().any(|network| network.contains(&address))
    }

    /// Whether a request with these fields has passed proxies of this name too often.
    pub(crate) fn is_loop(&self, headers: &HeaderMap) -> bool {
        headers.contains_key(VIA) && self.via.as_ref().is_some_and(|via| via::is_loop(headers, &via.name))
    }

    /// Marks a response, which came from its backend in `version`.
    pub(crate) fn mark_response(&self, headers: &mut HeaderMap, version: Version) {
        if let Some(via) = &self.via {
            via.add(headers, version);
        }
    }
}

/// The marks of one connection's requests.
#[derive(Clone, Debug)]
pub(crate) struct Marks {
    trusted: bool,
    x_forwarded: Option<XForwarded>,
    /// The beginning of an element of `Forwarded`, with the client and the scheme; the host
    /// follows.
    element: Option<Box<str>>,
}

#[derive(Clone, Debug)]
struct XForwarded {
    /// `None` for a client at a Unix socket: it has no address, and a list with another word in it is
    /// misread.
    address: Option<HeaderValue>,
    proto: HeaderValue,
    /// `None` at a Unix socket.
    port: Option<HeaderValue>,
}

impl Marks {
    pub(crate) fn new(peer: &Peer, rules: &Rules) -> Self {
        let ip = peer.address.ip();
        let proto = if peer.tls.is_some() { "https" } else { "http" };
        Self {
            trusted: rules.trusts_peer(peer) && !peer.is_unnamed,
            x_forwarded: rules.x_forwarded.then(|| XForwarded {
                address: ip.map(|ip| HeaderValue::try_from(ip.to_string()).expect("an address is visible ASCII")),
                proto: HeaderValue::from_static(proto),
                port: peer.local.port().map(of_port),
            }),
            element: rules.rfc7239.then(|| match ip {
                Some(IpAddr::V4(ip)) => format!("for={ip};proto={proto}").into(),
                Some(IpAddr::V6(ip)) => format!("for=\"[{ip}]\";proto={proto}").into(),
                // RFC 7239, 6.2: the client is not known.
                None => format!("for=unknown;proto={proto}").into(),
            }),
        }
    }

    /// The client of a request that a trusted proxy has passed on, as far as it says so: the last
    /// address in its list that is not of a trusted proxy itself.
    pub(crate) fn client(&self, rules: &Rules, headers: &HeaderMap) -> Option<IpAddr> {
        if !self.trusted {
            return None;
        }
        let lines = headers.get_all(FOR).iter().rev().filter_map(|line| line.to_str().ok());
        let addresses = lines.flat_map(|line| line.rsplit(',')).map(|text| text.trim().parse().ok());
        addresses.map_while(|address| address).find(|address| !rules.trusts(*address))
    }

    /// Marks a request on its way to a backend. Call it after the fields of the client's connection
    /// were removed, and before the host is rewritten.
    pub(crate) fn request<B>(&self, rules: &Rules, request: &mut Request<B>) {
        let version = request.version();
        let host = host(request);
        let headers = request.headers_mut();
        self.drop_claims(headers);
        if let Some(x_forwarded) = &self.x_forwarded {
            x_forwarded.set(headers, host.as_ref(), self.trusted);
        }
        if let Some(element) = &self.element {
            let element = with_host(element, host.as_ref());
            set_list(headers, FORWARDED, &element, self.trusted);
        }
        if let Some(via) = &rules.via {
            via.add(headers, version);
        }
    }

    /// Whether a field that names a client must not be believed.
    pub(crate) fn drops(&self, name: &HeaderName) -> bool {
        match Claim::of(name) {
            None => false,
            Some(_) if !self.trusted => true,
            // Where nothing is sent, a trusted proxy's word goes through as it is.
            Some(_) if self.x_forwarded.is_none() && self.element.is_none() => false,
            // It is one variable with the right spelling to some servers.
            Some(_) if name.as_str().contains('_') => true,
            Some(Claim::XForwarded) => self.x_forwarded.is_none(),
            Some(Claim::Rfc7239) => self.element.is_none(),
            Some(Claim::Other) => false,
        }
    }

    /// Whether the client of a request asked by `https`, as far as a trusted proxy says so.
    pub(crate) fn says_https(&self, headers: &HeaderMap) -> Option<bool> {
        let value = |name: &HeaderName| headers.get(name).filter(|_| !self.drops(name))?.to_str().ok();
        // The first element is that of the proxy next to the client.
        let is_https = |list: &str| match list.split(',').next().unwrap_or_default().trim().trim_matches('"') {
            proto if proto.eq_ignore_ascii_case("https") => Some(true),
            proto if proto.eq_ignore_ascii_case("http") => Some(false),
            _ => None,
        };
        value(&PROTO).and_then(is_https).or_else(|| {
            let element = value(&FORWARDED)?.split(',').next()?;
            let mut pairs = element.split(';').filter_map(|pair| pair.split_once('='));
            pairs.find(|(name, _)| name.trim().eq_ignore_ascii_case("proto")).and_then(|(_, proto)| is_https(proto))
        })
    }

    /// Drops fields that must not be believed.
    fn drop_claims(&self, headers: &mut HeaderMap) {
        let is_bad = |name: &HeaderName| self.drops(name);
        if headers.keys().any(is_bad) {
            let bad: Vec<HeaderName> = headers.keys().filter(|name| is_bad(name)).cloned().collect();
            for name in bad {
                headers.remove(name);
            }
        }
    }
}

/// The value of a port, which the connections of a thread mostly have in common.
fn of_port(port: u16) -> HeaderValue {
    thread_local! {
        static LAST: RefCell<(u16, HeaderValue)> = RefCell::new((0, HeaderValue::from(0)));
    }
    LAST.with_borrow_mut(|last| {
        if last.0 != port {
            *last = (port, HeaderValue::from(port));
        }
        last.1.clone()
    })
}

impl XForwarded {
    fn set(&self, headers: &mut HeaderMap, host: Option<&HeaderValue>, trusted: bool) {
        match &self.address {
            Some(address) if trusted && headers.contains_key(FOR) => {
                // The address is visible ASCII, having been written here.
                set_list(headers, FOR, address.to_str().unwrap_or_default(), true);
            }
            Some(address) => {
                headers.insert(FOR, address.clone());
            }
            // What came from a trusted proxy stays; anything else was dropped.
            None => {}
        }
        let mut keep_or_set = |name: HeaderName, value: &HeaderValue| {
            if !(trusted && headers.contains_key(&name)) {
                headers.insert(name, value.clone());
            }
        };
        keep_or_set(PROTO, &self.proto);
        if let Some(port) = &self.port {
            keep_or_set(PORT, port);
        }
        if let Some(host) = host {
            keep_or_set(AT_HOST, host);
        }
    }
}

/// Sets the list `name` to `last`, after what it has in one line or several if `extend`.
fn set_list(headers: &mut HeaderMap, name: HeaderName, last: &str, extend: bool) {
    let mut list = Vec::new();
    if extend {
        for value in headers.get_all(&name) {
            list.extend_from_slice(value.as_bytes());
            list.extend_from_slice(b", ");
        }
    }
    list.extend_from_slice(last.as_bytes());
    let list = HeaderValue::from_bytes(&list).expect("each piece was a value, and so is what joins them");
    headers.insert(name, list);
}

/// The element of `Forwarded` with the host that was asked for, in quotes where it is no token.
fn with_host(element: &str, host: Option<&HeaderValue>) -> String {
    let mut whole = element.to_owned();
    let Some(host) = host.and_then(|host| host.to_str().ok()) else { return whole };
    let is_token = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte));
    if is_token {
        write!(whole, ";host={host}").expect("writing to a string does not fail");
    } else {
        whole.push_str(";host=\"");
        for character in host.chars() {
            if matches!(character, '"' | '\\') {
                whole.push('\\');
            }
            whole.push(character);
        }
        whole.push('"');
    }
    whole
}

/// The host that the request is for, as it was written.
fn host<B>(request: &Request<B>) -> Option<HeaderValue> {
    match request.uri().authority() {
        Some(authority) => HeaderValue::from_str(without_user(authority)).ok(),
        None => request.headers().get(HOST).cloned(),
    }
}

fn without_user(authority: &Authority) -> &str {
    authority.as_str().rsplit_once('@').map_or(authority.as_str(), |(_, host)| host)
}

/// The host that the requests of a route are sent for, in place of the one that clients name.
#[derive(Clone, Debug)]
pub(crate) struct HostRewrite {
    authority: Authority,
    field: HeaderValue,
}

impl HostRewrite {
    pub(crate) fn new(authority: &Authority) -> Self {
        let field = HeaderValue::from_str(authority.as_str()).expect("an authority is visible ASCII");
        Self { authority: authority.clone(), field }
    }

    /// Rewrites the host wherever the request has it.
    pub(crate) fn apply<B>(&self, request: &mut Request<B>) {
        if request.uri().authority().is_none() {
            request.headers_mut().insert(HOST, self.field.clone());
            return;
        }
        let mut parts = std::mem::take(request.uri_mut()).into_parts();
        parts.authority = Some(self.authority.clone());
        *request.uri_mut() = Uri::from_parts(parts).expect("one authority in place of another changes no form");
        request.headers_mut().remove(HOST);
    }
}

#[cfg(test)]
mod tests;
