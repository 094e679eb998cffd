//! The answers and the server-sent events of an admin API.
//!
//! All text is made printable here, at its entry. Names of customers and backends come from strangers,
//! and a view that forgot one would let it control the terminal.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use plimsoll_proxy::printable;
use serde_json::Value;
use tokio::time::timeout;

use super::failure::Failure;
use super::fetch::{Connection, exchange, send};

/// Time to connect, and for the head of an answer. A proxy that is alive takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);
/// Silence in a stream that sends something each second.
const MAX_SILENCE: Duration = Duration::from_secs(5);
/// Largest event. One with ten minutes of history has 200 KB, and a program may follow 64 proxies.
const MAX_EVENT: usize = 2 << 20;

/// An event.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    /// Its name.
    pub(crate) name: String,
    /// Its data: JSON on one line.
    pub(crate) data: String,
}

/// Sends a request, and reads its answer: JSON in which all texts are printable.
pub(crate) async fn ask(admin: &str, method: Method, path: &str) -> Result<Value, Failure> {
    let text = ask_text(admin, method, path).await?;
    Ok(clean(serde_json::from_str(&text).map_err(|error| Failure::no_json(&error))?))
}

/// The same as text.
pub(crate) async fn ask_text(admin: &str, method: Method, path: &str) -> Result<String, Failure> {
    let (status, body) = exchange(admin, method, path, PATIENCE).await?;
    if status >= 300 {
        return Err(Failure::refused(status, &body));
    }
    String::from_utf8(body.into()).map_err(|_| Failure::Foreign("no JSON of a proxy: it is not UTF-8".into()))
}

/// JSON whose texts can be written to a terminal.
pub(crate) fn clean(json: Value) -> Value {
    match json {
        Value::String(text) => Value::String(printable(&text).into_owned()),
        Value::Array(values) => Value::Array(values.into_iter().map(clean).collect()),
        Value::Object(fields) => Value::Object(
            fields.into_iter().map(|(name, value)| (printable(&name).into_owned(), clean(value))).collect(),
        ),
        other => other,
    }
}

/// JSON on one line that can be written to a terminal: the escapes of [`printable`] are those of JSON,
/// so it means the same.
pub(crate) fn clean_line(json: &str) -> String {
    printable(json.trim_end()).into_owned()
}

/// A stream of events.
#[derive(Debug)]
pub(crate) struct Events {
    body: Incoming,
    _connection: Connection,
    parser: Parser,
    ready: VecDeque<Event>,
}

impl Events {
    /// Opens the stream at `path`.
    pub(crate) async fn open(admin: &str, path: &str) -> Result<Self, Failure> {
        let sent = timeout(PATIENCE, send(admin, Method::GET, path)).await;
        let answer = sent.map_err(|_| Failure::Silent(PATIENCE))??;
        if answer.response.status() != 200 {
            let whole = timeout(PATIENCE, answer.whole()).await;
            let (status, body) = whole.map_err(|_| Failure::Silent(PATIENCE))??;
            return Err(Failure::refused(status, &body));
        }
        let (body, _connection) = (answer.response.into_body(), answer.connection);
        Ok(Self { body, _connection, parser: Parser::default(), ready: VecDeque::new() })
    }

    /// The next event; `Ok(None)` at the end of the stream.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Option<Event>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            let frame = timeout(MAX_SILENCE, self.body.frame()).await;
            let frame = frame.with_context(|| format!("silent for {} s", MAX_SILENCE.as_secs()))?;
            let Some(frame) = frame else { return Ok(None) };
            if let Ok(data) = frame.context("the connection broke")?.into_data() {
                self.ready.extend(self.parser.push(&data)?);
            }
        }
    }
}

/// Cuts a stream into events.
#[derive(Debug, Default)]
struct Parser {
    /// The line that has no end yet.
    line: Vec<u8>,
    name: String,
    data: String,
}

impl Parser {
    fn push(&mut self, bytes: &Bytes) -> anyhow::Result<Vec<Event>> {
        let mut events = Vec::new();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if self.line.len() + self.data.len() > MAX_EVENT {
                bail!("an event has more than {MAX_EVENT} bytes");
            }
            if part.ends_with(b"\n") {
                events.extend(self.end_line());
            }
        }
        Ok(events)
    }

    fn end_line(&mut self) -> Option<Event> {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end_matches(['\r', '\n']);
        if line.is_empty() {
            let (name, data) = (std::mem::take(&mut self.name), std::mem::take(&mut self.data));
            return (!data.is_empty()).then_some(Event { name, data });
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" => self.data.push_str(value),
            // A comment, the time to retry, and fields of later versions.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_are_found_wherever_the_stream_is_cut() {
        let stream = b"retry: 1000\n\n: quiet\n\nevent: live\r\ndata: {\"a\":1}\r\n\r\nevent: history\ndata: {}\n\n";
        let event = |name: &str, data: &str| Event { name: name.to_owned(), data: data.to_owned() };
        let expected = [event("live", "{\"a\":1}"), event("history", "{}")];
        for size in 1..stream.len() {
            let mut parser = Parser::default();
            let parts = stream.chunks(size).map(Bytes::copy_from_slice);
            let events: Vec<Event> = parts.flat_map(|part| parser.push(&part).unwrap()).collect();
            assert_eq!(events, expected, "cut each {size} bytes");
        }
    }

    #[test]
    fn event_without_an_end_is_an_error() {
        let mut parser = Parser::default();
        let part = Bytes::from(vec![b'a'; 1 << 20]);
        assert!((0..9).any(|_| parser.push(&part).is_err()));
    }

    #[test]
    fn texts_control_no_terminal_and_json_means_the_same() {
        let hostile = json!({ "a\u{9b}2J": ["\u{1b}[31m", { "b": "\u{202e}x\n" }], "n": 1 });
        assert_eq!(
            clean(hostile.clone()).to_string(),
            r#"{"a\\u009b2J":["\\u001b[31m",{"b":"\\u202ex\\u000a"}],"n":1}"#
        );
        let line = clean_line(&format!("{hostile}\n"));
        assert!(line.chars().all(|c| !c.is_control() && c != '\u{202e}'), "{line}");
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), hostile);
    }
}
