//! The bytes that backends receive.

use super::*;

/// A backend that records the bytes of each request, and answers it.
async fn recording() -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let (send, receive) = mpsc::unbounded_channel();
    let (address, _) = backend(move |mut peer| {
        let send = send.clone();
        async move {
            loop {
                let head = peer.head().await;
                if head.is_empty() {
                    return;
                }
                let mut whole = head.clone();
                let length = head.split("content-length: ").nth(1).map(|rest| rest.split("\r\n").next().unwrap());
                if let Some(length) = length {
                    whole += std::str::from_utf8(&peer.body(length.parse().unwrap()).await).unwrap();
                } else if head.contains("transfer-encoding: chunked") {
                    while !(peer.buffer.ends_with(b"\r\n\r\n") && peer.buffer.windows(3).any(|w| w == b"0\r\n")) {
                        assert!(peer.more().await, "cut off: {whole}");
                    }
                    whole += std::str::from_utf8(&std::mem::take(&mut peer.buffer)).unwrap();
                }
                send.send(whole).unwrap();
                peer.send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
            }
        }
    })
    .await;
    (address, receive)
}

#[tokio::test]
async fn a_body_is_delimited_by_what_is_known_of_it() {
    let (address, mut seen) = recording().await;
    let client = Client::new(&cluster_of(address).await);
    let mut sent = async |request: Request<Frames>| {
        assert_eq!(client.send(request).await.unwrap().status(), StatusCode::OK);
        seen.recv().await.unwrap()
    };
    let head = "POST / HTTP/1.1\r\nhost: h\r\n";

    // Its own word.
    let (send, body) = frames(Some(5));
    send.send(data("he")).unwrap();
    send.send(data("llo")).unwrap();
    assert_eq!(sent(post(body)).await, format!("{head}content-length: 5\r\n\r\nhello"));

    // That of the field.
    let (send, body) = frames(None);
    send.send(data("hello")).unwrap();
    drop(send);
    let mut request = post(body);
    request.headers_mut().insert("content-length", "5".parse().unwrap());
    assert_eq!(sent(request).await, format!("{head}content-length: 5\r\n\r\nhello"));

    // Nobody's: chunks, with trailers.
    let (send, body) = frames(None);
    send.send(data("hello")).unwrap();
    send.send(data("")).unwrap();
    send.send(data(" there, you")).unwrap();
    send.send(Ok(Frame::trailers(HeaderMap::from_iter([("x-sum".parse().unwrap(), "1".parse().unwrap())])))).unwrap();
    let want =
        format!("{head}transfer-encoding: chunked\r\n\r\n5\r\nhello\r\nb\r\n there, you\r\n0\r\nx-sum: 1\r\n\r\n");
    assert_eq!(sent(post(body)).await, want);

    // It turns out to be empty.
    let (send, body) = frames(None);
    drop(send);
    assert_eq!(sent(post(body)).await, format!("{head}content-length: 0\r\n\r\n"));
}

#[tokio::test]
async fn a_body_that_is_there_at_once_has_a_length_and_an_empty_one_is_never_longer_than_it_is() {
    let (address, mut seen) = recording().await;
    let cluster = cluster_of(address).await;
    let client = Client::<Full<Bytes>>::new(&cluster);
    let request = |method: Method, body: &'static str| {
        Request::builder().method(method).uri("http://h/p?q").body(Full::from(body)).unwrap()
    };
    client.send(request(Method::PUT, "hello")).await.unwrap();
    assert_eq!(seen.recv().await.unwrap(), "PUT /p?q HTTP/1.1\r\nhost: h\r\ncontent-length: 5\r\n\r\nhello");
    client.send(request(Method::GET, "")).await.unwrap();
    assert_eq!(seen.recv().await.unwrap(), "GET /p?q HTTP/1.1\r\nhost: h\r\n\r\n");
    // A field must not promise bytes that do not come.
    let mut lying = request(Method::DELETE, "");
    lying.headers_mut().insert("content-length", "44".parse().unwrap());
    client.send(lying).await.unwrap();
    assert_eq!(seen.recv().await.unwrap(), "DELETE /p?q HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n\r\n");
    let mut closing = request(Method::GET, "");
    closing.headers_mut().insert("connection", "close".parse().unwrap());
    client.send(closing).await.unwrap();
    assert_eq!(seen.recv().await.unwrap(), "GET /p?q HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n");
    assert_eq!(view_of(&cluster, address).counts.connections_closed, 1);
}

#[tokio::test]
async fn where_backends_are_told_whose_a_connection_is_it_carries_one_request() {
    let (address, mut seen) = recording().await;
    let mut config = plain_config();
    config.proxy_protocol = Some(ProxyProtocol::V1);
    let cluster = Cluster::new("test", config, [address]);
    tokio::spawn(cluster.run());
    let client = Client::new(&cluster);
    for last in [7, 8] {
        let mut request = Request::get("/").header("host", "h").body(Full::<Bytes>::default()).unwrap();
        let destination = "198.51.100.1:80".parse().unwrap();
        let source = SocketAddr::from(([192, 0, 2, last], 5000));
        request.extensions_mut().insert(ClientAddress { source, destination });
        assert_eq!(text(client.send(request).await.unwrap()).await, "");
        let want = format!(
            "PROXY TCP4 192.0.2.{last} 198.51.100.1 5000 80\r\nGET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n"
        );
        assert_eq!(seen.recv().await.unwrap(), want);
    }
    let counts = view_of(&cluster, address).counts;
    assert_eq!((counts.connections_opened, counts.connections_closed), (2, 2));
}
