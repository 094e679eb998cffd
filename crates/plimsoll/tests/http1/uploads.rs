//! Requests with bodies that are still on their way when something happens.

use super::*;

#[tokio::test]
async fn an_early_answer_ends_the_upload_and_the_connection() {
    let (address, _) = backend(|mut peer| async move {
        if peer.head().await.is_empty() {
            return;
        }
        peer.send("HTTP/1.1 413 Content Too Large\r\ncontent-length: 3\r\n\r\nbig").await;
        // It reads no further, and leaves the connection open: a wait for it would never end.
        std::future::pending().await
    })
    .await;
    let cluster = cluster_of(address).await;
    let client = Client::new(&cluster);
    let (send, body) = frames(Some(100_000_000));
    send.send(data(vec![7; 20_000_000])).unwrap();
    let response = client.send(post(body)).await.unwrap();
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(text(response).await, "big");
    until(|| send.is_closed()).await;
    let counts = view_of(&cluster, address).counts;
    assert_eq!((counts.connections_closed, active(&cluster)), (1, 0));
}

#[tokio::test]
async fn an_early_answer_is_delivered_though_the_backend_closes_on_the_upload() {
    let (address, _) = backend(|mut peer| async move {
        if peer.head().await.is_empty() {
            return;
        }
        peer.send("HTTP/1.1 403 Forbidden\r\nconnection: close\r\ncontent-length: 2\r\n\r\nno").await;
    })
    .await;
    let client = Client::new(&cluster_of(address).await);
    let (send, body) = frames(Some(100_000_000));
    send.send(data(vec![7; 100_000_000])).unwrap();
    let response = client.send(post(body)).await.unwrap();
    assert_eq!(response.status(), StatusCode::FORBIDDEN);
    assert_eq!(text(response).await, "no");
}

#[tokio::test]
async fn an_upload_goes_on_beside_a_response_that_nobody_reads() {
    const LEN: usize = 30_000_000;
    let (arrived, mut has_arrived) = mpsc::unbounded_channel();
    let (address, connections) = backend(move |mut peer| {
        let arrived = arrived.clone();
        async move {
            while !peer.head().await.is_empty() {
                peer.send("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n").await;
                arrived.send(peer.body(LEN).await.len()).unwrap();
                peer.send("hello").await;
            }
        }
    })
    .await;
    let client = Client::new(&cluster_of(address).await);
    for _ in 0..2 {
        let (send, body) = frames(Some(LEN as u64));
        let response = client.send(post(body)).await.unwrap();
        for _ in 0..10 {
            send.send(data(vec![7; LEN / 10])).unwrap();
        }
        assert_eq!(has_arrived.recv().await, Some(LEN));
        assert_eq!(text(response).await, "hello");
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1 + CHECKS, "whole in both directions, it serves on");
}

/// A backend that answers before it has the request, and then waits.
async fn hasty() -> SocketAddr {
    let script = |mut peer: Peer| async move {
        if !peer.head().await.is_empty() {
            peer.send("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n").await;
            while peer.more().await {
                if peer.buffer.ends_with(b"end") {
                    peer.send("hello").await;
                }
            }
        }
    };
    backend(script).await.0
}

#[tokio::test]
async fn an_upload_stops_with_the_response_that_is_dropped_or_over() {
    let cluster = cluster_of(hasty().await).await;
    let client = Client::new(&cluster);
    let (send, body) = frames(Some(1000));
    drop(client.send(post(body)).await.unwrap());
    until(|| send.is_closed()).await;
    assert_eq!(active(&cluster), 0);

    let (send, body) = frames(Some(1000));
    let response = client.send(post(body)).await.unwrap();
    send.send(data("not all, and the end")).unwrap();
    assert_eq!(text(response).await, "hello");
    until(|| send.is_closed()).await;
    until(|| cluster.backends()[0].counts.connections_open() == 0).await;
    assert_eq!(active(&cluster), 0);
}

#[tokio::test]
async fn a_body_that_fails_beside_its_response_fails_the_response() {
    let cluster = cluster_of(hasty().await).await;
    let client = Client::new(&cluster);
    let (send, body) = frames(None);
    let mut response = client.send(post(body)).await.unwrap();
    let mut frame = std::pin::pin!(response.body_mut().frame());
    assert!(is_pending(frame.as_mut()).await);
    send.send(Err("gone")).unwrap();
    let error = frame.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::RequestBody(_)), "{error}");
    assert_eq!(cluster.backends()[0].counts.cancelled, 1);
}

#[tokio::test]
async fn a_body_that_fails_or_is_not_as_long_as_it_says_ends_the_request() {
    let (address, _) = backend(|mut peer| async move { while peer.more().await {} }).await;
    let cluster = cluster_of(address).await;
    let client = Client::new(&cluster);
    let cases: [(&[Result<&'static str, &'static str>], &str); 3] = [
        (&[Ok("some"), Err("gone")], "gone"),
        (&[Ok("some")], "it is shorter than its announced length"),
        (&[Ok("some"), Ok("more than that")], "it is longer than its announced length"),
    ];
    for (parts, want) in cases {
        let (send, body) = frames(Some(10));
        for part in parts {
            send.send(part.map(|part| Frame::data(part.into()))).unwrap();
        }
        drop(send);
        let error = client.send(post(body)).await.unwrap_err();
        assert!(matches!(&error, Error::RequestBody(cause) if cause.to_string() == want), "{error}");
    }
    let counts = view_of(&cluster, address).counts;
    assert_eq!((counts.cancelled, counts.connections_closed), (3, 3));
}
