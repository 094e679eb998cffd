//! The source of a cluster's backends that change at run time.
//!
//! The rules about lists and errors are the core's (`plimsoll_core::discover`); here are only their
//! settings. A problem of the source, such as a file that is not there yet, is none of the
//! configuration: the proxy starts, and the cluster waits for its first list.

use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll::discover::OnEmpty;
use plimsoll_config::{Choice, Effect, table};
use plimsoll_core::discover::MergeConfig;

use super::tls::FilePath;

const ON_EMPTY: Choice<OnEmpty> =
    Choice { noun: "a meaning of an empty list", names: &[("keep", OnEmpty::Keep), ("obey", OnEmpty::Obey)] };

const FOLLOWED: Effect = Effect::Applied(
    "the source is followed anew; backends stay until its first list, and those in it keep their state",
);

table! {
    /// The source of a cluster's backends.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct Discovery {
        /// A watched file with a list of backends.
        pub file: FilePath = FilePath::default(), required, FOLLOWED;
        /// How long missing backends stay after a sudden loss of more than half of them.
        pub hold: Option<Duration> = Some(MergeConfig::DEFAULT_HOLD), switch, FOLLOWED;
        /// The meaning of an empty list.
        pub on_empty: OnEmpty = OnEmpty::Keep, value_as(ON_EMPTY), FOLLOWED;
    }
    NEEDS = "file = \"web.json\"";
}

/// A source to follow, with everything that decides on its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Followed {
    /// The watched file.
    pub(crate) file: PathBuf,
    pub(crate) hold: Duration,
    pub(crate) on_empty: OnEmpty,
}

impl Discovery {
    /// The source, for a configuration in `folder`.
    pub(super) fn followed(&self, folder: &Path) -> Followed {
        Followed { file: self.file.within(folder), hold: self.hold.unwrap_or(Duration::ZERO), on_empty: self.on_empty }
    }
}
