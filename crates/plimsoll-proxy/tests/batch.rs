//! A listener for batch work, as its clients and backends see it.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use http::{HeaderMap, Request, Response, StatusCode};
use hyper::body::Incoming;
use plimsoll::client::BatchView;
use plimsoll_proxy::{ListenerView, Proxy};
use support::*;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

fn text(backend: SocketAddr, batch: &str) -> String {
    format!(
        "threads = 2\n[[listeners]]\naddress = \"127.0.0.1:0\"\nname = \"main\"\n[listeners.batch]\n{batch}\n[[routes]]\ncluster = \
         \"c\"\n[clusters.c]\nbackends = [\"{backend}\"]\n"
    )
}

fn view(proxy: &Proxy) -> ListenerView {
    proxy.listeners().remove(0)
}

fn gate(proxy: &Proxy) -> BatchView {
    view(proxy).batch.unwrap().gate
}

fn queued(proxy: &Proxy) -> usize {
    gate(proxy).queued.iter().map(|(_, queued)| queued).sum()
}

/// Takes so many at a time and turns others away; each it takes waits to be let go. Remembers what requests said of themselves.
async fn narrow(places: usize) -> (Backend, Arc<Semaphore>, Arc<Mutex<Vec<HeaderMap>>>) {
    let (room, leave, seen) = (Arc::new(Semaphore::new(places)), Arc::new(Semaphore::new(0)), Arc::default());
    let (gate, notes): (_, Arc<Mutex<Vec<HeaderMap>>>) = (leave.clone(), Arc::clone(&seen));
    let backend = Backend::start(move |request: Request<Incoming>| {
        let (place, gate) = (room.clone().try_acquire_owned(), gate.clone());
        notes.lock().unwrap().push(request.headers().clone());
        async move {
            let Ok(_place) = place else {
                let mut response = Response::new(full("no room"));
                *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
                let said = "reason=overloaded, retry=elsewhere".parse().unwrap();
                response.headers_mut().insert("x-plimsoll-shed", said);
                return response;
            };
            gate.acquire().await.unwrap().forget();
            Response::new(full("done"))
        }
    })
    .await;
    (backend, leave, seen)
}

async fn ask(address: SocketAddr, fields: &str) -> Answered {
    let mut client = Raw::to(address).await;
    client.ask(&format!("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n{fields}\r\nwork")).await
}

#[tokio::test]
async fn all_threads_together_have_no_more_at_backends_than_the_file_says() {
    let (backend, leave, seen) = narrow(100).await;
    let proxy = start(&text(backend.address, "max_active = 3")).await;
    let address = address_of(&proxy, "main");
    let mut clients = JoinSet::new();
    for _ in 0..60 {
        clients.spawn(async move { ask(address, "").await.status });
    }
    leave.add_permits(60);
    let mut most = 0_usize;
    while let Some(status) = clients.join_next().await {
        assert_eq!(status.unwrap(), 200);
        let listener = view(&proxy).batch.unwrap();
        most = most.max(listener.gate.active as usize).max(listener.connections);
    }
    assert!(most <= 3, "{most}");
    assert_eq!(queued(&proxy), 0);
    let said = seen.lock().unwrap();
    assert!(said.iter().all(|headers| headers["x-criticality"] == "sheddable-plus"), "backends are told what it is");
}

#[tokio::test]
async fn what_a_backend_turns_away_is_served_later_and_its_client_hears_nothing_of_it() {
    let (backend, leave, _) = narrow(1).await;
    let proxy = start(&text(backend.address, "max_active = 16")).await;
    let address = address_of(&proxy, "main");
    leave.add_permits(100);
    let mut clients = JoinSet::new();
    for _ in 0..40 {
        clients.spawn(async move { ask(address, "").await });
    }
    for answer in clients.join_all().await {
        assert_eq!((answer.status, answer.body.as_str()), (200, "done"));
    }
    let cluster = proxy.cluster("c").unwrap().counts();
    assert!(cluster.retries.is_empty() && cluster.throttled.iter().all(|count| *count == 0));
}

#[tokio::test]
async fn a_client_that_goes_away_while_it_waits_leaves_the_queue() {
    let (backend, leave, _) = narrow(1).await;
    let proxy = start(&text(backend.address, "max_active = 1")).await;
    let address = address_of(&proxy, "main");
    let first = tokio::spawn(async move { ask(address, "").await.status });
    until(|| gate(&proxy).active == 1).await;
    let mut gone = Raw::to(address).await;
    gone.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    until(|| queued(&proxy) == 1).await;
    drop(gone);
    until(|| queued(&proxy) == 0).await;
    leave.add_permits(1);
    assert_eq!(first.await.unwrap(), 200);
    assert_eq!(backend.requests(), 1);
}

#[tokio::test]
async fn who_finds_the_queue_full_is_told_when_to_come_again() {
    let (backend, leave, _) = narrow(1).await;
    let proxy = start(&text(backend.address, "max_active = 1\nmax_queue = 1")).await;
    let address = address_of(&proxy, "main");
    let first = tokio::spawn(async move { ask(address, "").await.status });
    until(|| gate(&proxy).active == 1).await;
    let second = tokio::spawn(async move { ask(address, "").await.status });
    until(|| queued(&proxy) == 1).await;
    let third = ask(address, "").await;
    assert_eq!(third.status, 503);
    assert!(third.head.contains("x-plimsoll-shed: reason=overloaded, retry=after\r\n"), "{}", third.head);
    assert!(third.head.contains("retry-after: "), "{}", third.head);
    leave.add_permits(2);
    assert_eq!([first.await.unwrap(), second.await.unwrap()], [200, 200]);
    assert_eq!(gate(&proxy).counts.full, 1);
}

#[tokio::test]
async fn a_sender_that_waits_for_less_than_the_queue_may_take_is_answered_by_then() {
    let (backend, leave, _) = narrow(1).await;
    let proxy = start(&text(backend.address, "max_active = 1")).await;
    let address = address_of(&proxy, "main");
    // Has the only place, so that no attempt of the other's is under way when its time is up.
    let first = tokio::spawn(async move { ask(address, "").await.status });
    until(|| gate(&proxy).active == 1).await;
    let answer = soon(ask(address, "x-envoy-expected-rq-timeout-ms: 200\r\n")).await;
    assert_eq!(answer.status, 503);
    assert!(answer.head.contains("x-plimsoll-shed: reason=overloaded, retry=after\r\n"), "{}", answer.head);
    assert_eq!(gate(&proxy).timed_out, 1);
    leave.add_permits(1);
    assert_eq!(first.await.unwrap(), 200);
}

#[tokio::test]
async fn a_reload_keeps_who_waits_and_gives_way_to_more() {
    let (backend, leave, _) = narrow(10).await;
    let written = text(backend.address, "max_active = 1");
    let proxy = start(&written).await;
    let address = address_of(&proxy, "main");
    let mut clients = JoinSet::new();
    for _ in 0..5 {
        clients.spawn(async move { ask(address, "").await.status });
    }
    until(|| queued(&proxy) == 4).await;
    proxy.reload(parse(&text(backend.address, "max_active = 4\nqueue_timeout = \"1m\""))).await.unwrap();
    assert_eq!((queued(&proxy), gate(&proxy).max_active), (4, 4));
    // Without batch, new requests do not wait, and those that do are served all the same.
    let plain = written.replace("[listeners.batch]\nmax_active = 1\n", "");
    proxy.reload(parse(&plain)).await.unwrap();
    leave.add_permits(6);
    assert_eq!(ask(address, "").await.status, 200);
    while let Some(status) = clients.join_next().await {
        assert_eq!(status.unwrap(), 200);
    }
    assert!(view(&proxy).batch.is_none());
}

#[tokio::test]
async fn a_drain_waits_for_who_waits() {
    let (backend, leave, _) = narrow(1).await;
    let proxy = start(&text(backend.address, "max_active = 1")).await;
    let address = address_of(&proxy, "main");
    let clients = [(); 2].map(|()| tokio::spawn(async move { ask(address, "").await.status }));
    until(|| queued(&proxy) == 1).await;
    let draining = {
        let proxy = Arc::clone(&proxy);
        tokio::spawn(async move { proxy.drain().await })
    };
    until(|| !proxy.is_ready()).await;
    leave.add_permits(2);
    for client in clients {
        assert_eq!(client.await.unwrap(), 200);
    }
    tokio::time::timeout(Duration::from_secs(20), draining).await.unwrap().unwrap();
}
