//! `plimsoll reload`, `upgrade`, `drain`, `undrain`, `status`: commands to a running proxy, and its status.
//!
//! Each addresses one process, by its admin API or its pid file, and reports the outcome by its exit code. A signal to
//! every process of a name would do neither.

mod api;
mod backend;
mod drain;
mod find;
mod process;
mod reload;
mod status;
mod upgrade;

use std::net::SocketAddr;
use std::path::PathBuf;

pub(crate) use backend::{UndrainArgs, undrain};
pub(crate) use drain::{Args as DrainArgs, run as drain};
pub(crate) use reload::{Args as ReloadArgs, run as reload};
pub(crate) use status::{Args as StatusArgs, run as status};
pub(crate) use upgrade::{Args as UpgradeArgs, run as upgrade};

use crate::units;

/// The admin address of a proxy without one in its config.
const ADMIN: &str = "127.0.0.1:9900";

/// The proxy that a command is for.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Target {
    /// Admin address of the proxy, as IP:PORT or :PORT
    #[arg(long, value_name = "ADDR", value_parser = units::local_address, default_value = ADMIN)]
    admin: SocketAddr,
    /// File with the process id of the proxy, as its own --pid-file wrote it
    #[arg(long, value_name = "FILE", conflicts_with = "admin")]
    pid_file: Option<PathBuf>,
}
