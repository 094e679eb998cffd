//! A service that protects itself, with hyper and nothing else:
//! `cargo run -p plimsoll --example hyper_server`

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use plimsoll::Criticality;
use plimsoll::server::{Classifier, Lifecycle, ServeConfig, ServerLayer, Trust, serve};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let lifecycle = Lifecycle::new();
    lifecycle.on_sigterm()?;
    // Requests that claim nothing are sheddable. Callers may raise theirs up to critical.
    let classifier = Classifier { trust: Trust::UpTo(Criticality::Critical), otherwise: Criticality::Sheddable };
    let layer = ServerLayer::builder(lifecycle.clone()).criticality(classifier).build();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8082").await?;
    lifecycle.ready();
    serve([listener], tower::service_fn(hello), layer, ServeConfig::default()).await;
    Ok(())
}

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("hello\n")))
}
