//! The source files of the workspace.

use std::fs;
use std::path::{Path, PathBuf};

/// The folder of the workspace.
pub(crate) fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/plimsoll-testkit is two deep").to_owned()
}

/// All Rust files below a folder, at least one.
pub(crate) fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    add_rust_files(dir, &mut files);
    assert!(!files.is_empty(), "no source in {}", dir.display());
    files
}

/// A folder may have none, such as one of pages or of snapshots.
fn add_rust_files(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a folder of source") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            add_rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}
