//! A listener of batch work: its gate, and its connections to backends.
//!
//! Both belong to the listener as a whole and not to a thread: the limit is on the sum of all
//! threads. So a connection that one thread has opened serves requests of others, which costs
//! waking that thread. With few requests at a time and each of them long, that is nothing
//! beside the work.

use std::collections::HashMap;
use std::num::NonZeroUsize;

use plimsoll::client::{Batch, BatchView, Client, Cluster};
use plimsoll_core::batch::BatchConfig;

use crate::request_body::RequestBody;

/// A listener of batch work, for metrics.
#[derive(Clone, Debug)]
pub struct BatchListenerView {
    /// Its gate.
    pub gate: BatchView,
    /// Connections to backends, idle ones included.
    pub connections: usize,
}

/// The shared parts of a listener of batch work.
pub(crate) struct ListenerBatch {
    pub(crate) gate: Batch,
    /// By the name of the cluster.
    pub(crate) clients: HashMap<String, Client<RequestBody>>,
}

impl ListenerBatch {
    /// For requests to these clusters. Parts of `former` that still fit stay. Call it within a
    /// runtime, which keeps the connections.
    pub(crate) fn new<'c>(
        config: BatchConfig,
        clusters: impl Iterator<Item = &'c Cluster>,
        former: Option<&Self>,
    ) -> Self {
        let cap = NonZeroUsize::try_from(config.max_active).expect("32 bits fit");
        let is_same_cap = former.is_some_and(|former| former.gate.config().max_active == config.max_active);
        let clients = clusters
            .map(|cluster| {
                let known = former.and_then(|former| former.clients.get(cluster.name()));
                let client = known.filter(|client| is_same_cap && client.cluster() == cluster).cloned();
                (cluster.name().to_owned(), client.unwrap_or_else(|| Client::capped(cluster, cap)))
            })
            .collect();
        let gate = former.map_or_else(|| Batch::new(config), |former| former.gate.clone());
        gate.set_config(config);
        Self { gate, clients }
    }

    pub(crate) fn view(&self) -> BatchListenerView {
        BatchListenerView { gate: self.gate.view(), connections: self.clients.values().map(Client::connections).sum() }
    }
}
