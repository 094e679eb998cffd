//! The record of a backend: one JSON object, with the keys of an entry in a file of backends.
//!
//! ```json
//! {"address": "10.0.0.1:8080", "weight": 2, "zone": "a", "speed": 1.5, "state": "ready"}
//! ```

use std::net::SocketAddr;

use plimsoll::discover::{Endpoint, Readiness};
use plimsoll_core::{Speed, Weight};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The longest zone or locality, in bytes.
pub const MAX_LABEL: usize = 256;

/// The reason why a record is none of a backend.
#[derive(Debug, Error)]
pub enum RecordError {
    /// Not the JSON of a backend.
    #[error("is not the record of a backend: {0}")]
    Syntax(#[from] serde_json::Error),
    /// A value is wrong.
    #[error("{0}")]
    Value(String),
}

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    address: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weight: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    zone: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    locality: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    speed: Option<f64>,
    #[serde(default)]
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum State {
    #[default]
    Ready,
    Starting,
    Draining,
}

/// The record of a backend. Its authority and ordinal are not in it.
pub(crate) fn write(endpoint: &Endpoint) -> Vec<u8> {
    let record = Record {
        address: endpoint.address.to_string(),
        weight: (endpoint.weight != Weight::ONE).then(|| endpoint.weight.as_f64()),
        zone: endpoint.zone.as_deref().map(str::to_owned),
        locality: endpoint.locality.as_deref().map(str::to_owned),
        speed: endpoint.speed.map(Speed::as_f64),
        state: match endpoint.readiness {
            Readiness::Ready => State::Ready,
            Readiness::Starting => State::Starting,
            Readiness::Draining => State::Draining,
        },
    };
    serde_json::to_vec(&record).expect("the keys are text and the numbers finite")
}

/// The backend of a record. A Unix socket is refused: it would lead to another process on each
/// machine.
pub(crate) fn read(record: &[u8]) -> Result<Endpoint, RecordError> {
    let record: Record = serde_json::from_slice(record)?;
    let address: Option<SocketAddr> = record.address.parse().ok();
    let Some(address) = address.filter(|address| address.port() > 0 && !address.ip().is_unspecified()) else {
        return Err(RecordError::Value(format!("{} is not an address of a backend", record.address.escape_debug())));
    };
    let mut endpoint = Endpoint::new(address);
    if let Some(weight) = record.weight {
        let range = || RecordError::Value(format!("weight: {weight} is not from 0.001 to 1000"));
        endpoint.weight = Weight::new(weight).ok_or_else(range)?;
    }
    if let Some(speed) = record.speed {
        let range = || RecordError::Value(format!("speed: {speed} is not from 0.01 to 100"));
        endpoint.speed = Some(Speed::new(speed).ok_or_else(range)?);
    }
    let label = |name: &str, label: Option<String>| match label {
        Some(label) if label.is_empty() || label.len() > MAX_LABEL => {
            Err(RecordError::Value(format!("{name}: is empty or longer than {MAX_LABEL} bytes")))
        }
        label => Ok(label.map(Into::into)),
    };
    endpoint.zone = label("zone", record.zone)?;
    endpoint.locality = label("locality", record.locality)?;
    endpoint.readiness = match record.state {
        State::Ready => Readiness::Ready,
        State::Starting => Readiness::Starting,
        State::Draining => Readiness::Draining,
    };
    Ok(endpoint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_is_read_as_it_was_written() {
        let plain = Endpoint::new("10.0.0.1:8080".parse::<SocketAddr>().unwrap());
        assert_eq!(String::from_utf8(write(&plain)).unwrap(), r#"{"address":"10.0.0.1:8080","state":"ready"}"#);
        let all = plain
            .clone()
            .weight(Weight::new(2.0).unwrap())
            .zone("a")
            .locality("east")
            .speed(Speed::new(1.5).unwrap())
            .readiness(Readiness::Draining);
        for endpoint in [plain, all] {
            assert_eq!(read(&write(&endpoint)).unwrap(), endpoint);
        }
    }

    #[test]
    fn record_of_a_later_version_is_read() {
        let later = br#"{"address": "[::1]:80", "state": "starting", "colour": "blue"}"#;
        assert_eq!(read(later).unwrap().readiness, Readiness::Starting);
    }

    #[test]
    fn wrong_record_names_its_problem() {
        for (record, problem) in [
            ("", "is not the record of a backend: EOF"),
            ("[]", "is not the record of a backend: "),
            (r#"{"address": "web:80"}"#, "web:80 is not an address of a backend"),
            (r#"{"address": "unix:/run/a"}"#, "unix:/run/a is not an address of a backend"),
            (r#"{"address": "0.0.0.0:80"}"#, "0.0.0.0:80 is not an address of a backend"),
            (r#"{"address": "10.0.0.1:0"}"#, "10.0.0.1:0 is not an address of a backend"),
            (r#"{"address": "10.0.0.1:80", "weight": 0}"#, "weight: "),
            (r#"{"address": "10.0.0.1:80", "speed": -1}"#, "speed: "),
            (r#"{"address": "10.0.0.1:80", "zone": ""}"#, "zone: is empty"),
            (r#"{"address": "10.0.0.1:80", "state": "asleep"}"#, "unknown variant `asleep`"),
        ] {
            let error = read(record.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(problem), "{record}: {error}");
        }
    }
}
