//! A watched file with a list of backends.
//!
//! [`Watch`] decides which bytes count. Names in the list are looked up with each read, every 5 s.

mod list;
mod watch;

use std::path::{Path, PathBuf};

use plimsoll::discover::{Answer, Discover, Endpoint};

use self::list::List;
pub use self::list::ListError;
pub use self::watch::{ReadError, Watch};

/// A source that reads a file. See the [module](self).
#[derive(Debug)]
pub struct File {
    watch: Watch,
    /// The list of the bytes that the watch knows.
    last: Option<List>,
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
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    List(#[from] ListError),
}

impl File {
    /// A source for the file at `path`: TOML if its name ends in `.toml`, else JSON.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { watch: Watch::new(path), last: None }
    }

    /// The present list of the file at `path`, read once.
    ///
    /// # Errors
    /// The file cannot be read, is no list, or has a name that cannot be resolved.
    pub async fn read(path: &Path) -> Result<Vec<Endpoint>, FileError> {
        let read = async { Ok(list::parse(path, &watch::bytes(path).await?).await?.endpoints) };
        read.await.map_err(|problem| FileError { path: path.to_owned(), problem })
    }

    /// The list, if it differs from the last one.
    async fn changed(&mut self) -> Result<Option<Vec<Endpoint>>, Problem> {
        let bytes = self.watch.read().await?;
        if self.watch.is_known(&bytes) && self.last.as_ref().is_some_and(|list| !list.has_names) {
            return Ok(None);
        }
        let list = list::parse(self.watch.path(), &bytes).await?;
        let is_new = self.last.as_ref().is_none_or(|last| last.endpoints != list.endpoints);
        let endpoints = is_new.then(|| list.endpoints.clone());
        self.watch.know(Some(bytes));
        self.last = Some(list);
        Ok(endpoints)
    }
}

impl Discover for File {
    async fn next(&mut self) -> Option<Answer> {
        loop {
            self.watch.due().await;
            match self.changed().await {
                Ok(None) => {}
                Ok(Some(list)) => return Some(Ok(list)),
                Err(problem) => {
                    // The same list after an error is an answer again.
                    self.last = None;
                    self.watch.know(None);
                    return Some(Err(FileError { path: self.watch.path().to_owned(), problem }.into()));
                }
            }
        }
    }

    fn kind(&self) -> &'static str {
        "file"
    }

    fn description(&self) -> String {
        let path = self.watch.path();
        std::path::absolute(path).as_deref().unwrap_or(path).display().to_string()
    }
}
