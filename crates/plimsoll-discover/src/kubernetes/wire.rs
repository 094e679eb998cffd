//! The JSON of the API server: a page of a list, an event of a watch, the status of a failure.
//!
//! Everything that this crate has no use for is skipped while it is read, in particular the managed
//! fields, which are the larger part of an object.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use plimsoll::discover::Readiness;
use serde::Deserialize;

use super::slice::{Family, Port, Slice, SliceEndpoint};

/// Names the service of a slice.
pub(super) const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// Longest name of a slice, in bytes (RFC 1123, as of all objects).
const MAX_NAME: usize = 253;
/// Longest zone, in bytes, as in the other sources. Kubernetes permits 63.
const MAX_ZONE: usize = 256;
/// Longest version and token of a page, in bytes. They are a part of the next request's target, which
/// has an end. Tokens have some 300 bytes.
const MAX_TOKEN: usize = 4096;
/// The part of a server's message that is shown, in characters.
const MAX_MESSAGE: usize = 300;

/// One answer to a list request. A long list comes in several pages.
#[derive(Debug, PartialEq)]
pub(super) struct Page {
    /// The slices of the page, those of other services left out.
    pub(super) slices: Vec<Slice>,
    /// The version of the list, the same on all of its pages.
    pub(super) version: String,
    /// The token of the next page.
    pub(super) next: Option<String>,
}

/// One event of a watch.
#[derive(Debug, PartialEq)]
pub(super) enum Event {
    /// A slice of the service was added or changed.
    Changed { slice: Slice, version: Option<String> },
    /// A slice is not, or no longer, one of the service.
    Removed { name: String, version: Option<String> },
    /// Nothing of the service changed up to this version.
    Bookmark { version: Option<String> },
    /// The server no longer knows the version that the watch began from.
    Expired,
    /// The server ends the watch for this reason.
    Failed(String),
}

/// The reason why a text is no answer of an API server.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(super) enum WireError {
    /// It is not JSON, or a field has another type.
    #[error("not a list or an event of EndpointSlices: {0}")]
    Syntax(String),
    /// The address of an endpoint is not of its slice's type.
    #[error("EndpointSlice {slice}: `{address}` is not an address of its type {family}")]
    Address { slice: String, address: String, family: String },
    /// A text is longer than any in Kubernetes.
    #[error("{noun} has {length} bytes, more than {max}")]
    TooLong { noun: &'static str, length: usize, max: usize },
}

impl From<serde_json::Error> for WireError {
    fn from(error: serde_json::Error) -> Self {
        // It shows a value of the wrong type, as long as that is.
        Self::Syntax(shown(&error.to_string()))
    }
}

/// A text as it is, if it is not too long.
fn bounded(text: &str, noun: &'static str, max: usize) -> Result<String, WireError> {
    let length = text.len();
    if length > max { Err(WireError::TooLong { noun, length, max }) } else { Ok(text.to_owned()) }
}

fn version(text: &str) -> Result<String, WireError> {
    bounded(text, "a resourceVersion", MAX_TOKEN)
}

fn slice_name(text: &str) -> Result<String, WireError> {
    bounded(text, "the name of an EndpointSlice", MAX_NAME)
}

#[derive(Deserialize)]
struct ListBody<'a> {
    #[serde(borrow)]
    metadata: ListMetadata<'a>,
    // Go writes an empty list as null.
    #[serde(borrow)]
    items: Option<Vec<SliceBody<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata<'a> {
    #[serde(borrow, default)]
    resource_version: Cow<'a, str>,
    #[serde(borrow, default, rename = "continue")]
    next: Cow<'a, str>,
}

#[derive(Deserialize)]
struct EventBody<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    object: SliceBody<'a>,
}

/// A slice, or in an event of type ERROR a status.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SliceBody<'a> {
    #[serde(default)]
    code: u16,
    #[serde(borrow, default)]
    message: Cow<'a, str>,
    #[serde(borrow, default)]
    metadata: SliceMetadata<'a>,
    #[serde(borrow, default)]
    address_type: Cow<'a, str>,
    #[serde(borrow)]
    endpoints: Option<Vec<EndpointBody<'a>>>,
    ports: Option<Vec<PortBody>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SliceMetadata<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    resource_version: Cow<'a, str>,
    #[serde(borrow, default)]
    labels: Option<HashMap<Cow<'a, str>, Cow<'a, str>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EndpointBody<'a> {
    #[serde(borrow)]
    addresses: Vec<Cow<'a, str>>,
    #[serde(default)]
    conditions: Option<Conditions>,
    #[serde(borrow, default)]
    zone: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    target_ref: Option<TargetBody<'a>>,
}

#[derive(Default, Deserialize)]
struct Conditions {
    ready: Option<bool>,
    terminating: Option<bool>,
}

#[derive(Deserialize)]
struct TargetBody<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    uid: Cow<'a, str>,
}

#[derive(Deserialize)]
struct PortBody {
    #[serde(default)]
    name: Option<String>,
    port: Option<u16>,
    protocol: Option<String>,
}

#[derive(Deserialize)]
struct Status {
    message: String,
}

/// The page of a list of the slices of `service`.
pub(super) fn page(bytes: &[u8], service: &str) -> Result<Page, WireError> {
    let ListBody { metadata, items } = serde_json::from_slice(bytes)?;
    let ours = items.into_iter().flatten().filter(|body| body.is_of(service));
    Ok(Page {
        slices: ours.map(slice).collect::<Result<_, _>>()?,
        version: version(&metadata.resource_version)?,
        next: if metadata.next.is_empty() {
            None
        } else {
            Some(bounded(&metadata.next, "the token of the next page", MAX_TOKEN)?)
        },
    })
}

/// The event in a line of a watch of the slices of `service`. `None` for an empty line, and for a kind
/// of later versions of the API.
pub(super) fn event(line: &[u8], service: &str) -> Result<Option<Event>, WireError> {
    if line.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let EventBody { kind, object: body } = serde_json::from_slice(line)?;
    let version = version(&body.metadata.resource_version)?;
    let version = (!version.is_empty()).then_some(version);
    Ok(Some(match &*kind {
        "BOOKMARK" => Event::Bookmark { version },
        "ADDED" | "MODIFIED" if body.is_of(service) => Event::Changed { slice: slice(body)?, version },
        "ADDED" | "MODIFIED" | "DELETED" => Event::Removed { name: slice_name(&body.metadata.name)?, version },
        "ERROR" if body.code == 410 => Event::Expired,
        "ERROR" => Event::Failed(shown(&body.message)),
        _ => return Ok(None),
    }))
}

/// The server's message in the body of a failure; the body itself if it is no status.
pub(super) fn message(body: &[u8]) -> String {
    match serde_json::from_slice(body) {
        Ok(Status { message }) => shown(&message),
        Err(_) => shown(&String::from_utf8_lossy(body)),
    }
}

/// The beginning of a server's text, on one line.
fn shown(text: &str) -> String {
    let mut chars = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
    let line: String = chars.by_ref().take(MAX_MESSAGE).collect();
    if chars.next().is_some() { line + "..." } else { line }
}

impl SliceBody<'_> {
    /// Whether it is a slice of `service`. The server selects by this label too. A server in between
    /// that ignores the selector would otherwise add the pods of other services.
    fn is_of(&self, service: &str) -> bool {
        self.metadata.labels.as_ref().and_then(|labels| labels.get(SERVICE_LABEL)).is_some_and(|name| name == service)
    }
}

fn slice(body: SliceBody<'_>) -> Result<Slice, WireError> {
    let SliceBody { metadata, address_type, endpoints, ports, .. } = body;
    let family = match &*address_type {
        "IPv4" => Family::Ipv4,
        "IPv6" => Family::Ipv6,
        _ => Family::Other,
    };
    let endpoints = endpoints.unwrap_or_default();
    let count = endpoints.len();
    let wrong = |address: &str| WireError::Address {
        slice: shown(&metadata.name),
        address: shown(&address.chars().take(60).collect::<String>()),
        family: address_type.clone().into_owned(),
    };
    // The endpoints of a slice are in few zones.
    let mut zones: Vec<Arc<str>> = Vec::new();
    let mut read = Vec::new();
    if family != Family::Other {
        read.reserve_exact(count);
        for EndpointBody { addresses, conditions, zone, target_ref } in endpoints {
            // Further addresses are of the same endpoint; the API says to use the first.
            let Some(first) = addresses.first() else { continue };
            let address = first.parse::<IpAddr>().ok().filter(|address| family.has(*address));
            let address = address.ok_or_else(|| wrong(first))?;
            let zone = zone.filter(|zone| !zone.is_empty());
            if let Some(zone) = &zone {
                bounded(zone, "a zone", MAX_ZONE)?;
            }
            let zone = zone.map(|zone| {
                zones.iter().find(|known| ***known == *zone).cloned().unwrap_or_else(|| {
                    let new: Arc<str> = (&*zone).into();
                    zones.push(Arc::clone(&new));
                    new
                })
            });
            let target = target_ref.map(|TargetBody { name, uid }| if uid.is_empty() { name } else { uid });
            let target = target.filter(|target| !target.is_empty()).map(|target| (&*target).into());
            read.push(SliceEndpoint { address, zone, target, readiness: readiness(&conditions.unwrap_or_default()) });
        }
    }
    let is_tcp = |port: &PortBody| port.protocol.as_deref().is_none_or(|protocol| protocol == "TCP");
    let ports = ports.into_iter().flatten().filter(is_tcp).filter_map(|port| {
        let number = port.port.filter(|number| *number > 0)?;
        // Another name cannot be chosen.
        let name = port.name.unwrap_or_default();
        (name.is_empty() || super::is_label(&name)).then_some(Port { name, number })
    });
    let (name, ports) = (slice_name(&metadata.name)?, ports.collect());
    let mut slice = Slice { name, family, ports, endpoints: read, count, size: 0 };
    slice.measure(&zones);
    Ok(slice)
}

/// A condition that is not stated as false is met, says the API. `ready` is also true for the pods of
/// a service with `publishNotReadyAddresses`, even while they end: the end is the stronger word.
fn readiness(conditions: &Conditions) -> Readiness {
    match (conditions.terminating, conditions.ready) {
        (Some(true), _) => Readiness::Draining,
        (_, Some(false)) => Readiness::Starting,
        _ => Readiness::Ready,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: &str = r#"{"metadata": {"name": "web-a", "resourceVersion": "7", "managedFields": [{"x": [1]}],
        "labels": {"kubernetes.io/service-name": "web", "app": "web"}}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.1", "10.0.0.9"], "conditions": {"ready": true, "serving": true,
            "terminating": false}, "zone": "a", "nodeName": "n", "targetRef": {"kind": "Pod", "name": "web-0",
            "uid": "u0"}}, {"addresses": ["10.0.0.2"], "zone": "a", "targetRef": {"name": "web-1"}}],
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}, {"name": "dns", "port": 53, "protocol": "UDP"},
            {"name": null, "port": null}, {"port": 81}]}"#;

    fn web() -> Slice {
        let endpoint = |last, target: &str| SliceEndpoint {
            address: IpAddr::from([10, 0, 0, last]),
            zone: Some("a".into()),
            target: Some(target.into()),
            readiness: Readiness::Ready,
        };
        let mut slice = Slice {
            name: "web-a".into(),
            family: Family::Ipv4,
            ports: vec![Port { name: "http".into(), number: 8080 }, Port { name: String::new(), number: 81 }],
            endpoints: vec![endpoint(1, "u0"), endpoint(2, "web-1")],
            count: 2,
            size: 0,
        };
        slice.measure(&["a".into()]);
        slice
    }

    #[test]
    fn page_has_the_slices_of_the_service() {
        let other = SLICE.replace("\"web\", \"app\"", "\"api\", \"app\"");
        let list =
            format!(r#"{{"metadata": {{"resourceVersion": "9", "continue": "t"}}, "items": [{SLICE}, {other}]}}"#);
        let expected = Page { slices: vec![web()], version: "9".into(), next: Some("t".into()) };
        assert_eq!(page(list.as_bytes(), "web"), Ok(expected));
        for items in ["null", "[]"] {
            let list = format!(r#"{{"metadata": {{"resourceVersion": "9", "continue": ""}}, "items": {items}}}"#);
            let empty = Page { slices: Vec::new(), version: "9".into(), next: None };
            assert_eq!(page(list.as_bytes(), "web"), Ok(empty));
        }
    }

    #[test]
    fn events_are_read_by_their_type() {
        let read = |kind: &str, object: &str| {
            event(format!(r#"{{"type": "{kind}", "object": {object}}}"#).as_bytes(), "web").unwrap()
        };
        let version = Some("7".to_owned());
        for kind in ["ADDED", "MODIFIED"] {
            assert_eq!(read(kind, SLICE), Some(Event::Changed { slice: web(), version: version.clone() }));
        }
        let removed = Some(Event::Removed { name: "web-a".into(), version });
        assert_eq!(read("DELETED", SLICE), removed);
        // Another service took the slice over.
        assert_eq!(read("MODIFIED", &SLICE.replace("\"web\", \"app\"", "\"api\", \"app\"")), removed);
        let bookmark = r#"{"kind": "EndpointSlice", "metadata": {"resourceVersion": "12"}, "endpoints": null}"#;
        assert_eq!(read("BOOKMARK", bookmark), Some(Event::Bookmark { version: Some("12".into()) }));
        assert_eq!(read("ERROR", r#"{"kind": "Status", "code": 410, "message": "too old"}"#), Some(Event::Expired));
        let failed = read("ERROR", r#"{"kind": "Status", "code": 500, "message": "etcd is away"}"#);
        assert_eq!(failed, Some(Event::Failed("etcd is away".into())));
        assert_eq!(read("LATER", "{}"), None);
    }

    #[test]
    fn conditions_decide_on_the_state() {
        let cases = [
            ("{}", Readiness::Ready),
            (r#"{"ready": null}"#, Readiness::Ready),
            (r#"{"ready": true, "serving": true, "terminating": false}"#, Readiness::Ready),
            (r#"{"ready": false, "serving": false}"#, Readiness::Starting),
            (r#"{"ready": false, "serving": true, "terminating": true}"#, Readiness::Draining),
            (r#"{"ready": false, "serving": false, "terminating": true}"#, Readiness::Draining),
            // publishNotReadyAddresses.
            (r#"{"ready": true, "serving": false, "terminating": false}"#, Readiness::Ready),
            (r#"{"ready": true, "serving": true, "terminating": true}"#, Readiness::Draining),
        ];
        for (text, expected) in cases {
            assert_eq!(readiness(&serde_json::from_str(text).unwrap()), expected, "{text}");
        }
    }

    #[test]
    fn names_of_an_fqdn_slice_are_counted() {
        let fqdn = SLICE.replace("IPv4", "FQDN").replace("10.0.0.1", "a.example");
        let list = format!(r#"{{"metadata": {{"resourceVersion": "9"}}, "items": [{fqdn}]}}"#);
        let slices = page(list.as_bytes(), "web").unwrap().slices;
        assert_eq!((slices[0].family, slices[0].endpoints.len(), slices[0].count), (Family::Other, 0, 2));
    }

    #[test]
    fn texts_longer_than_any_in_kubernetes_are_errors() {
        let list = |version: &str, next: &str, item: &str| {
            let list = format!(
                r#"{{"metadata": {{"resourceVersion": "{version}", "continue": "{next}"}}, "items": [{item}]}}"#
            );
            page(list.as_bytes(), "web").map_err(|error| error.to_string())
        };
        let long = "x".repeat(MAX_TOKEN + 1);
        assert!(list(&long[1..], &long[1..], SLICE).is_ok());
        assert_eq!(list(&long, "", ""), Err("a resourceVersion has 4097 bytes, more than 4096".to_owned()));
        assert_eq!(list("9", &long, ""), Err("the token of the next page has 4097 bytes, more than 4096".to_owned()));
        let named = SLICE.replace("web-a", &long[..254]);
        let too_long = "the name of an EndpointSlice has 254 bytes, more than 253";
        assert_eq!(list("9", "", &named), Err(too_long.to_owned()));
        for kind in ["ADDED", "DELETED"] {
            let line = format!(r#"{{"type": "{kind}", "object": {named}}}"#);
            assert_eq!(event(line.as_bytes(), "web").unwrap_err().to_string(), too_long);
        }
        let zone = SLICE.replace(r#""zone": "a""#, &format!(r#""zone": "{}""#, &long[..257]));
        assert_eq!(list("9", "", &zone), Err("a zone has 257 bytes, more than 256".to_owned()));
        // A port of such a name cannot be chosen, so it is left out.
        let port = list("9", "", &SLICE.replace(r#""http""#, &format!("\"{long}\""))).unwrap();
        assert_eq!(port.slices[0].ports, [Port { name: String::new(), number: 81 }]);
    }

    #[test]
    fn message_of_the_server_is_cut_and_stays_on_one_line() {
        let long = "x".repeat(1_000);
        for text in [
            page(format!(r#"{{"metadata": "{long}"}}"#).as_bytes(), "web").unwrap_err().to_string(),
            message(format!(r#"{{"message": "a\nb{long}"}}"#).as_bytes()),
            message(format!("a\nb{long}").as_bytes()),
            match event(format!(r#"{{"type": "ERROR", "object": {{"message": "a\nb{long}"}}}}"#).as_bytes(), "web") {
                Ok(Some(Event::Failed(text))) => text,
                other => panic!("{other:?}"),
            },
        ] {
            assert!(text.ends_with("xxx...") && text.len() < 360 && !text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn empty_line_is_no_event() {
        for line in ["\n", "", " \r\n"] {
            assert_eq!(event(line.as_bytes(), "web"), Ok(None));
        }
    }

    #[test]
    fn size_of_a_slice_counts_its_texts_and_ports() {
        let size = |slice: &str| {
            let list = format!(r#"{{"metadata": {{"resourceVersion": "9"}}, "items": [{slice}]}}"#);
            page(list.as_bytes(), "web").unwrap().slices[0].size
        };
        let base = size(SLICE);
        assert_eq!(size(&SLICE.replace(r#""uid": "u0""#, &format!(r#""uid": "{}""#, "u".repeat(102)))), base + 100);
        assert_eq!(size(&SLICE.replace(r#""zone": "a""#, r#""zone": "abc""#)), base + 2);
        let ports = r#"{"port": 82}, "#.repeat(1_000);
        let more = size(&SLICE.replace(r#"{"port": 81}"#, &format!(r#"{ports}{{"port": 81}}"#)));
        assert_eq!(more, base + 1_000 * size_of::<Port>());
    }

    #[test]
    fn malformed_answers_are_errors_that_say_where() {
        let list = |items: &str| format!(r#"{{"metadata": {{"resourceVersion": "9"}}, "items": [{items}]}}"#);
        let cases = [
            ("<html>".to_owned(), "expected value at line 1"),
            (String::new(), "EOF while parsing"),
            (r#"{"kind": "Status"}"#.to_owned(), "missing field `metadata`"),
            (list(SLICE)[..300].to_owned(), "EOF while parsing"),
            (list(&SLICE.replace("8080", "808080")), "expected u16"),
            (list(&SLICE.replace("10.0.0.2", "::1")), "EndpointSlice web-a: `::1` is not an address of its type IPv4"),
            (list(&SLICE.replace("10.0.0.2", "10.0.0.300")), "`10.0.0.300` is not an address"),
        ];
        for (text, expected) in cases {
            let error = page(text.as_bytes(), "web").unwrap_err().to_string();
            assert!(error.contains(expected), "{text}\n{error}");
        }
        assert!(event(b"{\"type\": \"ADDED\"}", "web").is_err());
        assert!(event(b"{\"type\": \"ADDED\", \"obj", "web").is_err());
    }
}
