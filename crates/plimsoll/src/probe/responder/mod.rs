//! Answers probes on a thread of its own.
//!
//! Not a task: when the executor of a server is full, a task answers late, just when the answer
//! matters. The thread reads the state from an atomic and the load from the last report.
//!
//! One socket for each address, without `SO_REUSEPORT`: with it the kernel binds each client to one
//! of two processes during an upgrade, and half of the clients would ask the old one alone.

mod run;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use plimsoll_core::LoadReport;
use plimsoll_core::probe::{Instance, Pace, QueryLimits, ResponderConfig, ResponderCounts, ServerState};
use plimsoll_wire::probe::{CookieKey, Keyring};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;

use run::Run;

use super::random;
use super::socket::Socket;

/// Longest wait for the thread to pause. It takes some milliseconds in a flood.
const MAX_PAUSE_WAIT: Duration = Duration::from_secs(1);

/// The server that a responder speaks for.
pub trait Subject: Send + Sync + 'static {
    /// Its state. Read for each group of queries, so it must not block.
    fn state(&self) -> ServerState;

    /// Its load, if known. Read for each answer, so it must not block.
    fn load(&self) -> Option<LoadReport> {
        None
    }
}

/// The settings of a responder.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ResponderSettings {
    /// The TCP ports of the server.
    pub ports: Vec<u16>,
    /// The keys of queries.
    pub keyring: Keyring,
    /// The queries that it accepts.
    pub limits: QueryLimits,
}

impl ResponderSettings {
    /// A responder for a server at these TCP ports, with the default limits.
    #[must_use]
    pub fn new(ports: impl IntoIterator<Item = u16>, keyring: Keyring) -> Self {
        Self { ports: ports.into_iter().collect(), keyring, limits: QueryLimits::default() }
    }
}

/// The counts of a responder since its start, and its leases now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponderView {
    /// Those of the answers and notices.
    pub responder: ResponderCounts,
    /// Datagrams that were no valid query: another protocol, a wrong length or field.
    pub invalid: u64,
    /// Queries with a wrong or missing MAC, or an unknown key.
    pub unauthentic: u64,
    /// Answers and notices that the system did not take.
    pub unsent: u64,
    /// Leases now, expired ones included that nobody has removed yet.
    pub leases: usize,
}

struct Shared {
    /// Readable after a change of the subject's state, or of the orders.
    event: OwnedFd,
    progress: Mutex<Progress>,
    /// The thread has paused, or may go on.
    changed: Condvar,
}

/// The orders to the thread, and its results.
#[derive(Default)]
struct Progress {
    has_ended: bool,
    /// The thread is to read and send nothing.
    is_paused: bool,
    /// It does.
    has_paused: bool,
    /// The next keys.
    keyring: Option<Keyring>,
    counts: ResponderView,
}

impl Shared {
    /// Waits while the thread is to pause. `None` at the end, else the next keys if there are any.
    fn orders(&self) -> Option<Option<Keyring>> {
        let mut progress = self.progress.lock();
        while progress.is_paused && !progress.has_ended {
            progress.has_paused = true;
            self.changed.notify_all();
            self.changed.wait(&mut progress);
        }
        progress.has_paused = false;
        (!progress.has_ended).then(|| progress.keyring.take())
    }
}

/// Tells a responder that the state of its subject changed. Clones wake the same one.
#[derive(Clone)]
pub struct Waker(Arc<Shared>);

impl Waker {
    /// Has the responder read the state now. Without it, it does at the next query.
    pub fn wake(&self) {
        // A full counter wakes it as well.
        let _ = rustix::io::write(&self.0.event, &1_u64.to_ne_bytes());
    }
}

/// A running responder. Dropping it ends its thread and closes its sockets.
pub struct Responder {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    addresses: Vec<SocketAddr>,
}

impl Responder {
    /// Answers at `sockets` for `subject`.
    ///
    /// # Errors
    /// If a socket cannot be used, no thread can be started, or the keyring requires no key for a socket
    /// beyond loopback.
    pub fn start(sockets: Vec<UdpSocket>, settings: ResponderSettings, subject: impl Subject) -> io::Result<Self> {
        let sockets = sockets.into_iter().map(Socket::new).collect::<io::Result<Vec<_>>>()?;
        let addresses: Vec<SocketAddr> = sockets.iter().map(Socket::address).collect();
        check(&settings.keyring, &addresses)?;
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared { event, progress: Mutex::default(), changed: Condvar::new() });
        let config = ResponderConfig {
            instance: Instance::new(u64::from_ne_bytes(random()?)).ok_or(io::ErrorKind::Other)?,
            ports: settings.ports,
            limits: settings.limits,
            pace: Pace::NOTICES,
            hash_seed: u64::from_ne_bytes(random()?),
        };
        let run = Run::new(sockets, config, settings.keyring, CookieKey::new(&random()?), Box::new(subject));
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("probes".to_owned()).spawn(move || run.run(&of_thread))?;
        Ok(Self { shared, thread: Some(thread), addresses })
    }

    /// Its addresses, in the order of the sockets.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// To call [`Waker::wake`] at each change of the subject's state.
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.shared))
    }

    /// Counts since the start.
    #[must_use]
    pub fn counts(&self) -> ResponderView {
        self.shared.progress.lock().counts
    }

    /// Replaces the keys. Leases stay. A client whose key is among the new ones notices nothing; any
    /// other one gets no answer and no notice from now on. So a keyring that hands keys out has to be
    /// made from the former one.
    ///
    /// # Errors
    /// If the keyring requires no key for a socket beyond loopback. The keys stay then.
    pub fn set_keyring(&self, keyring: Keyring) -> io::Result<()> {
        check(&keyring, &self.addresses)?;
        self.shared.progress.lock().keyring = Some(keyring);
        self.waker().wake();
        Ok(())
    }

    /// Reads and sends nothing from now on, until [`resume`](Self::resume). Datagrams wait in the
    /// sockets, for this process or for another one that has copies of them. Returns when the last
    /// datagram that was read is answered; whether that is so within a second.
    pub fn pause(&self) -> bool {
        let mut progress = self.shared.progress.lock();
        progress.is_paused = true;
        self.waker().wake();
        let is_waiting = |progress: &mut Progress| !progress.has_paused;
        !self.shared.changed.wait_while_for(&mut progress, is_waiting, MAX_PAUSE_WAIT).timed_out()
    }

    /// Goes on as before a [`pause`](Self::pause): the same process to clients, with its leases.
    pub fn resume(&self) {
        self.shared.progress.lock().is_paused = false;
        self.shared.changed.notify_all();
    }
}

/// Without a key anybody on the way could forge what clients believe.
fn check(keyring: &Keyring, addresses: &[SocketAddr]) -> io::Result<()> {
    let elsewhere = addresses.iter().find(|address| keyring.accepts_keyless() && !address.ip().is_loopback());
    elsewhere.map_or(Ok(()), |address| {
        let problem = format!("probes without a key at {address}; help: use keys, or an address of loopback");
        Err(io::Error::new(io::ErrorKind::InvalidInput, problem))
    })
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.shared.progress.lock().has_ended = true;
        self.shared.changed.notify_all();
        self.waker().wake();
        if let Some(thread) = self.thread.take() {
            // It has no reason to panic, and a panic in a drop would end the process.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
