//! `plimsoll sim report`: the results of scenarios on one page.

use std::path::PathBuf;

use plimsoll_sim::report::{Origin, Section, page};
use plimsoll_sim::run::Summary;
use plimsoll_sim::scenario::{Scenario, built_in};

use super::single::{summarize, verdict, write, write_file};
use super::{Running, scenarios};
use crate::exit::{Outcome, Problem, Verdict};
use crate::output::{errln, outln};

/// Arguments of `plimsoll sim report`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Names of built-in scenarios, or files that end in .toml [default: all built-in scenarios]
    #[arg(value_name = "NAME|FILE")]
    scenarios: Vec<String>,
    /// Folder for index.html and the JSON and figures of each scenario; created if missing
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    running: Running,
}

/// A scenario to report, and the argument that named it.
struct Chosen {
    named: String,
    scenario: Scenario,
}

impl Chosen {
    fn origin(&self) -> Origin {
        if scenarios::is_file(&self.named) { Origin::Own } else { Origin::BuiltIn }
    }
}

/// Runs the scenarios and writes the page. A failed check of one does not keep the others from running.
pub(super) fn run(args: &Args) -> Outcome {
    let mut chosen: Vec<Chosen> = Vec::new();
    for named in &args.scenarios {
        let Some(scenario) = scenarios::find(named)? else { return Ok(Verdict::Bad) };
        chosen.push(Chosen { named: named.clone(), scenario });
    }
    if args.scenarios.is_empty() {
        chosen = (built_in().into_iter()).map(|scenario| Chosen { named: scenario.name.clone(), scenario }).collect();
    }
    are_distinct(&chosen)?;
    let mut found: Vec<(Chosen, Summary)> = Vec::new();
    for Chosen { named, scenario } in chosen {
        let scenario = args.running.seeded(scenario);
        let summary = summarize(&scenario, &args.running)?;
        write(&args.out, &summary)?;
        let failed = summary.checks.iter().filter(|checked| !checked.is_ok()).count();
        let result =
            if failed == 0 { "ok".to_owned() } else { format!("{failed} of {} checks failed", summary.checks.len()) };
        errln!("{}: {result}", scenario.name);
        found.push((Chosen { named, scenario }, summary));
    }
    let commands: Vec<String> = found.iter().map(|(chosen, _)| args.running.command(&chosen.named)).collect();
    let sections: Vec<Section<'_>> = (found.iter().zip(&commands))
        .map(|((chosen, summary), command)| Section {
            scenario: &chosen.scenario,
            summary,
            origin: chosen.origin(),
            command,
        })
        .collect();
    let file = args.out.join("index.html");
    write_file(&file, &page(&sections))?;
    outln!("{}", file.display())?;
    let all_good = found.iter().all(|(_, summary)| verdict(summary) == Verdict::Good);
    Ok(if all_good { Verdict::Good } else { Verdict::Bad })
}

/// Results are files named after their scenario, so two scenarios of one name would overwrite each other's.
fn are_distinct(chosen: &[Chosen]) -> Result<(), Problem> {
    for (i, one) in chosen.iter().enumerate() {
        let name = &one.scenario.name;
        if let Some(other) = chosen[..i].iter().find(|other| other.scenario.name == *name) {
            return Err(Problem::usage(format!(
                "two scenarios are named `{name}`: {} and {}\n\nhelp: results are files named after the scenario; \
                 change `name` in one of them, or report them into two folders",
                other.named, one.named
            )));
        }
    }
    Ok(())
}
