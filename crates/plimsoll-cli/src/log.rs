//! Decides the form of the logs: to stderr, human on a terminal, one JSON object a line otherwise.
//!
//! stdout belongs to what a command was asked for (tables, JSON results), so that it can be piped.
//! `RUST_LOG` sets what is shown; without it, `info`. Nobody who logs waits for whoever reads stderr: see [`queue`].

mod queue;

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::thread;

use tracing_subscriber::EnvFilter;

use self::queue::{Lines, Queue};

/// Shown when `RUST_LOG` is not set: the events of interest to an operator, without a line per
/// request. rustls warns of client errors, a line for each handshake, and quotes them. Failed
/// handshakes are counted by reason instead.
const DEFAULT_FILTER: &str = "info,rustls=error";

/// The log of this process. Dropped, it waits until the last lines are written, if they can be.
#[derive(Debug)]
pub(crate) struct Log(Arc<Queue>);

impl Drop for Log {
    fn drop(&mut self) {
        self.0.flush();
    }
}

/// Starts logging. To be called once, before any command.
pub(crate) fn start() -> io::Result<Log> {
    let queue = Arc::new(Queue::default());
    let written = Arc::clone(&queue);
    thread::Builder::new().name("log".to_owned()).spawn(move || queue::run(&written))?;
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT_FILTER));
    // A line that cannot be written would be told of on stderr, which is where it could not be written.
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(Lines(Arc::clone(&queue)))
        .log_internal_errors(false);
    if io::stderr().is_terminal() {
        builder.init();
    } else {
        builder.json().flatten_event(true).init();
    }
    Ok(Log(queue))
}
