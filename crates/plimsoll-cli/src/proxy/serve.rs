//! Runs the proxy: starts it, obeys signals, ends it.
//!
//! `SIGHUP` reads the config again, `SIGTERM` and `SIGINT` drain, a second one of these ends at once. This
//! thread only controls: it checks backends and answers on the admin port; requests are the workers' business.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use plimsoll::server::EndSignals;
use plimsoll_proxy::Proxy;
use plimsoll_proxy::config::Config;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::fleet::ProxyFleet;
use crate::exit::Verdict;

/// Serves until drained, or told twice to end. `file` is what a reload reads; `None` where there is no file.
pub(super) fn serve(config: Config, file: Option<PathBuf>) -> anyhow::Result<Verdict> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    runtime.block_on(async {
        let mut signals = Signals::new().context("cannot listen for signals")?;
        let admin = match config.admin() {
            Some(address) => Some(TcpListener::bind(address).await.with_context(|| {
                format!(
                    "cannot listen at the admin address {address}: choose another with --admin or [admin] listen, or \
                     turn it off with \"off\""
                )
            })?),
            None => None,
        };
        let proxy = Arc::new(Proxy::start(config).await?);
        for listener in proxy.listeners() {
            tracing::info!(listener = listener.name, address = %listener.address, "listening");
        }
        if let Some(admin) = admin {
            tracing::info!(address = %admin.local_addr()?, "admin listening");
            let fleet = Arc::new(ProxyFleet::new(Arc::clone(&proxy)));
            tokio::spawn(async move {
                if let Err(error) = plimsoll_admin::serve(admin, fleet, std::future::pending()).await {
                    tracing::error!(%error, "the admin port stopped");
                }
            });
        }
        Ok(control(&proxy, &mut signals, file.as_deref()).await)
    })
}

struct Signals {
    hangup: Signal,
    end: EndSignals,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self { hangup: signal(SignalKind::hangup())?, end: EndSignals::new()? })
    }
}

async fn control(proxy: &Proxy, signals: &mut Signals, file: Option<&Path>) -> Verdict {
    loop {
        tokio::select! {
            _ = signals.hangup.recv() => {
                // A look-up of names may take long, and must not keep the end waiting.
                tokio::select! {
                    () = reload(proxy, file) => {}
                    _ = signals.end.next() => break,
                }
            }
            _ = signals.end.next() => break,
        }
    }
    tracing::info!("draining; a second signal ends at once");
    tokio::select! {
        () = proxy.drain() => {
            tracing::info!("drained");
            Verdict::Good
        }
        _ = signals.end.next() => {
            tracing::warn!("ended before it was drained: requests may have been cut off");
            Verdict::Bad
        }
    }
}

async fn reload(proxy: &Proxy, file: Option<&Path>) {
    let Some(file) = file else {
        tracing::warn!(
            "SIGHUP without effect: the proxy was started with --from and --to, there is no config to read again"
        );
        return;
    };
    let config = match Config::load(file) {
        Ok(config) => config,
        Err(error) => {
            proxy.reloads().refuse();
            tracing::error!(file = %file.display(), %error, "config refused, nothing has changed");
            return;
        }
    };
    warn_of_restart(&proxy.config(), &config);
    match proxy.reload(config).await {
        Ok(()) => tracing::info!(file = %file.display(), "config reloaded"),
        Err(error) => tracing::error!(file = %file.display(), %error, "config refused, nothing has changed"),
    }
}

/// Says what only a restart can change.
fn warn_of_restart(old: &Config, new: &Config) {
    if old.threads() != new.threads() {
        tracing::warn!("threads: takes effect at the next start");
    }
    if old.admin() != new.admin() {
        tracing::warn!("admin.listen: takes effect at the next start");
    }
}
