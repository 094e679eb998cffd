//! The task that keeps a client's pool in order.
//!
//! It opens the connections that should be there from the start, drops those to former backends,
//! applies a new configuration (which may end old connections), and closes connections that were
//! idle for too long. It wakes when membership changes, when an idle connection ends, and a few
//! times per idle period.

use std::sync::{Arc, Weak};
use std::time::Duration;

use plimsoll_core::{BackendId, Timestamp};
use tokio::sync::watch;

use super::alarm::Alarm;
use super::{Pool, State, capped, is_single_use};
use crate::client::config::Version;
use crate::client::http1::Connection;
use crate::client::request_body::RequestBody;
use crate::tls::TlsConfig;

/// Rounds per idle period: a connection is closed at most a quarter of it late.
const ROUNDS: u32 = 4;
/// Shortest time between rounds, so that a tiny idle period does not become a busy loop.
const MIN_ROUND: Duration = Duration::from_millis(10);

/// Runs until the pool is gone.
pub(super) async fn keep<B: RequestBody>(pool: Weak<Pool<B>>, alarm: Arc<Alarm>, mut changes: watch::Receiver<u64>) {
    // The state at the start counts as a change.
    changes.mark_changed();
    loop {
        let Some(round) = pool.upgrade().map(|pool| pool.round(&mut changes)) else {
            return;
        };
        tokio::select! {
            () = alarm.raised() => {}
            changed = changes.changed() => match changed {
                // `round` looks at it itself.
                Ok(()) => changes.mark_changed(),
                Err(_) => return,
            },
            () = tokio::time::sleep(round) => {}
        }
    }
}

impl<B: RequestBody> Pool<B> {
    /// One round; returns the time until the next.
    fn round(self: &Arc<Self>, changes: &mut watch::Receiver<u64>) -> Duration {
        self.look();
        let now = self.cluster.now();
        if changes.has_changed().unwrap_or(false) {
            changes.mark_unchanged();
            self.follow_cluster();
        }
        let mut closed = Vec::new();
        let mut state = self.state.lock();
        state.looked = now;
        let inactive_after = state.config.inactive_after;
        if let Some(before) = earlier(now, inactive_after) {
            for slot in &mut state.slots {
                let id = slot.id;
                closed.extend(slot.http1.take_old(before).map(|connection| (id, connection)));
                slot.http2.close_idle(before);
            }
        }
        drop(state);
        for (id, connection) in closed {
            drop(connection);
            self.cluster.connection_closed(id);
        }
        (inactive_after / ROUNDS).max(MIN_ROUND)
    }

    /// Checks the idle connections that had an event.
    fn look(self: &Arc<Self>) {
        for (id, serial) in self.alarm.take() {
            let ended = self.state.lock().existing(id).and_then(|slot| slot.http1.look(serial));
            if let Some(connection) = ended {
                let is_news = connection.end_is_news();
                drop(connection);
                self.on_closed_http1(id, is_news);
            }
        }
    }

    /// Takes over membership and configuration.
    fn follow_cluster(self: &Arc<Self>) {
        let config = self.cluster.config();
        let members = self.cluster.members();
        let version = config.requests.protocol.version(false);
        let mut state = self.state.lock();
        state.config = capped(config.pool, self.cap);
        state.scheme = config.scheme();
        state.is_single_use = is_single_use(&config);
        let outdated = state.open_by(config.tls());
        let is_renewed = outdated.is_some();
        // A single-use pool keeps no spare connection: the next request's client is not known yet.
        let min_connections = state.config.min_connections;
        let spare = if state.is_single_use { 0 } else { min_connections };
        let mut to_open: Vec<BackendId> = Vec::new();
        let mut is_member = vec![false; state.slots.len()];
        let mut renamed = Vec::new();
        for (id, _) in members {
            let is_new = state.existing(id).is_none();
            let idle = state.refresh(id, &self.cluster);
            renamed.extend(idle.into_iter().map(|connection| (id, connection)));
            let Some(slot) = state.slot(id, &self.cluster) else { continue };
            if is_new || is_renewed {
                let first_http2 = version != Version::Http1 && min_connections > 0;
                if first_http2 && slot.http2.wait_for_opening(None) {
                    to_open.push(id);
                } else if version == Version::Http1 {
                    to_open.extend(std::iter::repeat_n(id, spare));
                }
            }
            is_member.resize(is_member.len().max(id.slot() + 1), false);
            is_member[id.slot()] = true;
        }
        let mut closed = Vec::new();
        for (slot, _) in state.slots.iter_mut().zip(is_member).filter(|(_, is_member)| !is_member) {
            // Idle connections end here, those in use with their request.
            closed.extend(slot.http1.retire());
            slot.http2.retire();
        }
        drop(state);
        for (id, connection) in outdated.into_iter().flatten().chain(renamed) {
            drop(connection);
            self.cluster.connection_closed(id);
        }
        // The pool no longer tracks these backends, so their connections are not counted.
        drop(closed);
        for id in to_open {
            self.open_in_background(id, version);
        }
    }
}

impl<B> State<B> {
    /// Applies the TLS settings. If the present connections may not go on under them, returns the
    /// idle ones; the others end with their requests.
    fn open_by(&mut self, tls: Option<&TlsConfig>) -> Option<Vec<(BackendId, Box<Connection>)>> {
        let old = std::mem::replace(&mut self.tls, tls.cloned());
        let continues = match (tls, &old) {
            (None, None) => true,
            (Some(tls), Some(old)) => tls.continues(old),
            _ => false,
        };
        if continues {
            return None;
        }
        let oldest = self.next_serial();
        let mut idle = Vec::new();
        for slot in &mut self.slots {
            let id = slot.id;
            slot.http2.renew(oldest);
            idle.extend(slot.http1.renew(oldest).into_iter().map(|connection| (id, connection)));
        }
        Some(idle)
    }
}

/// The instant `span` before `now`, if time had begun by then.
fn earlier(now: Timestamp, span: Duration) -> Option<Timestamp> {
    let span = u64::try_from(span.as_nanos()).ok()?;
    now.as_nanos().checked_sub(span).map(Timestamp::from_nanos)
}
