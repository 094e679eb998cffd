//! A request in progress, as the parts of it that run see it.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use plimsoll_core::Speed;
use plimsoll_core::admit::{Entry, Pressure};
use plimsoll_wire::orca::REQUEST_CPU;

use crate::server::admission::{Gate, OwnProcess};
use crate::server::context::RequestContext;

/// A request in progress. Held by each of its tasks, and by its response until that has ended.
#[derive(Debug)]
pub(in crate::server) struct Request {
    pub(in crate::server) context: RequestContext,
    /// The gate that admitted it. None without a gate: its use is reported to none.
    gate: Option<Arc<Gate<OwnProcess>>>,
    /// CPU that it has used, in nanoseconds.
    used: AtomicU64,
    /// The use in nanoseconds at which the gate is next told.
    tell_at: AtomicU64,
    /// None once it has ended, and without a gate.
    entry: Mutex<Option<Entry>>,
    /// The part of the use that the gate knows, in nanoseconds.
    told: AtomicU64,
    /// Its tasks that run or could run.
    runnable: AtomicU32,
    /// Charges by its handler beside CPU, by name.
    charges: Mutex<Vec<(Cow<'static, str>, f64)>>,
    /// The pressure in a test; see [`crate::test`].
    #[cfg(feature = "test-util")]
    test_pressure: Option<Pressure>,
}

impl Request {
    /// A request that `gate` admitted.
    pub(in crate::server) fn new(context: RequestContext, gate: Arc<Gate<OwnProcess>>, entry: Entry) -> Self {
        Self::with(context, Some((gate, entry)))
    }

    /// One that is served without being asked about.
    pub(in crate::server) fn free(context: RequestContext) -> Self {
        Self::with(context, None)
    }

    /// One of a test, under this pressure.
    #[cfg(feature = "test-util")]
    pub(in crate::server) fn of_test(context: RequestContext, pressure: Pressure) -> Self {
        let mut request = Self::free(context);
        request.test_pressure = Some(pressure);
        request
    }

    fn with(context: RequestContext, let_in: Option<(Arc<Gate<OwnProcess>>, Entry)>) -> Self {
        let (gate, entry) = let_in.unzip();
        Self {
            context,
            gate,
            used: AtomicU64::new(0),
            tell_at: AtomicU64::new(entry.as_ref().map_or(u64::MAX, |entry| nanos(entry.progress_due()))),
            entry: Mutex::new(entry),
            told: AtomicU64::new(0),
            runnable: AtomicU32::new(0),
            charges: Mutex::default(),
            // A layer within the scope of a test is under the same pressure.
            #[cfg(feature = "test-util")]
            test_pressure: super::current().and_then(|outer| outer.test_pressure),
        }
    }

    /// Whether a gate needs its use.
    pub(in crate::server) fn is_charged(&self) -> bool {
        #[cfg(feature = "test-util")]
        if self.test_pressure.is_some() {
            return true;
        }
        self.gate.is_some()
    }

    /// The charges of its handler by this name.
    #[cfg(feature = "test-util")]
    pub(in crate::server) fn charged_with(&self, name: &str) -> f64 {
        self.charges.lock().iter().find(|(known, _)| known == name).map_or(0.0, |(_, sum)| *sum)
    }

    /// Whether its code is timed on the threads that run it.
    pub(super) fn is_timed(&self) -> bool {
        self.gate.as_ref().is_some_and(|gate| gate.is_timed_here())
    }

    /// CPU that it has used so far.
    pub(in crate::server) fn used(&self) -> Duration {
        Duration::from_nanos(self.used.load(Ordering::Relaxed))
    }

    /// Adds a charge of its handler, by name.
    pub(in crate::server) fn charge_with(&self, name: Cow<'static, str>, amount: f64) {
        let mut charges = self.charges.lock();
        match charges.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += amount,
            None => charges.push((name, amount)),
        }
    }

    /// Passes all its use so far to `make`, and returns the result. CPU leaves the server in reference
    /// CPU-seconds.
    pub(in crate::server) fn with_cost<R>(
        &self,
        make: impl for<'c> FnOnce(&mut dyn Iterator<Item = (&'c str, f64)>) -> R,
    ) -> R {
        let charges = self.charges.lock();
        let speed = self.gate.as_ref().map_or(Speed::REFERENCE, |gate| gate.speed());
        let cpu = [(REQUEST_CPU, speed.reference(self.used().as_secs_f64()))];
        make(&mut charges.iter().map(|(name, sum)| (&**name, *sum)).chain(cpu))
    }

    /// CPU that it has used so far, in reference CPU-microseconds.
    pub(in crate::server) fn cost_us(&self) -> u64 {
        let speed = self.gate.as_ref().map_or(Speed::REFERENCE, |gate| gate.speed());
        (speed.reference(self.used().as_secs_f64()) * 1e6).round() as u64
    }

    /// How close requests of this criticality are to being shed.
    pub(in crate::server) fn pressure(&self) -> Pressure {
        #[cfg(feature = "test-util")]
        if let Some(pressure) = self.test_pressure {
            return pressure;
        }
        self.gate.as_ref().map_or(Pressure::None, |gate| gate.pressure(self.context.criticality))
    }

    /// Adds nanoseconds to its use.
    pub(super) fn charge(&self, nanos: u64) {
        let used = self.used.fetch_add(nanos, Ordering::Relaxed) + nanos;
        if used >= self.tell_at.load(Ordering::Relaxed) {
            self.tell(used);
        }
    }

    /// It has used as much as was expected, and goes on.
    fn tell(&self, used: u64) {
        let Some(gate) = &self.gate else { return };
        let again = match self.entry.lock().as_mut() {
            Some(entry) => {
                gate.progress(entry, seconds(used));
                nanos(entry.progress_due())
            }
            None => u64::MAX,
        };
        self.tell_at.store(again, Ordering::Relaxed);
        gate.charge(self.untold());
    }

    /// Its response has ended, or will never be. Further calls do nothing.
    pub(in crate::server) fn end(&self) {
        if let Some((gate, entry)) = self.gate.as_ref().zip(self.entry.lock().take()) {
            gate.ended(entry, self.used());
            gate.charge(self.untold());
        }
    }

    /// The use since the last call.
    fn untold(&self) -> Duration {
        let used = self.used.load(Ordering::Relaxed);
        Duration::from_nanos(used.saturating_sub(self.told.fetch_max(used, Ordering::Relaxed)))
    }

    /// One more of its tasks could run.
    pub(super) fn on_runnable(&self) {
        if self.runnable.fetch_add(1, Ordering::Relaxed) == 0
            && let Some(gate) = &self.gate
        {
            gate.on_runnable();
        }
    }

    /// One of them waits for something else than CPU, or has ended.
    pub(super) fn on_waiting(&self) {
        if self.runnable.fetch_sub(1, Ordering::Relaxed) == 1
            && let Some(gate) = &self.gate
        {
            gate.on_waiting();
        }
    }
}

/// Ends with the last of its tasks. The use after its response is charged to no request.
impl Drop for Request {
    fn drop(&mut self) {
        let late = self.untold();
        if let Some(gate) = &self.gate
            && !late.is_zero()
        {
            gate.charge(late);
            gate.used_late(late);
        }
    }
}

fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 * 1e-9
}
