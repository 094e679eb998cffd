//! Decides the form of the logs: to stderr, human on a terminal, one JSON object a line otherwise.
//!
//! stdout belongs to what a command was asked for (tables, JSON results), so that it can be piped.
//! `RUST_LOG` sets what is shown; without it, `info`.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Shown when `RUST_LOG` is not set: what an operator wants to read, without a line per request.
const DEFAULT_FILTER: &str = "info";

/// Starts logging. To be called once, before any command.
pub(crate) fn start() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(DEFAULT_FILTER));
    // A line that cannot be written would be told of on stderr, which is where it could not be written.
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).log_internal_errors(false);
    if std::io::stderr().is_terminal() {
        builder.init();
    } else {
        builder.json().flatten_event(true).init();
    }
}
