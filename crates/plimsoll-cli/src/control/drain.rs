//! `plimsoll drain`: has a proxy finish its requests and end, and waits for its end. With `--backend` it is
//! about one backend instead (`backend`).

use std::time::{Duration, Instant};

use plimsoll::address::Address;
use rustix::process::Signal;

use super::Target;
use super::api::{Answer, Api};
use super::backend;
use super::find::{Found, STATUS};
use super::process::Process;
use crate::admin::failure::Failure;
use crate::exit::{Outcome, Problem, Verdict};
use crate::output::{errln, outln};
use crate::units;

/// Time between two looks at the status.
const LOOK: Duration = Duration::from_millis(100);
/// Time between two lines of progress.
const PROGRESS: Duration = Duration::from_secs(1);
/// Time for the end beyond `drain.timeout`: the last requests are cut off one second after it.
const GRACE: Duration = Duration::from_secs(5);
/// `drain.timeout` of a proxy that does not tell its own.
const USUAL_TIMEOUT: Duration = Duration::from_secs(30);

/// Arguments of `plimsoll drain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  plimsoll drain                        the proxy at 127.0.0.1:9900
  plimsoll drain --timeout 10s
  plimsoll drain --pid-file /run/plimsoll/proxy.pid
  plimsoll drain --backend 10.0.0.7:8080    one backend, see `plimsoll undrain`

The proxy finishes the requests in flight, and ends after `drain.timeout` at the latest. Progress goes to stderr. A \
backend gets no new requests until it is undrained, and the proxy goes on.

Exits with 0 when the process has ended or the backend has no request in flight, 1 when that is not so after --timeout \
or requests were cut off, 2 when there is no such proxy.")]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// Drain the backend at IP:PORT or unix:PATH, and not the proxy
    #[arg(long, value_name = "ADDRESS", value_parser = backend::address)]
    backend: Option<Address>,
    /// Cluster of the backend, if several clusters have it
    #[arg(long, value_name = "NAME", requires = "backend")]
    cluster: Option<String>,
    /// Longest time to wait [default: `drain.timeout` of the proxy and 5 s; for a backend 30 s]
    #[arg(long, value_name = "TIME", value_parser = units::positive_duration)]
    timeout: Option<Duration>,
}

/// Drains, and waits for the end.
pub(crate) fn run(args: &Args) -> Outcome {
    if let Some(address) = args.backend {
        return backend::drain(&args.target, address, args.cluster.as_deref(), args.timeout);
    }
    match args.target.find()? {
        Found::Api(api) => by_api(api, args.timeout),
        Found::Signals(process) => by_signal(&process, args.timeout),
    }
}

/// A look at a draining proxy.
#[derive(Clone, Copy, Debug)]
struct Look {
    requests: u64,
    draining_for: Duration,
    drain_timeout: Duration,
}

impl Look {
    fn of(status: &Answer) -> Self {
        let seconds = |field: &str| status.json[field].as_f64().and_then(|s| Duration::try_from_secs_f64(s).ok());
        Self {
            requests: status.json["requests_in_flight"].as_u64().unwrap_or_default(),
            draining_for: seconds("draining_for_s").unwrap_or_default(),
            drain_timeout: seconds("drain_timeout_s").unwrap_or(USUAL_TIMEOUT),
        }
    }

    /// Requests that were in flight when there was no more time for them.
    fn cut_off(&self) -> Option<u64> {
        (self.requests > 0 && self.draining_for >= self.drain_timeout).then_some(self.requests)
    }
}

fn by_api(api: Api, timeout: Option<Duration>) -> Outcome {
    let answer = api.post("/api/v1/process/drain", super::api::PATIENCE).map_err(|error| api.problem(&error))?;
    let Some(pid) = answer.pid().filter(|_| answer.status == 202) else { return Err(answer.problem(api)) };
    let start = answer.json["started_at"].clone();
    // Where the proxy is on this machine, and not behind a forwarded port, its end can be seen.
    let process = api.address.ip().is_loopback().then(|| Process::with_id(pid)).flatten();
    let mut look = Look::of(&answer);
    let until = Instant::now() + timeout.unwrap_or(look.drain_timeout + GRACE);
    let mut said: Option<(Instant, u64)> = None;
    loop {
        if said.is_none_or(|(at, requests)| requests != look.requests && at.elapsed() >= PROGRESS) {
            errln!("draining process {pid}: {} in flight", requests(look.requests));
            said = Some((Instant::now(), look.requests));
        }
        if Instant::now() >= until {
            return Ok(still_running(pid, Some(look.requests)));
        }
        std::thread::sleep(LOOK);
        match api.get(STATUS) {
            Ok(status) if status.pid() == Some(pid) && status.json["started_at"] == start => look = Look::of(&status),
            // Another process serves there by now.
            Err(Failure::Silent(_)) => {}
            Ok(_) | Err(_) => break,
        }
    }
    let left = until.saturating_duration_since(Instant::now()).max(LOOK);
    if process.is_some_and(|process| !process.ends_within(left)) {
        return Ok(still_running(pid, None));
    }
    if let Some(count) = look.cut_off() {
        let timeout = humantime::format_duration(look.drain_timeout);
        errln!("error: drain timed out: process {pid} has ended, and cut {} off after {timeout}", requests(count));
        return Ok(Verdict::Bad);
    }
    outln!("process {pid} has ended")?;
    Ok(Verdict::Good)
}

fn by_signal(process: &Process, timeout: Option<Duration>) -> Result<Verdict, Problem> {
    let timeout = timeout.unwrap_or_else(|| process.drain_timeout().unwrap_or(USUAL_TIMEOUT) + GRACE);
    process.signal(Signal::TERM)?;
    errln!("draining process {}: SIGTERM sent", process.pid);
    if process.ends_within(timeout) {
        outln!("process {} has ended", process.pid)?;
        Ok(Verdict::Good)
    } else {
        Ok(still_running(process.pid, None))
    }
}

fn still_running(pid: u32, left: Option<u64>) -> Verdict {
    let left = left.map(|count| format!(": {} in flight", requests(count))).unwrap_or_default();
    errln!(
        "error: process {pid} still drains{left}\n  help: wait longer with --timeout; a second SIGTERM ends it at once"
    );
    Verdict::Bad
}

pub(super) fn requests(count: u64) -> String {
    if count == 1 { "1 request".to_owned() } else { format!("{count} requests") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_cut_off_only_when_the_time_to_drain_is_over() {
        let look = |requests, seconds| Look {
            requests,
            draining_for: Duration::from_secs(seconds),
            drain_timeout: Duration::from_secs(30),
        };
        assert_eq!(look(2, 29).cut_off(), None, "they may have finished since");
        assert_eq!(look(0, 31).cut_off(), None);
        assert_eq!(look(2, 30).cut_off(), Some(2));
    }
}
