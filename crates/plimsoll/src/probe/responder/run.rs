//! The thread of a responder: waits for datagrams, a change of state, or the next notice.
//!
//! ```text
//! poll ──▶ state ──▶ receive ──▶ decode ──▶ core::Responder ──▶ encode ──▶ send
//!              └──────────────────────────▶ notices ──────────▶ encode ──▶ send
//! ```
//!
//! A flood must not take a core. The thread reads 250,000 datagrams a second at most; the kernel
//! drops those that do not fit into the receive buffer, at little cost. After a turn with many of
//! them it pauses for a millisecond, so that one wake-up serves hundreds.

use std::io;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use plimsoll_core::Timestamp;
use plimsoll_core::probe::{Pace, Pacer, Peer, Reply, Responder, ResponderConfig};
use plimsoll_wire::probe::{CookieKey, Fault, Keyring, LENGTH, Message, decode, encode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{ResponderView, Shared, Subject};
use crate::probe::socket::{Buffers, Read, Route, Socket};

/// Datagrams that are read per second, those of a flood included.
const READS: Pace =
    Pace { per_second: NonZeroU32::new(250_000).expect("not zero"), burst: NonZeroU32::new(5_000).expect("not zero") };
/// Datagrams between two looks at the other sockets, the state and the notices.
const TURN: usize = 256;
/// Datagrams in a turn after which the thread pauses.
const MANY: usize = 16;
/// Its pause: the receive buffer holds the datagrams of twice as long.
const PAUSE: Duration = Duration::from_millis(1);
/// Wait after a failed system call that should not fail.
const AFTER_FAILURE: Duration = Duration::from_millis(10);
/// Local addresses that are told apart. A machine has fewer, unless each of a whole network is its own.
const MAX_LOCALS: usize = 4096;

pub(super) struct Run {
    sockets: Vec<Socket>,
    keyring: Keyring,
    secret: CookieKey,
    subject: Box<dyn Subject>,
    responder: Responder,
    locals: Vec<(usize, Option<IpAddr>)>,
    reads: Pacer,
    /// The last turn had many datagrams, and read them all.
    may_pause: bool,
    counts: ResponderView,
    origin: Instant,
}

impl Run {
    pub(super) fn new(
        sockets: Vec<Socket>,
        config: ResponderConfig,
        keyring: Keyring,
        secret: CookieKey,
        subject: Box<dyn Subject>,
    ) -> Self {
        let responder = Responder::new(config, subject.state());
        Self {
            sockets,
            keyring,
            secret,
            subject,
            responder,
            locals: Vec::new(),
            reads: Pacer::new(READS),
            may_pause: false,
            counts: ResponderView::default(),
            origin: Instant::now(),
        }
    }

    pub(super) fn run(mut self, shared: &Shared) {
        let mut buffers = Buffers::new();
        let mut notices = Vec::new();
        loop {
            self.wait(shared);
            match shared.orders() {
                Some(Some(keyring)) => self.keyring = keyring,
                Some(None) => {}
                None => return,
            }
            self.responder.set_state(self.subject.state());
            self.may_pause = false;
            for socket in 0..self.sockets.len() {
                self.receive(socket, &mut buffers);
            }
            self.responder.poll(self.now(), &mut notices);
            for (peer, notice) in notices.drain(..) {
                self.send(&peer, &Message::Notice(notice));
            }
            self.counts.responder = self.responder.counts();
            self.counts.leases = self.responder.leases();
            shared.progress.lock().counts = self.counts;
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_origin(self.origin.elapsed())
    }

    /// Waits until there is something to do.
    fn wait(&mut self, shared: &Shared) {
        // Notices and their acknowledgements do not wait.
        if self.may_pause && !self.responder.is_informing() {
            std::thread::sleep(PAUSE);
        }
        let now = self.now();
        let until = self.responder.poll_timeout();
        let may_read = self.reads.is_ready(now);
        // While reading has to wait, a datagram is no reason to wake up.
        let until = if may_read {
            until
        } else {
            Some(until.map_or(self.reads.ready_at(TURN), |at| at.min(self.reads.ready_at(TURN))))
        };
        let timeout = until.map(|at| {
            let wait = at.since(now);
            Timespec { tv_sec: wait.as_secs().cast_signed(), tv_nsec: wait.subsec_nanos().into() }
        });
        let mut fds = vec![PollFd::new(&shared.event, PollFlags::IN)];
        if may_read {
            fds.extend(self.sockets.iter().map(|socket| PollFd::new(socket, PollFlags::IN)));
        }
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) if fds[0].revents().is_empty() => {}
            Ok(_) => {
                let mut count = [0; 8];
                let _ = rustix::io::read(&shared.event, &mut count);
            }
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => std::thread::sleep(AFTER_FAILURE),
        }
    }

    fn receive(&mut self, socket: usize, buffers: &mut Buffers) {
        let mut received = 0;
        let mut replies = Vec::new();
        while received < TURN && self.reads.is_ready(self.now()) {
            let Self { sockets, keyring, secret, subject, responder, locals, counts, .. } = self;
            let now = Timestamp::from_origin(self.origin.elapsed());
            let read = sockets[socket].receive(buffers, |route, bytes| {
                let received = match decode(bytes, keyring, None) {
                    Ok(received) => received,
                    Err(Fault::Mac | Fault::UnknownKey) => {
                        counts.unauthentic += 1;
                        return;
                    }
                    Err(_) => {
                        counts.invalid += 1;
                        return;
                    }
                };
                let (Message::Query(query), Some(local)) = (received.message, local(locals, socket, route.local))
                else {
                    counts.invalid += 1;
                    return;
                };
                let peer = Peer { address: route.peer, local, key_id: received.key_id, instance: query.instance };
                let reply = responder.on_query(now, &peer, &query, || subject.load(), secret);
                if let Reply::Answer(answer) = reply {
                    replies.push((peer, answer));
                }
            });
            for (peer, answer) in replies.drain(..) {
                self.send(&peer, &Message::Answer(answer));
            }
            match read {
                Ok(Read { datagrams, is_last }) => {
                    received += datagrams;
                    self.reads.take(now, datagrams);
                    if is_last {
                        self.may_pause |= received >= MANY;
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // Such as an ICMP message to a datagram of ours; the next call reads on.
                Err(_) => received += 1,
            }
        }
    }

    fn send(&mut self, peer: &Peer, message: &Message) {
        let Some(&(socket, local)) = self.locals.get(usize::from(peer.local)) else { return };
        let Some(bytes) = encode(message, &self.keyring, peer.key_id, peer.instance) else { return };
        debug_assert_eq!(bytes.len(), LENGTH, "never longer than a query");
        // A datagram that is not sent is one of the losses that clients expect.
        if self.sockets[socket].send(Route { peer: peer.address, local }, &bytes).is_err() {
            self.counts.unsent += 1;
        }
    }
}

/// The number of a local address. `None` if there are too many.
fn local(locals: &mut Vec<(usize, Option<IpAddr>)>, socket: usize, address: Option<IpAddr>) -> Option<u16> {
    let known = locals.iter().position(|local| *local == (socket, address));
    let number = known.or_else(|| {
        (locals.len() < MAX_LOCALS).then(|| {
            locals.push((socket, address));
            locals.len() - 1
        })
    });
    number.and_then(|number| u16::try_from(number).ok())
}
