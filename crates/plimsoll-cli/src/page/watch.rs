//! The proxies as viewers watch them: a stream of each proxy for each cluster that somebody looks
//! at.
//!
//! A watch begins with its first viewer and ends some seconds after its last one. Its streams show
//! one cluster: the one that the viewers chose, else the one with the worst verdict of all proxies.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::body::Bytes;
use http::Method;
use parking_lot::Mutex;
use plimsoll_admin::parts::{LiveChanges, MAX_CHANGES, STEP, Subject, Viewers, event, first_events, now};
use plimsoll_admin::{Live, LiveChange, LiveProcess};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

use super::known::Known;
use crate::admin::events::ask_text;
use crate::fleet::follow::{self, News};
use crate::fleet::merge::{FleetLive, Member, labels, merge, rank_of, worst_cluster};
use crate::fleet::past::{Past, history, sample};

/// Clusters that are watched at a time. Each takes a stream of each proxy, which has 16.
const MAX_WATCHES: usize = 4;
/// Time after its last viewer for which a watch goes on: a page that is loaded again finds it.
const LINGER: Duration = Duration::from_secs(10);
/// Time for the first answers of all proxies. A page does not wait longer for a slow one.
const PATIENCE: Duration = Duration::from_secs(2);

/// All that the page knows.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) proxies: Vec<String>,
    pub(super) viewers: Viewers,
    began: Instant,
    watches: Mutex<HashMap<Subject, Arc<Watch>>>,
    /// The names of the proxies' machines, as far as they are known.
    names: Mutex<Vec<Option<String>>>,
}

/// There is no state to show.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoState {
    /// No proxy that answers has the cluster.
    NoCluster,
    /// Too many other clusters are watched.
    TooMany,
}

/// The proxies with one cluster in detail.
#[derive(Debug)]
struct Watch {
    /// The cluster that the viewers chose.
    wanted: Subject,
    /// The cluster that the streams are to show; `None` until it is known.
    cluster: watch::Sender<Option<String>>,
    state: Mutex<State>,
    news: Notify,
    /// The streams end with it.
    _streams: JoinSet<()>,
}

#[derive(Debug)]
struct State {
    members: Vec<Known>,
    changes: LiveChanges<LiveChange>,
    used: Instant,
}

impl Desk {
    pub(super) fn new(proxies: Vec<String>) -> Self {
        let names = Mutex::new(vec![None; proxies.len()]);
        Self { proxies, viewers: Viewers::default(), began: Instant::now(), watches: Mutex::default(), names }
    }

    /// Sends an event a second to all viewers, for ever.
    pub(super) async fn run(self: Arc<Self>) {
        let mut ticks = interval(STEP);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.tick(now());
        }
    }

    fn tick(&self, at: f64) {
        let watched = self.viewers.subjects();
        // Watches that end do so without the lock.
        let ended: Vec<Arc<Watch>> = {
            let mut watches = self.watches.lock();
            watches
                .extract_if(|subject, watch| !watched.contains(subject) && watch.is_unused())
                .map(|(_, of)| of)
                .collect()
        };
        drop(ended);
        for subject in watched {
            let watch = self.watches.lock().get(&subject).cloned();
            let Some(watch) = watch else {
                self.viewers.send(&subject, None);
                continue;
            };
            watch.state.lock().used = Instant::now();
            // Charts of another cluster begin with another history: the viewers ask again.
            let is_moved = watch.settle();
            let event = watch.event(self.process(), at).filter(|_| !is_moved);
            self.viewers.send(&subject, event);
        }
    }

    fn process(&self) -> LiveProcess {
        LiveProcess::new("fleet", "ready", self.began.elapsed())
    }

    /// The state of all proxies with this cluster in detail.
    pub(super) async fn live(self: &Arc<Self>, subject: &Subject) -> Result<FleetLive, NoState> {
        let watch = self.ready(subject).await?;
        Ok(watch.live(self.process(), now()))
    }

    /// The first events of a viewer: the history of the cluster, and its present.
    pub(super) async fn first(self: &Arc<Self>, subject: &Subject) -> Result<Bytes, NoState> {
        let watch = self.ready(subject).await?;
        let (at, process) = (now(), self.process());
        let live = watch.live(process, at);
        let state = watch.state.lock();
        let pasts: Vec<&Past> = state.members.iter().map(|member| &member.past).collect();
        let name = live.live.cluster.as_ref().map(|cluster| cluster.name.as_str());
        let history = name.and_then(|name| history(&pasts, name, at));
        Ok(first_events(history.as_ref(), &live))
    }

    /// The names that people know the proxies by, in their order.
    pub(super) fn labels(&self) -> Vec<String> {
        let names = self.names.lock();
        let names: Vec<_> = names.iter().map(Option::as_deref).zip(self.proxies.iter().map(String::as_str)).collect();
        labels(&names).into_iter().map(ToOwned::to_owned).collect()
    }

    /// The number of watches.
    #[cfg(test)]
    pub(super) fn watched(&self) -> usize {
        self.watches.lock().len()
    }

    /// A watch once all proxies have answered, or had the time to.
    async fn ready(self: &Arc<Self>, subject: &Subject) -> Result<Arc<Watch>, NoState> {
        let watch = self.watch(subject)?;
        let until = Instant::now() + PATIENCE;
        loop {
            let news = watch.news.notified();
            watch.settle();
            if watch.is_complete() || timeout_at(until, news).await.is_err() {
                break;
            }
        }
        watch.state.lock().used = Instant::now();
        match subject {
            Some(name) if watch.lacks(name) => Err(NoState::NoCluster),
            _ => Ok(watch),
        }
    }

    fn watch(self: &Arc<Self>, subject: &Subject) -> Result<Arc<Watch>, NoState> {
        let mut watches = self.watches.lock();
        if let Some(watch) = watches.get(subject) {
            watch.state.lock().used = Instant::now();
            return Ok(Arc::clone(watch));
        }
        if watches.len() >= MAX_WATCHES {
            let watched = self.viewers.subjects();
            let unused = watches.keys().find(|subject| !watched.contains(subject)).cloned();
            drop(watches.remove(&unused.ok_or(NoState::TooMany)?));
        }
        let watch = Watch::start(Arc::downgrade(self), subject.clone(), &self.proxies);
        watches.insert(subject.clone(), Arc::clone(&watch));
        Ok(watch)
    }
}

impl Watch {
    fn start(desk: Weak<Desk>, wanted: Subject, proxies: &[String]) -> Arc<Self> {
        Arc::new_cyclic(|this: &Weak<Self>| {
            let cluster = watch::Sender::new(wanted.as_deref().map(ToOwned::to_owned));
            let mut streams = JoinSet::new();
            for (place, admin) in proxies.iter().enumerate() {
                let (this, desk, admin_of) = (this.clone(), desk.clone(), admin.clone());
                let tell = move |news| {
                    let Some(watch) = this.upgrade() else { return false };
                    if let News::NoCluster(_) = &news {
                        tokio::spawn(look_elsewhere(this.clone(), place, admin_of.clone()));
                    }
                    let name = watch.take(place, news);
                    if let (Some(name), Some(desk)) = (name, desk.upgrade()) {
                        desk.names.lock()[place] = Some(name);
                    }
                    true
                };
                streams.spawn(follow::follow(admin.clone(), cluster.subscribe(), follow::read_single, tell));
            }
            let now = Instant::now();
            let members = proxies.iter().map(|admin| Known::new(admin.clone(), now)).collect();
            let state = Mutex::new(State { members, changes: LiveChanges::default(), used: now });
            Self { wanted, cluster, state, news: Notify::new(), _streams: streams }
        })
    }

    /// Takes news of the proxy at this place. Returns its name if it answers.
    fn take(&self, place: usize, news: News) -> Option<String> {
        let mut state = self.state.lock();
        let change = state.members[place].take(news, now());
        if let Some(change) = change {
            state.changes.add(change);
        }
        let name = state.members[place].name.clone();
        drop(state);
        self.news.notify_waiters();
        name
    }

    fn is_unused(&self) -> bool {
        self.state.lock().used.elapsed() > LINGER
    }

    /// Whether each proxy has answered about the cluster, or has a problem.
    fn is_complete(&self) -> bool {
        let cluster = self.cluster.borrow().clone();
        self.state.lock().members.iter().all(|member| {
            let live = member.fresh();
            let shown = live.and_then(|live| live.cluster.as_ref()).map(|of| of.name.as_str());
            let is_apart = live.is_some() && member.lacked == cluster;
            member.is_heard
                && (member.problem.is_some() || cluster.is_none() || is_apart || shown == cluster.as_deref())
        })
    }

    /// Whether a proxy answers, and none of those that do has the cluster.
    fn lacks(&self, name: &str) -> bool {
        let state = self.state.lock();
        let members: Vec<Member<'_>> = state.members.iter().map(Known::member).collect();
        let is_shown = |live: &Live| live.cluster.as_ref().is_some_and(|cluster| cluster.name == name);
        let mut answers = members.iter().filter_map(|member| member.live).peekable();
        answers.peek().is_some() && !answers.any(is_shown) && rank_of(&members, name).is_none()
    }

    /// Has all streams show one cluster. Returns true if they showed another one.
    ///
    /// Without a choice it is the one with the worst verdict. One that is as bad does not displace
    /// it: the page would jump.
    fn settle(&self) -> bool {
        if self.wanted.is_some() {
            return false;
        }
        let worst = {
            let state = self.state.lock();
            let members: Vec<Member<'_>> = state.members.iter().map(Known::member).collect();
            let Some(worst) = worst_cluster(&members) else { return false };
            let current = self.cluster.borrow();
            let current = current.as_deref();
            let rank = current.and_then(|name| rank_of(&members, name));
            if rank.is_some() && rank >= rank_of(&members, worst) {
                return false;
            }
            worst.to_owned()
        };
        self.cluster.send_replace(Some(worst)).is_some()
    }

    fn live(&self, process: LiveProcess, at: f64) -> FleetLive {
        let cluster = self.cluster.borrow().clone();
        let state = self.state.lock();
        let members: Vec<Member<'_>> = state.members.iter().map(Known::member).collect();
        let fresh = state.members.iter().filter(|member| member.fresh().is_some());
        let pasts: Vec<&Past> = fresh.map(|member| &member.past).collect();
        let sample = cluster.as_deref().and_then(|name| sample(&pasts, name, at));
        let mut live = merge(&members, cluster.as_deref(), process, at, sample);
        let changes = &mut live.live.changes;
        changes.extend(state.changes.latest());
        changes.sort_by(|a, b| b.at.total_cmp(&a.at));
        changes.truncate(MAX_CHANGES);
        live
    }

    fn event(&self, process: LiveProcess, at: f64) -> Option<Bytes> {
        Some(event("live", &self.live(process, at)))
    }
}

/// Asks a proxy without the wanted cluster for another one, so that it is known which it has.
async fn look_elsewhere(watch: Weak<Watch>, place: usize, admin: String) {
    let answer = ask_text(&admin, Method::GET, &follow::path("live", None)).await;
    let live = answer.and_then(|json| follow::read_single(&json).map(|live| (live, json)));
    if let (Ok((live, json)), Some(watch)) = (live, watch.upgrade()) {
        watch.take(place, News::Live(Box::new(live), json));
    }
}
