//! The mirrors of routes: which requests are copied, and what became of the copies. All threads and
//! listeners share the counts of a route.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use plimsoll_core::split::{Split, turn_of_copy};

use crate::config::{Config, Mirror, Route, RouteKey};
use crate::counts::{Counts, Label};

/// The fate of one request that a mirror could have copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Its copy was answered.
    Answered,
    /// Its copy got an error in place of an answer.
    Failed,
    /// Not copied: as many copies are in flight as may be.
    Busy,
    /// Not copied: its body is too long.
    TooLong,
    /// Not copied: its body broke off.
    Incomplete,
    /// Not copied: it asks for another protocol.
    Upgrade,
    /// Not copied: it is a copy itself.
    Copy,
}

impl Label for Fate {
    type Name = &'static str;

    const ALL: &'static [Self] =
        &[Self::Answered, Self::Failed, Self::Busy, Self::TooLong, Self::Incomplete, Self::Upgrade, Self::Copy];

    fn index(self) -> usize {
        self as usize
    }

    fn name(self) -> Self::Name {
        match self {
            Self::Answered => "answered",
            Self::Failed => "failed",
            Self::Busy => "busy",
            Self::TooLong => "body-too-long",
            Self::Incomplete => "body-incomplete",
            Self::Upgrade => "upgrade",
            Self::Copy => "copy",
        }
    }
}

/// The mirrors of all routes.
#[derive(Clone, Default)]
pub(crate) struct Mirrors(Arc<BTreeMap<RouteKey, NamedMirror>>);

/// A mirror, with the name of its route.
struct NamedMirror(Arc<str>, Arc<LiveMirror>);

impl Mirrors {
    /// Those of `config`. Counts and copies in flight of a route go on.
    pub(crate) fn updated(&self, config: &Config) -> Self {
        let mirrors = config.named_routes().filter_map(|route| {
            let settings = route.route.mirror.as_ref()?;
            let live = match self.of(&route) {
                Some(former) if former.settings == *settings => Arc::clone(former),
                former => Arc::new(LiveMirror::new(settings, former.map(|former| Arc::clone(&former.shared)))),
            };
            Some((route.key(), NamedMirror(Arc::clone(route.name), live)))
        });
        Self(Arc::new(mirrors.collect()))
    }

    /// The mirror of a route, if it has one.
    pub(crate) fn of(&self, route: &Route) -> Option<&Arc<LiveMirror>> {
        self.0.get(&route.key()).map(|NamedMirror(_, live)| live)
    }

    /// All of them, in the order of the names of their routes.
    pub(crate) fn views(&self) -> Vec<MirrorView> {
        let view = |NamedMirror(name, live): &NamedMirror| MirrorView {
            route: name.to_string(),
            cluster: live.settings.cluster.clone(),
            active: live.shared.active.load(Ordering::Relaxed),
            requests: live.shared.fates.counts().collect(),
        };
        let mut views: Vec<MirrorView> = self.0.values().map(view).collect();
        views.sort_by(|a, b| a.route.cmp(&b.route));
        views
    }
}

/// The state of a mirror.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MirrorView {
    /// The name of the route.
    pub route: String,
    /// The cluster that gets the copies.
    pub cluster: String,
    /// Copies in flight.
    pub active: u32,
    /// Copied requests, and those that were not copied, by result.
    pub requests: Vec<(&'static str, u64)>,
}

/// Counts that outlive a reload.
#[derive(Debug, Default)]
struct Shared {
    fates: Counts<Fate>,
    active: AtomicU32,
    turns: AtomicU64,
}

/// The mirror of one route.
pub(crate) struct LiveMirror {
    settings: Mirror,
    /// The copied part is its second side.
    split: Split,
    shared: Arc<Shared>,
}

impl LiveMirror {
    fn new(settings: &Mirror, shared: Option<Arc<Shared>>) -> Self {
        let share = settings.share.as_f64();
        let split = Split::new(&[1.0 - share, share]).expect("a share and the rest are one");
        Self { settings: settings.clone(), split, shared: shared.unwrap_or_default() }
    }

    pub(crate) fn settings(&self) -> &Mirror {
        &self.settings
    }

    /// Whether the next request of its methods is one of the share.
    pub(crate) fn takes_next(&self) -> bool {
        self.split.side(turn_of_copy(self.shared.turns.fetch_add(1, Ordering::Relaxed))) == 1
    }

    pub(crate) fn count(&self, fate: Fate) {
        self.shared.fates.count(fate);
    }

    /// Room for one more copy; `None` if as many are in flight as may be.
    pub(crate) fn slot(&self) -> Option<Slot> {
        let max: NonZeroU32 = self.settings.max_active;
        let slot = Slot(Arc::clone(&self.shared));
        // Counted first, so that two threads cannot take the last one; dropped, it is given back.
        (self.shared.active.fetch_add(1, Ordering::Relaxed) < max.get()).then_some(slot)
    }
}

/// The right of one copy to be in flight.
pub(crate) struct Slot(Arc<Shared>);

impl Slot {
    /// The end of the copy.
    pub(crate) fn end(self, fate: Fate) {
        self.0.fates.count(fate);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(more: &str) -> Config {
        let text = format!(
            "[[listeners]]\naddress = \":80\"\n[[routes]]\ncluster = \"a\"\nmirror = {{ cluster = \"b\"{more} }}\n\
             [clusters.a]\nbackends = [\"10.0.0.1:80\"]\n[clusters.b]\nbackends = [\"10.0.0.2:80\"]\n"
        );
        Config::parse("test.toml", &text).unwrap()
    }

    fn only(mirrors: &Mirrors) -> &Arc<LiveMirror> {
        &mirrors.0.values().next().unwrap().1
    }

    #[test]
    fn share_of_the_requests_is_copied() {
        let mirrors = Mirrors::default().updated(&config(", share = \"10%\""));
        let copied = (0..1000).filter(|_| only(&mirrors).takes_next()).count();
        assert!((99..=101).contains(&copied), "{copied}");
        let all = Mirrors::default().updated(&config(""));
        assert!((0..1000).all(|_| only(&all).takes_next()));
    }

    #[test]
    fn copies_in_flight_are_bounded_over_a_reload() {
        let mirrors = Mirrors::default().updated(&config(", max_active = 2"));
        let slots: Vec<Slot> = (0..2).map(|_| only(&mirrors).slot().unwrap()).collect();
        assert!(only(&mirrors).slot().is_none());
        let reloaded = mirrors.updated(&config(", max_active = 2, share = 0.5"));
        assert!(only(&reloaded).slot().is_none());
        slots.into_iter().for_each(|slot| slot.end(Fate::Answered));
        assert!(only(&reloaded).slot().is_some());
        assert_eq!(reloaded.views()[0].active, 0);
        assert_eq!(reloaded.views()[0].requests[0], ("answered", 2));
    }
}
