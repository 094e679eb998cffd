//! The formats of a file with backends.
//!
//! ```toml
//! [[backends]]
//! address = "10.0.0.1:8080"     # or a name with a port: one backend for each of its addresses
//! weight = 2                    # optional, as all that follows
//! zone = "a"
//! locality = "east"
//! state = "draining"            # "ready", "starting" or "draining"
//! ```
//!
//! JSON has the same: `{"backends": [{"address": "10.0.0.1:8080", "weight": 2}]}`. A JSON array is a
//! list of Prometheus' `file_sd`, a format that many programs write already:
//! `[{"targets": ["10.0.0.1:8080"], "labels": {"zone": "a", "weight": "2"}}]`. Its labels `weight`,
//! `zone`, `locality` and `state` are read, others have no effect.

use std::collections::BTreeMap;
use std::path::Path;

use plimsoll::discover::{Endpoint, Readiness, ResolveError, resolve};
use plimsoll_core::Weight;
use serde::Deserialize;

/// The reason why the text of a file is no list of backends.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// It is no text.
    #[error("is not UTF-8")]
    NotText(#[source] std::str::Utf8Error),
    /// It is not of its format.
    #[error("{0}")]
    Syntax(String),
    /// An entry is wrong.
    #[error("{place}: {problem}")]
    Entry {
        /// The entry, such as `backends[2]`.
        place: String,
        /// Its problem, and the fix.
        problem: String,
    },
    /// A name has no address.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    backends: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    address: String,
    weight: Option<f64>,
    zone: Option<String>,
    locality: Option<String>,
    state: Option<String>,
}

/// A group of targets in a `file_sd` list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    targets: Vec<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// The endpoints of a list. Names are looked up.
pub(super) async fn endpoints(path: &Path, bytes: &[u8]) -> Result<Vec<Endpoint>, ListError> {
    let mut endpoints = Vec::new();
    for (place, entry) in entries(path, bytes)? {
        let error = |problem: String| ListError::Entry { place: place.clone(), problem };
        if !has_port(&entry.address) {
            let problem = format!("`{0}` is no address with a port, such as {0}:8080", entry.address);
            return Err(error(problem));
        }
        let weight = entry.weight.map_or(Ok(Weight::ONE), |weight| {
            Weight::new(weight).ok_or_else(|| error(format!("{weight} is no weight: use a number above 0, such as 1")))
        })?;
        let readiness = readiness(entry.state.as_deref()).map_err(error)?;
        endpoints.extend(resolve([&entry.address]).await?.into_iter().map(|found| Endpoint {
            weight,
            zone: entry.zone.as_deref().map(Into::into),
            locality: entry.locality.as_deref().map(Into::into),
            readiness,
            ..found
        }));
    }
    Ok(endpoints)
}

/// The entries of a list, each with its place.
fn entries(path: &Path, bytes: &[u8]) -> Result<Vec<(String, Entry)>, ListError> {
    let text = std::str::from_utf8(bytes).map_err(ListError::NotText)?;
    let numbered = |list: List| {
        let place = |(i, entry)| (format!("backends[{i}]"), entry);
        list.backends.into_iter().enumerate().map(place).collect()
    };
    if path.extension().is_some_and(|extension| extension == "toml") {
        return toml::from_str(text).map(numbered).map_err(|error| ListError::Syntax(error.to_string()));
    }
    let syntax = |error: serde_json::Error| ListError::Syntax(error.to_string());
    if !text.trim_start().starts_with('[') {
        return serde_json::from_str(text).map(numbered).map_err(syntax);
    }
    let groups: Vec<Group> = serde_json::from_str(text).map_err(syntax)?;
    let mut entries = Vec::new();
    for (i, Group { targets, labels }) in groups.into_iter().enumerate() {
        let label = |name: &str| labels.get(name).cloned();
        let weight = match labels.get("weight").map(|weight| (weight, weight.parse())) {
            None => None,
            Some((_, Ok(weight))) => Some(weight),
            Some((weight, Err(_))) => {
                let problem = format!("the label weight is `{weight}`: use a number above 0, such as \"1\"");
                return Err(ListError::Entry { place: format!("[{i}]"), problem });
            }
        };
        for (j, address) in targets.into_iter().enumerate() {
            let (zone, locality, state) = (label("zone"), label("locality"), label("state"));
            entries.push((format!("[{i}].targets[{j}]"), Entry { address, weight, zone, locality, state }));
        }
    }
    Ok(entries)
}

/// Whether an address ends in a port. A name with colons and without brackets is an IPv6 address.
fn has_port(address: &str) -> bool {
    let Some((host, port)) = address.rsplit_once(':') else { return false };
    let is_bracketed = host.starts_with('[') && host.ends_with(']');
    !host.is_empty() && (is_bracketed || !host.contains(':')) && port.parse::<u16>().is_ok_and(|port| port > 0)
}

fn readiness(state: Option<&str>) -> Result<Readiness, String> {
    match state {
        None | Some("ready") => Ok(Readiness::Ready),
        Some("starting") => Ok(Readiness::Starting),
        Some("draining") => Ok(Readiness::Draining),
        Some(other) => Err(format!("the state `{other}` is unknown: use ready, starting or draining")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(name: &str, text: &str) -> Result<Vec<Endpoint>, String> {
        endpoints(Path::new(name), text.as_bytes()).await.map_err(|error| error.to_string())
    }

    fn full() -> Vec<Endpoint> {
        let first = Endpoint::new("10.0.0.1:80".parse().unwrap()).weight(Weight::new(2.5).unwrap());
        let first = first.zone("a").locality("east").readiness(Readiness::Draining);
        vec![first, Endpoint::new("[::1]:81".parse().unwrap())]
    }

    #[tokio::test]
    async fn three_formats_say_the_same() {
        let toml = "[[backends]]\naddress = \"10.0.0.1:80\"\nweight = 2.5\nzone = \"a\"\nlocality = \"east\"\n\
                    state = \"draining\"\n[[backends]]\naddress = \"[::1]:81\"\n";
        let json = r#"{"backends": [{"address": "10.0.0.1:80", "weight": 2.5, "zone": "a", "locality": "east",
                       "state": "draining"}, {"address": "[::1]:81"}]}"#;
        let file_sd = r#" [{"targets": ["10.0.0.1:80"], "labels": {"zone": "a", "locality": "east", "weight": "2.5",
                       "state": "draining", "job": "web"}}, {"targets": ["[::1]:81"]}]"#;
        for (name, text) in [("web.toml", toml), ("web.json", json), ("web.json", file_sd), ("targets", file_sd)] {
            assert_eq!(read(name, text).await, Ok(full()), "{name}");
        }
    }

    #[tokio::test]
    async fn name_is_one_backend_per_address_with_the_name_as_its_authority() {
        let list = read("web.json", r#"{"backends": [{"address": "localhost:80", "weight": 3}]}"#).await.unwrap();
        assert!(!list.is_empty());
        for endpoint in list {
            assert!(endpoint.address.ip().is_loopback());
            assert_eq!(
                (endpoint.authority, endpoint.weight),
                (Some("localhost:80".parse().unwrap()), Weight::new(3.0).unwrap())
            );
        }
    }

    #[tokio::test]
    async fn error_names_the_place_and_the_fix() {
        let cases = [
            ("web.toml", "backends = [", "TOML parse error at line 1"),
            ("web.toml", "[[backends]]\naddres = \"a:1\"\n", "unknown field `addres`, expected one of `address`"),
            ("web.json", "{\"backends\": [{\"weight\": 2}]}", "missing field `address`"),
            ("web.json", "{\"backends\": [{\"address\": \"10.0.0.1:80\"", "EOF while parsing"),
            ("web.json", "", "EOF while parsing"),
            (
                "web.json",
                r#"{"backends": [{"address": "10.0.0.1"}]}"#,
                "backends[0]: `10.0.0.1` is no address with a port",
            ),
            ("web.json", r#"{"backends": [{"address": "::1"}]}"#, "backends[0]: `::1` is no address with a port"),
            ("web.json", r#"{"backends": [{"address": "10.0.0.1:0"}]}"#, "no address with a port"),
            ("web.json", r#"{"backends": [{"address": "1.2.3.4:5", "weight": 0}]}"#, "backends[0]: 0 is no weight"),
            (
                "web.json",
                r#"{"backends": [{"address": "1.2.3.4:5", "state": "up"}]}"#,
                "use ready, starting or draining",
            ),
            ("web.json", r#"[{"targets": ["a:1"], "labels": {"weight": "much"}}]"#, "[0]: the label weight is `much`"),
            ("web.json", r#"[{"targets": ["10.0.0.1:80", "10.0.0.2"]}]"#, "[0].targets[1]: `10.0.0.2` is no address"),
            ("web.json", r#"{"backends": [{"address": "no.invalid:80"}]}"#, "cannot resolve no.invalid:80"),
        ];
        for (name, text, expected) in cases {
            let error = read(name, text).await.unwrap_err();
            assert!(error.contains(expected), "{text}\n{error}");
        }
        assert!(matches!(endpoints(Path::new("a.json"), b"\xff").await, Err(ListError::NotText(_))));
    }
}
