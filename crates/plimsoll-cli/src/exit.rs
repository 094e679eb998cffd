//! Decides the exit code of every command: 0 ok, 1 the thing asked about is bad, 2 usage.
//!
//! Scripts branch on these three, so they are given out in this file only. clap's own errors leave
//! before this file is reached, with the same 2 for usage (and 0 for `--help` and `--version`).

use std::process::ExitCode;

use crate::output::errln;

/// The code of a command that could not do its work, or found the thing asked about to be bad.
const BAD: u8 = 1;
/// The code of a command line that makes no sense.
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
    /// The arguments contradict each other; the text names the argument and the mend.
    Usage(String),
    /// Something outside the command line failed.
    Failed(anyhow::Error),
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
    match outcome {
        Ok(Verdict::Good) => ExitCode::SUCCESS,
        Ok(Verdict::Bad) => ExitCode::from(BAD),
        Err(Problem::Usage(text)) => {
            errln!("error: {text}\n\nFor more information, try '--help'.");
            ExitCode::from(USAGE)
        }
        Err(Problem::Failed(error)) => {
            // `{:#}` joins the chain of causes on one line, outermost first.
            errln!("error: {error:#}");
            ExitCode::from(BAD)
        }
    }
}
