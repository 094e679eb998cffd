//! Spans that wait for the collector: bounded in bytes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;

/// Bytes that may wait: some 8,000 spans, which at the default rate is half a minute without a
/// collector.
const MAX_WAITING: usize = 4 << 20;
/// Spans of one request to the collector: OpenTelemetry's default.
pub(super) const MAX_BATCH: usize = 512;
/// Time after which spans are sent though they fill no batch. OpenTelemetry waits 5 s; a
/// person who looks for a trace of just now should not.
const MAX_AGE: Duration = Duration::from_secs(1);
/// Interval of looks whether all is sent.
const FLUSH_LOOK: Duration = Duration::from_millis(5);

/// Spans on their way to the collector.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// There is a first span, or a whole batch, or no more time.
    ready: Notify,
    /// The process ends: nothing waits for company any longer.
    hurries: AtomicBool,
    exported: AtomicU64,
    full: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    spans: VecDeque<Vec<u8>>,
    bytes: usize,
    /// A batch was taken that is neither sent nor dropped.
    is_sending: bool,
}

/// The end of spans that were taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    /// The collector accepted them.
    pub(super) exported: u64,
    /// It refused them for good.
    pub(super) refused: u64,
    /// It could not be reached, or had no capacity, for too long.
    pub(super) failed: u64,
}

impl Queue {
    /// Adds an encoded span, or drops it if the queue is full.
    pub(super) fn push(&self, span: Vec<u8>) {
        let mut state = self.state.lock();
        if state.bytes + span.len() > MAX_WAITING {
            drop(state);
            self.full.fetch_add(1, Ordering::Relaxed);
            return;
        }
        state.bytes += span.len();
        state.spans.push_back(span);
        let is_news = matches!(state.spans.len(), 1 | MAX_BATCH);
        drop(state);
        if is_news {
            self.ready.notify_one();
        }
    }

    /// Waits for a batch: a whole one, or one that has waited for others.
    pub(super) async fn batch(&self) -> Vec<Vec<u8>> {
        while self.state.lock().spans.is_empty() {
            self.ready.notified().await;
        }
        let is_due = || self.hurries() || self.state.lock().spans.len() >= MAX_BATCH;
        let _ = timeout(MAX_AGE, async {
            while !is_due() {
                self.ready.notified().await;
            }
        })
        .await;
        let mut state = self.state.lock();
        let count = state.spans.len().min(MAX_BATCH);
        let batch: Vec<Vec<u8>> = state.spans.drain(..count).collect();
        state.bytes -= batch.iter().map(Vec::len).sum::<usize>();
        state.is_sending = true;
        batch
    }

    /// The batch that was taken last has ended so.
    pub(super) fn end(&self, ended: Ended) {
        self.exported.fetch_add(ended.exported, Ordering::Relaxed);
        self.refused.fetch_add(ended.refused, Ordering::Relaxed);
        self.failed.fetch_add(ended.failed, Ordering::Relaxed);
        self.state.lock().is_sending = false;
    }

    /// Waits until the process ends, or for `pause`.
    pub(super) async fn pause(&self, pause: Duration) {
        let _ = timeout(pause, async {
            while !self.hurries() {
                self.ready.notified().await;
            }
        })
        .await;
    }

    /// Whether the process ends.
    pub(super) fn hurries(&self) -> bool {
        self.hurries.load(Ordering::Relaxed)
    }

    /// Waits until nothing waits any more, or for `patience`. What is left then is dropped.
    pub(super) async fn flush(&self, patience: Duration) {
        self.hurries.store(true, Ordering::Relaxed);
        self.ready.notify_one();
        let until = Instant::now() + patience;
        let is_behind = || {
            let state = self.state.lock();
            state.is_sending || !state.spans.is_empty()
        };
        while is_behind() && Instant::now() < until {
            tokio::time::sleep(FLUSH_LOOK).await;
        }
    }

    /// Spans that were exported, and those that were dropped, by reason.
    pub(super) fn counts(&self) -> (u64, Vec<(&'static str, u64)>) {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let dropped = vec![
            ("queue-full", read(&self.full)),
            ("unreachable", read(&self.failed)),
            ("refused", read(&self.refused)),
        ];
        (read(&self.exported), dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dropped(queue: &Queue) -> Vec<u64> {
        queue.counts().1.into_iter().map(|(_, count)| count).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn queue_is_bounded_in_bytes_and_counts_what_it_drops() {
        let queue = Queue::default();
        for _ in 0..MAX_WAITING / 1024 + 3 {
            queue.push(vec![0; 1024]);
        }
        assert_eq!(dropped(&queue), [3, 0, 0]);
        assert_eq!(queue.batch().await.len(), MAX_BATCH);
        queue.push(vec![0; 1024]);
        assert_eq!(dropped(&queue), [3, 0, 0], "there is room again");
    }

    #[tokio::test(start_paused = true)]
    async fn batch_is_sent_when_it_is_full_or_a_second_old() {
        let (queue, begun) = (Queue::default(), tokio::time::Instant::now());
        for _ in 0..MAX_BATCH {
            queue.push(vec![1]);
        }
        assert_eq!((queue.batch().await.len(), begun.elapsed()), (MAX_BATCH, Duration::ZERO));
        queue.push(vec![1]);
        assert_eq!(queue.batch().await.len(), 1);
        assert_eq!(begun.elapsed().as_secs(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn flush_waits_for_the_end_of_the_last_batch_but_not_for_ever() {
        let (queue, begun) = (Queue::default(), tokio::time::Instant::now());
        queue.push(vec![1]);
        let exporter = async {
            assert_eq!(queue.batch().await.len(), 1);
            queue.end(Ended { exported: 1, refused: 0, failed: 0 });
        };
        tokio::join!(exporter, queue.flush(Duration::from_secs(3600)));
        assert!(begun.elapsed() < Duration::from_millis(10), "nothing waits for company");
        assert_eq!(queue.counts().0, 1);
    }
}
