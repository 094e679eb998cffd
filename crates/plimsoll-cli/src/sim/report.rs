//! `plimsoll sim report`: scenarios on one page, beside what was published.

use std::path::PathBuf;

use plimsoll_sim::report::{Section, page};
use plimsoll_sim::scenario::{Scenario, built_in};

use super::single::{summarize, verdict, write, write_file};
use super::{Running, scenarios};
use crate::exit::{Outcome, Verdict};
use crate::output::{errln, outln};

/// Arguments of `plimsoll sim report`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Names or files; all that come with the binary if there are none
    #[arg(value_name = "NAME|FILE")]
    scenarios: Vec<String>,
    /// Where to write index.html, and for each scenario its JSON and figures; made if it is not there
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    running: Running,
}

/// Runs them and writes the page. All are run, whatever is found in one of them.
pub(super) fn run(args: &Args) -> Outcome {
    let mut chosen: Vec<Scenario> = Vec::new();
    for named in &args.scenarios {
        let Some(scenario) = scenarios::find(named)? else { return Ok(Verdict::Bad) };
        chosen.push(scenario);
    }
    if args.scenarios.is_empty() {
        chosen = built_in();
    }
    let mut found = Vec::new();
    for scenario in chosen {
        let scenario = args.running.seeded(scenario);
        let summary = summarize(&scenario, &args.running)?;
        write(&args.out, &summary)?;
        let failed = summary.checks.iter().filter(|checked| !checked.is_ok()).count();
        let result = if failed == 0 {
            "ok".to_owned()
        } else {
            format!("not as expected: {failed} of {} checks", summary.checks.len())
        };
        errln!("{}: {result}", scenario.name);
        found.push((scenario, summary));
    }
    let sections: Vec<Section<'_>> = found.iter().map(|(scenario, summary)| Section { scenario, summary }).collect();
    let file = args.out.join("index.html");
    write_file(&file, &page(&sections))?;
    outln!("{}", file.display())?;
    let all_good = found.iter().all(|(_, summary)| verdict(summary) == Verdict::Good);
    Ok(if all_good { Verdict::Good } else { Verdict::Bad })
}
