//! The work of balancers besides requests: wake-ups, checks, probes and notices.

use std::time::Duration;

use plimsoll_core::LoadReport;
use plimsoll_core::health::CheckOutcome;
use plimsoll_core::pick::ProbeSource;

use super::{Event, Note, Probe, Probed, Word, World};
use crate::kernel::NEVER;
use crate::kernel::streams::unit;
use crate::model::backend::Message;

/// A check without an answer fails after this time: the library's default.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

impl World<'_> {
    /// Call it after each input to a client's balancer.
    pub(super) fn settle(&mut self, number: u32) {
        let client = &mut self.clients[number as usize];
        if client.has_changes() {
            client.follow(self.arena.now, &self.weights);
        }
        if !client.waiting.is_empty() {
            self.serve_waiting(number);
        }
        self.expect_wake(number);
    }

    /// Schedules the next wake-up of the balancer.
    pub(super) fn expect_wake(&mut self, number: u32) {
        let client = &mut self.clients[number as usize];
        let Some(at) = client.balancer.poll_timeout() else { return };
        let at = at.max(self.arena.now);
        if at < client.wake_at {
            client.wake_at = at;
            self.arena.push(at, Event::Wake(number));
        }
    }

    pub(super) fn wake(&mut self, number: u32) -> bool {
        let client = &mut self.clients[number as usize];
        if client.wake_at != self.arena.now {
            return false;
        }
        client.wake_at = NEVER;
        client.balancer.handle_timeout(self.arena.now, &mut client.changes);
        while let Some(id) = self.clients[number as usize].balancer.poll_check() {
            let backend = self.clients[number as usize].backend(id);
            let note = self.notes.insert(Note { client: number, backend, id, word: Word::Check });
            if !self.carrier.send(&mut self.arena, Event::CheckReach(note)) {
                self.check_fails(note);
            }
        }
        self.settle(number);
        true
    }

    pub(super) fn check_reach(&mut self, number: u32) -> bool {
        let backend = &mut self.backends[self.notes[number].backend as usize];
        let Some(outcome) = backend.check() else {
            self.check_fails(number);
            return true;
        };
        let message = Message::CheckAnswer;
        let report = if outcome == CheckOutcome::Unreachable { None } else { backend.report(self.arena.now, message) };
        self.notes[number].word = Word::Checked(outcome, report);
        if !self.carrier.send(&mut self.arena, Event::CheckAnswer(number)) {
            self.check_fails(number);
        }
        true
    }

    fn check_fails(&mut self, number: u32) {
        self.notes[number].word = Word::Checked(CheckOutcome::Failed, None);
        self.arena.push(self.arena.now + CHECK_TIMEOUT, Event::CheckAnswer(number));
    }

    /// Notifies every client with this backend as a member, by its connection.
    pub(super) fn tell_clients(&mut self, backend: u32, word: Word) {
        for number in 0..self.clients.len() as u32 {
            let Some(id) = self.clients[number as usize].id(backend) else { continue };
            let note = self.notes.insert(Note { client: number, backend, id, word });
            self.carrier.send_surely(&mut self.arena, Event::Notice(note));
        }
    }

    /// A client gets the answer to a check, or a notice.
    pub(super) fn told(&mut self, number: u32) -> bool {
        let Note { client: of, id, word, .. } = self.notes[number];
        self.notes.free(number);
        let client = &mut self.clients[of as usize];
        let (balancer, changes) = (&mut client.balancer, &mut client.changes);
        match word {
            Word::Check => {}
            Word::Checked(outcome, report) => {
                if let Some(report) = &report {
                    balancer.on_report(self.arena.now, id, report, changes);
                }
                balancer.on_check(self.arena.now, id, outcome, &mut client.rng, changes);
            }
            Word::LameDuck => {
                let report = LoadReport { lame_duck: true, ..LoadReport::default() };
                balancer.on_report(self.arena.now, id, &report, changes);
            }
            Word::Gone => balancer.on_process_ended(self.arena.now, id, changes),
        }
        self.settle(of);
        true
    }

    /// Sends the probes that a pick requests. Returns their number.
    pub(super) fn send_probes(&mut self, number: u32) -> u32 {
        let loss = self.arm.probe_loss.as_f64();
        let mut sent = 0;
        let client = &mut self.clients[number as usize];
        while let Some(id) = client.balancer.poll_probe(&mut client.rng) {
            sent += 1;
            let backend = client.backend(id);
            let probe = self.probes.insert(Probe { client: number, backend, id, sent: self.arena.now, answer: None });
            let is_lost = loss > 0.0 && unit(&mut self.probe_loss) < loss;
            if is_lost || !self.carrier.send(&mut self.arena, Event::ProbeReach(probe)) {
                self.probes.free(probe);
            }
        }
        sent
    }

    pub(super) fn probe_reach(&mut self, number: u32) -> bool {
        let probe = &mut self.probes[number];
        let backend = &mut self.backends[probe.backend as usize];
        let answer = backend.probe(self.arena.now);
        probe.answer = match self.balancer.prequal.source {
            ProbeSource::Live => answer.map(Probed::Pooled),
            // A datagram has the fields of a load report.
            ProbeSource::Frugal | ProbeSource::Responses => {
                answer.and_then(|_| backend.report(self.arena.now, Message::CheckAnswer)).map(Probed::Report)
            }
        };
        if probe.answer.is_none() || !self.carrier.send(&mut self.arena, Event::ProbeAnswer(number)) {
            self.probes.free(number);
        }
        true
    }

    pub(super) fn probe_answer(&mut self, number: u32) -> bool {
        let Probe { client: of, id, sent, answer, .. } = self.probes[number];
        self.probes.free(number);
        if self.arena.now.since(sent) > self.plan.requests.probe_timeout {
            return true;
        }
        let client = &mut self.clients[of as usize];
        match answer {
            Some(Probed::Pooled(answer)) => client.balancer.on_probe(self.arena.now, id, answer),
            Some(Probed::Report(report)) => {
                client.balancer.on_report(self.arena.now, id, &report, &mut client.changes);
                self.settle(of);
            }
            None => {}
        }
        true
    }
}
