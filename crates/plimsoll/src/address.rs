//! The address of a backend or a listener: of IP, or a Unix socket.
//!
//! It is `Copy`, as an address of IP is: a request copies its backend's address into errors, reports
//! and logs, and must not allocate for that. So the path of a Unix socket is interned: stored once for
//! each distinct path, until the process ends.
//!
//! Interned paths are never freed, so their number is bounded ([`MAX_PATHS`]). Sources of backends
//! (DNS, files, etcd, xDS) give addresses of IP only: strangers cannot fill the table. Paths come
//! from the configuration and from the operator of the admin API.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::LazyLock;

use parking_lot::Mutex;

/// The beginning of a Unix socket in text.
pub const UNIX: &str = "unix:";

/// Longest path of a Unix socket, in bytes: the kernel's `sun_path` has 108, with the zero at its end.
pub const MAX_PATH: usize = 107;

/// Most distinct paths of one process. At a new path for each deployment, ten a day, that is 17
/// years; all of them take 7 MiB.
pub const MAX_PATHS: usize = 65_536;

static PATHS: LazyLock<Mutex<HashSet<&'static str>>> = LazyLock::new(Mutex::default);

/// An address of IP with a port, or a Unix socket.
///
/// ```
/// use plimsoll::address::Address;
///
/// let web: Address = "unix:/run/web.sock".parse()?;
/// assert_eq!(web.to_string(), "unix:/run/web.sock");
/// let tcp: Address = "[::1]:80".parse()?;
/// assert_eq!(tcp.port(), Some(80));
/// # Ok::<(), plimsoll::address::AddressError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// An address of IP with a port.
    Inet(SocketAddr),
    /// A Unix socket.
    Unix(UnixPath),
}

/// The name of a Unix socket: an absolute path, an abstract name of Linux (`@name`), or no name.
///
/// It equals another of the same text; links between files are not followed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UnixPath(&'static str);

/// The reason why a text is no [`Address`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// It is neither an address of IP with a port nor `unix:` with a path.
    #[error("no IP address with a port, and no Unix socket")]
    Syntax,
    /// The path is not absolute.
    #[error("the path of a Unix socket must be absolute")]
    Relative,
    /// The path ends with a slash.
    #[error("the path of a Unix socket names a folder")]
    Folder,
    /// The path is too long for the kernel.
    #[error("the path of a Unix socket has {0} bytes, and the kernel takes {MAX_PATH}")]
    TooLong(usize),
    /// The path or name has a control character: no log or report could show it.
    #[error("the path of a Unix socket has a control character")]
    Control,
    /// The abstract name is empty.
    #[error("the abstract name of a Unix socket is empty")]
    NoName,
    /// The system has no abstract names.
    #[error("abstract Unix sockets exist on Linux only")]
    NotLinux,
    /// The process has used [`MAX_PATHS`] distinct paths.
    #[error("{MAX_PATHS} different Unix sockets have been named since the start; a restart frees them")]
    TooMany,
}

impl Address {
    /// The address of IP; `None` for a Unix socket.
    #[must_use]
    pub const fn inet(self) -> Option<SocketAddr> {
        match self {
            Self::Inet(address) => Some(address),
            Self::Unix(_) => None,
        }
    }

    /// The path of the Unix socket; `None` for an address of IP.
    #[must_use]
    pub const fn unix(self) -> Option<UnixPath> {
        match self {
            Self::Inet(_) => None,
            Self::Unix(path) => Some(path),
        }
    }

    /// The IP address; `None` for a Unix socket.
    #[must_use]
    pub fn ip(self) -> Option<IpAddr> {
        self.inet().map(|address| address.ip())
    }

    /// The IP address, or the path of the Unix socket: `server.address` in traces.
    pub fn host(self) -> impl fmt::Display {
        fmt::from_fn(move |f| match self {
            Self::Inet(address) => fmt::Display::fmt(&address.ip(), f),
            Self::Unix(path) => f.write_str(path.0),
        })
    }

    /// The port; `None` for a Unix socket.
    #[must_use]
    pub fn port(self) -> Option<u16> {
        self.inet().map(|address| address.port())
    }
}

impl UnixPath {
    /// A socket without a name, as most clients have.
    pub const UNNAMED: Self = Self("");

    /// The socket of this absolute path, or of the abstract name behind `@`.
    ///
    /// # Errors
    /// It is no such, is too long, or the process has used too many different ones.
    pub fn new(path: &str) -> Result<Self, AddressError> {
        match path.strip_prefix('@') {
            Some("") => return Err(AddressError::NoName),
            Some(_) if !cfg!(target_os = "linux") => return Err(AddressError::NotLinux),
            Some(_) => {}
            None if !path.starts_with('/') => return Err(AddressError::Relative),
            None if path.ends_with('/') => return Err(AddressError::Folder),
            None => {}
        }
        if path.contains(char::is_control) {
            return Err(AddressError::Control);
        }
        if path.len() > MAX_PATH {
            return Err(AddressError::TooLong(path.len()));
        }
        intern(&mut PATHS.lock(), MAX_PATHS, path).map(Self).ok_or(AddressError::TooMany)
    }

    /// The path, or `@` and the abstract name; empty for [`UNNAMED`](Self::UNNAMED).
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.0
    }

    /// The abstract name; `None` for a path in the file system.
    #[must_use]
    pub fn abstract_name(self) -> Option<&'static str> {
        self.0.strip_prefix('@')
    }

    /// The address for system calls.
    ///
    /// # Errors
    /// The system has no such addresses.
    pub fn to_std(self) -> io::Result<std::os::unix::net::SocketAddr> {
        match self.abstract_name() {
            None => std::os::unix::net::SocketAddr::from_pathname(self.0),
            #[cfg(target_os = "linux")]
            Some(name) => {
                use std::os::linux::net::SocketAddrExt as _;
                std::os::unix::net::SocketAddr::from_abstract_name(name)
            }
            #[cfg(not(target_os = "linux"))]
            Some(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// The name that the system has for a socket; [`UNNAMED`](Self::UNNAMED) if it has none, or
    /// one that is not text.
    #[must_use]
    pub fn of_std(address: &std::os::unix::net::SocketAddr) -> Self {
        #[cfg(target_os = "linux")]
        {
            use std::os::linux::net::SocketAddrExt as _;
            if let Some(name) = address.as_abstract_name() {
                let name = std::str::from_utf8(name).ok();
                return name.and_then(|name| Self::new(&format!("@{name}")).ok()).unwrap_or(Self::UNNAMED);
            }
        }
        let path = address.as_pathname().and_then(std::path::Path::to_str);
        path.and_then(|path| Self::new(path).ok()).unwrap_or(Self::UNNAMED)
    }
}

/// The text that is stored for `path`; `None` if it is new and there are `most`.
fn intern(paths: &mut HashSet<&'static str>, most: usize, path: &str) -> Option<&'static str> {
    if let Some(known) = paths.get(path) {
        return Some(known);
    }
    if paths.len() >= most {
        return None;
    }
    let path: &'static str = Box::leak(path.into());
    paths.insert(path);
    Some(path)
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Inet(address)
    }
}

impl From<UnixPath> for Address {
    fn from(path: UnixPath) -> Self {
        Self::Unix(path)
    }
}

impl<I: Into<IpAddr>> From<(I, u16)> for Address {
    fn from(address: (I, u16)) -> Self {
        Self::Inet(address.into())
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        match text.strip_prefix(UNIX) {
            Some(path) => UnixPath::new(path).map(Self::Unix),
            None => text.parse().map(Self::Inet).map_err(|_| AddressError::Syntax),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet(address) => address.fmt(f),
            Self::Unix(path) => path.fmt(f),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for UnixPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{UNIX}{}", self.0)
    }
}

impl fmt::Debug for UnixPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_read_and_printed_alike() {
        for text in ["10.0.0.1:80", "[fd00::1]:80", "unix:/run/a.sock", "unix:/run/a b:80", "unix:@web"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        assert_eq!(Address::from(UnixPath::UNNAMED).to_string(), "unix:");
        assert_eq!("unix:/a".parse::<Address>().unwrap(), UnixPath::new("/a").unwrap().into());
    }

    #[test]
    fn text_that_is_no_address_is_refused_with_its_reason() {
        let long = format!("unix:/{}", "x".repeat(MAX_PATH));
        for (text, reason) in [
            ("web:80", AddressError::Syntax),
            ("/run/a.sock", AddressError::Syntax),
            ("unix:run/a.sock", AddressError::Relative),
            ("unix:", AddressError::Relative),
            ("unix:/run/", AddressError::Folder),
            ("unix:/", AddressError::Folder),
            ("unix:@", AddressError::NoName),
            ("unix:/a\0b", AddressError::Control),
            (&long, AddressError::TooLong(108)),
        ] {
            assert_eq!(text.parse::<Address>(), Err(reason), "{text:?}");
        }
        assert!(long[..long.len() - 1].parse::<Address>().is_ok());
    }

    #[test]
    fn distinct_paths_are_bounded_and_known_ones_stay_usable() {
        let mut paths = HashSet::new();
        assert_eq!(intern(&mut paths, 2, "/a").map(str::as_ptr), intern(&mut paths, 2, "/a").map(str::as_ptr));
        assert!(intern(&mut paths, 2, "/b").is_some());
        assert!(intern(&mut paths, 2, "/c").is_none());
        assert_eq!(intern(&mut paths, 2, "/a"), Some("/a"));
    }

    #[test]
    fn name_survives_the_way_through_the_system() {
        for text in ["/run/a.sock", "@web"] {
            let path = UnixPath::new(text).unwrap();
            assert_eq!(UnixPath::of_std(&path.to_std().unwrap()), path);
        }
    }

    #[test]
    fn address_is_no_larger_than_that_of_ip() {
        assert_eq!(size_of::<Address>(), size_of::<SocketAddr>());
        assert_eq!(size_of::<Option<Address>>(), size_of::<Option<SocketAddr>>());
    }
}
