//! Servers for the examples, on free ports of this machine.
#![allow(dead_code, reason = "an example uses one of them")]

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use http::{Request, Response};
use tokio::net::TcpListener;
use tonic::Status;
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic_prost::ProstCodec;

/// A server of HTTP. It sheds one request in three at `/`, and all at `/busy`.
pub(crate) async fn http() -> io::Result<SocketAddr> {
    let requests = Arc::new(AtomicU32::new(0));
    let shed = || (StatusCode::SERVICE_UNAVAILABLE, [("x-plimsoll-shed", "reason=overloaded, retry=elsewhere")], "");
    let root = get(move || async move {
        match requests.fetch_add(1, Ordering::Relaxed) % 3 {
            0 => shed(),
            _ => (StatusCode::OK, [("x-plimsoll-shed", "")], "hello"),
        }
    });
    let app = Router::new().route("/", root).route("/busy", get(move || async move { shed() }));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(address)
}

/// A gRPC server. It sheds all calls with the name `busy`, and every other one with `unlucky`.
pub(crate) async fn grpc() -> Result<SocketAddr, Box<dyn std::error::Error>> {
    let incoming = tonic::transport::server::TcpIncoming::bind("127.0.0.1:0".parse()?)?;
    let address = incoming.local_addr()?;
    tokio::spawn(tonic::transport::Server::builder().add_service(Greeter).serve_with_incoming(incoming));
    Ok(address)
}

/// A service of one call, as `tonic-prost-build` would generate it.
#[derive(Clone)]
struct Greeter;

impl NamedService for Greeter {
    const NAME: &'static str = "example.Greeter";
}

impl tower::Service<Request<Body>> for Greeter {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(async { Ok(Grpc::new(ProstCodec::<String, String>::default()).unary(Hello, request).await) })
    }
}

struct Hello;

impl UnaryService<String> for Hello {
    type Response = String;
    type Future = std::future::Ready<Result<tonic::Response<String>, Status>>;

    fn call(&mut self, request: tonic::Request<String>) -> Self::Future {
        static UNLUCKY: AtomicU32 = AtomicU32::new(0);
        let name = request.get_ref().as_str();
        let is_shed = name == "busy" || name == "unlucky" && UNLUCKY.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
        std::future::ready(match name {
            _ if is_shed => {
                let mut status = Status::unavailable("overloaded");
                status.metadata_mut().insert("x-plimsoll-shed", "reason=overloaded".parse().expect("valid"));
                Err(status)
            }
            name => Ok(tonic::Response::new(format!("hello {name}"))),
        })
    }
}
