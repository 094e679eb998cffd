//! Unix sockets to listen at: the file, its mode, and its end.
//!
//! A process that was killed leaves its file behind. A connection tells whether it is stale: refused,
//! and nobody listens. Then the file is replaced. nginx asks its operator to remove it; HAProxy
//! replaces the file of a living process too. A living process keeps its file here, as with a port.
//!
//! Nobody can connect to a socket that is bound and does not listen. So the mode is set between these
//! two steps, and no client with fewer rights can come in before. It needs no `umask`, which the
//! whole process has in common.
//!
//! The file is removed when the listener ends, before its socket is closed: a client then finds no
//! file, and never waits in a queue that is about to be closed. It stays if another process has the
//! socket (a successor, systemd), or has put its own file there.
//!
//! Where it is weak: two processes that start at the same moment may both find a stale file, and the
//! second one replaces the file of the first. A lock would leave another file behind.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll::address::UnixPath;
use rustix::io::Errno;
use socket2::{Domain, SockAddr, Socket, Type};

use super::{BACKLOG, Listening, Taken};
use crate::config::SocketMode;

/// The refusal of a path at which there is something else.
#[derive(Debug, Clone, Copy)]
struct NoSocket;

impl std::fmt::Display for NoSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("there is a file that is no socket")
    }
}

impl std::error::Error for NoSocket {}

/// The file of a socket. Dropped, it is removed if it is this process's to remove.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: &'static str,
    /// Device and inode.
    identity: (u64, u64),
    is_own: AtomicBool,
}

impl SocketFile {
    /// The file at `path`; `None` for an abstract name, and if there is none.
    pub(crate) fn at(path: UnixPath, is_own: bool) -> Option<Self> {
        if path.abstract_name().is_some() {
            return None;
        }
        let path = path.as_str();
        Some(Self { path, identity: identity(path)?, is_own: AtomicBool::new(is_own) })
    }

    /// Whether it is this process's to remove.
    pub(crate) fn is_own(&self) -> bool {
        self.is_own.load(Ordering::Relaxed)
    }

    /// Leaves it to another process, or takes it over.
    pub(crate) fn set_own(&self, is_own: bool) {
        self.is_own.store(is_own, Ordering::Relaxed);
    }

    pub(crate) fn path(&self) -> &'static str {
        self.path
    }

    /// Sets the mode of a file of this process.
    pub(crate) fn set_mode(&self, mode: SocketMode) {
        if !self.is_own() || identity(self.path) != Some(self.identity) {
            return;
        }
        if let Err(error) = chmod(self.path, mode) {
            tracing::warn!(path = self.path, %mode, %error, "mode of a Unix socket not changed");
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.is_own() && identity(self.path) == Some(self.identity) {
            let _ = fs::remove_file(self.path);
        }
    }
}

/// Device and inode of the socket at `path`.
fn identity(path: &str) -> Option<(u64, u64)> {
    let file = fs::symlink_metadata(path).ok().filter(|file| file.file_type().is_socket())?;
    Some((file.dev(), file.ino()))
}

fn chmod(path: &str, mode: SocketMode) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode.bits()))
}

/// Listens at `path`, in place of a stale file.
pub(crate) fn listen(path: UnixPath, mode: SocketMode) -> io::Result<(Listening, Option<SocketFile>)> {
    let address = match path.abstract_name() {
        None => {
            remove_stale(path.as_str())?;
            SockAddr::unix(path.as_str())?
        }
        Some(name) => SockAddr::unix(format!("\0{name}"))?,
    };
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => io::Error::new(io::ErrorKind::AddrInUse, Taken),
        _ => error,
    })?;
    let file = SocketFile::at(path, true);
    if file.is_some() {
        chmod(path.as_str(), mode)?;
    }
    socket.listen(BACKLOG)?;
    Ok((Listening::Unix(socket.into()), file))
}

/// Removes the file of a socket at which nobody listens any more.
fn remove_stale(path: &str) -> io::Result<()> {
    let file = match fs::symlink_metadata(path) {
        Ok(file) => file,
        // What is wrong with the folder shows when the socket is bound.
        Err(_) => return Ok(()),
    };
    if !file.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, NoSocket));
    }
    if is_answered(Path::new(path))? {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, Taken));
    }
    tracing::info!(path, "stale Unix socket replaced: no process listens there");
    fs::remove_file(path)
}

/// Whether a process listens at the socket.
fn is_answered(path: &Path) -> io::Result<bool> {
    let probe = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // A full queue must not keep the start waiting.
    probe.set_nonblocking(true)?;
    match probe.connect(&SockAddr::unix(path)?) {
        Ok(()) => Ok(true),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::CONNREFUSED | Errno::NOENT) => Ok(false),
            // The queue is full; or the socket is one for datagrams.
            Some(Errno::AGAIN | Errno::PROTOTYPE) => Ok(true),
            _ => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
    use std::path::PathBuf;

    use super::*;

    /// A folder of its own for each test.
    fn folder(test: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("plimsoll-unix-{}-{test}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        folder
    }

    fn path_in(folder: &Path) -> UnixPath {
        UnixPath::new(folder.join("web.sock").to_str().unwrap()).unwrap()
    }

    fn mode_of(path: UnixPath) -> u32 {
        fs::metadata(path.as_str()).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn file_has_the_mode_of_the_config_and_ends_with_its_socket() {
        let folder = folder("mode");
        let path = path_in(&folder);
        let (socket, file) = listen(path, SocketMode::new(0o620).unwrap()).unwrap();
        let file = file.unwrap();
        assert_eq!((mode_of(path), socket.address().unwrap()), (0o620, path.into()));
        file.set_mode(SocketMode::new(0o666).unwrap());
        assert_eq!(mode_of(path), 0o666);
        let _client = UnixStream::connect(path.as_str()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (_, caller) = runtime.block_on(async { socket.accept() }).unwrap();
        assert_eq!(caller.address.to_string(), "unix:");
        assert_eq!(caller.user, Some(rustix::process::getuid().as_raw()));
        drop(file);
        assert!(!fs::exists(path.as_str()).unwrap());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn stale_file_is_replaced_and_a_living_socket_is_refused() {
        let folder = folder("stale");
        let path = path_in(&folder);
        // Closed without removing its file, as by a kill.
        drop(UnixListener::bind(path.as_str()).unwrap());
        let (first, file) = listen(path, SocketMode::DEFAULT).unwrap();
        let refused = listen(path, SocketMode::DEFAULT).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        assert!(refused.get_ref().unwrap().is::<Taken>());
        assert!(UnixStream::connect(path.as_str()).is_ok(), "the first goes on");
        drop((first, file));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn socket_with_a_full_queue_is_no_stale_one() {
        let folder = folder("full");
        let path = path_in(&folder);
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        socket.bind(&SockAddr::unix(path.as_str()).unwrap()).unwrap();
        socket.listen(0).unwrap();
        let _waiting = UnixStream::connect(path.as_str()).unwrap();
        assert_eq!(listen(path, SocketMode::DEFAULT).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn other_files_are_never_removed() {
        let folder = folder("other");
        let path = path_in(&folder);
        fs::write(path.as_str(), "precious").unwrap();
        let refused = listen(path, SocketMode::DEFAULT).unwrap_err();
        assert!(refused.get_ref().unwrap().is::<NoSocket>(), "{refused}");
        assert_eq!(fs::read_to_string(path.as_str()).unwrap(), "precious");
        fs::remove_file(path.as_str()).unwrap();
        let _datagrams = UnixDatagram::bind(path.as_str()).unwrap();
        assert_eq!(listen(path, SocketMode::DEFAULT).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn file_stays_when_it_is_anothers_or_was_replaced() {
        let folder = folder("owner");
        let path = path_in(&folder);
        let (_socket, file) = listen(path, SocketMode::DEFAULT).unwrap();
        let file = file.unwrap();
        file.set_own(false);
        drop(file);
        assert!(fs::exists(path.as_str()).unwrap(), "a successor has it");
        let file = SocketFile::at(path, true).unwrap();
        fs::remove_file(path.as_str()).unwrap();
        let _other = UnixListener::bind(path.as_str()).unwrap();
        // The inode may be the same number again where the file system reuses it at once.
        if identity(path.as_str()) != Some(file.identity) {
            drop(file);
            assert!(fs::exists(path.as_str()).unwrap(), "another process has put its file there");
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn abstract_name_has_no_file_and_is_refused_while_in_use() {
        let path = UnixPath::new(&format!("@plimsoll-test-{}", std::process::id())).unwrap();
        let (socket, file) = listen(path, SocketMode::DEFAULT).unwrap();
        assert!(file.is_none());
        assert_eq!(socket.address().unwrap(), path.into());
        assert_eq!(listen(path, SocketMode::DEFAULT).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(socket);
        assert!(listen(path, SocketMode::DEFAULT).is_ok());
    }
}
