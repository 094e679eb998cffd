//! How long a client may take: to ask, to send, to read.
//!
//! Time limits cost nothing per request. A timer for each head, body and response would have to be
//! armed and disarmed each time. Here a connection is checked a few times per limit: its stage, and
//! the bytes since the last check. A limit may be exceeded by half of itself, which suffices for
//! defence.
//!
//! Slow is not only silent. A client that sends a byte of its body, or takes one of its answer,
//! every few seconds is never silent and never done (slow body, slow read); so while we wait for
//! the client, bytes have to move at a least rate. One that is behind it by as much as it might
//! have been idle is let go (`debt`).

use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use crate::connection::Connection;
use crate::connection::activity::{Activity, Memory, Stage};
use crate::connection::end_reason::Timeout;
use crate::limits::Limits;
use plimsoll_core::debt::Debt;

/// Time and bytes for which a client is read after its last response. One that sends while its
/// connection closes gets a reset, which may overtake the response; nginx lingers likewise.
pub(crate) const LINGER: Duration = Duration::from_secs(1);
pub(crate) const LINGER_BYTES: usize = 1024 * 1024;

/// The time between two looks at a connection that waits for a request and has memory for some. It
/// gives the memory back if no request began between the two.
const REST: Duration = Duration::from_millis(500);

/// Looks at a connection now and then.
pub(crate) struct TimeLimits {
    /// The time of the next look. A connection that never waits for its client has none.
    next: Option<Pin<Box<Sleep>>>,
    last: Look,
    idle_since: Instant,
    head_since: Option<Instant>,
    /// Of the body of the request that is under way.
    body_debt: Debt,
    /// Of taking answers.
    answer_debt: Debt,
}

/// State at a look.
#[derive(Clone, Copy)]
struct Look {
    at: Instant,
    begun: u32,
    stage: Stage,
    received: u64,
    sent: u64,
    blocked: bool,
}

impl Look {
    fn at(now: Instant, activity: &Activity) -> Self {
        Self {
            at: now,
            begun: activity.begun(),
            stage: activity.stage(),
            received: activity.received(),
            sent: activity.sent(),
            blocked: activity.is_write_blocked(),
        }
    }

    /// Whether it waits for a request, and none began since `last`.
    fn waits_since(&self, last: &Self) -> bool {
        self.begun == last.begun && self.stage.is_before_request()
    }
}

/// From 0 to 1, spread evenly over the connections of a thread.
fn spread() -> f64 {
    /// The golden ratio of all numbers: each step falls into the largest gap that is left.
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    thread_local! {
        static LAST: Cell<u64> = const { Cell::new(0) };
    }
    let next = LAST.get().wrapping_add(STEP);
    LAST.set(next);
    next as f64 / u64::MAX as f64
}

/// The time between two looks.
fn period(limits: &Limits, activity: &Activity) -> Duration {
    let period = (limits.header_read_timeout.min(limits.idle_timeout) / 2).max(Duration::from_millis(1));
    let may_rest = activity.memory() == Memory::Held && activity.stage().is_before_request();
    if may_rest { period.min(REST) } else { period }
}

impl TimeLimits {
    /// For a connection that begins now. One that never says anything is idle from its beginning.
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self {
            next: None,
            last: Look { at: now, begun: 0, stage: Stage::Idle, received: 0, sent: 0, blocked: false },
            idle_since: now,
            head_since: None,
            body_debt: Debt::NONE,
            answer_debt: Debt::NONE,
        }
    }

    /// As [`poll`](Self::poll), for a connection that is one task: its timer is armed when the task
    /// first waits for the client. A connection for a single request mostly needs none.
    pub(crate) fn poll_lazily(&mut self, cx: &mut Context<'_>, connection: &Connection) -> Poll<Timeout> {
        if self.next.is_none() && !connection.activity.waits_for_client() {
            return Poll::Pending;
        }
        self.poll(cx, connection)
    }

    /// Ready when the connection has overstayed.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, connection: &Connection) -> Poll<Timeout> {
        let (limits, activity) = (&*connection.limits, &connection.activity);
        loop {
            let period = period(limits, activity);
            // A crowd that comes at once is not to be looked at, and let go, in one go: others would
            // wait for that.
            let first = || Box::pin(tokio::time::sleep(period.mul_f64(0.5 + 0.5 * spread())));
            let next = self.next.get_or_insert_with(first);
            ready!(next.as_mut().poll(cx));
            let now = Instant::now();
            let new = Look::at(now, activity);
            if activity.memory() == Memory::Held && new.waits_since(&self.last) {
                activity.set_memory(Memory::Unused);
            }
            next.as_mut().reset(now + period);
            // Where memory or permits are short, a connection may be idle for less long.
            let may_be_idle = connection.context.idle_timeout(limits.idle_timeout);
            if let Some(overdue) = self.look(new, limits, may_be_idle) {
                return Poll::Ready(overdue);
            }
        }
    }

    fn look(&mut self, new: Look, limits: &Limits, may_be_idle: Duration) -> Option<Timeout> {
        let old = std::mem::replace(&mut self.last, new);
        let now = new.at;
        let same_request = old.begun == new.begun;

        let is_idle = same_request && new.stage == Stage::Idle;
        if !is_idle {
            self.idle_since = now;
        }
        self.head_since = (same_request && new.stage == Stage::Head).then(|| self.head_since.unwrap_or(now));

        // Time counts only between two looks that both find the client waited for; bytes always
        // count.
        let elapsed = now - old.at;
        let time_if = |waits: bool| if waits { elapsed } else { Duration::ZERO };
        if same_request {
            let wants_body = old.stage == Stage::Body && new.stage == Stage::Body;
            self.body_debt.add(time_if(wants_body), new.received - old.received, limits.min_body_rate);
        } else {
            self.body_debt = Debt::NONE;
        }
        if new.blocked {
            self.answer_debt.add(time_if(old.blocked), new.sent - old.sent, limits.min_body_rate);
        } else {
            // It has taken all that there was.
            self.answer_debt = Debt::NONE;
        }

        let over = |since: Option<Instant>, limit: Duration| since.is_some_and(|since| now - since >= limit);
        if over(self.head_since, limits.header_read_timeout) {
            Some(Timeout::Head)
        } else if is_idle && now - self.idle_since >= may_be_idle {
            Some(Timeout::Idle)
        } else if self.body_debt.exceeds(limits.idle_timeout) {
            Some(Timeout::Body)
        } else if self.answer_debt.exceeds(limits.idle_timeout) {
            Some(Timeout::Answer)
        } else {
            None
        }
    }

    /// It was not idle after all.
    pub(crate) fn is_busy(&mut self) {
        self.idle_since = self.last.at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    /// The timeout of a connection, and its second. Each look, every five seconds, finds it in
    /// `stage` and `blocked` or not; `bytes` move in each period of `every` looks.
    fn ended(stage: Stage, blocked: bool, bytes: u64, every: u64) -> Option<(Timeout, u64)> {
        let (limits, mut course) = (Limits::from(&config::Listener::default()), TimeLimits::new());
        let begun = course.last.at;
        course.last = Look { begun: 1, stage, blocked, ..course.last };
        (1..1_000).find_map(|look| {
            let at = begun + Duration::from_secs(5 * look);
            let moved = bytes * (look / every);
            let look_now = Look { at, begun: 1, stage, received: moved, sent: moved, blocked };
            course.look(look_now, &limits, Duration::from_secs(75)).map(|overdue| (overdue, 5 * look))
        })
    }

    #[test]
    fn looks_are_frequent_while_unused_memory_is_held() {
        let (limits, activity) = (Limits::from(&config::Listener::default()), Activity::default());
        let periods = |memory| {
            activity.set_memory(memory);
            [Stage::Idle, Stage::Head, Stage::Busy, Stage::Body].map(|stage| {
                activity.enter(stage);
                period(&limits, &activity).as_millis()
            })
        };
        assert_eq!(periods(Memory::Free), [5_000; 4]);
        assert_eq!(periods(Memory::Held), [500, 500, 5_000, 5_000]);
        assert_eq!(periods(Memory::Unwanted), [5_000; 4]);
    }

    #[test]
    fn connection_waits_when_no_request_began_since_the_last_look() {
        let last = Look { begun: 1, stage: Stage::Busy, ..TimeLimits::new().last };
        for (begun, stage, waits) in
            [(1, Stage::Idle, true), (1, Stage::Head, true), (1, Stage::Body, false), (2, Stage::Idle, false)]
        {
            assert_eq!(Look { begun, stage, ..last }.waits_since(&last), waits, "{begun} {stage:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_now_and_then_does_not_keep_a_slow_client() {
        for (stage, blocked, overdue) in [(Stage::Body, false, Timeout::Body), (Stage::Busy, true, Timeout::Answer)] {
            assert_eq!(ended(stage, blocked, 0, 1), Some((overdue, 75)));
            assert_eq!(ended(stage, blocked, 1_200, 14), Some((overdue, 80)));
            assert_eq!(ended(stage, blocked, 1_200, 1), None);
            assert_eq!(ended(stage, blocked, 16_800, 14), None);
        }
        assert_eq!(ended(Stage::Busy, false, 0, 1), None);
    }

    #[tokio::test(start_paused = true)]
    async fn time_without_a_wait_for_the_client_does_not_count() {
        let (limits, mut course) = (Limits::from(&config::Listener::default()), TimeLimits::new());
        let begun = course.last.at;
        let mut overdue_at = |second, stage, request| {
            let at = begun + Duration::from_secs(second);
            let look = Look { at, begun: request, stage, received: 0, sent: 0, blocked: false };
            course.look(look, &limits, Duration::from_secs(75))
        };
        assert_eq!(overdue_at(5, Stage::Body, 1), None);
        assert_eq!(overdue_at(75, Stage::Body, 1), None);
        assert_eq!(overdue_at(80, Stage::Busy, 1), None);
        assert_eq!(overdue_at(200, Stage::Body, 1), None);
        assert_eq!(overdue_at(205, Stage::Body, 1), Some(Timeout::Body));
        // The next request owes nothing.
        assert_eq!(overdue_at(210, Stage::Body, 2), None);
        assert_eq!(overdue_at(280, Stage::Body, 2), None);
    }

    #[test]
    fn looks_of_a_crowd_are_spread_evenly() {
        let mut firsts: Vec<f64> = (0..1_000).map(|_| spread()).collect();
        firsts.sort_by(f64::total_cmp);
        let widest = firsts.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
        assert!(firsts[0] < 0.003 && firsts[999] > 0.997 && widest < 0.003, "{widest}");
    }
}
