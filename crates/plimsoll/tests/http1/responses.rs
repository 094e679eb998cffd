//! Answers of backends: whole, in halves and against the rules.

use super::*;

#[tokio::test]
async fn each_way_to_delimit_a_response_is_read_and_the_connection_serves_on() {
    let (address, connections) = answering(&[
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n",
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\ncontent-length: 7\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nx-sum: 1\r\n\r\n",
        "HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 3\r\n\r\nold",
        "HTTP/1.1 200 OK\r\n\r\nuntil the end",
    ])
    .await;
    let client = Client::new(&cluster_of(address).await);
    let mut head = get("/");
    *head.method_mut() = Method::HEAD;
    let response = client.send(head).await.unwrap();
    assert_eq!(response.headers()["content-length"], "5");
    assert!(response.body().is_end_stream());
    for want in ["", "", "", "hello"] {
        assert_eq!(text(client.send(get("/")).await.unwrap()).await, want);
    }
    let whole = client.send(get("/")).await.unwrap().into_body().collect().await.unwrap();
    assert_eq!(whole.trailers().unwrap()["x-sum"], "1");
    assert_eq!(whole.to_bytes(), "hello");
    for want in ["old", "until the end"] {
        assert_eq!(text(client.send(get("/")).await.unwrap()).await, want);
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1 + CHECKS);
    assert_eq!(active(client.cluster()), 0);
}

#[tokio::test]
async fn a_response_that_dribbles_in_is_put_together() {
    let (address, _) = backend(|mut peer| async move {
        if peer.head().await.is_empty() {
            return;
        }
        peer.stream.set_nodelay(true).unwrap();
        for byte in b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" {
            peer.send([*byte]).await;
            tokio::task::yield_now().await;
        }
        peer.head().await;
    })
    .await;
    let client = Client::new(&cluster_of(address).await);
    assert_eq!(text(client.send(get("/")).await.unwrap()).await, "abc");
}

#[tokio::test]
async fn a_connection_is_not_used_again_after_close_or_bytes_that_belong_to_nothing() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok and more",
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
    ] {
        let (address, connections) = backend(move |mut peer| async move {
            while !peer.head().await.is_empty() {
                peer.send(answer).await;
            }
        })
        .await;
        let cluster = cluster_of(address).await;
        let client = Client::new(&cluster);
        for sent in 1..=3 {
            assert_eq!(text(client.send(get("/")).await.unwrap()).await, "ok");
            until(|| view_of(&cluster, address).counts.connections_closed == sent).await;
        }
        assert!(connections.load(Ordering::SeqCst) >= 3);
    }
}

#[tokio::test]
async fn what_an_idle_connection_says_makes_it_useless() {
    let (send, receive) = mpsc::unbounded_channel::<()>();
    let receive = Arc::new(tokio::sync::Mutex::new(receive));
    let (address, _) = backend(move |mut peer| {
        let receive = receive.clone();
        async move {
            while !peer.head().await.is_empty() {
                peer.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
                if peer.index <= CHECKS && receive.lock().await.recv().await.is_some() {
                    peer.send("HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\n\r\n").await;
                }
            }
        }
    })
    .await;
    let cluster = cluster_of(address).await;
    let client = Client::new(&cluster);
    assert_eq!(text(client.send(get("/")).await.unwrap()).await, "ok");
    send.send(()).unwrap();
    // Noticed without a request. It was the last connection, so another one shows that the backend
    // is there, and is closed at once.
    until(|| view_of(&cluster, address).counts.connections_opened == 2).await;
    until(|| view_of(&cluster, address).counts.connections_closed == 2).await;
    drop(send);
    for _ in 0..3 {
        assert_eq!(text(client.send(get("/")).await.unwrap()).await, "ok");
    }
}

#[tokio::test]
async fn interim_responses_are_told_of_and_are_bounded() {
    let (address, _) = backend(|mut peer| async move {
        while !peer.head().await.is_empty() {
            peer.send("HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </s.css>\r\n\r\n").await;
            peer.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
            peer.head().await;
            for _ in 0..50 {
                peer.send("HTTP/1.1 103 Early Hints\r\n\r\n").await;
            }
        }
    })
    .await;
    let cluster = cluster_of(address).await;
    let client = Client::new(&cluster);
    let (send, mut told) = mpsc::unbounded_channel();
    let options =
        RequestOptions::default().with_informational(Informational::new(move |response| send.send(response).unwrap()));
    assert_eq!(text(client.send_with(get("/"), options).await.unwrap()).await, "ok");
    assert_eq!(told.recv().await.unwrap().status(), StatusCode::PROCESSING);
    assert_eq!(told.recv().await.unwrap().headers()["link"], "</s.css>");
    let error = client.send(get("/")).await.unwrap_err();
    assert!(matches!(error, Error::BadResponse { .. }), "{error}");
    assert_eq!(active(&cluster), 0);
}

#[tokio::test]
async fn what_is_no_response_and_what_is_half_of_one_are_told_apart() {
    for (answer, is_bad) in [
        ("SSH-2.0-OpenSSH_9.6\r\n\r\n", true),
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n", true),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n", true),
        ("HTTP/1.1 200 OK\r\ncontent-le", false),
        ("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf", false),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhel", false),
        ("", false),
    ] {
        let (address, _) = backend(move |mut peer| async move {
            if !peer.head().await.is_empty() {
                peer.send(answer).await;
            }
        })
        .await;
        let cluster = cluster_of(address).await;
        let error = match Client::new(&cluster).send(get("/")).await {
            Ok(response) => response.into_body().collect().await.unwrap_err(),
            Err(error) => error,
        };
        assert_eq!(matches!(error, Error::BadResponse { .. }), is_bad, "{answer:?}: {error}");
        assert_eq!(matches!(error, Error::Closed { .. }), !is_bad, "{answer:?}: {error}");
        let counts = view_of(&cluster, address).counts;
        assert_eq!((counts.connections_open(), active(&cluster)), (0, 0));
    }
}
