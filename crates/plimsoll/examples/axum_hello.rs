//! The smallest axum service that protects itself and ends without failing a request.
//! `cargo run -p plimsoll --example axum_hello`

use axum::{Router, routing::get};
use plimsoll::server::{DrainConfig, Lifecycle, ServerLayer};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let lifecycle = Lifecycle::serving(); // after a warm-up: Lifecycle::new(), then ready()
    lifecycle.on_sigterm()?;
    let layer = ServerLayer::builder(lifecycle.clone()).readiness_path("/readyz").build();
    let app = Router::new().route("/", get(|| async { "hello" })).layer(layer);

    let listener = tokio::net::TcpListener::bind("127.0.0.1:8081").await?;
    let shutdown = lifecycle.shutdown(DrainConfig::default()); // completes after the drain
    axum::serve(listener, app).with_graceful_shutdown(shutdown).await
}
