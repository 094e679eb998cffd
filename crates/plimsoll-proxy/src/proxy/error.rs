//! Why the proxy did not start, or did not take a config.

use std::net::SocketAddr;
use std::path::Path;
use std::{fmt, io};

use plimsoll::address::{Address, UnixPath};

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
        address: Address,
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
            Self::Listen { place, address: Address::Unix(path), cause } => {
                write!(f, "{place}: cannot listen at {path}: {cause}\n    help: {}", unix_help(*path, cause))
            }
            Self::Listen { place, address: Address::Inet(address), cause } => {
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

/// The fix for a Unix socket that cannot be listened at.
fn unix_help(path: UnixPath, cause: &io::Error) -> String {
    let folder = Path::new(path.as_str()).parent().unwrap_or(Path::new("/")).display();
    match cause.kind() {
        io::ErrorKind::AddrInUse => {
            "stop that process (ss -xlp names it), upgrade it (plimsoll upgrade), or choose another path".to_owned()
        }
        io::ErrorKind::AlreadyExists => "choose another path, or remove that file".to_owned(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            format!("make the folder {folder}: RuntimeDirectory= in systemd, or mkdir")
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            format!(
                "let the user of this process write to {folder} (RuntimeDirectory= in systemd), or choose another folder"
            )
        }
        _ if cause.raw_os_error() == Some(EMFILE) => {
            "raise the limit of open files (LimitNOFILE= in systemd, ulimit -n)".to_owned()
        }
        _ => "choose another path".to_owned(),
    }
}

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
            let address = ([127, 0, 0, 1], 80).into();
            let text = Error::Listen { place: place.clone(), address, cause: kind.into() }.to_string();
            let (problem, advice) = text.split_once("\n    help: ").expect("help");
            assert!(problem.starts_with(&format!("{place}: cannot listen at 127.0.0.1:80: ")), "{text}");
            assert!(advice.contains(help), "{text}");
        }
        let cause = io::Error::from_raw_os_error(EMFILE);
        let error = Error::Listen { place, address: ([127, 0, 0, 1], 80).into(), cause };
        assert!(error.to_string().contains("help: raise the limit of open files"), "{error}");
    }

    #[test]
    fn listen_error_of_a_unix_socket_names_the_folder_and_the_fix() {
        let address: Address = "unix:/run/plimsoll/web.sock".parse().unwrap();
        for (kind, help) in [
            (io::ErrorKind::AddrInUse, "ss -xlp"),
            (io::ErrorKind::AlreadyExists, "remove that file"),
            (io::ErrorKind::NotFound, "make the folder /run/plimsoll"),
            (io::ErrorKind::PermissionDenied, "write to /run/plimsoll"),
            (io::ErrorKind::Unsupported, "choose another path"),
        ] {
            let text = Error::Listen { place: "a.toml:2:11".to_owned(), address, cause: kind.into() }.to_string();
            assert!(text.starts_with("a.toml:2:11: cannot listen at unix:/run/plimsoll/web.sock: "), "{text}");
            assert!(text.split_once("\n    help: ").unwrap().1.contains(help), "{text}");
        }
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
