//! The splits of routes: counts and comparisons, which all threads and listeners share.
//!
//! The core decides on the side of a request ([`plimsoll_core::split`]) and on the verdict
//! ([`plimsoll_core::canary`]). The first side of a route is the main version; each other side has a
//! comparison with it. A reload that leaves the sides, their weights and the key alone keeps the
//! comparison. Another weight begins a new one: with it, the two sides would have other times of
//! the day, and the requests before would count at the wrong share. Counts go on either way.

mod fact;
mod words;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use plimsoll_core::Timestamp;
use plimsoll_core::canary::{Comparison, FinishedRequest, Margins, Report, RequestEnd, Side, Verdict};
use plimsoll_core::split::{Split, turn};

pub(crate) use self::fact::Fact;
pub use self::words::{difference, worst};
use crate::config::{Config, Leads, NamedRoute, Route, RouteKey, SplitKey};

/// The splits of all routes.
#[derive(Clone, Default)]
pub(crate) struct Splits(Arc<BTreeMap<RouteKey, Arc<LiveSplit>>>);

impl Splits {
    /// Those of `config`; what did not change goes on.
    pub(crate) fn updated(&self, config: &Config) -> Self {
        let splits = config.named_routes().filter_map(|route| {
            let key = route.key();
            let wanted = LiveSplit::new(route)?;
            let live = match self.0.get(&key) {
                Some(former) if former.is_same(&wanted) => {
                    former.route.lock().clone_from(route.name);
                    former.set_margins(route.margins.unwrap_or_default().of_core());
                    Arc::clone(former)
                }
                Some(former) => Arc::new(wanted.counting_on(former)),
                None => Arc::new(wanted),
            };
            Some((key, live))
        });
        Self(Arc::new(splits.collect()))
    }

    /// The split of a route, if it has one.
    pub(crate) fn of(&self, route: &Route) -> Option<&Arc<LiveSplit>> {
        self.0.get(&route.key())
    }

    /// All of them, in the order of the names of their routes.
    pub(crate) fn views(&self) -> Vec<SplitView> {
        let mut views: Vec<SplitView> = self.0.values().map(|split| split.view()).collect();
        views.sort_by(|a, b| a.route.cmp(&b.route));
        views
    }
}

/// Counts of one side since the process began.
#[derive(Debug, Default)]
struct SideCounts {
    requests: AtomicU64,
    failures: AtomicU64,
    fallbacks: AtomicU64,
}

/// The split of one route.
pub(crate) struct LiveSplit {
    /// The name of the route, which a reload may change.
    route: Mutex<Arc<str>>,
    by: Option<SplitKey>,
    clusters: Vec<Arc<str>>,
    weights: Vec<f64>,
    split: Split,
    counts: Vec<Arc<SideCounts>>,
    /// Number of requests that took turns.
    turns: AtomicU64,
    began: Instant,
    since: SystemTime,
    /// Of each side but the first.
    comparisons: Vec<Mutex<Comparison>>,
}

impl LiveSplit {
    /// `None` for a route without a split.
    fn new(route: NamedRoute<'_>) -> Option<Self> {
        let Leads::Split(sides) = route.leads() else { return None };
        let weights: Vec<f64> = sides.iter().map(|side| side.weight).collect();
        let margins = route.margins.unwrap_or_default().of_core();
        let compare = |_| Mutex::new(Comparison::new(Timestamp::ZERO, margins));
        Some(Self {
            route: Mutex::new(Arc::clone(route.name)),
            by: route.split_by.clone(),
            clusters: sides.iter().map(|side| side.cluster.as_str().into()).collect(),
            split: Split::new(&weights)?.named(sides.iter().map(|side| side.cluster.as_str())),
            weights,
            counts: sides.iter().map(|_| Arc::default()).collect(),
            turns: AtomicU64::new(0),
            began: Instant::now(),
            since: SystemTime::now(),
            comparisons: sides[1..].iter().map(compare).collect(),
        })
    }

    /// The number of its sides.
    pub(crate) fn sides(&self) -> usize {
        self.clusters.len()
    }

    fn is_same(&self, other: &Self) -> bool {
        (&self.by, &self.clusters, &self.weights) == (&other.by, &other.clusters, &other.weights)
    }

    /// The same, with the counts of the sides that it has in common with `former`.
    fn counting_on(mut self, former: &Self) -> Self {
        for (cluster, counts) in self.clusters.iter().zip(&mut self.counts) {
            if let Some(place) = former.clusters.iter().position(|known| known == cluster) {
                *counts = Arc::clone(&former.counts[place]);
            }
        }
        self
    }

    fn set_margins(&self, margins: Margins) {
        self.comparisons.iter().for_each(|comparison| comparison.lock().set_margins(margins));
    }

    /// The key of users, if users stay on their side.
    pub(crate) fn by(&self) -> Option<&SplitKey> {
        self.by.as_ref()
    }

    /// The side of a request with this key; without a key, the next one in turn.
    ///
    /// If that side can serve nothing, it is another one that can. The request is a failure of its own
    /// side all the same, unless an operator drained it: that says nothing of the version.
    pub(crate) fn side(
        &self,
        key: Option<&[u8]>,
        can_serve: impl Fn(usize) -> bool,
        is_drained: impl Fn(usize) -> bool,
    ) -> usize {
        let side = match key {
            Some(key) => self.split.by_key(key),
            None => self.split.side(turn(self.turns.fetch_add(1, Ordering::Relaxed))),
        };
        let taken = self.split.fallback(side, can_serve);
        if taken != side {
            self.counts[side].fallbacks.fetch_add(1, Ordering::Relaxed);
            if !is_drained(side) {
                self.compare(side, &FinishedRequest { end: RequestEnd::Failed, latency: Duration::ZERO, cost: None });
            }
        }
        taken
    }

    /// A request of this side has ended.
    fn record(&self, side: usize, request: &FinishedRequest) {
        if request.end != RequestEnd::Abandoned {
            self.counts[side].requests.fetch_add(1, Ordering::Relaxed);
        }
        if request.end == RequestEnd::Failed {
            self.counts[side].failures.fetch_add(1, Ordering::Relaxed);
        }
        self.compare(side, request);
    }

    fn compare(&self, side: usize, request: &FinishedRequest) {
        let now = Timestamp::from_origin(self.began.elapsed());
        for (i, comparison) in self.comparisons.iter().enumerate() {
            let part = match side {
                0 => Side::Main,
                side if side == i + 1 => Side::Canary,
                _ => continue,
            };
            // The lock is released before the log is written.
            let news = {
                let mut comparison = comparison.lock();
                comparison.record(now, part, request).map(|verdict| (verdict, comparison.report()))
            };
            if let Some((verdict, report)) = news {
                self.log(&self.clusters[i + 1], verdict, &report);
            }
        }
    }

    fn log(&self, canary: &str, verdict: Verdict, report: &Report) {
        let (route, main) = (&*Arc::clone(&self.route.lock()), &*self.clusters[0]);
        let requests = report.requests[0] + report.requests[1];
        let difference = worst(report);
        match verdict {
            Verdict::Undecided => {}
            Verdict::Worse => {
                tracing::warn!(route, main, canary, requests, difference, "canary is worse than the main version");
            }
            Verdict::NoDifference => {
                tracing::info!(
                    route,
                    main,
                    canary,
                    requests,
                    difference,
                    "canary does not differ from the main version"
                );
            }
            Verdict::Better => {
                tracing::info!(route, main, canary, requests, difference, "canary is better than the main version");
            }
        }
    }

    fn view(&self) -> SplitView {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let sides = self.clusters.iter().zip(&self.counts).zip(&self.weights).zip(self.split.shares());
        SplitView {
            route: self.route.lock().to_string(),
            by: self.by.as_ref().map(ToString::to_string),
            since: self.since,
            sides: sides
                .map(|(((cluster, counts), weight), share)| SideView {
                    cluster: cluster.to_string(),
                    weight: *weight,
                    share: *share,
                    requests: count(&counts.requests),
                    failures: count(&counts.failures),
                    fallbacks: count(&counts.fallbacks),
                    // The proxy knows the clusters.
                    is_drained: false,
                })
                .collect(),
            comparisons: self.comparisons.iter().map(|comparison| comparison.lock().report()).collect(),
        }
    }
}

/// The state of a split.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SplitView {
    /// The name of the route.
    pub route: String,
    /// What keeps users on one side; `None` for nothing.
    pub by: Option<String>,
    /// When the comparison began.
    pub since: SystemTime,
    /// The main version, then the others.
    pub sides: Vec<SideView>,
    /// The comparison of each side but the first with the first one.
    pub comparisons: Vec<Report>,
}

/// One side of a split.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SideView {
    /// Its cluster.
    pub cluster: String,
    /// Its weight.
    pub weight: f64,
    /// Its share of the requests, in [0, 1].
    pub share: f64,
    /// Requests that it has finished since the process began.
    pub requests: u64,
    /// Failed requests among them.
    pub failures: u64,
    /// Requests of this side that another one served, because it had no backend for them.
    pub fallbacks: u64,
    /// An operator drained all its backends: the comparison waits.
    pub is_drained: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(weight: u32, more: &str) -> Config {
        let text = format!(
            "[[listeners]]\naddress = \":80\"\n[[routes]]\n{more}\nsplit = [{{ cluster = \"a\", weight = {} }}, \
             {{ cluster = \"b\", weight = {weight} }}]\n[clusters.a]\nbackends = [\"10.0.0.1:80\"]\n[clusters.b]\n\
             backends = [\"10.0.0.2:80\"]\n",
            100 - weight
        );
        Config::parse("test.toml", &text).unwrap()
    }

    fn only(splits: &Splits) -> &Arc<LiveSplit> {
        splits.0.values().next().unwrap()
    }

    const SERVED: FinishedRequest =
        FinishedRequest { end: RequestEnd::Answered, latency: Duration::from_millis(5), cost: None };

    #[test]
    fn reload_keeps_the_comparison_unless_a_weight_changes() {
        let first = Splits::default().updated(&config(5, ""));
        only(&first).record(1, &SERVED);
        let same = first.updated(&config(5, "request_timeout = \"3s\""));
        assert!(Arc::ptr_eq(only(&first), only(&same)));
        let other = same.updated(&config(10, ""));
        let view = &other.views()[0];
        assert_eq!((view.sides[1].requests, view.comparisons[0].requests), (1, [0, 0]));
        let by_key = same.updated(&config(5, "split_by = \"cookie:c\""));
        assert!(!Arc::ptr_eq(only(&by_key), only(&same)));
    }

    #[test]
    fn routes_that_differ_by_a_value_have_splits_of_their_own() {
        let route = |version: u32, more: &str| {
            format!(
                "[[routes]]\nheaders = {{ x-version = \"{version}\" }}\nsplit = [{{ cluster = \"a\", weight = 1 }}, \
                 {{ cluster = \"b\", weight = 1 }}{more}]\n"
            )
        };
        let text = |routes: &str| {
            let clusters = ["a", "b", "c"].map(|name| format!("[clusters.{name}]\nbackends = [\"10.0.0.1:80\"]\n"));
            let text = format!("[[listeners]]\naddress = \":80\"\n{routes}{}", clusters.concat());
            Config::parse("test.toml", &text).unwrap_or_else(|error| panic!("{error}"))
        };
        let (first, second) = (route(1, ""), route(2, ", { cluster = \"c\", weight = 1 }"));
        let config = text(&format!("{first}{second}"));
        let splits = Splits::default().updated(&config);
        let sides: Vec<_> = config.routes().iter().map(|route| splits.of(route).unwrap().sides()).collect();
        assert_eq!(sides, [2, 3]);
        splits.of(&config.routes()[1]).unwrap().record(1, &SERVED);
        let names = |splits: &Splits| splits.views().into_iter().map(|view| view.route).collect::<Vec<_>>();
        assert_eq!(names(&splits), ["/ header x-version", "/ header x-version #2"]);
        // The counts stay with the route, and its name follows its place.
        let alone = splits.updated(&text(&second));
        assert_eq!(names(&alone), ["/ header x-version"]);
        assert_eq!(alone.views()[0].sides.iter().map(|side| side.requests).collect::<Vec<_>>(), [0, 1, 0]);
    }

    #[test]
    fn requests_take_turns_by_weight_over_all_threads() {
        let splits = Splits::default().updated(&config(5, ""));
        let split = only(&splits);
        let counts: Vec<usize> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| (0..1000).filter(|_| split.side(None, |_| true, |_| false) == 1).count()))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!((195..=205).contains(&counts.iter().sum::<usize>()), "{counts:?}");
    }

    #[test]
    fn dead_canary_is_counted_and_fails_nobody() {
        let splits = Splits::default().updated(&config(50, ""));
        let split = only(&splits);
        assert!((0..100).all(|_| split.side(None, |side| side == 0, |_| false) == 0));
        let fallbacks = splits.views()[0].sides[1].fallbacks;
        assert!((48..=52).contains(&fallbacks), "{fallbacks}");
        // The comparison knows that the canary would have failed.
        let report = &splits.views()[0].comparisons[0];
        assert_eq!((report.requests, report.failures), ([0, fallbacks], [0, fallbacks]));
        assert_eq!(splits.views()[0].sides[1].requests, 0);
    }

    #[test]
    fn drained_side_is_counted_and_is_no_failure_of_its_version() {
        for drained in [0, 1] {
            let splits = Splits::default().updated(&config(50, ""));
            let split = only(&splits);
            let other = 1 - drained;
            assert!((0..100).all(|_| split.side(None, |side| side == other, |side| side == drained) == other));
            let view = &splits.views()[0];
            assert!((48..=52).contains(&view.sides[drained].fallbacks));
            assert_eq!((view.comparisons[0].requests, view.comparisons[0].failures), ([0, 0], [0, 0]));
        }
    }
}
