//! Cores that are only computed: requests wait exactly as long as they would on a machine of this speed,
//! and use no CPU.
//!
//! A fleet of such backends fits on one core, so a plan can be tried with the real proxy before there
//! are machines. A [`Processor`] computes the ends. One task sleeps until the next end on a timer of
//! the kernel and answers. A late timer delays only the answer: the virtual cores went on meanwhile.
//!
//! The CPU time of the virtual cores is that of the server: load reports and admission see it
//! ([`Emulated::used`]). Each request is charged with its part: as it is used where requests share, and
//! at its end where they come in order, as a worker thread is timed.
//!
//! As on real cores ([`cores`](super::cores)), an abandoned request is dropped if it waits for its turn,
//! and worked on to its end if it has begun.

mod processor;

use std::collections::HashMap;
use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use plimsoll::server::RemoteWork;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use crate::load::pace::Pacer;
use processor::Processor;

/// How requests share the cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Discipline {
    /// First come, first served: as many at a time as there are cores
    Fcfs,
    /// All at a time, at equal speed
    Sharing,
}

/// Virtual cores. Their task ends when this is dropped.
pub(crate) struct Emulated {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    start: Instant,
    state: Mutex<State>,
    /// There may be an earlier end than the one waited for.
    changed: Notify,
}

struct State {
    processor: Processor,
    requests: HashMap<u64, InProgress>,
    /// Ended, and not answered yet.
    ended: Vec<(u64, f64)>,
}

/// A request on the virtual cores.
struct InProgress {
    work: Arc<RemoteWork>,
    charged: f64,
    done: oneshot::Sender<()>,
}

/// Effects of a look at the cores, carried out without their lock.
#[derive(Default)]
struct Effects {
    charges: Vec<(Arc<RemoteWork>, Duration)>,
    answers: Vec<oneshot::Sender<()>>,
}

impl Effects {
    /// Charges come first, because an answer tells the usage of its request.
    fn carry_out(self) {
        for (work, used) in &self.charges {
            work.charge(*used);
        }
        drop(self.charges);
        for answer in self.answers {
            // An abandoned request has no receiver any more.
            let _ = answer.send(());
        }
    }
}

impl Emulated {
    /// Starts the task that answers. Needs a tokio runtime with I/O.
    pub(crate) fn start(discipline: Discipline, cores: NonZeroUsize) -> io::Result<Self> {
        let pacer = Pacer::new()?;
        let processor = Processor::new(discipline, cores.get());
        let state = State { processor, requests: HashMap::new(), ended: Vec::new() };
        let shared = Arc::new(Shared { start: Instant::now(), state: Mutex::new(state), changed: Notify::new() });
        let task = tokio::spawn(answer(Arc::clone(&shared), pacer));
        Ok(Self { shared, task })
    }

    /// Returns when the virtual cores have spent `cost` on this call.
    pub(crate) async fn spend(&self, cost: Duration) {
        if cost.is_zero() {
            return;
        }
        let (done, finished) = oneshot::channel();
        let request = InProgress { work: Arc::new(RemoteWork::begin()), charged: 0.0, done };
        let _waiting = self.shared.begin(cost, request);
        // The sender is lost only with the task, which ends after `self` is gone.
        let _ = finished.await;
    }

    /// A clock of the CPU time that the virtual cores have used.
    pub(crate) fn used(&self) -> impl Fn() -> Duration + Send + Sync + 'static {
        let shared = Arc::clone(&self.shared);
        move || {
            // Called under the lock of the gate: charges, which take it too, are left to the task.
            let mut state = shared.state.lock();
            state.advance(shared.now());
            Duration::from_secs_f64(state.processor.used())
        }
    }
}

impl Drop for Emulated {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Cancels a request that waits for its turn when its client leaves.
struct Waiting<'a> {
    shared: &'a Shared,
    id: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.advance(self.shared.now());
        if state.processor.cancel(self.id) {
            let request = state.requests.remove(&self.id);
            drop(state);
            drop(request);
        }
    }
}

impl Shared {
    fn now(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    fn begin(&self, cost: Duration, request: InProgress) -> Waiting<'_> {
        let mut state = self.state.lock();
        let effects = state.look(self.now());
        let before = state.processor.next_end();
        let id = state.processor.begin(cost.as_secs_f64());
        state.requests.insert(id, request);
        let is_changed = state.processor.next_end() != before;
        drop(state);
        effects.carry_out();
        if is_changed {
            self.changed.notify_one();
        }
        Waiting { shared: self, id }
    }
}

impl State {
    fn advance(&mut self, now: f64) {
        let Self { processor, ended, .. } = self;
        processor.advance(now, |job| ended.push((job.id, job.used)));
    }

    /// Lets time pass, and collects the effects.
    fn look(&mut self, now: f64) -> Effects {
        self.advance(now);
        let mut effects = Effects::default();
        for (id, used) in std::mem::take(&mut self.ended) {
            if let Some(request) = self.requests.remove(&id) {
                effects.charges.push((request.work, seconds(used - request.charged)));
                effects.answers.push(request.done);
            }
        }
        // Handlers that share are timed at each of their pauses, a worker thread as a whole.
        let paused = self.processor.jobs().filter(|_| self.processor.discipline() == Discipline::Sharing);
        for job in paused {
            if let Some(request) = self.requests.get_mut(&job.id)
                && job.used > request.charged
            {
                let more = seconds(job.used - request.charged);
                request.charged = job.used;
                effects.charges.push((Arc::clone(&request.work), more));
            }
        }
        effects
    }
}

/// A sum of steps may be below zero by a rounding error.
fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.max(0.0))
}

/// Answers requests at their ends.
async fn answer(shared: Arc<Shared>, pacer: Pacer) {
    loop {
        let end = shared.state.lock().processor.next_end();
        let Some(end) = end else {
            shared.changed.notified().await;
            continue;
        };
        tokio::select! {
            reached = pacer.until(shared.start + Duration::from_secs_f64(end)) => {
                if let Err(error) = reached {
                    tracing::error!(%error, "timer of the emulated cores failed");
                    return;
                }
            }
            () = shared.changed.notified() => {}
        }
        let effects = {
            let mut state = shared.state.lock();
            state.look(shared.now())
        };
        effects.carry_out();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn emulated(discipline: Discipline) -> Emulated {
        Emulated::start(discipline, NonZeroUsize::MIN).unwrap()
    }

    fn assert_used(cores: &Emulated, expected: Duration) {
        let used = cores.used()();
        assert!(used.abs_diff(expected) < Duration::from_micros(1), "{used:?}");
    }

    #[tokio::test]
    async fn requests_queue_or_share_as_the_discipline_says() {
        for (discipline, first_is_first) in [(Discipline::Fcfs, true), (Discipline::Sharing, false)] {
            let cores = emulated(discipline);
            let begun = Instant::now();
            let timed = async |cost: Duration| {
                cores.spend(cost).await;
                begun.elapsed()
            };
            let (long, short) = tokio::join!(timed(40 * MS), timed(10 * MS));
            // On a machine that was busy when they ended, both are seen to end at the same moment.
            if long.abs_diff(short) > 5 * MS {
                assert_eq!(long < short, first_is_first, "{discipline:?}: {long:?}, {short:?}");
            }
            // No upper bound: the machine of the test may be busy.
            assert!(long.max(short) >= 50 * MS && long >= 40 * MS && short >= 20 * MS, "{long:?}, {short:?}");
            assert_used(&cores, 50 * MS);
        }
    }

    #[tokio::test]
    async fn request_abandoned_before_its_turn_uses_no_cpu() {
        let cores = emulated(Discipline::Fcfs);
        let left = tokio::time::timeout(MS, async {
            tokio::join!(cores.spend(30 * MS), cores.spend(30 * MS));
        });
        assert!(left.await.is_err());
        // The first had begun, and is worked on to its end.
        cores.spend(10 * MS).await;
        assert_used(&cores, 40 * MS);
        assert!(cores.shared.state.lock().requests.is_empty());
    }

    #[tokio::test]
    async fn work_without_cost_ends_at_once() {
        let cores = emulated(Discipline::Sharing);
        cores.spend(Duration::ZERO).await;
        assert_eq!(cores.used()(), Duration::ZERO);
    }
}
