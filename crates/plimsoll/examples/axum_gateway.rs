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
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use plimsoll::client::{Client, Cluster, ClusterConfig};
use plimsoll::discover;
use plimsoll::hop;
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
    // Its clients are strangers: their claims are capped before they go on.
    let layer = ServerLayer::builder(lifecycle.clone()).readiness_path("/readyz").build();
    let listener = tokio::net::TcpListener::bind(&listen).await?;
    lifecycle.ready();
    serve([listener], app, layer, ServeConfig::default()).await;
    Ok(())
}

async fn ask(State(next): State<Next>, request: Request<Body>) -> Response<Body> {
    let path = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
    let Ok(request) = Request::get(path).body(Empty::new()) else {
        let mut response = Response::new(Body::from("no path to ask for"));
        *response.status_mut() = StatusCode::BAD_REQUEST;
        return response;
    };
    match next.send(request).await {
        Ok(mut response) => {
            hop::strip_response(response.headers_mut());
            response.map(Body::new)
        }
        Err(error) => error.to_response(false).map(Body::from),
    }
}
