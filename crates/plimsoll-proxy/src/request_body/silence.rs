//! A client on HTTP/2 that sends less of a request's body than it should, while it is waited for.
//!
//! The same rule as for HTTP/1 (`time_limits`), for one stream instead of a connection: behind
//! `min_body_rate` by as much as `idle_timeout` (`debt`). Only the time counts in which the body is
//! wanted and no byte is there. A timer exists once a read finds nothing, and is adjusted only when
//! it fires.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use plimsoll_core::debt::Debt;

/// How a body comes in.
pub(crate) struct Silence {
    /// How far it may be behind.
    patience: Duration,
    /// Bytes a second; zero for any above none.
    least_rate: u64,
    /// The body is waited for since then.
    since: Option<Instant>,
    /// How far it was behind before that.
    debt: Debt,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Silence {
    pub(crate) fn new(patience: Duration, least_rate: u64) -> Self {
        Self { patience, least_rate, since: None, debt: Debt::NONE, timer: None }
    }

    /// So many bytes have come.
    pub(crate) fn on_bytes(&mut self, bytes: usize) {
        let waited = self.since.take().map_or(Duration::ZERO, |since| since.elapsed());
        self.debt.add(waited, bytes as u64, self.least_rate);
    }

    /// Nothing is there. Ready when that is so for too long.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let since = *self.since.get_or_insert_with(Instant::now);
            let until = since + self.debt.left_of(self.patience);
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
            ready!(timer.as_mut().poll(cx));
            if timer.deadline() >= until {
                return Poll::Ready(());
            }
            timer.as_mut().reset(until);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::time::{sleep, timeout};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    /// Time until a body fails that sends `bytes` every `pause`; ten minutes at most.
    async fn lasts(bytes: usize, pause: Duration) -> Duration {
        let mut silence = Silence::new(PATIENCE, 100);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(600) {
            if timeout(pause, poll_fn(|cx| silence.poll(cx))).await.is_ok() {
                break;
            }
            silence.on_bytes(bytes);
        }
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn silence_and_a_trickle_end_and_a_slow_link_does_not() {
        assert_eq!(lasts(1, Duration::from_secs(600)).await, PATIENCE);
        let trickle = lasts(1, Duration::from_secs(1)).await;
        assert!(trickle > PATIENCE && trickle < PATIENCE + Duration::from_secs(1), "{trickle:?}");
        assert!(lasts(150, Duration::from_secs(1)).await >= Duration::from_secs(600));
        assert!(lasts(1_500, Duration::from_secs(9)).await >= Duration::from_secs(600));
    }

    #[tokio::test(start_paused = true)]
    async fn burst_buys_no_further_silence() {
        let mut silence = Silence::new(PATIENCE, 100);
        let begun = Instant::now();
        assert!(timeout(Duration::from_millis(1), poll_fn(|cx| silence.poll(cx))).await.is_err());
        silence.on_bytes(1_000_000);
        poll_fn(|cx| silence.poll(cx)).await;
        assert!(begun.elapsed() < PATIENCE + Duration::from_millis(10), "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn time_without_a_wait_does_not_count() {
        let mut silence = Silence::new(PATIENCE, 100);
        for _ in 0..100 {
            assert!(timeout(Duration::from_millis(50), poll_fn(|cx| silence.poll(cx))).await.is_err());
            silence.on_bytes(10);
            sleep(Duration::from_secs(60)).await;
        }
    }
}
