//! Removal of the fields that concern one connection only (RFC 9110, 7.6.1).
//!
//! A proxy or gateway must not pass them on. They are the fields that `Connection` names, and a
//! fixed list of old ones that senders forget to name there. Framing (`Transfer-Encoding`) belongs
//! to the codec of each connection; a length beside it is not the message's and goes with it (RFC
//! 9112, 6.3). `TE` stays only as far as it says `trailers`: they are end to end, and gRPC insists
//! on them. HTTP/2 allows a cookie in several fields, which an HTTP/1 server takes for several
//! cookies (RFC 9113, 8.2.3). They are joined here.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use crate::headers::{ENDPOINT_LOAD_METRICS_FORMAT, X_PLIMSOLL_PROBE_KEY};
use crate::orca;

/// Fields that concern one connection, whether or not `Connection` names them. Those after [`FOR_RESPONSES`] may stand in a
/// response without concerning its connection.
const LISTED: [HeaderName; 11] = [
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    // A client's wish for HTTP/2, with which a backend might agree.
    HeaderName::from_static("http2-settings"),
    // A secret between a health check and the server that answers it.
    X_PLIMSOLL_PROBE_KEY,
    header::PROXY_AUTHORIZATION,
    header::TE,
    // A client's wish for a report, which the proxy would remove from the response.
    ENDPOINT_LOAD_METRICS_FORMAT,
];
const FOR_RESPONSES: usize = 8;
const CONNECTION: u16 = 1;
const TRANSFER_ENCODING: u16 = 1 << 1;
const TE: u16 = 1 << 9;

/// Removes the hop-by-hop fields of a request.
pub fn strip_request(headers: &mut HeaderMap) {
    let found = Found::among(headers);
    if found.listed > 0 {
        let trailers = found.has(TE) && accepts_trailers(headers);
        strip(headers, found, &LISTED);
        if trailers {
            headers.insert(header::TE, HeaderValue::from_static("trailers"));
        }
    }
    if found.cookies {
        join_cookies(headers);
    }
}

/// What there is to do, so that it costs one pass over the names, and no look-up of any that is not there.
#[derive(Clone, Copy, Default)]
struct Found {
    /// Which of [`LISTED`] are there, by their places in it.
    listed: u16,
    /// Cookies, which on HTTP/2 may come in pieces.
    cookies: bool,
}

impl Found {
    fn among(headers: &HeaderMap) -> Self {
        let mut found = Self::default();
        for name in headers.keys() {
            found.listed |= match name.as_str() {
                "connection" => CONNECTION,
                "transfer-encoding" => TRANSFER_ENCODING,
                "upgrade" => 1 << 2,
                "keep-alive" => 1 << 3,
                "proxy-connection" => 1 << 4,
                "proxy-authenticate" => 1 << 5,
                "http2-settings" => 1 << 6,
                "x-plimsoll-probe-key" => 1 << 7,
                "proxy-authorization" => 1 << 8,
                "te" => TE,
                "endpoint-load-metrics-format" => 1 << 10,
                "cookie" => {
                    found.cookies = true;
                    0
                }
                _ => 0,
            };
        }
        found
    }

    fn has(self, bit: u16) -> bool {
        self.listed & bit != 0
    }
}

fn join_cookies(headers: &mut HeaderMap) {
    let mut pieces = headers.get_all(header::COOKIE).iter();
    let (Some(first), Some(second)) = (pieces.next(), pieces.next()) else { return };
    let mut whole = first.as_bytes().to_vec();
    for piece in std::iter::once(second).chain(pieces) {
        whole.extend_from_slice(b"; ");
        whole.extend_from_slice(piece.as_bytes());
    }
    let whole = HeaderValue::from_bytes(&whole).expect("each piece was a value, and so is what joins them");
    headers.insert(header::COOKIE, whole);
}

/// Removes the hop-by-hop fields of a response, and the backend's load report.
///
/// A client would take that report for the gateway's: it would balance by the load of one backend,
/// and leave a gateway with a lame duck behind it.
pub fn strip_response(headers: &mut HeaderMap) {
    strip(headers, Found::among(headers), &LISTED[..FOR_RESPONSES]);
    orca::strip(headers);
}

fn strip(headers: &mut HeaderMap, found: Found, listed: &[HeaderName]) {
    if found.has(CONNECTION) {
        strip_named(headers);
    }
    if found.has(TRANSFER_ENCODING) {
        headers.remove(header::CONTENT_LENGTH);
    }
    for (place, name) in listed.iter().enumerate() {
        if found.has(1 << place) {
            headers.remove(name);
        }
    }
}

/// Removes the fields that `Connection` names. Those that make up the message's meaning stay, whatever it says: a
/// client must not be able to take the host or the length off a request on its way. Nor what a trusted proxy says of it,
/// by having that proxy pass the name of such a field on; who may not be believed is for whoever passes it on to see to.
fn strip_named(headers: &mut HeaderMap) {
    // Nearly every `Connection` says one of these and nothing else, which is no field, or goes anyhow.
    let is_usual = |token: &[u8]| token.eq_ignore_ascii_case(b"keep-alive") || token.eq_ignore_ascii_case(b"close");
    let mut lines = headers.get_all(header::CONNECTION).iter();
    if lines.all(|line| is_usual(line.as_bytes())) {
        return;
    }
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|token| !is_usual(token.as_bytes()))
        .filter_map(|token| HeaderName::from_bytes(token.as_bytes()).ok())
        .filter(|name| *name != header::HOST && *name != header::CONTENT_LENGTH && *name != header::TE)
        .filter(|name| !is_of_hops(name))
        .collect();
    for name in named {
        headers.remove(name);
    }
}

/// Whether by this field hops tell one another of a client, or of themselves: none of them means it for one connection.
fn is_of_hops(name: &HeaderName) -> bool {
    *name == header::VIA || Claim::of(name).is_some()
}

/// A field that names a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// `X-Forwarded-*`.
    XForwarded,
    /// `Forwarded`.
    Rfc7239,
    /// `X-Real-IP`.
    Other,
}

impl Claim {
    /// The kind of this field, if it names a client.
    ///
    /// Underscores count as dashes, because servers that hand fields on as variables make no
    /// difference.
    #[must_use]
    pub fn of(name: &HeaderName) -> Option<Self> {
        let name = name.as_str().as_bytes();
        // Most fields are none by their first letter.
        match name.first() {
            Some(b'x') if begins_as(name, b"x-forwarded") => Some(Self::XForwarded),
            Some(b'x') if begins_as(name, b"x-real-ip") => Some(Self::Other),
            Some(b'f') if begins_as(name, b"forwarded") => Some(Self::Rfc7239),
            _ => None,
        }
    }
}

/// Whether a name, in lower case as the map has all names, begins as `prefix` does, an underscore being as good as a dash.
fn begins_as(name: &[u8], prefix: &[u8]) -> bool {
    name.len() >= prefix.len()
        && name.iter().zip(prefix).all(|(byte, wanted)| byte == wanted || *byte == b'_' && *wanted == b'-')
}

fn accepts_trailers(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::TE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|coding| coding.trim().eq_ignore_ascii_case("trailers"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        map
    }

    fn stripped(pairs: &[(&'static str, &'static str)]) -> Vec<String> {
        let mut map = headers(pairs);
        strip_request(&mut map);
        map.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect()
    }

    #[test]
    fn fields_of_the_connection_are_dropped_and_others_kept() {
        let kept = stripped(&[
            ("host", "a"),
            ("connection", "keep-alive, X-Private"),
            ("connection", "x-other"),
            ("x-private", "1"),
            ("x-other", "2"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("proxy-authorization", "secret"),
            ("x-plimsoll-probe-key", "seed=\"00\""),
            ("endpoint-load-metrics-format", "text"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("x-end-to-end", "3"),
        ]);
        assert_eq!(kept, ["host: a", "x-end-to-end: 3"]);
    }

    #[test]
    fn what_is_found_is_known_by_its_place_in_the_list() {
        for (place, name) in LISTED.iter().enumerate() {
            let mut map = HeaderMap::new();
            map.insert(name, HeaderValue::from_static("1"));
            assert_eq!(Found::among(&map).listed, 1 << place, "{name}");
        }
    }

    #[test]
    fn te_goes_on_only_for_trailers() {
        assert_eq!(stripped(&[("te", "gzip, Trailers;q=0.5")]), Vec::<String>::new());
        assert_eq!(stripped(&[("te", "gzip, trailers")]), ["te: trailers"]);
        assert_eq!(stripped(&[("te", "gzip")]), Vec::<String>::new());
    }

    #[test]
    fn connection_cannot_take_the_host_or_the_length_away() {
        let mut kept = stripped(&[("connection", "host, content-length"), ("host", "a"), ("content-length", "3")]);
        // The order of different fields means nothing.
        kept.sort_unstable();
        assert_eq!(kept, ["content-length: 3", "host: a"]);
    }

    #[test]
    fn connection_cannot_take_away_what_hops_say_of_clients() {
        for name in ["x-forwarded-for", "x-forwarded-proto", "x_forwarded_host", "forwarded", "x-real-ip", "via"] {
            let capitals: &'static str = name.to_uppercase().leak();
            assert_eq!(stripped(&[("connection", capitals), (name, "1")]), [format!("{name}: 1")]);
        }
    }

    #[test]
    fn cookie_in_pieces_is_put_together() {
        assert_eq!(
            stripped(&[("cookie", "a=1"), ("cookie", "b=2; c=3"), ("cookie", "d=4")]),
            ["cookie: a=1; b=2; c=3; d=4"]
        );
        assert_eq!(stripped(&[("cookie", "a=1")]), ["cookie: a=1"]);
    }

    #[test]
    fn length_beside_another_framing_is_dropped() {
        assert_eq!(stripped(&[("content-length", "3"), ("transfer-encoding", "chunked")]), Vec::<String>::new());
    }

    #[test]
    fn nothing_of_a_backend_that_goes_away_is_left_in_its_response() {
        let mut map = headers(&[
            ("connection", "close"),
            ("transfer-encoding", "chunked"),
            ("endpoint-load-metrics", "TEXT named_metrics.plimsoll.lame_duck=1"),
            ("endpoint-load-metrics-bin", "AA=="),
            ("x-plimsoll-probe-key", "id=1, secret=\"00\""),
            ("te", "a field like any other"),
            ("etag", "1"),
        ]);
        strip_response(&mut map);
        let mut left: Vec<_> = map.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["etag", "te"]);
    }

    #[test]
    fn junk_in_connection_is_passed_over() {
        assert_eq!(stripped(&[("connection", ",, b@d name,,"), ("host", "a")]), ["host: a"]);
    }
}
