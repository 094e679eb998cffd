//! How the proxy ends without losing a request.
//!
//! A proxy that is told to end closes idle connections once nothing is in flight: whoever waits for its end waits for no idle
//! client. One that has handed its sockets to a successor is waited for by nobody, and leaves each connection to its
//! client until `drain.timeout`: a client that writes a request to an idle connection at the moment in which it is closed
//! would lose it.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::{Proxy, RunningListener};
use crate::phase::{CLOSE_GRACE, Phase};
use crate::worker::{Order, Worker};

/// How often a draining proxy looks whether it is idle.
pub(super) const DRAIN_LOOK: Duration = Duration::from_millis(50);
/// How long it must be idle to end: a client that has just been told to go may have one more request on its way.
const DRAIN_QUIET: Duration = Duration::from_millis(500);
/// Time for what was cut off to be dropped, and so to be written into the access log.
const CUT_OFF_GRACE: Duration = Duration::from_millis(200);
/// Time for the last lists to be saved.
const SAVE_GRACE: Duration = Duration::from_secs(1);
/// Time for the last lines of the access log to be written.
const FLUSH_GRACE: Duration = Duration::from_secs(1);

impl Proxy {
    /// Ends the proxy without losing a request: says that it goes, waits until nothing is in flight (or for the
    /// config's `drain.timeout`), closes listeners, then connections.
    pub async fn drain(&self) {
        self.life.advance(Phase::LameDuck);
        // At once, and well before the listeners close: clients with a lease turn elsewhere.
        self.answers().iter().for_each(|answers| answers.wake());
        let _no_reload = self.changing.lock().await;
        self.advance(Phase::LameDuck);
        let drain = self.config().drain().clone();
        let begun = Instant::now();
        let mut idle_since = None;
        loop {
            tokio::time::sleep(DRAIN_LOOK).await;
            if self.active_requests() > 0 {
                idle_since = None;
            }
            let idle_for = idle_since.get_or_insert_with(Instant::now).elapsed();
            let done = self.active_requests() == 0 && idle_for >= DRAIN_QUIET && begun.elapsed() >= drain.announce;
            if done || begun.elapsed() >= drain.timeout {
                break;
            }
        }
        self.close(begun + drain.timeout).await;
    }

    /// Ends the proxy when a successor has all of its sockets: takes no connection from now on, and ends when its clients
    /// have left, at the latest after the config's `drain.timeout`.
    pub async fn leave_to_successor(&self) {
        // The successor answers: this process is no lame duck to any client.
        self.end_probes();
        self.running.lock().files().for_each(|file| file.set_own(false));
        self.life.advance(Phase::LameDuck);
        let _no_reload = self.changing.lock().await;
        let until = Instant::now() + self.config().drain().timeout;
        let closed = self.close_doors();
        self.advance(Phase::LameDuck);
        // The successor is the member of this id now, and another one may lead.
        let fleet = std::mem::take(&mut self.running.lock().fleet);
        tokio::join!(self.saver.hand_over(SAVE_GRACE), fleet.leave());
        let _ = timeout_at(until, closed).await;
        self.wait_for_clients(until).await;
        self.close(until).await;
    }

    /// Closes listeners, then connections as soon as each has nothing to answer, all that are left `until` or a little later.
    async fn close(&self, until: Instant) {
        let until = until.max(Instant::now() + CLOSE_GRACE);
        // Before the doors: a client finds no socket rather than one that is about to close.
        self.remove_socket_files();
        let closed = self.close_doors();
        self.advance(Phase::Closing);
        let _ = timeout_at(until, closed).await;
        // A refused port tells clients that nothing listens any more.
        self.end_probes();
        self.wait_for_clients(until).await;
        self.advance(Phase::Closed);
        self.wait_for_clients(Instant::now() + CUT_OFF_GRACE).await;
        self.saver.flush(SAVE_GRACE).await;
        let fleet = std::mem::take(&mut self.running.lock().fleet);
        tokio::join!(self.access_log.flush(FLUSH_GRACE), self.traces.flush(FLUSH_GRACE), fleet.leave());
    }

    /// Removes the files of its Unix sockets, but for those that a successor or the system manager has.
    /// A drain does so; an end without one has to.
    pub fn remove_socket_files(&self) {
        self.running.lock().listeners.values_mut().for_each(|listener| listener.file = None);
    }

    /// Ends the answers to probes, and closes their sockets.
    fn end_probes(&self) {
        let answers = |listener: &mut RunningListener| listener.answers.take();
        let ended: Vec<_> = self.running.lock().listeners.values_mut().filter_map(answers).collect();
        ended.iter().for_each(|answers| answers.end());
    }

    async fn wait_for_clients(&self, until: Instant) {
        while self.connections() > 0 && Instant::now() < until {
            tokio::time::sleep(DRAIN_LOOK).await;
        }
    }

    /// Has the threads accept the connections in their queues, and no more. The future ends when all threads have.
    ///
    /// Until then a thread may hold connections that nobody counts: it accepted them, or takes them from its queue
    /// next. A thread that gets no CPU for a while takes long. Whoever ends the process at a count of zero loses these
    /// connections.
    fn close_doors(&self) -> impl Future<Output = ()> + use<> {
        // While these copies are open the queues of the sockets would go on growing.
        for listener in self.running.lock().listeners.values_mut() {
            listener.sockets.clear();
        }
        let close = |worker: &Worker| {
            let (done, closed) = oneshot::channel();
            worker.order(Order::CloseDoors(done));
            closed
        };
        let all: Vec<_> = self.workers.iter().map(close).collect();
        async {
            for closed in all {
                // An error means that the thread has ended, and its sockets with it.
                let _ = closed.await;
            }
        }
    }

    fn advance(&self, phase: Phase) {
        self.life.advance(phase);
        for worker in &self.workers {
            worker.order(Order::Advance(phase));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;
    use crate::config::Config;

    const FILE: &str = "
        threads = 1
        listeners = [{ address = '127.0.0.1:0' }]
        routes = [{ cluster = 'web' }]
        [clusters.web]
        backends = ['127.0.0.1:9']
    ";

    /// A busy machine gave a thread of the old process no CPU. The process found no connection and ended, and the
    /// thread's queue with it.
    #[tokio::test]
    async fn process_leaves_only_when_every_thread_has_emptied_its_queues() {
        let mut proxy = Proxy::start(Config::parse("test", FILE).unwrap()).await.unwrap();
        let (slow, mut orders) = Worker::by_hand();
        proxy.workers.push(slow);
        let mut leaving = pin!(proxy.leave_to_successor());
        let closes = async {
            loop {
                if let Order::CloseDoors(done) = orders.recv().await.unwrap() {
                    break done;
                }
            }
        };
        let done = tokio::select! {
            biased;
            () = &mut leaving => panic!("it left before the slow thread had the order"),
            done = closes => done,
        };
        let left = leaving.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(left.is_pending(), "it left before the slow thread had emptied its queues");
        done.send(()).unwrap();
        drop(orders);
        leaving.await;
    }
}
