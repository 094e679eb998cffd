//! The source of a cluster's backends, from its settings.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use plimsoll::client::Cluster;
use plimsoll::discover::{Discover, Endpoint, Fixed, FollowConfig, Numbered};
use plimsoll_discover::dns::{self, Dns, Named, Srv};
use plimsoll_discover::file::File;

use crate::config::{Config, Followed, Names, Origin};

/// The source that a cluster follows, and the backends that are members always.
#[derive(PartialEq)]
pub(super) struct Source {
    followed: Option<Followed>,
    fixed: Vec<Endpoint>,
    /// The same by name, if some are names.
    named: Vec<Named>,
    /// The DNS server to ask for the names. `None`: those of the system.
    resolver: Option<SocketAddr>,
    /// The reason why some of the fixed backends have no address.
    incomplete: Option<String>,
}

impl Source {
    pub(super) fn new(
        config: &Config,
        cluster: &str,
        fixed: Vec<Endpoint>,
        named: Vec<Named>,
        incomplete: Option<String>,
    ) -> Self {
        Self { followed: config.followed(cluster), fixed, named, resolver: config.resolver(cluster), incomplete }
    }

    /// Whether there are only the backends that are members always.
    pub(super) fn is_fixed(&self) -> bool {
        self.followed.is_none()
    }

    /// The description of the source; `None` if there are only the backends that are members always.
    pub(super) fn origin(&self) -> Option<String> {
        self.followed.as_ref().map(label)
    }

    /// Has `cluster` follow it, in place of another unless the cluster is new. A new cluster begins with
    /// the `saved` list if it gets no answer. The addresses of names are kept in `names`.
    pub(super) fn put_in_force(
        &self,
        cluster: &Cluster,
        is_new: bool,
        saved: Vec<Endpoint>,
        names: &Arc<Mutex<Names>>,
    ) {
        match self.names(names) {
            Some(list) => self.follow(cluster, is_new, saved, list),
            None => self.follow(cluster, is_new, saved, Fixed::new(self.fixed.clone())),
        }
    }

    /// Has `cluster` follow it, with these backends that are members always.
    fn follow(&self, cluster: &Cluster, is_new: bool, saved: Vec<Endpoint>, fixed: impl Discover + 'static) {
        let Some(Followed { origin, hold, on_empty, ordinals }) = &self.followed else {
            return cluster.follow(fixed);
        };
        let mut config = FollowConfig::default().fixed(fixed);
        config.hold = *hold;
        config.on_empty = *on_empty;
        config.saved = saved;
        give(origin, *ordinals, Follow { cluster, config, is_new });
    }
}

impl Source {
    /// The names as a source that asks again. `None` without names.
    fn names(&self, names: &Arc<Mutex<Names>>) -> Option<dns::Names> {
        if self.named.is_empty() {
            return None;
        }
        let (names, resolver) = (Arc::clone(names), self.resolver);
        let list = dns::Names::new(self.named.clone());
        let list = if let Some(server) = resolver { list.at(server) } else { list };
        let list = list.on_found(move |name, found| {
            let host = name.rsplit_once(':').map_or(name, |(host, _)| host);
            let answers = found
                .each_ref()
                .map(|answer| answer.iter().filter_map(|found| Some((found.ip()?, 0).into())).collect());
            names.lock().insert((host.to_owned(), resolver), answers);
        });
        Some(match &self.incomplete {
            Some(problem) => list.incomplete(problem.as_str()),
            None => list,
        })
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
        Origin::Eds(service, tls) => numbered(service.source(tls.as_ref()), ordinals, to),
        Origin::Etcd(registered) => {
            let source = registered.source();
            numbered(if ordinals { source.with_slots() } else { source }, ordinals, to)
        }
    }
}

fn numbered<U: Use>(source: impl Discover + 'static, ordinals: bool, to: U) -> U::Outcome {
    if ordinals { to.with(Numbered(source)) } else { to.with(source) }
}

/// The source in a few words, the same for the same source: a saved list counts for its source only.
pub(super) fn label(followed: &Followed) -> String {
    give(&followed.origin, followed.ordinals, Label)
}

struct Label;

impl Use for Label {
    type Outcome = String;

    fn with(self, source: impl Discover + 'static) -> String {
        format!("{} {}", source.kind(), source.description())
    }
}

/// A cluster that is not new goes on with its known backends.
struct Follow<'a, F> {
    cluster: &'a Cluster,
    config: FollowConfig<F>,
    is_new: bool,
}

impl<F: Discover + 'static> Use for Follow<'_, F> {
    type Outcome = ();

    fn with(self, source: impl Discover + 'static) {
        match self.is_new {
            true => self.cluster.follow_with(source, self.config),
            false => self.cluster.follow_on(source, self.config),
        }
    }
}
