//! A process of another program, on this machine: its checks, and its state by them.

mod check;
mod state;

pub(crate) use self::check::{Checks, ReadyUrl};
pub(crate) use self::state::ProcessState;
