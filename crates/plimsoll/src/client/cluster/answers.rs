//! The answers of a source in their order, with a pause after errors.
//!
//! [`ErrorPause`] decides on the pause. It is part of the stream, so a source is polled by the cluster's
//! task as without it, and a source that is replaced ends in its pause.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use futures_util::{Stream, stream};
use plimsoll_core::discover::ErrorPause;
use rand_core::SeedableRng as _;
use rand_pcg::Pcg64Mcg;
use tokio::time::Instant;

use crate::discover::{Answer, Discover};

/// The answers of `source`. Needs a runtime with a timer after an error only.
pub(super) fn answers(source: impl Discover + 'static) -> impl Stream<Item = Answer> + Send {
    let rng = Pcg64Mcg::seed_from_u64(RandomState::new().hash_one(source.kind()));
    stream::unfold(Asked { source, pause: ErrorPause::default(), wait: Duration::ZERO, rng }, Asked::next)
}

/// A source between two answers.
struct Asked<S> {
    source: S,
    pause: ErrorPause,
    /// Time until it is asked again.
    wait: Duration,
    rng: Pcg64Mcg,
}

impl<S: Discover> Asked<S> {
    async fn next(mut self) -> Option<(Answer, Self)> {
        if !self.wait.is_zero() {
            tokio::time::sleep(self.wait).await;
        }
        let asked = Instant::now();
        let answer = self.source.next().await?;
        self.wait = match &answer {
            Ok(_) => {
                self.pause.on_list();
                Duration::ZERO
            }
            Err(_) => self.pause.on_error(asked.elapsed(), &mut self.rng),
        };
        Some((answer, self))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::client::cluster::Cluster;
    use crate::client::config::ClusterConfig;
    use crate::discover::Endpoint;

    /// Answers at once, with an error, or with a list after each error.
    struct Hasty {
        asked: Arc<AtomicUsize>,
        flaps: bool,
    }

    impl Discover for Hasty {
        async fn next(&mut self) -> Option<Answer> {
            let asked = self.asked.fetch_add(1, Ordering::Relaxed);
            // So that a cluster that asks without a pause ends the test.
            (asked < 10_000).then_some(())?;
            if self.flaps && asked % 2 == 1 { Some(Ok(Vec::new())) } else { Some(Err("refused".into())) }
        }
    }

    /// Questions to such a source in a minute.
    async fn asked_in_a_minute(flaps: bool) -> usize {
        let asked = Arc::new(AtomicUsize::new(0));
        let cluster = Cluster::new("test", ClusterConfig::default(), [] as [Endpoint; 0]);
        tokio::spawn(cluster.run());
        cluster.follow(Hasty { asked: Arc::clone(&asked), flaps });
        tokio::time::sleep(Duration::from_secs(60)).await;
        asked.load(Ordering::Relaxed)
    }

    #[tokio::test(start_paused = true)]
    async fn source_that_fails_at_once_is_asked_once_a_second() {
        let asked = asked_in_a_minute(false).await;
        // One a second, give or take a fifth, and four more at the beginning.
        assert!((50..=80).contains(&asked), "{asked}");
    }

    #[tokio::test(start_paused = true)]
    async fn source_that_flaps_at_once_is_asked_ten_times_a_second() {
        let asked = asked_in_a_minute(true).await;
        // Error and list each 100 ms, give or take a fifth.
        assert!((1_000..=1_500).contains(&asked), "{asked}");
    }
}
