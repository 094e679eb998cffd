//! Arguments of the commands that watch a process, and their wait for its end.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior, interval, sleep};

use crate::watched::check::{Checks, ReadyUrl};
use crate::{signals, units};

/// Interval of the checks whether an ending process still accepts connections.
const END_EVERY: Duration = Duration::from_millis(100);

/// The checks of a process, and its drain.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Readiness URL: 2xx means ready, 503 draining [default: a TCP connection means ready]
    #[arg(long, value_name = "URL")]
    ready: Option<ReadyUrl>,
    /// Time between two checks
    #[arg(long, value_name = "D", value_parser = units::positive_duration, default_value = "1s")]
    interval: Duration,
    /// Longest wait for a check
    #[arg(long, value_name = "D", value_parser = units::positive_duration, default_value = "1s")]
    timeout: Duration,
    /// Least time of draining after SIGTERM
    #[arg(long, value_name = "D", value_parser = units::duration, default_value = "1s")]
    announce: Duration,
    /// Longest time of draining after SIGTERM
    #[arg(long, value_name = "D", value_parser = units::duration, default_value = "30s")]
    drain: Duration,
}

impl Args {
    /// The checks of a process at these addresses.
    pub(crate) fn checks(&self, addresses: &[SocketAddr]) -> Checks {
        Checks::new(addresses, self.ready.clone(), self.timeout)
    }

    /// The times of the checks.
    pub(crate) fn ticks(&self) -> Interval {
        let mut ticks = interval(self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks
    }

    /// Waits until the process refuses connections, for `drain` at most, or for a second signal.
    pub(crate) async fn wait_for_end(&self, checks: &Checks) {
        let refused = async {
            sleep(self.announce).await;
            while !checks.is_refused().await {
                sleep(END_EVERY).await;
            }
        };
        tokio::select! {
            () = signals::ending() => tracing::info!("second signal, the process may still run: clients will check it"),
            () = refused => {}
            () = sleep(self.drain) => {
                tracing::warn!("drain is over, the process may still run: clients will check it");
            }
        }
    }
}
