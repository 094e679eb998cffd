//! Bodies that are sent again.

use super::*;

#[tokio::test]
async fn a_body_longer_than_what_is_kept_is_sent_once() {
    for (speaks, protocol) in [(Speaks::Http1, Protocol::Http1), (Speaks::Http2(100), Protocol::Http2)] {
        for (limit, is_kept) in [(5, false), (6, true)] {
            let full = Server::start(speaks, |request| {
                Box::pin(async move {
                    request.into_body().collect().await.unwrap();
                    shed(Rejection::Overloaded, false).await
                })
            })
            .await;
            let (well, _) = echo(speaks).await;
            let mut config = rich();
            config.requests.protocol = protocol;
            config.retry.max_body = NonZeroUsize::new(limit);
            let cluster = running(config, &[&full, &well]).await;
            let client = Client::new(&cluster);
            let mut not_served = 0;
            for _ in 0..4 {
                // Of a length that is not told.
                let pieces = ["abc", "def"].map(|piece| Ok::<_, Infallible>(Frame::data(Bytes::from(piece))));
                let body = StreamBody::new(futures_util::stream::iter(pieces));
                let (status, body) = whole(client.send(Request::post("/").body(body).unwrap()).await.unwrap()).await;
                match status {
                    StatusCode::OK => assert_eq!(body, "abcdef"),
                    _ => not_served += 1,
                }
            }
            let turned_away = full.requests();
            assert!(turned_away > 0);
            assert_eq!(not_served, if is_kept { 0 } else { turned_away }, "{protocol:?} {limit}");
            assert_eq!(given_up(&cluster.counts(), NoRetryReason::BodyIsGone), not_served as u64);
        }
    }
}

#[tokio::test]
async fn a_body_that_is_still_being_sent_when_it_is_turned_away_is_sent_again_whole() {
    for (speaks, protocol) in [(Speaks::Http1, Protocol::Http1), (Speaks::Http2(100), Protocol::Http2)] {
        let ((full, _), (well, _)) = (overloaded(speaks, false).await, echo(speaks).await);
        let mut config = rich();
        config.requests.protocol = protocol;
        let cluster = running(config, &[&full, &well]).await;
        let client = Client::new(&cluster);
        for served in 0..3 {
            let (send, body) = by_hand();
            send.send(Bytes::from_static(b"abc")).unwrap();
            let client = client.clone();
            let call = tokio::spawn(async move { client.send(Request::post("/").body(body).unwrap()).await });
            // At once, or after it was shed.
            until(|| well.requests() == served + 1).await;
            send.send(Bytes::from_static(b"def")).unwrap();
            drop(send);
            let response = call.await.unwrap().unwrap();
            assert_eq!(whole(response).await, (StatusCode::OK, Bytes::from_static(b"abcdef")), "{protocol:?}");
        }
        assert!(full.requests() > 0);
    }
}
