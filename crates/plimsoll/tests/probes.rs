//! Probes between both sides of the library: idle clients cost no check, and learn of a lame duck at
//! once.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod support;

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use plimsoll::client::{Check, Client, Cluster, ClusterConfig, ProbeConfig};
use plimsoll::probe::{Keyring, ProbeKeys, Responder, ResponderSettings, hand_out_keys, read_keys};
use plimsoll::server::{Lifecycle, ServeConfig, ServerLayer, serve};
use plimsoll_core::health::State;
use plimsoll_core::probe::SilenceCause;
use plimsoll_wire::headers::X_PLIMSOLL_PROBE_KEY;
use plimsoll_wire::probe::{ClientKey, Seed};
use plimsoll_wire::{grpc, health};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use support::{state_of, until};

const INACTIVE_AFTER: Duration = Duration::from_millis(600);

/// A server whose TCP connections are counted.
struct Server {
    address: SocketAddr,
    lifecycle: Lifecycle,
    connections: Arc<AtomicUsize>,
    responder: Option<Responder>,
    task: JoinHandle<()>,
}

impl Server {
    async fn start(address: &str, keyring: Option<Keyring>) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let lifecycle = Lifecycle::new();
        lifecycle.ready();
        let milliseconds = Duration::from_millis;
        let mut config = ServeConfig::default();
        config.drain.quiet = milliseconds(20);
        config.drain.announce = milliseconds(2000);
        config.drain.drain = milliseconds(5000);
        let layer = ServerLayer::builder(lifecycle.clone()).admission(None).readiness_path("/readyz").build();
        let responder = keyring.map(|keyring| {
            let settings = ResponderSettings::new([address.port()], keyring);
            layer.answer_probes(vec![UdpSocket::bind(address).unwrap()], settings).unwrap()
        });
        let connections = Arc::new(AtomicUsize::new(0));
        let requests = connections.clone();
        let service = tower::service_fn(move |_: Request<Incoming>| {
            requests.fetch_add(1, Ordering::SeqCst);
            async { Ok::<_, Infallible>(Response::new(Full::new(Bytes::new()))) }
        });
        let task = tokio::spawn(async move {
            let _end = serve([listener], service, layer, config).await;
        });
        Self { address, lifecycle, connections, responder, task }
    }

    /// A server beyond loopback, if this machine has such an address, that hands out keys.
    async fn with_handed_keys() -> Self {
        Self::start(&SocketAddr::new(own_address(), 0).to_string(), Some(handed())).await
    }

    /// Ends the process without a word, and starts another one at its address.
    async fn replaced(self) -> Self {
        self.task.abort();
        let _ = self.task.await;
        drop(self.responder);
        Self::start(&self.address.to_string(), Some(handed())).await
    }
}

fn handed() -> Keyring {
    hand_out_keys(Keyring::default()).unwrap()
}

/// An address of this machine. Nothing is sent to find it.
fn own_address() -> IpAddr {
    let route = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.0.2.1:9")?;
        socket.local_addr()
    });
    route.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |address| address.ip())
}

/// A cluster without keys, whose checks bring them.
fn checked_cluster(address: SocketAddr, check: Check) -> Cluster {
    let mut settings = config(None);
    settings.check = check;
    settings.probes = Some(ProbeConfig::default().interval(Duration::from_secs(1)));
    let cluster = Cluster::new("test", settings, [address]);
    tokio::spawn(cluster.run());
    cluster
}

fn readiness() -> Check {
    Check::Http { path: "/readyz".parse().unwrap(), host: None }
}

fn silent(cluster: &Cluster) -> usize {
    cluster.probes().unwrap().census.silent.iter().sum()
}

fn config(keys: Option<ProbeKeys>) -> ClusterConfig {
    let mut config = ClusterConfig::default();
    config.check = Check::Http { path: "/".parse().unwrap(), host: None };
    let mut probes = ProbeConfig::default();
    probes.keys = keys;
    config.probes = Some(probes);
    config.balancer.checks.interval = Duration::from_millis(50);
    config.pool.inactive_after = INACTIVE_AFTER;
    config
}

fn cluster(address: SocketAddr, keys: Option<ProbeKeys>) -> Cluster {
    let cluster = Cluster::new("test", config(keys), [address]);
    tokio::spawn(cluster.run());
    cluster
}

async fn becomes_inactive(cluster: &Cluster) {
    until(|| cluster.probes().unwrap().census.inactive == 1).await;
}

#[tokio::test]
async fn idle_client_sends_no_checks_and_learns_of_a_lame_duck_at_once() {
    let server = Server::start("127.0.0.1:0", Some(Keyring::keyless())).await;
    let cluster = cluster(server.address, None);
    becomes_inactive(&cluster).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let checks = server.connections.load(Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(server.connections.load(Ordering::SeqCst), checks, "one every 50 ms before");

    server.lifecycle.lame_duck();
    until(|| state_of(&cluster, server.address) == State::LameDuck).await;
    assert!(!server.task.is_finished(), "known before the listener closes");
    assert_eq!(cluster.probes().unwrap().counts.notices, 1);

    // The UDP port closes with the process; a query every second finds it.
    server.task.await.unwrap();
    drop(server.responder);
    until(|| state_of(&cluster, server.address) == State::Refusing).await;
    let next = Server::start(&server.address.to_string(), Some(Keyring::keyless())).await;
    until(|| state_of(&cluster, next.address) == State::Healthy).await;
}

#[tokio::test]
async fn request_wakes_an_inactive_backend() {
    let server = Server::start("127.0.0.1:0", Some(Keyring::keyless())).await;
    let cluster = cluster(server.address, None);
    becomes_inactive(&cluster).await;
    let client = Client::<Full<Bytes>>::new(&cluster);
    client.send(Request::get("http://any/").body(Full::default()).unwrap()).await.unwrap();
    assert_eq!(cluster.probes().unwrap().counts.woken, 1);
    assert_eq!(cluster.probes().unwrap().census.inactive, 0);
    becomes_inactive(&cluster).await;
}

#[tokio::test]
async fn backend_without_a_responder_is_checked_as_before() {
    let server = Server::start("127.0.0.1:0", None).await;
    let cluster = cluster(server.address, None);
    let silent = |cluster: &Cluster| cluster.probes().unwrap().census.silent[SilenceCause::Refused as usize];
    until(|| silent(&cluster) == 1).await;
    let checks = server.connections.load(Ordering::SeqCst);
    until(|| server.connections.load(Ordering::SeqCst) > checks + 5).await;
    assert_eq!(state_of(&cluster, server.address), State::Healthy);
}

#[tokio::test]
async fn keys_must_agree() {
    let text = |secret: &str| format!("1 {}\n", secret.repeat(16));
    let (right, wrong) = (text("0f"), text("f0"));
    let server = Server::start("127.0.0.1:0", Some(read_keys(&right).unwrap().0)).await;
    let [knows, guesses] = [&right, &wrong].map(|text| cluster(server.address, Some(ProbeKeys::read(text).unwrap())));
    let keyless = cluster(server.address, None);
    becomes_inactive(&knows).await;
    until(|| guesses.probes().unwrap().counts.queries >= 2).await;
    for cluster in [guesses, keyless] {
        let probes = cluster.probes().unwrap();
        assert_eq!((probes.counts.answers, probes.census.works), (0, 0));
        assert_eq!(state_of(&cluster, server.address), State::Healthy);
    }
}

#[tokio::test]
async fn without_keys_only_loopback_is_probed() {
    let cluster =
        Cluster::new("test", config(None), ["192.0.2.1:80", "127.0.0.1:80"].map(|a| a.parse::<SocketAddr>().unwrap()));
    let census = cluster.probes().unwrap().census;
    assert_eq!(census.unknown, 1);
    cluster.set_config(config(Some(ProbeKeys::read("1 000102030405060708090a0b0c0d0e0f").unwrap())));
    assert_eq!(cluster.probes().unwrap().census.unknown, 2);
    let mut settings = config(None);
    settings.probes = None;
    cluster.set_config(settings);
    assert_eq!(cluster.probes(), None);
}

#[tokio::test]
async fn datagrams_of_strangers_and_false_answers_change_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let backend = UdpSocket::bind(address).unwrap();
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let cluster = cluster(address, None);
    let mut settings = config(None);
    settings.check = Check::Tcp;
    cluster.set_config(settings);
    until(|| state_of(&cluster, address) == State::Healthy).await;
    let (mut answer, client) = lame_duck_answer(&backend).await;
    stranger.send_to(&answer, client).unwrap();
    backend.send_to(&answer[..79], client).unwrap();
    backend.send_to(&[0x0F; 80], client).unwrap();
    until(|| cluster.probes().unwrap().drops.invalid == 3).await;
    answer[8] ^= 1;
    backend.send_to(&answer, client).unwrap();
    until(|| cluster.probes().unwrap().counts.doubted == 1).await;
    assert_eq!(state_of(&cluster, address), State::Healthy);
    // On a busy machine a query may have expired; another one follows.
    while state_of(&cluster, address) != State::LameDuck {
        let (answer, client) = lame_duck_answer(&backend).await;
        backend.send_to(&answer, client).unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The answer to the next query, and the address of the client.
async fn lame_duck_answer(backend: &UdpSocket) -> ([u8; 80], SocketAddr) {
    let backend = backend.try_clone().unwrap();
    backend.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let received = tokio::task::spawn_blocking(move || {
        let mut query = [0; 80];
        let (_, client) = backend.recv_from(&mut query).unwrap();
        (query, client)
    });
    let (mut answer, client) = received.await.unwrap();
    // Kind 2, state lame duck, number 1; lease, round trip and cookie are 0.
    (answer[4], answer[7]) = (2, 3);
    answer[26..40].fill(0);
    answer[31] = 1;
    (answer, client)
}

#[tokio::test]
async fn check_brings_the_key_of_its_backend() {
    for check in [readiness(), Check::Grpc { service: String::new() }] {
        let servers = [Server::with_handed_keys().await, Server::with_handed_keys().await];
        let probes = Some(ProbeConfig::default());
        let mut settings = config(None);
        settings.check = check.clone();
        settings.probes = probes;
        let cluster = Cluster::new("test", settings, servers.each_ref().map(|server| server.address));
        tokio::spawn(cluster.run());
        until(|| cluster.probes().unwrap().census.inactive == 2).await;
        // Without a lease there is no notice.
        until(|| servers.iter().all(|server| server.responder.as_ref().unwrap().counts().leases > 0)).await;
        servers[0].lifecycle.lame_duck();
        until(|| state_of(&cluster, servers[0].address) == State::LameDuck).await;
        assert!(!servers[0].task.is_finished(), "known before the listener closes: {check:?}");
        let probes = cluster.probes().unwrap();
        assert_eq!((probes.counts.notices, probes.drops.unauthentic), (1, 0), "{check:?}");
        assert_eq!(state_of(&cluster, servers[1].address), State::Healthy);
    }
}

#[tokio::test]
async fn replaced_process_is_probed_again_after_three_losses() {
    let server = Server::with_handed_keys().await;
    let cluster = checked_cluster(server.address, readiness());
    becomes_inactive(&cluster).await;
    let server = server.replaced().await;
    let (began, answers) = (Instant::now(), cluster.probes().unwrap().counts.answers);
    until(|| cluster.probes().unwrap().counts.answers >= answers + 2).await;
    let took = began.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    becomes_inactive(&cluster).await;
    let responder = server.responder.as_ref().unwrap();
    let counts = responder.counts();
    assert!(counts.unauthentic >= 1, "queries with the former key: {counts:?}");
    assert_eq!((state_of(&cluster, server.address), silent(&cluster)), (State::Healthy, 0));
}

#[tokio::test]
async fn process_in_place_of_a_lame_duck_is_found_by_a_check() {
    let server = Server::with_handed_keys().await;
    let cluster = checked_cluster(server.address, readiness());
    becomes_inactive(&cluster).await;
    server.lifecycle.lame_duck();
    until(|| state_of(&cluster, server.address) == State::LameDuck).await;
    let server = server.replaced().await;
    let began = Instant::now();
    until(|| state_of(&cluster, server.address) == State::Healthy).await;
    let took = began.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
    becomes_inactive(&cluster).await;
}

#[tokio::test]
async fn closed_port_is_queried_again_with_a_new_key() {
    let server = Server::with_handed_keys().await;
    let mut settings = config(None);
    settings.check = readiness();
    // Requests would keep it active.
    settings.pool.inactive_after = Duration::from_secs(3600);
    settings.probes = Some(ProbeConfig::default().interval(Duration::from_secs(1)));
    let cluster = Cluster::new("test", settings, [server.address]);
    tokio::spawn(cluster.run());
    until(|| cluster.probes().unwrap().census.works == 1).await;
    let Server { address, task, responder, .. } = server;
    drop(responder);
    until(|| silent(&cluster) == 1).await;
    task.abort();
    let _ = task.await;
    let _server = Server::start(&address.to_string(), Some(handed())).await;
    let began = Instant::now();
    until(|| cluster.probes().unwrap().census.works == 1).await;
    let took = began.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}: without a key it takes 20 s");
}

#[tokio::test]
async fn backend_without_keys_is_probed_at_loopback_alone() {
    let IpAddr::V4(ip) = own_address() else { return };
    for (ip, is_probed) in [(ip, ip.is_loopback()), (Ipv4Addr::LOCALHOST, true)] {
        let server = Server::start(&SocketAddr::from((ip, 0)).to_string(), None).await;
        let cluster = checked_cluster(server.address, readiness());
        until(|| state_of(&cluster, server.address) == State::Healthy).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let probes = cluster.probes().unwrap();
        assert_eq!((probes.counts.queries > 0, silent(&cluster) == 1), (is_probed, is_probed), "{probes:?}");
    }
}

#[tokio::test]
async fn forger_without_the_key_changes_nothing() {
    let server = Server::with_handed_keys().await;
    let cluster = checked_cluster(server.address, readiness());
    becomes_inactive(&cluster).await;
    // The forger has the place of the responder, and a key of its own.
    let Server { address, responder, task: _task, .. } = server;
    drop(responder);
    let forger = UdpSocket::bind(address).unwrap();
    let listener = tokio::task::spawn_blocking(move || {
        let mut queries = 0;
        let (mut query, mut client) = ([0; 80], None);
        while queries < 2 {
            client = Some(forger.recv_from(&mut query).unwrap().1);
            queries += 1;
            let mut answer = query;
            // Kind 2, state lame duck, number 2.
            (answer[4], answer[7]) = (2, 3);
            answer[16..24].copy_from_slice(&9_u64.to_be_bytes());
            answer[26..40].fill(0);
            answer[31] = 2;
            forger.send_to(&answer, client.unwrap()).unwrap();
            // Without a key.
            answer[6] = 0;
            answer[64..].fill(0);
            forger.send_to(&answer, client.unwrap()).unwrap();
        }
        (forger, client)
    });
    let _forger = listener.await.unwrap();
    until(|| cluster.probes().unwrap().drops.unauthentic >= 4).await;
    assert_eq!(state_of(&cluster, address), State::Healthy);
    assert_eq!(cluster.probes().unwrap().counts.notices, 0);
}

#[tokio::test]
async fn health_checks_alone_hand_out_keys() {
    let server = Server::with_handed_keys().await;
    let cluster = Cluster::new("test", ClusterConfig::default(), [server.address]);
    tokio::spawn(cluster.run());
    let client = Client::<Full<Bytes>>::new(&cluster);
    let seed = Seed::new([7; 16]);
    let check = grpc::frame(&health::HealthCheckRequest::default());
    let ask = async |method: &str, path: &str, value: Option<&str>| {
        let is_grpc = path.starts_with("/grpc");
        let mut request = Request::builder().method(method).uri(format!("http://any{path}"));
        if is_grpc {
            request = request.header("content-type", "application/grpc");
        }
        if let Some(value) = value {
            request = request.header(X_PLIMSOLL_PROBE_KEY, value);
        }
        let body = if is_grpc { check.clone() } else { Bytes::new() };
        let response = client.send(request.body(Full::new(body)).unwrap()).await.unwrap();
        ClientKey::read(response.headers())
    };
    let value = seed.to_header_value();
    let value = value.to_str().unwrap();
    let key = ask("GET", "/readyz", Some(value)).await.unwrap().unwrap();
    assert_eq!(ask("POST", health::CHECK_PATH, Some(value)).await, Some(Ok(key)));
    let other = Seed::new([8; 16]).to_header_value();
    assert_ne!(ask("GET", "/readyz", other.to_str().ok()).await, Some(Ok(key)), "of another client");
    for (method, path, value) in [
        ("GET", "/readyz", None),
        ("GET", "/readyz", Some("seed=\"\"")),
        ("GET", "/readyz", Some("instance=\"0000000000000005\"")),
        ("HEAD", "/readyz", Some(value)),
        ("POST", "/readyz", Some(value)),
        ("GET", "/", Some(value)),
        ("POST", "/", Some(value)),
        ("POST", health::CHECK_PATH, None),
        ("POST", health::WATCH_PATH, Some(value)),
    ] {
        assert_eq!(ask(method, path, value).await, None, "{method} {path} {value:?}");
    }
    server.lifecycle.lame_duck();
    assert_eq!(ask("GET", "/readyz", Some(value)).await, Some(Ok(key)), "a lame duck is probed, too");
}
