//! Decides how an open loop waits for the next arrival, and an emulated core for the next end of a
//! request: on a timer of the kernel.
//!
//! tokio's timers tick once a millisecond, which at 1,000 requests a second is a whole gap. Spinning
//! until the moment is precise, and takes the CPU from the server under test when both share a
//! machine. A `timerfd` fires within some tens of microseconds and costs three system calls.
//!
//! Gaps below [`WORTHWHILE`] are not waited for: a timer takes longer to set than they last. Such a
//! request leaves that much early, which its latency does not hide: it still counts from when it was due.

use std::io;
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

/// A gap shorter than this is over before a timer is set.
const WORTHWHILE: Duration = Duration::from_micros(5);

/// Waits for moments, one after the other.
#[derive(Debug)]
pub(crate) struct Pacer {
    timer: AsyncFd<std::os::fd::OwnedFd>,
}

impl Pacer {
    /// Needs a tokio runtime with I/O.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // SAFETY: an OwnedFd names the same open descriptor until it is dropped.
        Ok(Self { timer: unsafe { AsyncFd::register(timer) }? })
    }

    /// Returns at `moment`, at once when it is past.
    pub(crate) async fn until(&self, moment: Instant) -> io::Result<()> {
        let gap = moment.saturating_duration_since(Instant::now());
        if gap < WORTHWHILE {
            return Ok(());
        }
        let once = Itimerspec {
            it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: Timespec {
                tv_sec: gap.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: gap.subsec_nanos().into(),
            },
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)?;
        loop {
            let mut ready = self.timer.readable().await?;
            let mut expirations = [0_u8; 8];
            // A wake-up that finds nothing to read clears the readiness and waits again.
            if let Ok(read) = ready.try_io(|timer| Ok(rustix::io::read(timer.get_ref(), &mut expirations)?)) {
                read?;
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn waits_until_the_moment_and_never_returns_before_it() {
        let pacer = Pacer::new().unwrap();
        for micros in [10, 200, 3_000] {
            let moment = Instant::now() + Duration::from_micros(micros);
            pacer.until(moment).await.unwrap();
            assert!(Instant::now() + WORTHWHILE >= moment);
        }
    }

    #[tokio::test]
    async fn a_moment_in_the_past_is_not_waited_for() {
        let pacer = Pacer::new().unwrap();
        let mut until = std::pin::pin!(pacer.until(Instant::now()));
        let first = std::future::poll_fn(|context| std::task::Poll::Ready(until.as_mut().poll(context))).await;
        assert!(first.is_ready());
    }
}
