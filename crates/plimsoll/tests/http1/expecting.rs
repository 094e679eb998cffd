//! Bodies that wait to be asked for.

use super::*;

fn expecting(body: Frames) -> Request<Frames> {
    let mut request = post(body);
    *request.method_mut() = Method::PUT;
    request.headers_mut().insert("expect", "100-continue".parse().unwrap());
    request
}

#[tokio::test]
async fn an_expecting_body_is_asked_for_only_when_the_backend_wants_it() {
    let (address, connections) = backend(|mut peer| async move {
        loop {
            let head = peer.head().await;
            if head.is_empty() {
                return;
            }
            assert!(head.contains("expect: 100-continue"));
            if peer.index == CHECKS {
                peer.send("HTTP/1.1 100 Continue\r\n\r\n").await;
                assert_eq!(peer.body(5).await, b"hello");
            }
            peer.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
            if peer.index > CHECKS {
                assert!(!peer.more().await, "nothing of the body");
                return;
            }
        }
    })
    .await;
    let cluster = cluster_of(address).await;
    let client = Client::new(&cluster);
    let (send, body) = frames(Some(5));
    let polls = body.polls.clone();
    send.send(data("hello")).unwrap();
    assert_eq!(text(client.send(expecting(body)).await.unwrap()).await, "ok");
    assert!(polls.load(Ordering::SeqCst) > 0);
    assert_eq!(view_of(&cluster, address).counts.connections_open(), 1);

    // The backend of the other connections answers at once: the body is never requested, and the
    // connection is of no more use.
    let mut busy = get_frames("/");
    busy.headers_mut().insert("expect", "100-continue".parse().unwrap());
    let held = client.send(busy);
    let mut held = std::pin::pin!(held);
    assert!(is_pending(held.as_mut()).await);
    let (_send, body) = frames(Some(5));
    let polls = body.polls.clone();
    assert_eq!(text(client.send(expecting(body)).await.unwrap()).await, "ok");
    assert_eq!(polls.load(Ordering::SeqCst), 0);
    until(|| connections.load(Ordering::SeqCst) == 2 + CHECKS).await;
}

fn get_frames(path: &str) -> Request<Frames> {
    let (send, body) = frames(Some(0));
    drop(send);
    Request::get(path).body(body).unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_expecting_body_is_sent_after_a_while_to_a_backend_that_says_nothing() {
    let (address, _) = backend(|mut peer| async move {
        if !peer.head().await.is_empty() {
            assert_eq!(peer.body(5).await, b"hello");
            peer.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
        }
    })
    .await;
    let client = Client::new(&cluster_of(address).await);
    let (send, body) = frames(Some(5));
    send.send(data("hello")).unwrap();
    let started = tokio::time::Instant::now();
    assert_eq!(text(client.send(expecting(body)).await.unwrap()).await, "ok");
    assert!(started.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn a_body_that_was_not_asked_for_yet_can_be_sent_again() {
    let (address, _) = backend(|mut peer| async move {
        // The first connection that serves ends when the second request comes.
        for served in 0..2 {
            if peer.head().await.is_empty() || peer.index == CHECKS && served == 1 {
                return;
            }
            peer.send("HTTP/1.1 100 Continue\r\n\r\n").await;
            assert_eq!(peer.body(5).await, b"hello");
            peer.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
        }
    })
    .await;
    let cluster = cluster_of(address).await;
    let client = Client::new(&cluster);
    for _ in 0..2 {
        let (send, body) = frames(Some(5));
        send.send(data("hello")).unwrap();
        assert_eq!(text(client.send(expecting(body)).await.unwrap()).await, "ok");
    }
    assert_eq!(cluster.counts().replayed, 1);
}
