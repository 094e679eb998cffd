//! Under pressure on memory or file descriptors the proxy holds less, then accepts nothing new.
//!
//! The control side checks every quarter of a second. The result is a level that all threads read
//! ([`Pressure`]). A request costs one relaxed load.
//!
//! | level | what it does |
//! |---|---|
//! | shrink | idle connections of clients are closed, those that are idle the longest first: the time that they may be idle is halved each second. HTTP/1 connections close after their request, new HTTP/2 connections get the smallest windows. |
//! | refuse | besides, new connections are accepted and closed, new requests get 503 with `Retry-After`. What is under way goes on. |
//!
//! Descriptors that ran out make it shrink for ten seconds, as idle connections hold most of them.

pub(crate) mod descriptors;
mod level;
mod memory;

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use plimsoll_core::Timestamp;
use plimsoll_system::{Owner, memory_limit};
use tokio::time::{Instant, MissedTickBehavior};

use crate::config::MemoryLimit;
pub(crate) use level::Level;
use level::Levels;
use memory::Gauge;

/// Between two looks. At 1 GB/s of new memory 250 MB, about the width of a level on a small
/// machine.
const LOOK: Duration = Duration::from_millis(250);
/// Looks in one second.
const LOOKS_PER_SECOND: u32 = 4;
/// Looks for which idle connections are closed after descriptors ran out: ten seconds.
const SHORTAGE_LOOKS: u32 = 10 * LOOKS_PER_SECOND;
/// Looks between two log lines of one shortage: ten seconds.
const LOG_LOOKS: u32 = 10 * LOOKS_PER_SECOND;
/// An idle connection keeps at least this share of its time: 75 s become 1.2 s after six seconds.
pub(crate) const MOST_HALVINGS: u32 = 6;

/// How short the process is of memory and descriptors, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PressureView {
    /// 0 is normal, 1 is that it holds less, 2 that it takes nothing new.
    pub level: u8,
    /// The limit of memory, in bytes; `None` for none.
    pub max_bytes: Option<u64>,
    /// File descriptors that are open; `None` where the system does not say.
    pub open_descriptors: Option<u64>,
    /// File descriptors that may be open; `None` for any number.
    pub max_descriptors: Option<u64>,
}

/// How short the process is of memory and descriptors, for all its threads.
#[derive(Debug, Default)]
pub(crate) struct Pressure {
    level: AtomicU8,
    /// How often the time that a connection may be idle is halved.
    halvings: AtomicU32,
    /// 0 for no limit.
    max_bytes: AtomicU64,
    /// Looks until a want of descriptors counts as over.
    shortage: AtomicU32,
    /// Connections closed for want of descriptors.
    turned_away: AtomicU64,
}

impl Pressure {
    /// The level now.
    pub(crate) fn level(&self) -> Level {
        match self.level.load(Ordering::Relaxed) {
            0 => Level::Normal,
            1 => Level::Shrink,
            _ => Level::Refuse,
        }
    }

    /// Whether new work should take little memory, and be kept no longer than needed.
    pub(crate) fn is_lean(&self) -> bool {
        self.level() >= Level::Shrink
    }

    /// Whether nothing new is taken.
    pub(crate) fn refuses(&self) -> bool {
        self.level() >= Level::Refuse
    }

    /// How long a connection may be idle now that may be idle for `configured` otherwise; halved
    /// `at_least` so often.
    pub(crate) fn idle_timeout(&self, configured: Duration, at_least: u32) -> Duration {
        configured / (1 << self.halvings.load(Ordering::Relaxed).max(at_least).min(MOST_HALVINGS))
    }

    /// All of it, for metrics.
    pub(crate) fn view(&self) -> PressureView {
        let max_bytes = self.max_bytes.load(Ordering::Relaxed);
        PressureView {
            level: self.level() as u8,
            max_bytes: (max_bytes > 0).then_some(max_bytes),
            open_descriptors: descriptors::open_count(),
            max_descriptors: descriptors::limit(),
        }
    }

    /// The limit from now on; `None` for none.
    pub(crate) fn limit_memory(&self, limit: Option<MemoryLimit>) {
        let bytes = limit.and_then(|limit| limit.bytes(memory_limit(Owner::ThisProcess)));
        self.max_bytes.store(bytes.unwrap_or(0), Ordering::Relaxed);
    }

    /// Descriptors ran out, and this number of connections was rejected.
    pub(crate) fn on_shortage(&self, turned_away: u64) {
        self.shortage.store(SHORTAGE_LOOKS, Ordering::Relaxed);
        self.turned_away.fetch_add(turned_away, Ordering::Relaxed);
    }

    /// No pressure yet, and a task that keeps checking until the last handle is dropped. Call it
    /// within a tokio runtime.
    pub(crate) fn watched() -> Arc<Self> {
        let pressure = Arc::<Self>::default();
        tokio::spawn(watch(Arc::downgrade(&pressure)));
        pressure
    }
}

async fn watch(pressure: Weak<Pressure>) {
    let begun = Instant::now();
    let gauge = Gauge::open();
    let mut watch = Watch::default();
    let mut looks = tokio::time::interval_at(begun, LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let now = Timestamp::from_origin(looks.tick().await - begun);
        let Some(pressure) = pressure.upgrade() else { return };
        watch.look(&pressure, now, gauge.resident_bytes().unwrap_or(0));
    }
}

/// The control side's state from look to look.
#[derive(Default)]
struct Watch {
    levels: Levels,
    /// The level of memory that was logged last.
    logged: Level,
    lean_looks: u32,
    /// Rejected connections at the last line of the log.
    logged_turned_away: u64,
    /// Looks until that may be logged again.
    log_again: u32,
}

impl Watch {
    fn look(&mut self, pressure: &Pressure, now: Timestamp, used: u64) {
        let level = match pressure.max_bytes.load(Ordering::Relaxed) {
            0 => Level::Normal,
            max => self.levels.on_sample(now, used, max),
        };
        self.log_memory(level, used, pressure);
        let shortage = pressure.shortage.load(Ordering::Relaxed);
        pressure.shortage.store(shortage.saturating_sub(1), Ordering::Relaxed);
        self.log_shortage(pressure);
        let level = if shortage > 0 { level.max(Level::Shrink) } else { level };
        self.lean_looks = if level == Level::Normal { 0 } else { self.lean_looks + 1 };
        pressure.halvings.store((self.lean_looks / LOOKS_PER_SECOND).min(MOST_HALVINGS), Ordering::Relaxed);
        pressure.level.store(level as u8, Ordering::Relaxed);
    }

    fn log_memory(&mut self, level: Level, used_bytes: u64, pressure: &Pressure) {
        if level == self.logged {
            return;
        }
        let (name, max_bytes) = (level.name(), pressure.max_bytes.load(Ordering::Relaxed));
        match level {
            Level::Normal => tracing::info!(level = name, used_bytes, max_bytes, "memory pressure ended"),
            Level::Shrink => tracing::warn!(
                level = name,
                used_bytes,
                max_bytes,
                "memory is short: idle connections are closed, new ones get less memory"
            ),
            Level::Refuse => tracing::error!(
                level = name,
                used_bytes,
                max_bytes,
                "memory is nearly used up: new connections and requests are rejected; help: raise max_memory, or lower \
                 max_connections"
            ),
        }
        self.logged = level;
    }

    fn log_shortage(&mut self, pressure: &Pressure) {
        self.log_again = self.log_again.saturating_sub(1);
        let turned_away = pressure.turned_away.load(Ordering::Relaxed);
        if turned_away == self.logged_turned_away || self.log_again > 0 {
            return;
        }
        tracing::error!(
            closed_connections = turned_away - self.logged_turned_away,
            limit = descriptors::limit(),
            "out of file descriptors: new and idle connections are closed; help: raise the limit (LimitNOFILE= in \
             systemd, ulimit -n) or lower max_connections"
        );
        (self.logged_turned_away, self.log_again) = (turned_away, LOG_LOOKS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn idle_connections_get_ever_less_time_while_memory_is_short() {
        let (pressure, mut watch) = (Pressure::default(), Watch::default());
        pressure.max_bytes.store(1000, Ordering::Relaxed);
        let idle = Duration::from_secs(64);
        let mut times = Vec::new();
        for second in 0..10 {
            for _ in 0..LOOKS_PER_SECOND {
                watch.look(&pressure, seconds(second), 850);
            }
            times.push(pressure.idle_timeout(idle, 0).as_secs());
        }
        assert_eq!(times, [32, 16, 8, 4, 2, 1, 1, 1, 1, 1]);
        assert!(pressure.is_lean() && !pressure.refuses());
        watch.look(&pressure, seconds(10), 100);
        assert_eq!((pressure.level(), pressure.idle_timeout(idle, 0)), (Level::Normal, idle));
    }

    #[test]
    fn without_a_limit_no_memory_is_too_much() {
        let (pressure, mut watch) = (Pressure::default(), Watch::default());
        pressure.limit_memory(None);
        watch.look(&pressure, seconds(0), u64::MAX);
        assert_eq!((pressure.level(), pressure.view().max_bytes), (Level::Normal, None));
    }

    #[test]
    fn a_want_of_descriptors_shrinks_for_ten_seconds() {
        let (pressure, mut watch) = (Pressure::default(), Watch::default());
        pressure.on_shortage(3);
        let mut lean_looks = 0;
        for _ in 0..100 {
            watch.look(&pressure, seconds(0), 0);
            lean_looks += u32::from(pressure.level() == Level::Shrink);
        }
        assert_eq!(lean_looks, SHORTAGE_LOOKS);
    }

    #[test]
    fn a_limit_of_memory_is_a_size_or_a_share() {
        let pressure = Pressure::default();
        pressure.limit_memory(Some(MemoryLimit::default()));
        let max = pressure.view().max_bytes;
        let total = memory_limit(Owner::ThisProcess).unwrap();
        assert!(max.is_some_and(|max| max > total / 10 * 7 && max < total), "{max:?} of {total}");
    }
}
