//! Permits: the limit on a listener's connections, and the early end of idle ones near that limit.
//!
//! A client of a full listener waits in the kernel, and sees a server that hangs. Most of the
//! permits then belong to connections that are idle until `idle_timeout`. So the fuller the
//! listener is, the sooner idle connections end:
//!
//! ```text
//! taken      < 90%   90%   92%   94%   96%   98%   100%
//! idle for     1      ½     ¼     ⅛    1/16  1/32  1/64     of idle_timeout
//! ```
//!
//! Connections do not end that soon without need: while none had to wait for [`RECENT_WAIT`], the
//! time is a quarter at least. The rule finds its own level: new connections make the listener
//! fuller, idle ones end sooner, permits come free faster. It stores nothing. Where none is idle
//! and some wait, responses on HTTP/1 end their connection, but only after [`MIN_TENURE`]. Else,
//! with more clients than permits, each would lose its permit with each response, and clients would
//! only connect.

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

/// Share of the permits, in per cent, above which idle connections get less time. It is low, as
/// they are checked a few times a minute only.
const SHORT_PERCENT: u32 = 90;
/// Between two lines of the log about one listener.
const LOG_INTERVAL: Duration = Duration::from_secs(10);
/// Time for which a wait counts as recent.
const RECENT_WAIT: Duration = Duration::from_secs(30);
/// Halvings of the idle timeout without a recent wait.
const MAX_HALVINGS_WITHOUT_WAITS: u32 = 2;
/// For how long a connection has its permit to itself.
const MIN_TENURE: Duration = Duration::from_secs(10);

/// How often the time that a connection may be idle is halved where `taken` of `max` permits are
/// taken.
fn halvings(taken: usize, max: usize) -> u32 {
    let per_cent = (taken as u128 * 100).checked_div(max as u128).unwrap_or(100).min(100) as u32;
    let step = |above| 1 + above * (MOST_HALVINGS - 1) / (100 - SHORT_PERCENT);
    per_cent.checked_sub(SHORT_PERCENT).map_or(0, step)
}

/// The permits of a listener, for all its threads.
#[derive(Debug, Default)]
pub(crate) struct Permits {
    taken: AtomicUsize,
    max: AtomicUsize,
    /// Connections that wait for one: each thread may have one.
    waiting: AtomicUsize,
    waited: AtomicU64,
    freed: Notify,
    logged: Mutex<Option<Instant>>,
}

impl Permits {
    /// Sets the number of permits. Waiting connections check again.
    pub(crate) fn allow(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
        self.freed.notify_waiters();
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
        let halvings = halvings(self.taken(), self.max.load(Ordering::Relaxed));
        if halvings > MAX_HALVINGS_WITHOUT_WAITS && !self.have_waited_lately() {
            MAX_HALVINGS_WITHOUT_WAITS
        } else {
            halvings
        }
    }

    /// Whether a connection waits, or did recently: it was logged then, or less than
    /// [`LOG_INTERVAL`] before.
    fn have_waited_lately(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
            || self.logged.lock().is_some_and(|logged| logged.elapsed() < RECENT_WAIT)
    }

    /// Whether a connection waits, and one accepted at `since` should end for it.
    pub(crate) fn are_wanted_from(&self, since: Instant) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0 && since.elapsed() >= MIN_TENURE
    }

    fn try_take(&self) -> bool {
        let max = self.max.load(Ordering::Relaxed);
        let one_more = |taken: usize| (taken < max).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    /// Whether it may be logged again that there are none left, which it is then.
    fn may_log(&self) -> bool {
        let mut logged = self.logged.lock();
        let may = logged.is_none_or(|logged| logged.elapsed() >= LOG_INTERVAL);
        if may {
            *logged = Some(Instant::now());
        }
        may
    }

    async fn wait(&self) {
        loop {
            // Registered before the look, so that a permit freed in between wakes this one.
            let mut freed = pin!(self.freed.notified());
            freed.as_mut().enable();
            if self.try_take() {
                return;
            }
            freed.await;
        }
    }
}

/// Counts as waiting until this is dropped.
struct Waiter<'s>(&'s Permits);

impl<'s> Waiter<'s> {
    fn begin(permits: &'s Permits) -> Self {
        permits.waited.fetch_add(1, Ordering::Relaxed);
        permits.waiting.fetch_add(1, Ordering::Relaxed);
        Self(permits)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection that counts against the listener's limit until this is dropped.
pub(crate) struct Permit(Arc<Permits>);

impl Permit {
    /// Waits until a permit is free.
    pub(crate) async fn take(permits: &Arc<Permits>, limits: &ArcSwap<Limits>) -> Self {
        if !permits.try_take() {
            let _waiting = Waiter::begin(permits);
            if permits.may_log() {
                tracing::warn!(
                    listener = %limits.load().name,
                    connections = permits.taken(),
                    waited = permits.waited(),
                    "listener full, clients wait: idle connections are closed sooner; help: raise max_connections, or \
                     lower idle_timeout or max_connections_per_client"
                );
            }
            permits.wait().await;
        }
        Self(Arc::clone(permits))
    }

    /// Takes one beyond the limit, if there is none.
    pub(crate) fn take_anyway(permits: &Arc<Permits>) -> Self {
        permits.taken.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(permits))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_shrinks_as_permits_run_short() {
        for (taken, max, expected) in [
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
            assert_eq!(halvings(taken, max), expected, "{taken} of {max}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn connection_ends_for_a_waiting_one_after_its_minimum_time() {
        let permits = Permits::default();
        let since = Instant::now();
        tokio::time::sleep(MIN_TENURE).await;
        assert!(!permits.are_wanted_from(since), "nobody waits");
        let waiting = Waiter::begin(&permits);
        assert!(permits.are_wanted_from(since) && !permits.are_wanted_from(Instant::now()));
        drop(waiting);
        assert!(!permits.are_wanted_from(since));
        assert_eq!(permits.waited(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn idle_time_is_a_quarter_at_least_without_recent_waits() {
        let permits = Permits::default();
        permits.allow(1);
        assert!(permits.try_take());
        assert_eq!(permits.halvings(), 2);
        let waiting = Waiter::begin(&permits);
        assert_eq!(permits.halvings(), 6);
        assert!(permits.may_log());
        drop(waiting);
        assert_eq!(permits.halvings(), 6);
        tokio::time::sleep(RECENT_WAIT).await;
        assert_eq!(permits.halvings(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn full_listener_is_logged_at_intervals() {
        let permits = Permits::default();
        assert!(permits.may_log() && !permits.may_log());
        tokio::time::sleep(LOG_INTERVAL).await;
        assert!(permits.may_log());
    }
}
