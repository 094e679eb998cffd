//! File descriptors: their limit, and accepts without one.
//!
//! `accept` fails for want of a descriptor and leaves the connection in the queue, so that the
//! socket stays readable. A loop that retries at once spins; one that waits lets clients hang until
//! they time out. One descriptor is kept in reserve for that: released, it lets a connection be
//! accepted and closed at once, so that its client knows.

use std::fs::{self, File};
use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::{Backend, Cluster, Config};
use crate::inbound;
use crate::sockets::Accepting;

/// Connections rejected in one go. The accept loop has other work in between.
const MOST_AT_ONCE: usize = 64;
/// Descriptors beyond those of connections: standard streams, the admin API, logs, and some of each
/// thread.
const BESIDES: u64 = 64;
const PER_THREAD: u64 = 8;

/// Whether an error says that descriptors have run out, of the process or of the system.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// A descriptor that is held so that there is one to give up.
#[derive(Debug)]
pub(crate) struct Reserve(Option<File>);

impl Reserve {
    pub(crate) fn hold() -> Self {
        Self(File::open("/dev/null").ok())
    }

    /// Accepts connections that wait in the queue and closes them, by means of the descriptor in
    /// reserve; says how many.
    pub(crate) async fn turn_away(&mut self, listener: &Accepting) -> u64 {
        let mut count = 0;
        for _ in 0..MOST_AT_ONCE {
            drop(self.0.take());
            let accepted = poll_fn(|cx| Poll::Ready(listener.poll_reject(cx))).await;
            let was_turned_away = matches!(accepted, Poll::Ready(Ok(())));
            drop(accepted);
            *self = Self::hold();
            // Another thread may have taken the released descriptor.
            if !was_turned_away {
                break;
            }
            count += 1;
        }
        count
    }
}

/// Raises this process's limit of descriptors as far as it may, and logs if there are fewer than
/// `config` may need. The soft limit, 1,024 for the sake of programs that use `select`, is no
/// measure for a server.
///
/// Whenever the table of descriptors grows, which is at each power of two, the kernel waits until
/// no processor can be looking at the old one, if the process has several threads: the thread that
/// accepts stands still for 10 to 20 ms, and in a crowd that comes at once that happens six times.
/// So it grows here, at one go; it never shrinks.
pub(crate) fn prepare_for(config: &Config) {
    let need = Need::of(config);
    let needed = need.total();
    let limit = raise_limit();
    if limit < needed {
        let clients = need.clients_within(limit);
        tracing::warn!(
            limit,
            needed,
            "too few file descriptors: further clients are rejected when they run out; help: raise the hard limit \
             (LimitNOFILE= in systemd, `ulimit -Hn` in a shell, --ulimit nofile= in Docker), or lower max_connections \
             to {clients}, all listeners together"
        );
    }
    let highest = i32::try_from(limit.min(needed).saturating_sub(1)).unwrap_or(i32::MAX);
    let grown = File::open("/dev/null").and_then(|file| Ok(rustix::io::fcntl_dupfd_cloexec(file, highest)?));
    if let Err(error) = grown {
        tracing::debug!(%error, "table of file descriptors not enlarged in advance");
    }
}

/// Raises the soft limit to the hard one, which an administrator has set, and returns it.
fn raise_limit() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let is_raised = current != maximum && setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    let limit = if is_raised { maximum } else { current };
    limit.unwrap_or(u64::MAX)
}

/// Descriptors that a configuration may need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Need {
    /// Connections of clients.
    clients: u64,
    /// The most connections to backends, by the limits of the clusters.
    backends: u64,
    /// All others.
    others: u64,
}

impl Need {
    fn of(config: &Config) -> Self {
        let threads = config.threads().get() as u64;
        let clusters = config.clusters().values();
        let watched = clusters.clone().filter(|cluster| cluster.inbound.is_some()).count() as u64;
        Self {
            clients: config.listeners().iter().map(|listener| listener.max_connections.get() as u64).sum(),
            backends: clusters.map(|cluster| to_backends(cluster, threads)).fold(0, u64::saturating_add),
            others: BESIDES + PER_THREAD * threads + inbound::FILES * watched,
        }
    }

    /// Each client may have one request at a backend, as far as backends accept requests. A client on
    /// HTTP/2 may have many; that few do so at once is an assumption.
    fn total(self) -> u64 {
        self.clients.saturating_add(self.clients.min(self.backends)).saturating_add(self.others)
    }

    /// The most connections of clients for which `limit` is enough.
    fn clients_within(self, limit: u64) -> u64 {
        let free = limit.saturating_sub(self.others);
        (free / 2).max(free.saturating_sub(self.backends))
    }
}

/// The most connections to the backends of a cluster: one for each active request, the idle ones of
/// each thread, and one for checks. No bound where backends come from a source or from names.
fn to_backends(cluster: &Cluster, threads: u64) -> u64 {
    let is_name = |backend: &Backend| backend.address.known().is_none();
    if cluster.discovery.is_some() || cluster.backends.iter().any(is_name) {
        return u64::MAX;
    }
    let kept = cluster.pool.max_idle_connections.max(cluster.pool.min_connections) as u64;
    let active = u64::from(cluster.balancer.max_active_requests.get());
    let of_each = active.saturating_add(kept.saturating_mul(threads)).saturating_add(1);
    of_each.saturating_mul(cluster.backends.len() as u64)
}

/// Descriptors that are open; `None` where the system does not say.
pub(crate) fn open_count() -> Option<u64> {
    // Linux 6.2 and later say it as the size; before that it is 0.
    let size = fs::metadata("/proc/self/fd").ok()?.len();
    if size > 0 { Some(size) } else { Some(fs::read_dir("/proc/self/fd").ok()?.count() as u64) }
}

/// Descriptors that may be open; `None` for any number.
pub(crate) fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn reserve_is_held_again_after_queued_connections_are_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let listener = Accepting::Tcp(listener);
        let mut clients = [TcpStream::connect(address).await.unwrap(), TcpStream::connect(address).await.unwrap()];
        let mut reserve = Reserve::hold();
        let mut count = 0;
        while count < 2 {
            listener.ready_to_accept().await;
            count += reserve.turn_away(&listener).await;
        }
        for client in &mut clients {
            assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
        }
        assert_eq!(reserve.turn_away(&listener).await, 0);
        assert!(reserve.0.is_some());
    }

    trait ReadyToAccept {
        async fn ready_to_accept(&self);
    }

    impl ReadyToAccept for Accepting {
        /// Gives the runtime a turn, in which it accepts connections.
        async fn ready_to_accept(&self) {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn only_a_want_of_descriptors_is_one() {
        assert!(is_shortage(&Errno::MFILE.into()) && is_shortage(&Errno::NFILE.into()));
        assert!(!is_shortage(&Errno::CONNABORTED.into()) && !is_shortage(&io::Error::other("else")));
    }

    /// The need of a file with one listener and these lines for its cluster.
    fn need(listener: &str, cluster: &str) -> Need {
        let text = format!(
            "threads = 2\n[[listeners]]\naddress = \"127.0.0.1:8080\"\n{listener}\n[[routes]]\ncluster = \"web\"\n\
             [clusters.web]\n{cluster}\n"
        );
        Need::of(&Config::parse("test.toml", &text).unwrap())
    }

    #[test]
    fn two_descriptors_are_needed_for_each_client_while_backends_have_slots() {
        assert_eq!(need("max_connections = 300", "backends = [\"127.0.0.1:80\"]").total(), 680);
        let watching = "backends = [\"127.0.0.1:80\"]\n[clusters.web.inbound]\npid = 1";
        assert_eq!(need("max_connections = 300", watching).total(), 680 + inbound::FILES);
        let unbounded = need("max_connections = 300", "backends = [\"web.internal:80\"]");
        assert_eq!((unbounded.backends, unbounded.total()), (u64::MAX, 680));
    }

    #[test]
    fn few_backends_need_few_connections_by_their_limits() {
        let of_one = need("", "backends = [\"127.0.0.1:80\"]");
        assert_eq!(of_one.backends, 100 + 2 * 100 + 1);
        assert_eq!(of_one.total(), 10_000 + 301 + 80);
        let limits = "max_active_requests = 5\nmax_idle_connections = 2\nmin_connections = 0";
        assert_eq!(need("", &format!("backends = [\"10.0.0.1:80\", \"10.0.0.2:80\"]\n{limits}")).backends, 20);
    }

    #[test]
    fn named_number_of_clients_is_the_largest_that_fits() {
        for need in [
            Need { clients: 10_000, backends: 300, others: 80 },
            Need { clients: 10_000, backends: u64::MAX, others: 80 },
            Need { clients: 10_000, backends: 0, others: 80 },
        ] {
            for limit in [1_024, 4_096, 10_001] {
                let clients = need.clients_within(limit);
                let total = |clients| Need { clients, ..need }.total();
                assert!(total(clients) <= limit && total(clients + 1) > limit, "{need:?} within {limit}: {clients}");
            }
        }
        assert_eq!(Need { clients: 1, backends: 1, others: 80 }.clients_within(10), 0);
    }

    #[test]
    fn all_descriptors_that_the_system_allows_are_taken() {
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        // Hardly lower, as other tests of this process have to do with it.
        let low = maximum.map_or(1 << 16, |maximum| maximum - 1);
        setrlimit(Resource::Nofile, Rlimit { current: Some(low), maximum }).unwrap();
        let text = "threads = 1\n[[listeners]]\naddress = \"127.0.0.1:8080\"\nmax_connections = 300\n[[routes]]\ncluster = \"web\"\n[clusters.web]\nbackends = [\"10.0.0.1:80\"]\n";
        prepare_for(&Config::parse("test.toml", text).unwrap());
        assert_eq!(getrlimit(Resource::Nofile).current, maximum);
    }

    #[test]
    fn open_descriptors_are_counted() {
        let before = open_count().unwrap();
        let _files: Vec<File> = (0..50).map(|_| File::open("/dev/null").unwrap()).collect();
        // Other tests of this process open and close some meanwhile.
        assert!(open_count().unwrap() > before + 20);
        assert!(limit().is_none_or(|limit| limit >= open_count().unwrap()));
    }
}
