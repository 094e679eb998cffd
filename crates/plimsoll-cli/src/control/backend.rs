//! `plimsoll drain --backend` and `plimsoll undrain`: take one backend out of use, and back.
//!
//! Each waits for the outcome, as a rolling restart needs: the drain for the end of the requests in
//! flight, the other until the backend is healthy. A command that was too late changes nothing back: the
//! backend stays drained.

use std::time::{Duration, Instant};

use plimsoll::address::Address;
use plimsoll_proxy::printable;
use serde_json::Value;

use super::Target;
use super::api::{Answer, Api, PATIENCE};
use super::drain::requests;
use super::find::Found;
use crate::admin::events::clean;
use crate::admin::path::escaped;
use crate::exit::{Outcome, Problem, Verdict};
use crate::output::{errln, outln};
use crate::units;

/// Time between two looks at the backend.
const LOOK: Duration = Duration::from_millis(100);
/// Time between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(1);
/// Longest wait: that of a proxy for its own requests, by default.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// A backend of a proxy.
#[derive(Clone, Debug)]
pub(super) struct Backend {
    address: Address,
    /// Needed if several clusters have the backend.
    cluster: Option<String>,
}

/// Arguments of `plimsoll undrain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  plimsoll drain --backend 10.0.0.7:8080    before its restart
  plimsoll undrain --backend 10.0.0.7:8080
  plimsoll undrain --backend 10.0.0.7:8080 --cluster web --admin :9901

The backend is connected and checked as a new one, and its share of requests grows.

Exits with 0 when the backend is healthy, 1 when it is not after --timeout or there is no such backend, 2 when there is \
no such proxy.")]
pub(crate) struct UndrainArgs {
    #[command(flatten)]
    target: Target,
    /// Address of the backend, as IP:PORT or unix:PATH
    #[arg(long, value_name = "ADDRESS", value_parser = address)]
    backend: Address,
    /// Cluster of the backend, if several clusters have it
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// Longest time to wait until the backend is healthy
    #[arg(long, value_name = "TIME", value_parser = units::positive_duration, default_value = "30s")]
    timeout: Duration,
}

/// Undrains, and waits until the backend is healthy.
pub(crate) fn undrain(args: &UndrainArgs) -> Outcome {
    let backend = Backend { address: args.backend, cluster: args.cluster.clone() };
    switch(&args.target, &backend, Word::Undrain, args.timeout)
}

/// Drains a backend, and waits for the end of its requests.
pub(super) fn drain(target: &Target, address: Address, cluster: Option<&str>, timeout: Option<Duration>) -> Outcome {
    let backend = Backend { address, cluster: cluster.map(str::to_owned) };
    switch(target, &backend, Word::Drain, timeout.unwrap_or(DEFAULT_TIMEOUT))
}

/// The address of a backend.
pub(super) fn address(text: &str) -> Result<Address, String> {
    text.parse().map_err(|_| {
        "write an IP address with a port, such as 10.0.0.7:8080, or unix: with a path, as `plimsoll top` shows it"
            .to_owned()
    })
}

/// A command to a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Drain,
    Undrain,
}

impl Word {
    /// The last part of its path in the API.
    fn path(self) -> &'static str {
        match self {
            Self::Drain => "drain",
            Self::Undrain => "undrain",
        }
    }

    /// Whether a backend that looks like this is where the command leads.
    fn is_done(self, backend: &Value) -> bool {
        match self {
            Self::Drain => backend["in_flight"] == 0,
            Self::Undrain => backend["state"] == "healthy",
        }
    }

    /// The outcome.
    fn done(self) -> &'static str {
        match self {
            Self::Drain => "drained, no request in flight",
            Self::Undrain => "healthy",
        }
    }

    /// The state of a backend that is not there yet.
    fn progress(self, backend: &Value) -> String {
        match self {
            Self::Drain => {
                format!("{} in flight", requests(backend["in_flight"].as_u64().unwrap_or_default()))
            }
            Self::Undrain => {
                let [state, reason] = ["state", "reason"].map(|field| backend[field].as_str().unwrap_or("unknown"));
                format!("{state} ({reason})")
            }
        }
    }

    fn help(self) -> &'static str {
        match self {
            Self::Drain => "it stays drained; wait longer with --timeout",
            Self::Undrain => "look at its process and at the health check; wait longer with --timeout",
        }
    }
}

fn switch(target: &Target, backend: &Backend, word: Word, timeout: Duration) -> Outcome {
    let api = match target.find()? {
        Found::Api(api) => api,
        Found::Signals(process) => {
            return Err(Problem::Failed(anyhow::anyhow!(
                "process {} runs, but its admin API is off or does not answer\n  help: backends are drained by the admin \
                 API: set `listen` in [admin]",
                process.pid
            )));
        }
    };
    let cluster = backend.cluster(api)?;
    let path = backend.path(&cluster);
    let answer = api.post(&format!("{path}/{}", word.path()), PATIENCE).map_err(|error| api.problem(&error))?;
    if answer.status != 200 {
        return Err(refusal(&answer));
    }
    let mut shown = clean(answer.json);
    let name = format!("backend {} of cluster {}", backend.address, printable(&cluster));
    if shown["state"] == "outside-subset" {
        outln!("{name}: {}", shown["meaning"].as_str().unwrap_or("outside the subset of this proxy"))?;
        return Ok(Verdict::Good);
    }
    if word == Word::Drain && is_without_healthy(api, &cluster) {
        errln!("warning: cluster {} has no healthy backend left", printable(&cluster));
    }
    let until = Instant::now() + timeout;
    let mut told: Option<(Instant, String)> = None;
    while !word.is_done(&shown) {
        let progress = word.progress(&shown);
        if told.as_ref().is_none_or(|(at, before)| *before != progress && at.elapsed() >= PROGRESS) {
            errln!("{name}: {progress}");
            told = Some((Instant::now(), progress.clone()));
        }
        if Instant::now() >= until {
            let after = humantime::format_duration(timeout);
            errln!("error: {name}: {progress} after {after}\n  help: {}", word.help());
            return Ok(Verdict::Bad);
        }
        std::thread::sleep(LOOK);
        let answer = api.get(&path).map_err(|error| api.problem(&error))?;
        if answer.status != 200 {
            return Err(refusal(&answer));
        }
        shown = clean(answer.json);
    }
    outln!("{name}: {}", word.done())?;
    Ok(Verdict::Good)
}

impl Backend {
    fn path(&self, cluster: &str) -> String {
        format!("/api/v1/clusters/{}/backends/{}", escaped(cluster), escaped(&self.address.to_string()))
    }

    /// Its cluster: the named one, the only one, or the only one that has it.
    fn cluster(&self, api: Api) -> Result<String, Problem> {
        if let Some(named) = &self.cluster {
            return Ok(named.clone());
        }
        let answer = api.get("/api/v1/clusters").map_err(|error| api.problem(&error))?;
        if answer.status != 200 {
            return Err(refusal(&answer));
        }
        let clusters = answer.json["clusters"].as_array().map_or(&[][..], Vec::as_slice);
        let mut names: Vec<String> =
            clusters.iter().filter_map(|each| Some(each["name"].as_str()?.to_owned())).collect();
        if names.len() == 1
            && let Some(only) = names.pop()
        {
            // If it has no such backend, the API lists those that it has.
            return Ok(only);
        }
        let mut having = Vec::new();
        for name in &names {
            let answer = api.get(&self.path(name)).map_err(|error| api.problem(&error))?;
            if answer.status == 200 {
                having.push(name.clone());
            }
        }
        let listed = |names: &[String]| printable(&names.join(", ")).into_owned();
        match (having.pop(), having.is_empty()) {
            (Some(name), true) => Ok(name),
            (Some(name), false) => {
                having.push(name);
                Err(Problem::Failed(anyhow::anyhow!(
                    "several clusters have the backend {}\n  help: name one with --cluster: {}",
                    self.address,
                    listed(&having)
                )))
            }
            (None, _) => Err(Problem::Failed(anyhow::anyhow!(
                "no cluster has the backend {}\n  help: the clusters are {}; `plimsoll top` lists their backends",
                self.address,
                listed(&names)
            ))),
        }
    }
}

/// Whether no backend of the cluster is healthy. A proxy that does not answer has the benefit of the doubt.
fn is_without_healthy(api: Api, cluster: &str) -> bool {
    let answer = api.get(&format!("/api/v1/clusters/{}", escaped(cluster)));
    answer.is_ok_and(|answer| answer.json["backends"]["healthy"] == 0)
}

/// The problem in an answer that is no backend.
fn refusal(answer: &Answer) -> Problem {
    let json = clean(answer.json.clone());
    let text = |field: &str| json[field].as_str();
    let help = text("help").map(|help| format!("\n  help: {help}")).unwrap_or_default();
    Problem::Failed(anyhow::anyhow!("{}{help}", text("error").unwrap_or("no reason given")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn drain_ends_with_the_last_request_and_undrain_when_healthy() {
        let backend = json!({ "state": "lame-duck", "reason": "drained", "in_flight": 1 });
        assert!(!Word::Drain.is_done(&backend) && !Word::Undrain.is_done(&backend));
        assert_eq!(Word::Drain.progress(&backend), "1 request in flight");
        assert_eq!(Word::Undrain.progress(&backend), "lame-duck (drained)");
        assert!(Word::Drain.is_done(&json!({ "state": "lame-duck", "in_flight": 0 })));
        assert!(Word::Undrain.is_done(&json!({ "state": "healthy", "in_flight": 3 })));
    }

    #[test]
    fn address_of_a_backend_needs_a_port() {
        assert_eq!(address("[::1]:80"), Ok("[::1]:80".parse().unwrap()));
        assert!(address("10.0.0.7").is_err_and(|error| error.contains("10.0.0.7:8080")));
        assert!(address("web.internal:80").is_err());
    }

    #[test]
    fn path_has_escaped_names() {
        let backend = Backend { address: "[::1]:80".parse().unwrap(), cluster: None };
        assert_eq!(backend.path("a/b"), "/api/v1/clusters/a%2Fb/backends/%5B%3A%3A1%5D%3A80");
    }
}
