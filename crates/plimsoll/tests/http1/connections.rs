//! Connections that come to speak another protocol, or speak within TLS.

use super::*;

#[tokio::test]
async fn a_switch_that_was_asked_for_gives_the_connection_and_keeps_the_request_active() {
    let (address, _) = backend(|mut peer| async move {
        if !peer.head().await.contains("connection: upgrade\r\n") {
            peer.send("HTTP/1.1 101 Switching Protocols\r\nupgrade: echo\r\n\r\n").await;
            return;
        }
        peer.send("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\nwelcome").await;
        while peer.more().await {
            let echo = std::mem::take(&mut peer.buffer);
            peer.send(echo).await;
        }
    })
    .await;
    let cluster = cluster_of(address).await;
    let client = Client::new(&cluster);
    let mut request = get("/");
    request.headers_mut().insert("connection", "Upgrade".parse().unwrap());
    request.headers_mut().insert("upgrade", "echo".parse().unwrap());
    let mut response = client.send(request).await.unwrap();
    assert_eq!(
        (response.status(), &response.headers()["upgrade"]),
        (StatusCode::SWITCHING_PROTOCOLS, &"echo".parse().unwrap())
    );
    assert!(response.body().is_end_stream());
    let mut upgraded = Upgraded::take(&mut response).unwrap();
    assert!(Upgraded::take(&mut response).is_none());
    drop(response);
    let mut bytes = [0; 7];
    upgraded.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"welcome");
    upgraded.write_all(b"and you").await.unwrap();
    upgraded.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"and you");
    assert_eq!(active(&cluster), 1);
    drop(upgraded);
    assert_eq!(active(&cluster), 0);
    assert_eq!(view_of(&cluster, address).counts.connections_closed, 1);

    let error = client.send(get("/")).await.unwrap_err();
    assert!(matches!(error, Error::BadResponse { .. }), "{error}");
}

/// A backend that speaks TLS, and answers each request with `body`.
async fn secure(body: &'static [u8], and_more: &'static str) -> (SocketAddr, Arc<AtomicUsize>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let config = rustls::ServerConfig::builder_with_provider(plimsoll::tls::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    backend(move |peer| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut tls) = acceptor.accept(peer.stream).await else { return };
            let mut head = Vec::new();
            while tls.read_buf(&mut head).await.is_ok_and(|read| read > 0) {
                if head.ends_with(b"\r\n\r\n") {
                    head.clear();
                    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
                    tls.write_all(answer.as_bytes()).await.unwrap();
                    tls.write_all(body).await.unwrap();
                    tls.write_all(and_more.as_bytes()).await.unwrap();
                    tls.flush().await.unwrap();
                }
            }
        }
    })
    .await
}

#[tokio::test]
async fn connections_serve_on_under_tls_unless_there_is_more_than_the_response() {
    static LONG: [u8; 300_000] = [7; 300_000];
    for (body, and_more, serves_on) in [(&b"ok"[..], "", true), (&LONG, "", true), (b"ok", "HTTP/1.1 200 OK", false)] {
        let (address, connections) = secure(body, and_more).await;
        let mut config = plain_config();
        config.pool.min_connections = 0;
        config.tls = Some(TlsConfig::new(TlsTrust::Anybody, None, None));
        let cluster = Cluster::new("test", config, [address]);
        tokio::spawn(cluster.run());
        until(|| view_of(&cluster, address).snapshot.state == State::Healthy).await;
        let checks = connections.load(Ordering::SeqCst);
        let client = Client::new(&cluster);
        for _ in 0..5 {
            let response = client.send(get("/")).await.unwrap();
            assert!(response.into_body().collect().await.unwrap().to_bytes() == body);
        }
        assert_eq!(connections.load(Ordering::SeqCst) - checks == 1, serves_on);
    }
}
