//! What can go wrong with a request to an admin API: one vocabulary, and one exit code, for all commands.

use std::fmt;
use std::io;
use std::time::Duration;

use plimsoll_proxy::printable;
use serde_json::Value;

use crate::exit::Problem;

/// No answer, or one without what was asked for. Texts can be written to a terminal.
#[derive(Debug)]
pub(crate) enum Failure {
    /// There is no connection.
    Unreachable(String),
    /// The connection ended before the answer.
    Broken(String),
    /// Nothing came in this time.
    Silent(Duration),
    /// The API refuses.
    Refused { status: u16, error: String, help: String },
    /// The answer is of another program.
    Foreign(String),
    /// The answer is of a quota server.
    Quota,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) | Self::Foreign(why) => f.write_str(why),
            Self::Broken(why) => write!(f, "the connection broke: {why}"),
            Self::Silent(patience) => write!(f, "silent for {}", humantime::format_duration(*patience)),
            Self::Refused { error, .. } => f.write_str(error),
            Self::Quota => f.write_str("it is a quota server, not a proxy"),
        }
    }
}

impl Failure {
    /// There is no connection.
    pub(super) fn unreachable(error: &io::Error) -> Self {
        Self::Unreachable(printable(&error.to_string()).into_owned())
    }

    /// The connection ended.
    pub(super) fn broken(error: impl fmt::Display) -> Self {
        Self::Broken(printable(&error.to_string()).into_owned())
    }

    /// The answer cannot be that of a proxy.
    pub(crate) fn no_json(error: &serde_json::Error) -> Self {
        Self::Foreign(format!("the program there is not a plimsoll proxy: {}", printable(&error.to_string())))
    }

    /// The answer with this status is none of those that were asked for.
    pub(super) fn refused(status: u16, body: &[u8]) -> Self {
        let json: Value = serde_json::from_slice(body).unwrap_or_default();
        let text = |field: &str| json[field].as_str().map(|text| printable(text).into_owned());
        match (text("error"), status) {
            (Some(error), _) => {
                // `mend` is the name of the help in older versions.
                let help = text("help").or_else(|| text("mend"));
                Self::Refused { status, error, help: help.unwrap_or_else(|| "see the log of the proxy".to_owned()) }
            }
            (None, 404) => Self::Foreign("the program there has no such page: it is no proxy, or an older one".into()),
            (None, _) => Self::Foreign(format!("the program there answers with status {status}")),
        }
    }

    /// The problem of a command that cannot go on for it.
    pub(crate) fn problem(&self, admin: &str) -> Problem {
        match self {
            Self::Refused { error, help, .. } => Problem::Failed(anyhow::anyhow!("{error}\n  help: {help}")),
            Self::Unreachable(_) | Self::Foreign(_) => Problem::NoProxy(format!(
                "no proxy at {admin}: {self}\n  help: name its admin address with --admin, see [admin] in its configuration"
            )),
            Self::Quota => Problem::NoProxy(format!(
                "no proxy at {admin}: {self}\n  help: its customers are at http://{admin}/live/, and as JSON at \
                 http://{admin}/api/v1/quota"
            )),
            Self::Broken(_) | Self::Silent(_) => Problem::Failed(anyhow::anyhow!(
                "no answer from the proxy at {admin}: {self}\n  help: see its log, and `plimsoll status`"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_of_the_api_is_told_with_its_help() {
        let refused = Failure::refused(404, br#"{"error":"there is no cluster \"x\"","help":"see GET /"}"#);
        let problem = refused.problem("127.0.0.1:9900").to_string();
        assert_eq!(problem, "there is no cluster \"x\"\n  help: see GET /");
        assert!(matches!(Failure::refused(404, b"<html>"), Failure::Foreign(_)));
        let old = Failure::refused(409, br#"{"error":"it drains","mend":"wait"}"#).problem("a:1").to_string();
        assert_eq!(old, "it drains\n  help: wait");
    }

    #[test]
    fn proxy_that_is_not_there_has_another_exit_code_than_one_without_an_answer() {
        let lost =
            [Failure::Unreachable("refused".to_owned()), Failure::Foreign("status 302".to_owned()), Failure::Quota];
        assert!(lost.iter().all(|failure| matches!(failure.problem("a:1"), Problem::NoProxy(_))));
        let hung = [Failure::broken("reset"), Failure::Silent(Duration::from_secs(5))];
        assert!(hung.iter().all(|failure| matches!(failure.problem("a:1"), Problem::Failed(_))));
        assert!(Failure::Quota.problem("q:9801").to_string().contains("http://q:9801/live/"));
    }
}
