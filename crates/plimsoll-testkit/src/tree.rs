//! Folders for tests of readers of files.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A folder tree that is removed at the end.
pub struct Tree(pub PathBuf);

impl Tree {
    /// A tree with these files: path and text.
    ///
    /// # Panics
    /// If a file cannot be written.
    #[must_use]
    pub fn new(files: &[(&str, &str)]) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let tree = Self(std::env::temp_dir().join(format!("plimsoll-tree-{}-{number}", std::process::id())));
        fs::create_dir_all(&tree.0).expect("the folder for temporary files is writable");
        files.iter().for_each(|(path, text)| tree.write(path, text));
        tree
    }

    /// Writes one file of it.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("the tree is writable");
        fs::write(path, text).expect("the tree is writable");
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
