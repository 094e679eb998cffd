//! Replaces the running binary without losing a connection: a successor is started, takes over the listening sockets, and
//! this process leaves when it serves.
//!
//! Until then nothing has changed: a successor that does not come to serve (a file that it cannot read, a binary that does
//! not run, backends that it cannot reach) is named in the log, and this process goes on, and accepts alone until then.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use plimsoll_proxy::ProbeHandover;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use super::handover::Channel;

/// Time for the successor to read its config, look up names, and find a backend.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time for the reason of a successor that took no sockets: it has ended, or is about to.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The process with which a system, or a container, begins and ends.
const FIRST_PROCESS: u32 = 1;

/// How this process was started, and so how its successor is.
#[derive(Debug)]
pub(super) struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

impl Program {
    /// Of this process. To be called at its start: a relative path may lead elsewhere later.
    ///
    /// The path as it was given, not where it led: an upgrade by another file at that path, or by another target of a
    /// symbolic link, is what is to be started.
    pub(super) fn of_this_process() -> io::Result<Self> {
        let mut arguments = std::env::args_os();
        let name = PathBuf::from(arguments.next().unwrap_or_default());
        let named =
            if name.components().count() > 1 { Some(std::path::absolute(&name)?) } else { in_search_path(&name) };
        let path = named.filter(|path| path.is_file()).map_or_else(std::env::current_exe, Ok)?;
        Ok(Self { path, arguments: arguments.collect() })
    }

    /// Starts a successor, gives it `sockets` and the `files` of Unix sockets, and waits until it serves, which it does when it reaches a backend in each of the clusters
    /// `healthy`. Gives its process id. Dropping the future has the successor end.
    /// In the end it answers `probes`; until then, and if it does not come to serve, this process does.
    pub(super) async fn hand_over(
        &self,
        sockets: Vec<OwnedFd>,
        files: Vec<&'static str>,
        probes: ProbeHandover,
        healthy: &[String],
    ) -> anyhow::Result<u32> {
        may_have_successor(std::process::id())?;
        let (channel, theirs) = Channel::pair().context("cannot open a channel to the successor")?;
        let mut command = Command::new(&self.path);
        command.args(&self.arguments).envs(Channel::variables(healthy)).stdin(Stdio::from(theirs));
        let child = command.spawn().with_context(|| format!("cannot start {}", self.path.display()))?;
        // Its end of the channel is in the command, too: the channel must end with the child.
        drop(command);
        let mut child = Successor { child, lives_on: false };
        let id = child.child.id().ok_or_else(|| anyhow!("the successor ended at once"))?;
        tracing::info!(program = %self.path.display(), pid = id, sockets = sockets.len(), "successor started");
        let talk = tokio::task::spawn_blocking(move || {
            let heard = match channel.send_files(&files).and_then(|()| channel.send(&sockets)) {
                Ok(()) => channel.wait_until_serving(PATIENCE, &probes),
                // A successor that has ended may have said why before.
                Err(error) => {
                    let heard = channel.wait_until_serving(LAST_WORDS, &probes);
                    heard.ok().filter(Result::is_err).ok_or(error)
                }
            };
            if let Ok(Ok(())) = heard {
                probes.finish();
            }
            heard
        });
        match talk.await.context("cannot reach the successor")? {
            Ok(Ok(())) => {
                child.lives_on = true;
                Ok(id)
            }
            Ok(Err(reason)) => bail!("the successor does not serve: {reason}"),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                bail!("the successor did not serve in time, {} at most", humantime::format_duration(PATIENCE))
            }
            Err(_) => bail!("the successor ended before it served: {}", child.end().await),
        }
    }
}

/// Whether a successor would outlive the process of this id.
fn may_have_successor(process: u32) -> anyhow::Result<()> {
    if process == FIRST_PROCESS {
        bail!(
            "this is the first process of its container, and the container ends with it; help: replace the container"
        );
    }
    Ok(())
}

/// A successor; dropped, it is told to end, unless it is to live on.
///
/// Told and not killed: it may have begun to serve at that very moment, and what it has accepted it has to answer.
struct Successor {
    child: Child,
    lives_on: bool,
}

impl Successor {
    /// How it ended, if it has.
    async fn end(&mut self) -> String {
        match tokio::time::timeout(Duration::from_secs(1), self.child.wait()).await {
            Ok(Ok(status)) => status.to_string(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it closed its channel".to_owned(),
        }
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        // Without an id it has ended, and the number may be another's.
        let Some(process) = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed())) else { return };
        if self.lives_on {
            return;
        }
        if let Err(error) = kill_process(process, Signal::TERM) {
            tracing::warn!(%error, pid = process.as_raw_nonzero(), "cannot signal the successor");
        }
    }
}

/// Where a shell would find `name`.
fn in_search_path(name: &Path) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_process_of_a_container_has_no_successor() {
        let error = may_have_successor(1).unwrap_err().to_string();
        assert!(error.contains("replace the container"), "{error}");
        assert!(may_have_successor(std::process::id()).is_ok());
    }
}
