//! A reload: reads the config again, puts it into force, and tells the log and the caller the outcome.

use std::path::Path;

use plimsoll_admin::{ProblemView, ReloadView};
use plimsoll_proxy::config::{Change, Config, ConfigError};
use plimsoll_proxy::{Error, Proxy};

use super::admin::{Admin, Move};

/// A config that is in force.
pub(super) struct Taken {
    changes: Vec<Change>,
    /// What is left to do about the admin port.
    pub(super) plan: Move,
}

/// Brings the config in the file into force; on an error nothing has changed.
pub(super) async fn put_in_force(file: &Path, proxy: &Proxy, admin: &Admin) -> anyhow::Result<Taken> {
    let prepared = || -> anyhow::Result<(Config, Move)> {
        let config = Config::load(file)?;
        let plan = admin.plan(config.admin(), &proxy.addresses_left_by(&config))?;
        Ok((config, plan))
    };
    let (config, plan) = prepared().inspect_err(|_| proxy.reloads().refuse())?;
    let changes = config.changes_since(&proxy.config());
    proxy.reload(config).await?;
    Ok(Taken { changes, plan })
}

impl Taken {
    /// Logs it, a line for each change.
    pub(super) fn log(&self, file: &Path) {
        for change in &self.changes {
            if change.needs_restart {
                tracing::warn!("{change}");
            } else {
                tracing::info!("{change}");
            }
        }
        tracing::info!(file = %file.display(), "config reloaded");
    }

    /// The outcome.
    pub(super) fn view(&self, file: &Path) -> ReloadView {
        let changes = self.changes.iter().map(ToString::to_string).collect();
        ReloadView { result: "taken", file: file.display().to_string(), changes, ..ReloadView::default() }
    }
}

/// Logs the refusal of a file that somebody just edits: one warning, with its first problem.
pub(super) fn refused_change(file: &Path, error: &anyhow::Error) -> ReloadView {
    let outcome = refusal(file, error);
    let file = &outcome.file;
    match outcome.problems.first() {
        Some(ProblemView { place, reason, help }) => {
            let problems = outcome.problems.len();
            tracing::warn!(file, problems, place, reason, help, "changed config refused, nothing has changed");
        }
        None => tracing::warn!(file, error = outcome.error, "changed config refused, nothing has changed"),
    }
    outcome
}

fn refusal(file: &Path, error: &anyhow::Error) -> ReloadView {
    let problems = config_error(error).map(problems).unwrap_or_default();
    let (file, error) = (file.display().to_string(), Some(format!("{error:#}")));
    ReloadView { result: "refused", file, error, problems, ..ReloadView::default() }
}

/// Logs a refusal, a line for each problem, and gives the outcome.
pub(super) fn refused(file: &Path, error: &anyhow::Error) -> ReloadView {
    let outcome = refusal(file, error);
    let ReloadView { file, error, problems, .. } = &outcome;
    for ProblemView { place, reason, help } in problems {
        tracing::error!(file, place, reason, help, "config problem");
    }
    if problems.is_empty() {
        tracing::error!(file, error, "config refused, nothing has changed");
    } else {
        tracing::error!(file, problems = problems.len(), "config refused, nothing has changed");
    }
    outcome
}

/// The problems of the file, where these are the reason.
fn config_error(error: &anyhow::Error) -> Option<&ConfigError> {
    let in_proxy = || match error.downcast_ref()? {
        Error::Config(error) => Some(error),
        _ => None,
    };
    error.downcast_ref().or_else(in_proxy)
}

fn problems(error: &ConfigError) -> Vec<ProblemView> {
    let view = |problem: &plimsoll_config::Problem| {
        let position = problem.position.map(|position| position.to_string());
        let path = Some(problem.path.clone()).filter(|path| !path.is_empty());
        let place: Vec<String> = position.into_iter().chain(path).collect();
        ProblemView { place: place.join(": "), reason: problem.reason.clone(), help: problem.help.clone() }
    };
    error.problems().iter().map(view).collect()
}
