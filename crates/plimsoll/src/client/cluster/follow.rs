//! The source of a cluster's backends, the only way to them.
//!
//! [`plimsoll_core::discover`] decides on the members from the source's answers. The cluster's own
//! task ([`Cluster::run`]) polls the source and wakes that machine, so a source ends with its cluster
//! and costs no task. [`Shared::following`] hands a new source over and counts the sources. A late
//! list of a former source has no effect.
//!
//! Fixed backends are a second source with a decision of its own ([`FixedPart`]), whose members are
//! members here as well. The answers of both come in one stream.

use crate::address::Address;
use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_util::{Stream, StreamExt as _, stream};
use plimsoll_core::Timestamp;
use plimsoll_core::discover::{Census, Freshness, Listed, Merge, MergeConfig, MergeCounts};
use tokio::sync::watch;

use super::answers::answers;
use super::fixed::{FixedPart, Members, listed};
use super::machine::News;
use super::overrides::ByHand;
use super::source_log::{Cause, Lines, SourceAccount, SourceFailure, SourceName};
use super::{Cluster, Shared};
use crate::discover::{Answer, Discover, Endpoint, FollowConfig};

/// The answers of a source and of the fixed backends beside it, and its number among the sources of
/// the cluster.
pub(super) struct Source {
    number: u64,
    answers: Pin<Box<dyn Stream<Item = (Part, Answer)> + Send>>,
}

/// The part of a cluster's list that an answer is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The source that the cluster follows.
    Followed,
    /// The fixed backends.
    Fixed,
}

/// The source that the cluster follows.
#[derive(Default)]
pub(super) struct Following {
    number: u64,
    /// Not yet taken over by the cluster's task.
    new: Option<Source>,
    /// The members by its answers. `None` before the first source.
    merge: Option<Members>,
    /// The fixed backends among them. `None` before the first source.
    fixed: Option<FixedPart>,
    /// The members by the source before, until the first list of this one.
    former: Vec<Arc<Endpoint>>,
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
    /// The last error of the fixed backends beside the source, while their last answer is one.
    pub fixed_error: Option<SourceFailure>,
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
    /// Fixed backends are a source beside it, by the same rules: neither removes a backend of the
    /// other. An address in both is one backend, with the properties of the fixed one.
    ///
    /// Call this where the sources can be polled: within a runtime, if they need one.
    pub fn follow_with(&self, source: impl Discover + 'static, config: FollowConfig<impl Discover + 'static>) {
        let FollowConfig { hold, on_empty, fixed, saved } = config;
        let settings = MergeConfig { hold, on_empty, confirmations: source.confirmations() };
        let saved = saved.into_iter().map(listed).collect();
        self.replace_source(source, fixed, settings, |now, following| {
            following.former = following.listed.clone();
            Merge::new(now, settings, saved)
        });
    }

    /// Takes the backends from `source`, in place of a source of the same service: the known backends
    /// stay until it lists them no more, by the rules of [`Cluster::follow_with`]. So a reload neither
    /// ends a hold nor believes an empty list. `saved` has no effect.
    pub fn follow_on(&self, source: impl Discover + 'static, config: FollowConfig<impl Discover + 'static>) {
        let FollowConfig { hold, on_empty, fixed, .. } = config;
        let settings = MergeConfig { hold, on_empty, confirmations: source.confirmations() };
        self.replace_source(source, fixed, settings, |now, following| {
            let former = following.merge.take();
            let mut merge = former.unwrap_or_else(|| Merge::new(now, settings, Vec::new()));
            merge.renew(now, settings);
            merge
        });
    }

    /// Follows `source` and `fixed`, with the decision of `merge`.
    fn replace_source(
        &self,
        source: impl Discover + 'static,
        fixed: impl Discover + 'static,
        settings: MergeConfig,
        merge: impl FnOnce(Timestamp, &mut Following) -> Members,
    ) {
        let names = (SourceName::of(&source), SourceName::of(&fixed));
        let fixed_settings = MergeConfig { confirmations: fixed.confirmations(), ..settings };
        let (first, answers) = begun(source, Part::Followed);
        let (first_fixed, fixed_answers) = begun(fixed, Part::Fixed);
        let answers = Box::pin(stream::select(answers, fixed_answers));
        let now = self.0.now();
        let mut following = self.0.following.lock();
        following.number += 1;
        let merge = merge(now, &mut following);
        following.account.begin(names.0, merge.counts());
        following.merge = Some(merge);
        following.fixed = Some(FixedPart::new(now, fixed_settings, names.1));
        let source = Source { number: following.number, answers };
        let former = following.new.replace(source);
        self.0.is_listed.send_replace(false);
        let first = [first_fixed, first].into_iter().flatten();
        let taken: Vec<_> = first.map(|answer| self.0.take_in(&mut following, answer, Cause::Configuration)).collect();
        drop(following);
        drop(former);
        for (news, lines) in taken {
            lines.into_iter().for_each(|lines| lines.log(&self.0.name));
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
            fixed_error: following.fixed.as_ref().and_then(FixedPart::failure).cloned(),
            is_ready: merge.is_ready(self.0.now()),
            answered: merge.answered(),
            backends: merge.census(),
            counts: *counts,
        }
    }

    /// The ready backends by the sources, as they change: all of them, not only those of the subset, and
    /// without changes by hand. For a coordinator that assigns them to clients.
    #[must_use]
    pub fn ready_backends(&self) -> watch::Receiver<Arc<[Arc<Endpoint>]>> {
        self.0.ready.subscribe()
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

/// The first answer of a source if it is ready, and the further ones.
fn begun(
    source: impl Discover + 'static,
    part: Part,
) -> (Option<(Part, Answer)>, impl Stream<Item = (Part, Answer)> + Send + Unpin) {
    let mut answers = Box::pin(answers(source).map(move |answer| (part, answer)).fuse());
    let first = match answers.as_mut().poll_next(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => None,
    };
    (first, answers)
}

impl Following {
    /// Whether the source lists the backend, or may do so.
    pub(super) fn is_listed(&self, address: &Address) -> bool {
        let is_fixed = self.fixed.as_ref().is_some_and(|fixed| fixed.is_listed(address));
        is_fixed || self.merge.as_ref().is_none_or(|merge| merge.may_list(address))
    }

    /// Changes by reason, by the source and the fixed backends.
    fn counts(&self) -> MergeCounts {
        let counts = self.merge.as_ref().map(Merge::counts).unwrap_or_default();
        self.fixed.as_ref().map_or(counts, |fixed| fixed.add_to(counts))
    }
}

impl Source {
    /// Its next answer; never, without a source.
    pub(super) async fn next(source: &mut Option<Self>) -> (u64, Option<(Part, Answer)>) {
        match source {
            Some(source) => (source.number, source.answers.next().await),
            None => std::future::pending().await,
        }
    }
}

impl Shared {
    /// A new source since the last call, for the cluster's task.
    pub(super) fn new_source(&self) -> Option<Source> {
        self.following.lock().new.take()
    }

    /// The answer of a source, or of the fixed backends beside it.
    pub(super) fn on_answer(&self, source: u64, answer: (Part, Answer)) {
        let mut following = self.following.lock();
        if following.number != source {
            return;
        }
        let (news, lines) = self.take_in(&mut following, answer, Cause::Fixed);
        drop(following);
        lines.into_iter().for_each(|lines| lines.log(&self.name));
        self.publish(news);
        self.reconsider();
    }

    /// Lets due changes of the members take effect. Returns the time of the next ones.
    pub(super) fn settle(&self, now: Timestamp) -> Option<Timestamp> {
        let mut following = self.following.lock();
        let following_now = &mut *following;
        let (merge, fixed) = (following_now.merge.as_mut()?, following_now.fixed.as_mut()?);
        let mut lines = Lines::default();
        let (is_fixed_changed, fixed_lines) = fixed.handle_timeout(now, merge);
        let is_changed = merge.handle_timeout(now, &mut |event| lines.events.push(event));
        self.note_readiness(merge, now);
        let ended = following_now.overrides.handle_timeout(now);
        let due = [merge.poll_timeout(), fixed.poll_timeout(), following_now.overrides.poll_timeout()];
        let next = due.into_iter().flatten().min();
        let cause = if is_fixed_changed && !is_changed { Cause::Fixed } else { Cause::Source };
        let news = (is_changed || is_fixed_changed || !ended.is_empty())
            .then(|| self.change_members(now, following_now, cause, &mut lines));
        let lines = following_now.account.finish(now, lines);
        drop(following);
        [fixed_lines, lines].into_iter().for_each(|lines| lines.log(&self.name));
        self.log_ended(&ended);
        if let Some(news) = news {
            self.publish(news);
            self.reconsider();
        }
        next
    }

    /// Takes an answer in. Fixed backends are members at once, beside those of the former source;
    /// `cause` is the reason of their change.
    fn take_in(&self, following: &mut Following, (part, answer): (Part, Answer), cause: Cause) -> (News, [Lines; 2]) {
        let now = self.clock.now();
        match part {
            Part::Followed => {
                let (news, lines) = self.take_followed(now, following, answer);
                (news, [Lines::default(), lines])
            }
            Part::Fixed => self.take_fixed(now, following, answer, cause),
        }
    }

    fn take_fixed(
        &self,
        now: Timestamp,
        following: &mut Following,
        answer: Answer,
        cause: Cause,
    ) -> (News, [Lines; 2]) {
        let (Some(merge), Some(fixed)) = (&mut following.merge, &mut following.fixed) else {
            return Default::default();
        };
        let (is_changed, fixed_lines) = fixed.take_in(now, answer, merge);
        self.note_readiness(merge, now);
        let mut lines = Lines::default();
        let news = match is_changed {
            true => self.change_members(now, following, cause, &mut lines),
            false => News::default(),
        };
        (news, [fixed_lines, following.account.finish(now, lines)])
    }

    fn take_followed(&self, now: Timestamp, following: &mut Following, answer: Answer) -> (News, Lines) {
        let Some(merge) = &mut following.merge else { return Default::default() };
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
            let counts = following.counts();
            following.account.on_step(counts);
            News::default()
        };
        (news, following.account.finish(now, lines))
    }

    fn note_readiness(&self, merge: &Members, now: Timestamp) {
        let is_ready = merge.is_ready(now);
        self.is_listed.send_if_modified(|is_listed| std::mem::replace(is_listed, is_ready) != is_ready);
    }

    /// The members that the answers lead to come into force.
    fn change_members(&self, now: Timestamp, following: &mut Following, cause: Cause, lines: &mut Lines) -> News {
        let Some(merge) = &following.merge else { return News::default() };
        let (counts, held) = (following.counts(), merge.census().held);
        if merge.freshness() != Freshness::Waiting {
            following.former.clear();
        }
        let members: HashSet<Address> = merge.members().iter().map(|member| member.key).collect();
        let former = following.former.iter().filter(|endpoint| !members.contains(&endpoint.address));
        let listed = merge.members().iter().map(|member| &member.properties).chain(former).cloned().collect();
        let before = std::mem::replace(&mut following.listed, listed);
        following.account.on_members(&before, &following.listed, (counts, held), cause, lines);
        self.ready.send_replace(following.listed.iter().cloned().collect());
        self.put_members_in_force(now, following).0
    }
}

#[cfg(test)]
mod tests {
    use crate::address::Address;
    use std::time::Duration;

    use tokio::sync::mpsc;
    use tokio::time::sleep;

    use super::*;
    use crate::client::config::ClusterConfig;
    use crate::discover::{Fixed, OnEmpty};

    const SECOND: Duration = Duration::from_secs(1);
    const HOLD: Duration = Duration::from_secs(30);

    /// A source with answers from the test.
    struct Fake(mpsc::UnboundedReceiver<Answer>);

    impl Discover for Fake {
        async fn next(&mut self) -> Option<Answer> {
            self.0.recv().await
        }
    }

    type Lists = mpsc::UnboundedSender<Answer>;

    fn fake() -> (Lists, Fake) {
        let (lists, answers) = mpsc::unbounded_channel();
        (lists, Fake(answers))
    }

    fn beside(fixed: Fake) -> FollowConfig<Fake> {
        FollowConfig { hold: HOLD, on_empty: OnEmpty::Keep, fixed, saved: Vec::new() }
    }

    fn endpoint(port: u16) -> Endpoint {
        Endpoint::new(([127, 0, 0, 1], port))
    }

    fn list(ports: impl IntoIterator<Item = u16>) -> Answer {
        Ok(ports.into_iter().map(endpoint).collect())
    }

    /// The members in numerical order.
    fn ports(cluster: &Cluster) -> Vec<u16> {
        let mut ports: Vec<u16> = cluster.backends().iter().filter_map(|view| view.backend.address().port()).collect();
        ports.sort_unstable();
        ports
    }

    /// The zone of the backend 10.
    fn zone(cluster: &Cluster) -> Option<Arc<str>> {
        let backends = cluster.backends();
        let of = backends.iter().find(|view| view.backend.address().port() == Some(10)).unwrap();
        of.backend.endpoint().zone.clone()
    }

    /// A running cluster with these backends.
    fn running(ports: impl IntoIterator<Item = u16>) -> Cluster {
        let cluster = Cluster::new("test", ClusterConfig::default(), ports.into_iter().map(endpoint));
        tokio::spawn(cluster.run());
        cluster
    }

    /// A running cluster, and its source with the backends 10, 11 and 12 and fixed backends, 1 at first.
    fn beside_a_source() -> (Cluster, Lists, Lists) {
        let cluster = running([]);
        let ((lists, source), (names, fixed)) = (fake(), fake());
        lists.send(list([10, 11, 12])).unwrap();
        names.send(list([1])).unwrap();
        cluster.follow_with(source, beside(fixed));
        assert_eq!(ports(&cluster), [1, 10, 11, 12]);
        (cluster, lists, names)
    }

    #[tokio::test(start_paused = true)]
    async fn fixed_backends_are_followed_beside_the_source() {
        let (cluster, lists, names) = beside_a_source();
        names.send(list([2, 3])).unwrap();
        sleep(SECOND).await;
        assert_eq!(ports(&cluster), [2, 3, 10, 11, 12]);
        lists.send(list([10, 11])).unwrap();
        sleep(SECOND).await;
        assert_eq!(ports(&cluster), [2, 3, 10, 11]);
        // An address in both is one member, with the properties of the fixed one.
        names.send(Ok(vec![endpoint(10).zone("a"), endpoint(3)])).unwrap();
        sleep(SECOND).await;
        assert_eq!((ports(&cluster), zone(&cluster).as_deref()), (vec![3, 10, 11], Some("a")));
        lists.send(list([11])).unwrap();
        sleep(SECOND).await;
        assert_eq!(ports(&cluster), [3, 10, 11]);
        lists.send(list([10, 11])).unwrap();
        names.send(list([3])).unwrap();
        sleep(SECOND).await;
        assert_eq!((ports(&cluster), zone(&cluster)), (vec![3, 10, 11], None), "the source lists it");
        assert_eq!(cluster.listed(), list([10, 11]).unwrap(), "fixed backends are not saved");
    }

    #[tokio::test(start_paused = true)]
    async fn error_of_fixed_backends_keeps_them_and_is_none_of_the_source() {
        let (cluster, lists, names) = beside_a_source();
        names.send(Err("web.internal: SERVFAIL".into())).unwrap();
        sleep(SECOND).await;
        let view = cluster.discovery();
        assert_eq!(&*view.fixed_error.unwrap().error, "web.internal: SERVFAIL");
        assert_eq!((view.is_failing, view.last_error, view.counts.errors), (false, None, 0));
        lists.send(list([10, 11, 13])).unwrap();
        sleep(SECOND).await;
        assert_eq!(ports(&cluster), [1, 10, 11, 13], "the source is followed");
        lists.send(Err("the registry is unreachable".into())).unwrap();
        sleep(60 * SECOND).await;
        assert_eq!(ports(&cluster), [1, 10, 11, 13]);
        names.send(list([4])).unwrap();
        sleep(SECOND).await;
        let view = cluster.discovery();
        assert_eq!((ports(&cluster), view.fixed_error, view.is_failing), (vec![4, 10, 11, 13], None, true));
    }

    #[tokio::test(start_paused = true)]
    async fn loss_at_fixed_backends_is_held_apart_from_the_source() {
        let (cluster, lists, names) = beside_a_source();
        names.send(list([1, 2, 3])).unwrap();
        sleep(SECOND).await;
        // One third of all, and most of the fixed ones.
        names.send(list([1])).unwrap();
        sleep(SECOND).await;
        assert_eq!(ports(&cluster), [1, 2, 3, 10, 11, 12]);
        let view = cluster.discovery();
        assert_eq!((view.backends.ready, view.backends.held, view.counts.held), (4, 2, 2));
        lists.send(list([10, 11])).unwrap();
        sleep(HOLD - 2 * SECOND).await;
        assert_eq!(ports(&cluster), [1, 2, 3, 10, 11]);
        sleep(2 * SECOND).await;
        assert_eq!(ports(&cluster), [1, 10, 11]);
        let counts = cluster.discovery().counts;
        assert_eq!((counts.held, counts.expired, counts.removed), (2, 2, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn former_list_stays_beside_fixed_backends_that_change() {
        let cluster = running([7]);
        let ((lists, source), (names, fixed)) = (fake(), fake());
        cluster.follow_with(source, beside(fixed));
        for (answer, expected) in [(list([1]), [1, 7]), (list([2]), [2, 7]), (Err("refused".into()), [2, 7])] {
            names.send(answer).unwrap();
            sleep(2 * SECOND).await;
            assert_eq!(ports(&cluster), expected);
        }
        lists.send(list([8])).unwrap();
        sleep(SECOND).await;
        assert_eq!(ports(&cluster), [2, 8]);
    }

    #[tokio::test(start_paused = true)]
    async fn source_followed_on_has_its_own_fixed_backends_from_their_first_list() {
        let (cluster, _lists, _names) = beside_a_source();
        let ((_next_lists, next), (names, fixed)) = (fake(), fake());
        cluster.follow_on(next, beside(fixed));
        names.send(Err("refused".into())).unwrap();
        sleep(SECOND).await;
        assert_eq!(ports(&cluster), [1, 10, 11, 12], "no list yet");
        // No hold: another configuration.
        names.send(list([])).unwrap();
        sleep(2 * SECOND).await;
        assert_eq!(ports(&cluster), [10, 11, 12]);
    }

    #[test]
    fn late_answer_of_a_former_source_has_no_effect() {
        let [former, later] = [1, 2].map(|port| Address::from(([127, 0, 0, 1], port)));
        let members =
            |cluster: &Cluster| cluster.backends().iter().map(|view| view.backend.address()).collect::<Vec<_>>();
        let cluster = Cluster::new("test", ClusterConfig::default(), [former]);
        let [first, second] = [1, 2];
        cluster.follow(Fixed::new([later]));
        cluster.0.on_answer(first, (Part::Followed, Ok(vec![former.into()])));
        assert_eq!(members(&cluster), [later]);
        cluster.0.on_answer(second, (Part::Followed, Ok(vec![later.into(), former.into()])));
        cluster.0.settle(cluster.0.now() + Duration::from_millis(200));
        assert_eq!(members(&cluster), [later, former]);
    }
}
