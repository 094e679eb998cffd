//! The signals that ask a process to end, each wish heard once.
//!
//! Supervisors often signal a process and then its whole group (`timeout`, a shell at Ctrl-C, many
//! process managers), so one wish arrives twice within microseconds. As the second signal means "at
//! once", that would cut requests off; signals this close together count as one.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

/// A thousand times the gap between the two signals, and too short for a person to decide that a
/// drain takes too long.
const ONE_WISH: Duration = Duration::from_millis(100);

/// SIGTERM and SIGINT, caught from when this is created.
#[derive(Debug)]
pub struct EndSignals {
    terminate: Signal,
    interrupt: Signal,
    heard: Option<Instant>,
}

impl EndSignals {
    /// Catches the signals. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// If the signals cannot be caught.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            heard: None,
        })
    }

    /// Waits for the next signal and returns its name.
    ///
    /// Signals less than 100 ms apart count as one. Dropping the future loses nothing.
    pub async fn next(&mut self) -> &'static str {
        loop {
            let name = poll_fn(|cx| match self.terminate.poll_recv(cx) {
                Poll::Ready(_) => Poll::Ready("SIGTERM"),
                Poll::Pending => self.interrupt.poll_recv(cx).map(|_| "SIGINT"),
            })
            .await;
            let before = self.heard.replace(Instant::now());
            if before.is_none_or(|before| before.elapsed() >= ONE_WISH) {
                return name;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{Signal, getpid, kill_process};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn two_signals_at_once_are_one_wish_and_a_later_one_is_another() {
        let mut signals = EndSignals::new().unwrap();
        kill_process(getpid(), Signal::TERM).unwrap();
        assert_eq!(signals.next().await, "SIGTERM");
        kill_process(getpid(), Signal::INT).unwrap();
        // Virtual time: it stands still until nothing else is left to do, so the signal comes
        // first.
        let again = tokio::time::timeout(ONE_WISH / 2, signals.next()).await;
        assert!(again.is_err(), "{again:?}");
        tokio::time::advance(ONE_WISH).await;
        kill_process(getpid(), Signal::INT).unwrap();
        assert_eq!(signals.next().await, "SIGINT");
    }
}
