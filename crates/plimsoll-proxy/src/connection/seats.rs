//! Seats: how many connections a listener has of those that it may have, and who makes room when there are few left.
//!
//! Whoever comes to a full listener waits in the kernel, and sees a server that hangs. Most of those who have a seat then do
//! nothing with it: they are idle until `idle_timeout`. So the fuller it is, the sooner who is idle has to go:
//!
//! ```text
//! taken      < 90%   90%   92%   94%   96%   98%   100%
//! idle for     1      ½     ¼     ⅛    1/16  1/32  1/64     of idle_timeout
//! ```
//!
//! Nobody is sent away so soon for nothing: while nobody has had to wait for [`LATELY`], the time is a quarter at the least.
//! It finds its own level: connections that come faster make it fuller, idle ones go sooner, seats come free faster; nothing has
//! to be kept in mind. Where nobody is idle and somebody waits, answers on HTTP/1 end the connection, but only of those who have had their
//! seat for [`TURN`]: else, with more clients than seats, each would lose it with each answer, and all would do nothing but connect.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::limits::Limits;
use crate::pressure::MOST_HALVINGS;

/// Per cent of the seats from which on idle connections get less time. Early, as they are looked at a few times a minute only.
const SHORT_AT: u32 = 90;
/// Between two lines of the log about one listener.
const SAY_AGAIN: Duration = Duration::from_secs(10);
/// For so long it counts that somebody had to wait.
const LATELY: Duration = Duration::from_secs(30);
/// How often the time is halved while nobody has had to wait lately.
const IN_PEACE: u32 = 2;
/// For how long a connection has its seat to itself.
const TURN: Duration = Duration::from_secs(10);

/// How often the time that a connection may be idle is halved where `taken` of `most` seats are taken.
fn halvings(taken: usize, most: usize) -> u32 {
    let per_cent = (taken as u128 * 100).checked_div(most as u128).unwrap_or(100).min(100) as u32;
    let step = |above| 1 + above * (MOST_HALVINGS - 1) / (100 - SHORT_AT);
    per_cent.checked_sub(SHORT_AT).map_or(0, step)
}

/// The seats of a listener, for all its threads.
#[derive(Debug, Default)]
pub(crate) struct Seats {
    taken: AtomicUsize,
    most: AtomicUsize,
    /// Connections that wait for one: each thread may have one.
    waiting: AtomicUsize,
    waited: AtomicU64,
    room: Notify,
    said: Mutex<Option<Instant>>,
}

impl Seats {
    /// There are so many from now on. Those who wait look again.
    pub(crate) fn allow(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
        self.room.notify_waiters();
    }

    /// Those that are taken now.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Connections that had to wait for one so far.
    pub(crate) fn waited(&self) -> u64 {
        self.waited.load(Ordering::Relaxed)
    }

    /// How often the time that a connection may be idle is halved now.
    pub(crate) fn halvings(&self) -> u32 {
        let halvings = halvings(self.taken(), self.most.load(Ordering::Relaxed));
        if halvings > IN_PEACE && !self.have_waited_lately() { IN_PEACE } else { halvings }
    }

    /// Whether somebody waits, or had to not long ago: it was said then, or less than [`SAY_AGAIN`] before.
    fn have_waited_lately(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0 || self.said.lock().is_some_and(|said| said.elapsed() < LATELY)
    }

    /// Whether somebody waits, and it is for one who came at `since` to make room.
    pub(crate) fn are_wanted_from(&self, since: Instant) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0 && since.elapsed() >= TURN
    }

    fn try_take(&self) -> bool {
        let most = self.most.load(Ordering::Relaxed);
        let one_more = |taken: usize| (taken < most).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    /// Whether it may be said again that there are none left, which it is then.
    fn may_say(&self) -> bool {
        let mut said = self.said.lock();
        let may = said.is_none_or(|said| said.elapsed() >= SAY_AGAIN);
        if may {
            *said = Some(Instant::now());
        }
        may
    }

    async fn wait(&self) {
        loop {
            // Registered before the look, so that a seat freed in between wakes this one.
            let mut room = pin!(self.room.notified());
            room.as_mut().enable();
            if self.try_take() {
                return;
            }
            room.await;
        }
    }
}

/// Counts as waiting until this is dropped.
struct Waiting<'s>(&'s Seats);

impl<'s> Waiting<'s> {
    fn begin(seats: &'s Seats) -> Self {
        seats.waited.fetch_add(1, Ordering::Relaxed);
        seats.waiting.fetch_add(1, Ordering::Relaxed);
        Self(seats)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection that counts against the listener's limit until this is dropped.
pub(crate) struct Seat(Arc<Seats>);

impl Seat {
    /// Waits until there is room for one more.
    pub(crate) async fn take(seats: &Arc<Seats>, limits: &ArcSwap<Limits>) -> Self {
        if !seats.try_take() {
            let _waiting = Waiting::begin(seats);
            if seats.may_say() {
                tracing::warn!(
                    listener = %limits.load().name,
                    connections = seats.taken(),
                    waited = seats.waited(),
                    "listener full, clients wait: idle connections are closed sooner; help: raise max_connections, or \
                     lower idle_timeout or max_connections_per_client"
                );
            }
            seats.wait().await;
        }
        Self(Arc::clone(seats))
    }

    /// One whether there is room or not.
    pub(crate) fn take_anyway(seats: &Arc<Seats>) -> Self {
        seats.taken.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(seats))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
        self.0.room.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_idle_gets_less_time_the_fewer_seats_are_left() {
        for (taken, most, expected) in [
            (0, 10, 0),
            (8, 10, 0),
            (9, 10, 1),
            (10, 10, 6),
            (0, 1, 0),
            (1, 1, 6),
            (8_999, 10_000, 0),
            (9_000, 10_000, 1),
            (9_200, 10_000, 2),
            (9_400, 10_000, 3),
            (9_600, 10_000, 4),
            (9_800, 10_000, 5),
            (9_999, 10_000, 5),
            (10_000, 10_000, 6),
            (12_000, 10_000, 6),
            (usize::MAX, usize::MAX, 6),
        ] {
            assert_eq!(halvings(taken, most), expected, "{taken} of {most}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_had_a_turn_makes_room_for_one_who_waits() {
        let seats = Seats::default();
        let since = Instant::now();
        tokio::time::sleep(TURN).await;
        assert!(!seats.are_wanted_from(since), "nobody waits");
        let waiting = Waiting::begin(&seats);
        assert!(seats.are_wanted_from(since) && !seats.are_wanted_from(Instant::now()));
        drop(waiting);
        assert!(!seats.are_wanted_from(since));
        assert_eq!(seats.waited(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_idle_keeps_a_quarter_of_the_time_while_nobody_waits() {
        let seats = Seats::default();
        seats.allow(1);
        assert!(seats.try_take());
        assert_eq!(seats.halvings(), 2);
        let waiting = Waiting::begin(&seats);
        assert_eq!(seats.halvings(), 6);
        assert!(seats.may_say());
        drop(waiting);
        assert_eq!(seats.halvings(), 6);
        tokio::time::sleep(LATELY).await;
        assert_eq!(seats.halvings(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_said_now_and_then() {
        let seats = Seats::default();
        assert!(seats.may_say() && !seats.may_say());
        tokio::time::sleep(SAY_AGAIN).await;
        assert!(seats.may_say());
    }
}
