//! The OpenMetrics text format.
//!
//! It is written by hand: a library that formats each sample through traits and a list of labels
//! took three times the CPU. The text can be taken in parts, so a long answer needs no memory of its
//! size.
//!
//! Source: the OpenMetrics specification 1.0, "Text Format".

/// `ryu` writes whole numbers below this in full, with `.0`.
const MAX_WHOLE: u64 = 1 << 53;

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

/// A value of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    /// Of a counter of whole things.
    Count(u64),
    /// Of a gauge. One that is not finite is unknown, and has no sample.
    Gauge(f64),
}

/// The common beginning of samples, up to the value of their second label.
pub(super) struct Opening(Vec<u8>);

/// The common end of samples, after the value of their second label, up to the value of the sample.
pub(super) struct Closing(Vec<u8>);

/// Writes metrics.
#[derive(Debug, Default)]
pub struct Writer {
    buffer: Vec<u8>,
    /// The present metric's name with its prefix, and without the suffix of its kind.
    name: String,
    labels: &'static [&'static str],
}

impl Writer {
    /// Begins a metric: its samples follow. `name` has the prefix of the program, and for a counter the
    /// suffix `_total`.
    pub fn begin(&mut self, prefix: &str, name: &str, kind: Kind, labels: &'static [&'static str], help: &str) {
        let family = name.strip_suffix("_total").filter(|_| kind == Kind::Counter).unwrap_or(name);
        self.name.clear();
        self.name.push_str(prefix);
        self.name.push_str(family);
        self.labels = labels;
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

    /// A sample with this value.
    pub(super) fn value(&mut self, labels: &[&str], value: Value) {
        match value {
            Value::Count(count) => self.count(labels, count),
            Value::Gauge(gauge) if gauge.is_finite() => self.quantity(labels, gauge),
            Value::Gauge(_) => {}
        }
    }

    /// The common beginning of samples of the present metric whose first label has this value, up to the
    /// value of the second.
    pub(super) fn opening(&self, first: &str) -> Opening {
        let mut text = Vec::from(self.name.as_bytes());
        for (label, before) in self.labels.iter().zip(["{", "\","]) {
            text.extend_from_slice(before.as_bytes());
            text.extend_from_slice(label.as_bytes());
            text.extend_from_slice(b"=\"");
            if before == "{" {
                escape(&mut text, first);
            }
        }
        Opening(text)
    }

    /// Their common end, from the value of the second label on. A third label has this value.
    pub(super) fn closing(&self, third: Option<&str>) -> Closing {
        let mut text = Vec::new();
        for (label, value) in self.labels.iter().skip(2).zip(third) {
            text.extend_from_slice(b"\",");
            text.extend_from_slice(label.as_bytes());
            text.extend_from_slice(b"=\"");
            escape(&mut text, value);
        }
        text.extend_from_slice(b"\"} ");
        Closing(text)
    }

    /// A sample whose second label has this value, escaped.
    pub(super) fn line(&mut self, opening: &Opening, escaped: &[u8], closing: &Closing, value: Value) {
        if matches!(value, Value::Gauge(gauge) if !gauge.is_finite()) {
            return;
        }
        self.buffer.extend_from_slice(&opening.0);
        self.buffer.extend_from_slice(escaped);
        self.buffer.extend_from_slice(&closing.0);
        match value {
            Value::Count(count) => self.integer(count),
            Value::Gauge(gauge) => self.float(gauge),
        }
        self.end_line();
    }

    /// Ends the answer, and returns what has not been taken of it.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.end();
        self.buffer
    }

    /// Ends the answer.
    pub(super) fn end(&mut self) {
        self.text("# EOF\n");
    }

    /// Makes room for a part of this size, in bytes.
    pub(super) fn reserve(&mut self, bytes: usize) {
        self.buffer.reserve(bytes);
    }

    /// Takes what has been written since the last call.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffer)
    }

    /// Bytes that have not been taken.
    pub(super) fn written(&self) -> usize {
        self.buffer.len()
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
        // Most gauges are whole: the same text, faster. Zero with a sign is left to `ryu`.
        let whole = value as u64;
        if whole < MAX_WHOLE && (whole as f64).to_bits() == value.to_bits() {
            self.integer(whole);
            self.text(".0");
        } else {
            self.text(ryu::Buffer::new().format(value));
        }
    }

    fn end_line(&mut self) {
        self.buffer.push(b'\n');
    }
}

/// Writes a text with the characters escaped that would end it.
pub(super) fn escape(out: &mut Vec<u8>, text: &str) {
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

    fn written(write: impl FnOnce(&mut Writer)) -> String {
        let mut writer = Writer::default();
        write(&mut writer);
        String::from_utf8(writer.finish()).unwrap()
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

    #[test]
    fn whole_gauges_are_written_as_any_other() {
        let edge = MAX_WHOLE as f64;
        for value in [0.0, -0.0, 1.0, -1.0, 0.5, 10.0, 123_456.0, 1e15, edge - 1.0, edge, edge * 2.0, 1e16, 1e22, 1e-7]
        {
            let text = written(|out| {
                out.begin("p_", "up", Kind::Gauge, &[], "Up");
                out.quantity(&[], value);
            });
            let expected = format!("\np_up {}\n", ryu::Buffer::new().format(value));
            assert!(text.contains(&expected), "{value:?} in {text}");
        }
    }

    const BACKEND: &[&str] = &["cluster", "backend"];
    const STATE: &[&str] = &["cluster", "backend", "state"];

    #[test]
    fn lines_are_the_samples_of_their_labels() {
        for (labels, third) in [(BACKEND, None), (STATE, Some("a\"b"))] {
            let values: Vec<&str> = ["we\"b", "[::1]:80"].into_iter().chain(third).collect();
            let begin = |out: &mut Writer| out.begin("p_", "requests_total", Kind::Counter, labels, "Requests");
            let samples = written(|out| {
                begin(out);
                out.count(&values, 7);
                out.quantity(&values, 0.5);
            });
            let lines = written(|out| {
                begin(out);
                let (opening, closing) = (out.opening(values[0]), out.closing(third));
                for value in [Value::Count(7), Value::Gauge(f64::NAN), Value::Gauge(0.5)] {
                    out.line(&opening, values[1].as_bytes(), &closing, value);
                }
            });
            assert_eq!(lines, samples);
        }
    }
}
