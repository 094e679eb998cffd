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

use parking_lot::Mutex;
use plimsoll_core::LoadReport;
use plimsoll_core::probe::{Instance, Pace, QueryLimits, ResponderConfig, ResponderCounts, ServerState};
use plimsoll_wire::probe::{CookieKey, Keyring};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;

use run::Run;

use super::socket::Socket;

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
pub struct ResponderSettings {
    /// The TCP ports of the server.
    pub ports: Vec<u16>,
    /// The keys of queries.
    pub keyring: Keyring,
    /// The queries that it accepts.
    pub limits: QueryLimits,
}

/// Counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
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
    /// Readable after a change of the subject's state, and at the end.
    event: OwnedFd,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    has_ended: bool,
    counts: Counts,
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
        if settings.keyring.accepts_keyless()
            && let Some(address) = addresses.iter().find(|address| !address.ip().is_loopback())
        {
            let problem = format!("probes without a key at {address}; help: use keys, or an address of loopback");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared { event, progress: Mutex::default() });
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
    pub fn counts(&self) -> Counts {
        self.shared.progress.lock().counts
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.shared.progress.lock().has_ended = true;
        self.waker().wake();
        if let Some(thread) = self.thread.take() {
            // It has no reason to panic, and a panic in a drop would end the process.
            let _ = thread.join();
        }
    }
}

fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    // Up to 256 bytes come whole.
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
