//! Shutdown of a server with a foreign accept loop: axum's, tonic's or one of your own.
//!
//! Such a server takes a future that tells it when to stop. [`Lifecycle::shutdown`] is that future:
//! the server accepts and serves as a lame duck until it completes. The server then waits for its
//! connections without a limit. [`Lifecycle::hard_stop`] is the limit.

use tokio::time::Instant;

use super::{CLOSE_GRACE, DrainConfig, DrainEnd, Lifecycle, Phase};
use crate::clock;
use crate::first::first;

impl Lifecycle {
    /// Completes when the server has served as a lame duck and may close its listener.
    ///
    /// Pass it to axum's `with_graceful_shutdown` or to tonic's `serve_with_shutdown`. It waits for
    /// the phase [`LameDuck`](Phase::LameDuck), and then as [`drained`](Self::drained) does:
    ///
    /// ```no_run
    /// use plimsoll::server::{DrainConfig, Lifecycle, ServerLayer};
    ///
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// let lifecycle = Lifecycle::serving();
    /// lifecycle.on_sigterm()?;
    /// let app = axum::Router::new()
    ///     .route("/", axum::routing::get(|| async { "hello" }))
    ///     .layer(ServerLayer::new(lifecycle.clone()));
    /// let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
    /// let shutdown = lifecycle.shutdown(DrainConfig::default());
    /// axum::serve(listener, app).with_graceful_shutdown(shutdown).await
    /// # }
    /// ```
    ///
    /// It installs no signal handler: call [`on_sigterm`](Self::on_sigterm) too, or call
    /// [`lame_duck`](Self::lame_duck) from a handler of your own. Several servers of one process
    /// may each take one; they end together.
    ///
    /// The server then waits until its last connection has closed, for ever if a client never reads
    /// its response. Where that may happen, bound the wait by [`hard_stop`](Self::hard_stop).
    pub fn shutdown(&self, config: DrainConfig) -> impl Future<Output = ()> + Send + use<> {
        let lifecycle = self.clone();
        async move {
            match lifecycle.drained(&config).await {
                DrainEnd::Quiet => tracing::info!("drained"),
                DrainEnd::Overdue { unfinished } => {
                    tracing::warn!(unfinished, "drain time exhausted, requests still in flight");
                }
                DrainEnd::CutShort { unfinished } => tracing::warn!(unfinished, "drain cut short"),
            }
        }
    }

    /// Completes when the server must end, even with requests in flight.
    ///
    /// That is [`CLOSE_GRACE`] after [`DrainConfig::drain`] is over, or at once after
    /// [`end_now`](Self::end_now) (a second SIGTERM). Give it the same `config` as
    /// [`shutdown`](Self::shutdown):
    ///
    /// ```no_run
    /// use plimsoll::server::{DrainConfig, Lifecycle};
    ///
    /// # #[tokio::main]
    /// # async fn main() -> std::io::Result<()> {
    /// # let (listener, app) = (tokio::net::TcpListener::bind("127.0.0.1:0").await?, axum::Router::new());
    /// # let lifecycle = Lifecycle::serving();
    /// let drain = DrainConfig::default();
    /// let server = axum::serve(listener, app).with_graceful_shutdown(lifecycle.shutdown(drain));
    /// tokio::select! {
    ///     ended = server => ended,
    ///     () = lifecycle.hard_stop(drain) => Ok(()),
    /// }
    /// # }
    /// ```
    pub fn hard_stop(&self, config: DrainConfig) -> impl Future<Output = ()> + Send + use<> {
        let lifecycle = self.clone();
        async move {
            lifecycle.note_awaited();
            lifecycle.reached(Phase::LameDuck).await;
            let until = clock::after(Instant::now(), config.drain) + CLOSE_GRACE;
            first(lifecycle.cut_short(), tokio::time::sleep_until(until)).await;
        }
    }
}
