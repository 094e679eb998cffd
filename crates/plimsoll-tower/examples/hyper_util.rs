//! Retries and throttling around the client of hyper-util, and with the same lines around any other
//! service of `http` requests. `cargo run -p plimsoll-tower --example hyper_util`

mod servers;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use plimsoll_tower::{BoxError, Http, Rejected, RetryLayer, ThrottleLayer};
use tower::{Service, ServiceBuilder, ServiceExt as _};

#[tokio::main]
pub(crate) async fn main() -> Result<(), BoxError> {
    let server = servers::http().await?;

    let mut client = ServiceBuilder::new()
        .layer(RetryLayer::new(Http::default()))
        .layer(ThrottleLayer::new(Http::default()))
        .service(Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>());

    // The first answer is a rejection: the layer retries.
    let request = Request::get(format!("http://{server}/")).body(Full::default())?;
    assert_eq!(client.ready().await?.call(request).await?.status(), StatusCode::OK);

    // All answers are rejections: most requests are not sent.
    let mut throttled = 0;
    for _ in 0..100 {
        let request = Request::get(format!("http://{server}/busy")).body(Full::default())?;
        if let Err(error) = client.ready().await?.call(request).await {
            assert!(Rejected::find(&*error).is_some());
            throttled += 1;
        }
    }
    println!("{throttled} of 100 requests were not sent");
    assert!(throttled > 30);
    Ok(())
}
