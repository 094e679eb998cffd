//! `plimsoll reload`: has a proxy read its config again, and reports whether the file is in force.

use std::path::Path;
use std::time::{Duration, Instant};

use plimsoll_proxy::config::Config;
use rustix::process::Signal;
use serde_json::Value;

use super::Target;
use super::api::{Answer, Api};
use super::find::Found;
use super::process::Process;
use crate::exit::{Outcome, Verdict};
use crate::output::{errln, outln};

/// A reload looks up names, and waits for an upgrade that is under way.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time for a reload by signal to show in the status.
const SIGNAL_PATIENCE: Duration = Duration::from_secs(10);
/// Time between two looks at the status.
const LOOK: Duration = Duration::from_millis(50);

/// Arguments of `plimsoll reload`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  plimsoll reload                       the proxy at 127.0.0.1:9900
  plimsoll reload --admin :9901
  plimsoll reload --pid-file /run/plimsoll/proxy.pid

Prints the changes, one per line. A file with a problem changes nothing: the problems are printed as by `plimsoll check`. \
Exits with 0 when the file is in force, 1 when it was refused, 2 when there is no such proxy.

A proxy without an admin API gets SIGHUP after its file was checked. Whether the file is in force is then known to its \
log only.")]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
}

/// Reloads, and reports the outcome.
pub(crate) fn run(args: &Args) -> Outcome {
    match args.target.find()? {
        Found::Api(api) => {
            let answer = api.post("/api/v1/process/reload", PATIENCE).map_err(|error| api.problem(&error))?;
            outcome(&answer, api)
        }
        Found::Signals(process) => by_signal(&process),
    }
}

fn outcome(answer: &Answer, api: Api) -> Outcome {
    match (answer.status, answer.text("error")) {
        (200, _) => {
            let changes = answer.json["changes"].as_array().map_or(&[][..], Vec::as_slice);
            for change in changes.iter().filter_map(Value::as_str) {
                outln!("{change}")?;
            }
            if changes.is_empty() {
                outln!("nothing changed")?;
            }
            outln!("reloaded {}", answer.text("file").unwrap_or_default())?;
            Ok(Verdict::Good)
        }
        (422, Some(error)) => {
            refused(error, answer.json["problems"].as_array().map_or(0, Vec::len));
            Ok(Verdict::Bad)
        }
        _ => Err(answer.problem(api)),
    }
}

/// Says why, as `plimsoll check` does for problems of the file.
fn refused(error: &str, problems: usize) {
    match problems {
        0 => errln!("error: {error}"),
        1 => errln!("{error}\n\n1 problem"),
        _ => errln!("{error}\n\n{problems} problems"),
    }
    errln!("config refused, nothing has changed");
}

fn by_signal(process: &Process) -> Outcome {
    if let Some(file) = process.config_file()
        && let Err(error) = Config::load(&file)
    {
        refused(&error.to_string(), error.problems().len());
        return Ok(Verdict::Bad);
    }
    let began = Instant::now();
    process.signal(Signal::HUP)?;
    // The new file may have switched the API on, or moved it to where it is asked now.
    while process.admin().is_some() && began.elapsed() < SIGNAL_PATIENCE {
        if let Some((_, status)) = process.api()
            && let Some(done) = latest(&status.json["last_reload"], began)
        {
            return done;
        }
        std::thread::sleep(LOOK);
    }
    let file = process.config_file();
    let file = file.as_deref().unwrap_or(Path::new("its config")).display();
    outln!("SIGHUP sent to process {}: {file} passes the check, the log of the proxy has the outcome", process.pid)?;
    Ok(Verdict::Good)
}

/// The outcome of the latest reload, if it came after `began`.
fn latest(reload: &Value, began: Instant) -> Option<Outcome> {
    let ago = Duration::try_from_secs_f64(reload["ago_s"].as_f64()?).ok()?;
    if ago > began.elapsed() {
        return None;
    }
    Some(match reload["error"].as_str() {
        Some(error) => {
            refused(error, 0);
            Ok(Verdict::Bad)
        }
        None => outln!("reloaded, changes: {}", reload["changes"]).map(|()| Verdict::Good).map_err(Into::into),
    })
}
