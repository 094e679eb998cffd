//! The source of a cluster's backends, from its settings.

use plimsoll::client::Cluster;
use plimsoll::discover::{Discover, Endpoint, Fixed, FollowConfig, Numbered};
use plimsoll_discover::dns::{Dns, Srv};
use plimsoll_discover::file::File;

use crate::config::{Config, Followed, Origin};

/// The source that a cluster follows, and the backends that are members always.
#[derive(PartialEq)]
pub(super) struct Source {
    followed: Option<Followed>,
    fixed: Vec<Endpoint>,
    /// The reason why some of the fixed backends have no address.
    incomplete: Option<String>,
}

impl Source {
    pub(super) fn new(config: &Config, cluster: &str, fixed: Vec<Endpoint>, incomplete: Option<String>) -> Self {
        Self { followed: config.followed(cluster), fixed, incomplete }
    }

    /// Whether there are only the backends that are members always.
    pub(super) fn is_fixed(&self) -> bool {
        self.followed.is_none()
    }

    /// The description of the source; `None` if there are only the backends that are members always.
    pub(super) fn origin(&self) -> Option<String> {
        Some(self.followed.as_ref()?.origin.to_string())
    }

    /// Has `cluster` follow it, in place of another unless the cluster is new. A new cluster begins with
    /// the `saved` list if it gets no answer.
    pub(super) fn put_in_force(&self, cluster: &Cluster, is_new: bool, saved: Vec<Endpoint>) {
        let fixed = self.fixed.clone();
        let Some(Followed { origin, hold, on_empty, ordinals }) = &self.followed else {
            let list = Fixed::new(fixed);
            return match &self.incomplete {
                Some(problem) => cluster.follow(list.incomplete(problem)),
                None => cluster.follow(list),
            };
        };
        if let Some(problem) = &self.incomplete {
            // The state of a cluster's source is that of the one it follows.
            tracing::warn!(cluster = cluster.name(), problem, "static backend left out: its name was not looked up");
        }
        let config = FollowConfig { hold: *hold, on_empty: *on_empty, fixed, saved };
        give(origin, *ordinals, Follow { cluster, config, is_new });
    }
}

/// The use of a source. Sources are of several types, and each use is the same for all.
pub(super) trait Use {
    type Outcome;

    fn with(self, source: impl Discover + 'static) -> Self::Outcome;
}

/// Makes the source of `origin` and has it used.
pub(super) fn give<U: Use>(origin: &Origin, ordinals: bool, to: U) -> U::Outcome {
    match origin {
        Origin::File(path) => numbered(File::new(path), ordinals, to),
        Origin::Dns(name, server) => {
            let source = Dns::new(name.as_str()).expect("the configuration has checked it");
            numbered(if let Some(server) = server { source.at(*server) } else { source }, ordinals, to)
        }
        Origin::Srv(name, server) => {
            let source = Srv::new(name.as_str()).expect("the configuration has checked it");
            numbered(if let Some(server) = server { source.at(*server) } else { source }, ordinals, to)
        }
        Origin::Kubernetes(service) => numbered(service.source(), ordinals, to),
    }
}

fn numbered<U: Use>(source: impl Discover + 'static, ordinals: bool, to: U) -> U::Outcome {
    if ordinals { to.with(Numbered(source)) } else { to.with(source) }
}

/// A cluster that is not new goes on with its known backends.
struct Follow<'a> {
    cluster: &'a Cluster,
    config: FollowConfig,
    is_new: bool,
}

impl Use for Follow<'_> {
    type Outcome = ();

    fn with(self, source: impl Discover + 'static) {
        match self.is_new {
            true => self.cluster.follow_with(source, self.config),
            false => self.cluster.follow_on(source, self.config),
        }
    }
}
