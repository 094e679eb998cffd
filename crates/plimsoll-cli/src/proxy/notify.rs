//! What systemd is told, where it asks to be (`Type=notify-reload`): ready, reloading, ending, which process is the
//! service. Without `NOTIFY_SOCKET` nothing is told.

use sd_notify::NotifyState;

/// The service serves, again or for the first time.
pub(super) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// The config is being read again; [`ready`] ends it.
pub(super) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::debug!(%error, "cannot read the clock"),
    }
}

/// The service ends.
pub(super) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Another process is the service from now on.
pub(super) fn succeeded_by(process: u32) {
    tell(&[NotifyState::MainPid(process), NotifyState::Ready]);
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "service manager not notified");
    }
}
