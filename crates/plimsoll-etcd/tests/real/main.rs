//! The client against real etcd, with faults: `cargo nextest run -p plimsoll-etcd --features real-etcd`.
//!
//! Each test runs once for each program in the environment variable `PLIMSOLL_ETCD`, whose paths are
//! separated by colons; without it for `etcd` of the search path. `etcdctl` is beside it, or on the path.

#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod etcd;
mod faults;
mod mirror;
mod relay;
mod session;
mod store;
mod tls;
mod users;
