//! The changes of single backends by hand, of all clusters: one JSON file.
//!
//! ```json
//! {"version": 1, "saved": "2026-11-26T08:00:00Z", "overrides": [
//!   {"cluster": "web", "address": "10.0.0.1:8080", "kind": "weight", "weight": 0.5, "until": "2026-11-26T09:00:00Z"}]}
//! ```
//!
//! One file, so that no crash leaves the changes of an order that concerns one cluster beside older ones
//! of another. An end is a time by the clock of the machine: a restart does not begin it anew.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use plimsoll::address::Address;
use plimsoll::client::OverrideView;
use plimsoll::discover::{Endpoint, OverrideChange};
use plimsoll_core::{Speed, Weight};
use serde::{Deserialize, Serialize};

use super::{StateDir, read_file};

/// Version of the format. Another one is not read.
const VERSION: u32 = 1;
/// Largest file, in bytes: a hundred clusters with all the overrides that each may have.
const MAX_LENGTH: u64 = 32 * 1024 * 1024;
/// The name of the file.
pub(super) const NAME: &str = "overrides.json";

/// Overrides of an earlier process, by cluster.
pub(crate) type SavedOverrides = BTreeMap<String, Vec<OverrideView>>;

#[derive(Debug, Serialize, Deserialize)]
struct Content {
    version: u32,
    saved: String,
    overrides: Vec<Saved>,
}

/// Read alone at first: the other fields of another version may differ.
#[derive(Debug, Deserialize)]
struct Head {
    version: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct Saved {
    cluster: String,
    #[serde(with = "super::address_text")]
    address: Address,
    kind: Kind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weight: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    zone: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    locality: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    speed: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<String>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Added,
    Removed,
    Weight,
    Drained,
}

/// A saved change of a backend by hand, for a person: `10.0.0.1:8080 weight 0.5 until 2026-11-26T09:00:00Z`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SavedOverride {
    /// The name of the cluster.
    pub cluster: String,
    /// The address of the backend.
    pub address: Address,
    /// The name of its kind.
    pub kind: &'static str,
    /// The weight that it sets.
    pub weight: Option<f64>,
    /// Its end. `None`: when it is revoked.
    pub until: Option<SystemTime>,
}

impl fmt::Display for SavedOverride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.address, self.kind)?;
        match (self.kind, self.weight) {
            ("added", Some(weight)) => write!(f, " with weight {weight}")?,
            (_, Some(weight)) => write!(f, " {weight}")?,
            (_, None) => {}
        }
        match self.until {
            Some(until) => write!(f, " until {}", humantime::format_rfc3339_seconds(until)),
            None => write!(f, " until it is revoked"),
        }
    }
}

/// The overrides in `dir` that have not ended. A file that cannot be used is a warning: the start goes on.
pub(crate) fn read(dir: &StateDir) -> SavedOverrides {
    let now = SystemTime::now();
    match load(dir.path(), now) {
        Ok(saved) => by_cluster(saved, now),
        Err(error) => {
            let path = dir.file(NAME);
            tracing::warn!(path = %path.display(), error, "saved overrides of backends not used");
            SavedOverrides::new()
        }
    }
}

/// The changes of backends by hand that a proxy saved in its folder for state at `path`, without those that
/// have ended. Changes nothing there.
///
/// # Errors
/// The reason why the file cannot be used, with its path.
pub fn saved_overrides(path: &Path) -> Result<Vec<SavedOverride>, String> {
    let saved = load(path, SystemTime::now()).map_err(|error| format!("{}: {error}", path.join(NAME).display()))?;
    let show = |(cluster, address, change, until): Entry| SavedOverride {
        cluster,
        address,
        kind: change.kind().name(),
        weight: match change {
            OverrideChange::Added(endpoint) => Some(endpoint.weight.as_f64()),
            OverrideChange::Weight(weight) => Some(weight.as_f64()),
            OverrideChange::Removed | OverrideChange::Drained => None,
        },
        until,
    };
    Ok(saved.into_iter().map(show).collect())
}

/// A cluster, a backend, its change, and the end.
type Entry = (String, Address, OverrideChange<Endpoint>, Option<SystemTime>);

fn load(path: &Path, now: SystemTime) -> Result<Vec<Entry>, String> {
    match read_file(&path.join(NAME), MAX_LENGTH).map_err(|error| error.to_string())? {
        None => Ok(Vec::new()),
        Some(bytes) => parse(&bytes, now),
    }
}

fn parse(bytes: &[u8], now: SystemTime) -> Result<Vec<Entry>, String> {
    let unreadable = |error: serde_json::Error| format!("it has no saved overrides: {error}");
    let Head { version } = serde_json::from_slice(bytes).map_err(unreadable)?;
    if version != VERSION {
        return Err(format!("it has version {version} of the format, this program reads version {VERSION}"));
    }
    let content: Content = serde_json::from_slice(bytes).map_err(unreadable)?;
    let entries = content.overrides.into_iter().enumerate().map(|(i, saved)| {
        saved.entry().map_err(|problem| format!("it has no saved overrides: overrides[{i}]: {problem}"))
    });
    let mut entries: Vec<Entry> = entries.collect::<Result<_, _>>()?;
    entries.retain(|(_, _, _, until)| until.is_none_or(|until| until > now));
    Ok(entries)
}

fn by_cluster(entries: Vec<Entry>, now: SystemTime) -> SavedOverrides {
    let mut all = SavedOverrides::new();
    for (cluster, address, change, until) in entries {
        let remaining = until.map(|until| until.duration_since(now).unwrap_or(Duration::ZERO));
        all.entry(cluster).or_default().push(OverrideView { address, change, remaining });
    }
    all
}

/// Saves the overrides of all clusters. Without any, there is no file to begin with. Waits for the disk.
///
/// # Errors
/// As [`StateDir::write`].
pub(crate) fn save(dir: &StateDir, all: &SavedOverrides) -> io::Result<()> {
    if all.is_empty() && !dir.file(NAME).exists() {
        return Ok(());
    }
    let now = SystemTime::now();
    let overrides = all.iter().flat_map(|(cluster, overrides)| overrides.iter().map(|each| saved(cluster, each, now)));
    let saved = humantime::format_rfc3339_seconds(now).to_string();
    let mut bytes = serde_json::to_vec(&Content { version: VERSION, saved, overrides: overrides.collect() })?;
    bytes.push(b'\n');
    if bytes.len() as u64 > MAX_LENGTH {
        return Err(io::Error::other(format!("the overrides are larger than {MAX_LENGTH} bytes")));
    }
    dir.write(NAME, &bytes)
}

fn saved(cluster: &str, OverrideView { address, change, remaining }: &OverrideView, now: SystemTime) -> Saved {
    let endpoint = match change {
        OverrideChange::Added(endpoint) => Some(endpoint),
        _ => None,
    };
    let text = |text: &Option<Arc<str>>| text.as_deref().map(str::to_owned);
    let (kind, weight) = match change {
        OverrideChange::Added(endpoint) => (Kind::Added, Some(endpoint.weight.as_f64())),
        OverrideChange::Removed => (Kind::Removed, None),
        OverrideChange::Weight(weight) => (Kind::Weight, Some(weight.as_f64())),
        OverrideChange::Drained => (Kind::Drained, None),
    };
    // An end that no calendar has is as good as none.
    let until = remaining.and_then(|remaining| now.checked_add(remaining));
    Saved {
        cluster: cluster.to_owned(),
        address: *address,
        kind,
        weight,
        zone: endpoint.and_then(|endpoint| text(&endpoint.zone)),
        locality: endpoint.and_then(|endpoint| text(&endpoint.locality)),
        speed: endpoint.and_then(|endpoint| endpoint.speed).map(Speed::as_f64),
        until: until.map(|until| humantime::format_rfc3339_millis(until).to_string()),
    }
}

impl Saved {
    fn entry(self) -> Result<Entry, String> {
        let Self { cluster, address, kind, weight, zone, locality, speed, until } = self;
        let weight = weight.map(|weight| Weight::new(weight).ok_or_else(|| format!("{weight} is no weight")));
        let weight = weight.transpose()?;
        let speed = speed.map(|speed| Speed::new(speed).ok_or_else(|| format!("{speed} is no speed of a machine")));
        let speed = speed.transpose()?;
        let until = until.map(|until| humantime::parse_rfc3339(&until).map_err(|_| format!("{until:?} is no time")));
        let change = match kind {
            Kind::Added => {
                let mut endpoint = Endpoint::new(address).weight(weight.unwrap_or(Weight::ONE));
                endpoint.zone = zone.map(Arc::from);
                endpoint.locality = locality.map(Arc::from);
                endpoint.speed = speed;
                OverrideChange::Added(endpoint)
            }
            Kind::Removed => OverrideChange::Removed,
            Kind::Weight => OverrideChange::Weight(weight.ok_or("the weight is missing")?),
            Kind::Drained => OverrideChange::Drained,
        };
        Ok((cluster, address, change, until.transpose()?))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::test_folder::TestFolder;
    use super::*;

    fn address(port: u16) -> Address {
        Address::from(([10, 0, 0, 1], port))
    }

    fn every_kind() -> SavedOverrides {
        let endpoint = Endpoint::new(address(1)).weight(Weight::new(2.5).unwrap()).zone("a").locality("east");
        let endpoint = endpoint.speed(Speed::new(1.5).unwrap());
        let view = |address, change, remaining| OverrideView { address, change, remaining };
        let hour = Some(Duration::from_secs(3_600));
        let web = vec![
            view(address(1), OverrideChange::Added(endpoint), None),
            view(address(1), OverrideChange::Drained, hour),
            view(address(2), OverrideChange::Removed, None),
        ];
        let db =
            vec![view("[2001:db8::1]:5".parse().unwrap(), OverrideChange::Weight(Weight::new(0.5).unwrap()), hour)];
        [("web".to_owned(), web), ("db".to_owned(), db)].into()
    }

    #[test]
    fn overrides_are_read_as_they_were_saved_and_time_goes_on() {
        let folder = TestFolder::new();
        let dir = StateDir::open(&folder.0).unwrap();
        assert!(read(&dir).is_empty());
        save(&dir, &every_kind()).unwrap();
        let mut read = read(&dir);
        for each in read.values_mut().flatten() {
            if let Some(remaining) = &mut each.remaining {
                assert!((3_500..=3_600).contains(&remaining.as_secs()), "{remaining:?}");
                *remaining = Duration::from_secs(3_600);
            }
        }
        assert_eq!(read, every_kind());
    }

    #[test]
    fn ended_override_is_not_read() {
        let folder = TestFolder::new();
        let dir = StateDir::open(&folder.0).unwrap();
        save(&dir, &every_kind()).unwrap();
        let later = SystemTime::now() + Duration::from_secs(3_700);
        let left = by_cluster(load(dir.path(), later).unwrap(), later);
        assert_eq!(left.keys().collect::<Vec<_>>(), ["web"]);
        assert!(left["web"].iter().all(|each| each.remaining.is_none()), "{left:?}");
    }

    #[test]
    fn damaged_file_is_a_warning_that_names_the_problem() {
        let folder = TestFolder::new();
        let dir = StateDir::open(&folder.0).unwrap();
        let entry = |entry: &str| format!(r#"{{"version": 1, "saved": "", "overrides": [{entry}]}}"#);
        for (text, problem) in [
            ("{".to_owned(), "EOF"),
            (r#"{"version": 2}"#.to_owned(), "version 2 of the format"),
            (entry(r#"{"cluster": "a", "address": "web:80", "kind": "drained"}"#), "no IP address with a port"),
            (entry(r#"{"cluster": "a", "address": "10.0.0.1:80", "kind": "up"}"#), "unknown variant `up`"),
            (entry(r#"{"cluster": "a", "address": "10.0.0.1:80", "kind": "weight"}"#), "[0]: the weight is missing"),
            (entry(r#"{"cluster": "a", "address": "10.0.0.1:80", "kind": "weight", "weight": 0}"#), "0 is no weight"),
            (entry(r#"{"cluster": "a", "address": "10.0.0.1:80", "kind": "added", "speed": 0}"#), "0 is no speed"),
            (entry(r#"{"cluster": "a", "address": "10.0.0.1:80", "kind": "removed", "until": "soon"}"#), "is no time"),
        ] {
            fs::write(dir.file(NAME), &text).unwrap();
            let error = saved_overrides(dir.path()).unwrap_err();
            assert!(error.contains(problem) && error.contains(NAME), "{text}: {error}");
            assert!(read(&dir).is_empty());
        }
    }

    #[test]
    fn saved_override_is_shown_in_words() {
        let folder = TestFolder::new();
        let dir = StateDir::open(&folder.0).unwrap();
        save(&dir, &every_kind()).unwrap();
        let words: Vec<String> = saved_overrides(dir.path()).unwrap().iter().map(ToString::to_string).collect();
        assert!(words[0].starts_with("[2001:db8::1]:5 weight 0.5 until 2"), "{words:?}");
        assert_eq!(words[1], "10.0.0.1:1 added with weight 2.5 until it is revoked");
        assert_eq!(words[3], "10.0.0.1:2 removed until it is revoked");
    }
}
