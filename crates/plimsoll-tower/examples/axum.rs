//! Shedding and a concurrency limit in an axum service.
//! `cargo run -p plimsoll-tower --example axum`

use axum::Router;
use axum::error_handling::HandleErrorLayer;
use axum::http::StatusCode;
use axum::routing::get;
use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use plimsoll_core::admit::QueueConfig;
use plimsoll_tower::{BoxError, ConcurrencyLayer, Http, Rejected, ShedLayer};
use tokio::net::TcpListener;
use tower::ServiceBuilder;

/// The answer to a request that a layer rejected. Clients with a layer of this crate understand it.
async fn rejected(error: BoxError) -> Response<String> {
    match Rejected::find(&*error) {
        Some(rejected) => rejected.to_http().map(|()| rejected.to_string()),
        None => Response::builder().status(StatusCode::INTERNAL_SERVER_ERROR).body(error.to_string()).expect("valid"),
    }
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), BoxError> {
    let mut one = QueueConfig::new(1).expect("not zero");
    one.max_waiting = 1;
    let layers = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(rejected))
        .layer(ShedLayer::new(Http::default()))
        .layer(ConcurrencyLayer::new(one, Http::default()));
    let app = Router::new().route("/", get(std::future::pending::<String>)).layer(layers);

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, app).await });

    // One request is in progress, and the next one waits its 250 ms.
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let first = tokio::spawn(client.get(url.parse()?));
    let second = tokio::spawn(client.get(url.parse()?));
    let answer = tokio::select! {
        answer = first => answer,
        answer = second => answer,
    };
    let answer = answer??;
    println!("without a slot: {answer:?}");
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(answer.headers().contains_key("x-plimsoll-shed"));
    Ok(())
}
