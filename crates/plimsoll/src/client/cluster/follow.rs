//! The source of a cluster's backends, the only way to them.
//!
//! The cluster's own task ([`Cluster::run`]) polls the source, so a source ends with its cluster and
//! costs no task. [`Shared::following`] hands a new source over and counts the sources. A late list
//! of a former source has no effect.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use futures_util::{Stream, StreamExt as _, stream};

use super::machine::News;
use super::{Cluster, Shared};
use crate::discover::{Answer, Discover};

/// The answers of a source, and its number among the sources of the cluster.
pub(super) struct Source {
    number: u64,
    answers: Pin<Box<dyn Stream<Item = Answer> + Send>>,
}

/// The source that the cluster follows.
#[derive(Default)]
pub(super) struct Following {
    number: u64,
    /// Not yet taken over by the cluster's task.
    new: Option<Source>,
    /// Its last answer was an error.
    is_failing: bool,
}

impl Cluster {
    /// Takes the backends from `source`, in place of any other.
    ///
    /// Each list replaces the one before. All backends of the list are members, or those of this
    /// process's subset ([`ClusterConfig::subset`](crate::client::ClusterConfig::subset)).
    ///
    /// The address identifies a backend. A listed backend keeps its state, connections and requests
    /// when its weight, authority, zone or locality changes; later requests see the new values.
    /// Requests at removed backends finish. Of an address that is listed twice the first entry counts.
    ///
    /// A list that is ready applies before this returns, others while [`Cluster::run`] is polled. The
    /// former source is dropped; its last list stays in force until the first one of `source`. The
    /// last list stays too when a source ends or answers with an error.
    ///
    /// Call this where `source` can be polled: within a runtime, if it needs one.
    pub fn follow(&self, source: impl Discover + 'static) {
        let next = |mut source: _| async { Some((Discover::next(&mut source).await?, source)) };
        let mut answers = Box::pin(stream::unfold(source, next));
        let first = match answers.as_mut().poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some(answer)) => Some(answer),
            Poll::Ready(None) | Poll::Pending => None,
        };
        let mut following = self.0.following.lock();
        let number = following.number + 1;
        let former = std::mem::replace(
            &mut *following,
            Following { number, new: Some(Source { number, answers }), is_failing: false },
        );
        let news = first.map(|answer| self.0.take_in(&mut following, answer));
        drop(following);
        drop(former);
        if let Some(news) = news {
            self.0.publish(news);
        }
        self.0.reconsider();
    }
}

impl Source {
    /// Its next answer; never, without a source.
    pub(super) async fn next(source: &mut Option<Self>) -> (u64, Option<Answer>) {
        match source {
            Some(source) => (source.number, source.answers.next().await),
            None => std::future::pending().await,
        }
    }
}

impl Shared {
    /// A new source since the last call, for the cluster's task.
    pub(super) fn new_source(&self) -> Option<Source> {
        self.following.lock().new.take()
    }

    /// The answer of a source.
    pub(super) fn on_answer(&self, source: u64, answer: Answer) {
        let mut following = self.following.lock();
        if following.number != source {
            return;
        }
        let news = self.take_in(&mut following, answer);
        drop(following);
        self.publish(news);
        self.reconsider();
    }

    /// Applies a list. An error is no list: the backends stay as they are.
    fn take_in(&self, following: &mut Following, answer: Answer) -> News {
        let was_failing = std::mem::replace(&mut following.is_failing, answer.is_err());
        match answer {
            Ok(endpoints) => self.machine.lock().update(self.clock.now(), endpoints),
            Err(error) => {
                if !was_failing {
                    tracing::warn!(cluster = &*self.name, %error, "discovery failed: the backends stay as they are");
                }
                News::default()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::client::config::ClusterConfig;
    use crate::discover::Fixed;

    #[test]
    fn late_answer_of_a_former_source_has_no_effect() {
        let [former, later] = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let members =
            |cluster: &Cluster| cluster.backends().iter().map(|view| view.backend.address()).collect::<Vec<_>>();
        let cluster = Cluster::new("test", ClusterConfig::default(), [former]);
        let [first, second] = [1, 2];
        cluster.follow(Fixed::new([later]));
        cluster.0.on_answer(first, Ok(vec![former.into()]));
        assert_eq!(members(&cluster), [later]);
        cluster.0.on_answer(second, Ok(vec![later.into(), former.into()]));
        assert_eq!(members(&cluster), [later, former]);
    }
}
