//! The access log: whether it is on, its place and its form.

use std::io;
use std::path::{Path, PathBuf};

use plimsoll_config::{Choice, Flaw, quoted, table, text, values};
use plimsoll_core::Ratio;

use super::{Config, ConfigError, Problem};

const STDOUT: &str = "stdout";
const STDERR: &str = "stderr";

table! {
    /// The access log.
    #[derive(Clone, Debug, PartialEq)]
    #[non_exhaustive]
    pub struct AccessLog {
        /// Where lines go; `None` for no log. Off by default, since a line costs more than the request
        /// itself may.
        pub path: Option<LogPath> = None, switch;
        /// How an entry is written.
        pub format: LogFormat = LogFormat::Json, value_as(FORMAT);
        /// The share of the requests that are logged.
        pub sample: Ratio = Ratio::ONE, value;
    }
    OFF = "path = \"off\"";
}

impl Config {
    /// That its access log cannot be opened, at the place in the file that names it. Not found by
    /// `check`, which must give the same answer on a laptop as on the machine that the file is for.
    pub(crate) fn unusable_access_log(&self, cause: &io::Error) -> ConfigError {
        let path = "access_log.path".to_owned();
        let named = self.access_log().path.as_ref().map_or(Path::new(""), LogPath::as_path);
        let problem = Problem {
            position: self.places.find(&path),
            path,
            reason: format!("{} cannot be opened: {cause}", named.display()),
            help: "let this user write there, or choose another path".to_owned(),
        };
        ConfigError::new(&self.source_name, vec![problem])
    }
}

/// Where the lines of the access log go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogPath {
    /// To the process's standard output.
    Stdout,
    /// To where the process's own log goes.
    Stderr,
    /// To the end of this file.
    File(PathBuf),
}

/// How an entry of the access log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// One line for a person.
    Human,
    /// The format "combined" of Apache httpd and nginx, for their tools.
    Combined,
}

const FORMAT: Choice<LogFormat> = Choice {
    noun: "a format of the access log",
    names: &[("json", LogFormat::Json), ("human", LogFormat::Human), ("combined", LogFormat::Combined)],
};

impl LogPath {
    /// As the file names it.
    pub(crate) fn as_path(&self) -> &Path {
        match self {
            Self::Stdout => Path::new(STDOUT),
            Self::Stderr => Path::new(STDERR),
            Self::File(path) => path,
        }
    }

    fn parse(path: &str) -> Result<Self, Flaw> {
        match path {
            STDOUT => Ok(Self::Stdout),
            STDERR => Ok(Self::Stderr),
            path if path.starts_with('/') => Ok(Self::File(path.into())),
            // A relative path depends on the starter of the process.
            path => Err(Flaw::new(
                format!("\"{path}\" is not a place for a log"),
                "write \"stdout\", \"stderr\", a path that begins with \"/\", or \"off\"",
            )),
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Stdout => STDOUT.to_owned(),
            Self::Stderr => STDERR.to_owned(),
            Self::File(path) => path.display().to_string(),
        }
    }
}

values! {
    LogPath: |v| LogPath::parse(text(v, "a path", "\"stdout\", \"stderr\", a file's path, or \"off\"")?), |path| quoted(path.name());
}
