//! A backend: a process with a responder, or none while it restarts.

use std::time::Duration;

use plimsoll_core::Timestamp;
use plimsoll_core::probe::{Notice, Pace, Peer, Query, QueryLimits, Reply, Responder, ResponderConfig, ServerState};

use super::pair::{PORT, Secret, instance};

/// Time after a change in which a client may still act on the former state: a query and its answer.
const NEWS: Duration = Duration::from_secs(2);

pub(super) struct Server {
    number: u32,
    restarts: u32,
    responder: Option<Responder>,
    /// The last time at which it wanted no requests; `None` for never.
    unready_at: Option<Timestamp>,
}

impl Server {
    pub(super) fn new(number: u32) -> Self {
        Self { number, restarts: 0, responder: Some(responder(number, 0)), unready_at: None }
    }

    /// `None` without a process.
    pub(super) fn state(&self) -> Option<ServerState> {
        self.responder.as_ref().map(Responder::state)
    }

    /// Whether it wanted no requests a moment ago.
    pub(super) fn was_unready(&self, now: Timestamp) -> bool {
        self.state() == Some(ServerState::LameDuck) || self.unready_at.is_some_and(|at| now.since(at) < NEWS)
    }

    /// Whether a process has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.restarts > 0 || self.responder.is_none()
    }

    /// `None` if there is no process: the query is refused.
    pub(super) fn on_query(&mut self, now: Timestamp, peer: &Peer, query: &Query) -> Option<Reply> {
        let secret = Secret(u64::from(self.number) << 32 | u64::from(self.restarts));
        Some(self.responder.as_mut()?.on_query(now, peer, query, || None, &secret))
    }

    pub(super) fn poll(&mut self, now: Timestamp) -> Vec<(Peer, Notice)> {
        let mut notices = Vec::new();
        if let Some(responder) = &mut self.responder {
            responder.poll(now, &mut notices);
        }
        notices
    }

    pub(super) fn poll_timeout(&self) -> Option<Timestamp> {
        self.responder.as_ref()?.poll_timeout()
    }

    pub(super) fn become_lame_duck(&mut self, now: Timestamp) {
        if let Some(responder) = &mut self.responder {
            responder.set_state(ServerState::LameDuck);
            self.unready_at = Some(now);
        }
    }

    pub(super) fn end(&mut self) {
        self.responder = None;
    }

    pub(super) fn start(&mut self, now: Timestamp) {
        self.unready_at = self.unready_at.map(|_| now);
        self.restarts += 1;
        self.responder = Some(responder(self.number, self.restarts));
    }
}

fn responder(number: u32, restarts: u32) -> Responder {
    let config = ResponderConfig {
        instance: instance(number, restarts),
        ports: [PORT].into(),
        limits: QueryLimits::default(),
        pace: Pace::NOTICES,
        hash_seed: number.into(),
    };
    Responder::new(config, ServerState::Healthy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_origin(Duration::from_secs(secs))
    }

    #[test]
    fn server_remembers_the_causes_of_changes() {
        let mut server = Server::new(0);
        assert!(!server.was_unready(at(1)) && !server.has_ended());
        server.become_lame_duck(at(1));
        assert!(server.was_unready(at(100)) && !server.has_ended());
        server.end();
        assert_eq!((server.state(), server.has_ended()), (None, true));
        server.start(at(200));
        assert_eq!(server.state(), Some(ServerState::Healthy));
        assert!(server.was_unready(at(201)) && !server.was_unready(at(202)));
    }
}
