//! Runs scenario files and prints the JSON of each, one line a file: metrics and checks.
//!
//! `scripts/mutants` and `scripts/spread` use it, because it builds in a fraction of the time of the `plimsoll` binary.
//!
//! ```text
//! checks [--seeds N] FILE...
//! ```

use std::num::NonZeroUsize;
use std::path::Path;
use std::process::ExitCode;

use plimsoll_sim::report::json;
use plimsoll_sim::run::run;
use plimsoll_sim::scenario::Scenario;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).peekable();
    let mut seeds: Option<u64> = None;
    if arguments.next_if(|argument| argument == "--seeds").is_some() {
        seeds = arguments.next().and_then(|count| count.parse().ok()).filter(|count| *count > 0);
        if seeds.is_none() {
            eprintln!("checks: --seeds needs a number of at least 1; help: checks --seeds 20 FILE");
            return ExitCode::from(2);
        }
    }
    let mut all_ran = true;
    for file in arguments {
        let result = Scenario::load(Path::new(&file)).map_err(|error| error.to_string()).and_then(|scenario| {
            let scenario = match seeds {
                Some(count) => scenario.with_seeds((1..=count).collect()),
                None => scenario,
            };
            run(&scenario, NonZeroUsize::MIN, &|_| {}).map_err(|error| error.to_string())
        });
        match result {
            Ok(summary) => println!("{}", json(&summary).replace('\n', "")),
            Err(error) => {
                eprintln!("{file}: {error}");
                all_ran = false;
            }
        }
    }
    if all_ran { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
