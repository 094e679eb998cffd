//! Follows one proxy: its stream of states, again after each break, and another cluster on demand.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use plimsoll_admin::Live;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::admin::events::{Events, ask, ask_text, clean};
use crate::admin::failure::Failure;
use crate::admin::path::escaped;

/// Time between two attempts after a break: a proxy that restarts is back within a second.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// Time between two questions to a proxy that has as many viewers as it takes.
const POLL: Duration = Duration::from_secs(1);

/// The event with the past ten minutes.
#[derive(Debug, Deserialize)]
pub(crate) struct History {
    pub(crate) cluster: String,
    pub(crate) begin: f64,
    pub(crate) step_s: f64,
    pub(crate) samples: usize,
    pub(crate) series: BTreeMap<String, Vec<Option<f64>>>,
}

/// News of a proxy.
#[derive(Debug)]
pub(crate) enum News {
    /// The past ten minutes.
    History(History),
    /// The present, and its JSON as it came.
    Live(Box<Live>, String),
    /// There is no answer.
    Lost(String),
    /// The proxy has no such cluster (any more).
    NoCluster(String),
}

/// The path of the state of a cluster.
pub(crate) fn path(page: &str, cluster: Option<&str>) -> String {
    let query = cluster.map(|name| format!("?cluster={}", escaped(name))).unwrap_or_default();
    format!("/api/v1/{page}{query}")
}

/// The way from the JSON of an answer to a state.
pub(crate) type Read = fn(&str) -> Result<Live, Failure>;

/// The answer in JSON, with all texts printable: for a terminal.
pub(crate) fn read(json: &str) -> Result<Live, Failure> {
    let json = clean(serde_json::from_str::<Value>(json).map_err(unreadable)?);
    of_proxy(&json)?;
    serde_json::from_value(json).map_err(unreadable)
}

/// The answer of a single proxy in JSON, with its texts as they are: for a page.
pub(crate) fn read_single(json: &str) -> Result<Live, Failure> {
    match serde_json::from_str::<Live>(json) {
        Ok(live) if live.process.kind == "fleet" => {
            Err(Failure::Foreign("it is a page over several proxies: name those proxies".to_owned()))
        }
        Ok(live) => Ok(live),
        Err(error) => {
            of_proxy(&serde_json::from_str(json).map_err(unreadable)?)?;
            Err(unreadable(error))
        }
    }
}

fn unreadable(error: serde_json::Error) -> Failure {
    Failure::Foreign(format!("its answer cannot be read, perhaps it is of another version: {error}"))
}

/// Whether the state is one of a proxy, or of several.
fn of_proxy(json: &Value) -> Result<(), Failure> {
    match json["process"]["kind"].as_str() {
        Some("quota") => Err(Failure::Quota),
        _ => Ok(()),
    }
}

/// Follows the proxy at `admin` for ever; `tell` returns false when nobody listens any more.
pub(crate) async fn follow(
    admin: String,
    mut cluster: watch::Receiver<Option<String>>,
    read: Read,
    tell: impl Fn(News) -> bool,
) {
    let mut pause = FIRST_PAUSE;
    loop {
        let wanted = cluster.borrow_and_update().clone();
        let ended = tokio::select! {
            changed = cluster.changed() => {
                if changed.is_err() {
                    return;
                }
                pause = FIRST_PAUSE;
                continue;
            }
            ended = stream(&admin, wanted.as_deref(), read, &tell, &mut pause) => ended,
        };
        let is_heard = match (ended, wanted) {
            (Ended::Unheard, _) => false,
            (Ended::Refused { status: 404, .. }, Some(name)) => tell(News::NoCluster(name)),
            (Ended::Refused { why, .. } | Ended::Broken(why), _) => tell(News::Lost(why)),
        };
        if !is_heard {
            return;
        }
        tokio::select! {
            changed = cluster.changed() => if changed.is_err() { return },
            () = sleep(pause) => pause = (pause * 2).min(MAX_PAUSE),
        }
    }
}

/// How a stream ended.
enum Ended {
    Unheard,
    Refused { status: u16, why: String },
    Broken(String),
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        let why = failure.to_string();
        match failure {
            Failure::Refused { status, .. } => Self::Refused { status, why },
            _ => Self::Broken(why),
        }
    }
}

async fn stream(
    admin: &str,
    cluster: Option<&str>,
    read: Read,
    tell: &impl Fn(News) -> bool,
    pause: &mut Duration,
) -> Ended {
    let mut events = match Events::open(admin, &path("live/stream", cluster)).await {
        Ok(events) => events,
        Err(Failure::Refused { status: 503, .. }) => return poll(admin, cluster, read, tell, pause).await,
        Err(failure) => return failure.into(),
    };
    loop {
        let event = match events.next().await {
            Ok(Some(event)) => event,
            Ok(None) => return Ended::Broken("the proxy ended the stream".to_owned()),
            Err(error) => return Ended::Broken(format!("{error:#}")),
        };
        *pause = FIRST_PAUSE;
        let news = match event.name.as_str() {
            "history" => serde_json::from_str(&event.data).ok().map(News::History),
            "live" => match read(&event.data) {
                Ok(live) => Some(News::Live(Box::new(live), event.data)),
                Err(failure) => return failure.into(),
            },
            _ => None,
        };
        if news.is_some_and(|news| !tell(news)) {
            return Ended::Unheard;
        }
    }
}

/// Asks each second, without the past.
async fn poll(
    admin: &str,
    cluster: Option<&str>,
    read: Read,
    tell: &impl Fn(News) -> bool,
    pause: &mut Duration,
) -> Ended {
    loop {
        let json = match ask_text(admin, Method::GET, &path("live", cluster)).await {
            Ok(json) => json,
            Err(failure) => return failure.into(),
        };
        *pause = FIRST_PAUSE;
        let live = match read(&json) {
            Ok(live) => Box::new(live),
            Err(failure) => return failure.into(),
        };
        if !tell(News::Live(live, json)) {
            return Ended::Unheard;
        }
        sleep(POLL).await;
    }
}

/// The answer of a command, in words.
pub(crate) async fn command(admin: &str, path: &str) -> Result<Value, Failure> {
    ask(admin, Method::POST, path).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_other_programs_are_told_apart() {
        let refused = |json: &str| read(json).unwrap_err().to_string();
        assert!(refused("{").contains("cannot be read"));
        assert!(refused("{}").contains("missing field `at`"));
        assert!(refused(r#"{"process":{"kind":"quota"}}"#).contains("quota server"));
        let refused = |json: &str| read_single(json).unwrap_err().to_string();
        assert!(refused("{").contains("cannot be read"));
        assert!(refused(r#"{"at":1}"#).contains("of another version: missing field"));
        assert!(refused(r#"{"process":{"kind":"quota"}}"#).contains("quota server"));
        let mut live = crate::fleet::tests::examples::fine();
        let json = |live: &Live| serde_json::to_string(live).unwrap();
        assert_eq!(read_single(&json(&live)).unwrap(), live);
        live.process.kind = "fleet".to_owned();
        assert!(refused(&json(&live)).contains("name those proxies"));
        assert!(read(&json(&live)).is_ok(), "top can show it");
    }

    #[test]
    fn names_of_clusters_are_escaped_in_paths() {
        assert_eq!(path("live", Some("a&b=c")), "/api/v1/live?cluster=a%26b%3Dc");
        assert_eq!(path("live/stream", None), "/api/v1/live/stream");
    }
}
