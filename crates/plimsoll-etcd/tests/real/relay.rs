//! A TCP relay before one endpoint, which can be silent or cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll_testkit::ports::free_port;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Open,
    /// Connections are accepted and stay, but no byte is passed on.
    Silent,
    /// Connections are closed, also new ones.
    Cut,
}

#[derive(Debug, Default)]
struct Counts {
    accepted: AtomicUsize,
    open: AtomicUsize,
}

pub(crate) struct Relay {
    pub(crate) endpoint: String,
    mode: watch::Sender<Mode>,
    /// Where new connections go. A change ends the old ones.
    target: watch::Sender<String>,
    counts: Arc<Counts>,
    task: JoinHandle<()>,
}

impl Relay {
    pub(crate) async fn start(target: &str) -> Self {
        let endpoint = format!("127.0.0.1:{}", free_port());
        let listener = TcpListener::bind(&endpoint).await.unwrap();
        let (mode, modes) = watch::channel(Mode::Open);
        let counts = Arc::new(Counts::default());
        let (target, targets) = watch::channel(target.to_owned());
        let task = tokio::spawn(accept(listener, targets, modes, Arc::clone(&counts)));
        Self { endpoint, mode, target, counts, task }
    }

    pub(crate) fn silence(&self) {
        self.mode.send_replace(Mode::Silent);
    }

    pub(crate) fn cut(&self) {
        self.mode.send_replace(Mode::Cut);
    }

    /// Passes bytes on again, on the connections that are still there and on new ones.
    pub(crate) fn restore(&self) {
        self.mode.send_replace(Mode::Open);
    }

    /// Ends all connections; the next ones reach another target.
    pub(crate) fn redirect(&self, target: &str) {
        self.target.send_replace(target.to_owned());
    }

    /// Ends all connections.
    pub(crate) fn reset(&self) {
        self.target.send_modify(|_| {});
    }

    /// Connections since the start, without those that were closed at once.
    pub(crate) fn accepted(&self) -> usize {
        self.counts.accepted.load(Ordering::Relaxed)
    }

    /// Connections now.
    pub(crate) fn open(&self) -> usize {
        self.counts.open.load(Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The endpoints of relays.
pub(crate) fn endpoints(relays: &[Relay]) -> Vec<String> {
    relays.iter().map(|relay| relay.endpoint.clone()).collect()
}

/// The relay that a client of one connection uses.
pub(crate) fn in_use(relays: &[Relay]) -> usize {
    let used: Vec<_> = (0..relays.len()).filter(|&n| relays[n].open() > 0).collect();
    assert_eq!(used.len(), 1, "one endpoint is used");
    used[0]
}

async fn accept(
    listener: TcpListener,
    targets: watch::Receiver<String>,
    modes: watch::Receiver<Mode>,
    counts: Arc<Counts>,
) {
    loop {
        let (client, _) = listener.accept().await.unwrap();
        if *modes.borrow() == Mode::Cut {
            continue;
        }
        counts.accepted.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(pass(client, targets.clone(), modes.clone(), Arc::clone(&counts)));
    }
}

async fn pass(
    client: TcpStream,
    mut targets: watch::Receiver<String>,
    modes: watch::Receiver<Mode>,
    counts: Arc<Counts>,
) {
    counts.open.fetch_add(1, Ordering::Relaxed);
    let target = targets.borrow_and_update().clone();
    let mut cut = modes.clone();
    let copied = async {
        // The target may be unreachable: then the connection ends.
        let Ok(server) = TcpStream::connect(target).await else { return };
        let (client_read, client_write) = client.into_split();
        let (server_read, server_write) = server.into_split();
        tokio::select! {
            () = copy(client_read, server_write, modes.clone()) => {}
            () = copy(server_read, client_write, modes.clone()) => {}
        }
    };
    tokio::select! {
        () = copied => {}
        _ = cut.wait_for(|&mode| mode == Mode::Cut) => {}
        _ = targets.changed() => {}
    }
    counts.open.fetch_sub(1, Ordering::Relaxed);
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut modes: watch::Receiver<Mode>) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        // A relay that ends takes its connections along.
        if modes.wait_for(|&mode| mode == Mode::Open).await.is_err() || to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
