//! `--watch`: the config file is read again when it changes.
//!
//! The file is watched like a list of backends ([`FileWatch`]), by a task of its own: the control thread
//! waits for much else, and each event would begin the wait for two equal reads anew.

use std::path::{Path, PathBuf};

use plimsoll_proxy::FileWatch;
use tokio::sync::mpsc;

/// A watched config file.
#[derive(Debug)]
pub(super) struct ConfigWatch {
    file: PathBuf,
    changes: mpsc::Receiver<Vec<u8>>,
    /// The bytes of the config that was loaded last, or refused.
    loaded: Vec<u8>,
}

impl ConfigWatch {
    /// Watches `file`, which had the bytes `loaded` before the config in force was read from it. Needs a runtime.
    pub(super) fn start(file: &Path, loaded: Vec<u8>) -> Self {
        let (sender, changes) = mpsc::channel(1);
        let mut watch = FileWatch::since(file, loaded.clone());
        let path = file.display().to_string();
        tokio::spawn(async move {
            loop {
                match watch.changed().await {
                    Ok(bytes) => {
                        if sender.send(bytes).await.is_err() {
                            return;
                        }
                    }
                    Err(error) => {
                        tracing::warn!(file = path, %error, "config file not read, nothing has changed");
                    }
                }
            }
        });
        Self { file: file.to_owned(), changes, loaded }
    }

    /// Waits until the file has other bytes than those loaded last.
    pub(super) async fn changed(&mut self) {
        while let Some(bytes) = self.changes.recv().await {
            if bytes != self.loaded {
                return;
            }
        }
        std::future::pending().await
    }

    /// A reload is about to read the file, by a change of it or by a command.
    pub(super) fn before_reload(&mut self) {
        // An unreadable file is the reload's problem.
        self.loaded = std::fs::read(&self.file).unwrap_or_default();
    }
}

/// Waits until a watched config changes; never without one.
pub(super) async fn changed(watch: &mut Option<ConfigWatch>) {
    match watch {
        Some(watch) => watch.changed().await,
        None => std::future::pending().await,
    }
}
