//! The source of a cluster's backends, the only way to them.
//!
//! [`plimsoll_core::discover`] decides on the members from the source's answers. The cluster's own
//! task ([`Cluster::run`]) polls the source and wakes that machine, so a source ends with its cluster
//! and costs no task. [`Shared::following`] hands a new source over and counts the sources. A late
//! list of a former source has no effect.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_util::{Stream, StreamExt as _};
use plimsoll_core::Timestamp;
use plimsoll_core::discover::{Census, Freshness, Listed, Merge, MergeConfig, MergeCounts};

use super::answers::answers;
use super::machine::News;
use super::overrides::ByHand;
use super::source_log::{Cause, Lines, SourceAccount, SourceFailure, SourceName};
use super::{Cluster, Shared};
use crate::discover::{Answer, Discover, Endpoint, FollowConfig, Readiness};

/// The decision on the members.
type Members = Merge<SocketAddr, Arc<Endpoint>>;

/// The answers of a source, and its number among the sources of the cluster.
pub(super) struct Source {
    number: u64,
    answers: Pin<Box<dyn Stream<Item = Answer> + Send>>,
}

/// The source that the cluster follows.
#[derive(Default)]
pub(super) struct Following {
    number: u64,
    /// Not yet taken over by the cluster's task; within it `None` if the source is over already.
    new: Option<Option<Source>>,
    /// The members by its answers. `None` before the first source.
    merge: Option<Members>,
    /// The members in force by the sources, without the overrides.
    pub(super) listed: Vec<Arc<Endpoint>>,
    account: SourceAccount,
    /// The operator's word on single backends, whatever source there is.
    pub(super) overrides: ByHand,
}

/// The state of a cluster's source, and its backends by state. Changes by hand are apart, in
/// [`Cluster::overrides`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveryView {
    /// The kind of the source ([`Discover::kind`]).
    pub kind: &'static str,
    /// The source in a few words ([`Discover::description`]).
    pub source: Arc<str>,
    /// The origin of the members.
    pub freshness: Freshness,
    /// Whether the last answer of the source was an error.
    pub is_failing: bool,
    /// Its last error, also after it recovered.
    pub last_error: Option<SourceFailure>,
    /// Whether there was a list, or the wait for the first one is over.
    pub is_ready: bool,
    /// The time of the source's last list.
    pub answered: Option<Timestamp>,
    /// The known backends by state, without changes by hand.
    pub backends: Census,
    /// Changes of the members since the cluster began, by all of its sources.
    pub counts: MergeCounts,
}

impl Cluster {
    /// Takes the backends from `source`, in place of any other, with the default settings.
    ///
    /// See [`Cluster::follow_with`].
    pub fn follow(&self, source: impl Discover + 'static) {
        self.follow_with(source, FollowConfig::default());
    }

    /// Takes the backends from `source`, in place of any other.
    ///
    /// Each list replaces the one before, with the exceptions of [`plimsoll_core::discover`]: errors
    /// and empty lists change nothing, and missing backends stay for a time after a sudden loss.
    /// Changes gather for 200 ms, at most 2 s. All backends of the list are members, or those of this
    /// process's subset ([`ClusterConfig::subset`](crate::client::ClusterConfig::subset)).
    ///
    /// The address identifies a backend. A listed backend keeps its state, connections and requests
    /// when its weight, authority, zone or locality changes; later requests see the new values.
    /// Requests at removed backends finish. Of an address that is listed twice the first entry counts.
    ///
    /// The first list applies as it is, without these exceptions: before this returns if it is ready,
    /// and else while [`Cluster::run`] is polled. The former source is dropped; its last list stays in
    /// force until the first one of `source`, and fixed backends beside it. The last list stays too
    /// when a source ends.
    ///
    /// Call this where `source` can be polled: within a runtime, if it needs one.
    pub fn follow_with(&self, source: impl Discover + 'static, config: FollowConfig) {
        let FollowConfig { hold, on_empty, fixed, saved } = config;
        let settings = MergeConfig { hold, on_empty, confirmations: source.confirmations() };
        let saved = saved.into_iter().map(listed).collect();
        let merge = Merge::new(self.0.now(), settings, keyed(fixed), saved);
        self.replace_source(source, |_| merge);
    }

    /// Takes the backends from `source`, in place of a source of the same service: the known backends
    /// stay until it lists them no more, by the rules of [`Cluster::follow_with`]. So a reload neither
    /// ends a hold nor believes an empty list. `saved` has no effect.
    pub fn follow_on(&self, source: impl Discover + 'static, config: FollowConfig) {
        let FollowConfig { hold, on_empty, fixed, .. } = config;
        let settings = MergeConfig { hold, on_empty, confirmations: source.confirmations() };
        let now = self.0.now();
        self.replace_source(source, |former| {
            let mut merge = former.unwrap_or_else(|| Merge::new(now, settings, Vec::new(), Vec::new()));
            merge.renew(now, settings, keyed(fixed));
            merge
        });
    }

    fn replace_source(&self, source: impl Discover + 'static, merge: impl FnOnce(Option<Members>) -> Members) {
        let name = SourceName::of(&source);
        let mut answers = Box::pin(answers(source));
        let (first, is_over) = match answers.as_mut().poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => {
                let is_over = answer.is_none();
                (answer, is_over)
            }
            Poll::Pending => (None, false),
        };
        let now = self.0.now();
        let mut following = self.0.following.lock();
        following.number += 1;
        let merge = merge(following.merge.take());
        following.account.begin(name, merge.counts());
        following.merge = Some(merge);
        let source = Source { number: following.number, answers };
        let former = following.new.replace((!is_over).then_some(source));
        self.0.is_listed.send_replace(false);
        let (fixed, of_fixed) = self.0.add_fixed(now, &mut following);
        let taken = first.map(|answer| self.0.take_in(&mut following, answer));
        drop(following);
        drop(former);
        of_fixed.log(&self.0.name);
        self.0.publish(fixed);
        if let Some((news, lines)) = taken {
            lines.log(&self.0.name);
            self.0.publish(news);
        }
        self.0.driver.notify_one();
        self.0.reconsider();
    }

    /// Waits for the first list of the source, at most 10 s from [`Cluster::follow_with`] on, and with
    /// fixed backends no longer than until an error. Needs [`Cluster::run`] to be polled.
    pub async fn until_listed(&self) {
        // The sender is in `self`.
        let _ = self.0.is_listed.subscribe().wait_for(|is_listed| *is_listed).await;
    }

    /// Whether there was a list, or the wait of [`Cluster::until_listed`] is over.
    #[must_use]
    pub fn is_listed(&self) -> bool {
        *self.0.is_listed.borrow()
    }

    /// The state of the source of backends.
    #[must_use]
    pub fn discovery(&self) -> DiscoveryView {
        let following = self.0.following.lock();
        let merge = following.merge.as_ref().expect("a cluster follows a source from its beginning");
        let SourceAccount { source, last_error, counts, .. } = &following.account;
        DiscoveryView {
            kind: source.kind,
            source: Arc::clone(&source.description),
            freshness: merge.freshness(),
            is_failing: merge.is_failing(),
            last_error: last_error.clone(),
            is_ready: merge.is_ready(self.0.now()),
            answered: merge.answered(),
            backends: merge.census(),
            counts: *counts,
        }
    }

    /// Grows with each change of [`Cluster::listed`]. `None` until the present source lists backends, so
    /// that a list is saved once, and for its own source.
    #[must_use]
    pub fn list_revision(&self) -> Option<u64> {
        self.0.following.lock().merge.as_ref()?.revision()
    }

    /// The last list of the source, to be saved for a later process ([`FollowConfig::saved`]).
    #[must_use]
    pub fn listed(&self) -> Vec<Endpoint> {
        let following = self.0.following.lock();
        let merge = following.merge.iter();
        merge
            .flat_map(Merge::to_save)
            .map(|Listed { properties, readiness, .. }| Endpoint::clone(&properties).readiness(readiness))
            .collect()
    }
}

/// Endpoints by address.
fn keyed(endpoints: Vec<Endpoint>) -> Vec<(SocketAddr, Arc<Endpoint>)> {
    endpoints.into_iter().map(|endpoint| (endpoint.address, Arc::new(endpoint))).collect()
}

/// An entry of a list in the core's terms.
fn listed(endpoint: Endpoint) -> Listed<SocketAddr, Arc<Endpoint>> {
    let Endpoint { address, readiness, .. } = endpoint;
    Listed { key: address, readiness, properties: Arc::new(endpoint.readiness(Readiness::Ready)) }
}

impl Following {
    /// Whether the source lists the backend, or may do so.
    pub(super) fn is_listed(&self, address: &SocketAddr) -> bool {
        self.merge.as_ref().is_none_or(|merge| merge.may_list(address))
    }
}

impl Source {
    /// Its next answer; never, without a source.
    pub(super) async fn next(source: &mut Option<Self>) -> (u64, Option<Answer>) {
        match source {
            Some(source) => (source.number, source.answers.next().await),
            None => std::future::pending().await,
        }
    }
}

impl Shared {
    /// A new source since the last call, for the cluster's task.
    pub(super) fn new_source(&self) -> Option<Option<Source>> {
        self.following.lock().new.take()
    }

    /// The answer of a source.
    pub(super) fn on_answer(&self, source: u64, answer: Answer) {
        let mut following = self.following.lock();
        if following.number != source {
            return;
        }
        let (news, lines) = self.take_in(&mut following, answer);
        drop(following);
        lines.log(&self.name);
        self.publish(news);
        self.reconsider();
    }

    /// Lets due changes of the members take effect. Returns the time of the next ones.
    pub(super) fn settle(&self, now: Timestamp) -> Option<Timestamp> {
        let mut following = self.following.lock();
        let following_now = &mut *following;
        let merge = following_now.merge.as_mut()?;
        let mut lines = Lines::default();
        let is_changed = merge.handle_timeout(now, &mut |event| lines.events.push(event));
        self.note_readiness(merge, now);
        let ended = following_now.overrides.handle_timeout(now);
        let next = [merge.poll_timeout(), following_now.overrides.poll_timeout()].into_iter().flatten().min();
        let news = (is_changed || !ended.is_empty())
            .then(|| self.change_members(now, following_now, Cause::Source, &mut lines));
        let lines = following_now.account.finish(now, lines);
        drop(following);
        lines.log(&self.name);
        self.log_ended(&ended);
        if let Some(news) = news {
            self.publish(news);
            self.reconsider();
        }
        next
    }

    /// Fixed backends are members at once, beside those of the former source. A renewed decision
    /// knows these, and is due; a new one does not, and has nothing due.
    fn add_fixed(&self, now: Timestamp, following: &mut Following) -> (News, Lines) {
        let Some(merge) = &mut following.merge else { return Default::default() };
        let mut lines = Lines::default();
        if merge.poll_timeout().is_some_and(|due| due <= now) {
            merge.handle_timeout(now, &mut |event| lines.events.push(event));
            self.note_readiness(merge, now);
            let news = self.change_members(now, following, Cause::Configuration, &mut lines);
            return (news, following.account.finish(now, lines));
        }
        let fixed: Vec<Arc<Endpoint>> = merge.members().iter().map(|member| Arc::clone(&member.properties)).collect();
        if fixed.is_empty() {
            return Default::default();
        }
        let addresses: HashSet<SocketAddr> = fixed.iter().map(|endpoint| endpoint.address).collect();
        let former = following.listed.iter().filter(|endpoint| !addresses.contains(&endpoint.address)).cloned();
        let listed = fixed.iter().cloned().chain(former).collect();
        let news = self.list(now, following, listed, Cause::Configuration, &mut lines);
        (news, following.account.finish(now, lines))
    }

    fn take_in(&self, following: &mut Following, answer: Answer) -> (News, Lines) {
        let Some(merge) = &mut following.merge else { return Default::default() };
        let now = self.clock.now();
        let is_first = merge.freshness() == Freshness::Waiting;
        let mut lines = Lines::default();
        match answer {
            Ok(endpoints) => {
                let list = endpoints.into_iter().map(listed).collect();
                merge.on_list(now, list, &mut |event| lines.events.push(event));
            }
            Err(error) => {
                merge.on_error(now, &mut |event| lines.events.push(event));
                following.account.on_error(now, &error, &mut lines);
            }
        }
        let is_changed = merge.handle_timeout(now, &mut |event| lines.events.push(event));
        self.note_readiness(merge, now);
        // The first list also replaces that of a former source, even if it is empty.
        let is_first = is_first && merge.freshness() != Freshness::Waiting;
        let news = if is_changed || is_first {
            self.change_members(now, following, Cause::Source, &mut lines)
        } else {
            following.account.on_step(merge.counts());
            News::default()
        };
        (news, following.account.finish(now, lines))
    }

    fn note_readiness(&self, merge: &Members, now: Timestamp) {
        let is_ready = merge.is_ready(now);
        self.is_listed.send_if_modified(|is_listed| std::mem::replace(is_listed, is_ready) != is_ready);
    }

    /// The members that the source's answers lead to come into force.
    fn change_members(&self, now: Timestamp, following: &mut Following, cause: Cause, lines: &mut Lines) -> News {
        let members = following.merge.iter().flat_map(Merge::members);
        let listed = members.map(|member| Arc::clone(&member.properties)).collect();
        self.list(now, following, listed, cause, lines)
    }

    /// These members by the source come into force.
    fn list(
        &self,
        now: Timestamp,
        following: &mut Following,
        listed: Vec<Arc<Endpoint>>,
        cause: Cause,
        lines: &mut Lines,
    ) -> News {
        let state = following.merge.as_ref().map(|merge| (merge.counts(), merge.census().held)).unwrap_or_default();
        let before = std::mem::replace(&mut following.listed, listed);
        following.account.on_members(&before, &following.listed, state, cause, lines);
        self.put_members_in_force(now, following).0
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use super::*;
    use crate::client::config::ClusterConfig;
    use crate::discover::Fixed;

    #[test]
    fn late_answer_of_a_former_source_has_no_effect() {
        let [former, later] = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let members =
            |cluster: &Cluster| cluster.backends().iter().map(|view| view.backend.address()).collect::<Vec<_>>();
        let cluster = Cluster::new("test", ClusterConfig::default(), [former]);
        let [first, second] = [1, 2];
        cluster.follow(Fixed::new([later]));
        cluster.0.on_answer(first, Ok(vec![former.into()]));
        assert_eq!(members(&cluster), [later]);
        cluster.0.on_answer(second, Ok(vec![later.into(), former.into()]));
        cluster.0.settle(cluster.0.now() + Duration::from_millis(200));
        assert_eq!(members(&cluster), [later, former]);
    }
}
