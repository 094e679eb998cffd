//! The end of a process, by a descriptor of it: an id that another process gets later does not deceive.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A process that runs.
#[derive(Debug)]
pub(super) struct Process(AsyncFd<OwnedFd>);

impl Process {
    /// The process with this id. Needs a runtime.
    pub(super) fn open(id: u32) -> Result<Self, String> {
        let pid = i32::try_from(id).ok().and_then(Pid::from_raw).ok_or_else(|| format!("{id} is no process id"))?;
        let descriptor = pidfd_open(pid, PidfdFlags::NONBLOCK).map_err(|error| match error {
            Errno::SRCH => format!("there is no process {id}"),
            error => format!("process {id} cannot be watched: {error}"),
        })?;
        #[expect(deprecated, reason = "its successor is unsafe, and the descriptor is owned here")]
        let descriptor = AsyncFd::with_interest(descriptor, Interest::READABLE);
        descriptor.map(Self).map_err(|error| format!("process {id} cannot be watched: {error}"))
    }

    /// Waits for its end.
    pub(super) async fn ended(&self) {
        if self.0.readable().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
