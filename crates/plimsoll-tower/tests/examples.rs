//! The examples run, against servers in this process.
#![allow(clippy::duplicate_mod, reason = "each example is a program of its own")]

#[path = "../examples/axum.rs"]
mod axum_example;
#[path = "../examples/hyper_util.rs"]
mod hyper_util_example;
#[path = "../examples/tonic.rs"]
mod tonic_example;

#[test]
fn hyper_util_is_retried_and_throttled() {
    hyper_util_example::main().expect("it succeeds");
}

#[test]
fn tonic_is_balanced_retried_and_throttled() {
    tonic_example::main().expect("it succeeds");
}

#[test]
fn axum_sheds() {
    axum_example::main().expect("it succeeds");
}
