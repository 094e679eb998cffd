//! An entry in the format "combined" of Apache httpd and nginx, for their tools.
//!
//! ```text
//! CLIENT - - [TIME] "METHOD TARGET VERSION" STATUS BYTES "REFERER" "USER AGENT"
//! ```
//!
//! Escaped as nginx escapes: a quote, a backslash and each byte that is no printable ASCII become
//! `\xHH`. So a line is ASCII, and a quote always ends a field. A field that the request lacks is
//! `-`. The time is that of the request, as Apache httpd has it, in UTC.
//!
//! The format has no place for a missing status: tools want three digits. So it is nginx's code for
//! that end: 444 when the proxy sent no response, 499 when the client left before one.

use std::fmt::{self, Write as _};
use std::time::{SystemTime, UNIX_EPOCH};

use http::Version;

use super::entry::Entry;
use super::line::{MAX_PATH, MAX_TEXT};
use super::texts::Text;

/// Stands where something was cut.
const CUT: &str = "...";
/// nginx: the client closed the connection before the response.
const CLIENT_LEFT: u16 = 499;
/// nginx: the server closed the connection without a response.
const NO_RESPONSE: u16 = 444;

pub(super) fn write(line: &mut String, entry: &Entry) -> fmt::Result {
    match entry.client.ip() {
        Some(ip) => write!(line, "{} - - [", ip.to_canonical())?,
        // As nginx names clients of a Unix socket.
        None => line.push_str("unix: - - ["),
    }
    time(line, entry.at)?;
    line.write_str("] \"")?;
    escape(line, entry.method.as_str().as_bytes(), MAX_TEXT)?;
    line.write_char(' ')?;
    match (entry.text(Text::Path), entry.text(Text::Authority)) {
        (Some(path), _) => escape(line, path, MAX_PATH)?,
        // Of `CONNECT`.
        (None, Some(authority)) => escape(line, authority, MAX_TEXT)?,
        (None, None) => line.write_char('-')?,
    }
    write!(line, " {}\" {} {}", protocol(entry.protocol), status(entry), entry.bytes_out)?;
    for field in [Text::Referer, Text::UserAgent] {
        line.write_str(" \"")?;
        escape(line, entry.text(field).unwrap_or(b"-"), MAX_TEXT)?;
        line.write_char('"')?;
    }
    line.write_str("\n")
}

fn status(entry: &Entry) -> u16 {
    let missing = if entry.reason.is_some() { NO_RESPONSE } else { CLIENT_LEFT };
    entry.status.map_or(missing, |status| status.as_u16())
}

/// As nginx names them: with a minor version always.
fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_09 => "HTTP/0.9",
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        Version::HTTP_3 => "HTTP/3.0",
        _ => "HTTP/1.1",
    }
}

/// Writes `10/Oct/2000:13:55:36 +0000`.
fn time(line: &mut String, at: SystemTime) -> fmt::Result {
    // A clock before 1970 is wrong anyway, and has no date of HTTP.
    let text = httpdate::fmt_http_date(at.max(UNIX_EPOCH));
    // `Tue, 10 Oct 2000 13:55:36 GMT`, whose fields have fixed places.
    let part = |from, to| text.get(from..to).unwrap_or_default();
    write!(line, "{}/{}/{}:{} +0000", part(5, 7), part(8, 11), part(12, 16), part(17, 25))
}

fn escape(line: &mut String, value: &[u8], most: usize) -> fmt::Result {
    let kept = &value[..value.len().min(most)];
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    for chunk in kept.chunk_by(|a, b| is_plain(*a) == is_plain(*b)) {
        match str::from_utf8(chunk) {
            // Nearly all of a text, at once.
            Ok(plain) if chunk.first().is_some_and(|byte| is_plain(*byte)) => line.write_str(plain)?,
            _ => chunk.iter().try_for_each(|byte| write!(line, "\\x{byte:02X}"))?,
        }
    }
    if kept.len() < value.len() { line.write_str(CUT) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use http::{HeaderValue, Method, Request, StatusCode};
    use proptest::prelude::*;

    use super::*;
    use crate::peer::Peer;

    fn entry(request: &Request<()>) -> Entry {
        let peer = Peer {
            address: ([10, 0, 0, 9], 51312).into(),
            local: ([10, 0, 0, 1], 80).into(),
            user: None,
            tls: None,
            is_unnamed: false,
        };
        let mut entry = Entry::new(&peer, &Arc::from("public"), request);
        entry.set_customer(Some(b"acme"));
        entry.at = UNIX_EPOCH + Duration::from_secs(971_186_136);
        entry
    }

    fn line(entry: &Entry) -> String {
        let mut line = String::new();
        write(&mut line, entry).unwrap();
        line
    }

    fn request(fields: &[(&'static str, &[u8])]) -> Request<()> {
        let mut request = Request::get("/apache_pb.gif?a=1").body(()).unwrap();
        for (name, value) in fields {
            request.headers_mut().insert(*name, HeaderValue::from_bytes(value).unwrap());
        }
        request
    }

    #[test]
    fn a_served_request_is_a_line_of_the_format_as_published() {
        let mut entry = entry(&request(&[
            ("host", b"www.example.com"),
            ("referer", b"http://www.example.com/start.html"),
            ("user-agent", b"Mozilla/4.08 [en] (Win98; I ;Nav)"),
        ]));
        (entry.status, entry.bytes_out) = (Some(StatusCode::OK), 2326);
        assert_eq!(
            line(&entry),
            "10.0.0.9 - - [10/Oct/2000:13:55:36 +0000] \"GET /apache_pb.gif?a=1 HTTP/1.1\" 200 2326 \
             \"http://www.example.com/start.html\" \"Mozilla/4.08 [en] (Win98; I ;Nav)\"\n"
        );
    }

    #[test]
    fn missing_fields_are_dashes_and_versions_have_two_numbers() {
        let mut tunnel = Request::new(());
        *tunnel.method_mut() = Method::CONNECT;
        *tunnel.uri_mut() = "db.example:5432".parse().unwrap();
        *tunnel.version_mut() = Version::HTTP_2;
        let mut entry = entry(&tunnel);
        entry.status = Some(StatusCode::BAD_GATEWAY);
        entry.client = "[::ffff:192.0.2.7]:80".parse().unwrap();
        assert!(line(&entry).starts_with("192.0.2.7 - - ["), "{}", line(&entry));
        assert!(
            line(&entry).ends_with("] \"CONNECT db.example:5432 HTTP/2.0\" 502 0 \"-\" \"-\"\n"),
            "{}",
            line(&entry)
        );
        entry.client = "[2001:db8::1]:80".parse().unwrap();
        assert!(line(&entry).starts_with("2001:db8::1 - - ["), "{}", line(&entry));
    }

    #[test]
    fn a_missing_status_is_the_code_of_nginx_for_that_end() {
        let mut entry = entry(&request(&[]));
        assert!(line(&entry).contains("HTTP/1.1\" 499 0 "), "{}", line(&entry));
        entry.reason = Some("black-hole");
        assert!(line(&entry).contains("HTTP/1.1\" 444 0 "), "{}", line(&entry));
    }

    #[test]
    fn quotes_backslashes_and_bytes_beyond_ascii_are_escaped_as_nginx_does() {
        let mut line = String::new();
        escape(&mut line, b"a\"b\\c\n\r\t\0\x1b[2J \x7f~", 100).unwrap();
        escape(&mut line, "ä".as_bytes(), 100).unwrap();
        escape(&mut line, b"\xff", 100).unwrap();
        assert_eq!(line, r"a\x22b\x5Cc\x0A\x0D\x09\x00\x1B[2J \x7F~\xC3\xA4\xFF");
    }

    #[test]
    fn long_texts_are_cut_and_marked() {
        let long = "x".repeat(9_000);
        let line = line(&entry(&request(&[("referer", long.as_bytes()), ("user-agent", long.as_bytes())])));
        assert_eq!(line.matches("xxx...\"").count(), 2, "{line}");
        assert!(line.len() < 2 * MAX_TEXT + 200, "{}", line.len());
    }

    #[test]
    fn a_clock_before_1970_gives_a_date() {
        let mut line = String::new();
        time(&mut line, UNIX_EPOCH - Duration::from_secs(9)).unwrap();
        assert_eq!(line, "01/Jan/1970:00:00:00 +0000");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn no_field_forges_a_line_or_leaves_its_quotes(value in proptest::collection::vec(any::<u8>(), 0..700)) {
            let value: Vec<u8> = value.into_iter().filter(|b| *b == b'\t' || *b >= 32 && *b != 127).collect();
            let line = line(&entry(&request(&[("referer", &value), ("user-agent", &value)])));
            prop_assert!(line.is_ascii(), "{}", line);
            prop_assert_eq!(line.bytes().filter(|b| b.is_ascii_control()).count(), 1, "{}", line);
            prop_assert!(line.ends_with("\"\n"));
            prop_assert_eq!(line.matches('"').count(), 6, "{}", line);
            let is_escape = |at: usize| line[at + 1..].starts_with('x')
                && line[at + 2..at + 4].bytes().all(|b| b.is_ascii_digit() || matches!(b, b'A'..=b'F'));
            prop_assert!(line.match_indices('\\').all(|(at, _)| is_escape(at)), "{}", line);
        }
    }
}
