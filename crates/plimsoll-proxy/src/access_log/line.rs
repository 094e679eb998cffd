//! How an entry is written: as a JSON object, for a person, or in the format `combined`.
//!
//! In the first two a client's text stands in quotes. Quotes, backslashes, control characters and the line ends of
//! Unicode are escaped, bytes that are no UTF-8 replaced, and long texts cut. So no request can
//! forge a line or a field, or control a terminal. Unknown fields are left out.

use std::cell::RefCell;
use std::fmt::{self, Write as _};
use std::time::Duration;

use http::Version;

use super::combined;
use super::entry::Entry;
use super::texts::Text;
use crate::config::LogFormat;
use crate::printable::is_printable;

/// Of a path with its query. Longer ones are attacks or tracking; the cut is marked.
pub(super) const MAX_PATH: usize = 2048;
/// Of any other text that a client chose.
pub(super) const MAX_TEXT: usize = 512;
/// Stands where something was cut.
const CUT: &str = "…";

/// Makes the line of `entry`, which took `duration`, and hands it to `take`.
pub(super) fn with<T>(entry: &Entry, duration: Duration, format: LogFormat, take: impl FnOnce(&str) -> T) -> T {
    thread_local! {
        /// Kept, so that a line costs no allocation.
        static LINE: RefCell<String> = const { RefCell::new(String::new()) };
    }
    LINE.with_borrow_mut(|line| {
        line.clear();
        let written = match format {
            LogFormat::Json => json(line, entry, duration),
            LogFormat::Human => for_people(line, entry, duration),
            LogFormat::Combined => combined::write(line, entry),
        };
        written.expect("writing to a string does not fail");
        take(line)
    })
}

fn json(line: &mut String, entry: &Entry, duration: Duration) -> fmt::Result {
    write!(line, "{{\"time\":\"{}\"", humantime::format_rfc3339_millis(entry.at))?;
    write!(line, ",\"client\":\"{}\"", entry.client)?;
    text(line, ",\"listener\":", entry.listener.as_bytes(), MAX_TEXT)?;
    optional(line, ",\"cluster\":", entry.cluster.as_deref().map(str::as_bytes))?;
    optional(line, ",\"customer\":", entry.customer())?;
    optional(line, ",\"criticality\":", entry.criticality.map(|level| level.name().as_bytes()))?;
    text(line, ",\"method\":", entry.method.as_str().as_bytes(), MAX_TEXT)?;
    write!(line, ",\"scheme\":\"{}\"", entry.scheme)?;
    text(line, ",\"authority\":", entry.text(Text::Authority).unwrap_or_default(), MAX_TEXT)?;
    text(line, ",\"path\":", entry.text(Text::Path).unwrap_or_default(), MAX_PATH)?;
    write!(line, ",\"protocol\":\"{}\"", protocol(entry.protocol))?;
    if let Some(status) = entry.status {
        write!(line, ",\"status\":{}", status.as_u16())?;
    }
    write!(line, ",\"bytes_in\":{},\"bytes_out\":{}", entry.bytes_in, entry.bytes_out)?;
    write!(line, ",\"duration_ms\":{}", Millis(duration))?;
    if let Some(after) = entry.head_after {
        write!(line, ",\"head_ms\":{}", Millis(after))?;
    }
    if let Some(backend) = entry.backend {
        write!(line, ",\"backend\":\"{backend}\"")?;
    }
    write!(line, ",\"attempts\":{}", entry.attempts)?;
    for (key, cost) in [("expected_cpu_s", entry.expected), ("used_cpu_s", entry.used)] {
        if let Some(cost) = cost {
            write!(line, ",\"{key}\":{cost:.6}")?;
        }
    }
    write!(line, ",\"complete\":{}", entry.complete)?;
    optional(line, ",\"reason\":", entry.reason.map(str::as_bytes))?;
    optional(line, ",\"cause\":", entry.cause.map(str::as_bytes))?;
    optional(line, ",\"degraded\":", entry.degraded.map(str::as_bytes))?;
    optional(line, ",\"request_id\":", entry.request_id())?;
    optional(line, ",\"response_id\":", entry.response_id())?;
    optional(line, ",\"trace_parent\":", entry.text(Text::TraceParent))?;
    optional(line, ",\"user_agent\":", entry.text(Text::UserAgent))?;
    optional(line, ",\"tls\":", entry.tls_version.map(str::as_bytes))?;
    optional(line, ",\"server_name\":", entry.server_name.as_deref().map(str::as_bytes))?;
    line.write_str("}\n")
}

fn for_people(line: &mut String, entry: &Entry, duration: Duration) -> fmt::Result {
    write!(line, "{} {}", humantime::format_rfc3339_millis(entry.at), entry.client)?;
    text(line, " listener=", entry.listener.as_bytes(), MAX_TEXT)?;
    line.write_str(" \"")?;
    escape(line, entry.method.as_str().as_bytes(), MAX_TEXT)?;
    write!(line, " {}://", entry.scheme)?;
    escape(line, entry.text(Text::Authority).unwrap_or_default(), MAX_TEXT)?;
    escape(line, entry.text(Text::Path).unwrap_or_default(), MAX_PATH)?;
    write!(line, " {}\"", protocol(entry.protocol))?;
    match entry.status {
        Some(status) => write!(line, " {}", status.as_u16())?,
        None => line.write_str(" -")?,
    }
    write!(line, " in={}B out={}B took={}ms", entry.bytes_in, entry.bytes_out, Millis(duration))?;
    if let Some(after) = entry.head_after {
        write!(line, " head={}ms", Millis(after))?;
    }
    optional(line, " cluster=", entry.cluster.as_deref().map(str::as_bytes))?;
    optional(line, " customer=", entry.customer())?;
    if let Some(criticality) = entry.criticality {
        write!(line, " criticality={}", criticality.name())?;
    }
    if let Some(backend) = entry.backend {
        write!(line, " backend={backend}")?;
    }
    write!(line, " attempts={}", entry.attempts)?;
    for (key, cost) in [("expected", entry.expected), ("used", entry.used)] {
        if let Some(cost) = cost {
            write!(line, " {key}={cost:.6}cpu-s")?;
        }
    }
    if !entry.complete {
        line.write_str(" incomplete")?;
    }
    optional(line, " reason=", entry.reason.map(str::as_bytes))?;
    optional(line, " cause=", entry.cause.map(str::as_bytes))?;
    optional(line, " degraded=", entry.degraded.map(str::as_bytes))?;
    optional(line, " id=", entry.request_id())?;
    optional(line, " response_id=", entry.response_id())?;
    optional(line, " trace=", entry.text(Text::TraceParent))?;
    optional(line, " agent=", entry.text(Text::UserAgent))?;
    optional(line, " tls=", entry.tls_version.map(str::as_bytes))?;
    optional(line, " server_name=", entry.server_name.as_deref().map(str::as_bytes))?;
    line.write_str("\n")
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_09 => "HTTP/0.9",
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2",
        Version::HTTP_3 => "HTTP/3",
        _ => "HTTP/1.1",
    }
}

/// To the microsecond.
struct Millis(Duration);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0.as_millis(), self.0.subsec_micros() % 1000)
    }
}

fn optional(line: &mut String, label: &str, value: Option<&[u8]>) -> fmt::Result {
    value.map_or(Ok(()), |value| text(line, label, value, MAX_TEXT))
}

fn text(line: &mut String, label: &str, value: &[u8], most: usize) -> fmt::Result {
    line.write_str(label)?;
    line.write_char('"')?;
    escape(line, value, most)?;
    line.write_char('"')
}

/// Writes the content of a JSON string.
fn escape(line: &mut String, value: &[u8], most: usize) -> fmt::Result {
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    if value.len() <= most
        && value.iter().all(is_plain)
        && let Ok(plain) = str::from_utf8(value)
    {
        // Nearly all of them, at once.
        return line.write_str(plain);
    }
    let cut = value.len() > most;
    // Not within a character.
    let end = if cut { (0..=most).rev().find(|at| value[*at] & 0xc0 != 0x80).unwrap_or(0) } else { value.len() };
    for chunk in value[..end].utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' => line.write_str("\\\"")?,
                '\\' => line.write_str("\\\\")?,
                c if !is_printable(c) => write!(line, "\\u{:04x}", u32::from(c))?,
                c => line.write_char(c)?,
            }
        }
        if !chunk.invalid().is_empty() {
            line.write_char(char::REPLACEMENT_CHARACTER)?;
        }
    }
    if cut { line.write_str(CUT) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use http::{HeaderMap, HeaderValue, Request, StatusCode};
    use plimsoll_core::Criticality;
    use plimsoll_core::shedding::Label;
    use proptest::prelude::*;

    use super::*;
    use crate::peer::{Peer, Tls};

    fn entry() -> Entry {
        entry_of(&[("host", b"shop.example"), ("user-agent", b"curl/8.1")])
    }

    fn entry_of(fields: &[(&'static str, &[u8])]) -> Entry {
        let mut request = Request::get("/a?b=1")
            .header("x-request-id", "7f3a")
            .header("traceparent", "00-4bf9-00f0-01")
            .body(())
            .unwrap();
        for (name, value) in fields {
            request.headers_mut().insert(*name, HeaderValue::from_bytes(value).unwrap());
        }
        let mut entry = entry_for(&request);
        entry.at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
        entry
    }

    fn entry_for(request: &Request<()>) -> Entry {
        let peer = Peer {
            address: ([10, 0, 0, 9], 51312).into(),
            local: ([10, 0, 0, 1], 443).into(),
            user: None,
            tls: Some(Tls {
                server_name: Some("shop.example".into()),
                client_names: Box::default(),
                version: "TLSv1.3",
                is_http2: false,
            }),
            is_unnamed: false,
        };
        let mut entry = Entry::new(&peer, &Arc::from("public"), request);
        entry.set_customer(Some(b"ac\"me"));
        entry
    }

    fn line(entry: &Entry, human: bool) -> String {
        let format = if human { LogFormat::Human } else { LogFormat::Json };
        with(entry, Duration::from_micros(12_034), format, str::to_owned)
    }

    #[test]
    fn a_served_request_is_one_line_in_both_formats() {
        let mut entry = entry();
        entry.cluster = Some("web".into());
        entry.status = Some(StatusCode::OK);
        entry.head_after = Some(Duration::from_micros(9_001));
        entry.backend = Some(([10, 0, 0, 2], 80).into());
        (entry.attempts, entry.bytes_in, entry.bytes_out, entry.complete) = (2, 7, 512, true);
        entry.criticality = Some(Criticality::SheddablePlus);
        (entry.expected, entry.used) = (Some(0.0025), Some(0.002_125));
        insta::assert_snapshot!(line(&entry, false), @r#"{"time":"2023-11-14T22:13:20.123Z","client":"10.0.0.9:51312","listener":"public","cluster":"web","customer":"ac\"me","criticality":"sheddable-plus","method":"GET","scheme":"https","authority":"shop.example","path":"/a?b=1","protocol":"HTTP/1.1","status":200,"bytes_in":7,"bytes_out":512,"duration_ms":12.034,"head_ms":9.001,"backend":"10.0.0.2:80","attempts":2,"expected_cpu_s":0.002500,"used_cpu_s":0.002125,"complete":true,"request_id":"7f3a","trace_parent":"00-4bf9-00f0-01","user_agent":"curl/8.1","tls":"TLSv1.3","server_name":"shop.example"}"#);
        insta::assert_snapshot!(line(&entry, true), @r#"2023-11-14T22:13:20.123Z 10.0.0.9:51312 listener="public" "GET https://shop.example/a?b=1 HTTP/1.1" 200 in=7B out=512B took=12.034ms head=9.001ms cluster="web" customer="ac\"me" criticality=sheddable-plus backend=10.0.0.2:80 attempts=2 expected=0.002500cpu-s used=0.002125cpu-s id="7f3a" trace="00-4bf9-00f0-01" agent="curl/8.1" tls="TLSv1.3" server_name="shop.example""#);
    }

    #[test]
    fn a_refused_request_says_why_and_one_that_was_left_has_no_status() {
        let mut refused = entry();
        (refused.status, refused.reason, refused.complete) = (Some(StatusCode::NOT_FOUND), Some("no-route"), true);
        assert!(
            line(&refused, false).contains("\"status\":404")
                && line(&refused, false).contains("\"reason\":\"no-route\"")
        );
        assert!(line(&entry(), true).contains("HTTP/1.1\" - in=0B") && line(&entry(), true).contains(" incomplete "));
    }

    #[test]
    fn a_shed_request_has_attempts_cause_and_cost_too() {
        let mut shed = entry();
        shed.criticality = Some(Criticality::Critical);
        (shed.reason, shed.cause, shed.expected) = (Some("no-backend"), Some("connect-failed"), Some(0.5));
        let (json, human) = (line(&shed, false), line(&shed, true));
        assert!(json.contains(
            r#""attempts":0,"expected_cpu_s":0.500000,"complete":false,"reason":"no-backend","cause":"connect-failed""#
        ));
        assert!(
            human.contains(
                r#" attempts=0 expected=0.500000cpu-s incomplete reason="no-backend" cause="connect-failed""#
            )
        );
    }

    #[test]
    fn the_id_of_the_response_is_logged_where_it_differs() {
        let ids = |sent: Option<&str>, answered: Option<&str>, own: Option<&str>| {
            let mut request = Request::new(());
            let insert = |headers: &mut HeaderMap, id: &str| {
                headers.insert("x-request-id", HeaderValue::from_str(id).unwrap());
            };
            sent.into_iter().for_each(|id| insert(request.headers_mut(), id));
            let mut entry = entry_for(&request);
            let mut head = HeaderMap::new();
            answered.into_iter().for_each(|id| insert(&mut head, id));
            entry.on_answer(StatusCode::OK, &head, own.map(Label::from));
            let text = |id: Option<&[u8]>| id.map(|id| String::from_utf8(id.to_vec()).unwrap());
            (text(entry.request_id()), text(entry.response_id()))
        };
        let id = |id: &str| Some(id.to_owned());
        assert_eq!(ids(None, None, None), (None, None));
        assert_eq!(ids(Some("a"), Some("a"), None), (id("a"), None));
        assert_eq!(ids(None, Some("own"), Some("own")), (id("own"), None), "made by the proxy, and told");
        assert_eq!(ids(None, None, Some("own")), (id("own"), None), "made by the proxy for `explain`");
        assert_eq!(ids(Some("a"), Some("b"), None), (id("a"), id("b")), "the backend's");
        assert_eq!(ids(None, Some("b"), None), (None, id("b")));
        assert_eq!(ids(Some("too long"), Some("own"), Some("own")), (id("too long"), id("own")));
        let long = "x".repeat(9_000);
        assert_eq!(ids(None, Some(&long), None).1.map(|id| id.len()), Some(MAX_TEXT + 1));
    }

    #[test]
    fn long_texts_are_cut_and_marked() {
        let long = entry_of(&[("user-agent", "a".repeat(60_000).as_bytes())]);
        let line = line(&long, false);
        assert!(line.len() < 2 * MAX_TEXT + MAX_PATH && line.contains("a…\""), "{line}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn no_field_forges_a_line_or_leaves_its_quotes(value in proptest::collection::vec(any::<u8>(), 0..700)) {
            let value: Vec<u8> = value.into_iter().filter(|b| *b == b'\t' || *b >= 32 && *b != 127).collect();
            let forged = entry_of(&[("host", &value), ("user-agent", &value)]);
            for human in [false, true] {
                let line = line(&forged, human);
                prop_assert_eq!(line.chars().filter(|c| c.is_control()).count(), 1, "{}", line);
                prop_assert!(line.ends_with('\n'));
                let bare = line.replace("\\\\", "").replace("\\\"", "");
                prop_assert_eq!(bare.matches('"').count() % 2, 0, "{}", line);
            }
        }
    }

    #[test]
    fn line_ends_of_unicode_and_bytes_that_are_no_text_are_escaped() {
        let mut line = String::new();
        escape(&mut line, "a\u{2028}b\u{85}c\u{202e}\n\r\0\"\\".as_bytes(), 100).unwrap();
        escape(&mut line, b"\xff\x1b[2J", 100).unwrap();
        assert_eq!(line, "a\\u2028b\\u0085c\\u202e\\u000a\\u000d\\u0000\\\"\\\\\u{fffd}\\u001b[2J");
    }
}
