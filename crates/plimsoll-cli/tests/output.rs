//! What becomes of a command whose output cannot be written.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

use std::fs::File;
use std::io::{PipeWriter, pipe};
use std::process::{Command, Output, Stdio};

/// A pipe that nobody reads.
fn closed() -> PipeWriter {
    pipe().unwrap().1
}

fn run(arguments: &[&str], stdout: impl Into<Stdio>, stderr: impl Into<Stdio>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    let child = command.args(arguments).stdin(Stdio::null()).stdout(stdout).stderr(stderr).spawn().unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn a_command_whose_output_nobody_reads_ends_as_if_it_was_read() {
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/minimal.toml");
    let commands: [&[&str]; 5] = [
        &["sim", "list"],
        &["sim", "list", "--json"],
        &["completions", "bash"],
        &["check", "-c", config, "--print"],
        &["check", "-c", config, "--diff", config],
    ];
    for arguments in commands {
        let done = run(arguments, closed(), Stdio::piped());
        assert_eq!((done.status.code(), &*String::from_utf8_lossy(&done.stderr)), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn a_complaint_that_nobody_reads_is_the_exit_code_alone() {
    for (arguments, code) in [(["check", "-c", "/nonexistent.toml"], 1), (["sim", "run", "nowhere"], 2)] {
        assert_eq!(run(&arguments, closed(), closed()).status.code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn a_full_disk_is_told() {
    let done = run(&["sim", "list"], File::options().write(true).open("/dev/full").unwrap(), Stdio::piped());
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.starts_with("error: cannot write to stdout: No space left"), "{said}");
}
