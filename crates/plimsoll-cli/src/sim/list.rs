//! `plimsoll sim list`: the built-in scenarios.

use plimsoll_sim::scenario::built_in;
use serde::Serialize;

use crate::exit::{Outcome, Verdict};
use crate::output::outln;

/// Arguments of `plimsoll sim list`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print JSON: a list of {name, title, group}
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Entry {
    name: String,
    title: String,
    group: String,
}

/// Lists them.
pub(super) fn run(args: &Args) -> Outcome {
    let entries: Vec<Entry> = built_in()
        .into_iter()
        .map(|scenario| Entry { name: scenario.name, title: scenario.title, group: scenario.group })
        .collect();
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&entries)?)?;
        return Ok(Verdict::Good);
    }
    let width = entries.iter().map(|entry| entry.name.len()).max().unwrap_or(0);
    let mut group = None;
    for entry in &entries {
        if group != Some(&entry.group) {
            let gap = if group.is_some() { "\n" } else { "" };
            outln!("{gap}{}", entry.group)?;
            group = Some(&entry.group);
        }
        outln!("  {:width$}  {}", entry.name, entry.title)?;
    }
    Ok(Verdict::Good)
}
