//! A process of another program, on this machine: its checks, and its state by them.

mod args;
mod check;
mod state;

pub(crate) use self::args::Args;
pub(crate) use self::state::ProcessState;
