//! A service that asks another one, with axum: the server's layer in front, the client behind.
//! `cargo run -p plimsoll --example axum_gateway 127.0.0.1:8080 127.0.0.1:9001 127.0.0.1:9002`
//!
//! The criticality of a request, its customer and the time that is left go on to the next service by themselves, as the client is
//! called from a handler. What the next service turns away goes back with its reason, so that whoever asked knows whether
//! to ask again.

use axum::body::Body;
use axum::extract::State;
use axum::http::uri::PathAndQuery;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use plimsoll::client::{Client, Cluster, ClusterConfig, Error};
use plimsoll::discover;
use plimsoll::server::{Lifecycle, ServeConfig, ServerLayer, serve};

type Next = Client<Empty<Bytes>>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let listen = args.next().ok_or("usage: axum_gateway LISTEN BACKEND...")?;
    let backends: Vec<String> = args.collect();
    let cluster = Cluster::new("next", ClusterConfig::default(), discover::resolve(&backends).await?);
    tokio::spawn(cluster.run());

    let app = axum::Router::new().fallback(ask).with_state(Client::new(&cluster));
    let lifecycle = Lifecycle::new();
    lifecycle.on_sigterm()?;
    let layer = ServerLayer::builder(lifecycle.clone()).readiness_path("/readyz").build();
    let listener = tokio::net::TcpListener::bind(&listen).await?;
    lifecycle.ready();
    serve([listener], app, layer, ServeConfig::default()).await;
    Ok(())
}

async fn ask(State(next): State<Next>, request: Request<Body>) -> Response<Body> {
    let path = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
    let Ok(request) = Request::get(path).body(Empty::new()) else {
        return said(StatusCode::BAD_REQUEST, "no path to ask for");
    };
    match next.send(request).await {
        Ok(response) => response.map(Body::new),
        Err(error) => refused(&error),
    }
}

fn refused(error: &Error) -> Response<Body> {
    match error.shed_reason() {
        Some(reason) => reason.head(false, None).map(|()| Body::from(reason.row().message)),
        None if matches!(error, Error::Timeout { .. }) => said(StatusCode::GATEWAY_TIMEOUT, "no answer in time"),
        None => said(StatusCode::BAD_GATEWAY, "the next service did not answer"),
    }
}

fn said(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response
}
