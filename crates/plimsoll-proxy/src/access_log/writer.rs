//! The thread that writes the access log.
//!
//! It writes many lines at once: woken by the first, it lets others gather for a moment. A write
//! that fails (disk full, reader gone) is retried at the very byte where it stopped, so that no
//! line is torn; meanwhile the queue fills up and drops. It says so at most every ten seconds. A
//! file that cannot be reopened is retried as often, and the open one written meanwhile: a line in
//! a file that was moved away is better than none.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::queue::{Order, Queue};
use crate::config::LogPath;

/// Time for which lines gather: at most 50 wake-ups a second, and no person sees the delay.
const GATHER: Duration = Duration::from_millis(20);
/// Between two tries to write where the last one failed.
const RETRY: Duration = Duration::from_millis(250);
/// Memory that is kept for the next batch.
const KEEP: usize = 256 << 10;

/// Where lines go.
#[derive(Debug)]
pub(crate) enum Output {
    Stdout,
    Stderr,
    File(PathBuf, File),
}

impl Output {
    /// Opens a file to be added to; makes it if there is none.
    pub(super) fn open(path: &LogPath) -> io::Result<Self> {
        Ok(match path {
            LogPath::Stdout => Self::Stdout,
            LogPath::Stderr => Self::Stderr,
            LogPath::File(path) => Self::File(path.clone(), append(path)?),
        })
    }
}

fn append(path: &Path) -> io::Result<File> {
    // Opening one waits for a reader, which would delay a reload.
    if path.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo()) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a pipe, not a file"));
    }
    OpenOptions::new().append(true).create(true).open(path)
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            // Past the buffers of the standard library, which would keep bytes that could not be
            // written.
            Self::Stdout => Ok(rustix::io::write(io::stdout(), bytes)?),
            Self::Stderr => Ok(rustix::io::write(io::stderr(), bytes)?),
            Self::File(_, file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes the queue, for as long as the process lives.
pub(super) fn run(queue: &Queue) {
    let mut writer = Writer { queue, output: None, tried_at: None, trouble: Trouble::default() };
    let mut batch = Vec::new();
    loop {
        queue.wait(writer.tried_at.map(|_| RETRY));
        thread::sleep(GATHER);
        let (order, before) = match queue.take(&mut batch) {
            Some((order, before)) => (Some(order), before),
            None => (None, batch.len()),
        };
        let (before, after) = batch.split_at(before);
        writer.write_all(before);
        writer.obey(order);
        writer.write_all(after);
        batch.clear();
        batch.shrink_to(KEEP);
    }
}

struct Writer<'q> {
    queue: &'q Queue,
    output: Option<Output>,
    /// The file is to be opened again, and could not be: when that was tried last.
    tried_at: Option<Instant>,
    trouble: Trouble,
}

impl Writer<'_> {
    /// Follows its order, new or earlier; says whether lines go elsewhere from now on.
    fn obey(&mut self, order: Option<Order>) -> bool {
        match order {
            Some(Order::SwitchTo(next)) => {
                self.output = next;
                self.tried_at = None;
                true
            }
            Some(Order::Reopen) => self.reopen(),
            None => self.tried_at.is_some_and(|at| at.elapsed() >= RETRY) && self.reopen(),
        }
    }

    fn reopen(&mut self) -> bool {
        self.tried_at = None;
        let Some(Output::File(path, file)) = &mut self.output else { return false };
        match append(path) {
            Ok(opened) => {
                *file = opened;
                self.trouble.reopened(path);
                true
            }
            Err(error) => {
                self.tried_at = Some(Instant::now());
                self.trouble.not_reopened(path, &error, self.queue);
                false
            }
        }
    }

    /// Writes `batch` to its end, however long that takes; obeys orders meanwhile.
    fn write_all(&mut self, batch: &[u8]) {
        let mut rest = batch;
        while let (Some(open), false) = (self.output.as_mut(), rest.is_empty()) {
            match open.write(rest) {
                Ok(0) => self.trouble.failed(&io::ErrorKind::WriteZero.into(), self.queue),
                Ok(written) => {
                    rest = &rest[written..];
                    self.trouble.succeeded(self.queue);
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => self.trouble.failed(&error, self.queue),
            }
            thread::sleep(RETRY);
            let order = self.queue.take_order();
            let torn = rest.len() < batch.len() && batch[batch.len() - rest.len() - 1] != b'\n';
            if self.obey(order) && torn {
                // The begin of this line stays behind in the file that is left.
                self.queue.count_lost(1);
                let end = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |at| at + 1);
                rest = &rest[end..];
            }
        }
        // From a log that was turned off: its headroom is not needed.
        self.queue.count_lost(rest.iter().filter(|byte| **byte == b'\n').count() as u64);
    }
}

/// Whether it was said that writing, or opening again, fails, and not yet that it works again.
#[derive(Debug, Default)]
struct Trouble {
    said: bool,
    said_stale: bool,
}

impl Trouble {
    fn failed(&mut self, error: &io::Error, queue: &Queue) {
        if queue.may_say() {
            self.said = true;
            tracing::error!(
                %error,
                dropped = queue.dropped(),
                "access log cannot be written: lines wait, then are dropped"
            );
        }
    }

    fn succeeded(&mut self, queue: &Queue) {
        if std::mem::take(&mut self.said) {
            tracing::info!(dropped = queue.dropped(), "access log written again");
        }
    }

    fn not_reopened(&mut self, path: &Path, error: &io::Error, queue: &Queue) {
        if queue.may_say() {
            self.said_stale = true;
            tracing::error!(
                %error,
                path = %path.display(),
                "access log not reopened, retrying: lines go to the file that was open before; help: let this user write \
                 at the path, or set another access_log.path and reload"
            );
        }
    }

    fn reopened(&mut self, path: &Path) {
        if std::mem::take(&mut self.said_stale) {
            tracing::info!(path = %path.display(), "access log reopened");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::sync::Arc;

    use super::*;

    #[test]
    fn stalled_pipe_tears_no_line_and_the_rest_waits() {
        let (mut reader, pipe) = io::pipe().unwrap();
        let file = File::from(OwnedFd::from(pipe));
        // As a disk that is full for a while: a write fails, or stops in the middle of a line.
        rustix::io::ioctl_fionbio(&file, true).unwrap();
        let queue = Arc::new(Queue::default());
        queue.switch_to(Some(Output::File(PathBuf::new(), file)));
        let line = format!("{}\n", "x".repeat(999));
        for _ in 0..300 {
            queue.push(&line);
        }
        let writing = Arc::clone(&queue);
        thread::spawn(move || run(&writing));
        let mut text = vec![0; 300_000];
        io::Read::read_exact(&mut reader, &mut text).unwrap();
        assert!(text.split(|byte| *byte == b'\n').all(|line| line.len() == 999 || line.is_empty()));
        assert_eq!(queue.dropped(), 0);
    }

    #[test]
    fn failure_is_logged_at_intervals_and_so_is_its_end() {
        let (mut trouble, queue) = (Trouble::default(), Queue::default());
        trouble.failed(&io::ErrorKind::StorageFull.into(), &queue);
        assert!(trouble.said && !queue.may_say());
        trouble.succeeded(&queue);
        assert!(!trouble.said);
        trouble.failed(&io::ErrorKind::StorageFull.into(), &queue);
        assert!(!trouble.said, "so soon it is not said again, and its end will not be either");
    }
}
