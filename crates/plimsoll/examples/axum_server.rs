//! An axum service that protects itself, with its customers and its work on other threads.
//! `cargo run -p plimsoll --example axum_server`
//!
//! Send more than it can serve, and see which requests are shed:
//! `plimsoll load http://127.0.0.1:8081/report --rate 2000 --criticality critical=1,sheddable=9`

use std::time::{Duration, Instant};

use axum::routing::{get, post};
use http::HeaderName;
use plimsoll::server::{DrainConfig, Lifecycle, Pressure, ServerLayer, Trust, current, pressure, spawn_blocking};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8081".to_owned());
    let lifecycle = Lifecycle::serving();
    lifecycle.on_sigterm()?;
    let layer = ServerLayer::builder(lifecycle.clone())
        // All callers are services of our own, or a proxy that caps strangers' claims.
        .trust(Trust::Full)
        .readiness_path("/readyz")
        .customer_header(HeaderName::from_static("x-customer"))
        .build();
    let app = axum::Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/report", get(report))
        .route("/echo", post(|body: String| async { body }))
        .layer(layer.clone());

    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    let drain = DrainConfig::default();
    tokio::select! {
        ended = axum::serve(listener, app).with_graceful_shutdown(lifecycle.shutdown(drain)) => ended?,
        // axum waits for every connection, a stream without end included. This bounds the wait.
        () = lifecycle.hard_stop(drain) => {}
    }
    println!("{:#?}", layer.admission());
    Ok(())
}

/// Costs some milliseconds of CPU, and fewer when the server is nearly overloaded.
async fn report() -> String {
    let effort = if pressure() == Pressure::None { 5 } else { 1 };
    // The CPU time of the closure is charged to this request, as if it ran here.
    let pages = spawn_blocking(move || work(Duration::from_millis(effort))).await.unwrap_or_default();
    let criticality = current().map(|request| request.criticality).unwrap_or_default();
    format!("{pages} pages for a {criticality} request\n")
}

fn work(time: Duration) -> u64 {
    let begun = Instant::now();
    (0..).take_while(|_| begun.elapsed() < time).count() as u64 / 1_000
}
