//! The task of a cluster: follows the source of its backends, checks them, and wakes the machine.
//!
//! It sleeps until the machine's next timeout, an event, an answer of the source, or the end of a
//! check. All checks run on this one task, so thousands of backends cost no further tasks. The
//! number of concurrent checks is bounded; the others wait in the order of their due times.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use plimsoll_core::BackendId;
use plimsoll_core::health::CheckOutcome;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::Shared;
use super::follow::Source;
use super::probes::Network;
use crate::client::backend::Persistence;
use crate::client::check::{Finding, check, vigil};
use crate::client::error::ConnectError;

/// Checks in flight at once: enough that ten thousand backends, each answering within 100 ms, are checked
/// in four seconds, few enough that sockets and packets do not come in one burst.
const MAX_CHECKS: usize = 256;

/// Longest sleep. Requests move the machine's next deadline without waking this task, so that they
/// need not pay for a wake-up; this bounds how late the change is noticed.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// Time between two searches for preemptible requests while others wait.
const COMPARE_INTERVAL: Duration = Duration::from_millis(20);

type Job = Pin<Box<dyn Future<Output = Result> + Send>>;

enum Result {
    Checked(BackendId, std::result::Result<Finding, ConnectError>),
    Gone(BackendId),
    Released,
}

/// Runs until all handles to the cluster are gone.
pub(super) async fn run(cluster: Weak<Shared>, wake: Arc<Notify>) {
    let mut driver = Driver::default();
    loop {
        let Some(until) = cluster.upgrade().map(|shared| driver.turn(&shared)) else {
            return;
        };
        tokio::select! {
            (number, answer) = Source::next(&mut driver.source) => match answer {
                Some(answer) => {
                    if let Some(shared) = cluster.upgrade() {
                        shared.on_answer(number, answer);
                    }
                }
                // Its last list stays.
                None => driver.source = None,
            },
            Some(result) = driver.jobs.next(), if !driver.jobs.is_empty() => {
                if let Some(shared) = cluster.upgrade() {
                    driver.take_in(&shared, result);
                }
            }
            () = driver.network.wait() => {
                if let Some(shared) = cluster.upgrade() {
                    driver.network.receive(&shared);
                }
            }
            () = wake.notified() => {}
            () = tokio::time::sleep_until(until) => {}
        }
    }
}

#[derive(Default)]
struct Driver {
    jobs: FuturesUnordered<Job>,
    checks_running: usize,
    queue: VecDeque<BackendId>,
    vigils: HashMap<BackendId, oneshot::Sender<()>>,
    source: Option<Source>,
    network: Network,
}

impl Driver {
    /// Lets the machine act and starts due checks. Returns the time of the next turn.
    fn turn(&mut self, shared: &Shared) -> Instant {
        if let Some(source) = shared.new_source() {
            self.source = Some(source);
        }
        let now = shared.now();
        let members_at = shared.settle(now);
        let mut machine = shared.machine.lock();
        let news = machine.tell(now, |b, rng, mut obs| {
            b.handle_timeout(now, &mut obs);
            b.handle_probes(now, rng, &mut obs);
        });
        let queries = machine.queries();
        while let Some(id) = machine.balancer.poll_check() {
            self.queue.push_back(id);
        }
        let mut wake_at = machine.balancer.poll_timeout();
        if machine.waiting() > 0 {
            // Clients fall behind as time passes.
            wake_at = Some(wake_at.map_or(now + COMPARE_INTERVAL, |at| at.min(now + COMPARE_INTERVAL)));
        }
        drop(machine);
        self.network.send(shared, queries);
        shared.publish(news);
        self.start_vigils(shared);
        while self.checks_running < MAX_CHECKS
            && let Some(id) = self.queue.pop_front()
        {
            let Some(backend) = shared.backend(id) else { continue };
            let config = shared.config();
            self.checks_running += 1;
            let key_request = shared.machine.lock().key_request();
            self.jobs.push(Box::pin(async move { Result::Checked(id, check(backend, config, key_request).await) }));
        }
        let wake_at = [wake_at, members_at, Some(now + MAX_SLEEP)].into_iter().flatten().min();
        shared.clock.instant(wake_at.unwrap_or(now))
    }

    fn start_vigils(&mut self, shared: &Shared) {
        // A removed backend makes no event of its own.
        self.vigils.retain(|id, _| shared.backend(*id).is_some());
        let changes = std::mem::take(&mut *shared.lame_ducks.lock());
        for (id, is_lame_duck) in changes {
            if !is_lame_duck {
                self.vigils.remove(&id);
                continue;
            }
            let Some(backend) = shared.backend(id) else { continue };
            if shared.machine.lock().balancer.is_observed(id) {
                // Its probes tell the end of its process.
                continue;
            }
            if backend.persistence() == Persistence::Closes {
                // The silent connection would occupy one of its workers; checks find the successor instead.
                continue;
            }
            let config = shared.config();
            let (release, released) = oneshot::channel();
            self.vigils.insert(id, release);
            self.jobs.push(Box::pin(async move {
                if vigil(backend, config, released).await { Result::Gone(id) } else { Result::Released }
            }));
        }
    }

    fn take_in(&mut self, shared: &Shared, result: Result) {
        let now = shared.now();
        let news = match result {
            Result::Checked(id, finding) => {
                self.checks_running -= 1;
                let finding = finding.unwrap_or_else(|error| {
                    shared.ran_short(now, &error);
                    CheckOutcome::NotMade.into()
                });
                let mut machine = shared.machine.lock();
                let is_new_key = finding.key.is_some_and(|key| machine.take_key(now, id, key));
                let lacks_key = finding.outcome == CheckOutcome::Passed && machine.lacks_key(id);
                let news = machine.tell(now, |b, rng, mut obs| {
                    if is_new_key {
                        b.on_new_probe_key(now, id, rng, &mut obs);
                    }
                    b.on_check(now, id, finding.outcome, rng, &mut obs);
                    if let Some(report) = &finding.report {
                        b.on_report(now, id, report, &mut obs);
                    }
                });
                drop(machine);
                if lacks_key && let Some(backend) = shared.backend(id) {
                    shared.probes_told.log_keyless(now, &shared.name, backend.label());
                }
                news
            }
            Result::Gone(id) => {
                self.vigils.remove(&id);
                shared.machine.lock().tell(now, |b, _, mut obs| b.on_process_ended(now, id, &mut obs))
            }
            Result::Released => return,
        };
        shared.publish(news);
    }
}
