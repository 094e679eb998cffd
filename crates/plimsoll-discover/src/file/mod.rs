//! A watched file with a list of backends.
//!
//! The file is looked at once a second, by its metadata, and read when these changed, and every 5 s in
//! any case. Looking costs one system call. A watch by the kernel (inotify) costs nothing while
//! nothing happens, but misses network file systems, bind mounts, and a file whose folder is replaced
//! by a symbolic link, as Kubernetes does with a ConfigMap; so it would need this beside it.
//!
//! Changed bytes count when a second read, 200 ms later, finds the same: a writer may be half through.
//! Where it is weak: a writer that pauses for longer. Write another file and rename it.

mod list;

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use plimsoll::discover::{Answer, Discover, Endpoint};
use tokio::time::{Instant, sleep, sleep_until};

use self::list::List;
pub use self::list::ListError;

/// Time between two looks at the metadata: a change is seen within it.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two reads of a file whose metadata stay the same: some file systems have a resolution
/// of seconds, and tools restore the time of modification. Names in it are looked up again as well.
const READ_INTERVAL: Duration = Duration::from_secs(5);
/// Time between the two reads that must find the same bytes.
const SETTLE_TIME: Duration = Duration::from_millis(200);
/// Time after which a file that changes all the while is an error.
const MAX_SETTLE_TIME: Duration = Duration::from_secs(5);
/// Largest file, in bytes: a hundred thousand backends.
const MAX_LENGTH: u64 = 16 * 1024 * 1024;

/// A source that reads a file. See the [module](self).
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    /// When it was read last.
    read_at: Option<Instant>,
    look: Option<Look>,
    /// The bytes of the last list.
    bytes: Vec<u8>,
    last: Option<List>,
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

/// The reason why a file has no list.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct FileError {
    path: PathBuf,
    problem: Problem,
}

#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    #[error("is not a regular file")]
    NotRegular,
    #[error("is still being written: it changed all the while for 5 s")]
    Busy,
    #[error("is larger than {} MiB", MAX_LENGTH / 1024 / 1024)]
    TooLarge,
    #[error(transparent)]
    List(#[from] ListError),
}

impl File {
    /// A source for the file at `path`: TOML if its name ends in `.toml`, else JSON.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), read_at: None, look: None, bytes: Vec::new(), last: None }
    }

    /// The present list of the file at `path`, read once.
    ///
    /// # Errors
    /// The file cannot be read, is no list, or has a name that cannot be resolved.
    pub async fn read(path: &Path) -> Result<Vec<Endpoint>, FileError> {
        let read = async { Ok(list::parse(path, &bytes(path).await?).await?.endpoints) };
        read.await.map_err(|problem| FileError { path: path.to_owned(), problem })
    }

    /// Waits until the file is to be read.
    async fn due(&self) {
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
    async fn settled(&self) -> Result<Vec<u8>, Problem> {
        let latest = Instant::now() + MAX_SETTLE_TIME;
        let mut before = bytes(&self.path).await?;
        while self.last.is_none() || before != self.bytes {
            sleep(SETTLE_TIME).await;
            let again = bytes(&self.path).await?;
            if again == before {
                break;
            }
            if Instant::now() >= latest {
                return Err(Problem::Busy);
            }
            before = again;
        }
        Ok(before)
    }

    /// The list, if it differs from the last one.
    async fn changed(&mut self) -> Result<Option<Vec<Endpoint>>, Problem> {
        let bytes = self.settled().await?;
        if bytes == self.bytes && self.last.as_ref().is_some_and(|list| !list.has_names) {
            return Ok(None);
        }
        let list = list::parse(&self.path, &bytes).await?;
        let is_new = self.last.as_ref().is_none_or(|last| last.endpoints != list.endpoints);
        let endpoints = is_new.then(|| list.endpoints.clone());
        (self.bytes, self.last) = (bytes, Some(list));
        Ok(endpoints)
    }
}

impl Discover for File {
    async fn next(&mut self) -> Option<Answer> {
        loop {
            self.due().await;
            self.look = look(&self.path).await;
            let changed = self.changed().await;
            self.read_at = Some(Instant::now());
            match changed {
                Ok(None) => {}
                Ok(Some(list)) => return Some(Ok(list)),
                Err(problem) => {
                    // The same list after an error is an answer again.
                    self.last = None;
                    return Some(Err(FileError { path: self.path.clone(), problem }.into()));
                }
            }
        }
    }

    fn kind(&self) -> &'static str {
        "file"
    }

    fn description(&self) -> String {
        std::path::absolute(&self.path).as_ref().unwrap_or(&self.path).display().to_string()
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

async fn bytes(path: &Path) -> Result<Vec<u8>, Problem> {
    use tokio::io::AsyncReadExt as _;
    // To open a pipe would wait for its writer, perhaps for ever.
    if !tokio::fs::metadata(path).await?.is_file() {
        return Err(Problem::NotRegular);
    }
    let mut bytes = Vec::new();
    tokio::fs::File::open(path).await?.take(MAX_LENGTH + 1).read_to_end(&mut bytes).await?;
    if bytes.len() as u64 > MAX_LENGTH { Err(Problem::TooLarge) } else { Ok(bytes) }
}
