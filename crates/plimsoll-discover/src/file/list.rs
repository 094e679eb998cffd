//! The formats of a file with backends.
//!
//! ```toml
//! [[backends]]
//! address = "10.0.0.1:8080"     # or a name with a port: one backend for each of its addresses
//! weight = 2                    # optional, as all that follows
//! zone = "a"
//! locality = "east"
//! state = "draining"            # "ready", "starting" or "draining"
//! ordinal = 3                   # its own number among the backends
//! speed = 1.5                   # of its machine, relative to the reference core
//! ```
//!
//! JSON has the same: `{"backends": [{"address": "10.0.0.1:8080", "weight": 2}]}`. A JSON array is a
//! list of Prometheus' `file_sd`, a format that many programs write already:
//! `[{"targets": ["10.0.0.1:8080"], "labels": {"zone": "a", "weight": "2"}}]`. Its labels `weight`,
//! `zone`, `locality`, `state`, `ordinal` and `speed` are read, others have no effect.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use plimsoll::discover::{Endpoint, Readiness, ResolveError, resolve};
use plimsoll_core::{Speed, Weight};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

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
        /// The entry, such as `line 7: backends[2]`.
        place: String,
        /// Its problem, and the fix.
        problem: String,
    },
    /// Names are not looked up in time.
    #[error("names are not looked up within 10 s: check the resolver, or list addresses")]
    SlowResolver,
    /// A name has no address.
    #[error("{place}: {error}")]
    Resolve {
        /// The entry, such as `line 7: backends[2]`.
        place: String,
        /// The name, and the resolver's error.
        error: ResolveError,
    },
}

/// Most backends of a list.
const MAX_BACKENDS: usize = 100_000;
/// Longest zone, locality or state, in bytes.
const MAX_LABEL: usize = 256;
/// Names that are looked up at once.
const MAX_LOOKUPS: usize = 16;
/// Time for all look-ups of a list. A resolver that does not answer in it is an error.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// The backends of a file.
#[derive(Debug)]
pub(super) struct List {
    pub(super) endpoints: Vec<Endpoint>,
    /// It has names, whose addresses may change while the file stays the same.
    pub(super) has_names: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entries<'a> {
    #[serde(borrow)]
    backends: Vec<Entry<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry<'a> {
    #[serde(borrow)]
    address: Cow<'a, str>,
    weight: Option<f64>,
    #[serde(borrow)]
    zone: Option<Cow<'a, str>>,
    #[serde(borrow)]
    locality: Option<Cow<'a, str>>,
    #[serde(borrow)]
    state: Option<Cow<'a, str>>,
    ordinal: Option<u32>,
    speed: Option<f64>,
}

/// A group of targets in a `file_sd` list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    targets: Vec<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// The place of an entry in its list, counted from 0.
#[derive(Clone, Copy, Debug)]
enum Place {
    Backend(usize),
    Group(usize),
    /// The group, and the target in it.
    Target(usize, usize),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backend(i) => write!(f, "backends[{i}]"),
            Self::Group(i) => write!(f, "[{i}]"),
            Self::Target(i, j) => write!(f, "[{i}].targets[{j}]"),
        }
    }
}

/// Reads a list, and looks its names up.
pub(super) async fn parse(path: &Path, bytes: &[u8]) -> Result<List, ListError> {
    let found = backends(path, bytes)?;
    if found.iter().all(|(_, name, _)| name.is_none()) {
        return Ok(List { endpoints: found.into_iter().map(|(_, _, endpoint)| endpoint).collect(), has_names: false });
    }
    let look_up = |(place, name, like): (Place, Option<String>, Endpoint)| async move {
        let Some(name) = name else { return Ok::<_, ListError>(vec![like]) };
        let unresolved = |error| ListError::Resolve { place: place_text(path, bytes, place), error };
        let found = resolve([&name]).await.map_err(unresolved)?.into_iter();
        let like = |found: Endpoint| {
            let mut endpoint = like.clone().at(found.address);
            endpoint.authority = found.authority;
            endpoint
        };
        Ok(found.map(like).collect())
    };
    let all = stream::iter(found).map(look_up).buffered(MAX_LOOKUPS).try_collect::<Vec<Vec<Endpoint>>>();
    let endpoints = tokio::time::timeout(LOOKUP_TIMEOUT, all).await.map_err(|_| ListError::SlowResolver)??;
    Ok(List { endpoints: endpoints.into_iter().flatten().collect(), has_names: true })
}

/// The endpoints of a list, each with its place, and with its name if it has one to be looked up.
fn backends(path: &Path, bytes: &[u8]) -> Result<Vec<(Place, Option<String>, Endpoint)>, ListError> {
    let entries = entries(path, bytes)?;
    if entries.len() > MAX_BACKENDS {
        let problem = format!("lists {} backends, more than {MAX_BACKENDS}", entries.len());
        return Err(ListError::Entry { place: "backends".to_owned(), problem });
    }
    let found = entries.map(|(place, entry)| match read(&entry) {
        Ok((name, endpoint)) => Ok((place, name, endpoint)),
        Err(problem) => Err(ListError::Entry { place: place_text(path, bytes, place), problem }),
    });
    found.collect()
}

/// A place with its line, for a message.
fn place_text(path: &Path, bytes: &[u8], place: Place) -> String {
    match std::str::from_utf8(bytes).ok().and_then(|text| line_of(path, text, place)) {
        Some(line) => format!("line {line}: {place}"),
        None => place.to_string(),
    }
}

/// The endpoint of an entry, with its name if it has one to be looked up.
fn read(entry: &Entry<'_>) -> Result<(Option<String>, Endpoint), String> {
    let Entry { address, weight, zone, locality, state, ordinal, speed } = entry;
    if !has_port(address) {
        return Err(format!("`{}` is no address with a port, such as 10.0.0.1:8080", shortened(address)));
    }
    if let Some(long) = [zone, locality, state].into_iter().flatten().find(|label| label.len() > MAX_LABEL) {
        return Err(format!("`{}` is longer than {MAX_LABEL} bytes", shortened(long)));
    }
    let weight = weight.map_or(Ok(Weight::ONE), |weight| {
        Weight::new(weight).ok_or_else(|| format!("{weight} is no weight: use a number from 0.001 to 1000"))
    })?;
    let speed = speed.map(|speed| {
        Speed::new(speed).ok_or_else(|| format!("{speed} is no speed of a machine: use a number from 0.01 to 100"))
    });
    let known = address.parse::<SocketAddr>().ok();
    let mut endpoint = Endpoint::new(known.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0))));
    endpoint.weight = weight;
    endpoint.zone = zone.as_deref().map(Into::into);
    endpoint.locality = locality.as_deref().map(Into::into);
    endpoint.readiness = readiness(state.as_deref())?;
    endpoint.ordinal = *ordinal;
    endpoint.speed = speed.transpose()?;
    Ok((known.is_none().then(|| address.to_string()), endpoint))
}

/// The beginning of a long text, for a message.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// The entries of a list, each with its place.
type Numbered<'a> = Box<dyn ExactSizeIterator<Item = (Place, Entry<'a>)> + 'a>;

fn entries<'a>(path: &Path, bytes: &'a [u8]) -> Result<Numbered<'a>, ListError> {
    let text = std::str::from_utf8(bytes).map_err(ListError::NotText)?;
    let numbered = |list: Entries<'a>| -> Numbered<'a> {
        Box::new(list.backends.into_iter().enumerate().map(|(i, entry)| (Place::Backend(i), entry)))
    };
    if is_toml(path) {
        // Without the line itself, which may be of a file that is no list.
        let syntax = |error: toml::de::Error| {
            let line = error.span().map_or(1, |span| line_at(text, span.start));
            ListError::Syntax(format!("line {line}: {}", error.message()))
        };
        return toml::from_str(text).map(numbered).map_err(syntax);
    }
    let syntax = |error: serde_json::Error| ListError::Syntax(error.to_string());
    if !is_file_sd(text) {
        return serde_json::from_str(text).map(numbered).map_err(syntax);
    }
    let groups: Vec<Group> = serde_json::from_str(text).map_err(syntax)?;
    let mut entries = Vec::new();
    for (i, Group { targets, labels }) in groups.into_iter().enumerate() {
        let label = |name: &str| labels.get(name).cloned().map(Cow::Owned);
        let wrong = |problem| ListError::Entry { place: place_text(path, bytes, Place::Group(i)), problem };
        let weight = number(&labels, "weight", "use a number above 0, such as \"1\"").map_err(wrong)?;
        let speed = number(&labels, "speed", "use a number above 0, such as \"1.5\"").map_err(wrong)?;
        let ordinal = number(&labels, "ordinal", "use a whole number from 0 up").map_err(wrong)?;
        if let Some(long) = labels.values().find(|label| label.len() > MAX_LABEL) {
            return Err(wrong(format!("the label `{}` is longer than {MAX_LABEL} bytes", shortened(long))));
        }
        for (j, address) in targets.into_iter().enumerate() {
            let (zone, locality, state) = (label("zone"), label("locality"), label("state"));
            let entry = Entry { address: address.into(), weight, zone, locality, state, ordinal, speed };
            entries.push((Place::Target(i, j), entry));
        }
    }
    Ok(Box::new(entries.into_iter()))
}

/// The number in a label, if there is one; else the problem, with `help`.
fn number<T: FromStr>(labels: &BTreeMap<String, String>, name: &str, help: &str) -> Result<Option<T>, String> {
    let wrong = |text: &String| format!("the label {name} is `{}`: {help}", shortened(text));
    labels.get(name).map(|text| text.parse().map_err(|_| wrong(text))).transpose()
}

fn is_toml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "toml")
}

/// Whether JSON is a list of Prometheus' `file_sd`.
fn is_file_sd(text: &str) -> bool {
    text.trim_start().starts_with('[')
}

fn line_at(text: &str, offset: usize) -> usize {
    1 + text[..offset].matches('\n').count()
}

/// The line at which an entry begins. The text is read again for it, since only errors have a line.
fn line_of(path: &Path, text: &str, place: Place) -> Option<usize> {
    #[derive(Deserialize)]
    struct Whole<E> {
        backends: Vec<E>,
    }
    #[derive(Deserialize)]
    struct Targets<'a> {
        #[serde(borrow)]
        targets: Vec<&'a RawValue>,
    }
    let offset = |part: &RawValue| part.get().as_ptr().addr() - text.as_ptr().addr();
    let start = match place {
        Place::Backend(i) if is_toml(path) => {
            toml::from_str::<Whole<toml::Spanned<IgnoredAny>>>(text).ok()?.backends.get(i)?.span().start
        }
        Place::Backend(i) => offset(serde_json::from_str::<Whole<&RawValue>>(text).ok()?.backends.get(i)?),
        Place::Group(i) => offset(serde_json::from_str::<Vec<&RawValue>>(text).ok()?.get(i)?),
        Place::Target(i, j) => offset(serde_json::from_str::<Vec<Targets<'_>>>(text).ok()?.get(i)?.targets.get(j)?),
    };
    Some(line_at(text, start))
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

    async fn list_of(name: &str, text: &str) -> Result<Vec<Endpoint>, String> {
        parse(Path::new(name), text.as_bytes()).await.map(|list| list.endpoints).map_err(|error| error.to_string())
    }

    fn full() -> Vec<Endpoint> {
        let first = Endpoint::new("10.0.0.1:80".parse::<SocketAddr>().unwrap()).weight(Weight::new(2.5).unwrap());
        let first =
            first.zone("a").locality("east").readiness(Readiness::Draining).ordinal(7).speed(Speed::new(1.5).unwrap());
        vec![first, Endpoint::new("[::1]:81".parse::<SocketAddr>().unwrap())]
    }

    #[tokio::test]
    async fn three_formats_say_the_same() {
        let toml = "[[backends]]\naddress = \"10.0.0.1:80\"\nweight = 2.5\nzone = \"a\"\nlocality = \"east\"\n\
                    state = \"draining\"\nordinal = 7\nspeed = 1.5\n[[backends]]\naddress = \"[::1]:81\"\n";
        let json = r#"{"backends": [{"address": "10.0.0.1:80", "weight": 2.5, "zone": "a", "locality": "east",
                       "state": "draining", "ordinal": 7, "speed": 1.5}, {"address": "[::1]:81"}]}"#;
        let file_sd = r#" [{"targets": ["10.0.0.1:80"], "labels": {"zone": "a", "locality": "east", "weight": "2.5",
                       "state": "draining", "ordinal": "7", "speed": "1.5", "job": "web"}}, {"targets": ["[::1]:81"]}]"#;
        for (name, text) in [("web.toml", toml), ("web.json", json), ("web.json", file_sd), ("targets", file_sd)] {
            assert_eq!(list_of(name, text).await, Ok(full()), "{name}");
        }
    }

    #[tokio::test]
    async fn name_is_one_backend_per_address_with_the_name_as_its_authority() {
        let list = list_of("web.json", r#"{"backends": [{"address": "localhost:80", "weight": 3}]}"#).await.unwrap();
        assert!(!list.is_empty());
        for endpoint in list {
            assert!(endpoint.address.ip().unwrap().is_loopback());
            assert_eq!(
                (endpoint.authority, endpoint.weight),
                (Some("localhost:80".parse().unwrap()), Weight::new(3.0).unwrap())
            );
        }
    }

    #[tokio::test]
    async fn error_names_the_place_and_the_fix() {
        let cases = [
            ("web.toml", "\nbackends = [", "line 2: "),
            ("web.json", r#"[{"targets": ["a:1"], "labels": {"weight": "2000"}}]"#, "from 0.001 to 1000"),
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
            ("web.json", r#"{"backends": [{"address": "1.2.3.4:5", "speed": 0}]}"#, "backends[0]: 0 is no speed"),
            ("web.json", r#"[{"targets": ["a:1"], "labels": {"speed": "fast"}}]"#, "[0]: the label speed is `fast`"),
            ("web.json", r#"[{"targets": ["a:1"], "labels": {"weight": "much"}}]"#, "[0]: the label weight is `much`"),
            (
                "web.json",
                r#"[{"targets": ["a:1"], "labels": {"ordinal": "-1"}}]"#,
                "[0]: the label ordinal is `-1`: use a whole",
            ),
            ("web.json", r#"{"backends": [{"address": "1.2.3.4:5", "ordinal": -1}]}"#, "invalid value: integer `-1`"),
            ("web.json", r#"[{"targets": ["10.0.0.1:80", "10.0.0.2"]}]"#, "[0].targets[1]: `10.0.0.2` is no address"),
            ("web.json", r#"{"backends": [{"address": "no.invalid:80"}]}"#, "cannot resolve no.invalid:80"),
        ];
        for (name, text, expected) in cases {
            let error = list_of(name, text).await.unwrap_err();
            assert!(error.contains(expected), "{text}\n{error}");
        }
        assert!(matches!(parse(Path::new("a.json"), b"\xff").await, Err(ListError::NotText(_))));
    }

    #[tokio::test]
    async fn wrong_entry_is_named_by_its_line_and_number() {
        let good = "10.0.0.1:80";
        for (wrong, problem) in
            [("10.0.0.2", "`10.0.0.2` is no address"), ("no.invalid:80", "cannot resolve no.invalid:80")]
        {
            let toml =
                format!("[[backends]]\naddress = \"{good}\"\n\n[[backends]]\nzone = \"a\"\naddress = \"{wrong}\"\n");
            let inline = format!("backends = [\n  {{ address = \"{good}\" }},\n  {{ address = \"{wrong}\" }},\n]\n");
            let json =
                format!("{{\"backends\": [\n  {{\"address\": \"{good}\"}},\n  {{\"address\": \"{wrong}\"}}\n]}}\n");
            let file_sd = format!("[\n  {{\"targets\": []}},\n  {{\"targets\": [\"{good}\",\n    \"{wrong}\"]}}\n]\n");
            for (name, text, place) in [
                ("web.toml", toml, "line 4: backends[1]: "),
                ("web.toml", inline, "line 3: backends[1]: "),
                ("web.json", json, "line 3: backends[1]: "),
                ("web.json", file_sd, "line 4: [1].targets[1]: "),
            ] {
                let error = list_of(name, &text).await.unwrap_err();
                assert!(error.starts_with(&format!("{place}{problem}")), "{text}\n{error}");
            }
        }
        let label = "[{\"targets\": []},\n {\"targets\": [],\n \"labels\": {\"weight\": \"much\"}}]";
        let error = list_of("web.json", label).await.unwrap_err();
        assert!(error.starts_with("line 2: [1]: the label weight"), "{error}");
    }
}
