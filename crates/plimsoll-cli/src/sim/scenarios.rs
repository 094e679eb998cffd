//! Finds the scenario that an argument names: one that comes with the binary, or a file.
//!
//! What ends in `.toml` or has a `/` in it is a file, everything else is a name: so a typing error in a name is not told
//! as a file that is not there, and no file of the current folder changes what a name means.

use std::path::Path;

use plimsoll_config::{ConfigError, did_you_mean};
use plimsoll_sim::scenario::{Scenario, built_in};

use crate::exit::{Problem, Verdict};
use crate::output::errln;

/// Whether an argument names a file of the user's.
pub(super) fn is_file(named: &str) -> bool {
    named.ends_with(".toml") || named.contains(['/', std::path::MAIN_SEPARATOR])
}

/// The scenario that `named` names; `Err` when there is none, `Ok(None)` when its file has problems, which are told.
pub(super) fn find(named: &str) -> Result<Option<Scenario>, Problem> {
    if is_file(named) {
        return Ok(Scenario::load(Path::new(named)).map_err(|error| tell(&error)).ok());
    }
    let scenarios = built_in();
    let names: Vec<String> = scenarios.iter().map(|scenario| scenario.name.clone()).collect();
    match scenarios.into_iter().find(|scenario| scenario.name == named) {
        Some(scenario) => Ok(Some(scenario)),
        None => {
            let meant = did_you_mean(named, names.iter().map(String::as_str));
            let meant = meant.map(|name| format!("did you mean `{name}`? ")).unwrap_or_default();
            Err(Problem::usage(format!(
                "no scenario is named `{named}`; {meant}`plimsoll sim list` lists them, and a file of your own ends in .toml"
            )))
        }
    }
}

/// Tells all problems of a file.
pub(super) fn tell(error: &ConfigError) -> Verdict {
    errln!("{error}");
    let count = error.problems().len();
    errln!("\n{count} {}", if count == 1 { "problem" } else { "problems" });
    Verdict::Bad
}
