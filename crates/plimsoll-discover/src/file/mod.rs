//! A watched file with a list of backends.
//!
//! The file is looked at once a second, by its metadata, and read when these changed, and every 5 s in
//! any case. Looking costs one system call. A watch by the kernel (inotify) costs nothing while
//! nothing happens, but misses network file systems, bind mounts, and a file whose folder is replaced
//! by a symbolic link, as Kubernetes does with a ConfigMap; so it would need this beside it.
//!
//! A changed file counts when two reads, 200 ms apart, find the same bytes: a writer may be half
//! through. Where it is weak: a writer that pauses for longer. Write another file and rename it.

mod list;

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use plimsoll::discover::{Answer, Discover, Endpoint};
use tokio::time::{Instant, sleep, sleep_until};

pub use self::list::ListError;

/// Time between two looks at the metadata: a change is seen within it.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two reads of a file whose metadata stay the same: some file systems have a resolution
/// of seconds, and tools restore the time of modification. Names in it are looked up again as well.
const READ_INTERVAL: Duration = Duration::from_secs(5);
/// The time for which a changed file must stay the same.
const SETTLE_TIME: Duration = Duration::from_millis(200);
/// Largest file, in bytes: a hundred thousand backends.
const MAX_LENGTH: u64 = 16 * 1024 * 1024;

/// A source that reads a file. See the [module](self).
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    /// When it was read last.
    read_at: Option<Instant>,
    look: Option<Look>,
    last: Option<Vec<Endpoint>>,
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
    #[error("is larger than {} MiB", MAX_LENGTH / 1024 / 1024)]
    TooLarge,
    #[error(transparent)]
    List(#[from] ListError),
}

impl File {
    /// A source for the file at `path`: TOML if its name ends in `.toml`, else JSON.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), read_at: None, look: None, last: None }
    }

    /// The present list of the file at `path`.
    ///
    /// # Errors
    /// The file cannot be read, is no list, or has a name that cannot be resolved.
    pub async fn read(path: &Path) -> Result<Vec<Endpoint>, FileError> {
        let parsed = async { Ok(list::endpoints(path, &bytes(path).await?).await?) };
        parsed.await.map_err(|problem| FileError { path: path.to_owned(), problem })
    }

    /// Waits until the file is to be read.
    async fn due(&mut self) {
        let Some(read_at) = self.read_at else { return };
        let latest = read_at + READ_INTERVAL;
        while Instant::now() < latest {
            sleep_until(latest.min(Instant::now() + LOOK_INTERVAL)).await;
            let look = look(&self.path).await;
            if look != self.look {
                self.settle(look).await;
                return;
            }
        }
    }

    /// Waits until the changed file stays the same, at most until the next read is due anyway.
    async fn settle(&mut self, mut before: Option<Look>) {
        let latest = Instant::now() + READ_INTERVAL;
        while Instant::now() < latest {
            sleep(SETTLE_TIME).await;
            let now = look(&self.path).await;
            if now == before {
                return;
            }
            before = now;
        }
    }
}

impl Discover for File {
    async fn next(&mut self) -> Option<Answer> {
        loop {
            self.due().await;
            self.read_at = Some(Instant::now());
            self.look = look(&self.path).await;
            match Self::read(&self.path).await {
                Ok(list) if self.last.as_ref() == Some(&list) => {}
                Ok(list) => {
                    self.last = Some(list.clone());
                    return Some(Ok(list));
                }
                Err(error) => {
                    // The same list after an error is an answer again.
                    self.last = None;
                    return Some(Err(error.into()));
                }
            }
        }
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
