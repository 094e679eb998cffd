//! Answers probes by UDP at the port number of a listener: a sidecar speaks for its service.
//!
//! ```text
//! clusters, gates ──every 20 ms──▶ service ──publishes──▶ responder (a thread) ◀──UDP──▶ clients
//!                                  state, load               ▲
//! drain, removal ────────────────────────────────────────────┘ at once
//! ```
//!
//! Each listener has a responder of its own, because the services behind two listeners may have
//! different states. The machine and its thread are the library's ([`plimsoll::probe`]).
//!
//! A successor gets the same sockets, and reads them only after this process has paused: a client
//! sees one process, then the other, and datagrams wait in the socket meanwhile ([`Handover`]).

mod load;
mod service;
mod state;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use plimsoll::probe::{Keyring, Responder, ResponderSettings, ResponderView};

pub(crate) use self::service::Behind;
use self::service::{Service, watch};
use crate::phase::Life;

/// Time for the notices of a listener that was removed: several resends at a usual round trip.
const REMOVAL: Duration = Duration::from_secs(1);

/// The answers at one listener.
pub(crate) struct Answers {
    service: Arc<Service>,
    /// A copy of the responder's, for a successor.
    socket: UdpSocket,
    address: SocketAddr,
    progress: Mutex<Progress>,
}

/// The responder, from its start to its end.
enum Progress {
    /// The socket is bound, and nobody reads it.
    Bound(Box<Keyring>),
    Running(Responder),
    Ended,
}

impl Answers {
    /// Answers at `socket`, bound to `address`, which nobody reads before [`start`](Self::start).
    pub(crate) fn new(socket: UdpSocket, address: SocketAddr, keyring: Keyring, life: &Life) -> Arc<Self> {
        let progress = Mutex::new(Progress::Bound(Box::new(keyring)));
        Arc::new(Self { service: Service::new(life.clone()), socket, address, progress })
    }

    /// Begins to answer, unless it has. Call it within a runtime, on which the clusters are watched.
    pub(crate) fn start(&self) {
        let progress = &mut *self.progress.lock();
        let Progress::Bound(keyring) = progress else { return };
        // The first answer has the state of now.
        self.service.look();
        let settings = ResponderSettings::new([self.address.port()], std::mem::take(&mut **keyring));
        let responder =
            self.socket.try_clone().and_then(|socket| Responder::start(vec![socket], settings, self.service.facts()));
        *progress = match responder {
            Ok(responder) => {
                self.service.set_waker(responder.waker());
                tokio::spawn(watch(Arc::downgrade(&self.service)));
                tracing::info!(address = %self.address, "answering probes");
                Progress::Running(responder)
            }
            Err(error) => {
                tracing::error!(%error, address = %self.address, "probes not answered");
                Progress::Ended
            }
        };
    }

    /// The listener accepts from now on.
    pub(crate) fn open(&self) {
        self.service.open();
    }

    /// Replaces the keys. Leases stay.
    pub(crate) fn set_keyring(&self, keyring: Keyring) {
        match &mut *self.progress.lock() {
            Progress::Bound(keys) => **keys = keyring,
            Progress::Running(responder) => {
                if let Err(error) = responder.set_keyring(keyring) {
                    tracing::error!(%error, address = %self.address, "keys of probes not replaced");
                }
            }
            Progress::Ended => {}
        }
    }

    /// Sets the clusters that the listener's routes lead to.
    pub(crate) fn set_behind(&self, behind: Vec<Behind>) {
        self.service.set_behind(behind);
    }

    /// Tells clients of a change of the proxy's phase.
    pub(crate) fn wake(&self) {
        self.service.wake();
    }

    /// Ends the answers of a listener that was removed, once its clients know.
    pub(crate) fn remove(self: Arc<Self>) {
        self.service.remove();
        tokio::spawn(async move {
            tokio::time::sleep(REMOVAL).await;
            self.end();
        });
    }

    /// Ends at once, without a notice.
    pub(crate) fn end(&self) {
        *self.progress.lock() = Progress::Ended;
    }

    /// Counts since the start.
    pub(crate) fn counts(&self) -> ResponderView {
        match &*self.progress.lock() {
            Progress::Running(responder) => responder.counts(),
            Progress::Bound(_) | Progress::Ended => ResponderView::default(),
        }
    }

    fn with_responder(&self, call: impl FnOnce(&Responder)) {
        if let Progress::Running(responder) = &*self.progress.lock() {
            call(responder);
        }
    }
}

/// The answers of a process while a successor takes them over. Dropped, it goes on as before.
#[derive(Default)]
pub struct Handover(Vec<Arc<Answers>>);

impl Handover {
    pub(crate) fn new(answers: Vec<Arc<Answers>>) -> Self {
        Self(answers)
    }

    /// Copies of the sockets.
    ///
    /// # Errors
    /// When there are too many descriptors.
    pub fn sockets(&self) -> io::Result<Vec<UdpSocket>> {
        self.0.iter().map(|answers| answers.socket.try_clone()).collect()
    }

    /// Reads and sends nothing from now on. Datagrams wait in the sockets for the successor.
    pub fn pause(&self) {
        for answers in &self.0 {
            answers.with_responder(|responder| {
                if !responder.pause() {
                    tracing::warn!(address = %answers.address, "answers to probes did not pause in time");
                }
            });
        }
    }

    /// The successor answers from now on.
    pub fn finish(mut self) {
        self.0.drain(..).for_each(|answers| answers.end());
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        self.0.iter().for_each(|answers| answers.with_responder(Responder::resume));
    }
}
