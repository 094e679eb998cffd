//! The connection of a client: one at a time, at its endpoints in turn.
//!
//! A client stays at an endpoint until its connection ends, a request on it is not answered, or the
//! member has no leader. Each of these moves it on by one endpoint, no matter how many requests and
//! streams notice the same: only the connection that is in use can be left. A client begins anywhere in
//! the list, so that clients spread over the endpoints.

use std::sync::Arc;

use rand_core::Rng as _;
use tokio::time::{Instant, timeout};

use crate::config::EtcdConfig;
use crate::connection::{CONNECT_TIMEOUT, Connection};
use crate::rng::rng;

#[derive(Debug)]
pub(crate) struct Endpoints {
    /// Locked while it connects: all requests wait for one connection.
    current: tokio::sync::Mutex<Current>,
}

#[derive(Debug)]
struct Current {
    connection: Option<Arc<Connection>>,
    /// The place of the endpoint to connect with.
    place: usize,
    /// The last attempt at all endpoints, if it failed: all that waited for it share its end. One after
    /// the other they would wait for hours.
    failed: Option<(Instant, String)>,
}

impl Endpoints {
    pub(crate) fn new(config: &EtcdConfig) -> Self {
        let place = rng().next_u32() as usize % config.endpoints.len();
        Self { current: tokio::sync::Mutex::new(Current { connection: None, place, failed: None }) }
    }

    /// The connection, opened if there is none, at the first endpoint that accepts one.
    pub(crate) async fn connection(&self, config: &EtcdConfig) -> Result<Arc<Connection>, String> {
        let asked = Instant::now();
        let mut current = self.current.lock().await;
        let count = config.endpoints.len();
        if let Some(connection) = &current.connection {
            if connection.is_usable() {
                return Ok(Arc::clone(connection));
            }
            current.connection = None;
            current.place = (current.place + 1) % count;
        }
        if let Some((_, errors)) = current.failed.as_ref().filter(|(at, _)| *at >= asked) {
            return Err(errors.clone());
        }
        let mut errors = Vec::new();
        for _ in 0..count {
            let place = current.place;
            // Before the attempt: a caller with little time may drop it, and the next one goes on from here.
            current.place = (place + 1) % count;
            match open(config, place).await {
                Ok(connection) => {
                    current.place = place;
                    current.connection = Some(Arc::clone(&connection));
                    return Ok(connection);
                }
                Err(error) => errors.push(format!("{}: {error}", config.endpoints[place])),
            }
        }
        let errors = errors.join("; ");
        current.failed = Some((Instant::now(), errors.clone()));
        Err(errors)
    }

    /// Uses the next endpoint in place of this one, for all requests from now on.
    pub(crate) async fn leave(&self, connection: &Arc<Connection>, config: &EtcdConfig) {
        let mut current = self.current.lock().await;
        if current.connection.as_ref().is_some_and(|used| Arc::ptr_eq(used, connection)) {
            current.connection = None;
            current.place = (current.place + 1) % config.endpoints.len();
        }
    }
}

async fn open(config: &EtcdConfig, place: usize) -> Result<Arc<Connection>, String> {
    let tls = config.tls.as_ref().map(|source| source()).transpose()?;
    let opened = Connection::open(&config.endpoints[place], tls.as_ref());
    timeout(CONNECT_TIMEOUT, opened).await.unwrap_or_else(|_| Err("no connection within 2 s".to_owned()))
}
