//! The lines of workers that are not written yet: bounded in bytes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::writer::Output;

/// Bytes that may wait: some 10,000 lines, which is a tenth of a second of a fast machine's whole
/// load, or all of a slow disk's bad second.
const MAX_WAITING: usize = 4 << 20;
/// Between two log lines about trouble.
const SAY_AGAIN: Duration = Duration::from_secs(10);

/// Lines on their way to the writer.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// There is something to do.
    work: Condvar,
    dropped: AtomicU64,
    /// When trouble was last said.
    said: Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct State {
    lines: Vec<u8>,
    /// And how many of the bytes in `lines` come before it.
    order: Option<(Order, usize)>,
    /// The writer has taken something that it is not done with.
    writing: bool,
}

/// An order to the writer.
#[derive(Debug)]
pub(super) enum Order {
    /// To write there, or nowhere.
    SwitchTo(Option<Output>),
    Reopen,
}

impl Queue {
    /// Adds a line, or drops it if the queue is full.
    pub(super) fn push(&self, line: &str) {
        let mut state = self.state.lock();
        if state.lines.len() + line.len() > MAX_WAITING {
            drop(state);
            let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            // Logged here, as a writer on a stalled pipe is stuck in its write.
            if self.may_say() {
                tracing::warn!(dropped, "access log too slow: lines dropped");
            }
            return;
        }
        let first = state.lines.is_empty();
        state.lines.extend_from_slice(line.as_bytes());
        drop(state);
        if first {
            self.work.notify_one();
        }
    }

    pub(super) fn switch_to(&self, output: Option<Output>) {
        let mut state = self.state.lock();
        state.order = Some((Order::SwitchTo(output), state.lines.len()));
        drop(state);
        self.work.notify_one();
    }

    pub(super) fn reopen(&self) {
        // An output that has just been opened need not be opened again.
        let mut state = self.state.lock();
        let before = state.lines.len();
        state.order.get_or_insert((Order::Reopen, before));
        drop(state);
        self.work.notify_one();
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Whether trouble may be said again, which it is then.
    pub(super) fn may_say(&self) -> bool {
        let mut said = self.said.lock();
        let may = said.is_none_or(|said| said.elapsed() >= SAY_AGAIN);
        if may {
            *said = Some(Instant::now());
        }
        may
    }

    /// Counts lines that are lost though they had been taken.
    pub(super) fn count_lost(&self, lines: u64) {
        self.dropped.fetch_add(lines, Ordering::Relaxed);
    }

    /// Whether something is not written yet.
    pub(super) fn is_behind(&self) -> bool {
        let state = self.state.lock();
        state.writing || state.order.is_some() || !state.lines.is_empty()
    }

    /// For the writer, which is done with its batch: waits until there is more, but not beyond
    /// `patience`, if it has something else to do.
    pub(super) fn wait(&self, patience: Option<Duration>) {
        let mut state = self.state.lock();
        state.writing = false;
        let is_idle = |state: &mut State| state.lines.is_empty() && state.order.is_none();
        match patience {
            Some(patience) => {
                self.work.wait_while_for(&mut state, is_idle, patience);
            }
            None => self.work.wait_while(&mut state, is_idle),
        }
    }

    /// For the writer: takes all lines that wait, in exchange for the empty `batch`, and the order
    /// to it, with the number of bytes before that.
    pub(super) fn take(&self, batch: &mut Vec<u8>) -> Option<(Order, usize)> {
        let mut state = self.state.lock();
        std::mem::swap(&mut state.lines, batch);
        state.writing = true;
        state.order.take()
    }

    /// For a writer that cannot write: the order given meanwhile.
    pub(super) fn take_order(&self) -> Option<Order> {
        self.state.lock().order.take().map(|(order, _)| order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_is_bounded_and_dropped_lines_are_counted() {
        let queue = Queue::default();
        let line = "x".repeat(1023) + "\n";
        for _ in 0..MAX_WAITING / 1024 + 3 {
            queue.push(&line);
        }
        assert_eq!(queue.dropped(), 3);
        let mut batch = Vec::new();
        assert!(queue.take(&mut batch).is_none());
        assert_eq!(batch.len(), MAX_WAITING);
        assert!(!queue.may_say(), "it was said with the first that was dropped");
        assert!(queue.is_behind(), "it is not written yet");
        queue.push(&line);
        assert_eq!(queue.dropped(), 3, "there is room again");
    }
}
