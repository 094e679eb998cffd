//! One attempt at one backend, from the pick to the last byte of the response.
//!
//! The machine counts the active requests of a picked backend, so every pick must be finished
//! exactly once: by an answer, by an error, or because the caller leaves at any point. An
//! [`Attempt`] is that promise: dropped unfinished, it finishes as cancelled. Its end takes the
//! cluster's lock once, for the outcome and the load report together.

mod abandoned;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Context;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use plimsoll_core::batch::Fate;
use plimsoll_core::throttle::{self, AttemptEvidence, Wait};
use plimsoll_core::{BackendId, Outcome, Timestamp};
use tokio::time::Instant;

use self::abandoned::Abandoned;
use super::attempt_end::{AttemptEnd, Blame, Lesson, Metric};
use super::batch::Place;
use super::cluster::{Done, Kind, Report, Shared, Since, Taken, Unanswered};
use super::preemption::Preemption;
use super::stream_id::StreamId;
use super::trace::{AttemptSpan, AttemptSummary};

/// The HTTP/2 connections of a client, and its cluster.
///
/// A trait, so that the body of a response need not carry the type of the request's body.
pub(crate) trait Streams: Send + Sync {
    fn cluster(&self) -> &Shared;
    /// A request on an HTTP/2 connection is over. Without an answer, it has waited since
    /// `in_vain_since`.
    fn give_back(&self, stream: StreamId, in_vain_since: Option<Timestamp>, now: Timestamp);
    /// An attempt at this backend has ended: exactly once for each pick.
    fn finish(&self, now: Timestamp, id: BackendId, done: &Done) {
        self.cluster().finish(now, id, done);
    }
    /// The throttle learns the outcome of an attempt that keeps its slot.
    fn taken(&self, now: Timestamp, taken: Taken) {
        self.cluster().taken(now, taken);
    }
}

/// Attempts at two backends for one request. The first answer counts.
#[derive(Clone, Default)]
pub(crate) struct Race(Arc<AtomicBool>);

impl Race {
    /// One has won. The other is withdrawn: its wait is no evidence about its backend.
    pub(crate) fn end(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// One attempt at one backend.
pub(crate) struct Attempt {
    home: Arc<dyn Streams>,
    id: BackendId,
    started: Timestamp,
    kind: Kind,
    /// How the cluster ends it early, and under which key, once it may have to.
    preemption: Option<(Arc<Preemption>, usize)>,
    /// Longest wait for the answer; the caller may have less time.
    limit: Duration,
    /// From when on there was the connection that it is on; when it began, if one was there.
    connected_at: Timestamp,
    /// The throttle was told of this attempt.
    is_told: bool,
    /// When all of the request was on its way.
    sent_at: Option<Timestamp>,
    /// When the backend had the last piece of the request so far: latency is measured from here.
    asked_at: Timestamp,
    /// The caller owes more of the request; the backend has all that came so far.
    awaits_caller: bool,
    stream: Option<StreamId>,
    status: Option<StatusCode>,
    /// The end as the head of the response decides it, and the throttle's view of that.
    head: Option<(AttemptEnd, AttemptEvidence)>,
    latency: Option<Duration>,
    report: Report,
    /// The request's right to be at a backend, if it is batch work.
    place: Option<Box<Place>>,
    /// The other attempt of the request, if it may have two at a time.
    race: Option<Race>,
    /// Its span, if its request is traced.
    span: Option<Box<dyn AttemptSpan>>,
    /// The request is over when this is dropped, and well: so with a connection that left HTTP.
    ends_by_drop: bool,
    open: bool,
}

impl Attempt {
    /// A new attempt at a backend that [`Shared::pick`] returned.
    pub(crate) fn new(home: Arc<dyn Streams>, id: BackendId, started: Timestamp, kind: Kind) -> Self {
        Self {
            home,
            id,
            started,
            kind,
            preemption: None,
            limit: Duration::MAX,
            connected_at: started,
            asked_at: started,
            is_told: false,
            sent_at: None,
            awaits_caller: false,
            stream: None,
            status: None,
            head: None,
            latency: None,
            report: Report::None,
            place: None,
            race: None,
            span: None,
            ends_by_drop: false,
            open: true,
        }
    }

    /// The same, with a place for batch work, kept as long as the attempt. Credit admitted the
    /// request and not the throttle, so the throttle is not told of it.
    pub(crate) fn in_place(mut self, place: Option<Box<Place>>) -> Self {
        self.is_told = place.is_some();
        self.place = place;
        self
    }

    /// The same of a request that may have two attempts at a time.
    pub(crate) fn in_race(mut self, race: Option<Race>) -> Self {
        self.race = race;
        self
    }

    /// The same of a request that waits no longer than this for an answer.
    pub(crate) fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Its request is traced, and this is its span.
    pub(crate) fn traced(&mut self, span: Box<dyn AttemptSpan>) {
        self.span = Some(span);
    }

    pub(crate) fn id(&self) -> BackendId {
        self.id
    }

    /// How the cluster ends it early: from now on it may, when the request waits for its client.
    pub(crate) fn preemption(&mut self) -> &Arc<Preemption> {
        let Self { home, kind, .. } = self;
        let (preemption, _) = self.preemption.get_or_insert_with(|| {
            let cluster = home.cluster();
            let preemption = Preemption::new(*cluster.clock());
            let key = cluster.register(preemption.clone(), kind.holders());
            (preemption, key)
        });
        preemption
    }

    /// Whether it has not ended yet.
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    /// Whether the cluster may end it early.
    pub(crate) fn has_preemption(&self) -> bool {
        self.preemption.is_some()
    }

    /// Whether it was ended early. Has the task of `cx` woken when that happens.
    pub(crate) fn is_preempted(&self, cx: &Context<'_>) -> bool {
        self.preemption.as_ref().is_some_and(|(preemption, _)| {
            preemption.watch(cx.waker());
            preemption.is_ended()
        })
    }

    /// The request was refused, and comes back if it is batch work.
    pub(crate) fn refused(&mut self) {
        if let Some(place) = &mut self.place {
            place.rejected();
        }
    }

    /// The request is on this connection now.
    pub(crate) fn sent_on(&mut self, stream: StreamId) {
        self.stream = Some(stream);
    }

    /// Restarts the latency measurement: the request waited for a connection, or begins anew on
    /// another.
    pub(crate) fn connected(&mut self) {
        self.connected_at = self.home.cluster().now();
        self.asked_at = self.connected_at;
        self.sent_at = None;
    }

    /// The connection is of no more use to this attempt.
    pub(crate) fn leave_connection(&mut self) {
        self.connected();
        if let Some(stream) = self.stream.take() {
            self.home.give_back(stream, None, self.connected_at);
        }
    }

    /// Whether all of the request is on its way. `moved` is the time of its last piece; `None` if
    /// all of it was there from the start.
    pub(crate) fn set_sent(&mut self, is_sent: bool, moved: Option<Instant>) {
        let from = self.connected_at;
        self.asked_at = moved.map_or(from, |moved| self.home.cluster().clock().at(moved).max(from));
        self.sent_at = is_sent.then_some(self.asked_at);
    }

    /// Whether the attempt waits for the caller, and not for the backend.
    pub(crate) fn set_awaits_caller(&mut self, awaits_caller: bool) {
        self.awaits_caller = awaits_caller;
    }

    /// The head of the response has come, and decides this end, if any.
    pub(crate) fn answered(&mut self, status: StatusCode, end: Option<AttemptEnd>) {
        self.status = Some(status);
        self.head = end.map(|end| (end, self.view(end.row().throttle)));
        self.latency = Some(self.waited());
    }

    /// Reads the load report in the head or the trailers, if there is one.
    pub(crate) fn read_report(&mut self, headers: &HeaderMap) {
        match self.home.cluster().load_reports().read(headers) {
            None => {}
            Some(Ok(load)) => {
                if let Some(place) = &self.place {
                    place.reported(&load);
                }
                self.report = Report::Load(load);
            }
            Some(Err(_)) => self.report = Report::Malformed,
        }
    }

    /// Reports the head of the response at once instead of at the end. A report would be old at the
    /// end of a long body, and a lame duck must be known at once. The same holds for an accepted
    /// request.
    pub(crate) fn report_now(&mut self) {
        let report = std::mem::replace(&mut self.report, Report::None);
        let cluster = self.home.cluster();
        let outcome = self.head_view().outcome();
        let is_taken = !self.is_told && cluster.throttles() && outcome == throttle::Outcome::Accepted;
        self.is_told |= is_taken;
        let taken = Taken { kind: self.kind, outcome };
        cluster.report(cluster.now(), self.id, &report, is_taken.then_some(taken));
    }

    /// The connection speaks another protocol from here on. The request lasts until this is
    /// dropped.
    pub(crate) fn upgraded(&mut self) {
        self.ends_by_drop = true;
        self.report_now();
    }

    /// The response is complete. `end` counts unless the head decided already.
    pub(crate) fn complete(&mut self, end: AttemptEnd) {
        if self.ends_by_drop {
            return;
        }
        if self.status.is_none() {
            return self.fail(AttemptEnd::Closed);
        }
        let (end, view) = self.head.unwrap_or_else(|| (end, self.view(end.row().throttle)));
        self.end(end, end.row().outcome, view);
    }

    /// The attempt ended before its response was complete.
    pub(crate) fn fail(&mut self, end: AttemptEnd) {
        let row = end.row();
        if row.blame == Blame::Wait {
            return self.time_out(end, self.limit);
        }
        let view = match self.status {
            Some(_) => self.head_view(),
            None => self.view(row.throttle),
        };
        match (row.blame, view) {
            (Blame::Nobody, _) => self.end_without_blame(end, view),
            // A wait counts as it did when the head came.
            (Blame::Caller, view) if self.status.is_some() && !matches!(view, AttemptEvidence::Unanswered(_)) => {
                self.end(end, row.outcome, AttemptEvidence::Answered);
            }
            (Blame::Backend | Blame::Caller | Blame::Wait, _) => self.end(end, row.outcome, view),
        }
    }

    /// The end is nobody's fault. Blame in the head of a response stands.
    fn end_without_blame(&mut self, end: AttemptEnd, view: AttemptEvidence) {
        let blamed = self.head.map(|(head, _)| head).filter(|head| head.blames_backend());
        self.end(end, blamed.map_or(Outcome::Cancelled, |head| head.row().outcome), view);
    }

    /// The time of the request was up before there was an answer; `limit` is set for such a request,
    /// though its caller may have left it less.
    ///
    /// No backend can answer a request before its caller has sent it, and a backend is not to blame for
    /// how little time a caller leaves: by a millisecond, anybody could have all backends ejected. A
    /// backend that has answered nobody for long may hang, as in [`throttle`](plimsoll_core::throttle).
    pub(crate) fn time_out(&mut self, end: AttemptEnd, limit: Duration) {
        if self.awaits_caller {
            let view = self.status.map_or(AttemptEvidence::Cancelled, |_| self.head_view());
            return self.end_without_blame(end, view);
        }
        let Unanswered { of_backend, of_all } = self.unanswered(limit);
        let outcome = if of_backend.is_long() { end.row().outcome } else { Outcome::Cancelled };
        self.end(end, outcome, AttemptEvidence::Unanswered(of_all));
    }

    /// The throttle's view of an end without a head, or of the head itself.
    fn view(&self, lesson: Lesson) -> AttemptEvidence {
        match lesson {
            Lesson::Accepted => AttemptEvidence::Answered,
            Lesson::Shed => AttemptEvidence::Shed,
            // A shed request is as fast as a failure, so the balancer avoids the backend all the same.
            Lesson::Throttled => AttemptEvidence::Throttled,
            Lesson::ConnectRefused => AttemptEvidence::ConnectRefused,
            // A connection that breaks after the head of a response was answered.
            Lesson::Lost => AttemptEvidence::Lost(self.home.cluster().lost(self.started)),
            Lesson::Waited => AttemptEvidence::Unanswered(self.unanswered(self.limit).of_all),
            // So little time may have been left that this says nothing: as if this side had stopped waiting.
            Lesson::WaitedWithinLimit => {
                AttemptEvidence::Unanswered(Wait { silence: None, ..self.unanswered(self.limit).of_all })
            }
            Lesson::Nothing => AttemptEvidence::Cancelled,
        }
    }

    /// The throttle's view of a response whose head has come.
    fn head_view(&self) -> AttemptEvidence {
        self.head.map_or(AttemptEvidence::Answered, |(_, view)| view)
    }

    /// The time since the backend has had the request, as far as it was sent. The caller's upload
    /// and the opening of a connection do not count.
    fn waited(&self) -> Duration {
        self.home.cluster().now().since(self.asked_at)
    }

    fn unanswered(&self, limit: Duration) -> Unanswered {
        let since = self.sent_at.map_or(Since::Picked(self.started), Since::Sent);
        self.home.cluster().unanswered(self.id, since, limit)
    }

    /// Its caller has left before it was answered. The outcome is reported now; the slot stays
    /// taken as long as the returned value lives. `None` if it has ended, was answered, or nothing
    /// of it was sent.
    pub(crate) fn abandon(&mut self) -> Option<Abandoned> {
        if !self.open || self.status.is_some() || self.ends_by_drop {
            return None;
        }
        self.open = false;
        let home = self.home.clone();
        let cluster = home.cluster();
        let end = self.unanswered_end();
        let ended = self.view(end.row().throttle);
        let now = cluster.now();
        self.leave_stream(now);
        self.end_span(end, Outcome::Cancelled);
        if !self.is_told {
            home.taken(now, Taken { kind: self.kind, outcome: ended.outcome() });
        }
        let mut place = self.place.take();
        if let (Some(place), throttle::Outcome::Rejected) = (&mut place, ended.outcome()) {
            place.rejected();
        }
        let done = Done {
            kind: self.kind,
            outcome: Outcome::Cancelled,
            end,
            answered: None,
            latency: None,
            report: self.report,
            taken: None,
            preemptible: self.preemption.as_ref().map(|(_, key)| *key),
        };
        let (id, started, limit) = (self.id, self.started, self.limit);
        let preemption = self.preemption.take();
        Some(Abandoned { home, id, started, done, limit, place, preemption })
    }

    /// Gives the stream back, if it is on one.
    fn leave_stream(&mut self, now: Timestamp) {
        if let Some(stream) = self.stream.take() {
            let in_vain_since = self.sent_at.filter(|_| self.status.is_none());
            self.home.give_back(stream, in_vain_since, now);
        }
    }

    /// The end of an attempt that is dropped before it was answered.
    fn unanswered_end(&self) -> AttemptEnd {
        match &self.race {
            Some(race) if race.is_over() => AttemptEnd::Withdrawn,
            _ => AttemptEnd::Left,
        }
    }

    fn end(&mut self, end: AttemptEnd, outcome: Outcome, view: AttemptEvidence) {
        if !std::mem::replace(&mut self.open, false) {
            return;
        }
        let now = self.home.cluster().now();
        self.leave_stream(now);
        let (row, taken) = (end.row(), view.outcome());
        let mut place = self.place.take();
        if let Some(place) = &mut place {
            let of_row = row.credit.filter(|_| self.status.is_none());
            match (of_row, taken) {
                (Some(Fate::Rejected), _) | (_, throttle::Outcome::Rejected) => place.rejected(),
                (Some(Fate::Accepted), _) | (None, throttle::Outcome::Accepted) => place.accepted(),
                (Some(Fate::Unknown), _) | (None, throttle::Outcome::Unknown) => {}
            }
        }
        let taken = (!self.is_told).then_some(Taken { kind: self.kind, outcome: taken });
        // Kept until the cluster's lock is released: the last handle drops the waker of a task.
        let preemption = self.preemption.take();
        let preemptible = preemption.as_ref().map(|(_, key)| *key);
        if outcome == Outcome::TimedOut {
            // The latency is at least this.
            self.latency = self.latency.or(Some(self.waited()));
        }
        let answered = self.status.filter(|_| row.metric == Metric::Response);
        let (kind, latency, report) = (self.kind, self.latency, self.report);
        let done = Done { kind, outcome, end, answered, latency, report, taken, preemptible };
        self.home.finish(now, self.id, &done);
        self.end_span(end, outcome);
        // Last, so that the next request that gets the place finds the backend free.
        drop(place);
    }

    fn end_span(&mut self, end: AttemptEnd, outcome: Outcome) {
        let Some(span) = self.span.take() else { return };
        let (row, status) = (end.row(), self.status);
        let is_lost = status.is_none() && end != AttemptEnd::Withdrawn;
        span.end(&AttemptSummary {
            end: row.name,
            status,
            is_shed: end.is_shed(),
            is_failure: is_lost || !matches!(outcome, Outcome::Success | Outcome::Cancelled),
        });
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if std::mem::replace(&mut self.ends_by_drop, false) {
            self.complete(AttemptEnd::Served);
        } else if self.open {
            match self.head {
                // A head that blames the backend stands, even if nobody reads on.
                Some((head, view)) if head.blames_backend() => self.end(head, head.row().outcome, view),
                _ if self.status.is_none() && self.stream.is_some() => {
                    if let Some(abandoned) = self.abandon() {
                        abandoned.for_usual_time();
                    }
                }
                _ => self.fail(self.unanswered_end()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use plimsoll_core::Operation;
    use plimsoll_core::throttle::ThrottlePolicy;

    use super::*;
    use crate::client::cluster::{Cluster, Found};
    use crate::client::config::ClusterConfig;
    use crate::discover::Endpoint;

    /// A client without connections.
    struct Nowhere(Cluster);

    impl Streams for Nowhere {
        fn cluster(&self) -> &Shared {
            &self.0.0
        }

        fn give_back(&self, _: StreamId, _: Option<Timestamp>, _: Timestamp) {}
    }

    fn nowhere() -> Arc<Nowhere> {
        let config = ClusterConfig { throttle: ThrottlePolicy::default(), ..ClusterConfig::default() };
        let address = crate::address::Address::from(([127, 0, 0, 1], 1));
        let cluster = Cluster::new("test", config, [Endpoint::from(address)]);
        let (id, _) = cluster.0.members()[0];
        cluster.0.connected(id);
        Arc::new(Nowhere(cluster))
    }

    fn attempt(home: &Arc<Nowhere>) -> Option<Attempt> {
        attempt_of(home, Kind::default())
    }

    fn attempt_of(home: &Arc<Nowhere>, kind: Kind) -> Option<Attempt> {
        let now = home.cluster().now();
        match home.cluster().pick(now, kind) {
            Found::Backend(id, _) => Some(Attempt::new(home.clone(), id, now, kind)),
            Found::Held(_) => None,
            _ => panic!("the backend is healthy, and has room"),
        }
    }

    /// As many as it takes for the client to know how long answers usually take.
    fn answer_some(home: &Arc<Nowhere>) {
        for _ in 0..50 {
            let mut attempt = attempt(home).expect("nothing is held back");
            attempt.answered(StatusCode::OK, Some(AttemptEnd::Served));
            attempt.complete(AttemptEnd::Served);
        }
    }

    fn sent(home: &Arc<Nowhere>) -> Option<Attempt> {
        let mut attempt = attempt(home)?;
        attempt.set_sent(true, None);
        Some(attempt)
    }

    /// Each attempt is dropped, as by a caller that leaves. A few of fifty requests are sent: one
    /// probe every half second at most, within a factor of two for chance.
    #[tokio::test(start_paused = true)]
    async fn a_backend_that_never_answers_is_sent_next_to_nothing_though_its_callers_leave_first() {
        let home = nowhere();
        answer_some(&home);
        let (mut out, mut count) = (VecDeque::new(), 0);
        for tick in 0..100 {
            // So that no answer is as young as the first of them.
            tokio::time::advance(Duration::from_millis(100)).await;
            out.push_back(sent(&home));
            if tick >= 50 {
                count += u32::from(out.back().is_some_and(Option::is_some));
            }
            if out.len() > 10 {
                out.pop_front();
            }
        }
        assert!(count <= 20, "{count}");
    }

    fn of_operation(operation: Operation) -> Kind {
        Kind { operation, ..Kind::default() }
    }

    /// Sends twenty requests a second for one operation, while those of another, at ten times that
    /// rate, end in a fault. Returns the number of the first that are sent, of 200.
    async fn sent_beside(fault: impl Fn(Attempt)) -> u32 {
        let home = nowhere();
        let (good, bad) = (of_operation(Operation::new(1, 1)), of_operation(Operation::new(2, 2)));
        let mut sent = 0;
        for tick in 0..2_000 {
            tokio::time::advance(Duration::from_millis(5)).await;
            if let Some(bad) = attempt_of(&home, bad) {
                fault(bad);
            }
            if tick % 10 == 0
                && let Some(mut good) = attempt_of(&home, good)
            {
                sent += 1;
                good.answered(StatusCode::OK, Some(AttemptEnd::Served));
                good.complete(AttemptEnd::Served);
            }
        }
        sent
    }

    #[tokio::test(start_paused = true)]
    async fn operation_that_is_lost_or_overloaded_holds_back_no_other() {
        let lost = sent_beside(|mut attempt| attempt.fail(AttemptEnd::Closed)).await;
        let overloaded = sent_beside(|mut attempt| {
            attempt.answered(StatusCode::SERVICE_UNAVAILABLE, Some(AttemptEnd::PushedBack));
            attempt.complete(AttemptEnd::Served);
        })
        .await;
        assert_eq!((lost, overloaded), (200, 200));
    }

    /// Half a second, and fourteen losses more; then a probe each half second at most.
    #[tokio::test(start_paused = true)]
    async fn losses_are_held_back_for_when_nobody_is_answered() {
        let (home, mut sent) = (nowhere(), 0);
        for _ in 0..1_000 {
            tokio::time::advance(Duration::from_millis(10)).await;
            if let Some(mut lost) = attempt(&home) {
                sent += 1;
                lost.fail(AttemptEnd::Closed);
            }
        }
        assert!((64..150).contains(&sent), "{sent}");
    }

    /// The second half of a body never comes, or a page is slow and its reader impatient: no other
    /// client may suffer for it.
    #[tokio::test(start_paused = true)]
    async fn who_leaves_while_others_are_answered_or_has_not_sent_all_says_nothing() {
        for (is_sent, others_are_answered) in [(false, false), (true, true)] {
            let home = nowhere();
            answer_some(&home);
            for _ in 0..100 {
                tokio::time::advance(Duration::from_millis(100)).await;
                let mut left = attempt(&home).expect("nothing is held back");
                left.set_sent(is_sent, None);
                tokio::time::advance(Duration::from_secs(5)).await;
                if others_are_answered {
                    let mut other = attempt(&home).expect("nothing is held back");
                    other.answered(StatusCode::OK, Some(AttemptEnd::Served));
                    other.complete(AttemptEnd::Served);
                }
            }
            assert_eq!(home.0.counts().throttled, [0; 4]);
        }
    }

    /// While others are answered, the limit of a wait is that of its own request.
    #[tokio::test(start_paused = true)]
    async fn who_leaves_early_what_may_take_long_says_nothing() {
        for (limit, is_held) in [(300, false), (8, true)] {
            let home = nowhere();
            answer_some(&home);
            let mut held = 0;
            for _ in 0..100 {
                tokio::time::advance(Duration::from_millis(100)).await;
                let mut leave =
                    [(); 4].map(|()| attempt(&home).map(|attempt| attempt.within(Duration::from_secs(limit))));
                leave.iter_mut().flatten().for_each(|attempt| attempt.set_sent(true, None));
                held += leave.iter().filter(|attempt| attempt.is_none()).count();
                tokio::time::advance(Duration::from_secs(5)).await;
                if let Some(mut other) = attempt(&home) {
                    other.answered(StatusCode::OK, Some(AttemptEnd::Served));
                    other.complete(AttemptEnd::Served);
                }
            }
            assert_eq!(held > 0, is_held, "{limit} s: {held}");
        }
    }

    /// A backend that takes long to be connected to has not had the request for as long.
    #[tokio::test(start_paused = true)]
    async fn an_answer_is_waited_for_from_when_there_is_a_connection() {
        let home = nowhere();
        answer_some(&home);
        for _ in 0..20 {
            let mut leave = [(); 10].map(|()| attempt(&home).expect("nothing is held back"));
            tokio::time::advance(Duration::from_secs(20)).await;
            for attempt in &mut leave {
                attempt.connected();
                attempt.set_sent(true, None);
            }
            tokio::time::advance(Duration::from_millis(40)).await;
        }
        assert_eq!(home.0.counts().throttled, [0; 4]);
    }

    #[tokio::test(start_paused = true)]
    async fn callers_who_leave_at_once_say_nothing_nor_does_a_millisecond_that_was_left() {
        let home = nowhere();
        for leaves in [true, false].into_iter().cycle().take(200) {
            let mut attempt = attempt(&home).expect("nothing is held back");
            tokio::time::advance(Duration::from_millis(1)).await;
            if !leaves {
                attempt.time_out(AttemptEnd::Timeout, Duration::from_secs(60));
            }
        }
        assert_eq!(home.0.counts().throttled, [0; 4]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_another_overtook_says_nothing_however_long_it_took() {
        for (is_over, is_blamed) in [(true, false), (false, true)] {
            let (home, mut out) = (nowhere(), VecDeque::new());
            answer_some(&home);
            for _ in 0..100 {
                tokio::time::advance(Duration::from_millis(100)).await;
                let race = Race::default();
                out.push_back((sent(&home).map(|attempt| attempt.in_race(Some(race.clone()))), race));
                if out.len() > 10
                    && let Some((overtaken, race)) = out.pop_front()
                {
                    if is_over {
                        race.end();
                    }
                    drop(overtaken);
                }
            }
            assert_eq!(home.0.counts().throttled != [0; 4], is_blamed);
        }
    }

    /// Three attempts, each with little time left by its caller: no evidence about the backend,
    /// unless it hangs.
    #[tokio::test(start_paused = true)]
    async fn a_backend_is_not_blamed_for_how_little_time_a_sender_leaves_it() {
        for (left, is_sent, others_are_answered, failures) in [
            (Duration::from_millis(1), true, false, 0),
            (Duration::from_millis(49), true, false, 0),
            // The second and the third, for then it has answered nobody for half a second.
            (Duration::from_millis(300), true, false, 2),
            (Duration::from_millis(300), true, true, 0),
            (Duration::from_millis(300), false, false, 0),
            (Duration::from_secs(5), true, true, 0),
            (Duration::from_secs(5), false, false, 0),
            (Duration::from_secs(5), true, false, 3),
            (Duration::from_secs(30), true, true, 3),
        ] {
            let home = nowhere();
            answer_some(&home);
            for _ in 0..3 {
                tokio::time::advance(Duration::from_millis(100)).await;
                let mut late = attempt(&home).expect("nothing is held back yet");
                late.set_sent(is_sent, None);
                tokio::time::advance(left).await;
                if others_are_answered {
                    let mut other = attempt(&home).expect("nothing is held back yet");
                    other.answered(StatusCode::OK, Some(AttemptEnd::Served));
                    other.complete(AttemptEnd::Served);
                }
                late.time_out(AttemptEnd::Timeout, Duration::from_secs(60));
            }
            let view = &home.0.backends()[0];
            assert_eq!(
                (view.snapshot.failures, view.counts.timed_out),
                (failures, 3),
                "{left:?} {others_are_answered}"
            );
        }
    }

    /// Latency is the backend's: neither the caller's upload is part of it nor the wait for a connection.
    #[tokio::test(start_paused = true)]
    async fn latency_begins_when_the_backend_has_the_whole_request() {
        const SLOW: Duration = Duration::from_secs(3);
        const OWN: Duration = Duration::from_millis(20);
        for (connects, uploads, is_whole) in [(true, false, true), (false, true, true), (false, true, false)] {
            let home = nowhere();
            let mut slow = attempt(&home).expect("nothing is held back");
            tokio::time::advance(SLOW).await;
            if connects {
                slow.connected();
            }
            slow.set_sent(is_whole, uploads.then(Instant::now));
            tokio::time::advance(OWN).await;
            slow.answered(StatusCode::OK, Some(AttemptEnd::Served));
            slow.complete(AttemptEnd::Served);
            let latency = home.0.backends()[0].snapshot.latency.expect("it has answered");
            assert!(latency.abs_diff(OWN) < Duration::from_millis(1), "{connects} {uploads} {is_whole}: {latency:?}");
        }
    }

    /// Else any caller could hold the others back, and have their backends ejected.
    #[tokio::test(start_paused = true)]
    async fn a_caller_who_is_out_of_time_with_its_body_says_nothing() {
        let home = nowhere();
        answer_some(&home);
        for _ in 0..100 {
            let mut late = attempt(&home).expect("nothing is held back");
            tokio::time::advance(Duration::from_secs(60)).await;
            late.set_awaits_caller(true);
            late.time_out(AttemptEnd::Timeout, Duration::from_secs(60));
        }
        assert_eq!(home.0.counts().throttled, [0; 4]);
        let view = &home.0.backends()[0];
        assert_eq!((view.snapshot.failures, view.counts.timed_out), (0, 100));
    }

    /// The last piece of the body came late: the wait for an answer begins there.
    #[tokio::test(start_paused = true)]
    async fn who_has_taken_long_to_send_all_and_leaves_at_once_says_nothing() {
        let home = nowhere();
        answer_some(&home);
        for _ in 0..100 {
            let mut left = attempt(&home).expect("nothing is held back");
            tokio::time::advance(Duration::from_secs(50)).await;
            left.set_sent(true, Some(Instant::now()));
            tokio::time::advance(Duration::from_millis(40)).await;
        }
        assert_eq!(home.0.counts().throttled, [0; 4]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_runs_into_the_limit_that_is_set_is_held_back_however_short_that_is() {
        let home = nowhere();
        let mut held = 0;
        for _ in 0..200 {
            let Some(mut attempt) = attempt(&home) else {
                held += 1;
                continue;
            };
            tokio::time::advance(Duration::from_millis(20)).await;
            attempt.time_out(AttemptEnd::Timeout, Duration::from_millis(20));
        }
        assert!(held > 100, "{held}");
    }
}
