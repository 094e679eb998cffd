//! Which bytes of a file count, and when they are read.
//!
//! The file is looked at once a second, by its metadata, and read when these changed, and every 5 s in
//! any case. Looking costs one system call. A watch by the kernel (inotify) costs nothing while
//! nothing happens, but misses network file systems, bind mounts, and a file whose folder is replaced
//! by a symbolic link, as Kubernetes does with a ConfigMap; so it would need this beside it.
//!
//! Changed bytes count when a second read, 200 ms later, finds the same: a writer may be half through.
//! Where it is weak: a writer that pauses for longer. Write another file and rename it.

use std::fs;
use std::io::{self, Read as _};
#[cfg(unix)]
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep, sleep_until};

/// Time between two looks at the metadata: a change is seen within it.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two reads of a file with the same metadata: some file systems have a resolution
/// of seconds, and tools restore the time of modification.
const READ_INTERVAL: Duration = Duration::from_secs(5);
/// Time between the two reads that must find the same bytes.
const SETTLE_TIME: Duration = Duration::from_millis(200);
/// Time after which a file that changes all the while is an error.
const MAX_SETTLE_TIME: Duration = Duration::from_secs(5);
/// Largest file, in bytes: a hundred thousand backends.
const MAX_LENGTH: u64 = 16 * 1024 * 1024;

/// A file that is watched.
#[derive(Debug)]
pub struct Watch {
    path: PathBuf,
    /// When it was read last.
    read_at: Option<Instant>,
    look: Option<Look>,
    /// The bytes that count.
    known: Option<Vec<u8>>,
    is_failing: bool,
}

/// The facts that tell two states of a file apart without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    length: u64,
    modified: Option<SystemTime>,
    /// Device and number of the file behind all symbolic links.
    #[cfg(unix)]
    inode: (u64, u64),
}

/// The reason why a file has no bytes that count.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The system refuses.
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    /// It is a folder, a pipe or a device.
    #[error("is not a regular file")]
    NotRegular,
    /// No two reads found the same.
    #[error("is still being written: it changed all the while for 5 s")]
    Busy,
    /// It is too large.
    #[error("is larger than {} MiB", MAX_LENGTH / 1024 / 1024)]
    TooLarge,
}

impl Watch {
    /// A watch of the file at `path`, which was not read yet.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), read_at: None, look: None, known: None, is_failing: false }
    }

    /// A watch of the file at `path`, which had these bytes.
    #[must_use]
    pub fn since(path: impl Into<PathBuf>, known: Vec<u8>) -> Self {
        Self { known: Some(known), ..Self::new(path) }
    }

    /// The bytes of the file when they are others than the last ones.
    ///
    /// # Errors
    /// The file cannot be read; once, until it is read again.
    pub async fn changed(&mut self) -> Result<Vec<u8>, ReadError> {
        loop {
            self.due().await;
            match self.read().await {
                Ok(bytes) => {
                    self.is_failing = false;
                    if !self.is_known(&bytes) {
                        self.known = Some(bytes.clone());
                        return Ok(bytes);
                    }
                }
                Err(error) if !std::mem::replace(&mut self.is_failing, true) => return Err(error),
                Err(_) => {}
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until the file is to be read.
    pub(super) async fn due(&self) {
        let Some(read_at) = self.read_at else { return };
        let latest = read_at + READ_INTERVAL;
        while Instant::now() < latest {
            sleep_until(latest.min(Instant::now() + LOOK_INTERVAL)).await;
            if look(&self.path).await != self.look {
                return;
            }
        }
    }

    /// The bytes of the file: those known, or others that two reads found.
    pub(super) async fn read(&mut self) -> Result<Vec<u8>, ReadError> {
        self.look = look(&self.path).await;
        let settled = self.settled().await;
        self.read_at = Some(Instant::now());
        settled
    }

    /// These bytes count from now on. `None`: any content of the file is new.
    pub(super) fn know(&mut self, bytes: Option<Vec<u8>>) {
        self.known = bytes;
        // The look-ups of a list may have taken longer than the interval.
        self.read_at = Some(Instant::now());
    }

    pub(super) fn is_known(&self, bytes: &[u8]) -> bool {
        self.known.as_deref() == Some(bytes)
    }

    async fn settled(&self) -> Result<Vec<u8>, ReadError> {
        let latest = Instant::now() + MAX_SETTLE_TIME;
        let mut before = bytes(&self.path).await?;
        while !self.is_known(&before) {
            sleep(SETTLE_TIME).await;
            let again = bytes(&self.path).await?;
            if again == before {
                break;
            }
            if Instant::now() >= latest {
                return Err(ReadError::Busy);
            }
            before = again;
        }
        Ok(before)
    }
}

async fn look(path: &Path) -> Option<Look> {
    let metadata = tokio::fs::metadata(path).await.ok()?;
    Some(Look {
        length: metadata.len(),
        modified: metadata.modified().ok(),
        #[cfg(unix)]
        inode: {
            use std::os::unix::fs::MetadataExt as _;
            (metadata.dev(), metadata.ino())
        },
    })
}

pub(super) async fn bytes(path: &Path) -> Result<Vec<u8>, ReadError> {
    let path = path.to_owned();
    tokio::task::spawn_blocking(move || read(&path)).await.expect("a read does not panic")
}

fn read(path: &Path) -> Result<Vec<u8>, ReadError> {
    let mut options = fs::OpenOptions::new();
    options.read(true);
    // A pipe would wait for its writer, perhaps for ever, and hold a thread of the runtime.
    #[cfg(unix)]
    options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    let file = options.open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(ReadError::NotRegular);
    }
    let mut bytes = Vec::with_capacity(metadata.len().min(MAX_LENGTH) as usize + 1);
    file.take(MAX_LENGTH + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_LENGTH { Err(ReadError::TooLarge) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn other_bytes_and_the_first_error_are_told_once() {
        let folder = std::env::temp_dir().join(format!("plimsoll-watch-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("plimsoll.toml");
        fs::write(&path, "one").unwrap();
        let mut watch = Watch::since(&path, b"one".to_vec());
        tokio::time::timeout(3 * SETTLE_TIME, watch.changed()).await.expect_err("nothing changed");
        fs::write(&path, "two").unwrap();
        assert_eq!(watch.changed().await.unwrap(), b"two");
        fs::remove_file(&path).unwrap();
        assert!(watch.changed().await.unwrap_err().to_string().starts_with("cannot be read: "));
        tokio::time::timeout(3 * LOOK_INTERVAL, watch.changed()).await.expect_err("told already");
        // The same bytes are no change. Others are, after an error too.
        fs::write(&path, "two").unwrap();
        tokio::time::timeout(3 * LOOK_INTERVAL, watch.changed()).await.expect_err("they are known");
        fs::write(&path, "three").unwrap();
        assert_eq!(watch.changed().await.unwrap(), b"three");
        fs::remove_dir_all(&folder).unwrap();
    }
}
