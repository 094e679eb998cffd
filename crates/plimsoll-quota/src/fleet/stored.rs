//! The settings of services in etcd, with their history.
//!
//! ```text
//! quota/config/SERVICE     the table of the service, TOML
//! quota/changes/SERVICE    author and time of its last change, JSON, written in the same transaction
//! ```
//!
//! The versions of before are those that etcd keeps until it compacts them.

use std::collections::BTreeMap;
use std::time::SystemTime;

use plimsoll_config::{ConfigError, Problem};
use plimsoll_etcd::{Client, Condition, EtcdError, Event, Record, Txn};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{CONFIG, KEYS};
use crate::config::{ServiceConfig, is_service_name};

const CHANGES: &str = "changes/";

/// The reason why settings in etcd cannot be read or changed.
#[derive(Debug, Error)]
pub enum StoredError {
    /// etcd does not answer, or refuses.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// Another change came first.
    #[error("the settings of {0:?} were changed meanwhile")]
    Changed(String),
    /// Not the name of a service.
    #[error("{0:?} is not the name of a service: use 1 to 256 bytes without control characters")]
    Name(String),
    /// A value that is no text.
    #[error("the settings of {0:?} in etcd are no text")]
    NoText(String),
}

/// The author of a change, and its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Author {
    /// The name that the author gave.
    pub author: String,
    /// The time by the author's clock, as RFC 3339.
    pub time: String,
}

impl Author {
    /// A change at this moment.
    #[must_use]
    pub fn now(author: impl Into<String>) -> Self {
        let time = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        Self { author: author.into(), time }
    }
}

/// The settings of a service after a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The revision of etcd.
    pub revision: i64,
    /// The table of the service; `None`: it was removed.
    pub text: Option<String>,
    /// `None`: it was written by another program.
    pub author: Option<Author>,
}

/// The settings of services in etcd.
#[derive(Clone, Debug)]
pub struct Stored(Client);

impl Stored {
    /// Those of the fleet of this client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self(client)
    }

    fn keys(&self, service: &str) -> Result<[String; 2], StoredError> {
        if !is_service_name(service) {
            return Err(StoredError::Name(service.to_owned()));
        }
        Ok([CONFIG, CHANGES].map(|folder| format!("{}{KEYS}{folder}{service}", self.0.prefix())))
    }

    /// The names of all services.
    ///
    /// # Errors
    /// etcd does not answer, or refuses.
    pub async fn services(&self) -> Result<Vec<String>, StoredError> {
        let prefix = format!("{}{KEYS}{CONFIG}", self.0.prefix());
        let records = self.0.list(&prefix).await?.records;
        Ok(records.iter().filter_map(|record| record.key.strip_prefix(&prefix)).map(str::to_owned).collect())
    }

    /// The settings of a service, and the revision of their last change; `None`: there are none.
    ///
    /// # Errors
    /// etcd does not answer, or refuses; a value that is no text.
    pub async fn get(&self, service: &str) -> Result<Option<(String, i64)>, StoredError> {
        let [config, _] = self.keys(service)?;
        let Some(record) = self.0.get(&config).await? else { return Ok(None) };
        Ok(Some((text(service, &record)?, record.mod_revision)))
    }

    /// Sets the settings of a service, or removes them, if their last change is still that of `revision`; 0: there are
    /// none. The text is not checked.
    ///
    /// # Errors
    /// [`StoredError::Changed`]; etcd does not answer, or refuses.
    pub async fn set(
        &self,
        service: &str,
        text: Option<&str>,
        revision: i64,
        author: &Author,
    ) -> Result<i64, StoredError> {
        let [config, change] = self.keys(service)?;
        let txn = Txn::new().when(Condition::unchanged(&config, revision));
        let txn = match text {
            Some(text) => txn.put(&config, text, None),
            None => txn.delete(&config),
        };
        let author = serde_json::to_vec(author).expect("texts are JSON");
        let result = self.0.txn(txn.put(&change, author, None)).await?;
        if result.is_done { Ok(result.revision) } else { Err(StoredError::Changed(service.to_owned())) }
    }

    /// The last changes of a service, at most `most`, the latest first. Fewer if etcd has compacted earlier ones.
    ///
    /// # Errors
    /// etcd does not answer, or refuses; a value that is no text.
    pub async fn history(&self, service: &str, most: usize) -> Result<Vec<Change>, StoredError> {
        let [config, change] = self.keys(service)?;
        let mut changes = Vec::new();
        // 0 is now.
        let mut at = 0;
        while changes.len() < most {
            let (of, by) = match (self.0.get_at(&config, at).await, self.0.get_at(&change, at).await) {
                (Err(EtcdError::Compacted), _) | (_, Err(EtcdError::Compacted)) => break,
                (of, by) => (of?, by?),
            };
            let revisions = [&of, &by].map(|record| record.as_ref().map_or(0, |record| record.mod_revision));
            let revision = revisions[0].max(revisions[1]);
            if revision == 0 {
                break;
            }
            let by = by.filter(|by| by.mod_revision == revision);
            let author = by.and_then(|by| serde_json::from_slice(&by.value).ok());
            let text = of.map(|of| text(service, &of)).transpose()?;
            changes.push(Change { revision, text, author });
            at = revision - 1;
            if at == 0 {
                break;
            }
        }
        Ok(changes)
    }
}

fn text(service: &str, record: &Record) -> Result<String, StoredError> {
    String::from_utf8(record.value.clone()).map_err(|_| StoredError::NoText(service.to_owned()))
}

/// Whether an event changes the settings of a service.
pub(super) fn is_of_a_service(event: &Event) -> bool {
    let (Event::Put(Record { key, .. }) | Event::Delete(key)) = event;
    key.starts_with(CONFIG)
}

/// The settings of a service, as a server knows them.
#[derive(Clone, Debug, PartialEq)]
struct Known {
    revision: i64,
    /// The last good ones.
    good: Option<ServiceConfig>,
    is_bad: bool,
}

/// The settings of all services in etcd, as a server knows them.
#[derive(Debug, Default)]
pub(crate) struct StoredServices {
    /// `None`: etcd has not answered yet.
    known: Option<BTreeMap<String, Known>>,
}

impl StoredServices {
    /// Whether etcd has told them.
    pub(crate) fn is_known(&self) -> bool {
        self.known.is_some()
    }

    /// Takes the records of etcd. Settings with a problem are logged, and the last good ones stay.
    pub(crate) fn set(&mut self, records: &BTreeMap<String, Record>, has_tls: bool) {
        let mut before = self.known.take().unwrap_or_default();
        let named = records.iter().filter_map(|(key, record)| Some((key.strip_prefix(CONFIG)?, record)));
        let known = named.map(|(name, record)| {
            let revision = record.mod_revision;
            let before = before.remove(name);
            if let Some(before) = before.as_ref().filter(|before| before.revision == revision) {
                return (name.to_owned(), before.clone());
            }
            let good = before.and_then(|before| before.good);
            let known = match read(name, record, has_tls) {
                Ok(config) => Known { revision, good: Some(config), is_bad: false },
                Err(problems) => {
                    log(name, revision, &problems);
                    Known { revision, good, is_bad: true }
                }
            };
            (name.to_owned(), known)
        });
        self.known = Some(known.collect());
    }

    /// The services of a file, with those of etcd in the place of them.
    pub(crate) fn over(&self, file: &BTreeMap<String, ServiceConfig>) -> BTreeMap<String, ServiceConfig> {
        let mut all = file.clone();
        let known = self.known.iter().flatten();
        all.extend(known.filter_map(|(name, known)| Some((name.clone(), known.good.clone()?))));
        all
    }

    /// Services whose settings in etcd are not in force: they have a problem.
    pub(crate) fn bad(&self) -> Vec<String> {
        let bad = self.known.iter().flatten().filter(|(_, known)| known.is_bad);
        bad.map(|(name, _)| name.clone()).collect()
    }
}

fn read(name: &str, record: &Record, has_tls: bool) -> Result<ServiceConfig, Vec<Problem>> {
    let problem = |reason: &str, help: &str| {
        vec![Problem { path: String::new(), position: None, reason: reason.to_owned(), help: help.to_owned() }]
    };
    if !is_service_name(name) {
        return Err(problem("is not the name of a service", "use 1 to 256 bytes without control characters"));
    }
    let text = std::str::from_utf8(&record.value);
    let text = text.map_err(|_| problem("is no text", "write it with plimsoll quota set"))?;
    ServiceConfig::parse(name, text, Some(has_tls)).map_err(|error: ConfigError| error.problems().to_vec())
}

fn log(service: &str, revision: i64, problems: &[Problem]) {
    for Problem { path, position, reason, help } in problems {
        let place = position.map(|position| position.to_string());
        tracing::warn!(service, place, path, reason, help, "config problem in etcd");
    }
    tracing::warn!(service, revision, "settings in etcd refused: the last good ones stay");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(of: &[(&str, &str, i64)]) -> BTreeMap<String, Record> {
        let record = |(name, text, revision): &(&str, &str, i64)| {
            let key = format!("{CONFIG}{name}");
            let value = text.as_bytes().to_vec();
            (key.clone(), Record { key, value, create_revision: 1, mod_revision: *revision, lease: 0 })
        };
        of.iter().map(record).collect()
    }

    fn limit(services: &BTreeMap<String, ServiceConfig>, name: &str) -> Option<f64> {
        services.get(name)?.customers.get("acme")?.hard_limit
    }

    #[test]
    fn settings_of_etcd_are_in_force_and_bad_ones_keep_the_last_good_ones() {
        let text = |limit: f64| format!("[customers.acme]\nhard_limit = {limit:?}\n");
        let of_file = |limit| ServiceConfig::parse("file", &text(limit), Some(false)).unwrap();
        let file = BTreeMap::from([("shop".to_owned(), of_file(1.0)), ("web".to_owned(), of_file(2.0))]);
        let mut stored = StoredServices::default();
        assert!(!stored.is_known() && stored.over(&file) == file);
        stored.set(&records(&[("shop", &text(3.0), 5), ("api", "lease = 7", 6)]), false);
        let all = stored.over(&file);
        assert_eq!(["shop", "web", "api"].map(|name| limit(&all, name)), [Some(3.0), Some(2.0), None]);
        assert_eq!((stored.bad(), all.len()), (vec!["api".to_owned()], 2));
        stored.set(&records(&[("shop", "hard_limit = 3", 7), ("api", &text(4.0), 8)]), false);
        let all = stored.over(&file);
        assert_eq!(["shop", "web", "api"].map(|name| limit(&all, name)), [Some(3.0), Some(2.0), Some(4.0)]);
        assert_eq!(stored.bad(), ["shop"]);
        // Without reporters no task could join.
        stored.set(&records(&[("shop", &text(5.0), 9)]), true);
        assert_eq!((limit(&stored.over(&file), "shop"), stored.bad().len()), (Some(3.0), 1));
        stored.set(&records(&[]), false);
        assert_eq!(stored.over(&file), file);
    }
}
