//! The target of a request, and the host that it is for (RFC 9112, 3.2).
//!
//! Targets are kept as they were sent: decoding or tidying them here and not at the backend would let the two disagree
//! on what was asked for. But for a path that is not there, which is written as the `/` that it stands for.

use std::net::Ipv6Addr;

use bytes::Bytes;
use http::header::{HOST, HeaderMap};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Uri, Version};
use memchr::memchr;

use crate::Fault;

/// The longest target that the type for URIs takes.
pub(crate) const MAX_TARGET: usize = u16::MAX as usize - 1;

/// Reads the target of a request with `method`.
pub(crate) fn read(target: Bytes, method: &Method) -> Result<Uri, Fault> {
    // The type for URIs drops a fragment instead of refusing it, and takes bytes above ASCII. Spaces and control
    // characters it refuses itself.
    if !target.is_ascii() || memchr(b'#', &target).is_some() {
        return Err(Fault::Target);
    }
    match &target[..] {
        _ if *method == Method::CONNECT => authority(target),
        [b'/', ..] => Uri::from_maybe_shared(target).map_err(|_| Fault::Target),
        b"*" if *method == Method::OPTIONS => Ok(Uri::from_static("*")),
        _ => absolute(target, method),
    }
}

/// `host:port`: for `CONNECT`, which goes with no other form.
fn authority(target: Bytes) -> Result<Uri, Fault> {
    if port_of(&target).is_none_or(<[u8]>::is_empty) {
        return Err(Fault::Target);
    }
    Authority::from_maybe_shared(target).map(Uri::from).map_err(|_| Fault::Target)
}

/// `http://host/path`: for proxies, but every server has to take it.
fn absolute(target: Bytes, method: &Method) -> Result<Uri, Fault> {
    let len = target.len();
    let uri = Uri::from_maybe_shared(target).map_err(|_| Fault::Target)?;
    let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else { return Err(Fault::Target) };
    // A host must be named (RFC 9110, 4.2.1), and nothing that makes one host look like another: a user's name is
    // refused, too (RFC 9110, 4.2.4).
    if (*scheme != Scheme::HTTP && *scheme != Scheme::HTTPS) || port_of(authority.as_str().as_bytes()).is_none() {
        return Err(Fault::Target);
    }
    let has_no_path = len == scheme.as_str().len() + "://".len() + authority.as_str().len();
    let path = match uri.path_and_query().map(PathAndQuery::as_str) {
        // In this form it is how one asks about the server as a whole (RFC 9112, 3.2.4). The type for URIs takes it for the path `/`.
        _ if has_no_path && *method == Method::OPTIONS => PathAndQuery::from_static("*"),
        // An empty path is `/` (RFC 9112, 3.2.1), which the type for URIs writes for itself only where no query follows.
        Some(query) if query.starts_with('?') => {
            PathAndQuery::try_from(format!("/{query}")).map_err(|_| Fault::Target)?
        }
        _ => return Ok(uri),
    };
    let mut parts = uri.into_parts();
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).map_err(|_| Fault::Target)
}

/// Whether the request says once, and clearly, which host it is for.
pub(crate) fn check_host(headers: &HeaderMap, version: Version) -> Result<(), Fault> {
    let mut lines = headers.get_all(HOST).iter();
    match (lines.next(), lines.next()) {
        (None, _) if version < Version::HTTP_11 => Ok(()),
        (Some(host), None) if is_host(host.as_bytes()) => Ok(()),
        _ => Err(Fault::Host),
    }
}

/// Whether `authority` is a host, with or without a port, in the one way in which all who read it understand it.
#[must_use]
pub fn is_host(authority: &[u8]) -> bool {
    port_of(authority).is_some()
}

/// The port of `host [":" port]`, empty where there is none; nothing where it is no host. `host:` is one with an empty
/// port (RFC 3986, 3.2.3).
///
/// The type for authorities is no judge of that: it takes brackets in the middle of a name, any text after them, an
/// empty host, and a port with a sign.
fn port_of(authority: &[u8]) -> Option<&[u8]> {
    let rest = match authority {
        [b'[', rest @ ..] => {
            let (address, rest) = rest.split_at_checked(memchr(b']', rest)?)?;
            std::str::from_utf8(address).ok()?.parse::<Ipv6Addr>().ok()?;
            &rest[1..]
        }
        _ => {
            let (name, rest) = authority.split_at(memchr(b':', authority).unwrap_or(authority.len()));
            if name.is_empty() || !name.iter().all(|byte| is_host_byte(*byte)) {
                return None;
            }
            rest
        }
    };
    match rest {
        [] => Some(rest),
        [b':', port @ ..] => is_port(port).then_some(port),
        _ => None,
    }
}

/// See [`may_be_in_host`].
static HOST_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < table.len() {
        table[byte] = may_be_in_host(byte as u8);
        byte += 1;
    }
    table
};

fn is_host_byte(byte: u8) -> bool {
    HOST_BYTES[usize::from(byte)]
}

/// What a name or an IPv4 address is made of (RFC 3986, 3.2.2), without the comma, which would make two hosts of one
/// to those who read lists, and without percent signs, which nobody decodes alike.
const fn may_be_in_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'-' | b'.' | b'_' | b'~' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b';' | b'='
        )
}

fn is_port(digits: &[u8]) -> bool {
    let number = digits.iter().try_fold(0_u16, |sum, digit| match digit {
        b'0'..=b'9' => sum.checked_mul(10)?.checked_add(u16::from(digit - b'0')),
        _ => None,
    });
    number.is_some()
}
