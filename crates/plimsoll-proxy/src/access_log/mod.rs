//! The access log: one line per request, written by a thread of its own.
//!
//! A worker never waits for a disk or a pipe. It formats its line, takes a lock to copy some
//! hundred bytes, and goes on. One thread writes the queue, many lines at once. The queue is
//! bounded in bytes: when the disk is full or a pipe is not read, lines are dropped and counted,
//! and writing goes on at the same byte once it can. (A channel of entries would be bounded in
//! entries, whose size clients control, and would wake the writer for each.)
//!
//! While it is off a request costs one branch ([`AccessLog::begin`]).

mod combined;
mod entry;
mod line;
mod queue;
mod texts;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{io, thread};

use http::Request;
use plimsoll_core::Ratio;

pub(crate) use self::entry::Entry;
use self::queue::Queue;
pub(crate) use self::texts::Text;
use self::writer::Output;
use crate::config;
use crate::peer::Peer;

/// Interval of looks whether the last lines are written.
const FLUSH_LOOK: Duration = Duration::from_millis(5);

/// A handle to the log of this process; clones are the same log.
#[derive(Clone, Debug, Default)]
pub(crate) struct AccessLog(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    on: AtomicBool,
    format: Format,
    sample: Sample,
    queue: Queue,
    has_writer: AtomicBool,
}

/// A setting after all its fallible work.
#[derive(Debug)]
pub(crate) struct Prepared(Option<(config::LogFormat, Ratio, Output)>);

/// Why a setting cannot be put in force.
#[derive(Debug)]
pub(crate) enum Unprepared {
    /// Its file cannot be opened.
    Output(io::Error),
    /// The thread that writes cannot be started.
    Thread(io::Error),
}

impl AccessLog {
    /// The entry of a request that begins now; `None` when it is not to be logged.
    #[inline]
    pub(crate) fn begin<B>(&self, peer: &Peer, listener: &Arc<str>, request: &Request<B>) -> Option<Box<Entry>> {
        if !self.0.on.load(Ordering::Relaxed) {
            return None;
        }
        self.0.sample.take().then(|| Box::new(Entry::new(peer, listener, request)))
    }

    /// Hands over the entry of a request that is over.
    pub(crate) fn write(&self, entry: &Entry) {
        // It may have been turned off since the request began.
        if !entry.is_logged || !self.0.on.load(Ordering::Relaxed) {
            return;
        }
        let format = self.0.format.load();
        line::with(entry, entry.begun.elapsed(), format, |line| self.0.queue.push(line));
    }

    /// Opens the destination of `config`.
    ///
    /// # Errors
    /// When the file cannot be opened, or the thread that writes cannot be started.
    pub(crate) fn prepare(&self, config: &config::AccessLog) -> Result<Prepared, Unprepared> {
        let Some(destination) = &config.path else { return Ok(Prepared(None)) };
        let output = Output::open(destination).map_err(Unprepared::Output)?;
        if !self.0.has_writer.swap(true, Ordering::Relaxed) {
            let shared = Arc::clone(&self.0);
            let started =
                thread::Builder::new().name("access-log".to_owned()).spawn(move || writer::run(&shared.queue));
            if let Err(error) = started {
                self.0.has_writer.store(false, Ordering::Relaxed);
                return Err(Unprepared::Thread(error));
            }
        }
        Ok(Prepared(Some((config.format, config.sample, output))))
    }

    /// Logs as was prepared from now on.
    pub(crate) fn put_in_force(&self, prepared: Prepared) {
        let Prepared(Some((format, sample, output))) = prepared else {
            self.0.on.store(false, Ordering::Relaxed);
            if self.0.has_writer.load(Ordering::Relaxed) {
                // Its file is let go, and waited for no longer.
                self.0.queue.switch_to(None);
            }
            return;
        };
        self.0.format.store(format);
        self.0.sample.set(sample);
        self.0.queue.switch_to(Some(output));
        self.0.on.store(true, Ordering::Relaxed);
    }

    /// Opens the file again, which may have been moved away.
    pub(crate) fn reopen(&self) {
        // Else the order would stay in the queue, and the drain would wait for it.
        if self.0.has_writer.load(Ordering::Relaxed) {
            self.0.queue.reopen();
        }
    }

    /// Lines dropped because the queue was full.
    pub(crate) fn dropped(&self) -> u64 {
        self.0.queue.dropped()
    }

    /// Waits until all lines are written, or for `patience`.
    pub(crate) async fn flush(&self, patience: Duration) {
        let until = Instant::now() + patience;
        while self.0.queue.is_behind() && Instant::now() < until {
            tokio::time::sleep(FLUSH_LOOK).await;
        }
    }
}

/// The format in force, as a number.
#[derive(Debug, Default)]
struct Format(AtomicU8);

impl Format {
    fn store(&self, format: config::LogFormat) {
        let number = match format {
            config::LogFormat::Json => 0,
            config::LogFormat::Human => 1,
            config::LogFormat::Combined => 2,
        };
        self.0.store(number, Ordering::Relaxed);
    }

    fn load(&self) -> config::LogFormat {
        match self.0.load(Ordering::Relaxed) {
            1 => config::LogFormat::Human,
            2 => config::LogFormat::Combined,
            _ => config::LogFormat::Json,
        }
    }
}

/// Which requests are logged where not all are: evenly spread ones, so that a share of a tenth is
/// each tenth request, and two runs log as many.
#[derive(Debug, Default)]
struct Sample {
    /// The share, in parts of 2⁶⁴; zero for all.
    step: AtomicU64,
    /// The sum of the requests' shares; a request is logged when it overflows.
    sum: AtomicU64,
}

impl Sample {
    fn set(&self, share: Ratio) {
        let step = if share.as_f64() >= 1.0 { 0 } else { ((share.as_f64() * (u64::MAX as f64)) as u64).max(1) };
        self.step.store(step, Ordering::Relaxed);
    }

    fn take(&self) -> bool {
        match self.step.load(Ordering::Relaxed) {
            0 => true,
            step => self.sum.fetch_add(step, Ordering::Relaxed).checked_add(step).is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_requests_is_logged_evenly() {
        let sample = Sample::default();
        let taken = |n: usize| (0..n).filter(|_| sample.take()).count();
        assert_eq!(taken(100), 100);
        sample.set(Ratio::new(0.1).unwrap());
        for _ in 0..10 {
            assert!((9..=11).contains(&taken(100)));
        }
        sample.set(Ratio::ZERO);
        assert_eq!(taken(1000), 0);
    }

    #[test]
    fn the_format_in_force_is_the_one_set_last() {
        let format = Format::default();
        assert_eq!(format.load(), config::LogFormat::Json);
        for each in [config::LogFormat::Human, config::LogFormat::Combined, config::LogFormat::Json] {
            format.store(each);
            assert_eq!(format.load(), each);
        }
    }

    #[test]
    fn a_log_that_is_off_begins_no_entry() {
        let log = AccessLog::default();
        assert!(log.begin(&peer(), &Arc::from("main"), &Request::new(())).is_none());
        log.put_in_force(Prepared(None));
        assert!(!log.0.queue.is_behind(), "nobody would obey");
    }

    /// A log into `access.log` of a folder of its own, and that folder.
    fn into_file(name: &str) -> (AccessLog, std::path::PathBuf) {
        let folder = std::env::temp_dir().join(format!("plimsoll-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let config = config::AccessLog {
            path: Some(config::LogPath::File(folder.join("access.log"))),
            format: config::LogFormat::Json,
            sample: Ratio::ONE,
        };
        let log = AccessLog::default();
        log.put_in_force(log.prepare(&config).unwrap());
        (log, folder)
    }

    fn peer() -> Peer {
        Peer {
            address: ([10, 0, 0, 9], 5).into(),
            local: ([10, 0, 0, 1], 80).into(),
            user: None,
            tls: None,
            is_unnamed: false,
        }
    }

    fn write(log: &AccessLog) {
        let entry = log.begin(&peer(), &Arc::from("main"), &Request::new(())).unwrap();
        log.write(&entry);
        settle(log);
    }

    fn settle(log: &AccessLog) {
        let until = Instant::now() + Duration::from_secs(10);
        while log.0.queue.is_behind() {
            assert!(Instant::now() < until, "it is not written");
            thread::yield_now();
        }
    }

    fn lines(path: &std::path::Path) -> usize {
        std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
    }

    #[test]
    fn lines_reach_the_file_and_its_successor_after_it_was_moved_away() {
        let (log, folder) = into_file("access-log");
        let (path, moved) = (folder.join("access.log"), folder.join("access.log.1"));
        write(&log);
        std::fs::rename(&path, &moved).unwrap();
        log.reopen();
        write(&log);
        assert_eq!((lines(&moved), lines(&path), log.dropped()), (1, 1, 0));
        log.put_in_force(Prepared(None));
        assert!(log.begin(&peer(), &Arc::from("main"), &Request::new(())).is_none());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_file_that_cannot_be_opened_again_is_tried_until_it_can() {
        let (log, folder) = into_file("access-log-stale");
        let (path, moved) = (folder.join("access.log"), folder.join("access.log.1"));
        write(&log);
        std::fs::rename(&path, &moved).unwrap();
        // An obstacle: a folder cannot be opened for writing.
        std::fs::create_dir(&path).unwrap();
        log.reopen();
        write(&log);
        assert_eq!(lines(&moved), 2, "no line is lost for it");
        std::fs::remove_dir(&path).unwrap();
        let until = Instant::now() + Duration::from_secs(10);
        while !path.exists() {
            assert!(Instant::now() < until, "it is not tried again");
            thread::yield_now();
        }
        write(&log);
        assert_eq!((lines(&moved), lines(&path), log.dropped()), (2, 1, 0));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_log_that_is_turned_off_lets_go_of_its_file() {
        let (log, folder) = into_file("access-log-off");
        let is_open = || {
            let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
            open.filter_map(|each| std::fs::read_link(each.path()).ok()).any(|file| file.starts_with(&folder))
        };
        write(&log);
        assert!(is_open());
        log.put_in_force(Prepared(None));
        settle(&log);
        assert!(!is_open());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_log_that_is_turned_off_waits_for_room_no_longer() {
        let log = AccessLog::default();
        let full = config::AccessLog {
            path: Some(config::LogPath::File("/dev/full".into())),
            format: config::LogFormat::Json,
            sample: Ratio::ONE,
        };
        log.put_in_force(log.prepare(&full).unwrap());
        let entry = log.begin(&peer(), &Arc::from("main"), &Request::new(())).unwrap();
        log.write(&entry);
        log.put_in_force(Prepared(None));
        settle(&log);
    }
}
