//! The task that sends spans to the collector.
//!
//! A batch that the collector cannot take now is sent again, with growing pauses, for half a minute;
//! meanwhile others wait in the queue, which drops what does not fit. After that the batch is
//! dropped: a new span says more than an old one.

use std::sync::Arc;
use std::time::Duration;

use rand_core::Rng as _;
use tokio::time::Instant;

use super::collector::{self, Connection, Sent, Target};
use super::queue::{Ended, Queue};
use super::{Traces, with_rng};

/// The pause before a batch is sent again. It doubles, up to the second one, and is half to one and
/// a half of it.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(10)];
/// Time for which a batch is sent again.
const MAX_TRIES: Duration = Duration::from_secs(30);
/// Between two log lines about trouble.
const SAY_AGAIN: Duration = Duration::from_secs(60);

/// Sends batches, for ever.
pub(super) async fn run(queue: Arc<Queue>, traces: Traces) {
    let mut exporter = Exporter { connection: None, target: None, said: None };
    loop {
        let batch = queue.batch().await;
        let ended = exporter.export(&batch, &queue, &traces).await;
        queue.end(ended);
    }
}

struct Exporter {
    connection: Option<Connection>,
    /// The collector of the connection.
    target: Option<Arc<Target>>,
    /// When trouble was last logged; `None` if all is well.
    said: Option<Instant>,
}

impl Exporter {
    async fn export(&mut self, batch: &[Vec<u8>], queue: &Queue, traces: &Traces) -> Ended {
        let (count, until) = (batch.len() as u64, Instant::now() + MAX_TRIES);
        let mut pause = PAUSES[0];
        loop {
            // Others may be set meanwhile.
            let Some(target) = traces.target() else { return Ended { exported: 0, refused: 0, failed: count } };
            if self.target.as_ref().is_none_or(|last| !Arc::ptr_eq(last, &target)) {
                (self.connection, self.target) = (None, Some(Arc::clone(&target)));
            }
            match collector::send(&target, &mut self.connection, target.body(batch)).await {
                Sent::Accepted { refused } => {
                    let refused = refused.min(count);
                    self.works(&target, refused);
                    return Ended { exported: count - refused, refused, failed: 0 };
                }
                Sent::Never { reason } => {
                    self.fails(&target, &reason);
                    return Ended { exported: 0, refused: count, failed: 0 };
                }
                Sent::Later { reason, after } => {
                    self.fails(&target, &reason);
                    let jitter = 0.5 + f64::from(with_rng(|rng| rng.next_u32())) / f64::from(u32::MAX);
                    let wait = after.unwrap_or_default().max(pause.mul_f64(jitter));
                    if queue.hurries() || Instant::now() + wait > until {
                        return Ended { exported: 0, refused: 0, failed: count };
                    }
                    queue.pause(wait).await;
                    pause = (2 * pause).min(PAUSES[1]);
                }
            }
        }
    }

    fn works(&mut self, target: &Target, refused: u64) {
        if refused > 0 && self.may_say() {
            tracing::warn!(collector = %target.url(), spans = refused, "collector refused spans");
        } else if refused == 0 && self.said.take().is_some() {
            tracing::info!(collector = %target.url(), "collector accepts spans again");
        }
    }

    fn fails(&mut self, target: &Target, reason: &str) {
        if self.may_say() {
            tracing::warn!(collector = %target.url(), reason, "spans not exported: collector unreachable or unwilling");
        }
    }

    /// Whether trouble may be logged, which it is then.
    fn may_say(&mut self) -> bool {
        let may = self.said.is_none_or(|said| said.elapsed() >= SAY_AGAIN);
        if may {
            self.said = Some(Instant::now());
        }
        may
    }
}
