//! What each request is: method, URI, headers and body, made once and copied for each send, and the
//! headers that set it apart from others.
//!
//! HTTP/1 requests carry the path alone and a `host` header, HTTP/2 ones the whole URI; hyper's
//! connection-level client leaves both to its caller. A gRPC body is one message in its frame.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue, TE};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, Method, Request, Uri};
use http_body_util::Full;

use super::mix::{Kind, Mix};
use super::plan::Protocol;

/// Where gRPC calls go when the URL names no path: the method that `plimsoll backend` serves.
const BACKEND_METHOD: &str = "/plimsoll.backend.v1.Backend/Work";
/// The port of `http` URLs that name none.
const HTTP_PORT: u16 = 80;

/// A request to be sent many times, and the server that gets it.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    authority: Authority,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
    mix: Mix,
}

/// What a [`Target`] is made from.
pub(crate) struct Params<'a> {
    /// `http://HOST[:PORT][/PATH]`.
    pub(crate) url: &'a str,
    /// Decides the form of the request.
    pub(crate) protocol: Protocol,
    /// None for the usual one.
    pub(crate) method: Option<Method>,
    /// None for that of the URL.
    pub(crate) path: Option<&'a str>,
    /// Each `name: value`.
    pub(crate) headers: &'a [String],
    /// Bytes, before gRPC's framing.
    pub(crate) body_size: u32,
}

impl Target {
    /// Checks the parts and puts the request together. The error says what to change.
    pub(crate) fn new(params: Params<'_>) -> Result<Self, String> {
        let url = params.url;
        let uri: Uri = url.parse().map_err(|error| format!("`{url}` is not a URL: {error}"))?;
        if uri.scheme() != Some(&Scheme::HTTP) {
            return Err(format!("`{url}` must be of the form http://HOST:PORT/PATH"));
        }
        let authority = uri.authority().cloned().ok_or_else(|| format!("`{url}` has no host"))?;
        let path = match params.path {
            Some(path) => {
                path.parse::<PathAndQuery>().map_err(|error| format!("--path `{path}` is not a path: {error}"))?
            }
            None => uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/")),
        };
        let grpc = params.protocol == Protocol::Grpc;
        let path = if grpc && path == "/" { PathAndQuery::from_static(BACKEND_METHOD) } else { path };
        let method = params.method.unwrap_or(if grpc || params.body_size > 0 { Method::POST } else { Method::GET });

        let mut headers = HeaderMap::new();
        let uri = if params.protocol == Protocol::Http1 {
            let host = HeaderValue::from_str(authority.as_str()).map_err(|_| format!("`{url}` has no valid host"))?;
            headers.insert(HOST, host);
            Uri::from(path)
        } else {
            let mut parts = http::uri::Parts::default();
            parts.scheme = Some(Scheme::HTTP);
            parts.authority = Some(authority.clone());
            parts.path_and_query = Some(path);
            Uri::from_parts(parts).expect("scheme, authority and path are all there")
        };
        if grpc {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            headers.insert(TE, HeaderValue::from_static("trailers"));
        }
        let mut given = HeaderMap::new();
        for header in params.headers {
            let (name, value) = parse_header(header)?;
            given.append(name, value);
        }
        // What was asked for takes the place of what would be sent anyway (`host`, say). `extend`
        // replaces on the first value of a name, and appends the further ones.
        headers.extend(given);
        Ok(Self { authority, method, uri, headers, body: body(params.body_size, grpc), mix: Mix::default() })
    }

    /// With requests that are not all alike. The error says what to change.
    pub(crate) fn with_mix(self, mix: Mix) -> Result<Self, String> {
        let twice = mix.headers().find(|(name, _)| self.headers.contains_key(name));
        match twice {
            Some((name, option)) => Err(format!("--header and {option} both set `{name}`; leave one of them out")),
            None => Ok(Self { mix, ..self }),
        }
    }

    /// What sets requests apart.
    pub(crate) fn mix(&self) -> &Mix {
        &self.mix
    }

    /// One request of this kind, ready to be sent `lag` after it was meant to.
    pub(crate) fn request(&self, kind: Kind, lag: Duration) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        let headers = request.headers_mut();
        *headers = self.headers.clone();
        self.mix.mark(headers, kind, lag);
        request
    }

    /// Host and port to resolve and connect to.
    pub(crate) fn host_and_port(&self) -> (&str, u16) {
        let host = self.authority.host();
        // A literal IPv6 address stands in brackets in a URL, and without them in a look-up.
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        (host, self.authority.port_u16().unwrap_or(HTTP_PORT))
    }

    /// Authority and path, to be shown.
    pub(crate) fn label(&self) -> String {
        format!("http://{}{}", self.authority, self.uri.path())
    }
}

fn parse_header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let wrong = || format!("--header `{text}` must be of the form `name: value`");
    let (name, value) = text.split_once(':').ok_or_else(wrong)?;
    let name = name.trim().parse().map_err(|_| wrong())?;
    let value = value.trim().parse().map_err(|_| wrong())?;
    Ok((name, value))
}

fn body(size: u32, grpc: bool) -> Bytes {
    let mut body = BytesMut::new();
    if grpc {
        body.put_u8(0); // not compressed
        body.put_u32(size);
    }
    body.put_bytes(b'x', size as usize);
    body.freeze()
}

#[cfg(test)]
mod tests {
    use http_body::Body;

    use super::*;
    use crate::load::mix::Parts;

    fn params<'a>(url: &'a str, protocol: Protocol) -> Params<'a> {
        Params { url, protocol, method: None, path: None, headers: &[], body_size: 0 }
    }

    fn first_request(target: &Target) -> Request<Full<Bytes>> {
        target.request(Kind::default(), Duration::ZERO)
    }

    #[test]
    fn http1_carries_the_path_alone_and_a_host() {
        let request = first_request(&Target::new(params("http://localhost:8080/a?b=c", Protocol::Http1)).unwrap());
        assert_eq!(request.uri(), "/a?b=c");
        assert_eq!(request.headers()[HOST], "localhost:8080");
        assert_eq!(request.method(), Method::GET);
    }

    #[test]
    fn http2_carries_the_whole_uri_and_no_host() {
        let request = first_request(&Target::new(params("http://localhost:8080", Protocol::H2c)).unwrap());
        assert_eq!(request.uri(), "http://localhost:8080/");
        assert!(!request.headers().contains_key(HOST));
    }

    #[test]
    fn grpc_frames_its_message_and_goes_to_the_backend_by_default() {
        let target = Target::new(Params { body_size: 3, ..params("http://[::1]:9", Protocol::Grpc) }).unwrap();
        let request = first_request(&target);
        assert_eq!(request.uri().path(), BACKEND_METHOD);
        assert_eq!(request.method(), Method::POST);
        assert_eq!(target.body.as_ref(), b"\0\0\0\0\x03xxx");
        assert_eq!(request.body().size_hint().exact(), Some(8));
        assert_eq!(target.host_and_port(), ("::1", 9));
    }

    #[test]
    fn given_headers_replace_the_usual_ones_and_may_repeat() {
        let headers = ["Host: other".to_owned(), "x-a: 1".to_owned(), "x-a: 2".to_owned()];
        let target = Target::new(Params { headers: &headers, ..params("http://h/", Protocol::Http1) }).unwrap();
        assert_eq!(target.headers.get_all(HOST).iter().collect::<Vec<_>>(), ["other"]);
        assert_eq!(target.headers.get_all("x-a").iter().collect::<Vec<_>>(), ["1", "2"]);
    }

    #[test]
    fn a_header_that_the_mix_sets_is_refused_as_a_given_one() {
        let mix = || Mix { customers: Some(Parts::of_customers("web=1").unwrap()), ..Mix::default() };
        let headers = ["X-Customer: other".to_owned()];
        let target = Target::new(Params { headers: &headers, ..params("http://h/", Protocol::Http1) }).unwrap();
        let error = target.with_mix(mix()).unwrap_err();
        assert!(error.contains("--customers") && error.contains("x-customer"), "{error}");

        let target = Target::new(params("http://h/", Protocol::Http1)).unwrap().with_mix(mix()).unwrap();
        let request = target.request(Kind { customer: Some(0), ..Kind::default() }, Duration::ZERO);
        assert_eq!(request.headers()["x-customer"], "web");
        assert_eq!(request.headers()[HOST], "h");
    }

    #[test]
    fn mistakes_name_the_form_that_is_wanted() {
        for url in ["https://h/", "h:80", "/path", "ftp://h/"] {
            assert!(Target::new(params(url, Protocol::Http1)).unwrap_err().contains("http://"), "{url}");
        }
        let headers = ["no colon".to_owned()];
        let error = Target::new(Params { headers: &headers, ..params("http://h/", Protocol::Http1) }).unwrap_err();
        assert!(error.contains("name: value"));
    }
}
