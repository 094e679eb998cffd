//! Backends that come, change and go under live requests, over real connections on loopback.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod support;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use plimsoll::client::{Client, Cluster, ClusterConfig, Localities, Protocol};
use plimsoll::discover::{
    Answer as Listed, Census, Discover, Endpoint, Fixed, FollowConfig, Freshness, MergeCounts, Readiness,
};
use plimsoll::tls::{TlsConfig, TlsTrust};
use plimsoll_core::health::State;
use plimsoll_core::{LoadReport, Ratio, Speed, Weight};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;

use support::*;

type Plain = Client<Empty<Bytes>>;
type Lists = mpsc::UnboundedSender<Listed>;

/// A source with answers from the test.
struct Fake(mpsc::UnboundedReceiver<Listed>);

impl Discover for Fake {
    async fn next(&mut self) -> Option<Listed> {
        self.0.recv().await
    }
}

fn fake() -> (Lists, Fake) {
    let (lists, answers) = mpsc::unbounded_channel();
    (lists, Fake(answers))
}

fn fails() -> Listed {
    Err("the registry is unreachable".into())
}

/// A running cluster with backends from the test: `servers` at first, all healthy.
async fn following(config: ClusterConfig, servers: &[&Server]) -> (Lists, Cluster) {
    let cluster = Cluster::new("test", config, [] as [Endpoint; 0]);
    tokio::spawn(cluster.run());
    let (lists, source) = fake();
    cluster.follow(source);
    lists.send(Ok(servers.iter().map(|server| server.address.into()).collect())).unwrap();
    until(|| addresses(&cluster).len() == servers.len()).await;
    until(|| cluster.backends().iter().all(|view| view.snapshot.state == State::Healthy)).await;
    (lists, cluster)
}

fn addresses(cluster: &Cluster) -> Vec<SocketAddr> {
    cluster.backends().iter().filter_map(|view| view.backend.address().inet()).collect()
}

/// `server` with everything but its address changed.
fn changed(server: &Server) -> Endpoint {
    let endpoint = Endpoint::new(server.address).weight(Weight::new(4.0).unwrap()).zone("b").locality("east");
    let endpoint = endpoint.speed(Speed::new(2.0).unwrap());
    endpoint.authority("renamed.example:81".parse().unwrap())
}

/// Sends a list, and waits until `server` is described as in it.
async fn describe(lists: &Lists, cluster: &Cluster, list: Vec<Endpoint>, server: &Server) {
    let wanted = list.iter().find(|endpoint| endpoint.address.inet() == Some(server.address)).unwrap().clone();
    lists.send(Ok(list)).unwrap();
    until(|| *view_of(cluster, server.address).backend.endpoint() == wanted).await;
}

/// Answers with the host that it is asked for; `/slow` waits for a permit.
async fn hosts(speaks: Speaks) -> (Arc<Semaphore>, Server) {
    let gate = Arc::new(Semaphore::new(0));
    let at_gate = gate.clone();
    let server = Server::start(speaks, move |request| {
        let gate = (request.uri().path() == "/slow").then(|| at_gate.clone());
        let host = host_of(&request);
        Box::pin(async move {
            if let Some(gate) = gate {
                gate.acquire().await.unwrap().forget();
            }
            Response::new(Full::new(Bytes::from(host)).boxed())
        })
    })
    .await;
    (gate, server)
}

fn host_of(request: &Request<Incoming>) -> String {
    let header = request.headers().get(HOST).map(|host| host.to_str().unwrap().to_owned());
    header.unwrap_or_else(|| request.uri().authority().unwrap().to_string())
}

async fn ask(client: &Plain, path: &str) -> String {
    let response = client.send(get(path)).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

fn protocols() -> [(Protocol, Speaks); 2] {
    [(Protocol::Http1, Speaks::Http1), (Protocol::Http2, Speaks::Http2(100))]
}

fn config_for(protocol: Protocol) -> ClusterConfig {
    let mut config = plain_config();
    config.requests.protocol = protocol;
    config
}

#[tokio::test]
async fn changed_backend_keeps_its_requests_connections_and_averages() {
    for (protocol, speaks) in protocols() {
        let localities = Localities::new(["west", "east"], Default::default()).unwrap();
        let mut config = config_for(protocol);
        config.localities = Some(localities);
        let (gate, server) = hosts(speaks).await;
        let (lists, cluster) = following(config, &[&server]).await;
        let client = Plain::new(&cluster);
        assert_eq!(ask(&client, "/").await, server.address.to_string());
        let slow = tokio::spawn({
            let client = client.clone();
            async move { ask(&client, "/slow").await }
        });
        until(|| server.requests() == 2).await;
        let (before, connections) = (view_of(&cluster, server.address), server.connections());
        describe(&lists, &cluster, vec![changed(&server)], &server).await;

        let after = view_of(&cluster, server.address);
        assert_eq!((after.snapshot.weight, after.locality.as_deref()), (4.0, Some("east")));
        assert_eq!((after.snapshot.id, after.snapshot.active), (before.snapshot.id, 1));
        assert_eq!((after.snapshot.since, after.counts), (before.snapshot.since, before.counts));
        assert!(before.snapshot.latency.is_some() && after.snapshot.latency.is_some());
        gate.add_permits(1);
        assert_eq!(slow.await.unwrap(), server.address.to_string(), "it began before");
        assert_eq!(ask(&client, "/").await, "renamed.example:81");
        let end = view_of(&cluster, server.address).snapshot;
        assert_eq!((end.requests, end.failures, end.active), (3, 0, 0));
        assert_eq!(server.connections(), connections, "{protocol:?}: none was opened anew");
    }
}

/// The list applies at once, and the request follows without a turn of any task between.
#[tokio::test]
async fn next_request_has_the_changed_authority() {
    for (protocol, speaks) in protocols() {
        let (_, server) = hosts(speaks).await;
        let cluster = running(config_for(protocol), &[&server]).await;
        let client = Plain::new(&cluster);
        assert_eq!(ask(&client, "/").await, server.address.to_string());
        let connections = server.connections();
        for name in ["one.example", "two.example:8080"] {
            let endpoint = Endpoint::new(server.address).authority(name.parse().unwrap());
            cluster.follow(Fixed::new([endpoint]));
            assert_eq!(ask(&client, "/").await, name);
        }
        cluster.follow(Fixed::new([server.address]));
        assert_eq!(ask(&client, "/").await, server.address.to_string());
        assert_eq!(server.connections(), connections, "{protocol:?}");
    }
}

/// A server of TLS that answers with the name that its connection asked for, and the host of the
/// request. A handshake waits for a permit of `gate`.
async fn named(speaks: Speaks, gate: &Arc<Semaphore>) -> (SocketAddr, Arc<AtomicUsize>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let mut config = rustls::ServerConfig::builder_with_provider(plimsoll::tls::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let (count, gate) = (connections.clone(), gate.clone());
    tokio::spawn(async move {
        loop {
            let (tcp, _) = listener.accept().await.unwrap();
            count.fetch_add(1, Ordering::SeqCst);
            let (acceptor, gate) = (acceptor.clone(), gate.clone());
            tokio::spawn(async move {
                gate.acquire().await.unwrap().forget();
                let Ok(tls) = acceptor.accept(tcp).await else { return };
                let name = tls.get_ref().1.server_name().unwrap_or("none").to_owned();
                let service = service_fn(move |request: Request<Incoming>| {
                    let text = format!("{name} {}", host_of(&request));
                    async move { Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(text)))) }
                });
                let _ = match speaks {
                    Speaks::Http1 => http1::Builder::new().serve_connection(TokioIo::new(tls), service).await,
                    Speaks::Http2(_) => {
                        http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(tls), service).await
                    }
                };
            });
        }
    });
    (address, connections)
}

fn called(address: SocketAddr, authority: &str) -> Endpoint {
    Endpoint::new(address).authority(authority.parse().unwrap())
}

/// One that is being opened when the name changes serves none of the requests that begin later.
#[tokio::test]
async fn connection_under_way_is_not_used_for_another_tls_name() {
    for (protocol, speaks) in protocols() {
        // For the check.
        let gate = Arc::new(Semaphore::new(1));
        let (address, connections) = named(speaks, &gate).await;
        let mut config = config_for(protocol);
        config.tls = Some(TlsConfig::new(TlsTrust::Anybody, None, None));
        let cluster = Cluster::new("test", config, [called(address, "one.example")]);
        tokio::spawn(cluster.run());
        until(|| state_of(&cluster, address) == State::Healthy).await;
        let client = Plain::new(&cluster);
        let spawn = || {
            let client = client.clone();
            tokio::spawn(async move { ask(&client, "/").await })
        };
        let before = connections.load(Ordering::SeqCst);
        let first = spawn();
        until(|| connections.load(Ordering::SeqCst) > before).await;
        cluster.follow(Fixed::new([called(address, "two.example")]));
        let second = spawn();
        // Both wait, the second for a connection of its own or for the one under way.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        gate.add_permits(100);
        first.await.unwrap();
        assert_eq!(second.await.unwrap(), "two.example two.example", "{protocol:?}");
        for _ in 0..3 {
            assert_eq!(ask(&client, "/").await, "two.example two.example", "{protocol:?}");
        }
    }
}

/// The second case changes the port only, which no certificate names. The third asks every backend
/// for one name.
#[tokio::test]
async fn connection_is_not_reused_for_another_tls_name() {
    for (protocol, speaks) in protocols() {
        for (server_name, second, is_reused) in [
            (None, "two.example:81", false),
            (None, "One.example:82", true),
            (Some("all.example"), "two.example:81", true),
        ] {
            let (address, connections) = named(speaks, &Arc::new(Semaphore::new(100))).await;
            let mut config = config_for(protocol);
            let name = server_name.map(|name| ServerName::try_from(name).unwrap());
            config.tls = Some(TlsConfig::new(TlsTrust::Anybody, None, name));
            let list = |authority: &str| Fixed::new([called(address, authority)]);
            let cluster = Cluster::new("test", config, [] as [Endpoint; 0]);
            cluster.follow(list("one.example:81"));
            tokio::spawn(cluster.run());
            until(|| state_of(&cluster, address) == State::Healthy).await;
            let client = Plain::new(&cluster);
            let asked_for = |own: &str| server_name.unwrap_or(own).to_owned();
            assert_eq!(ask(&client, "/").await, format!("{} one.example:81", asked_for("one.example")));
            let before = connections.load(Ordering::SeqCst);

            cluster.follow(list(second));
            let host = second.rsplit_once(':').unwrap().0;
            let name = if is_reused { "one.example" } else { host };
            for _ in 0..3 {
                assert_eq!(ask(&client, "/").await, format!("{} {second}", asked_for(name)));
            }
            let opened = connections.load(Ordering::SeqCst) - before;
            assert_eq!(opened, usize::from(!is_reused), "{protocol:?}, {server_name:?}, {second}");
        }
    }
}

/// The backend in each state gets no request, before the change or after it.
#[tokio::test]
async fn changed_backend_stays_ejected_lame_duck_or_drained() {
    let report = LoadReport { lame_duck: true, ..LoadReport::default() };
    let bad = Server::start(Speaks::Http1, |_| status(500)).await;
    let leaving = Server::start(Speaks::Http1, move |_| reporting(report)).await;
    let good = [Server::plain().await, Server::plain().await, Server::plain().await];
    let (drained, first) = (Server::plain().await, &good[0]);
    let servers = [&bad, &leaving, &drained, &good[0], &good[1], &good[2]];
    let mut config = plain_config();
    config.balancer.outlier.max_ejected = Ratio::from_percent(50);
    let (lists, cluster) = following(config, &servers).await;
    let client = Plain::new(&cluster);
    assert!(cluster.drain(drained.address));
    while state_of(&cluster, bad.address) == State::Healthy || state_of(&cluster, leaving.address) == State::Healthy {
        client.send(get("/")).await.unwrap().into_body().collect().await.unwrap();
    }
    let out = [(&bad, State::Ejected), (&leaving, State::LameDuck), (&drained, State::LameDuck)];
    let views = || out.map(|(server, _)| view_of(&cluster, server.address));
    let before = views();
    let requests = || out.map(|(server, _)| server.requests());
    let had = requests();

    describe(&lists, &cluster, servers.map(changed).to_vec(), first).await;
    for _ in 0..12 {
        assert_eq!(ask(&client, "/").await, "ok");
    }
    for ((before, after), (_, state)) in before.into_iter().zip(views()).zip(out) {
        let (before, after) = (before.snapshot, after.snapshot);
        assert_eq!((after.id, after.state, after.weight), (before.id, state, 4.0));
        assert_eq!((after.reason, after.since), (before.reason, before.since));
        assert_eq!((after.failures, after.error_share > 0.0), (before.failures, before.failures > 0));
    }
    assert_eq!(requests(), had);
    // It is taken back by its operator only.
    assert!(cluster.undrain(drained.address));
    until(|| state_of(&cluster, drained.address) == State::Healthy).await;
}

#[tokio::test]
async fn removed_backend_is_forgotten_after_its_requests() {
    for (protocol, speaks) in protocols() {
        let ((gate, leaves), (_, stays)) = (hosts(speaks).await, hosts(speaks).await);
        let (lists, cluster) = following(config_for(protocol), &[&leaves]).await;
        let client = Plain::new(&cluster);
        let slow = tokio::spawn({
            let client = client.clone();
            async move { ask(&client, "/slow").await }
        });
        until(|| leaves.requests() == 1).await;
        lists.send(Ok(vec![stays.address.into()])).unwrap();
        until(|| addresses(&cluster) == [stays.address]).await;
        until(|| state_of(&cluster, stays.address) == State::Healthy).await;
        for _ in 0..4 {
            assert_eq!(ask(&client, "/").await, stays.address.to_string());
        }
        assert!(!slow.is_finished() && leaves.open_connections() > 0);
        gate.add_permits(1);
        assert_eq!(slow.await.unwrap(), leaves.address.to_string(), "{protocol:?}");
        assert_eq!((leaves.requests(), stays.requests()), (1, 4));
        until(|| leaves.open_connections() == 0).await;
        // One that returns is new.
        lists.send(Ok(vec![leaves.address.into()])).unwrap();
        until(|| addresses(&cluster) == [leaves.address]).await;
        assert_eq!(view_of(&cluster, leaves.address).snapshot.requests, 0);
    }
}

#[tokio::test]
async fn removed_lame_duck_is_watched_no_more() {
    let report = LoadReport { lame_duck: true, ..LoadReport::default() };
    let leaving = Server::start(Speaks::Http1, move |_| reporting(report)).await;
    let stays = Server::plain().await;
    let (lists, cluster) = following(plain_config(), &[&leaving, &stays]).await;
    let client = Plain::new(&cluster);
    while state_of(&cluster, leaving.address) != State::LameDuck {
        assert_eq!(ask(&client, "/").await, "ok");
    }
    until(|| leaving.connections() > 2).await;
    lists.send(Ok(vec![stays.address.into()])).unwrap();
    until(|| leaving.open_connections() == 0).await;
}

#[tokio::test]
async fn last_list_stays_when_its_source_fails_or_ends() {
    let (first, second) = (Server::plain().await, Server::plain().await);
    let (lists, cluster) = following(plain_config(), &[&first]).await;
    for _ in 0..2 {
        lists.send(fails()).unwrap();
    }
    lists.send(Ok(vec![first.address.into(), second.address.into()])).unwrap();
    until(|| addresses(&cluster) == [first.address, second.address]).await;
    lists.send(fails()).unwrap();
    drop(lists);
    until(|| cluster.backends().iter().all(|view| view.snapshot.state == State::Healthy)).await;
    let client = Plain::new(&cluster);
    for _ in 0..4 {
        assert_eq!(ask(&client, "/").await, "ok");
    }
    assert_eq!((first.requests(), second.requests()), (2, 2));
}

fn listed(servers: &[&Server]) -> Vec<Endpoint> {
    servers.iter().map(|server| server.address.into()).collect()
}

#[tokio::test]
async fn missing_backends_serve_after_a_sudden_loss_until_the_hold_ends() {
    let servers = [Server::plain().await, Server::plain().await, Server::plain().await];
    let [first, second, third] = &servers;
    let cluster = Cluster::new("test", plain_config(), [] as [Endpoint; 0]);
    tokio::spawn(cluster.run());
    let (lists, source) = fake();
    let mut config = FollowConfig::default();
    config.hold = Duration::from_secs(2);
    cluster.follow_with(source, config);
    lists.send(Ok(listed(&[first, second, third]))).unwrap();
    until(|| cluster.backends().iter().filter(|view| view.snapshot.state == State::Healthy).count() == 3).await;
    lists.send(Ok(vec![])).unwrap();
    lists.send(Ok(listed(&[first]))).unwrap();
    until(|| cluster.discovery().backends.held == 2).await;
    let client = Plain::new(&cluster);
    for _ in 0..3 {
        assert_eq!(ask(&client, "/").await, "ok");
    }
    assert_eq!(servers.each_ref().map(Server::requests), [1, 1, 1]);
    until(|| addresses(&cluster) == [first.address]).await;
    let counts = cluster.discovery().counts;
    assert_eq!((counts.empty, counts.held, counts.expired, counts.removed), (1, 2, 2, 0));
}

#[tokio::test]
async fn draining_backend_gets_no_new_request_and_finishes_its_own() {
    let (gate, server) = hosts(Speaks::Http1).await;
    let other = Server::plain().await;
    let (lists, cluster) = following(plain_config(), &[&server]).await;
    let client = Plain::new(&cluster);
    let slow = tokio::spawn({
        let client = client.clone();
        async move { ask(&client, "/slow").await }
    });
    until(|| view_of(&cluster, server.address).snapshot.active == 1).await;
    let draining = Endpoint::new(server.address).readiness(Readiness::Draining);
    lists.send(Ok(vec![draining.clone(), other.address.into()])).unwrap();
    until(|| addresses(&cluster) == [other.address]).await;
    assert_eq!(cluster.discovery().backends.draining, 1);
    assert_eq!(ask(&client, "/").await, "ok");
    gate.add_permits(1);
    assert_eq!(slow.await.unwrap(), server.address.to_string());
    assert_eq!(cluster.listed(), [draining, other.address.into()]);
}

#[tokio::test]
async fn saved_list_serves_when_the_source_fails_at_the_start() {
    let (known, new) = (Server::plain().await, Server::plain().await);
    let cluster = Cluster::new("test", plain_config(), [] as [Endpoint; 0]);
    tokio::spawn(cluster.run());
    let (lists, source) = fake();
    let mut config = FollowConfig::default();
    config.saved = listed(&[&known]);
    cluster.follow_with(source, config);
    assert!(!cluster.discovery().is_ready);
    lists.send(fails()).unwrap();
    until(|| cluster.discovery().freshness == Freshness::Stale).await;
    until(|| cluster.backends().iter().any(|view| view.snapshot.state == State::Healthy)).await;
    assert_eq!(ask(&Plain::new(&cluster), "/").await, "ok");
    assert!(cluster.discovery().is_failing);
    lists.send(Ok(listed(&[&new]))).unwrap();
    until(|| addresses(&cluster) == [new.address]).await;
    assert_eq!(cluster.discovery().freshness, Freshness::Fresh);
}

#[tokio::test]
async fn source_that_is_over_leaves_the_cluster_to_the_next_one() {
    let (first, second) = (Server::plain().await, Server::plain().await);
    let (lists, cluster) = following(plain_config(), &[&first]).await;
    let (gone, over) = fake();
    drop(gone);
    cluster.follow(over);
    until(|| lists.is_closed()).await;
    let (next_lists, next) = fake();
    cluster.follow(next);
    next_lists.send(Ok(listed(&[&first, &second]))).unwrap();
    until(|| addresses(&cluster).len() == 2).await;
    next_lists.send(Ok(listed(&[&second]))).unwrap();
    until(|| addresses(&cluster) == [second.address]).await;
}

#[tokio::test]
async fn fixed_backends_serve_while_the_source_fails() {
    let server = Server::plain().await;
    let cluster = Cluster::new("test", plain_config(), [] as [Endpoint; 0]);
    tokio::spawn(cluster.run());
    let (lists, source) = fake();
    lists.send(fails()).unwrap();
    cluster.follow_with(source, FollowConfig::default().fixed(Fixed::new(listed(&[&server]))));
    cluster.until_listed().await;
    until(|| cluster.backends().iter().any(|view| view.snapshot.state == State::Healthy)).await;
    assert_eq!(ask(&Plain::new(&cluster), "/").await, "ok");
    assert_eq!(cluster.listed(), []);
    // Another fixed backend takes its place at once, though the next source has not answered.
    let other = Server::plain().await;
    let (_lists, source) = fake();
    cluster.follow_on(source, FollowConfig::default().fixed(Fixed::new(listed(&[&other]))));
    assert_eq!(addresses(&cluster), [other.address]);
}

#[tokio::test]
async fn source_followed_on_keeps_backends_through_errors_and_empty_lists() {
    let servers = [Server::plain().await, Server::plain().await, Server::plain().await];
    let [first, second, third] = &servers;
    let (lists, cluster) = following(plain_config(), &[first, second]).await;
    lists.send(Ok(vec![])).unwrap();
    until(|| cluster.discovery().counts.empty == 1).await;
    for answer in [Ok(vec![]), fails()] {
        let (next_lists, next) = fake();
        next_lists.send(answer).unwrap();
        cluster.follow_on(next, FollowConfig::default().fixed(Fixed::new(listed(&[third]))));
        assert_eq!(addresses(&cluster), [first, second, third].map(|server| server.address));
        cluster.until_listed().await;
    }
}

#[tokio::test]
async fn view_names_the_source_and_counts_over_all_sources() {
    let servers = [Server::plain().await, Server::plain().await];
    let [first, second] = &servers;
    let (lists, cluster) = following(plain_config(), &[first]).await;
    lists.send(fails()).unwrap();
    until(|| cluster.discovery().is_failing).await;
    let view = cluster.view().summary.discovery;
    assert_eq!((view.kind, &*view.source, view.counts.errors), ("custom", "", 1));
    assert_eq!(&*view.last_error.unwrap().error, "the registry is unreachable");
    assert_eq!(view.backends, Census { ready: 1, ..Census::default() });
    // The same backends by another source are no change, but for the new one.
    cluster.follow(Fixed::new([first.address, second.address]));
    let view = cluster.view().summary.discovery;
    assert_eq!((view.kind, view.is_failing, view.last_error), ("static", false, None));
    assert_eq!(view.counts, MergeCounts { added: 2, errors: 1, ..MergeCounts::default() });
    cluster.follow(Fixed::new([first.address, second.address]));
    assert_eq!(cluster.discovery().counts, view.counts);
}

#[tokio::test]
async fn source_is_dropped_when_another_takes_over() {
    let (first, second) = (Server::plain().await, Server::plain().await);
    let (lists, cluster) = following(plain_config(), &[&first]).await;
    let (next_lists, next) = fake();
    cluster.follow(next);
    until(|| lists.is_closed()).await;
    assert_eq!(addresses(&cluster), [first.address], "its list stays until there is another");
    next_lists.send(Ok(vec![second.address.into()])).unwrap();
    until(|| addresses(&cluster) == [second.address]).await;
    // Nor does one wait for its turn that nobody has taken over yet.
    cluster.follow(Fixed::new([first.address]));
    assert_eq!(addresses(&cluster), [first.address]);
    let (unread, source) = fake();
    cluster.follow(source);
    cluster.follow(Fixed::new([second.address]));
    assert!(unread.is_closed());
    until(|| next_lists.is_closed()).await;
}

#[tokio::test]
async fn source_ends_with_its_cluster() {
    let cluster = Cluster::new("test", plain_config(), [] as [Endpoint; 0]);
    let task = tokio::spawn(cluster.run());
    let (lists, source) = fake();
    cluster.follow(source);
    lists
        .send(Ok(vec![([127, 0, 0, 1], 1).into()].into_iter().map(|address: SocketAddr| address.into()).collect()))
        .unwrap();
    until(|| addresses(&cluster).len() == 1).await;
    drop(cluster);
    task.await.unwrap();
    assert!(lists.is_closed());
}

/// Without a runtime, and with the first of two lists ready.
#[test]
fn list_that_is_ready_applies_at_once() {
    let [one, two] = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let cluster = Cluster::new("test", plain_config(), [one]);
    assert_eq!(addresses(&cluster), [one]);
    let (lists, source) = fake();
    lists.send(Ok(vec![two.into(), one.into(), two.into()])).unwrap();
    cluster.follow(source);
    assert_eq!((addresses(&cluster).len(), cluster.known()), (2, 2), "an address that is there twice counts once");
    cluster.follow(Fixed::new([two]));
    assert_eq!(addresses(&cluster), [two]);
}

/// Sends requests until told to stop: returns how many.
fn keep_asking(client: &Plain, stop: &Arc<AtomicBool>) -> JoinHandle<usize> {
    let (client, stop) = (client.clone(), stop.clone());
    tokio::spawn(async move {
        let mut asked = 0;
        while !stop.load(Ordering::SeqCst) {
            assert_eq!(ask(&client, "/").await, "ok");
            asked += 1;
        }
        asked
    })
}

/// Eight requests at a time, while backends come, change and go. None fails; the backend that is in
/// every list has one connection for each request at a time, and the one from its check.
#[tokio::test]
async fn live_requests_outlast_any_change_of_membership() {
    const SENDERS: usize = 8;
    let stays = Server::plain().await;
    let others = [Server::plain().await, Server::plain().await, Server::plain().await];
    let (lists, cluster) = following(plain_config(), &[&stays]).await;
    let client = Plain::new(&cluster);
    let stop = Arc::new(AtomicBool::new(false));
    let senders: Vec<_> = (0..SENDERS).map(|_| keep_asking(&client, &stop)).collect();
    let id = view_of(&cluster, stays.address).snapshot.id;
    for round in 0..60_u16 {
        let mut endpoint = changed(&stays).weight(Weight::new(f64::from(1 + round % 5)).unwrap());
        endpoint.authority = (round % 3 > 0).then(|| format!("round-{round}.example").parse().unwrap());
        endpoint.zone = (round % 4 > 0).then(|| format!("zone-{}", round % 4).into());
        let present = others.iter().enumerate().filter(|(at, _)| round >> at & 1 == 1);
        let mut list = vec![endpoint];
        list.extend(present.map(|(_, server)| changed(server)));
        if round % 2 == 1 {
            list.reverse();
        }
        let answered = stays.requests();
        describe(&lists, &cluster, list, &stays).await;
        until(|| stays.requests() > answered).await;
    }
    stop.store(true, Ordering::SeqCst);
    let mut asked = 0;
    for sender in senders {
        asked += sender.await.unwrap();
    }
    let answered = stays.requests() + others.iter().map(Server::requests).sum::<usize>();
    assert_eq!((answered, active(&cluster)), (asked, 0));
    let view = view_of(&cluster, stays.address);
    assert_eq!((view.snapshot.id, view.snapshot.requests as usize), (id, stays.requests()));
    assert!(others.iter().all(|server| server.requests() > 0));
    assert!(stays.connections() <= SENDERS + 2, "{} connections", stays.connections());
}
