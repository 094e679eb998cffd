//! The client over real connections on loopback.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod support;

use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::stream::{self, StreamExt as _};
use http::{HeaderName, Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use plimsoll::client::{Client, Cluster, ClusterCounts, Error, Protocol, ReportFormat, RequestOptions};
use plimsoll::discover::{Endpoint, Fixed};
use plimsoll_core::health::{Reason, State};
use plimsoll_core::throttle::ThrottlePolicy;
use plimsoll_core::{Criticality, LoadReport};
use plimsoll_wire::metadata::Metadata;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use support::*;

type Plain = Client<Empty<Bytes>>;

async fn ok(client: &Plain) {
    let response = client.send(get("/")).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    response.into_body().collect().await.unwrap();
}

#[tokio::test]
async fn requests_are_spread_over_all_backends_on_kept_alive_connections() {
    let servers = [Server::plain().await, Server::plain().await, Server::plain().await];
    let cluster = running(plain_config(), &servers.each_ref()).await;
    let client = Plain::new(&cluster);
    let checked: Vec<_> = servers.iter().map(Server::connections).collect();
    for _ in 0..30 {
        ok(&client).await;
    }
    for (server, checked) in servers.iter().zip(checked) {
        assert_eq!(server.requests(), 10);
        assert!(server.connections() - checked <= 2, "one opened at start, one at most for the first request");
    }
    let views = cluster.backends();
    assert!(views.iter().all(|view| view.counts.responses == [0, 10, 0, 0, 0] && view.snapshot.requests == 10));
    assert_eq!(cluster.counts().latency.count, 30);
    assert_eq!(active(&cluster), 0);
}

#[tokio::test]
async fn a_request_that_finds_no_connection_goes_elsewhere() {
    let (alive, dead) = (Server::plain().await, Server::plain().await);
    let dead_address = dead.address;
    let mut config = plain_config();
    config.pool.min_connections = 0;
    let cluster = running(config, &[&alive, &dead]).await;
    let client = Plain::new(&cluster);
    dead.stop().await;
    for _ in 0..6 {
        ok(&client).await;
    }
    assert_eq!(alive.requests(), 6);
    assert!(cluster.counts().further_attempts >= 1);
    assert_eq!(state_of(&cluster, dead_address), State::Refusing);
    assert_eq!(active(&cluster), 0);
}

#[tokio::test]
async fn the_end_of_a_backend_is_noticed_without_a_request() {
    let (alive, dead) = (Server::plain().await, Server::plain().await);
    let dead_address = dead.address;
    let cluster = running(plain_config(), &[&alive, &dead]).await;
    let client = Plain::new(&cluster);
    for _ in 0..4 {
        ok(&client).await;
    }
    dead.stop().await;
    until(|| state_of(&cluster, dead_address) == State::Refusing).await;
    assert_eq!(cluster.counts().further_attempts, 0);
}

#[tokio::test]
async fn when_all_backends_are_gone_the_error_names_one_and_says_that_nothing_was_sent() {
    let dead = Server::plain().await;
    let address = dead.address;
    let mut config = plain_config();
    config.pool.min_connections = 0;
    let cluster = running(config, &[&dead]).await;
    let client = Plain::new(&cluster);
    dead.stop().await;
    let error = client.send(get("/")).await.unwrap_err();
    assert!(matches!(error, Error::Connect { address: at, .. } if at == address.into()), "{error}");
    assert!(error.nothing_sent());
    assert_eq!(active(&cluster), 0);
}

#[tokio::test]
async fn a_lame_duck_gets_no_new_requests_and_is_used_again_when_its_successor_is_there() {
    let steady = Server::plain().await;
    let report = LoadReport { lame_duck: true, ..LoadReport::default() };
    let leaving = Server::start(Speaks::Http1, move |_| reporting(report)).await;
    let address = leaving.address;
    let cluster = running(plain_config(), &[&steady, &leaving]).await;
    let client = Plain::new(&cluster);
    for _ in 0..10 {
        ok(&client).await;
    }
    assert_eq!(state_of(&cluster, address), State::LameDuck);
    assert_eq!(leaving.requests(), 1);
    assert_eq!(steady.requests(), 9);

    // The silent connection to it tells of its end long before anyone would ask again.
    until(|| leaving.open_connections() >= 2).await;
    leaving.stop().await;
    let successor = Server::start_at(address, Speaks::Http1, |_| text("new")).await;
    until(|| state_of(&cluster, address) == State::Healthy).await;
    for _ in 0..4 {
        ok(&client).await;
    }
    assert_eq!(successor.requests(), 2);
}

#[tokio::test]
async fn a_dropped_body_ends_the_request_as_cancelled() {
    let (_never, body) = by_hand();
    let body = std::sync::Mutex::new(Some(body));
    let server = Server::start(Speaks::Http1, move |_| now(Response::new(body.lock().unwrap().take().unwrap()))).await;
    let cluster = running(plain_config(), &[&server]).await;
    let client = Plain::new(&cluster);
    let response = client.send(get("/")).await.unwrap();
    assert_eq!(active(&cluster), 1);
    drop(response);
    assert_eq!(active(&cluster), 0);
    assert_eq!(view_of(&cluster, server.address).counts.cancelled, 1);
    until(|| view_of(&cluster, server.address).counts.connections_closed == 1).await;
}

#[tokio::test]
async fn a_dropped_call_ends_the_request_as_cancelled() {
    let server = Server::start(Speaks::Http1, |_| Box::pin(std::future::pending())).await;
    let cluster = running(plain_config(), &[&server]).await;
    let client = Plain::new(&cluster);
    let call = tokio::spawn({
        let client = client.clone();
        async move { client.send(get("/")).await.map(drop) }
    });
    until(|| server.requests() == 1).await;
    call.abort();
    until(|| active(&cluster) == 0).await;
    assert_eq!(view_of(&cluster, server.address).counts.cancelled, 1);
}

/// A server that answers each request when it gets a permit.
async fn gated(speaks: Speaks) -> (Arc<Semaphore>, Server) {
    let gate = Arc::new(Semaphore::new(0));
    let at_gate = gate.clone();
    let server = Server::start(speaks, move |_| {
        let gate = at_gate.clone();
        Box::pin(async move {
            gate.acquire().await.unwrap().forget();
            text("ok").await
        })
    })
    .await;
    (gate, server)
}

#[tokio::test]
async fn a_request_waits_while_all_backends_are_at_their_limit_and_the_queue_is_bounded() {
    let (gate, server) = gated(Speaks::Http1).await;
    let mut config = plain_config();
    config.balancer.max_active_requests = NonZeroU32::MIN;
    config.requests.max_pending = 1;
    let cluster = running(config, &[&server]).await;
    let client = Plain::new(&cluster);
    let spawn = || {
        let client = client.clone();
        tokio::spawn(async move { client.send(get("/")).await?.into_body().collect().await.map(drop) })
    };
    let first = spawn();
    until(|| server.requests() == 1).await;
    let second = spawn();
    until(|| cluster.waiting() == 1).await;
    let third = spawn().await.unwrap();
    assert!(matches!(third, Err(Error::Saturated { waited: Duration::ZERO })), "{third:?}");

    assert_eq!(server.requests(), 1, "the second is still in the queue");
    gate.add_permits(2);
    first.await.unwrap().unwrap();
    second.await.unwrap().unwrap();
    assert_eq!(server.requests(), 2);
    assert_eq!((cluster.waiting(), active(&cluster)), (0, 0));
    let ClusterCounts { waited, saturated, .. } = cluster.counts();
    assert_eq!((waited, saturated), (1, 1));
    assert_eq!(state_of(&cluster, server.address), State::Healthy, "long requests are no illness");
}

#[tokio::test]
async fn a_request_that_arrives_later_does_not_overtake_those_who_wait() {
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let told = order.clone();
    let (_unfinished, body) = by_hand();
    let body = std::sync::Mutex::new(Some(body));
    let server = Server::start(Speaks::Http1, move |request| {
        told.lock().unwrap().push(request.uri().path().to_owned());
        // The first response goes on until its reader leaves.
        body.lock().unwrap().take().map_or_else(|| text("ok"), |body| now(Response::new(body)))
    })
    .await;
    let mut config = plain_config();
    config.balancer.max_active_requests = NonZeroU32::MIN;
    let cluster = running(config, &[&server]).await;
    let client = Plain::new(&cluster);
    let first = client.send(get("/first")).await.unwrap();
    let whole = |path: &'static str| {
        let client = client.clone();
        async move { client.send(get(path)).await?.into_body().collect().await.map(drop) }
    };
    let second = tokio::spawn(whole("/second"));
    until(|| cluster.waiting() == 1).await;
    let third = tokio::spawn(whole("/third"));
    until(|| cluster.waiting() == 2).await;
    // The backend is free from here on. The waiting requests have not had their turn when the last
    // one asks.
    drop(first);
    let mut last = std::pin::pin!(whole("/last"));
    let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(last.as_mut().poll(cx).is_pending())).await;
    assert!(polled, "it waits behind the others");
    last.await.unwrap();
    second.await.unwrap().unwrap();
    third.await.unwrap().unwrap();
    assert_eq!(*order.lock().unwrap(), ["/first", "/second", "/third", "/last"]);
}

#[tokio::test]
async fn a_wait_ends_with_the_queue_timeout() {
    let (_gate, server) = gated(Speaks::Http1).await;
    let mut config = plain_config();
    config.balancer.max_active_requests = NonZeroU32::MIN;
    config.requests.queue_timeout = Duration::from_millis(20);
    let cluster = running(config, &[&server]).await;
    let client = Plain::new(&cluster);
    let first = client.clone();
    tokio::spawn(async move { first.send(get("/")).await.map(drop) });
    until(|| server.requests() == 1).await;
    let error = client.send(get("/")).await.unwrap_err();
    assert!(matches!(error, Error::Saturated { waited } if waited >= Duration::from_millis(20)), "{error}");
    assert_eq!(error.shed_reason().map(|reason| reason.name()), Some("saturated"));
    assert_eq!(cluster.waiting(), 0);
}

/// A caller without time has none for a retry either. A request with only the configured limit
/// does.
#[tokio::test]
async fn a_request_whose_own_time_ends_in_the_queue_is_out_of_time() {
    let (_gate, server) = gated(Speaks::Http1).await;
    let mut config = plain_config();
    config.balancer.max_active_requests = NonZeroU32::MIN;
    let cluster = running(config, &[&server]).await;
    let client = Plain::new(&cluster);
    let first = client.clone();
    tokio::spawn(async move { first.send(get("/")).await.map(drop) });
    until(|| server.requests() == 1).await;
    let time = Duration::from_millis(20);

    let mut request = get("/");
    request.headers_mut().insert("x-envoy-expected-rq-timeout-ms", "20".parse().unwrap());
    let error = client.send(request).await.unwrap_err();
    assert!(matches!(error, Error::Timeout { after, address: None, attempts: 0 } if after == time), "{error:?}");
    assert_eq!((cluster.counts().saturated, cluster.waiting()), (0, 0));

    let error = client.send_with(get("/"), RequestOptions::default().with_timeout(time)).await.unwrap_err();
    assert!(matches!(error, Error::Saturated { waited } if waited >= time), "{error:?}");
    assert_eq!((cluster.counts().saturated, server.requests()), (1, 1));
}

#[tokio::test]
async fn streams_share_a_connection_up_to_the_peers_limit() {
    let (gate, server) = gated(Speaks::Http2(2)).await;
    let mut config = plain_config();
    config.requests.protocol = Protocol::Http2;
    let cluster = running(config, &[&server]).await;
    let checked = server.connections();
    let client = Plain::new(&cluster);
    gate.add_permits(1);
    ok(&client).await;
    assert_eq!(server.connections() - checked, 1);

    let calls: Vec<_> = (0..3)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { ok(&client).await })
        })
        .collect();
    until(|| server.requests() == 4).await;
    assert_eq!(server.connections() - checked, 2, "the third stream found no room on the first connection");
    gate.add_permits(3);
    for call in calls {
        call.await.unwrap();
    }
    assert_eq!(view_of(&cluster, server.address).counts.connections_open(), 2);
}

#[tokio::test]
async fn requests_that_need_a_first_http2_connection_open_only_one() {
    let server = Server::start(Speaks::Http2(100), |_| text("ok")).await;
    let mut config = plain_config();
    config.requests.protocol = Protocol::Http2;
    config.pool.min_connections = 0;
    let cluster = running(config, &[&server]).await;
    let checked = server.connections();
    let client = Plain::new(&cluster);
    futures_util::future::join_all((0..20).map(|_| ok(&client))).await;
    assert_eq!(server.connections() - checked, 1);
}

#[tokio::test]
async fn a_request_tells_its_backend_how_critical_its_terms_make_it() {
    let server = Server::start(Speaks::Http1, |request| {
        let said = ["x-criticality", "baggage"].map(|name| request.headers().get(name).cloned());
        let mut response = Response::new(Empty::new().boxed());
        for (name, value) in ["criticality", "baggage"].into_iter().zip(said) {
            response.headers_mut().extend(value.map(|value| (http::HeaderName::from_static(name), value)));
        }
        now(response)
    })
    .await;
    let cluster = running(plain_config(), &[&server]).await;
    let client = Plain::new(&cluster);
    let heard = async |headers: &[(&'static str, &str)], options: RequestOptions| {
        let mut request = get("/");
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        let response = client.send_with(request, options).await.unwrap();
        ["criticality", "baggage"]
            .map(|name| response.headers().get(name).map_or("-", |value| value.to_str().unwrap()).to_owned())
            .join(" ")
    };
    let sheddable = || RequestOptions::default().with_criticality(Criticality::Sheddable);
    let mut taken_as = RequestOptions::default();
    taken_as.metadata = Some(Metadata { criticality: Some(Criticality::Sheddable), ..Metadata::default() });
    let claims = [("x-criticality", "critical-plus"), ("baggage", "user=7,criticality=critical-plus")];
    assert_eq!(heard(&[], RequestOptions::default()).await, "- -");
    assert_eq!(heard(&[], sheddable()).await, "sheddable -");
    assert_eq!(heard(&claims, sheddable()).await, "sheddable user=7,criticality=sheddable");
    assert_eq!(heard(&[], taken_as.clone()).await, "- -");
    assert_eq!(heard(&claims, taken_as).await, "critical-plus user=7,criticality=critical-plus");
}

/// Forwards bytes, until it forgets its connections without a word to anybody.
struct Relay {
    address: std::net::SocketAddr,
    forget: tokio::sync::watch::Sender<()>,
    opened: Arc<AtomicUsize>,
    forgotten: Arc<AtomicUsize>,
}

impl Relay {
    async fn to(server: std::net::SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let forget = tokio::sync::watch::Sender::new(());
        let [opened, forgotten] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        let (told, counts) = (forget.clone(), [opened.clone(), forgotten.clone()]);
        tokio::spawn(async move {
            loop {
                let (mut near, _) = listener.accept().await.unwrap();
                let (mut told, [opened, forgotten]) = (told.subscribe(), counts.clone());
                opened.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    let mut far = TcpStream::connect(server).await.unwrap();
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        _ = told.changed() => {
                            forgotten.fetch_add(1, Ordering::SeqCst);
                            std::future::pending().await
                        }
                    }
                });
            }
        });
        Self { address, forget, opened, forgotten }
    }

    fn opened(&self) -> usize {
        self.opened.load(Ordering::SeqCst)
    }

    async fn forget(&self) {
        let connections = self.forget.receiver_count();
        self.forget.send_replace(());
        until(|| self.forgotten.load(Ordering::SeqCst) == connections).await;
    }
}

#[tokio::test]
async fn a_shared_connection_that_leads_nowhere_any_more_is_replaced_and_one_that_answers_others_is_not() {
    let server = Server::start(Speaks::Http2(100), |request| match request.uri().path() {
        "/mute" => Box::pin(std::future::pending()),
        _ => text("ok"),
    })
    .await;
    let relay = Relay::to(server.address).await;
    let mut config = plain_config();
    config.requests.protocol = Protocol::Http2;
    let cluster = Cluster::new("test", config, [relay.address]);
    tokio::spawn(cluster.run());
    let client = Plain::new(&cluster);
    ok(&client).await;
    let opened = relay.opened();
    let ends_late = async |path: &str, seconds| {
        let options = RequestOptions::default().with_timeout(Duration::from_secs(seconds));
        let error = client.send_with(get(path), options).await.unwrap_err();
        assert!(matches!(error, Error::Timeout { .. }), "{error}");
    };
    let answered_meanwhile = async {
        until(|| server.requests() == 2).await;
        ok(&client).await;
    };
    tokio::join!(ends_late("/mute", 2), answered_meanwhile);
    ok(&client).await;
    assert_eq!(relay.opened(), opened);

    relay.forget().await;
    ends_late("/", 1).await;
    ok(&client).await;
    assert_eq!(relay.opened(), opened + 1);
    until(|| view_of(&cluster, relay.address).counts.connections_open() == 1).await;
}

#[tokio::test]
async fn report_and_outcome_of_a_call_are_read_from_its_trailers() {
    let report = LoadReport { application_utilization: 0.25, qps: 80.0, eps: 1.0, ..LoadReport::default() };
    let server = Server::start(Speaks::Http2(100), move |request| {
        let mut trailers = report_headers(report);
        let code = if request.uri().path() == "/fail" { "13" } else { "0" };
        trailers.insert("grpc-status", code.parse().unwrap());
        grpc(Bytes::from_static(&[0; 5]), trailers)
    })
    .await;
    // Automatic: gRPC makes it HTTP/2.
    let cluster = running(plain_config(), &[&server]).await;
    let client = Client::<Full<Bytes>>::new(&cluster);
    for path in ["/a", "/fail"] {
        let request = Request::post(path).header("content-type", "application/grpc");
        let response = client.send(request.body(Full::from(vec![0; 5])).unwrap()).await.unwrap();
        let body = response.into_body().collect().await.unwrap();
        assert!(body.trailers().is_some_and(|trailers| trailers.contains_key("grpc-status")));
    }
    let view = view_of(&cluster, server.address);
    assert_eq!(view.snapshot.report.map(|(_, report)| report), Some(report));
    assert_eq!((view.snapshot.requests, view.snapshot.failures), (2, 1));
    assert_eq!(view.counts.reports, 2);
}

#[tokio::test]
async fn report_is_requested_and_its_named_metric_is_the_utilization() {
    let (asked, format) = (Arc::new(Mutex::new(Vec::new())), HeaderName::from_static("endpoint-load-metrics-format"));
    let (seen, name) = (asked.clone(), format.clone());
    let server = Server::start(Speaks::Http1, move |request| {
        seen.lock().unwrap().push(request.headers().get(&name).map(|value| value.to_str().unwrap().to_owned()));
        let report = "TEXT named_metrics.kv=0.25, mem_utilization=0.5, cpu_utilization=0.75";
        now(Response::builder().header("endpoint-load-metrics", report).body(Empty::new().boxed()).unwrap())
    })
    .await;
    let cluster = running(plain_config(), &[&server]).await;
    let client = Plain::new(&cluster);
    let with = |request, metrics: &[&str]| {
        let utilization = metrics.iter().map(|metric| metric.parse().unwrap()).collect();
        let mut config = plain_config();
        config.load_reports.request = request;
        config.load_reports.utilization = utilization;
        config
    };
    for (config, expected) in [
        (plain_config(), (None, 0.75)),
        (with(Some(ReportFormat::Text), &["named_metrics.kv"]), (Some("text"), 0.25)),
        (with(Some(ReportFormat::Json), &["named_metrics.kv", "mem_utilization"]), (Some("json"), 0.5)),
        (with(None, &["named_metrics.other"]), (None, 0.75)),
    ] {
        cluster.set_config(config);
        ok(&client).await;
        let utilization = view_of(&cluster, server.address).snapshot.report.and_then(|(_, load)| load.utilization());
        let last = asked.lock().unwrap().last().cloned().flatten();
        assert_eq!((last.as_deref(), utilization), (expected.0, Some(expected.1)));
    }
    // Without the setting, the header of the caller is the caller's.
    let request = Request::get("/").header(format, "BIN").body(Empty::new()).unwrap();
    client.send(request).await.unwrap();
    assert_eq!(asked.lock().unwrap().last().cloned().flatten().as_deref(), Some("BIN"));
}

#[tokio::test]
async fn a_malformed_report_is_counted_and_nothing_else() {
    let server = Server::start(Speaks::Http1, |_| {
        let response = Response::builder().header("endpoint-load-metrics", "TEXT cpu_utilization=lots");
        now(response.body(Empty::new().boxed()).unwrap())
    })
    .await;
    let cluster = running(plain_config(), &[&server]).await;
    ok(&Plain::new(&cluster)).await;
    let view = view_of(&cluster, server.address);
    assert_eq!((view.counts.malformed_reports, view.counts.reports), (1, 0));
    assert_eq!((view.snapshot.failures, view.snapshot.report), (0, None));
}

/// A server with connections for one request each, closed when the next request has come.
async fn closing_server() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut buffer = [0; 1024];
                if stream.read(&mut buffer).await.unwrap_or(0) > 0 {
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
                    let _ = stream.read(&mut buffer).await;
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn a_request_that_crosses_the_end_of_an_idle_connection_is_sent_again_if_that_is_safe() {
    let address = closing_server().await;
    let cluster = Cluster::new("test", plain_config(), [address]);
    tokio::spawn(cluster.run());
    let client = Plain::new(&cluster);
    ok(&client).await;
    ok(&client).await;
    assert_eq!(cluster.counts().replayed, 1);

    // Each connection has served by now, so the next request will meet its end.
    let mut post = get("/");
    *post.method_mut() = Method::POST;
    let error = client.send(post).await.unwrap_err();
    assert!(matches!(error, Error::Closed { address: at, .. } if at == address.into()), "{error}");
    assert!(!error.nothing_sent());
    assert_eq!((cluster.counts().replayed, active(&cluster)), (1, 0));
}

#[tokio::test]
async fn a_request_with_a_body_is_sent_twice_only_if_its_body_is_kept() {
    for (max_body, replayed) in [(None, 0), (NonZeroUsize::new(1), 1)] {
        let address = closing_server().await;
        let mut config = plain_config();
        config.retry.max_body = max_body;
        let cluster = Cluster::new("test", config, [address]);
        tokio::spawn(cluster.run());
        let client = Client::<Full<Bytes>>::new(&cluster);
        let put = || Request::put("/").body(Full::from("x")).unwrap();
        client.send(put()).await.unwrap().into_body().collect().await.unwrap();
        assert_eq!(client.send(put()).await.is_err(), replayed == 0);
        assert_eq!(cluster.counts().replayed, replayed);
    }
}

#[tokio::test]
async fn a_late_head_and_a_stalled_body_are_errors_that_name_the_limit() {
    let unfinished = || {
        let some = stream::iter([Ok(Frame::data(Bytes::from_static(b"some")))]);
        Body::new(StreamBody::new(some.chain(stream::pending())))
    };
    let server = Server::start(Speaks::Http1, move |request| match request.uri().path() {
        "/late" => Box::pin(std::future::pending()),
        "/quiet" => now(Response::new(unfinished())),
        _ => now(Response::builder().header("content-length", "8").body(unfinished()).unwrap()),
    })
    .await;
    let limit = Duration::from_millis(30);
    let mut config = plain_config();
    config.requests.body_idle_timeout = limit;
    let cluster = running(config, &[&server]).await;
    let client = Plain::new(&cluster);
    let error = client.send_with(get("/late"), RequestOptions::default().with_timeout(limit)).await.unwrap_err();
    assert!(matches!(error, Error::Timeout { after, attempts: 1, .. } if after == limit), "{error}");

    // One that has no length may have nothing to say.
    for (path, failures) in [("/stalled", 2), ("/quiet", 2)] {
        let mut body = client.send(get(path)).await.unwrap().into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "some");
        let error = body.frame().await.unwrap().unwrap_err();
        assert!(matches!(error, Error::BodyIdle { after } if after == limit), "{error}");
        let view = view_of(&cluster, server.address);
        assert_eq!((view.snapshot.failures, view.snapshot.active), (failures, 0));
    }
    assert_eq!(view_of(&cluster, server.address).counts.timed_out, 3);
}

#[tokio::test]
async fn a_stream_may_be_silent_for_as_long_as_its_terms_say_and_its_backend_is_not_blamed_for_that() {
    let (frames, body) = by_hand();
    let (_never, silent) = by_hand();
    let bodies = std::sync::Mutex::new(vec![silent, body]);
    let server = Server::start(Speaks::Http2(100), move |_| {
        let response = Response::builder().header("content-type", "application/grpc");
        now(response.body(bodies.lock().unwrap().pop().unwrap()).unwrap())
    })
    .await;
    let mut config = plain_config();
    config.requests.body_idle_timeout = Duration::from_millis(30);
    let cluster = running(config, &[&server]).await;
    let client = Plain::new(&cluster);
    let watch = async |options: RequestOptions| {
        let mut request = get("/");
        request.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
        client.send_with(request, options).await.unwrap().into_body()
    };

    let mut patient = watch(RequestOptions::default().with_body_idle_timeout(Duration::MAX)).await;
    let mut first = patient.frame();
    assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(first.poll_unpin(cx).is_pending())).await);
    let error = watch(RequestOptions::default()).await.frame().await.unwrap().unwrap_err();
    assert!(matches!(error, Error::BodyIdle { after } if after == Duration::from_millis(30)), "{error}");
    frames.send(Bytes::from_static(b"news")).unwrap();
    assert_eq!(first.await.unwrap().unwrap().into_data().unwrap(), "news");

    let view = view_of(&cluster, server.address);
    assert_eq!((view.counts.timed_out, view.snapshot.failures, view.snapshot.active), (1, 0, 1));
}

#[tokio::test]
async fn a_request_has_no_longer_than_it_says_and_its_backend_is_not_blamed_for_that() {
    for speaks in [Speaks::Http1, Speaks::Http2(100)] {
        let server = Server::start(speaks, |_| Box::pin(std::future::pending())).await;
        let mut config = plain_config();
        config.requests.protocol = if let Speaks::Http1 = speaks { Protocol::Http1 } else { Protocol::Http2 };
        let cluster = running(config, &[&server]).await;
        let client = Plain::new(&cluster);
        let ends_after = async |name: &'static str, value: &'static str| {
            let mut request = get("/");
            request.headers_mut().insert(name, value.parse().unwrap());
            match client.send(request).await {
                Err(Error::Timeout { after, .. }) => after,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(ends_after("grpc-timeout", "50m").await, Duration::from_millis(50));
        assert_eq!(ends_after("x-envoy-expected-rq-timeout-ms", "50").await, Duration::from_millis(50));
        assert_eq!(ends_after("grpc-timeout", "0m").await, Duration::ZERO);
        until(|| server.requests() == 2).await;
        let view = view_of(&cluster, server.address);
        assert_eq!((view.counts.timed_out, view.snapshot.failures, view.snapshot.active), (2, 0, 0));
    }
}

/// A stream ends when its server has nothing more to say. Its beginning shows that the backend
/// answers.
#[tokio::test]
async fn a_backend_that_begins_to_answer_others_is_not_blamed_for_one_that_is_slow() {
    for (others, failures) in [(true, 0), (false, 1)] {
        let (_open, body) = by_hand();
        let body = std::sync::Mutex::new(Some(body));
        let server = Server::start(Speaks::Http1, move |request| match request.uri().path() {
            "/slow" => Box::pin(std::future::pending()),
            "/stream" => now(Response::new(body.lock().unwrap().take().unwrap())),
            _ => text("ok"),
        })
        .await;
        let mut config = plain_config();
        config.throttle = ThrottlePolicy::Off;
        let cluster = running(config, &[&server]).await;
        let client = Plain::new(&cluster);
        // From these it is known how long an answer usually takes.
        for _ in 0..50 {
            ok(&client).await;
        }
        let mut request = get("/slow");
        request.headers_mut().insert("x-envoy-expected-rq-timeout-ms", "600".parse().unwrap());
        let slow = client.clone();
        let slow = tokio::spawn(async move { slow.send(request).await.map(drop) });
        until(|| server.requests() == 51).await;
        let stream = if others { Some(client.send(get("/stream")).await.unwrap()) } else { None };
        let error = slow.await.unwrap().unwrap_err();
        assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
        assert_eq!(view_of(&cluster, server.address).snapshot.failures, failures, "others: {others}");
        drop(stream);
    }
}

#[tokio::test]
async fn a_request_that_had_to_wait_says_that_less_time_is_left() {
    for (speaks, name, whole) in
        [(Speaks::Http1, "x-envoy-expected-rq-timeout-ms", "10000"), (Speaks::Http2(100), "grpc-timeout", "10S")]
    {
        let gate = Arc::new(Semaphore::new(1));
        let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
        let (at_gate, notes) = (gate.clone(), seen.clone());
        let server = Server::start(speaks, move |request| {
            notes.lock().unwrap().push(request.headers()[name].to_str().unwrap().to_owned());
            let gate = at_gate.clone();
            Box::pin(async move {
                gate.acquire().await.unwrap().forget();
                text("ok").await
            })
        })
        .await;
        let mut config = plain_config();
        config.pool.min_connections = 0;
        config.balancer.max_active_requests = NonZeroU32::MIN;
        config.requests.protocol = if let Speaks::Http1 = speaks { Protocol::Http1 } else { Protocol::Http2 };
        let cluster = running(config, &[&server]).await;
        let client = Plain::new(&cluster);
        let send = || {
            let client = client.clone();
            async move {
                let mut request = get("/");
                request.headers_mut().insert(name, whole.parse().unwrap());
                client.send(request).await.unwrap().into_body().collect().await.unwrap()
            }
        };
        // Its connection has to be opened; the second finds it there, and the third waits behind
        // the second.
        send().await;
        let second = tokio::spawn(send());
        until(|| server.requests() == 2).await;
        let third = tokio::spawn(send());
        until(|| cluster.waiting() == 1).await;
        gate.add_permits(2);
        second.await.unwrap();
        third.await.unwrap();
        let seen = seen.lock().unwrap();
        assert_eq!(seen[1], whole);
        for waited in [&seen[0], &seen[2]] {
            let headers = http::HeaderMap::from_iter([(name.parse().unwrap(), waited.parse().unwrap())]);
            let left = Metadata::read(&headers).timeout.unwrap();
            assert!(left > Duration::ZERO && left < Duration::from_secs(10), "{waited}");
        }
    }
}

#[tokio::test]
async fn membership_changes_while_running_and_those_that_stay_keep_their_state() {
    let (stays, leaves, comes) = (Server::plain().await, Server::plain().await, Server::plain().await);
    let cluster = running(plain_config(), &[&stays, &leaves]).await;
    let client = Plain::new(&cluster);
    for _ in 0..4 {
        ok(&client).await;
    }
    until(|| leaves.open_connections() > 0).await;
    cluster.follow(Fixed::new([stays.address, comes.address, stays.address]));
    until(|| state_of(&cluster, comes.address) == State::Healthy).await;
    for _ in 0..4 {
        ok(&client).await;
    }
    assert_eq!((stays.requests(), leaves.requests(), comes.requests()), (4, 2, 2));
    assert_eq!(view_of(&cluster, stays.address).snapshot.requests, 4);
    assert_eq!(cluster.backends().len(), 2);
    until(|| leaves.open_connections() == 0).await;
}

#[tokio::test]
async fn a_request_at_a_removed_backend_is_finished() {
    let (gate, server) = gated(Speaks::Http1).await;
    let cluster = running(plain_config(), &[&server]).await;
    let client = Plain::new(&cluster);
    let call = tokio::spawn(async move { ok(&client).await });
    until(|| server.requests() == 1).await;
    cluster.follow(Fixed::new([] as [Endpoint; 0]));
    gate.add_permits(1);
    call.await.unwrap();
}

#[tokio::test]
async fn without_a_backend_the_answer_is_immediate() {
    let cluster = Cluster::new("test", plain_config(), Vec::<Endpoint>::new());
    let error = Plain::new(&cluster).send(get("/")).await.unwrap_err();
    assert!(matches!(error, Error::NoBackend), "{error}");
    assert_eq!(error.shed_reason().map(|reason| reason.name()), Some("no-backend"));
    assert_eq!(cluster.counts().no_backend, 1);
}

#[tokio::test]
async fn connections_idle_for_too_long_are_closed() {
    let server = Server::plain().await;
    let mut config = plain_config();
    config.pool.inactive_after = Duration::from_millis(20);
    let cluster = running(config, &[&server]).await;
    let client = Plain::new(&cluster);
    ok(&client).await;
    until(|| server.open_connections() == 0).await;
    assert_eq!(state_of(&cluster, server.address), State::Healthy);
    ok(&client).await;
}

#[tokio::test]
async fn no_more_connections_are_kept_idle_than_configured() {
    let (gate, server) = gated(Speaks::Http1).await;
    let mut config = plain_config();
    config.pool.max_idle_connections = 1;
    let cluster = running(config, &[&server]).await;
    let client = Plain::new(&cluster);
    let calls: Vec<_> = (0..5)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { ok(&client).await })
        })
        .collect();
    until(|| server.requests() == 5).await;
    gate.add_permits(5);
    for call in calls {
        call.await.unwrap();
    }
    until(|| server.open_connections() == 1).await;
}

#[tokio::test]
async fn a_drained_backend_gets_nothing_until_undrained() {
    let (one, two) = (Server::plain().await, Server::plain().await);
    let cluster = running(plain_config(), &[&one, &two]).await;
    let client = Plain::new(&cluster);
    assert!(cluster.drain(one.address));
    assert!(!cluster.drain(([127, 0, 0, 1], 1)));
    for _ in 0..4 {
        ok(&client).await;
    }
    assert_eq!((one.requests(), two.requests()), (0, 4));
    assert!(cluster.undrain(one.address));
    until(|| state_of(&cluster, one.address) == State::Healthy).await;
    for _ in 0..4 {
        ok(&client).await;
    }
    assert_eq!((one.requests(), two.requests()), (2, 6));
}

#[tokio::test]
async fn events_reach_all_observers_in_their_order() {
    let server = Server::plain().await;
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let observer = |number: u32| {
        let seen = seen.clone();
        move |notice: &plimsoll::client::Notice| seen.lock().unwrap().push((number, notice.clone()))
    };
    let builder = Cluster::builder("test").configure(|config| *config = plain_config()).endpoints([server.address]);
    let cluster = builder.observe(observer(1)).observe(observer(2)).build().unwrap();
    cluster.on_event(observer(3));
    let handle = cluster.clone();
    // An observer may add another one, and read the cluster.
    cluster.on_event(move |_| {
        handle.on_event(|_| {});
        assert_eq!(handle.known(), 1);
    });
    tokio::spawn(cluster.run());
    until(|| state_of(&cluster, server.address) == State::Healthy).await;
    let seen = seen.lock().unwrap().clone();
    let is_healthy = |notice: &plimsoll::client::Notice| {
        let about = notice.backend.as_ref().is_some_and(|backend| backend.address() == server.address.into());
        about && matches!(notice.event, plimsoll_core::Event::StateChanged { to: State::Healthy, .. })
    };
    let numbers: Vec<u32> = seen.iter().filter(|(_, notice)| is_healthy(notice)).map(|(number, _)| *number).collect();
    assert_eq!(numbers, [1, 2, 3]);
}

#[tokio::test]
async fn the_task_of_a_cluster_ends_with_its_last_handle() {
    let cluster = Cluster::new("test", plain_config(), Vec::<Endpoint>::new());
    let task = tokio::spawn(cluster.run());
    let client = Plain::new(&cluster);
    drop((cluster, client));
    tokio::time::timeout(Duration::from_secs(10), task).await.expect("ends").unwrap();
}

#[tokio::test]
async fn five_failures_in_a_row_eject_a_backend() {
    let good = [Server::plain().await, Server::plain().await, Server::plain().await];
    let bad = Server::start(Speaks::Http1, |_| status(500)).await;
    let mut config = plain_config();
    config.balancer.outlier.max_ejected = plimsoll_core::Ratio::from_percent(50);
    let cluster = running(config, &[&good[0], &good[1], &good[2], &bad]).await;
    let client = Plain::new(&cluster);
    // The more it fails, the less often it is asked: how many requests this takes is up to chance.
    while state_of(&cluster, bad.address) == State::Healthy {
        client.send(get("/")).await.unwrap().into_body().collect().await.unwrap();
    }
    let view = view_of(&cluster, bad.address);
    assert_eq!((view.snapshot.state, view.snapshot.reason), (State::Ejected, Reason::ConsecutiveFailures));
    assert_eq!(bad.requests(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_client_is_shared_by_the_threads_of_a_runtime() {
    let servers = [Server::plain().await, Server::plain().await];
    let cluster = running(plain_config(), &servers.each_ref()).await;
    let client = Plain::new(&cluster);
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                for _ in 0..50 {
                    ok(&client).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(servers[0].requests() + servers[1].requests(), 800);
    assert_eq!(servers[0].requests(), 400);
    assert_eq!(active(&cluster), 0);
}
