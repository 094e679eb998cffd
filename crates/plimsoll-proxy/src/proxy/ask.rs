//! The answers of all sources of a configuration, once and without a proxy: for `plimsoll check --resolve`.

use std::pin::Pin;
use std::time::Duration;

use plimsoll::discover::{Answer, Discover, Endpoint};
use tokio::time::timeout;

use super::source::{Use, give, label};
use crate::config::{Config, ConfigError, Names};

/// As at the start of a proxy, which waits no longer for a first list.
const WAIT: Duration = Duration::from_secs(10);

/// The backends of a cluster by its source, or by the names in its configuration.
#[derive(Debug)]
#[non_exhaustive]
pub struct SourceAnswer {
    /// The name of the cluster.
    pub cluster: String,
    /// The source in a few words.
    pub source: String,
    /// Its backends, or the reason why there are none.
    pub backends: Result<Vec<Endpoint>, String>,
}

/// Asks the source of each cluster, all at once, and looks up the names of backends. Takes 10 seconds at
/// most, besides the names. Returns the answers, and the names that cannot be looked up.
///
/// # Panics
/// Outside a tokio runtime.
pub async fn ask_sources(config: &Config) -> (Vec<SourceAnswer>, Option<ConfigError>) {
    let looked_up = {
        let config = config.clone();
        tokio::task::spawn_blocking(move || config.resolve(&Names::new()))
    };
    let mut asked = Vec::new();
    for name in config.clusters().keys() {
        if let Some(followed) = config.followed(name) {
            let answer = tokio::spawn(give(&followed.origin, followed.ordinals, Ask));
            asked.push((name.clone(), label(&followed), answer));
        }
    }
    let mut answers = Vec::new();
    let resolved = looked_up.await.expect("a look-up does not panic");
    let problems = resolved.problems(config);
    for (cluster, backends) in resolved.endpoints {
        if !backends.is_empty() {
            answers.push(SourceAnswer {
                cluster,
                source: "backends of the configuration".to_owned(),
                backends: Ok(backends),
            });
        }
    }
    for (cluster, source, answer) in asked {
        let backends = answer.await.expect("a source does not panic");
        answers.push(SourceAnswer { cluster, source, backends });
    }
    answers.sort_by(|a, b| a.cluster.cmp(&b.cluster));
    (answers, problems)
}

/// Asks a source once.
struct Ask;

impl Use for Ask {
    type Outcome = Pin<Box<dyn Future<Output = Result<Vec<Endpoint>, String>> + Send>>;

    fn with(self, mut source: impl Discover + 'static) -> Self::Outcome {
        Box::pin(async move {
            match timeout(WAIT, source.next()).await {
                Ok(Some(Answer::Ok(backends))) => Ok(backends),
                Ok(Some(Answer::Err(error))) => Err(error.to_string()),
                Ok(None) => Err("it ended without an answer".to_owned()),
                Err(_) => Err(format!("it did not answer within {} s", WAIT.as_secs())),
            }
        })
    }
}
