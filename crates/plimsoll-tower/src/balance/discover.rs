//! Sources of services: streams of changes.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use plimsoll_core::Weight;

/// A change of the services of a [`Balance`](super::Balance).
#[derive(Clone, Debug, PartialEq)]
pub enum Change<K, S> {
    /// A new service; it replaces one with the same key.
    Insert {
        /// Tells it from others, such as its address.
        key: K,
        /// The service.
        service: S,
        /// Its intended share of the load, relative to others.
        weight: Weight,
    },
    /// The service with this key gets no more requests.
    Remove(K),
}

impl<K, S> Change<K, S> {
    /// A new service of ordinary weight.
    pub fn insert(key: K, service: S) -> Self {
        Self::Insert { key, service, weight: Weight::ONE }
    }
}

/// The next change of a source, or its failure; `None` if there will be none.
pub type NextChange<K, S, E> = Option<Result<Change<K, S>, E>>;

/// A source of services: any stream of changes.
///
/// Sources of tower's `Discover` become one by `FromTower`, with the feature `tower_0_5`.
pub trait Discover {
    /// Tells services apart.
    type Key;
    /// A service.
    type Service;
    /// A failure of the source.
    type Error;

    /// The next change; `None` if there will be none.
    fn poll_discover(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<NextChange<Self::Key, Self::Service, Self::Error>>;
}

impl<K, S, E, D> Discover for D
where
    D: Stream<Item = Result<Change<K, S>, E>> + ?Sized,
{
    type Key = K;
    type Service = S;
    type Error = E;

    fn poll_discover(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<NextChange<K, S, E>> {
        self.poll_next(cx)
    }
}

/// A source of services that never change.
#[derive(Clone, Debug)]
pub struct ServiceList<I>(I);

impl<K, S, I: Iterator<Item = (K, S)>> ServiceList<I> {
    /// These services, by their keys.
    pub fn new(services: impl IntoIterator<IntoIter = I>) -> Self {
        Self(services.into_iter())
    }
}

impl<K, S, I: Iterator<Item = (K, S)> + Unpin> Stream for ServiceList<I> {
    type Item = Result<Change<K, S>, std::convert::Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.next().map(|(key, service)| Ok(Change::insert(key, service))))
    }
}

/// A source of tower's [`Discover`](tower::discover::Discover).
#[cfg(feature = "tower_0_5")]
#[derive(Clone, Debug)]
pub struct FromTower<D>(pub D);

#[cfg(feature = "tower_0_5")]
impl<D: tower::discover::Discover + Unpin> Stream for FromTower<D> {
    type Item = Result<Change<D::Key, D::Service>, D::Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        use tower::discover::Change as TowerChange;
        Pin::new(&mut self.0).poll_discover(cx).map_ok(|change| match change {
            TowerChange::Insert(key, service) => Change::insert(key, service),
            TowerChange::Remove(key) => Change::Remove(key),
        })
    }
}
