//! The live page's data: one service with its customers, once a second.
//!
//! Once a second each service is surveyed in one pass over its customers. A sample is kept for ten
//! minutes, without a page too, and one event is encoded for each service that a page shows. An event has
//! at most 20 KB for any number of customers and any length of their names.
//!
//! The owner of Envoys before the tasks of a service has no part in it, as in the metrics.

mod answers;
mod assemble;
mod survey;
mod track;
mod view;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Bytes;
use parking_lot::Mutex;
use plimsoll::server::{Lifecycle, Phase};
use plimsoll_admin::LiveProcess;
use plimsoll_admin::parts::{LiveChanges, STEP, Viewers, event, first_events, now};
use plimsoll_core::Timestamp;
use tokio::time::{MissedTickBehavior, interval};

pub(crate) use self::answers::router;
use self::assemble::assemble;
use self::survey::Survey;
use self::track::Track;
use self::view::{Change, Live};
use crate::services::Services;

/// The live page of a quota server.
#[derive(Debug)]
pub(crate) struct LivePage {
    services: Arc<Services>,
    lifecycle: Lifecycle,
    state: Mutex<State>,
    viewers: Viewers,
}

#[derive(Debug, Default)]
struct State {
    tracks: BTreeMap<String, Track>,
    changes: LiveChanges<Change>,
    /// The time of the latest tick.
    at: f64,
}

/// There is no such service.
#[derive(Debug)]
struct NoService;

impl LivePage {
    pub(crate) fn new(services: Arc<Services>, lifecycle: Lifecycle) -> Self {
        Self { services, lifecycle, state: Mutex::default(), viewers: Viewers::default() }
    }

    /// Samples all services once a second, for ever.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut ticks = interval(STEP);
        // After a pause, the seconds that were missed have no samples of their own.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.tick(now(), self.services.now());
        }
    }

    /// A second has ended, at `at` in seconds since 1970. That is `now` for the services.
    fn tick(&self, at: f64, now: Timestamp) {
        let (watched, services) = (self.viewers.subjects(), self.services.all());
        let mut state = self.state.lock();
        let State { tracks, changes, .. } = &mut *state;
        tracks.retain(|name, _| services.contains_key(name));
        let mut surveys = BTreeMap::new();
        for (name, hosted) in &services {
            let track = tracks.entry(name.clone()).or_default();
            surveys.insert(name.as_str(), track.tick(at, now, (name, hosted), changes));
        }
        state.at = at;
        for subject in &watched {
            let live = assemble(&services, &surveys, &state, self.process(), subject.as_deref(), at);
            self.viewers.send(subject, live.ok().map(|live| event("live", &live)));
        }
    }

    /// The services now, with this one in detail.
    fn live(&self, service: Option<&str>) -> Result<Live, NoService> {
        let services = self.services.all();
        let surveys = services.iter().map(|(name, hosted)| (name.as_str(), Survey::of(hosted))).collect();
        assemble(&services, &surveys, &self.state.lock(), self.process(), service, now())
    }

    /// The first events of a page: the history of its service, and its present.
    fn first(&self, service: Option<&str>) -> Result<Bytes, NoService> {
        let live = self.live(service)?;
        let state = self.state.lock();
        let name = live.service.as_ref().map(|service| service.name.as_str());
        // A service has no track before the first tick.
        let empty = Track::default();
        let history = name.map(|name| {
            let (track, at) = state.tracks.get(name).map_or((&empty, live.at), |track| (track, state.at));
            track.history.event(("service", name), at)
        });
        Ok(first_events(history.as_ref(), &live))
    }

    fn process(&self) -> LiveProcess {
        let state = match self.lifecycle.phase() {
            Phase::Starting => "starting",
            Phase::Serving => "ready",
            _ => "draining",
        };
        LiveProcess::new("quota", state, self.services.origin.elapsed())
    }
}

#[cfg(test)]
mod tests;
