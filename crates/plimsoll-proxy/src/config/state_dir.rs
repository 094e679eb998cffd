//! The folder for state that outlives the process.

use std::io;
use std::path::{Path, PathBuf};

use plimsoll_config::{Flaw, Format, quoted, text};

use super::{Config, ConfigError, Problem};

/// The path of a folder: absolute, or as seen from the folder of the configuration.
pub(super) const FOLDER: Format<PathBuf> = Format {
    read: |v| match text(v, "a path", "the path of a folder, such as \"/var/lib/plimsoll\", or \"off\"")? {
        "" => Err(Flaw::new("is empty", "write the path of a folder, such as \"/var/lib/plimsoll\", or \"off\"")),
        path => Ok(PathBuf::from(path)),
    },
    print: |path| quoted(path.display()),
};

impl Config {
    /// The folder for state that outlives the process; `None` if none is kept.
    #[must_use]
    pub fn state_dir(&self) -> Option<PathBuf> {
        let path = self.raw.state_dir.as_deref()?;
        let path = self.files.folder.join(path);
        Some(std::path::absolute(&path).unwrap_or(path))
    }

    /// The folder for state cannot be used. As with the access log, `check` does not look: the folder
    /// is on another machine.
    pub(crate) fn unusable_state_dir(&self, folder: &Path, cause: &io::Error) -> ConfigError {
        let path = "state_dir".to_owned();
        let problem = Problem {
            position: self.places.find(&path),
            path,
            reason: format!("{} cannot be used: {cause}", folder.display()),
            help: "create the folder and let this user write there (StateDirectory=plimsoll in systemd), or remove \
                   the setting"
                .to_owned(),
        };
        ConfigError::new(&self.source_name, vec![problem])
    }
}
