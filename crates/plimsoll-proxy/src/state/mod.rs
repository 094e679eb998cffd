//! The folder of the state that outlives the process: `state_dir`.
//!
//! A file is replaced as a whole: written under another name, flushed to the disk, renamed. So a reader
//! finds the old state or the new one, after a crash or a power cut too.
//!
//! Two processes share the folder during an upgrade, and one of them saves: the holder of the lock on
//! the file `lock`. The old process holds it until it hands over, saves a last time, and releases it.
//! From then on it writes nothing, so it cannot replace newer state. The new process reads without the
//! lock. The kernel releases the lock of a killed process. A process identifier in a file would outlive
//! its process.
//!
//! Where it is weak: a network file system without locks. The start fails there.

mod address_text;
mod lists;
mod overrides;
mod saver;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

pub(crate) use self::lists::SavedList;
pub use self::overrides::{SavedOverride, saved_overrides};
pub(crate) use self::overrides::{SavedOverrides, read as read_overrides};
pub(crate) use self::saver::{Saver, Target};

const LOCK: &str = "lock";

/// A folder for the state of one proxy.
#[derive(Debug)]
pub(crate) struct StateDir {
    path: PathBuf,
    lock: Mutex<Lock>,
}

/// The right to write: a lock that is taken at the first write.
#[derive(Debug)]
struct Lock {
    /// `None`: given to a successor, for good.
    file: Option<File>,
    is_held: bool,
}

impl StateDir {
    /// The folder at `path`, which must exist and let this process write.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let probe = path.join(format!(".probe-{}", std::process::id()));
        File::create(&probe)?;
        fs::remove_file(&probe)?;
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(path.join(LOCK))?;
        let dir = Self { path: path.to_owned(), lock: Mutex::new(Lock { file: Some(lock), is_held: false }) };
        match dir.writable() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(dir),
        }
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The path of the file `name`, for messages.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The content of the file `name`, at most `max` bytes; `None` without such a file.
    pub(crate) fn read(&self, name: &str, max: u64) -> io::Result<Option<Vec<u8>>> {
        read_file(&self.file(name), max)
    }

    /// Replaces the file `name`. Waits for the disk, so not on a thread that serves.
    ///
    /// # Errors
    /// `WouldBlock`: another process saves here.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        // One writer at a time, within the process too.
        let mut lock = self.lock.lock();
        lock.take()?;
        let new = self.path.join(format!(".{name}.new"));
        // A rest of a process that was killed; it may be a link.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).open(&new)?;
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        if let Err(error) = written.and_then(|()| fs::rename(&new, self.file(name))) {
            // A full disk keeps no half of a file.
            let _ = fs::remove_file(&new);
            return Err(error);
        }
        File::open(&self.path)?.sync_all()
    }

    /// Whether this process may write now.
    ///
    /// # Errors
    /// As [`StateDir::write`].
    pub(crate) fn writable(&self) -> io::Result<()> {
        self.lock.lock().take()
    }

    /// Lets a successor write. From now on this process does not.
    pub(crate) fn release(&self) {
        self.lock.lock().file = None;
    }
}

/// The content of a regular file, at most `max` bytes; `None` without such a file.
fn read_file(path: &Path, max: u64) -> io::Result<Option<Vec<u8>>> {
    // To open a pipe would wait for its writer.
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
        Ok(metadata) if !metadata.is_file() => return Err(io::Error::other("it is not a regular file")),
        Ok(_) => {}
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(max + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > max {
        true => Err(io::Error::other(format!("it is larger than {max} bytes"))),
        false => Ok(Some(bytes)),
    }
}

impl Lock {
    fn take(&mut self) -> io::Result<()> {
        let file = self.file.as_ref().ok_or_else(|| in_use("the successor of this process saves here"))?;
        if !self.is_held {
            file.try_lock().map_err(|error| match error {
                TryLockError::WouldBlock => in_use("another process saves here"),
                TryLockError::Error(error) => error,
            })?;
            self.is_held = true;
        }
        Ok(())
    }
}

fn in_use(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::WouldBlock, reason)
}

#[cfg(test)]
mod test_folder {
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A folder that is removed at its end.
    pub(super) struct TestFolder(pub(super) PathBuf);

    impl TestFolder {
        pub(super) fn new() -> Self {
            static NUMBER: AtomicU64 = AtomicU64::new(0);
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("plimsoll-state-{}-{number}", std::process::id()));
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for TestFolder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::test_folder::TestFolder;
    use super::*;

    #[test]
    fn written_file_replaces_the_one_before_and_leaves_no_other() {
        let folder = TestFolder::new();
        let dir = StateDir::open(&folder.0).unwrap();
        assert_eq!(dir.read("a.json", 9).unwrap(), None);
        fs::write(folder.0.join(".a.json.new"), "rest of a killed process").unwrap();
        for text in ["first", "second"] {
            dir.write("a.json", text.as_bytes()).unwrap();
            assert_eq!(dir.read("a.json", 9).unwrap().unwrap(), text.as_bytes());
        }
        let mut names: Vec<_> = fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["a.json", LOCK]);
    }

    #[test]
    fn only_a_regular_file_within_the_limit_is_read() {
        let folder = TestFolder::new();
        let dir = StateDir::open(&folder.0).unwrap();
        dir.write("a.json", b"12345").unwrap();
        assert_eq!(dir.read("a.json", 5).unwrap().unwrap().len(), 5);
        assert!(dir.read("a.json", 4).unwrap_err().to_string().contains("larger than 4 bytes"));
        fs::create_dir(folder.0.join("folder")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", folder.0.join("link")).unwrap();
        for name in ["folder", "link"] {
            assert!(dir.read(name, 5).unwrap_err().to_string().contains("regular"), "{name}");
        }
    }

    #[test]
    fn link_in_place_of_the_new_file_is_not_followed() {
        let folder = TestFolder::new();
        let victim = folder.0.join("victim");
        fs::write(&victim, "untouched").unwrap();
        std::os::unix::fs::symlink(&victim, folder.0.join(".a.json.new")).unwrap();
        StateDir::open(&folder.0).unwrap().write("a.json", b"new").unwrap();
        assert_eq!(fs::read_to_string(victim).unwrap(), "untouched");
    }

    #[test]
    fn successor_writes_once_the_predecessor_released_the_folder_for_good() {
        let folder = TestFolder::new();
        let [old, new] = [(); 2].map(|()| StateDir::open(&folder.0).unwrap());
        old.write("a.json", b"old").unwrap();
        assert_eq!(new.write("a.json", b"new").unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(new.read("a.json", 9).unwrap().unwrap(), b"old");
        old.release();
        new.write("a.json", b"new").unwrap();
        assert_eq!(old.write("a.json", b"older").unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(old.read("a.json", 9).unwrap().unwrap(), b"new");
    }

    #[test]
    fn folder_that_does_not_exist_is_an_error() {
        let folder = TestFolder::new();
        assert!(StateDir::open(&folder.0.join("none")).is_err());
        fs::write(folder.0.join("file"), "").unwrap();
        assert!(StateDir::open(&folder.0.join("file")).is_err());
    }
}
