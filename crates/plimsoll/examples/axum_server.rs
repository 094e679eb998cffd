//! A service that protects itself, with axum: `cargo run -p plimsoll --example axum_server`
//!
//! Ask for more than it can do, and see who is turned away:
//! `plimsoll load http://127.0.0.1:8081/report --rate 2000 --criticality critical=1,sheddable=9`

use std::time::{Duration, Instant};

use axum::routing::get;
use http::HeaderName;
use plimsoll::server::{
    Lifecycle, Pressure, ServeConfig, ServerLayer, Trust, current, pressure, serve, spawn_blocking,
};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let app = axum::Router::new().route("/", get(|| async { "hello" })).route("/report", get(report));

    let lifecycle = Lifecycle::new();
    lifecycle.on_sigterm()?;
    let layer = ServerLayer::builder(lifecycle.clone())
        // All callers are services of our own, or a proxy that caps strangers' claims.
        .trust(Trust::Full)
        .readiness_path("/readyz")
        .customer_header(HeaderName::from_static("x-customer"))
        .build();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8081").await?;
    lifecycle.ready();
    serve([listener], app, layer.clone(), ServeConfig::default()).await;
    println!("{:#?}", layer.admission());
    Ok(())
}

/// Costs some milliseconds of CPU, less when there is little left.
async fn report() -> String {
    let effort = if pressure() == Pressure::None { 5 } else { 1 };
    // What the closure uses is charged to this request, as if it ran here.
    let pages = spawn_blocking(move || work(Duration::from_millis(effort))).await.unwrap_or_default();
    let criticality = current().map(|request| request.criticality).unwrap_or_default();
    format!("{pages} pages for a {criticality} request\n")
}

fn work(time: Duration) -> u64 {
    let begun = Instant::now();
    (0..).take_while(|_| begun.elapsed() < time).count() as u64 / 1_000
}
