//! Decides the exit code of every command: 0 ok, 1 the checked item is bad, 2 usage, or no proxy to command.
//!
//! Scripts branch on these three, so they are given out in this file only. clap's own errors leave
//! before this file is reached, with the same 2 for usage (and 0 for `--help` and `--version`).

use std::fmt;
use std::process::ExitCode;

use crate::output::errln;

/// The code of a command that could not do its work, or found the thing asked about to be bad.
const BAD: u8 = 1;
/// The code of a command line that makes no sense, or that addresses no running proxy.
const USAGE: u8 = 2;

/// What a command that ran to its end says about the thing it was asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All is well.
    Good,
    /// The command has already said what is wrong.
    Bad,
}

/// Why a command did not run to its end.
#[derive(Debug)]
pub(crate) enum Problem {
    /// The arguments contradict each other; the text names the argument and the help.
    Usage(String),
    /// There is no proxy to tell or to ask; the text says where it was looked for, and the help.
    NoProxy(String),
    /// Something outside the command line failed.
    Failed(anyhow::Error),
}

/// Without the word `error`, and with the causes.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::NoProxy(text) => f.write_str(text),
            // `{:#}` joins the chain of causes on one line, outermost first.
            Self::Failed(error) => write!(f, "{error:#}"),
        }
    }
}

impl<E: Into<anyhow::Error>> From<E> for Problem {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

impl Problem {
    /// A contradiction in the arguments.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::Usage(text.into())
    }
}

/// What every command returns.
pub(crate) type Outcome = Result<Verdict, Problem>;

/// Says on stderr what stopped the command, and gives the exit code.
pub(crate) fn code(outcome: Outcome) -> ExitCode {
    let problem = match outcome {
        Ok(Verdict::Good) => return ExitCode::SUCCESS,
        Ok(Verdict::Bad) => return ExitCode::from(BAD),
        Err(problem) => problem,
    };
    errln!("error: {problem}");
    match problem {
        Problem::Usage(_) => {
            errln!("\nFor more information, try '--help'.");
            ExitCode::from(USAGE)
        }
        Problem::NoProxy(_) => ExitCode::from(USAGE),
        Problem::Failed(_) => ExitCode::from(BAD),
    }
}
