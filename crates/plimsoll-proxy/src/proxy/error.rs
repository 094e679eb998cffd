//! Why the proxy did not start, or did not take a config.

use std::net::SocketAddr;
use std::{fmt, io};

use crate::config::ConfigError;
use crate::sockets::Taken;

/// Why the proxy did not start, or did not take a config.
#[derive(Debug)]
pub enum Error {
    /// What the config names is not there: a backend's name cannot be looked up, or the access log cannot be opened.
    Config(ConfigError),
    /// An address cannot be listened at.
    Listen {
        /// The listener's name.
        listener: String,
        /// The address.
        address: SocketAddr,
        /// Why not.
        cause: io::Error,
    },
    /// A thread could not be started.
    Thread(io::Error),
    /// It is ending.
    Draining,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Listen { listener, address, cause } => {
                let is_shared = cause.get_ref().is_some_and(|cause| cause.is::<Taken>());
                let help = match cause.kind() {
                    io::ErrorKind::AddrInUse if is_shared => {
                        "; help: end that process, or replace it by SIGUSR2, or choose another port; to share the port, set \
                         share_port = true in its listener (without a config: --share-port)"
                    }
                    io::ErrorKind::AddrInUse => ": end the program that listens there, or choose another port",
                    io::ErrorKind::PermissionDenied => ": ports below 1024 need root or CAP_NET_BIND_SERVICE",
                    io::ErrorKind::AddrNotAvailable => ": this machine has no such address",
                    _ => "",
                };
                write!(f, "listener {listener:?} cannot listen at {address}: {cause}{help}")
            }
            Self::Thread(cause) => write!(f, "cannot start a thread: {cause}"),
            Self::Draining => f.write_str("the proxy is draining and takes no new config"),
        }
    }
}

impl std::error::Error for Error {}
