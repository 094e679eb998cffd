//! The saved list of a cluster: one JSON file, named for the cluster.
//!
//! ```json
//! {"version": 1, "cluster": "web", "source": "file /etc/plimsoll/web.json", "saved": "2026-11-26T08:00:00Z",
//!  "backends": [{"address": "10.0.0.1:8080", "weight": 2.0, "zone": "a", "state": "draining"}]}
//! ```
//!
//! The list counts only for the source that it came from. A cluster that moved from one file to
//! another, or to DNS, would else send requests to backends of another service.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use plimsoll::address::Address;
use plimsoll::discover::{Endpoint, Readiness};
use plimsoll_core::{Speed, Weight};
use serde::{Deserialize, Serialize};

use super::StateDir;

/// Version of the format. Another one is not read.
const VERSION: u32 = 1;
/// Largest file, in bytes: 100,000 backends with long names.
const MAX_LENGTH: u64 = 64 * 1024 * 1024;

/// A list from the folder.
#[derive(Debug, PartialEq)]
pub(crate) struct SavedList {
    pub(crate) backends: Vec<Endpoint>,
    /// The time since it was saved, by the clock of the machine.
    pub(crate) age: Option<Duration>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Content {
    version: u32,
    cluster: String,
    source: String,
    saved: String,
    backends: Vec<Backend>,
}

/// Read alone at first: the other fields of another version may differ.
#[derive(Debug, Deserialize)]
struct Head {
    version: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct Backend {
    #[serde(with = "super::address_text")]
    address: Address,
    /// Exact for up to 15 digits.
    weight: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    authority: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    zone: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    locality: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ordinal: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    speed: Option<f64>,
    #[serde(default, skip_serializing_if = "State::is_ready")]
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

impl State {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
    fn is_ready(&self) -> bool {
        *self == Self::Ready
    }
}

impl SavedList {
    /// The list of `cluster` that was saved for `source`; `None` without one. A file that cannot be used
    /// is a warning: the start goes on.
    pub(crate) fn read(dir: &StateDir, cluster: &str, source: &str) -> Option<Self> {
        let name = file_name(cluster);
        let list = dir.read(&name, MAX_LENGTH).map_err(|error| error.to_string()).and_then(|bytes| {
            let Some(bytes) = bytes else { return Ok(None) };
            Self::parse(&bytes, cluster, source, SystemTime::now()).map(Some)
        });
        let path = dir.file(&name);
        let path = path.display();
        match list {
            Ok(list) => {
                if let Some(Self { backends, age }) = &list {
                    let (backends, age_s) = (backends.len(), age.map(|age| age.as_secs()));
                    tracing::info!(cluster, %path, backends, age_s, "saved list read");
                }
                list
            }
            Err(error) => {
                tracing::warn!(cluster, %path, error, "saved list not used");
                None
            }
        }
    }

    fn parse(bytes: &[u8], cluster: &str, source: &str, now: SystemTime) -> Result<Self, String> {
        let unreadable = |error: serde_json::Error| format!("it is no saved list: {error}");
        let Head { version } = serde_json::from_slice(bytes).map_err(unreadable)?;
        if version != VERSION {
            return Err(format!("it has version {version} of the format, this program reads version {VERSION}"));
        }
        let content: Content = serde_json::from_slice(bytes).map_err(unreadable)?;
        if content.cluster != cluster {
            return Err(format!("it is the list of the cluster {:?}", content.cluster));
        }
        if content.source != source {
            return Err(format!("it is from another source: {}", content.source));
        }
        let saved = humantime::parse_rfc3339(&content.saved).ok();
        let age = saved.and_then(|saved| now.duration_since(saved).ok());
        let backends = content.backends.into_iter().enumerate().map(|(i, backend)| {
            backend.endpoint().map_err(|problem| format!("it is no saved list: backends[{i}]: {problem}"))
        });
        Ok(Self { backends: backends.collect::<Result<_, _>>()?, age })
    }
}

/// Saves the list of `cluster` that came from `source`. Waits for the disk.
///
/// # Errors
/// As [`StateDir::write`].
pub(super) fn save(dir: &StateDir, cluster: &str, source: &str, backends: Vec<Endpoint>) -> io::Result<()> {
    let content = Content {
        version: VERSION,
        cluster: cluster.to_owned(),
        source: source.to_owned(),
        saved: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        backends: backends.into_iter().map(Backend::from).collect(),
    };
    let mut bytes = serde_json::to_vec(&content)?;
    bytes.push(b'\n');
    if bytes.len() as u64 > MAX_LENGTH {
        return Err(io::Error::other(format!("the list is larger than {MAX_LENGTH} bytes")));
    }
    dir.write(&file_name(cluster), &bytes)
}

/// A name without separators or a leading dot, whatever the cluster is called.
pub(super) fn file_name(cluster: &str) -> String {
    let mut name = "list-".to_owned();
    for byte in cluster.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => name.push(char::from(byte)),
            other => write!(name, "%{other:02x}").expect("a string takes all"),
        }
    }
    name + ".json"
}

impl From<Endpoint> for Backend {
    fn from(endpoint: Endpoint) -> Self {
        let Endpoint { address, weight, authority, zone, locality, readiness, ordinal, speed, .. } = endpoint;
        Self {
            address,
            weight: weight.as_f64(),
            authority: authority.map(|authority| authority.to_string()),
            zone: zone.as_deref().map(str::to_owned),
            locality: locality.as_deref().map(str::to_owned),
            ordinal,
            speed: speed.map(Speed::as_f64),
            state: match readiness {
                Readiness::Ready => State::Ready,
                Readiness::Starting => State::Starting,
                Readiness::Draining => State::Draining,
            },
        }
    }
}

impl Backend {
    fn endpoint(self) -> Result<Endpoint, String> {
        let Self { address, weight, authority, zone, locality, state, ordinal, speed } = self;
        let authority = authority
            .map(|authority| authority.parse().map_err(|_| format!("{authority:?} is not the host of a request")));
        let speed = speed.map(|speed| Speed::new(speed).ok_or_else(|| format!("{speed} is no speed")));
        let mut endpoint = Endpoint::new(address);
        endpoint.weight = Weight::new(weight).ok_or_else(|| format!("{weight} is no weight"))?;
        endpoint.authority = authority.transpose()?;
        endpoint.zone = zone.map(Arc::from);
        endpoint.locality = locality.map(Arc::from);
        endpoint.ordinal = ordinal;
        endpoint.speed = speed.transpose()?;
        endpoint.readiness = match state {
            State::Ready => Readiness::Ready,
            State::Starting => Readiness::Starting,
            State::Draining => Readiness::Draining,
        };
        Ok(endpoint)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::test_folder::TestFolder;
    use super::*;

    fn endpoints() -> Vec<Endpoint> {
        let address = |text: &str| text.parse::<Address>().unwrap();
        let full = Endpoint::new(address("10.0.0.1:8080")).authority("web.internal:8080".parse().unwrap());
        let full = full.weight(Weight::new(2.5).unwrap()).zone("a").locality("east").ordinal(7);
        let full = full.speed(Speed::new(1.5).unwrap());
        vec![
            full.readiness(Readiness::Draining),
            Endpoint::new(address("[fe80::1%7]:81")).readiness(Readiness::Starting),
            Endpoint::new(address("[2001:db8::1]:1")).weight(Weight::new(0.333).unwrap()),
        ]
    }

    #[test]
    fn list_is_read_as_it_was_saved() {
        let folder = TestFolder::new();
        let dir = StateDir::open(&folder.0).unwrap();
        assert_eq!(SavedList::read(&dir, "web", "file a"), None);
        for list in [endpoints(), Vec::new()] {
            save(&dir, "web", "file a", list.clone()).unwrap();
            let read = SavedList::read(&dir, "web", "file a").unwrap();
            assert_eq!(read.backends, list);
            assert!(read.age.is_some_and(|age| age < Duration::from_secs(60)), "{read:?}");
        }
    }

    #[test]
    fn list_of_another_source_is_not_used() {
        let folder = TestFolder::new();
        let dir = StateDir::open(&folder.0).unwrap();
        save(&dir, "web", "file a", endpoints()).unwrap();
        assert_eq!(SavedList::read(&dir, "web", "file b"), None);
        // As on a file system that does not tell capitals apart.
        fs::rename(dir.file("list-web.json"), dir.file("list-Web.json")).unwrap();
        assert_eq!(SavedList::read(&dir, "Web", "file a"), None);
    }

    #[test]
    fn wrong_file_names_its_problem() {
        let read = |text: &str| SavedList::parse(text.as_bytes(), "web", "file a", SystemTime::now()).unwrap_err();
        let head = r#""cluster": "web", "source": "file a", "saved": "soon""#;
        for (text, problem) in [
            (String::new(), "it is no saved list: EOF"),
            ("{\"version\": 1".to_owned(), "it is no saved list: EOF"),
            (r#"{"backends": []}"#.to_owned(), "missing field `version`"),
            (format!(r#"{{"version": 2, {head}, "backends": 7}}"#), "it has version 2 of the format"),
            (format!(r#"{{"version": 1, {head}, "backends": 7}}"#), "it is no saved list: invalid type"),
            (r#"{"version": 1, "cluster": "a", "source": "", "saved": "", "backends": []}"#.into(), "cluster \"a\""),
            (r#"{"version": 1, "cluster": "web", "source": "dns a", "saved": "", "backends": []}"#.into(), "dns a"),
        ] {
            assert!(read(&text).contains(problem), "{text}: {}", read(&text));
        }
        for (backend, problem) in [
            (r#"{"address": "web:80", "weight": 1}"#, "no IP address with a port"),
            (r#"{"address": "10.0.0.1:80", "weight": 0}"#, "backends[0]: 0 is no weight"),
            (r#"{"address": "10.0.0.1:80", "weight": 1, "authority": "a b"}"#, "backends[0]: \"a b\" is not the host"),
            (r#"{"address": "10.0.0.1:80", "weight": 1, "state": "up"}"#, "unknown variant `up`"),
        ] {
            let text = format!(r#"{{"version": 1, {head}, "backends": [{backend}]}}"#);
            assert!(read(&text).contains(problem), "{text}: {}", read(&text));
        }
    }

    #[test]
    fn file_name_has_no_separator_whatever_the_cluster_is_called() {
        for (cluster, name) in [
            ("web", "list-web.json"),
            ("../a", "list-..%2fa.json"),
            ("a%2f", "list-a%252f.json"),
            ("ä\0", "list-%c3%a4%00.json"),
        ] {
            assert_eq!(file_name(cluster), name);
        }
    }
}
