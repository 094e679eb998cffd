//! How a command says something, on stdout and on stderr.
//!
//! `println!` panics when nobody reads any more, as behind `| head -1`. That is no fault: the rest goes unsaid, and the exit code is
//! the same. A disk that is full is one.

use std::fmt;
use std::io::{self, ErrorKind, Write as _};

use anyhow::Context as _;

/// Says a text on stdout.
macro_rules! out {
    ($($text:tt)*) => { $crate::output::to_stdout(format_args!($($text)*), "") };
}

/// Says a line on stdout.
macro_rules! outln {
    ($($text:tt)*) => { $crate::output::to_stdout(format_args!($($text)*), "\n") };
}

/// Says a line on stderr. What cannot be said there can be said nowhere.
macro_rules! errln {
    ($($text:tt)*) => { $crate::output::to_stderr(format_args!($($text)*)) };
}

pub(crate) use {errln, out, outln};

/// Says `text` and `end` on stdout.
///
/// # Errors
/// When they cannot be written although somebody would read them.
pub(crate) fn to_stdout(text: fmt::Arguments<'_>, end: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_fmt(format_args!("{text}{end}")).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to stdout"),
    }
}

/// Writes a line on stdout at once, for a command that goes on until nobody reads any more; false then.
///
/// # Errors
/// When it cannot be written although somebody would read it.
pub(crate) fn write_line(line: &str) -> anyhow::Result<bool> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(line.as_bytes()).and_then(|()| stdout.write_all(b"\n")).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        written => written.context("cannot write to stdout").map(|()| true),
    }
}

/// Says a line on stderr, if that can be.
pub(crate) fn to_stderr(text: fmt::Arguments<'_>) {
    let _ = io::stderr().lock().write_fmt(format_args!("{text}\n"));
}
