//! One request to the admin API of a proxy.

use std::net::SocketAddr;
use std::time::Duration;

use http::Method;
use serde_json::Value;

use crate::admin::failure::Failure;
use crate::admin::fetch::exchange;
use crate::exit::Problem;

/// Time for an answer that the API has at once. A proxy that is alive takes milliseconds.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Time between two attempts at reading.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Attempts at reading. A connection breaks when a process hands its admin port to a successor.
const MAX_ATTEMPTS: u32 = 3;

/// An admin API.
#[derive(Clone, Copy, Debug)]
pub(super) struct Api {
    pub(super) address: SocketAddr,
}

/// A response of an admin API.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) json: Value,
}

impl Api {
    /// Reads at `path`; tried again where the connection breaks.
    pub(super) fn get(self, path: &str) -> Result<Answer, Failure> {
        for _ in 1..MAX_ATTEMPTS {
            match self.send(Method::GET, path, PATIENCE) {
                Err(Failure::Broken(_)) => std::thread::sleep(RETRY_PAUSE),
                answered => return answered,
            }
        }
        self.send(Method::GET, path, PATIENCE)
    }

    /// Sends a command, whose outcome may take as long as `patience`.
    pub(super) fn post(self, path: &str, patience: Duration) -> Result<Answer, Failure> {
        self.send(Method::POST, path, patience)
    }

    fn send(self, method: Method, path: &str, patience: Duration) -> Result<Answer, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::Unreachable(error.to_string()))?;
        let (status, body) = runtime.block_on(exchange(self.address, method, path, patience))?;
        let json = serde_json::from_slice(&body).map_err(|error| Failure::no_json(&error))?;
        Ok(Answer { status, json })
    }

    /// The problem that nothing answered here.
    pub(super) fn problem(self, failure: &Failure) -> Problem {
        failure.problem(&self.address.to_string())
    }
}

impl Answer {
    /// A field that holds a text.
    pub(super) fn text(&self, field: &str) -> Option<&str> {
        self.json[field].as_str()
    }

    /// A field that holds a process id.
    pub(super) fn pid(&self) -> Option<u32> {
        self.json["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok())
    }

    /// The problem in a response that is not an outcome.
    pub(super) fn problem(&self, api: Api) -> Problem {
        if self.status == 404 {
            return Problem::Failed(anyhow::anyhow!(
                "the proxy at {} does not know this command: it is older than this program\n  help: send it a signal: \
                 SIGHUP reloads, SIGUSR2 upgrades, SIGTERM drains",
                api.address
            ));
        }
        let error = self.text("error").unwrap_or("no reason given");
        let help = self.text("help").or_else(|| self.text("mend"));
        let help = help.map(|help| format!("\n  help: {help}")).unwrap_or_default();
        Problem::Failed(anyhow::anyhow!("{error}{help}"))
    }
}
