//! The pid file: names the process that serves.
//!
//! It is written when the process serves, and appears as a whole: the text is written beside it and renamed. A
//! successor puts its own in its place before its predecessor stops accepting, so that the file names a serving process
//! at every moment. At the end a process removes the file if the file still names it.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};

/// A pid file of this process; the one beside it is removed when this is dropped before it was put in place.
#[derive(Debug)]
pub(super) struct PidFile {
    path: PathBuf,
    /// With its text, beside `path`.
    prepared: PathBuf,
}

impl PidFile {
    /// Writes the file beside its place: a folder that is missing or not writable is found before the proxy serves.
    pub(super) fn prepare(path: &Path) -> anyhow::Result<Self> {
        let failed =
            || format!("cannot write the pid file {}: choose a folder that this user may write", path.display());
        let path = std::path::absolute(path).with_context(failed)?;
        let name = path.file_name().ok_or_else(|| anyhow!("the pid file {} has no name", path.display()))?;
        let prepared = path.with_file_name(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
        // Left behind by a process of the same id that was killed here.
        let _ = fs::remove_file(&prepared);
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o644).open(&prepared).with_context(failed)?;
        let prepared = Self { path: path.clone(), prepared };
        writeln!(file, "{}", std::process::id()).with_context(failed)?;
        Ok(prepared)
    }

    /// Puts it in place.
    pub(super) fn publish(&self) -> anyhow::Result<()> {
        fs::rename(&self.prepared, &self.path)
            .with_context(|| format!("cannot write the pid file {}", self.path.display()))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.prepared);
        let own = format!("{}\n", std::process::id());
        if fs::read_to_string(&self.path).is_ok_and(|text| text == own)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(file = %self.path.display(), %error, "pid file not removed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("plimsoll-pid-file-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn names(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    #[test]
    fn pid_file_appears_when_published_and_goes_with_its_process() {
        let folder = folder("own");
        let path = folder.join("proxy.pid");
        let file = PidFile::prepare(&path).unwrap();
        assert!(!path.exists());
        file.publish().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{}\n", std::process::id()));
        assert_eq!(names(&folder), ["proxy.pid"]);
        drop(file);
        assert_eq!(names(&folder), [""; 0]);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn pid_file_of_a_successor_stays_when_its_predecessor_ends() {
        let folder = folder("successor");
        let path = folder.join("proxy.pid");
        let file = PidFile::prepare(&path).unwrap();
        file.publish().unwrap();
        fs::write(&path, "1\n").unwrap();
        drop(file);
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn pid_file_that_was_never_published_leaves_nothing_behind() {
        let folder = folder("never");
        drop(PidFile::prepare(&folder.join("proxy.pid")).unwrap());
        assert_eq!(names(&folder), [""; 0]);
        let missing = PidFile::prepare(&folder.join("missing/proxy.pid")).unwrap_err();
        assert!(format!("{missing:#}").starts_with("cannot write the pid file"), "{missing:#}");
        fs::remove_dir_all(folder).unwrap();
    }
}
