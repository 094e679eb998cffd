//! `plimsoll completions SHELL`: the completions of a shell, on stdout.
//!
//! `sim run` and `sim report` take the name of a scenario or a file. The names are completed in bash, zsh and fish, and
//! so are files. The parser itself knows no list of names, because a file is no member of it.

use clap::Command;
use clap::builder::PossibleValuesParser;
use clap_complete::Shell;
use plimsoll_sim::scenario::built_in;

use crate::exit::{Outcome, Verdict};
use crate::output::out;

/// The subcommands of `sim` that take scenarios, with the argument.
const TAKE_SCENARIOS: [(&str, &str); 2] = [("run", "scenario"), ("report", "scenarios")];

/// Arguments of `plimsoll completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  source <(plimsoll completions bash)   a line for ~/.bashrc
  plimsoll completions zsh > ~/.zfunc/_plimsoll
  plimsoll completions fish > ~/.config/fish/completions/plimsoll.fish")]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

/// Prints the completions of `command`.
pub(crate) fn run(args: &Args, command: Command) -> Outcome {
    out!("{}", script(args.shell, command))?;
    Ok(Verdict::Good)
}

fn script(shell: Shell, command: Command) -> String {
    // clap wants them for ever, and the process ends with the script.
    let names: Vec<&'static str> = built_in().into_iter().map(|scenario| &*scenario.name.leak()).collect();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut with_names(command, &names), "plimsoll", &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    let names = names.join(" ");
    match shell {
        // A list of values rules files out.
        Shell::Zsh => {
            let either = format!(r#":{{_alternative "scenarios:scenario:({names})" "files:file:_files"}}'"#);
            script = script.replace(&format!(":({names})'"), &either);
        }
        // The generator knows values of options only.
        Shell::Fish => {
            for (command, _) in TAKE_SCENARIOS {
                let after = format!("__fish_plimsoll_using_subcommand sim; and __fish_seen_subcommand_from {command}");
                script += &format!("complete -c plimsoll -n \"{after}\" -a \"{names}\" -d 'scenario'\n");
            }
        }
        _ => {}
    }
    script
}

/// The command line, with the names as the values of each argument that takes scenarios.
fn with_names(command: Command, names: &[&'static str]) -> Command {
    command.mut_subcommand("sim", |mut sim| {
        for (subcommand, argument) in TAKE_SCENARIOS {
            sim = sim.mut_subcommand(subcommand, |command| {
                command.mut_arg(argument, |argument| argument.value_parser(PossibleValuesParser::new(names.to_vec())))
            });
        }
        sim
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    fn script(shell: Shell) -> String {
        super::script(shell, Cli::command())
    }

    #[test]
    fn scenarios_are_completed_beside_files() {
        let names = built_in().into_iter().map(|scenario| scenario.name).collect::<Vec<_>>().join(" ");
        assert!(script(Shell::Bash).contains(&format!(" {names}\"")), "bash");
        let zsh = script(Shell::Zsh);
        assert_eq!(zsh.matches(&format!("\"scenarios:scenario:({names})\" \"files:file:_files\"")).count(), 2, "zsh");
        assert!(!zsh.contains(&format!(":({names})'")), "zsh completes files, too");
        assert_eq!(script(Shell::Fish).matches(&names).count(), 2, "fish");
    }
}
