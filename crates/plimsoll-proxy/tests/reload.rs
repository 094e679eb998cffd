//! What a reload leaves alone, and how listeners and their sockets come and go.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use plimsoll::client::{BackendView, Cluster};
use plimsoll::discover::{Answer, Discover};
use plimsoll_core::health::State;
use plimsoll_proxy::{Error, Proxy, Sockets};
use plimsoll_testkit::ports::free_port;
use support::*;

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
const GET_ONCE: &str = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

/// Two listeners, of which the second may be left out, and several backends.
fn text(ports: &[u16], backends: &[SocketAddr], further: &str) -> String {
    let listeners: String =
        ports.iter().map(|port| format!("[[listeners]]\naddress = \"127.0.0.1:{port}\"\n")).collect();
    let backends: Vec<String> = backends.iter().map(|backend| format!("\"{backend}\"")).collect();
    format!(
        "threads = 2\n{listeners}[[routes]]\ncluster = \"c\"\n[clusters.c]\nbackends = [{}]\n{further}\n",
        backends.join(", ")
    )
}

fn backend_of(proxy: &Proxy, address: SocketAddr) -> BackendView {
    let backends = proxy.cluster("c").unwrap().backends();
    backends.into_iter().find(|view| view.backend.address() == address.into()).expect("is there")
}

fn at(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

#[tokio::test]
async fn backends_that_come_and_go_do_not_disturb_the_others() {
    let (stays, leaves, comes) = (Backend::echo().await, Backend::echo().await, Backend::echo().await);
    let port = free_port();
    let proxy = start(&text(&[port], &[stays.address, leaves.address], "policy = \"round-robin\"")).await;
    let mut client = Raw::to(at(port)).await;
    for _ in 0..4 {
        assert_eq!(client.ask(GET).await.status, 200);
    }
    let before = backend_of(&proxy, stays.address);
    let opened = stays.connections();
    assert!(before.snapshot.requests > 0 && before.snapshot.latency.is_some());

    let next = text(&[port], &[comes.address, stays.address], "policy = \"round-robin\"");
    proxy.reload(parse(&next)).await.unwrap();
    let after = backend_of(&proxy, stays.address);
    assert_eq!(after.snapshot.id, before.snapshot.id, "the very same");
    assert_eq!((after.snapshot.since, after.snapshot.requests), (before.snapshot.since, before.snapshot.requests));
    assert!(after.snapshot.latency.is_some(), "what was learned is kept");
    assert_eq!(after.counts.connections_opened, before.counts.connections_opened);
    until(|| backend_of(&proxy, comes.address).snapshot.state == State::Healthy).await;
    let left = leaves.requests();
    for _ in 0..4 {
        assert_eq!(client.ask(GET).await.status, 200, "the client's connection stays, too");
    }
    assert!(comes.requests() > 0);
    assert_eq!((leaves.requests(), stays.connections()), (left, opened));
}

#[tokio::test]
async fn the_same_file_again_changes_nothing() {
    let backends = [Backend::echo().await, Backend::echo().await];
    let port = free_port();
    let file = text(&[port], &[backends[0].address, backends[1].address], "[clusters.c.health]\ninterval = \"1h\"");
    let proxy = start(&file).await;
    let mut client = Raw::to(at(port)).await;
    for _ in 0..4 {
        assert_eq!(client.ask(GET).await.status, 200);
    }
    assert!(proxy.cluster("c").unwrap().drain(backends[1].address));
    let look = || {
        let views = proxy.cluster("c").unwrap().backends();
        views.iter().map(|view| (view.snapshot.clone(), view.counts.connections_opened)).collect::<Vec<_>>()
    };
    let before = look();
    for _ in 0..3 {
        proxy.reload(parse(&file)).await.unwrap();
    }
    for ((before, opened), (after, opened_after)) in before.into_iter().zip(look()) {
        assert_eq!((after.id, after.state, after.since), (before.id, before.state, before.since));
        assert_eq!((after.reason, after.requests, after.weight), (before.reason, before.requests, before.weight));
        assert_eq!(opened_after, opened, "no connection is opened again");
    }
    assert_eq!(client.ask(GET).await.status, 200);
    assert_eq!(proxy.reloads().taken(), 3);
}

#[tokio::test]
async fn a_listener_that_is_added_does_not_disturb_the_others() {
    let backend = Backend::echo().await;
    let (first, second) = (free_port(), free_port());
    let proxy = start(&text(&[first], &[backend.address], "")).await;
    let mut client = Raw::to(at(first)).await;
    assert_eq!(client.ask(GET).await.status, 200);
    proxy.reload(parse(&text(&[first, second], &[backend.address], ""))).await.unwrap();
    assert_eq!(Raw::to(at(second)).await.ask(GET).await.status, 200);
    let answer = client.ask(GET).await;
    assert!(answer.status == 200 && !answer.head.contains("connection: close"), "{answer:?}");
}

#[tokio::test]
async fn a_removed_listener_accepts_no_more_at_once_and_closes_what_is_left_after_the_drain_timeout() {
    let backend = Backend::echo().await;
    let (stays, leaves) = (free_port(), free_port());
    let drain = "[drain]\ntimeout = \"300ms\"";
    let proxy = start(&text(&[stays, leaves], &[backend.address], drain)).await;
    let mut idle = Raw::to(at(leaves)).await;
    assert_eq!(idle.ask(GET).await.status, 200);
    let (mut two, ended) = http2::<Empty<Bytes>>(at(leaves)).await;
    soon(two.send_request(Request::get("http://a/").body(Empty::new()).unwrap())).await.unwrap();
    proxy.reload(parse(&text(&[stays], &[backend.address], drain))).await.unwrap();
    soon(async { while tokio::net::TcpStream::connect(at(leaves)).await.is_ok() {} }).await;
    // GOAWAY: nothing is in flight on it, so it ends at once.
    soon(ended).await.unwrap();
    assert_eq!(idle.rest().await, "", "nothing is said to a client that has not asked");
    assert_eq!(Raw::to(at(stays)).await.ask(GET).await.status, 200);
}

#[tokio::test]
async fn a_client_with_too_many_connections_is_refused_until_one_ends() {
    let backend = Backend::echo().await;
    let port = free_port();
    let file = |most: &str| {
        text(&[port], &[backend.address], "")
            .replace("[[routes]]", &format!("max_connections_per_client = {most}\n[[routes]]"))
    };
    let proxy = start(&file("2")).await;
    let mut held = [Raw::to(at(port)).await, Raw::to(at(port)).await];
    for client in &mut held {
        assert_eq!(client.ask(GET).await.status, 200);
    }
    let mut refused = Raw::to(at(port)).await;
    refused.send_if_wanted(GET.as_bytes()).await;
    assert_eq!(refused.rest().await, "", "closed without an answer");
    assert!(proxy.listeners()[0].turned_away.contains(&("client", 1)));
    drop(held);
    until(|| proxy.listeners()[0].connections == 0).await;
    assert_eq!(Raw::to(at(port)).await.ask(GET).await.status, 200);
    proxy.reload(parse(&file("\"off\""))).await.unwrap();
    for _ in 0..5 {
        assert_eq!(Raw::to(at(port)).await.ask(GET).await.status, 200);
    }
}

/// Has one request per connection sent, one after the other, until `ended`; counts those that failed.
async fn knock(port: u16, ended: Arc<AtomicBool>, answered: Arc<AtomicUsize>) -> Vec<String> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut failed = Vec::new();
    while !ended.load(Ordering::Relaxed) {
        let one = async {
            let mut stream = tokio::net::TcpStream::connect(at(port)).await?;
            stream.write_all(GET_ONCE.as_bytes()).await?;
            let mut text = String::new();
            stream.read_to_string(&mut text).await?;
            Ok::<_, std::io::Error>(text)
        };
        match one.await {
            Ok(text) if text.starts_with("HTTP/1.1 200") => drop(answered.fetch_add(1, Ordering::Relaxed)),
            other => failed.push(format!("{other:?}")),
        }
    }
    failed
}

#[tokio::test]
async fn a_successor_with_other_threads_takes_over_all_sockets_without_losing_a_connection() {
    for (threads, next_threads) in [(2, 2), (4, 1), (1, 3)] {
        let backend = Backend::echo().await;
        let port = free_port();
        let file = |threads: usize| {
            text(&[port], &[backend.address], "[drain]\ntimeout = \"5s\"")
                .replace("threads = 2", &format!("threads = {threads}"))
        };
        let old = start(&file(threads)).await;
        let mut keeps = Raw::to(at(port)).await;
        assert_eq!(keeps.ask(GET).await.status, 200);
        let (ended, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let clients: Vec<_> =
            (0..8).map(|_| tokio::spawn(knock(port, Arc::clone(&ended), Arc::clone(&answered)))).collect();
        until(|| answered.load(Ordering::Relaxed) > 50).await;

        let mut sockets = Sockets::default();
        for socket in old.sockets().unwrap() {
            sockets.add(socket).unwrap();
        }
        let new = Proxy::start_with(parse(&file(next_threads)), &mut sockets).await.unwrap();
        assert_eq!(sockets.addresses().count(), 0, "all are taken");
        let leaving = tokio::spawn(async move { old.leave_to_successor().await });
        let seen = answered.load(Ordering::Relaxed);
        until(|| answered.load(Ordering::Relaxed) > seen + 200).await;
        let last = keeps.ask(GET).await;
        assert!(last.status == 200 && last.head.contains("connection: close"), "{last:?}");
        soon(leaving).await.unwrap();
        let seen = answered.load(Ordering::Relaxed);
        until(|| answered.load(Ordering::Relaxed) > seen + 200).await;
        ended.store(true, Ordering::Relaxed);
        for client in clients {
            assert_eq!(soon(client).await.unwrap(), Vec::<String>::new(), "{threads} to {next_threads}");
        }
        assert!(new.listeners()[0].accepted > 0);
    }
}

#[tokio::test]
async fn another_number_of_threads_needs_a_restart_however_often_it_is_reloaded() {
    let backend = Backend::echo().await;
    let two = text(&[free_port()], &[backend.address], "");
    let four = two.replace("threads = 2", "threads = 4");
    let proxy = start(&two).await;
    for _ in 0..2 {
        let changes = parse(&four).changes_since(&proxy.config());
        assert!(changes.len() == 1 && changes[0].needs_restart, "{changes:?}");
        proxy.reload(parse(&four)).await.unwrap();
    }
    assert_eq!(parse(&two).changes_since(&proxy.config()), [], "two is what runs");
}

#[tokio::test]
async fn a_path_of_the_access_log_that_cannot_be_opened_changes_nothing() {
    let backend = Backend::echo().await;
    let port = free_port();
    let proxy = start(&text(&[port], &[backend.address], "")).await;
    let bad = text(&[port, free_port()], &[backend.address], "[access_log]\npath = \"/nonexistent/access.log\"");
    let error = proxy.reload(parse(&bad)).await.unwrap_err();
    let line = bad.lines().position(|line| line.starts_with("path = ")).unwrap() + 1;
    let told = format!("test:{line}:8: access_log.path: /nonexistent/access.log cannot be opened: No such file");
    assert!(error.to_string().starts_with(&told), "{error}");
    assert!(error.to_string().ends_with("\n    help: let this user write there, or choose another path"), "{error}");
    assert_eq!(proxy.listeners().len(), 1);
    let mut client = Raw::to(at(port)).await;
    assert_eq!(client.ask(GET).await.status, 200);
    tokio::time::timeout(Duration::from_secs(5), proxy.drain()).await.unwrap();
}

/// A step that fails, of a reload that changes much else; and the reason that it tells.
fn failing_steps(taken: u16) -> Vec<(&'static str, String, &'static str)> {
    let listener = format!("[[listeners]]\naddress = \"127.0.0.1:{taken}\"\n");
    let log = "[access_log]\npath = \"/nonexistent/access.log\"\n".to_owned();
    vec![
        ("address", listener.clone(), "another process listens there"),
        ("access log", log.clone(), "access.log cannot be opened"),
        ("address before access log", format!("{listener}{log}"), "another process listens there"),
    ]
}

#[tokio::test]
async fn failed_reload_changes_nothing_whichever_step_fails() {
    let (stays, comes) = (Backend::echo().await, Backend::echo().await);
    let (port, new_port) = (free_port(), free_port());
    let other = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = start(&text(&[port], &[stays.address], "")).await;
    let mut client = Raw::to(at(port)).await;
    assert_eq!(client.ask(GET).await.status, 200);
    let look = || {
        let views = proxy.clusters().iter().flat_map(Cluster::backends).collect::<Vec<_>>();
        let backends: Vec<_> = views.iter().map(|view| (view.snapshot.id, view.backend.endpoint().clone())).collect();
        let clusters: Vec<_> = proxy.clusters().iter().map(|cluster| cluster.name().to_owned()).collect();
        let listeners: Vec<_> = proxy.listeners().iter().map(|view| (view.name.clone(), view.address)).collect();
        (clusters, backends, listeners, proxy.cluster("c").unwrap().config())
    };
    let (before, config) = (look(), proxy.config());
    let steps = failing_steps(other.local_addr().unwrap().port());
    for (refused, (step, further, reason)) in (1..).zip(&steps) {
        let file = format!("{further}{}", text(&[new_port], &[comes.address], "policy = \"random\""));
        // A table that comes first must not hold the keys of the top level.
        let file = format!("threads = 2\n{}", file.replace("threads = 2\n", ""));
        let error = proxy.reload(parse(&file)).await.unwrap_err().to_string();
        assert!(error.contains(reason), "{step}: {error}");
        assert_eq!(look(), before, "{step}");
        assert!(Arc::ptr_eq(&proxy.config(), &config), "{step}");
        assert_eq!((proxy.reloads().refused(), proxy.reloads().taken()), (refused, 0));
        assert!(tokio::net::TcpStream::connect(at(new_port)).await.is_err(), "{step}: nobody listens there");
        assert_eq!(client.ask(GET).await.status, 200, "{step}");
    }
    assert_eq!((stays.requests(), comes.connections()), (1 + steps.len(), 0));
    // Without the step that failed, all of it is taken.
    proxy.reload(parse(&text(&[new_port], &[comes.address], "policy = \"random\""))).await.unwrap();
    assert_eq!(Raw::to(at(new_port)).await.ask(GET).await.status, 200);
}

/// A DNS server that knows no name.
async fn empty_dns() -> SocketAddr {
    let server = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap();
    tokio::spawn(async move {
        let mut message = [0; 512];
        while let Ok((length, client)) = server.recv_from(&mut message).await {
            // The query as a response with the code NXDOMAIN.
            message[2] |= 0x80;
            message[3] = message[3] & 0xf0 | 3;
            server.send_to(&message[..length], client).await.unwrap();
        }
    });
    address
}

/// Its cluster answers 503, and all others are served.
#[tokio::test]
async fn name_without_an_address_is_the_problem_of_its_cluster() {
    let backend = Backend::echo().await;
    let port = free_port();
    let asked = format!("[\"no.such.name.invalid:80\"]\nresolver = \"{}\"\n", empty_dns().await);
    let name = format!("[[routes]]\nhost = \"other\"\ncluster = \"other\"\n[clusters.other]\nbackends = {asked}");
    let text = text(&[port], &[backend.address], "");
    let with_name = text.replacen("[[routes]]", &format!("{name}[[routes]]"), 1);
    let proxy = start(&with_name).await;
    let ask = async |host: &str| {
        let mut client = Raw::to(at(port)).await;
        client.ask(&format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n")).await.status
    };
    assert_eq!((ask("a").await, ask("other").await), (200, 503));
    let other = proxy.cluster("other").unwrap();
    until(|| other.discovery().is_failing).await;
    let error = other.discovery().last_error.unwrap().error;
    assert!(error.contains("clusters.other.backends[0]: \"no.such.name.invalid\" has no address"), "{error}");
    proxy.reload(parse(&with_name.replace(&asked, &format!("[\"{}\"]\n", backend.address)))).await.unwrap();
    assert!(!other.discovery().is_failing);
    until(|| other.backends().iter().any(|view| view.snapshot.state == State::Healthy)).await;
    assert_eq!(ask("other").await, 200);
    // A reload with such a name is taken, too.
    proxy.reload(parse(&with_name)).await.unwrap();
    assert_eq!((ask("a").await, ask("other").await), (200, 503));
}

#[tokio::test]
async fn draining_proxy_takes_no_config() {
    let backend = Backend::echo().await;
    let file = text(&[free_port()], &[backend.address], "");
    let proxy = start(&file).await;
    soon(proxy.drain()).await;
    let error = proxy.reload(parse(&file)).await.unwrap_err();
    assert!(matches!(error, Error::Draining), "{error}");
    assert_eq!((proxy.reloads().refused(), proxy.reloads().taken()), (1, 0));
}

#[tokio::test]
async fn reload_changes_the_weight_of_a_backend_in_place() {
    let backends = [Backend::echo().await, Backend::echo().await];
    let port = free_port();
    let [first, second] = backends.each_ref().map(|backend| backend.address);
    let file = text(&[port], &[first, second], "");
    let proxy = start(&file).await;
    let mut client = Raw::to(at(port)).await;
    for _ in 0..4 {
        assert_eq!(client.ask(GET).await.status, 200);
    }
    let opened = backends[1].connections();
    assert!(proxy.cluster("c").unwrap().drain(second));
    // The silent one, by which the end of its process is noticed.
    until(|| backends[1].connections() == opened + 1).await;
    let look = || [first, second].map(|address| backend_of(&proxy, address));
    let (before, connections) = (look(), backends.each_ref().map(Backend::connections));
    let heavier = |address| format!("{{ address = \"{address}\", weight = 4, zone = \"b\" }}");
    let changed =
        [first, second].iter().fold(file, |file, address| file.replace(&format!("\"{address}\""), &heavier(address)));
    proxy.reload(parse(&changed)).await.unwrap();
    for (before, after) in before.into_iter().zip(look()) {
        let (before, after) = (before.snapshot, after.snapshot);
        assert_eq!((after.id, after.state, after.since), (before.id, before.state, before.since));
        assert_eq!((after.requests, after.reason), (before.requests, before.reason));
        assert_eq!((before.weight, after.weight), (1.0, 4.0));
    }
    let served = backends[1].requests();
    for _ in 0..4 {
        assert_eq!(client.ask(GET).await.status, 200);
    }
    assert_eq!(backends[1].requests(), served, "drained");
    assert_eq!(backends.each_ref().map(Backend::connections), connections);
}

/// A source whose answers come from the test.
struct Fake(tokio::sync::mpsc::UnboundedReceiver<Answer>);

impl Discover for Fake {
    async fn next(&mut self) -> Option<Answer> {
        self.0.recv().await
    }
}

#[tokio::test]
async fn reload_gives_a_cluster_its_source_from_the_file() {
    let (file, found) = (Backend::echo().await, Backend::echo().await);
    let port = free_port();
    let text = text(&[port], &[file.address], "");
    let proxy = start(&text).await;
    let cluster = proxy.cluster("c").unwrap();
    let addresses = || cluster.backends().iter().map(|view| view.backend.address()).collect::<Vec<_>>();
    let (lists, answers) = tokio::sync::mpsc::unbounded_channel();
    cluster.follow(Fake(answers));
    lists.send(Ok(vec![found.address.into()])).unwrap();
    until(|| addresses() == [found.address.into()]).await;
    until(|| backend_of(&proxy, found.address).snapshot.state == State::Healthy).await;
    assert_eq!(Raw::to(at(port)).await.ask(GET).await.status, 200);
    assert_eq!((file.requests(), found.requests()), (0, 1));
    proxy.reload(parse(&text)).await.unwrap();
    assert_eq!(addresses(), [file.address.into()]);
    until(|| lists.is_closed()).await;
}

/// A backend whose answers never end.
async fn endless() -> Backend {
    Backend::start(|_| async {
        let (hand, body) = by_hand();
        tokio::spawn(async move {
            while hand.send(data("more")).is_ok() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        Response::new(body.boxed())
    })
    .await
}

/// Clients in the midst of such an answer: one whose answer has chunks, one whose answer ends with the connection, one on HTTP/2.
async fn amid_answers(port: u16) -> (Raw, Raw, Incoming) {
    let mut chunked = Raw::to(at(port)).await;
    chunked.send(GET).await;
    chunked.up_to("more").await;
    let mut until_close = Raw::to(at(port)).await;
    until_close.send("GET / HTTP/1.0\r\nhost: a\r\n\r\n").await;
    until_close.up_to("more").await;
    let (mut send, _) = http2::<Empty<Bytes>>(at(port)).await;
    let response = soon(send.send_request(Request::get("http://a/").body(Empty::new()).unwrap())).await.unwrap();
    let mut streamed = response.into_body();
    assert_eq!(next_data(&mut streamed).await.as_deref(), Some("more"));
    (chunked, until_close, streamed)
}

/// Waits until each is cut off, and none looks whole.
async fn are_cut_off((mut chunked, until_close, mut streamed): (Raw, Raw, Incoming)) {
    assert!(!soon(chunked.rest()).await.ends_with("\r\n0\r\n\r\n"));
    soon(until_close.reset()).await;
    soon(async { while streamed.frame().await.expect("is not whole").is_ok() {} }).await;
}

#[tokio::test]
async fn answers_without_end_are_cut_off_when_their_listener_is_gone_for_the_drain_timeout() {
    let backend = endless().await;
    let (stays, leaves) = (free_port(), free_port());
    let drain = "[drain]\ntimeout = \"300ms\"";
    let proxy = start(&text(&[stays, leaves], &[backend.address], drain)).await;
    let left = amid_answers(leaves).await;
    let mut kept = amid_answers(stays).await;
    let removed = std::time::Instant::now();
    proxy.reload(parse(&text(&[stays], &[backend.address], drain))).await.unwrap();
    are_cut_off(left).await;
    assert!(removed.elapsed() >= Duration::from_secs(1), "{:?}", removed.elapsed());
    until(|| active(&proxy) == 3).await;
    kept.0.up_to("more").await;
    assert_eq!(next_data(&mut kept.2).await.as_deref(), Some("more"));

    // The end of all of it does likewise.
    soon(proxy.drain()).await;
    are_cut_off(kept).await;
    until(|| active(&proxy) == 0).await;
}

/// A backend that switches to a protocol in which all bytes are said again.
async fn switching() -> SocketAddr {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    if stream.read_buf(&mut head).await.unwrap_or(0) == 0 {
                        return;
                    }
                }
                let switch = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
                stream.write_all(switch.as_bytes()).await.unwrap();
                let (mut read, mut write) = stream.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    address
}

#[tokio::test]
async fn an_upgraded_connection_outlives_reloads_and_its_listener_until_the_drain_timeout() {
    const SWITCH: &str = "GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
    let (backend, other) = (switching().await, Backend::echo().await);
    let (stays, leaves) = (free_port(), free_port());
    let drain = "[drain]\ntimeout = \"400ms\"";
    let proxy = start(&text(&[stays, leaves], &[backend], drain)).await;
    let mut client = Raw::to(at(leaves)).await;
    client.send(SWITCH).await;
    assert!(client.head().await.starts_with("http/1.1 101"));
    for (backends, ports) in [(vec![backend, other.address], vec![stays, leaves]), (vec![other.address], vec![stays])] {
        proxy.reload(parse(&text(&ports, &backends, drain))).await.unwrap();
        client.send("still here\n").await;
        assert_eq!(client.up_to("\n").await, "still here\n");
    }
    let removed = std::time::Instant::now();
    assert_eq!(client.rest().await, "");
    assert!(removed.elapsed() >= Duration::from_millis(300), "{:?}", removed.elapsed());
}

#[tokio::test]
async fn a_removed_cluster_is_checked_no_more_once_its_last_request_is_over() {
    let (removed, stays) = (Backend::echo().await, Backend::echo().await);
    let port = free_port();
    let health = "[clusters.c.health]\ninterval = \"10ms\"\ntimeout = \"10ms\"";
    let file = text(&[port], &[removed.address], health);
    let proxy = start(&file).await;
    let checked = removed.connections();
    until(|| removed.connections() > checked + 3).await;
    let next = text(&[port], &[stays.address], health).replace("clusters.c", "clusters.d").replace("\"c\"", "\"d\"");
    proxy.reload(parse(&next)).await.unwrap();
    let quiet = || async {
        let before = removed.connections();
        tokio::time::sleep(Duration::from_millis(100)).await;
        removed.connections() == before
    };
    soon(async { while !quiet().await {} }).await;
    assert_eq!(Raw::to(at(port)).await.ask(GET).await.status, 200);
}

#[tokio::test]
async fn behind_a_trusted_proxy_the_client_that_it_names_is_counted() {
    let backend = Backend::echo().await;
    let port = free_port();
    let limits =
        "max_connections_per_client = 1\nproxy_protocol = \"v1\"\ntrusted_proxies = [\"127.0.0.0/8\"]\n[[routes]]";
    let _proxy = start(&text(&[port], &[backend.address], "").replace("[[routes]]", limits)).await;
    let from = |client: &str| format!("PROXY TCP4 {client} 10.0.0.1 5000 80\r\n{GET}");
    let mut first = Raw::to(at(port)).await;
    first.send(&from("192.0.2.1")).await;
    assert_eq!(first.answer_to("GET").await.status, 200);
    let mut second = Raw::to(at(port)).await;
    second.send_if_wanted(from("192.0.2.1").as_bytes()).await;
    assert_eq!(second.rest().await, "");
    let mut other = Raw::to(at(port)).await;
    other.send(&from("192.0.2.2")).await;
    assert_eq!(other.answer_to("GET").await.status, 200);
    assert_eq!(first.ask(GET).await.status, 200);
}
