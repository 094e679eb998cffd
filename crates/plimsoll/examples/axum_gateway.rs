//! A service that asks another one, with axum: the server's layer in front, the client behind.
//! `cargo run -p plimsoll --example axum_gateway 127.0.0.1:8080 127.0.0.1:9001 127.0.0.1:9002`
//!
//! The criticality of a request, its customer and its remaining time go on to the next service by
//! themselves, because the client is called from a handler. If the next service sheds or fails, its
//! reason goes back to the caller, so that the caller knows whether to retry. With a bare 502 each
//! layer would retry. Problems of the connection to the next service stay here.

use axum::body::Body;
use axum::extract::State;
use axum::http::uri::PathAndQuery;
use http::{Request, Response};
use plimsoll::client::{Client, Cluster};
use plimsoll::discover;
use plimsoll::hop;
use plimsoll::server::{Lifecycle, ServeConfig, ServerLayer, serve};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let listen = args.next().ok_or("usage: axum_gateway LISTEN BACKEND...")?;
    let backends: Vec<String> = args.collect();
    let cluster = Cluster::builder("next").endpoints(discover::resolve(&backends).await?).spawn()?;

    let app = axum::Router::new().fallback(ask).with_state(Client::new(&cluster));
    let lifecycle = Lifecycle::new();
    lifecycle.on_sigterm()?;
    // Its clients are strangers: their claims are capped before they go on.
    let layer = ServerLayer::builder(lifecycle.clone()).readiness_path("/readyz").build();
    let listener = tokio::net::TcpListener::bind(&listen).await?;
    lifecycle.ready();
    serve([listener], app, layer, ServeConfig::default()).await;
    Ok(())
}

async fn ask(State(next): State<Client>, request: Request<Body>) -> Response<Body> {
    let path = request.uri().path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    // A request of its own, with this body: fields of the caller stay here.
    let (head, body) = request.into_parts();
    let mut onward = Request::new(plimsoll::Body::new(body));
    (*onward.method_mut(), *onward.uri_mut()) = (head.method, path.into());
    match next.send(onward).await {
        Ok(mut response) => {
            hop::strip_response(response.headers_mut());
            response.map(Body::new)
        }
        Err(error) => error.to_response(false).map(Body::from),
    }
}
