//! A gRPC service that protects itself, with tonic: `cargo run -p plimsoll --example tonic_server`
//!
//! A generated service takes the place of `greeter`: `GreeterServer::new(MyGreeter)`. Messages are those of
//! `google.protobuf.StringValue` here, so that no `.proto` is needed. What is turned away is told so as gRPC has it: UNAVAILABLE with
//! pushback, or RESOURCE_EXHAUSTED for customers above their limits.

use std::convert::Infallible;

use futures_util::future::BoxFuture;
use http::{HeaderName, Request};
use hyper::body::Incoming;
use plimsoll::server::{Lifecycle, Quota, ServeConfig, ServerLayer, Trust, current, serve};
use tonic::server::{Grpc, UnaryService};
use tonic::{Response, Status};
use tonic_prost::ProstCodec;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let greeter = tower::service_fn(|request: Request<Incoming>| async {
        Ok::<_, Infallible>(Grpc::new(ProstCodec::<String, String>::default()).unary(Hello, request).await)
    });

    let lifecycle = Lifecycle::new();
    lifecycle.on_sigterm()?;
    let crawler = Quota::hard(0.1);
    let layer = ServerLayer::builder(lifecycle.clone())
        // All callers are services of our own, or a proxy that caps strangers' claims.
        .trust(Trust::Full)
        .customer_header(HeaderName::from_static("x-customer"))
        .quota_by(move |customer| if customer.name() == b"crawler" { crawler } else { None })
        .build();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:50051").await?;
    lifecycle.ready();
    serve([listener], greeter, layer.clone(), ServeConfig::default()).await;
    println!("{:#?}", layer.throttling());
    Ok(())
}

struct Hello;

impl UnaryService<String> for Hello {
    type Response = String;
    type Future = BoxFuture<'static, Result<Response<String>, Status>>;

    fn call(&mut self, request: tonic::Request<String>) -> Self::Future {
        Box::pin(async move {
            let criticality = current().map(|request| request.criticality).unwrap_or_default();
            Ok(Response::new(format!("hello {}, as a {criticality} request", request.into_inner())))
        })
    }
}
