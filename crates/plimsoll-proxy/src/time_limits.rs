//! How long a client may take: to ask, to send, to read.
//!
//! Time limits cost nothing per request. A timer for each head, body and answer would have to be armed and disarmed each
//! time; here a connection looks at itself a few times per limit: what does it wait for, and has anything come or
//! gone since the last look? A limit is kept to within half of itself on the long side, which is near enough for defence.
//!
//! Slow is not only silent. A client that sends a byte of its body, or takes one of its answer, every few seconds is never
//! silent and never done (slow body, slow read); so while we wait for the client, bytes have to move at a least rate. One that
//! stays below it for as long as it might have been idle is let go.

use std::hash::{BuildHasher as _, RandomState};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior};

use crate::activity::{Activity, Connection, Stage};
use crate::listener::Limits;

/// Which limit a connection has overstayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overdue {
    /// No request for too long.
    Idle,
    /// A head that takes too long.
    Head,
    /// A body that comes too slowly.
    Body,
    /// An answer that is taken too slowly.
    Answer,
}

/// Looks at a connection now and then.
pub(crate) struct TimeLimits {
    ticks: Interval,
    idle_timeout: Duration,
    header_read_timeout: Duration,
    /// Bytes a second; zero for any above none.
    least_rate: u64,
    last: Look,
    idle_since: Instant,
    head_since: Option<Instant>,
    slow_body_since: Option<Instant>,
    slow_answer_since: Option<Instant>,
}

/// What was seen at a look.
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
}

/// Of a number that may be any, one from 0 to 1.
fn fraction(number: u64) -> f64 {
    number as f64 / u64::MAX as f64
}

impl TimeLimits {
    /// For a connection that begins now. One that never says anything is idle from its beginning.
    pub(crate) fn new(limits: &Limits) -> Self {
        let now = Instant::now();
        let period = limits.header_read_timeout.min(limits.idle_timeout) / 2;
        let period = period.max(Duration::from_millis(1));
        // A crowd that comes at once is not to be looked at, and let go, in one go: others would wait for that.
        let first = period.mul_f64(0.5 + 0.5 * fraction(RandomState::new().hash_one(now)));
        let mut ticks = tokio::time::interval_at(now + first, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            ticks,
            idle_timeout: limits.idle_timeout,
            header_read_timeout: limits.header_read_timeout,
            least_rate: limits.min_body_rate,
            last: Look { at: now, begun: 0, stage: Stage::Idle, received: 0, sent: 0, blocked: false },
            idle_since: now,
            head_since: None,
            slow_body_since: None,
            slow_answer_since: None,
        }
    }

    /// Ready when the connection has overstayed.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, connection: &Connection) -> Poll<Overdue> {
        while let Poll::Ready(now) = self.ticks.poll_tick(cx) {
            // Where memory or seats are short, a connection may be idle for less long.
            let may_be_idle = connection.listener.shared.idle_timeout(self.idle_timeout);
            if let Some(overdue) = self.look(Look::at(now, &connection.activity), may_be_idle) {
                return Poll::Ready(overdue);
            }
        }
        Poll::Pending
    }

    fn look(&mut self, new: Look, may_be_idle: Duration) -> Option<Overdue> {
        let old = std::mem::replace(&mut self.last, new);
        let now = new.at;
        let same_request = old.begun == new.begun;

        let is_idle = same_request && new.stage == Stage::Idle;
        if !is_idle {
            self.idle_since = now;
        }
        self.head_since = (same_request && new.stage == Stage::Head).then(|| self.head_since.unwrap_or(now));

        let elapsed = now - old.at;
        let wants_body = same_request && old.stage == Stage::Body && new.stage == Stage::Body;
        let slow = wants_body && self.is_slow(new.received - old.received, elapsed);
        self.slow_body_since = slow.then(|| self.slow_body_since.unwrap_or(old.at));

        let stuck = old.blocked && new.blocked;
        let slow = stuck && self.is_slow(new.sent - old.sent, elapsed);
        self.slow_answer_since = slow.then(|| self.slow_answer_since.unwrap_or(old.at));

        let over = |since: Option<Instant>, limit: Duration| since.is_some_and(|since| now - since >= limit);
        if over(self.head_since, self.header_read_timeout) {
            Some(Overdue::Head)
        } else if is_idle && now - self.idle_since >= may_be_idle {
            Some(Overdue::Idle)
        } else if over(self.slow_body_since, self.idle_timeout) {
            Some(Overdue::Body)
        } else if over(self.slow_answer_since, self.idle_timeout) {
            Some(Overdue::Answer)
        } else {
            None
        }
    }

    /// It was not idle after all.
    pub(crate) fn is_busy(&mut self) {
        self.idle_since = self.last.at;
    }

    fn is_slow(&self, bytes: u64, elapsed: Duration) -> bool {
        bytes == 0 || u128::from(bytes) * 1_000 < u128::from(self.least_rate) * elapsed.as_millis()
    }
}
