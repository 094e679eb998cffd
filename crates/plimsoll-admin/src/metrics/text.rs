//! The OpenMetrics text format, written in parts.
//!
//! Ten thousand backends make an answer of 19 MB. It is written in parts of some 128 KB, each of
//! which leaves before the next one is made, so it needs no memory of its size. And it is written by
//! hand: a library that formats each sample through traits and a list of labels took three times
//! the CPU.
//!
//! Source: the OpenMetrics specification 1.0, "Text Format".

use std::fmt;

/// Size of a part, in bytes. Each one wakes the thread of the connection: parts of 32 KB took twice
/// the CPU.
const PART: usize = 128 << 10;

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A count that only grows. Its name ends with `_total`.
    Counter,
    /// A value that rises and falls.
    Gauge,
    /// Counts by bucket.
    Histogram,
}

impl Kind {
    /// The name in the format.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Takes the parts, in order. An error ends the writing: nobody reads any more.
pub trait Parts {
    /// Takes a part, and leaves an empty buffer.
    ///
    /// # Errors
    /// Nobody reads the parts any more.
    fn take(&mut self, part: &mut Vec<u8>) -> fmt::Result;
}

/// All parts together, for answers of a bounded size.
#[derive(Debug, Default)]
pub struct Whole(pub Vec<u8>);

impl Parts for Whole {
    fn take(&mut self, part: &mut Vec<u8>) -> fmt::Result {
        self.0.append(part);
        Ok(())
    }
}

/// Writes metrics.
pub struct Writer<'p> {
    parts: &'p mut dyn Parts,
    buffer: Vec<u8>,
    /// The first error. Nothing is written after it.
    result: fmt::Result,
    /// The present metric's name with its prefix, and without the suffix of its kind.
    name: String,
    kind: Kind,
    labels: &'static [&'static str],
}

impl<'p> Writer<'p> {
    /// A writer without a metric yet.
    pub fn new(parts: &'p mut dyn Parts) -> Self {
        let buffer = Vec::with_capacity(PART + 1_024);
        Self { parts, buffer, result: Ok(()), name: String::new(), kind: Kind::Gauge, labels: &[] }
    }

    /// Begins a metric: its samples follow. `name` has the prefix of the program, and for a counter the
    /// suffix `_total`.
    pub fn begin(&mut self, prefix: &str, name: &str, kind: Kind, labels: &'static [&'static str], help: &str) {
        let family = name.strip_suffix("_total").filter(|_| kind == Kind::Counter).unwrap_or(name);
        self.name.clear();
        self.name.push_str(prefix);
        self.name.push_str(family);
        (self.kind, self.labels) = (kind, labels);
        for (keyword, text) in [("# HELP ", help), ("# TYPE ", kind.name())] {
            self.text(keyword);
            self.buffer.extend_from_slice(self.name.as_bytes());
            self.text(" ");
            escape(&mut self.buffer, text);
            self.text("\n");
        }
        if kind == Kind::Counter {
            self.name.push_str("_total");
        }
    }

    /// The kind of the present metric.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// A sample of a counter of whole things.
    pub fn count(&mut self, labels: &[&str], count: u64) {
        self.sample("", labels, None);
        self.integer(count);
        self.end_line();
    }

    /// A sample of a gauge, or of a counter of a quantity such as seconds.
    pub fn quantity(&mut self, labels: &[&str], quantity: f64) {
        self.sample("", labels, None);
        self.float(quantity);
        self.end_line();
    }

    /// A sample of a histogram: counts of each bucket alone, by upper bound.
    pub fn histogram(&mut self, labels: &[&str], sum: f64, buckets: impl IntoIterator<Item = (f64, u64)>) {
        let buckets: Vec<(f64, u64)> = buckets.into_iter().collect();
        self.sample("_sum", labels, None);
        self.float(sum);
        self.end_line();
        self.sample("_count", labels, None);
        self.integer(buckets.iter().map(|(_, count)| count).sum());
        self.end_line();
        let mut below = 0;
        for (bound, count) in buckets {
            below += count;
            let bound = if bound.is_finite() { format!("{bound:?}") } else { "+Inf".to_owned() };
            self.sample("_bucket", labels, Some(&bound));
            self.integer(below);
            self.end_line();
        }
    }

    /// Ends the answer.
    ///
    /// # Errors
    /// Nobody reads it any more.
    pub fn finish(mut self) -> fmt::Result {
        self.text("# EOF\n");
        self.leave();
        self.result
    }

    /// Whether somebody still reads.
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.result.is_ok()
    }

    /// A sample up to its value.
    fn sample(&mut self, suffix: &str, values: &[&str], bound: Option<&str>) {
        debug_assert_eq!(values.len(), self.labels.len(), "labels of {}", self.name);
        self.buffer.extend_from_slice(self.name.as_bytes());
        self.text(suffix);
        let mut separator = "{";
        let labels =
            bound.map(|bound| ("le", bound)).into_iter().chain(self.labels.iter().copied().zip(values.iter().copied()));
        for (label, value) in labels {
            self.buffer.extend_from_slice(separator.as_bytes());
            self.buffer.extend_from_slice(label.as_bytes());
            self.buffer.extend_from_slice(b"=\"");
            escape(&mut self.buffer, value);
            separator = "\",";
        }
        self.text(if separator == "{" { " " } else { "\"} " });
    }

    fn text(&mut self, text: &str) {
        self.buffer.extend_from_slice(text.as_bytes());
    }

    fn integer(&mut self, value: u64) {
        self.text(itoa::Buffer::new().format(value));
    }

    fn float(&mut self, value: f64) {
        self.text(ryu::Buffer::new().format(value));
    }

    fn end_line(&mut self) {
        self.buffer.push(b'\n');
        if self.buffer.len() >= PART {
            self.leave();
        }
    }

    fn leave(&mut self) {
        if self.result.is_ok() {
            self.result = self.parts.take(&mut self.buffer);
        }
        self.buffer.clear();
    }
}

/// Writes a text with the characters escaped that would end it.
fn escape(out: &mut Vec<u8>, text: &str) {
    if text.bytes().all(|byte| byte != b'"' && byte != b'\\' && byte != b'\n') {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    for byte in text.bytes() {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            byte => out.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Writer<'_>)) -> String {
        let mut whole = Whole::default();
        let mut writer = Writer::new(&mut whole);
        write(&mut writer);
        writer.finish().unwrap();
        String::from_utf8(whole.0).unwrap()
    }

    #[test]
    fn samples_are_written_as_the_format_says() {
        let text = written(|out| {
            out.begin("p_", "requests_total", Kind::Counter, &["cluster"], "Requests");
            out.count(&["web"], 7);
            out.begin("p_", "up", Kind::Gauge, &[], "Up");
            out.quantity(&[], 1.0);
            out.begin("p_", "seconds", Kind::Histogram, &["cluster"], "Time");
            out.histogram(&["web"], 1.5, [(0.25, 2), (f64::INFINITY, 1)]);
        });
        let expected = r#"# HELP p_requests Requests
# TYPE p_requests counter
p_requests_total{cluster="web"} 7
# HELP p_up Up
# TYPE p_up gauge
p_up 1.0
# HELP p_seconds Time
# TYPE p_seconds histogram
p_seconds_sum{cluster="web"} 1.5
p_seconds_count{cluster="web"} 3
p_seconds_bucket{le="0.25",cluster="web"} 2
p_seconds_bucket{le="+Inf",cluster="web"} 3
# EOF
"#;
        assert_eq!(text, expected);
    }

    #[test]
    fn names_of_strangers_do_not_end_a_label() {
        let text = written(|out| {
            out.begin("p_", "up", Kind::Gauge, &["name"], "Up");
            out.quantity(&["a\"} 1\n\\b"], 0.5);
        });
        assert!(text.contains("p_up{name=\"a\\\"} 1\\n\\\\b\"} 0.5\n"), "{text}");
    }

    /// Counts the parts, and ends the reading after the second one.
    #[derive(Default)]
    struct Two(Vec<usize>);

    impl Parts for Two {
        fn take(&mut self, part: &mut Vec<u8>) -> fmt::Result {
            self.0.push(part.len());
            part.clear();
            if self.0.len() < 2 { Ok(()) } else { Err(fmt::Error) }
        }
    }

    #[test]
    fn parts_are_bounded_and_end_with_their_reader() {
        let mut parts = Two::default();
        let mut writer = Writer::new(&mut parts);
        writer.begin("p_", "requests_total", Kind::Counter, &["cluster"], "Requests");
        for i in 0..10_000 {
            writer.count(&["web"], i);
        }
        assert!(!writer.is_read());
        assert_eq!(writer.finish(), Err(fmt::Error));
        assert!(parts.0.iter().all(|part| *part < PART + 1_024) && parts.0.len() == 2, "{:?}", parts.0);
    }
}
