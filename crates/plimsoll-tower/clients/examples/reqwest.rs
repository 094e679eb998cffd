//! Retries and throttling around reqwest. `cargo run --example reqwest`

mod servers;

use plimsoll_tower::classify::http_by;
use plimsoll_tower::{BoxError, Rejected, RetryLayer, ThrottleLayer};
use reqwest::{Method, Request, Response, StatusCode};
use tower::{Service, ServiceBuilder, ServiceExt as _};

#[tokio::main]
pub(crate) async fn main() -> Result<(), BoxError> {
    let server = servers::http().await?;

    let classify = http_by(Request::method, |response: &Response| (response.status(), response.headers()));
    let mut client = ServiceBuilder::new()
        .layer(RetryLayer::new(classify).clone_by(Request::try_clone))
        .layer(ThrottleLayer::new(classify))
        .service(reqwest::Client::new());

    // The first answer is a rejection, with a time before a retry: the layer retries.
    let request = Request::new(Method::GET, format!("http://{server}/").parse()?);
    assert_eq!(client.ready().await?.call(request).await?.status(), StatusCode::OK);

    // All answers are rejections: most requests are not sent.
    let mut throttled = 0;
    for _ in 0..100 {
        let request = Request::new(Method::GET, format!("http://{server}/busy").parse()?);
        if let Err(error) = client.ready().await?.call(request).await {
            assert!(Rejected::find(&*error).is_some());
            throttled += 1;
        }
    }
    println!("{throttled} of 100 requests were not sent");
    assert!(throttled > 30);
    Ok(())
}
