//! Log lines on their way to stderr, which a thread of its own writes.
//!
//! Whoever reads stderr (a journal, a pipe) may stop to. A thread that wrote there itself would stand still with it, and so
//! would all that log after it. Here a line is copied under a lock and its thread goes on; what waits is bounded in bytes,
//! and what has no room is dropped and told of when lines are written again. (The writer of `tracing-appender` is
//! bounded in lines, says nothing of those that it drops, and at the end of a process whose stderr is not read prints to
//! stdout, which mostly leads to the same reader.)

use std::io::{self, Write};
use std::mem;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use tracing_subscriber::fmt::MakeWriter;

/// Bytes that may wait: some thousand lines, more than a start or a reload of a large config says.
const MAX_WAITING: usize = 1 << 20;
/// How long the end of the process waits for the last lines: a reader that is merely slow takes them in less.
const FLUSH_PATIENCE: Duration = Duration::from_secs(1);
/// Between two tries to write where there is no room, and the descriptor is one that says so.
const RETRY: Duration = Duration::from_millis(50);

/// What was logged and is not written yet.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// There is something to write.
    work: Condvar,
    /// Nothing is left to write.
    done: Condvar,
}

#[derive(Debug, Default)]
struct State {
    lines: Vec<u8>,
    /// The thread has taken lines that it has not written yet.
    writing: bool,
    /// Lines that were dropped since it was last told.
    dropped: u64,
}

impl Queue {
    fn push(&self, line: &[u8]) {
        let mut state = self.state.lock();
        if state.lines.len() + line.len() > MAX_WAITING {
            state.dropped += 1;
            return;
        }
        state.lines.extend_from_slice(line);
        drop(state);
        self.work.notify_one();
    }

    /// Waits until all is written, but not for a reader that takes nothing.
    pub(super) fn flush(&self) {
        let mut state = self.state.lock();
        self.done.wait_while_for(&mut state, |state| state.writing || !state.lines.is_empty(), FLUSH_PATIENCE);
    }

    /// Waits for lines, and takes them in exchange for the empty `batch`.
    fn take(&self, batch: &mut Vec<u8>) {
        let mut state = self.state.lock();
        state.writing = false;
        while state.lines.is_empty() {
            self.done.notify_all();
            self.work.wait(&mut state);
        }
        state.writing = true;
        mem::swap(&mut state.lines, batch);
    }

    fn lose(&self, lines: &[u8]) {
        self.state.lock().dropped += lines.iter().filter(|byte| **byte == b'\n').count() as u64;
    }

    fn take_dropped(&self) -> u64 {
        mem::take(&mut self.state.lock().dropped)
    }
}

/// A line: what a subscriber formats it gives away at once.
pub(super) struct Line<'q>(&'q Queue);

impl Write for Line<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// As a subscriber wants its writer.
pub(super) struct Lines(pub(super) Arc<Queue>);

impl<'q> MakeWriter<'q> for Lines {
    type Writer = Line<'q>;

    fn make_writer(&'q self) -> Line<'q> {
        Line(&self.0)
    }
}

/// Writes what is logged to stderr, for as long as the process lives.
pub(super) fn run(queue: &Queue) {
    write_to(queue, &io::stderr());
}

/// Past the standard library's lock of stderr: whoever has something else to say there must not wait for this thread.
fn write_to(queue: &Queue, output: &impl std::os::fd::AsFd) {
    let mut batch = Vec::new();
    loop {
        queue.take(&mut batch);
        let mut rest = batch.as_slice();
        while !rest.is_empty() {
            match rustix::io::write(output, rest) {
                Ok(written) => rest = &rest[written..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => thread::sleep(RETRY),
                Err(_) => break,
            }
        }
        if rest.is_empty() {
            // Told only where it can be read: a line about a line that cannot be written would follow itself for ever.
            let dropped = queue.take_dropped();
            if dropped > 0 {
                tracing::warn!(dropped, "log lines dropped: stderr was read too slowly");
            }
        } else {
            queue.lose(rest);
        }
        batch.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_reader_that_stops_holds_nobody_up_and_gets_what_waited() {
        let (mut reader, pipe) = io::pipe().unwrap();
        let queue = Arc::new(Queue::default());
        let written = Arc::clone(&queue);
        thread::spawn(move || write_to(&written, &pipe));
        // More than a pipe holds.
        let first = [b"y".repeat(1 << 17), b"\n".to_vec()].concat();
        queue.push(&first);
        while !queue.state.lock().lines.is_empty() {
            thread::yield_now();
        }
        let line = [b"x".repeat(1023), b"\n".to_vec()].concat();
        for _ in 0..3 * MAX_WAITING / line.len() {
            queue.push(&line);
        }
        let begun = Instant::now();
        queue.flush();
        assert!(begun.elapsed() >= FLUSH_PATIENCE, "there is nobody who takes them");
        assert_eq!(queue.take_dropped(), 2 * (MAX_WAITING / line.len()) as u64);
        let mut taken = vec![0; first.len() + MAX_WAITING];
        reader.read_exact(&mut taken).unwrap();
        assert!(taken[first.len()..].chunks(line.len()).all(|taken| taken == line));
        queue.flush();
        assert!(queue.state.lock().lines.is_empty());
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let queue = Arc::new(Queue::default());
        let written = Arc::clone(&queue);
        queue.push(b"one\n");
        queue.push(b"two\n");
        thread::spawn(move || write_to(&written, &full));
        let (begun, mut dropped) = (Instant::now(), 0);
        while dropped < 2 && begun.elapsed() < Duration::from_secs(10) {
            queue.flush();
            dropped += queue.take_dropped();
        }
        assert_eq!(dropped, 2);
    }
}
