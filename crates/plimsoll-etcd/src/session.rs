//! A lease that is kept alive: the sign of life of one process.
//!
//! ```text
//! renewals   every ttl/3; each on the same stream, answered within ttl/3
//! ```
//!
//! [`HeldLease`] has the interval, and the time until which a lease is alive for certain.
//!
//! A renewal that is not answered breaks the stream, and the next endpoint is used. When etcd says that
//! the lease is no more, the session gets another one with another id, and its user puts its keys
//! again. etcd that is lost does not end a session: nobody else knows of the end of the lease either,
//! and after an election of etcd's members all leases live on.

use std::time::Duration;

use plimsoll_core::Timestamp;
use plimsoll_core::fleet::HeldLease;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use crate::backoff::Backoff;
use crate::client::Client;
use crate::error::EtcdError;
use crate::failure::Failure;
use crate::message::{LEASE_KEEP_ALIVE, LeaseKeepAliveRequest, LeaseKeepAliveResponse};
use crate::stream::Stream;

/// Time to tell etcd of the end of a session.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// The lease of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Its id.
    pub id: i64,
    /// Its time to live, from the receipt of a renewal by etcd.
    pub ttl: Duration,
    /// When the last answered renewal was sent.
    pub renewed: Instant,
}

impl Lease {
    /// The time until which it is alive for certain, with a margin for clocks of different rates.
    #[must_use]
    pub fn sure_until(&self) -> Instant {
        self.renewed + held(self.ttl).expires().unwrap_or_default().since(Timestamp::ZERO)
    }
}

/// A lease that was renewed at time zero.
fn held(ttl: Duration) -> HeldLease {
    let mut held = HeldLease::new();
    held.on_answer(Timestamp::ZERO, ttl);
    held
}

/// A lease that is kept alive until the session is dropped or ended.
#[derive(Debug)]
pub struct Session {
    client: Client,
    lease: watch::Receiver<Option<Lease>>,
    task: JoinHandle<()>,
}

enum End {
    /// etcd does not know the lease.
    Expired,
    /// The stream broke.
    Broken,
}

impl Session {
    /// A session with a lease that lives `ttl` without a renewal: whole seconds, at least 2 at etcd.
    ///
    /// # Panics
    /// Outside of a runtime of Tokio, as [`tokio::spawn`] does.
    #[must_use]
    pub fn start(client: Client, ttl: Duration) -> Self {
        let (sender, lease) = watch::channel(None);
        let task = tokio::spawn(keep(client.clone(), ttl, sender));
        Self { client, lease, task }
    }

    /// The lease, as it changes: `None` before the first one. Another id means that the former lease
    /// expired, and its keys are gone.
    #[must_use]
    pub fn lease(&self) -> watch::Receiver<Option<Lease>> {
        self.lease.clone()
    }

    /// Ends the lease, and so deletes its keys.
    ///
    /// # Errors
    /// etcd is unreachable: the lease expires by itself.
    pub async fn end(self) -> Result<(), EtcdError> {
        self.task.abort();
        let Some(lease) = *self.lease.borrow() else { return Ok(()) };
        let unreachable = |_| EtcdError::Unreachable("no answer within 2 s".to_owned());
        timeout(END_TIMEOUT, self.client.revoke(lease.id)).await.map_err(unreachable)?
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn keep(client: Client, ttl: Duration, lease: watch::Sender<Option<Lease>>) {
    let mut backoff = Backoff::new();
    let mut refused = None;
    loop {
        let renewed = Instant::now();
        let (id, ttl) = match client.grant(ttl).await {
            Ok(granted) => granted,
            Err(error @ EtcdError::Unreachable(_)) => {
                tracing::debug!(%error, "no lease");
                backoff.wait().await;
                continue;
            }
            // Only a person ends it: one line is enough.
            Err(error) => {
                if refused.as_ref() != Some(&error) {
                    tracing::warn!(%error, "etcd grants no lease: check its user and password");
                }
                refused = Some(error);
                backoff.wait_after_refusal().await;
                continue;
            }
        };
        refused = None;
        lease.send_replace(Some(Lease { id, ttl, renewed }));
        loop {
            match renew(&client, id, ttl, &lease, &mut backoff).await {
                End::Expired => break,
                End::Broken => backoff.wait().await,
            }
        }
        tracing::info!(lease = format!("{id:x}"), "lease expired, its keys are put again");
    }
}

/// Renewals on one stream.
async fn renew(
    client: &Client,
    id: i64,
    ttl: Duration,
    lease: &watch::Sender<Option<Lease>>,
    backoff: &mut Backoff,
) -> End {
    let every = held(ttl).renew_at().unwrap_or_default().since(Timestamp::ZERO);
    let renewal = LeaseKeepAliveRequest { id };
    let mut sent = Instant::now();
    let opened = Stream::<_, LeaseKeepAliveResponse>::open(client, LEASE_KEEP_ALIVE, renewal, every);
    let Ok(mut stream) = opened.await else { return End::Broken };
    loop {
        let silent = |_| Err(Failure::silent(format!("no renewal within {every:?}")));
        match timeout(every, stream.next()).await.unwrap_or_else(silent) {
            Ok(answer) if answer.ttl > 0 => {
                backoff.reset();
                let ttl = Duration::from_secs(answer.ttl.unsigned_abs());
                lease.send_replace(Some(Lease { id, ttl, renewed: sent }));
            }
            Ok(_) => return End::Expired,
            Err(failure) => {
                stream.fail(failure).await;
                return End::Broken;
            }
        }
        sleep_until(sent + every).await;
        sent = Instant::now();
        if stream.requests.send(renewal).await.is_err() {
            return End::Broken;
        }
    }
}
