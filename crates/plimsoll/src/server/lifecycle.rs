//! The phases of a server, and the condition under which it may end.
//!
//! A server that stops at SIGTERM fails the requests that its clients are sending at that moment.
//! So it becomes a *lame duck* first: it asks clients to send new requests elsewhere, and still
//! serves every request. It may end when no request was in flight for `quiet`, but not before
//! `announce`: a client learns of the lame duck only with its next response, health check or
//! GOAWAY. After `drain` it ends in any case, because a stream may never end.
//!
//! Phases go one way: starting, serving, lame duck, drained. A starting server wants no requests,
//! but accepts connections, so that clients connect during the warm-up.
//!
//! The [`ServerLayer`](super::ServerLayer) counts requests by [`Lifecycle::begin`]. Health checks
//! and streams of load reports do not count: they would keep a lame duck alive for ever.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use self::neglect::Neglect;
#[cfg(unix)]
use super::signals::EndSignals;
use crate::clock;
use crate::first::first;

mod neglect;
mod shutdown;

/// Time for idle connections to close gracefully: enough to write a GOAWAY and the end of a stream.
pub const CLOSE_GRACE: Duration = Duration::from_millis(100);

/// A source of signals that ask for the end.
trait Signals {
    /// The name of the next; `None` when there will be no other.
    fn next(&mut self) -> impl Future<Output = Option<&'static str>> + Send;
}

#[cfg(unix)]
impl Signals for EndSignals {
    async fn next(&mut self) -> Option<&'static str> {
        Some(EndSignals::next(self).await)
    }
}

/// The phase of a server, in the order of its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Phase {
    /// Not ready yet: clients may connect, but should send no requests.
    Starting,
    /// Ready for requests.
    Serving,
    /// Draining: serves every request, and asks for no new ones.
    LameDuck,
    /// Its last request has ended, or was abandoned.
    Drained,
}

impl Phase {
    /// Whether the server wants new requests.
    #[must_use]
    pub fn is_serving(self) -> bool {
        self == Self::Serving
    }

    /// The name in logs and in answers to readiness checks.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Serving => "serving",
            Self::LameDuck => "lame-duck",
            Self::Drained => "drained",
        }
    }
}

/// The time limits of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias("connection draining", "graceful shutdown"))]
#[non_exhaustive]
pub struct DrainConfig {
    /// The drain ends once no request was in flight for this long.
    pub quiet: Duration,
    /// The drain lasts at least this long, so that every client hears of it.
    pub announce: Duration,
    /// The drain lasts at most this long.
    pub drain: Duration,
}

impl DrainConfig {
    /// Long beside the gaps between the requests of a client that has not heard yet.
    pub const DEFAULT_QUIET: Duration = Duration::from_millis(500);
    /// Many round trips, even across the world; short beside a rolling restart.
    pub const DEFAULT_ANNOUNCE: Duration = Duration::from_secs(1);
    /// The time that Kubernetes gives before it kills. SRE practice is 10 to 150 s.
    pub const DEFAULT_DRAIN: Duration = Duration::from_secs(30);
}

impl Default for DrainConfig {
    fn default() -> Self {
        Self { quiet: Self::DEFAULT_QUIET, announce: Self::DEFAULT_ANNOUNCE, drain: Self::DEFAULT_DRAIN }
    }
}

/// The way in which a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrainEnd {
    /// No request was in flight.
    Quiet,
    /// The time was up.
    Overdue {
        /// Requests in flight, or if there were none, connections with unsent response data.
        unfinished: u64,
    },
    /// The server was told to end at once.
    CutShort {
        /// Requests in flight, or if there were none, connections with unsent response data.
        unfinished: u64,
    },
}

/// The life of one server. Clones are handles to the same life.
#[derive(Clone, Debug)]
#[doc(alias("drain", "graceful shutdown", "lame duck"))]
pub struct Lifecycle(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    phase: watch::Sender<Phase>,
    /// The phase again, for the path of each request, which must not take a lock.
    phase_now: AtomicU8,
    begun: AtomicU64,
    ended: AtomicU64,
    /// Told at each end of a request while a lame duck.
    idle: Notify,
    cut_short: AtomicBool,
    neglect: Neglect,
    observers: Observers,
}

/// Called at each change of the phase, by the thread that changes it.
#[derive(Default)]
struct Observers(Mutex<Vec<Box<dyn Fn() + Send + Sync>>>);

impl std::fmt::Debug for Observers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Observers").field(&self.0.lock().len()).finish()
    }
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self::new()
    }
}

impl Lifecycle {
    /// A server that is starting: it asks clients to send elsewhere until [`ready`](Self::ready).
    #[must_use]
    pub fn new() -> Self {
        Self::at(Phase::Starting)
    }

    /// A server that is ready at once, for services with no warm-up.
    #[must_use]
    pub fn serving() -> Self {
        Self::at(Phase::Serving)
    }

    fn at(phase: Phase) -> Self {
        Self(Arc::new(Inner {
            phase: watch::Sender::new(phase),
            phase_now: AtomicU8::new(phase as u8),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            idle: Notify::new(),
            cut_short: AtomicBool::new(false),
            neglect: Neglect::default(),
            observers: Observers::default(),
        }))
    }

    /// The server wants requests from now on. Has no effect on a lame duck.
    pub fn ready(&self) {
        self.advance(Phase::Serving);
    }

    /// Starts the drain: clients are asked to go elsewhere, and nothing is refused.
    pub fn lame_duck(&self) {
        self.advance(Phase::LameDuck);
    }

    /// Ends the server at once, even with requests in flight.
    pub fn end_now(&self) {
        self.0.cut_short.store(true, Ordering::SeqCst);
        self.advance(Phase::Drained);
        // Wakes tasks that drained already but still write.
        self.0.phase.send_modify(|_| ());
    }

    /// Waits for [`end_now`](Self::end_now).
    pub(super) async fn cut_short(&self) {
        let _ = self.subscribe().wait_for(|_| self.0.cut_short.load(Ordering::SeqCst)).await;
    }

    pub(super) fn end(&self) {
        self.advance(Phase::Drained);
    }

    fn advance(&self, to: Phase) {
        let changed = self.0.phase.send_if_modified(|phase| {
            let forward = to > *phase;
            if forward {
                *phase = to;
                self.0.phase_now.store(to as u8, Ordering::SeqCst);
            }
            forward
        });
        if changed {
            self.0.observers.0.lock().iter().for_each(|observer| observer());
        }
    }

    /// Calls `observer` at each change of the phase: at once, not when a task is scheduled. It must
    /// not block.
    pub(super) fn observe(&self, observer: impl Fn() + Send + Sync + 'static) {
        self.0.observers.0.lock().push(Box::new(observer));
    }

    /// The current phase. Cheap enough for every request.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.0.phase_now.load(Ordering::SeqCst) {
            0 => Phase::Starting,
            1 => Phase::Serving,
            2 => Phase::LameDuck,
            _ => Phase::Drained,
        }
    }

    /// Receives each change of the phase.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Phase> {
        self.note_awaited();
        self.subscribe()
    }

    /// The same as [`Self::watch`], for a task that does not end the process.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Phase> {
        self.0.phase.subscribe()
    }

    /// Waits until the server is at `phase` or further.
    async fn reached(&self, phase: Phase) {
        self.subscribe().wait_for(|at| *at >= phase).await.expect("the sender lives as long as self");
    }

    /// A task awaits the end of the server.
    pub(super) fn note_awaited(&self) {
        self.0.neglect.on_awaited();
    }

    /// Counts a request as in flight until the guard is dropped.
    #[must_use]
    pub fn begin(&self) -> InFlight {
        self.0.begun.fetch_add(1, Ordering::SeqCst);
        if self.phase() == Phase::Starting {
            self.0.neglect.on_request_while_starting(Instant::now());
        }
        InFlight(self.clone())
    }

    /// Requests in flight.
    #[must_use]
    pub fn active_requests(&self) -> u64 {
        // The ends first: read the other way round, a request that begins and ends in between
        // would make the difference negative.
        let ended = self.0.ended.load(Ordering::SeqCst);
        self.0.begun.load(Ordering::SeqCst).saturating_sub(ended)
    }

    /// Starts the drain at SIGTERM or SIGINT. A second signal, 100 ms or more after the first, ends
    /// at once.
    ///
    /// Both are caught from when this returns. Call it once, within a tokio runtime. The process
    /// ends only if a task awaits the drain: [`serve`](super::serve), [`shutdown`](Self::shutdown)
    /// or [`drained`](Self::drained).
    ///
    /// # Errors
    /// If the signals cannot be caught.
    #[cfg(unix)]
    pub fn on_sigterm(&self) -> io::Result<()> {
        let signals = EndSignals::new()?;
        let lifecycle = self.clone();
        tokio::spawn(async move {
            lifecycle.obey(signals).await;
        });
        Ok(())
    }

    /// Obeys the first two of `signals`.
    async fn obey(&self, mut signals: impl Signals) {
        let Some(signal) = signals.next().await else { return };
        self.lame_duck();
        tracing::info!(signal, "signal received, draining");
        let second = tokio::time::timeout(neglect::AWAITED_WITHIN, signals.next()).await;
        let second = match second {
            Ok(second) => second,
            Err(_) => {
                self.0.neglect.on_end_due();
                signals.next().await
            }
        };
        let Some(signal) = second else { return };
        self.end_now();
        tracing::info!(signal, "second signal received, ending at once");
        self.0.neglect.on_end_due();
    }

    /// Waits until the server may end: it became a lame duck, and a condition of `config` came
    /// true.
    ///
    /// The phase is *drained* from then on. [`serve`](super::serve) awaits this by itself;
    /// [`shutdown`](Self::shutdown) is the same for axum's and tonic's servers. In an accept loop
    /// of your own, close the listener when this returns. Then close the connections gracefully
    /// (GOAWAY; no keep-alive), and give them the rest of `config.drain`. A request is over when
    /// its server has taken the last of its response, which may be long before a slow client has
    /// it.
    pub async fn drained(&self, config: &DrainConfig) -> DrainEnd {
        self.note_awaited();
        self.reached(Phase::LameDuck).await;
        let began = Instant::now();
        let by_another = async {
            self.reached(Phase::Drained).await;
            self.ended_by_another()
        };
        let quiet = async {
            self.quiet(config.quiet, clock::after(began, config.announce)).await;
            DrainEnd::Quiet
        };
        let overdue = async {
            tokio::time::sleep_until(clock::after(began, config.drain)).await;
            DrainEnd::Overdue { unfinished: self.active_requests() }
        };
        let end = first(by_another, first(quiet, overdue)).await;
        self.end();
        end
    }

    fn ended_by_another(&self) -> DrainEnd {
        let unfinished = self.active_requests();
        if self.0.cut_short.load(Ordering::SeqCst) { DrainEnd::CutShort { unfinished } } else { DrainEnd::Quiet }
    }

    /// Waits until nothing was in flight for `quiet`, at `earliest` or later.
    async fn quiet(&self, quiet: Duration, earliest: Instant) {
        loop {
            // Registered before the count is read, so that an end in between is not missed.
            let ended = self.0.idle.notified();
            let begun = self.0.begun.load(Ordering::SeqCst);
            if self.active_requests() > 0 {
                ended.await;
                continue;
            }
            tokio::time::sleep_until(earliest.max(clock::after(Instant::now(), quiet))).await;
            if self.0.begun.load(Ordering::SeqCst) == begun && self.active_requests() == 0 {
                return;
            }
        }
    }
}

/// A request in flight, until dropped.
#[derive(Debug)]
pub struct InFlight(Lifecycle);

impl Drop for InFlight {
    fn drop(&mut self) {
        let Lifecycle(inner) = &self.0;
        inner.ended.fetch_add(1, Ordering::SeqCst);
        if self.0.phase() >= Phase::LameDuck {
            inner.idle.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests;
