//! The signals that end a command which would go on for ever.

use tokio::signal::unix::{SignalKind, signal};

/// Completes when the process is told to end: by Ctrl-C, by a supervisor, or by the end of its terminal.
pub(crate) async fn ending() {
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let [interrupt, terminate, hang_up] = kinds.map(signal);
    // Without a handler, the signal ends the process by itself.
    let (Ok(mut interrupt), Ok(mut terminate), Ok(mut hang_up)) = (interrupt, terminate, hang_up) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hang_up.recv() => {}
    }
}
