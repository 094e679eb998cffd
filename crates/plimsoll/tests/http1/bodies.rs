//! Bodies of any size, both ways.

use super::*;

fn large(len: usize) -> Bytes {
    (0..len).map(|at| (at % 251) as u8).collect::<Vec<_>>().into()
}

#[tokio::test]
async fn large_bodies_pass_both_ways_whole() {
    const LEN: usize = 5_000_000;
    let (address, connections) = backend(|mut peer| async move {
        while !peer.head().await.is_empty() {
            let body = peer.body(LEN).await;
            peer.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {LEN}\r\n\r\n")).await;
            peer.send(body).await;
        }
    })
    .await;
    let client = Client::<Full<Bytes>>::new(&cluster_of(address).await);
    for _ in 0..3 {
        let response = client.send(Request::post("/").body(Full::from(large(LEN))).unwrap()).await.unwrap();
        assert!(response.into_body().collect().await.unwrap().to_bytes() == large(LEN));
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1 + CHECKS);
}

#[tokio::test]
async fn chunks_of_any_size_arrive_as_they_were() {
    let sizes = [1, 15, 16, 4095, 4096, 4097, 20_000, 1_000_000, 3];
    let (address, _) = backend(move |mut peer| async move {
        if peer.head().await.is_empty() {
            return;
        }
        let mut whole = Vec::new();
        loop {
            while !peer.buffer.windows(2).any(|window| window == b"\r\n") {
                assert!(peer.more().await);
            }
            let line = peer.buffer.iter().position(|byte| *byte == b'\r').unwrap();
            let size = usize::from_str_radix(std::str::from_utf8(&peer.buffer[..line]).unwrap(), 16).unwrap();
            peer.body(line + 2).await;
            let chunk = peer.body(size + 2).await;
            assert!(chunk.ends_with(b"\r\n"));
            whole.extend_from_slice(&chunk[..size]);
            if size == 0 {
                break;
            }
        }
        assert!(whole == sizes.iter().flat_map(|size| large(*size)).collect::<Vec<_>>());
        peer.send("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    })
    .await;
    let client = Client::new(&cluster_of(address).await);
    let (send, body) = frames(None);
    for size in sizes {
        send.send(data(large(size))).unwrap();
    }
    drop(send);
    assert_eq!(client.send(post(body)).await.unwrap().status(), StatusCode::OK);
}
