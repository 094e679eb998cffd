//! The client of a task: its stream to the owner of its service, kept up for as long as the task runs.
//!
//! ```text
//! attempts   one server after the other, with a back-off           ──┐
//! redirect   a server names the owner: the task goes there at once   ├─▶ stream.rs: the stream
//! search.rs  a server knows a later owner: likewise                ──┘
//! ```
//!
//! Without a server the task goes on by itself ([`Holder`](plimsoll_core::quota::Holder)), and no request
//! fails for lack of one.

mod connection;
mod search;
mod stream;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::uri::Authority;
use plimsoll::server::FleetLimits;
use plimsoll::tls::TlsConfig;
use rand_core::Rng as _;
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use self::connection::Connection;
use self::stream::Ended;
use crate::random::{draw, rng};

/// Time between two attempts. It doubles up to the second one, and is half to one and a half of it.
const BACKOFF: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];
/// A stream that lasted this long was a good one.
const GOOD: Duration = Duration::from_secs(10);
/// Redirects in a row. Two servers that disagree may name each other.
const MAX_REDIRECTS: u32 = 3;

/// A setting that makes no client.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidClient {
    /// There is no server.
    #[error("no quota server is named")]
    NoServer,
    /// Not a server's address.
    #[error("{0:?} is not a server's address, such as quota.internal:9800")]
    Server(String),
    /// The service has no name.
    #[error("the service has no name")]
    NoService,
}

/// A client of the quota server.
#[derive(Clone, Debug)]
pub struct Client {
    servers: Vec<Authority>,
    service: String,
    instance: String,
    /// `None`: in plain text.
    tls: Option<TlsSource>,
}

/// Where the trust and the certificate for a connection come from.
#[derive(Clone)]
struct TlsSource(Arc<dyn Fn() -> Result<TlsConfig, String> + Send + Sync>);

impl fmt::Debug for TlsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsSource")
    }
}

impl Client {
    /// A client for tasks of this service. One of these servers owns its limits, or knows the owner.
    ///
    /// # Errors
    /// No server, or not an address of one; a service without a name.
    pub fn new<S: AsRef<str>>(
        servers: impl IntoIterator<Item = S>,
        service: impl Into<String>,
    ) -> Result<Self, InvalidClient> {
        let parse = |server: S| {
            let server = server.as_ref();
            parse(server).ok_or_else(|| InvalidClient::Server(server.to_owned()))
        };
        let servers = servers.into_iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        if servers.is_empty() {
            return Err(InvalidClient::NoServer);
        }
        let service = service.into();
        if service.is_empty() {
            return Err(InvalidClient::NoService);
        }
        let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "task".to_owned());
        let instance = format!("{host}/{}/{:08x}", std::process::id(), rng().next_u32());
        Ok(Self { servers, service, instance, tls: None })
    }

    /// The name of this task: by default one that no other has. A later task of this name replaces it.
    #[must_use]
    pub fn instance(self, name: impl Into<String>) -> Self {
        Self { instance: name.into(), ..self }
    }

    /// Speaks TLS with the server, which knows the task by the names in its certificate.
    #[must_use]
    pub fn tls(self, config: TlsConfig) -> Self {
        self.tls_from(move || Ok(config.clone()))
    }

    /// The same by a function, which is called for each connection: renewed certificates are taken with
    /// the next one. Its error is logged like that of a connection.
    #[must_use]
    pub fn tls_from(self, source: impl Fn() -> Result<TlsConfig, String> + Send + Sync + 'static) -> Self {
        Self { tls: Some(TlsSource(Arc::new(source))), ..self }
    }

    /// Keeps up a stream for the gate of `limits`, for ever.
    pub async fn run(self, limits: FleetLimits) {
        let mut servers = self.servers.iter().cycle();
        let (mut backoff, mut is_connected, mut redirects) = (BACKOFF[0], true, 0);
        // An owner of this epoch could not be joined: a search is for a later one.
        let mut lost = 0;
        let mut next = None;
        loop {
            let target: Option<Target> = next.take();
            let target = target.or_else(|| servers.next().map(Target::of)).expect("there is a server");
            let (server, epoch, begun) = (target.server.clone(), target.epoch, Instant::now());
            // In doubt until the stream is answered.
            let (doubt, is_doubtful) = watch::channel(true);
            let ended = tokio::select! {
                ended = self.stream(target, &limits, &doubt) => ended,
                found = self.search(&server, &limits, lost, is_doubtful) => Ended::Found(found),
                // Leases end without a stream too.
                never = keep_leases(&limits) => match never {},
            };
            limits.with(|_, limiter| limiter.disconnect());
            lost = lost.max(epoch);
            if begun.elapsed() > GOOD {
                (backoff, is_connected, redirects, lost) = (BACKOFF[0], true, 0, 0);
            }
            let service = &self.service;
            match ended {
                Ended::Found(target) => {
                    tracing::info!(%server, owner = %target.server, service, "limits have another owner");
                    next = Some(target);
                    continue;
                }
                Ended::Redirected(target) if redirects < MAX_REDIRECTS => {
                    redirects += 1;
                    tracing::debug!(%server, owner = %target.server, service, "redirected to the owner");
                    next = Some(target);
                    continue;
                }
                Ended::Redirected(target) => {
                    lost = lost.max(target.epoch);
                    tracing::debug!(%server, owner = %target.server, service, "too many redirects in a row");
                }
                Ended::Failed(error) if std::mem::replace(&mut is_connected, false) => {
                    tracing::warn!(%server, service, error, "quota server unreachable: limits hold by leases");
                }
                Ended::Failed(error) => tracing::debug!(%server, service, error, "quota server unreachable"),
            }
            redirects = 0;
            let (_doubt, is_doubtful) = watch::channel(true);
            tokio::select! {
                () = sleep(backoff.mul_f64(0.5 + draw())) => {}
                found = self.search(&server, &limits, lost, is_doubtful) => next = Some(found),
                never = keep_leases(&limits) => match never {},
            }
            backoff = (2 * backoff).min(BACKOFF[1]);
        }
    }

    /// The trust and the certificate for the next connection.
    fn tls_now(&self) -> Result<Option<TlsConfig>, String> {
        self.tls.as_ref().map(|TlsSource(source)| source()).transpose()
    }

    /// The owner that a server names. In plain text a task leaves its machine only for a server of its settings: nobody
    /// proves who listens at another address. With TLS the owner's certificate does.
    fn redirect(&self, owner: &str) -> Result<Authority, String> {
        let authority = parse(owner).ok_or_else(|| format!("{owner:?} of a redirect is not a server's address"))?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let is_local = host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        if self.tls.is_none() && !is_local && !self.servers.contains(&authority) {
            return Err(format!("a redirect to {authority} without TLS: add it to the servers of this task"));
        }
        Ok(authority)
    }
}

/// A server to join, over a connection that may be there already.
#[derive(Debug)]
struct Target {
    server: Authority,
    connection: Option<Connection>,
    /// The epoch of the owner there; 0: not known.
    epoch: u64,
}

impl Target {
    fn of(server: &Authority) -> Self {
        Self { server: server.clone(), connection: None, epoch: 0 }
    }
}

/// The address of a server.
fn parse(server: &str) -> Option<Authority> {
    let authority: Option<Authority> = server.parse().ok();
    authority.filter(|authority| authority.port_u16().is_some() && !authority.as_str().contains('@'))
}

/// Ends leases, also while there is no stream.
async fn keep_leases(limits: &FleetLimits) -> std::convert::Infallible {
    loop {
        let due = limits.with(|now, limiter| {
            limiter.end_lease(now);
            limiter.lease_timeout()
        });
        // A lease that begins meanwhile is longer.
        let due = due.map_or_else(|| Instant::now() + Duration::from_secs(1), |due| limits.instant(due));
        sleep_until(due).await;
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod redirect_tests {
    use plimsoll::tls::TlsConfig;

    use super::*;

    #[test]
    fn redirect_in_plain_text_stays_at_known_servers_and_this_machine() {
        let client = Client::new(["quota-1.internal:9800"], "shop").unwrap();
        for (owner, is_good) in [
            ("quota-1.internal:9800", true),
            ("127.0.0.1:9800", true),
            ("[::1]:9800", true),
            ("quota-2.internal:9800", false),
            ("10.0.0.1:9800", false),
            ("localhost", false),
            ("a@127.0.0.1:9800", false),
            ("", false),
        ] {
            assert_eq!(client.redirect(owner).is_ok(), is_good, "{owner}");
        }
        let client = client.tls_from(|| Err::<TlsConfig, _>("not called".to_owned()));
        assert!(client.redirect("10.0.0.1:9800").is_ok() && client.redirect("10.0.0.1").is_err());
    }
}
