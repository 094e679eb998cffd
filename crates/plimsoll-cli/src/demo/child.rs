//! The processes of the demo, and that none of them outlives it.
//!
//! Three nets, for three ways of ending: dropping a [`Child`] kills its process (a normal end, an
//! error, Ctrl-C, and a panic, which unwinds); the kernel kills it when this process ends in a way that
//! drops nothing (SIGKILL, abort); and each is its own process group, so that a Ctrl-C in the terminal
//! reaches the demo alone, which then ends the others in order.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{ChildStderr, Command};

/// The last lines on stderr that are kept, to be shown when the process ends on its own.
const LINES_KEPT: usize = 20;
/// How long a process may take to be ready. Much, since the machine may be busy.
const READY_WITHIN: Duration = Duration::from_secs(10);
/// How long a backend may take to answer its requests and end.
const DRAIN_WITHIN: Duration = Duration::from_secs(30);
/// What a backend says when it is ready, before its address.
const READY_LINE: &str = "listening on ";
/// What a quota server says after that, before the address of its API.
const ADMIN_LINE: &str = "admin on ";

/// A process that ends with this value.
#[derive(Debug)]
pub(crate) struct Child {
    name: String,
    pid: Pid,
    process: tokio::process::Child,
    said: Arc<Mutex<VecDeque<String>>>,
    /// Until someone reads them.
    lines: Option<Lines<BufReader<ChildStderr>>>,
}

impl Child {
    /// Starts this program again with other arguments.
    pub(crate) fn start(name: impl Into<String>, arguments: &[String]) -> anyhow::Result<Self> {
        let name = name.into();
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        let parent = rustix::process::getpid();
        // SAFETY: between fork and exec only system calls are made, which is allowed there.
        unsafe {
            command.pre_exec(move || {
                rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
                // The parent may have ended before the line above, and then no signal will come.
                if rustix::process::getppid() == Some(parent) {
                    Ok(())
                } else {
                    Err(std::io::Error::other("the demo has ended"))
                }
            });
        }
        let mut process = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let pid = process.id().and_then(|pid| Pid::from_raw(pid.cast_signed())).context("it has ended already")?;
        let lines = process.stderr.take().map(|stderr| BufReader::new(stderr).lines());
        Ok(Self { name, pid, process, said: Arc::default(), lines })
    }

    /// Waits until it says where it listens.
    pub(crate) async fn listening(&mut self) -> anyhow::Result<SocketAddr> {
        let [address] = self.addresses([READY_LINE]).await?;
        Ok(address)
    }

    /// Waits until it says where it listens, and then where its admin API does.
    pub(crate) async fn listening_with_admin(&mut self) -> anyhow::Result<[SocketAddr; 2]> {
        self.addresses([READY_LINE, ADMIN_LINE]).await
    }

    /// Waits for a line with an address after each of these words, in this order.
    async fn addresses<const N: usize>(&mut self, words: [&str; N]) -> anyhow::Result<[SocketAddr; N]> {
        let mut addresses = [SocketAddr::from(([0, 0, 0, 0], 0)); N];
        let read = async {
            for (words, address) in words.into_iter().zip(&mut addresses) {
                *address = self.line_with_address(words).await?;
            }
            anyhow::Ok(())
        };
        let read = tokio::time::timeout(READY_WITHIN, read).await;
        read.with_context(|| format!("{} is not ready after {READY_WITHIN:?}", self.name))??;
        self.follow();
        Ok(addresses)
    }

    async fn line_with_address(&mut self, words: &str) -> anyhow::Result<SocketAddr> {
        let lines = self.lines.as_mut().context("its lines are read already")?;
        while let Some(line) = lines.next_line().await? {
            if let Some(address) = line.strip_prefix(words) {
                return address.parse().with_context(|| format!("{} listens on `{address}`", self.name));
            }
            keep(&self.said, line);
        }
        bail!("{} ended:\n{}", self.name, self.last_words())
    }

    /// Goes on reading what it says: a process whose pipe is full stands still.
    pub(crate) fn follow(&mut self) {
        let (Some(mut lines), said, name) = (self.lines.take(), Arc::clone(&self.said), self.name.clone()) else {
            return;
        };
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                tracing::debug!(process = name, "{line}");
                keep(&said, line);
            }
        });
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        rustix::process::kill_process(self.pid, signal).with_context(|| format!("cannot signal {}", self.name))
    }

    /// An error if it has ended, with the last it said.
    pub(crate) fn must_run(&mut self) -> anyhow::Result<()> {
        match self.process.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} ended with {status}:\n{}", self.name, self.last_words()),
        }
    }

    /// Asks it to end, and waits until its requests are answered and it has ended.
    pub(crate) async fn drain(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::TERM)?;
        let ended = tokio::time::timeout(DRAIN_WITHIN, self.process.wait()).await;
        ended.with_context(|| format!("{} has not ended after {DRAIN_WITHIN:?}", self.name))??;
        Ok(())
    }

    /// Ends it and waits until it has ended.
    pub(crate) async fn end(mut self) {
        // Fails only when it has ended already.
        let _ = self.process.kill().await;
    }

    fn last_words(&self) -> String {
        self.said.lock().iter().map(|line| format!("    {line}\n")).collect()
    }
}

fn keep(said: &Mutex<VecDeque<String>>, line: String) {
    let mut said = said.lock();
    if said.len() == LINES_KEPT {
        said.pop_front();
    }
    said.push_back(line);
}
