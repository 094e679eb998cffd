//! The programs run, against servers in this process.
#![allow(clippy::duplicate_mod, reason = "each example is a program of its own")]

#[path = "../examples/redis.rs"]
mod redis_example;
#[path = "../examples/reqwest.rs"]
mod reqwest_example;
#[path = "../examples/sqlx.rs"]
mod sqlx_example;

#[test]
fn reqwest_is_retried_and_throttled() {
    reqwest_example::main().expect("it succeeds");
}

#[test]
fn redis_is_throttled() {
    redis_example::main().expect("it succeeds");
}

#[test]
fn sqlx_is_limited_by_criticality() {
    sqlx_example::main().expect("it succeeds");
}
