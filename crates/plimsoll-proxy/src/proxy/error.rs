//! Why the proxy did not start, or did not take a config.

use std::net::SocketAddr;
use std::{fmt, io};

use crate::config::ConfigError;

/// The system's error for a process that has as many files open as it may.
const EMFILE: i32 = rustix::io::Errno::MFILE.raw_os_error();

/// Why the proxy did not start, or did not take a config.
#[derive(Debug)]
pub enum Error {
    /// What the config names is not there: the access log or the folder for state cannot be opened.
    Config(ConfigError),
    /// An address cannot be listened at.
    Listen {
        /// The setting of the address, with its place in the file.
        place: String,
        /// The address.
        address: SocketAddr,
        /// Why not.
        cause: io::Error,
    },
    /// Probes cannot be answered at an address.
    Probes {
        /// The setting of the answers, with its place in the file.
        place: String,
        /// The address.
        address: SocketAddr,
        /// The reason.
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
            Self::Listen { place, address, cause } => {
                let port = address.port();
                let help = match cause.kind() {
                    io::ErrorKind::AddrInUse => format!(
                        "stop that process (ss -ltnp 'sport = {port}' names it), upgrade it (plimsoll upgrade), choose another port, or \
                         share the port: share_port = true in the listener (without a config: --share-port)"
                    ),
                    io::ErrorKind::PermissionDenied => format!(
                        "choose a port above 1023, or grant the right to {port}: AmbientCapabilities=CAP_NET_BIND_SERVICE \
                         in systemd, setcap cap_net_bind_service=+ep on the binary, or root"
                    ),
                    io::ErrorKind::AddrNotAvailable => {
                        format!(
                            "write an address of this machine (ip address lists them), or \":{port}\" for all of them"
                        )
                    }
                    _ if cause.raw_os_error() == Some(EMFILE) => {
                        "raise the limit of open files (LimitNOFILE= in systemd, ulimit -n)".to_owned()
                    }
                    _ => "choose another address".to_owned(),
                };
                write!(f, "{place}: cannot listen at {address}: {cause}\n    help: {help}")
            }
            Self::Probes { place, address, cause } => {
                let port = address.port();
                let help = match cause.kind() {
                    io::ErrorKind::AddrInUse => format!(
                        "stop the process that has UDP port {port} (ss -ulnp 'sport = {port}' names it), choose another \
                         port for the listener, or remove its table probes"
                    ),
                    io::ErrorKind::PermissionDenied => format!(
                        "choose a port above 1023, or grant the right to {port}: AmbientCapabilities=CAP_NET_BIND_SERVICE \
                         in systemd, setcap cap_net_bind_service=+ep on the binary, or root"
                    ),
                    _ if cause.raw_os_error() == Some(EMFILE) => {
                        "raise the limit of open files (LimitNOFILE= in systemd, ulimit -n)".to_owned()
                    }
                    _ => "choose another address for the listener, or remove its table probes".to_owned(),
                };
                write!(f, "{place}: cannot answer probes at UDP {address}: {cause}\n    help: {help}")
            }
            Self::Thread(cause) => write!(f, "cannot start a thread: {cause}"),
            Self::Draining => f.write_str("the proxy is draining and takes no new config"),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_error_names_the_place_and_the_fix() {
        let place = "plimsoll.toml:2:11: listeners[0].address".to_owned();
        for (kind, help) in [
            (io::ErrorKind::AddrInUse, "ss -ltnp 'sport = 80'"),
            (io::ErrorKind::PermissionDenied, "CAP_NET_BIND_SERVICE"),
            (io::ErrorKind::AddrNotAvailable, "an address of this machine"),
            (io::ErrorKind::Unsupported, "choose another address"),
        ] {
            let address = SocketAddr::from(([127, 0, 0, 1], 80));
            let text = Error::Listen { place: place.clone(), address, cause: kind.into() }.to_string();
            let (problem, advice) = text.split_once("\n    help: ").expect("help");
            assert!(problem.starts_with(&format!("{place}: cannot listen at 127.0.0.1:80: ")), "{text}");
            assert!(advice.contains(help), "{text}");
        }
        let cause = io::Error::from_raw_os_error(EMFILE);
        let error = Error::Listen { place, address: SocketAddr::from(([127, 0, 0, 1], 80)), cause };
        assert!(error.to_string().contains("help: raise the limit of open files"), "{error}");
    }

    #[test]
    fn error_of_probes_names_the_place_the_port_and_the_fix() {
        let place = "plimsoll.toml:2:11: listeners[0].probes".to_owned();
        for (kind, help) in [
            (io::ErrorKind::AddrInUse, "ss -ulnp 'sport = 80'"),
            (io::ErrorKind::PermissionDenied, "CAP_NET_BIND_SERVICE"),
            (io::ErrorKind::Unsupported, "remove its table probes"),
        ] {
            let address = SocketAddr::from(([127, 0, 0, 1], 80));
            let text = Error::Probes { place: place.clone(), address, cause: kind.into() }.to_string();
            let (problem, advice) = text.split_once("\n    help: ").expect("help");
            assert!(problem.starts_with(&format!("{place}: cannot answer probes at UDP 127.0.0.1:80: ")), "{text}");
            assert!(advice.contains(help), "{text}");
        }
    }
}
