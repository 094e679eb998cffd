//! The live page's data: a fleet once a second, as one small answer or as a stream.
//!
//! Once a second [`LivePage::tick`] adds up each cluster, keeps a sample of it for ten minutes, and
//! encodes one event for each cluster that a page shows. Ten pages cost as much as one, and an event
//! has the same size for ten backends and for ten thousand.
//!
//! The samples are taken without a page too: a page that is opened during an incident shows its
//! beginning.

mod assemble;
mod changes;
mod history;
mod series;
mod source;
mod totals;
mod track;
mod view;
mod viewers;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use parking_lot::Mutex;
use plimsoll_core::Criticality;
use serde::Serialize;
use tokio::time::{MissedTickBehavior, interval};

use self::assemble::assemble;
pub use self::changes::{Changes, MAX_CHANGES};
pub use self::history::{History, MAX_SAMPLES, NamedSeries, Series};
pub use self::series::live_series;
pub use self::source::{LiveClusterSnapshot, LiveSnapshot, LiveSource};
use self::track::{BatchSums, Track};
pub use self::view::*;
pub use self::viewers::{Look, MAX_VIEWERS, Subject, Viewers};
use crate::readiness::Readiness;

/// Time between two samples.
pub const STEP: Duration = Duration::from_secs(1);
/// Clusters with a history: ten minutes of each take 84 KB.
const MAX_TRACKED: usize = 128;

/// The live page of a fleet. It outlives the admin port, which a reload may move.
#[derive(Debug, Default)]
pub struct LivePage {
    state: Mutex<State>,
    viewers: Viewers,
}

#[derive(Debug)]
struct State {
    /// The start of the process.
    began: Instant,
    tracks: HashMap<Box<str>, Track>,
    changes: Changes<LiveChange>,
    /// Of the reloads that are among the changes: in force, and refused.
    reloads: Option<(u64, u64)>,
    readiness: Option<Readiness>,
    /// The time of the latest tick.
    at: f64,
}

impl Default for State {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            tracks: HashMap::new(),
            changes: Changes::default(),
            reloads: None,
            readiness: None,
            at: 0.0,
        }
    }
}

/// There is no such cluster.
#[derive(Debug)]
pub(crate) struct NoCluster;

impl LivePage {
    /// Samples a fleet for its page once a second, for ever.
    pub async fn run(fleet: Arc<dyn LiveSource>) {
        let mut ticks = interval(STEP);
        // After a pause, the seconds that were missed have no samples of their own.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            fleet.page().tick(&*fleet, now());
        }
    }

    /// A second has ended, at `at` in seconds since 1970.
    pub(crate) fn tick(&self, fleet: &dyn LiveSource, at: f64) {
        let (watched, snapshot) = (self.viewers.subjects(), fleet.live());
        let mut state = self.state.lock();
        state.tick(at, &snapshot, fleet.readiness(), &watched);
        for subject in &watched {
            let live = assemble(fleet, &snapshot, &state, subject.as_deref(), at);
            self.viewers.send(subject, live.ok().map(|live| event("live", &live)));
        }
    }

    /// The fleet now, with this cluster in detail.
    pub(crate) fn live(&self, fleet: &dyn LiveSource, cluster: Option<&str>) -> Result<Live, NoCluster> {
        assemble(fleet, &fleet.live(), &self.state.lock(), cluster, now())
    }

    /// The open pages.
    pub(crate) fn viewers(&self) -> &Viewers {
        &self.viewers
    }

    /// The first events of a page: the history of its cluster, and its present.
    pub(crate) fn first(&self, fleet: &dyn LiveSource, cluster: Option<&str>) -> Result<Bytes, NoCluster> {
        let live = self.live(fleet, cluster)?;
        let state = self.state.lock();
        let name = live.cluster.as_ref().map(|cluster| cluster.name.as_str());
        let track = name.and_then(|name| Some((name, state.tracks.get(name)?)));
        let history = track.map(|(name, track)| track.history.event(("cluster", name), state.at));
        Ok(first_events(history.as_ref(), &live))
    }
}

impl State {
    fn tick(&mut self, at: f64, snapshot: &LiveSnapshot, readiness: Readiness, watched: &[Subject]) {
        self.at = at;
        self.reloads(at, (snapshot.reloads_taken, snapshot.reloads_refused));
        self.readiness(at, readiness);
        let is_watched = |name: &str| watched.iter().flatten().any(|of| **of == *name);
        let exists = |name: &str| snapshot.clusters.iter().any(|cluster| *cluster.overview.name == *name);
        self.tracks.retain(|name, track| exists(name) && (!track.is_extra || is_watched(name)));
        let batch = batch_sums(snapshot);
        for cluster in &snapshot.clusters {
            let name = &cluster.overview.name;
            if !self.tracks.contains_key(name) {
                let is_full = self.tracks.len() >= MAX_TRACKED;
                // Of many clusters, those with requests.
                let is_idle = cluster.overview.counts.offered == [0; Criticality::ALL.len()];
                let is_left_off = is_full || is_idle && snapshot.clusters.len() > MAX_TRACKED;
                if is_left_off && !is_watched(name) {
                    continue;
                }
                self.tracks.insert(name.clone(), Track::new(is_left_off));
            }
            let track = self.tracks.get_mut(name).expect("it was there, or was added");
            for change in track.tick(at, cluster, batch) {
                self.changes.add(change);
            }
        }
    }

    fn reloads(&mut self, at: f64, (taken, refused): (u64, u64)) {
        if let Some(before) = self.reloads.replace((taken, refused)) {
            for (is_new, text) in [(taken > before.0, "in force"), (refused > before.1, "refused: see the log")] {
                if is_new {
                    self.changes.add(of_process(at, "reload", "configuration", text));
                }
            }
        }
    }

    fn readiness(&mut self, at: f64, readiness: Readiness) {
        let before = self.readiness.replace(readiness);
        if before.is_some_and(|before| before != readiness) {
            self.changes.add(of_process(at, "process", "proxy", readiness.name()));
        }
    }
}

fn of_process(at: f64, kind: &str, subject: &str, text: &str) -> LiveChange {
    LiveChange {
        at,
        kind: kind.to_owned(),
        cluster: None,
        subject: subject.to_owned(),
        text: text.to_owned(),
        proxies: Vec::new(),
    }
}

fn batch_sums(snapshot: &LiveSnapshot) -> BatchSums {
    let queued = |batch: &crate::snapshot::BatchSnapshot| batch.queued.iter().map(|(_, queued)| *queued).sum::<usize>();
    BatchSums {
        queued: snapshot.batch.iter().map(|(_, batch)| queued(batch)).sum(),
        active: snapshot.batch.iter().map(|(_, batch)| batch.active).sum(),
    }
}

/// Seconds since 1970, to the millisecond.
#[must_use]
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as f64 / 1e3
}

/// The first events of a page: the history of its subject, if it has one, and its present.
pub fn first_events(history: Option<&impl Serialize>, live: &impl Serialize) -> Bytes {
    let mut first = b"retry: 1000\n\n".to_vec();
    if let Some(history) = history {
        first.extend_from_slice(&event("history", history));
    }
    first.extend_from_slice(&event("live", live));
    first.into()
}

/// A server-sent event.
///
/// # Panics
/// A map of the data has keys that are no strings.
pub fn event(name: &str, data: &impl Serialize) -> Bytes {
    let mut event = format!("event: {name}\ndata: ").into_bytes();
    serde_json::to_writer(&mut event, data).expect("a view has string keys and no other errors");
    event.extend_from_slice(b"\n\n");
    event.into()
}

#[cfg(test)]
mod tests;
