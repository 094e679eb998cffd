//! The forms of a load report that people can read: `TEXT` and `JSON`.
//!
//! Keys are the field names of the message; those of the maps follow their map's name and a dot.
//! JSON is the protobuf mapping: either spelling of a name, and numbers as strings too. Reports in
//! these forms come from hand-written backends, so an unknown key is no error, while a known key with
//! a value that is no number is.

use std::collections::BTreeMap;

#[cfg(feature = "json")]
use serde_json::Value;

use super::{Malformed, OrcaLoadReport};

/// Where the number of a key belongs.
enum Field {
    Number(&'static str, fn(&mut OrcaLoadReport) -> &mut f64),
    Map(&'static str, fn(&mut OrcaLoadReport) -> &mut BTreeMap<String, f64>),
    Rps,
}

fn field(name: &str) -> Option<Field> {
    Some(match name {
        "cpu_utilization" | "cpuUtilization" => Field::Number("cpu_utilization", |r| &mut r.cpu_utilization),
        "mem_utilization" | "memUtilization" => Field::Number("mem_utilization", |r| &mut r.mem_utilization),
        "rps_fractional" | "rpsFractional" => Field::Number("rps_fractional", |r| &mut r.rps_fractional),
        "eps" => Field::Number("eps", |r| &mut r.eps),
        "application_utilization" | "applicationUtilization" => {
            Field::Number("application_utilization", |r| &mut r.application_utilization)
        }
        "request_cost" | "requestCost" => Field::Map("request_cost", |r| &mut r.request_cost),
        "utilization" => Field::Map("utilization", |r| &mut r.utilization),
        "named_metrics" | "namedMetrics" => Field::Map("named_metrics", |r| &mut r.named_metrics),
        "rps" => Field::Rps,
        _ => return None,
    })
}

/// Whether a value begins with the key of a report and `=`.
pub(super) fn begins_with_field(value: &[u8]) -> bool {
    let key = std::str::from_utf8(value).ok().and_then(|value| value.split_once('=')).map(|(key, _)| key.trim());
    key.is_some_and(|key| field(key.split_once('.').map_or(key, |(name, _)| name)).is_some())
}

/// Reads `key=value,key=value`.
pub(super) fn from_pairs(text: &[u8]) -> Result<OrcaLoadReport, Malformed> {
    let text = std::str::from_utf8(text).map_err(|_| Malformed::Syntax)?;
    let mut report = OrcaLoadReport::default();
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').ok_or(Malformed::Syntax)?;
        let (key, value) = (key.trim(), value.trim());
        let (name, entry) = match key.split_once('.') {
            Some((name, entry)) => (name, Some(entry)),
            None => (key, None),
        };
        match (field(name), entry) {
            (Some(Field::Number(name, slot)), None) => *slot(&mut report) = number(name, value)?,
            (Some(Field::Map(name, slot)), Some(entry)) => {
                slot(&mut report).insert(entry.to_owned(), number(name, value)?);
            }
            (Some(Field::Rps), None) => report.rps = value.parse().map_err(|_| Malformed::Number("rps"))?,
            _ => {}
        }
    }
    Ok(report)
}

/// Without the feature `json`, no text is JSON.
#[cfg(not(feature = "json"))]
pub(super) fn from_json(_: &[u8]) -> Result<OrcaLoadReport, Malformed> {
    Err(Malformed::Syntax)
}

/// Reads the protobuf JSON mapping of the message.
#[cfg(feature = "json")]
pub(super) fn from_json(text: &[u8]) -> Result<OrcaLoadReport, Malformed> {
    let Ok(Value::Object(object)) = serde_json::from_slice(text) else {
        return Err(Malformed::Syntax);
    };
    let mut report = OrcaLoadReport::default();
    for (key, value) in &object {
        match (field(key), value) {
            (None, _) | (_, Value::Null) => {}
            (Some(Field::Number(name, slot)), value) => *slot(&mut report) = json_number(name, value)?,
            (Some(Field::Map(name, slot)), Value::Object(entries)) => {
                for (entry, value) in entries {
                    slot(&mut report).insert(entry.clone(), json_number(name, value)?);
                }
            }
            (Some(Field::Map(..)), _) => return Err(Malformed::Syntax),
            (Some(Field::Rps), value) => {
                let whole = value.as_u64().or_else(|| value.as_str()?.parse().ok());
                report.rps = whole.ok_or(Malformed::Number("rps"))?;
            }
        }
    }
    Ok(report)
}

#[cfg(feature = "json")]
fn json_number(name: &'static str, value: &Value) -> Result<f64, Malformed> {
    match value {
        Value::String(text) => number(name, text),
        other => other.as_f64().ok_or(Malformed::Number(name)),
    }
}

/// Not finite is refused here already: an infinite named metric is junk as well.
fn number(name: &'static str, text: &str) -> Result<f64, Malformed> {
    text.parse().ok().filter(|number: &f64| number.is_finite()).ok_or(Malformed::Number(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_takes_known_keys_and_ignores_others() {
        let report = OrcaLoadReport::from_text(
            b"TEXT cpu_utilization=0.3, application_utilization=.5,rps_fractional=100,eps = 2,named_metrics.q=7,\
              utilization.disk=.1,request_cost.cpu=2e-3,rps=99,colour=blue,named_metrics=1,cpu_utilization.x=y",
        )
        .unwrap();
        assert_eq!(report.cpu_utilization, 0.3);
        assert_eq!(report.application_utilization, 0.5);
        assert_eq!((report.rps_fractional, report.rps, report.eps), (100.0, 99, 2.0));
        assert_eq!(report.named_metrics["q"], 7.0);
        assert_eq!(report.utilization["disk"], 0.1);
        assert_eq!(report.request_cost["cpu"], 0.002);
    }

    #[test]
    fn json_takes_both_spellings_and_numbers_as_strings() {
        let published = br#"JSON {"cpuUtilization":0.5,"memUtilization":0.25,"rps":"99","requestCost":{"cpu":0.002},
            "utilization":{"disk":0.1},"rpsFractional":100.0,"eps":2.0,"namedMetrics":{"plimsoll.lame_duck":1.0,"queue":3.0},
            "applicationUtilization":0.75}"#;
        let by_field_name =
            br#"JSON {"cpu_utilization":"0.5","mem_utilization":0.25,"rps":99,"request_cost":{"cpu":0.002},
            "utilization":{"disk":0.1},"rps_fractional":100,"eps":2,"named_metrics":{"plimsoll.lame_duck":1,"queue":3},
            "application_utilization":0.75,"unknown":[1],"eps":2}"#;
        let report = OrcaLoadReport::from_text(published).unwrap();
        assert_eq!(OrcaLoadReport::from_text(by_field_name).unwrap(), report);
        assert!(report.lame_duck());
        assert_eq!(report.rps, 99);
    }

    #[test]
    fn report_without_a_word_before_it_is_read_as_text_or_json() {
        for value in [
            &b"named_metrics.kv_cache_usage_perc=0.5,named_metrics.num_requests_waiting=2"[..],
            br#"{"named_metrics":{"kv_cache_usage_perc":0.5,"num_requests_waiting":2}}"#,
            b"TEXT named_metrics.kv_cache_usage_perc=0.5, named_metrics.num_requests_waiting=2.0",
        ] {
            let report = OrcaLoadReport::from_text(value).unwrap();
            let waiting = report.named_metrics.get("num_requests_waiting");
            assert_eq!((report.named_metrics["kv_cache_usage_perc"], waiting), (0.5, Some(&2.0)));
        }
    }

    #[test]
    fn junk_is_told_apart_from_a_report() {
        for (value, expected) in [
            (&b""[..], Malformed::Form),
            (b"TEXT", Malformed::Form),
            (b"text cpu_utilization=1", Malformed::Form),
            (b"YAML a: 1", Malformed::Form),
            (b"colour=blue,cpu_utilization=1", Malformed::Form),
            (b"[0.5]", Malformed::Form),
            (b"{", Malformed::Syntax),
            (b"cpu_utilization=", Malformed::Number("cpu_utilization")),
            (b"TEXT cpu_utilization", Malformed::Syntax),
            (b"TEXT \xff=1", Malformed::Syntax),
            (b"TEXT cpu_utilization=", Malformed::Number("cpu_utilization")),
            (b"TEXT cpu_utilization=NaN", Malformed::Number("cpu_utilization")),
            (b"TEXT named_metrics.x=inf", Malformed::Number("named_metrics")),
            (b"TEXT eps=-1", Malformed::Number("eps")),
            (b"TEXT rps=1.5", Malformed::Number("rps")),
            (b"JSON {", Malformed::Syntax),
            (b"JSON []", Malformed::Syntax),
            (b"JSON {\"namedMetrics\":1}", Malformed::Syntax),
            (b"JSON {\"eps\":\"Infinity\"}", Malformed::Number("eps")),
            (b"JSON {\"eps\":true}", Malformed::Number("eps")),
            (b"BIN !", Malformed::Base64),
            (b"BIN /w==", Malformed::Message),
        ] {
            assert_eq!(OrcaLoadReport::from_text(value), Err(expected), "{}", String::from_utf8_lossy(value));
        }
    }

    #[test]
    fn empty_text_is_an_empty_report() {
        for value in [&b"TEXT ,"[..], b"JSON {}", b"JSON {\"eps\":null}"] {
            assert_eq!(OrcaLoadReport::from_text(value), Ok(OrcaLoadReport::default()));
        }
    }
}
