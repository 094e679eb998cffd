//! What a synthetic backend does with a request, as it can be changed while it runs.
//!
//! The same spelling everywhere: on the command line, in the JSON that `/control` shows, and in the
//! JSON that changes it. A change names the settings it changes and leaves the others; one mistake in
//! it, and nothing changes.

use std::fmt;
use std::str::FromStr;

use plimsoll_core::{LoadReport, Speed};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::distribution::Distribution;
use crate::units;

/// What to do with each request. As JSON: what `/control` shows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Settings {
    /// CPU per request at speed 1.
    pub(crate) cost: Distribution,
    /// Time per request that needs no CPU, after the cost.
    pub(crate) wait: Distribution,
    /// Divides the cost: within [`Speed::RANGE`]. Load reports name the speed of the start: a machine
    /// that slows down does not know it.
    pub(crate) speed: f64,
    /// Share of requests that fail after the work.
    pub(crate) error_rate: f64,
    /// Whether every request fails at once, without work.
    pub(crate) fail_fast: bool,
    /// Bytes in the body of an answer.
    pub(crate) body_size: u32,
    /// What the load reports say.
    pub(crate) report: Report,
}

/// What the load reports say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Report {
    /// What is measured.
    #[default]
    Measured,
    /// Always the same.
    Fixed(FixedReport),
}

/// A load report that does not depend on the load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FixedReport {
    /// As application and as CPU utilization; may be above 1.
    pub(crate) utilization: f64,
    /// Requests a second.
    pub(crate) rps: f64,
    /// Errors a second.
    pub(crate) eps: f64,
}

impl Report {
    /// What to report when this was measured.
    pub(crate) fn instead_of(self, measured: LoadReport) -> LoadReport {
        match self {
            Self::Measured => measured,
            Self::Fixed(FixedReport { utilization, rps, eps }) => LoadReport {
                application_utilization: utilization,
                cpu_utilization: utilization,
                qps: rps,
                eps,
                // Whether it is a lame duck is a fact, whatever the load.
                ..measured
            },
        }
    }
}

impl FromStr for Report {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "measured" {
            return Ok(Self::Measured);
        }
        let (mut utilization, mut rps, mut eps) = (None, None, None);
        for part in text.split(',') {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| format!("`{text}` must be `measured`, or of the form utilization=.2,rps=100,eps=0"))?;
            let slot = match key.trim() {
                "utilization" => &mut utilization,
                "rps" => &mut rps,
                "eps" => &mut eps,
                key => return Err(format!("`{key}` is not part of a load report; use utilization, rps and eps")),
            };
            let value = units::number(value).map_err(|error| format!("{key}: {error}"))?;
            if value < 0.0 {
                return Err(format!("{key} must not be below zero"));
            }
            if slot.replace(value).is_some() {
                return Err(format!("{key} is given twice"));
            }
        }
        let missing = |key| move || format!("`{text}` lacks {key}; write it as utilization=.2,rps=100");
        Ok(Self::Fixed(FixedReport {
            utilization: utilization.ok_or_else(missing("utilization"))?,
            rps: rps.ok_or_else(missing("rps"))?,
            eps: eps.unwrap_or(0.0),
        }))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Measured => f.write_str("measured"),
            Self::Fixed(FixedReport { utilization, rps, eps }) => {
                write!(f, "utilization={utilization},rps={rps},eps={eps}")
            }
        }
    }
}

/// A change of [`Settings`]: what it does not name stays.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Change {
    cost: Option<Distribution>,
    wait: Option<Distribution>,
    speed: Option<f64>,
    error_rate: Option<f64>,
    fail_fast: Option<bool>,
    body_size: Option<u32>,
    report: Option<Report>,
}

impl Settings {
    /// Applies a change, or says why it cannot be and leaves everything as it was.
    pub(crate) fn apply(&mut self, change: Change) -> Result<(), String> {
        if change.speed.is_some_and(|speed| Speed::new(speed).is_none()) {
            let (least, most) = (Speed::RANGE.start(), Speed::RANGE.end());
            return Err(format!("speed must lie between {least} and {most}"));
        }
        if change.error_rate.is_some_and(|rate| !(0.0..=1.0).contains(&rate)) {
            return Err("error_rate must lie between 0 and 1".to_owned());
        }
        let Change { cost, wait, speed, error_rate, fail_fast, body_size, report } = change;
        self.cost = cost.unwrap_or(self.cost);
        self.wait = wait.unwrap_or(self.wait);
        self.speed = speed.unwrap_or(self.speed);
        self.error_rate = error_rate.unwrap_or(self.error_rate);
        self.fail_fast = fail_fast.unwrap_or(self.fail_fast);
        self.body_size = body_size.unwrap_or(self.body_size);
        self.report = report.unwrap_or(self.report);
        Ok(())
    }
}

/// In JSON, distributions and reports are the strings of the command line.
macro_rules! json_as_text {
    ($($type:ty),*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
            }
        }
    )*};
}

json_as_text!(Distribution, Report);

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            cost: "fixed:2ms".parse().unwrap(),
            wait: "fixed:0s".parse().unwrap(),
            speed: 1.0,
            error_rate: 0.0,
            fail_fast: false,
            body_size: 34,
            report: Report::Measured,
        }
    }

    #[test]
    fn reports_are_parsed_and_shown_alike() {
        let fixed = FixedReport { utilization: 0.2, rps: 100.0, eps: 0.0 };
        assert_eq!("utilization=.2,rps=100".parse(), Ok(Report::Fixed(fixed)));
        assert_eq!("rps=100,utilization=.2,eps=0".parse(), Ok(Report::Fixed(fixed)));
        assert_eq!("measured".parse(), Ok(Report::Measured));
        for report in [Report::Measured, Report::Fixed(fixed)] {
            assert_eq!(report.to_string().parse(), Ok(report));
        }
    }

    #[test]
    fn a_fixed_report_hides_the_load_but_not_the_lame_duck() {
        let measured = LoadReport { qps: 7.0, lame_duck: true, ..LoadReport::default() };
        assert_eq!(Report::Measured.instead_of(measured), measured);
        let fixed = Report::Fixed(FixedReport { utilization: 0.2, rps: 100.0, eps: 1.0 }).instead_of(measured);
        assert_eq!((fixed.application_utilization, fixed.cpu_utilization), (0.2, 0.2));
        assert_eq!((fixed.qps, fixed.eps, fixed.lame_duck), (100.0, 1.0, true));
    }

    #[test]
    fn mistakes_in_a_report_name_the_part() {
        for (text, part) in [
            ("", "utilization=.2"),
            ("utilization", "of the form"),
            ("utilization=.2", "lacks rps"),
            ("rps=1", "lacks utilization"),
            ("utilization=.2,rps=1,load=3", "`load`"),
            ("utilization=-1,rps=1", "below zero"),
            ("utilization=NaN,rps=1", "not a number"),
            ("utilization=1,utilization=1,rps=1", "twice"),
        ] {
            let error = text.parse::<Report>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn a_change_leaves_what_it_does_not_name() {
        let mut settings = settings();
        let change = serde_json::from_str(r#"{"speed": 2, "cost": "exp:1ms", "report": "utilization=.5,rps=9"}"#);
        settings.apply(change.unwrap()).unwrap();
        let json = serde_json::to_value(&settings).unwrap();
        assert_eq!(json["speed"], 2.0);
        assert_eq!(json["cost"], "exp:1ms");
        assert_eq!(json["wait"], "fixed:0s");
        assert_eq!(json["report"], "utilization=0.5,rps=9,eps=0");
        assert_eq!(json["body_size"], 34);
    }

    #[test]
    fn a_change_with_a_mistake_changes_nothing() {
        for text in [r#"{"speeed": 2}"#, r#"{"cost": "fixed:2"}"#, r#"{"fail_fast": 1}"#, "[1]", "{"] {
            assert!(serde_json::from_str::<Change>(text).is_err(), "{text}");
        }
        let before = settings();
        for text in [r#"{"fail_fast": true, "speed": 0}"#, r#"{"fail_fast": true, "error_rate": 1.5}"#] {
            let mut settings = before.clone();
            assert!(settings.apply(serde_json::from_str(text).unwrap()).is_err());
            assert_eq!(settings, before);
        }
    }
}
