//! `plimsoll upgrade`: has a proxy start its binary again and hand over, and reports whether the successor serves.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::Target;
use super::api::Api;
use super::find::{Found, STATUS};
use super::process::Process;
use crate::exit::{Outcome, Verdict};
use crate::output::{errln, outln};

/// Somewhat more than a proxy gives its successor.
const PATIENCE: Duration = Duration::from_secs(75);
/// Time between two looks at the pid file.
const LOOK: Duration = Duration::from_millis(50);

/// Arguments of `plimsoll upgrade`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  plimsoll upgrade                      the proxy at 127.0.0.1:9900
  plimsoll upgrade --pid-file /run/plimsoll/proxy.pid

The proxy starts the program at its own path again, with its own arguments. The successor takes over all listening \
sockets, so that no connection is lost. A successor that cannot serve changes nothing: the reason is printed.

Exits with 0 when the successor serves, 1 when the old process goes on, 2 when there is no such proxy.")]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
}

/// Upgrades, and reports the outcome.
pub(crate) fn run(args: &Args) -> Outcome {
    match (args.target.find()?, &args.target.pid_file) {
        (Found::Api(api), _) => by_api(api),
        (Found::Signals(process), Some(file)) => by_signal(&process, file),
        (Found::Signals(_), None) => unreachable!("a process is found by its pid file only"),
    }
}

fn by_api(api: Api) -> Outcome {
    let before = api.get(STATUS).map_err(|error| api.problem(&error))?;
    let Some(before) = before.pid().filter(|_| before.status == 200) else { return Err(before.problem(api)) };
    let answer = api.post("/api/v1/process/upgrade", PATIENCE).map_err(|error| api.problem(&error))?;
    match (answer.status, answer.pid(), answer.text("error")) {
        (200, Some(after), _) => told(before, after),
        (422, _, Some(error)) => {
            errln!("error: no upgrade, process {before} goes on: {error}");
            Ok(Verdict::Bad)
        }
        _ => Err(answer.problem(api)),
    }
}

/// The successor names itself in the pid file when it serves.
fn by_signal(process: &Process, file: &Path) -> Outcome {
    let before = process.pid;
    process.signal(Signal::USR2)?;
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        // Before the file is read: the successor is named there before its predecessor ends.
        let has_ended = process.ends_within(LOOK);
        if let Ok(successor) = Process::named_in(file)
            && successor.pid != before
        {
            return told(before, successor.pid);
        }
        if has_ended {
            errln!("error: process {before} has ended, and no successor serves: see its log");
            return Ok(Verdict::Bad);
        }
    }
    let patience = humantime::format_duration(PATIENCE);
    errln!("error: no upgrade within {patience}, process {before} goes on: the log of the proxy has the reason");
    Ok(Verdict::Bad)
}

fn told(before: u32, after: u32) -> Outcome {
    outln!("process {after} serves, in place of {before}")?;
    Ok(Verdict::Good)
}
