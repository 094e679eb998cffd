//! A gRPC service that protects itself, with tonic's own server.
//! `cargo run -p plimsoll --example tonic_server`
//!
//! A generated service takes the place of `Greeter`: `GreeterServer::new(MyGreeter)`. Its messages
//! are `google.protobuf.StringValue` here, so that no `.proto` is needed. Clients see a shed
//! request as gRPC defines it: UNAVAILABLE with pushback, or RESOURCE_EXHAUSTED above a customer's
//! quota.

use std::convert::Infallible;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::HeaderName;
use plimsoll::server::{DrainConfig, Lifecycle, Quota, ServerLayer, Trust, current};
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::transport::Server;
use tonic::{Response, Status};
use tonic_prost::ProstCodec;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:50051".to_owned());
    let lifecycle = Lifecycle::serving();
    lifecycle.on_sigterm()?;
    let crawler = Quota::hard(0.1)?;
    let layer = ServerLayer::builder(lifecycle.clone())
        // All callers are services of our own, or a proxy that caps strangers' claims.
        .trust(Trust::Full)
        .customer_header(HeaderName::from_static("x-customer"))
        .quota_by(move |customer| (customer.name() == b"crawler").then_some(crawler))
        .build();

    let listener = tonic::transport::server::TcpIncoming::bind(address.parse()?)?;
    println!("listening on {}", listener.local_addr()?);
    let drain = DrainConfig::default();
    let server = Server::builder().layer(layer.clone()).add_service(Greeter);
    tokio::select! {
        ended = server.serve_with_incoming_shutdown(listener, lifecycle.shutdown(drain)) => ended?,
        // tonic waits for every stream. This bounds the wait.
        () = lifecycle.hard_stop(drain) => {}
    }
    println!("{:#?}", layer.shedding_report());
    Ok(())
}

/// A service of one call, as `tonic-prost-build` would generate it.
#[derive(Clone)]
struct Greeter;

impl NamedService for Greeter {
    const NAME: &'static str = "example.Greeter";
}

impl tower::Service<http::Request<Body>> for Greeter {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async { Ok(Grpc::new(ProstCodec::<String, String>::default()).unary(Hello, request).await) })
    }
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
