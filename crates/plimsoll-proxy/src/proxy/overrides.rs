//! Changes of single backends by hand: one at a time, logged, and not while a successor starts.

use std::net::SocketAddr;
use std::time::Duration;

use plimsoll::address::Address;
use plimsoll::discover::{Endpoint, OverrideCommand, OverrideError};

use super::Proxy;

/// An operator's word on one backend.
#[derive(Clone, Debug, PartialEq)]
pub struct OverrideOrder {
    /// The name of the cluster.
    pub cluster: String,
    /// The address of the backend.
    pub backend: Address,
    /// The change.
    pub command: OverrideCommand<Endpoint>,
    /// Its duration. `None`: until it is revoked.
    pub lasts: Option<Duration>,
    /// The client that ordered it, for the log.
    pub caller: Option<SocketAddr>,
}

/// The outcome of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverrideDone {
    /// Backends of the cluster that are left: not removed, and not drained by hand.
    pub serving: usize,
    /// Whether the change outlives the process.
    pub is_persistent: bool,
    /// The reason why it could not be saved.
    pub error: Option<String>,
}

/// An order without effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverrideRefused {
    /// No cluster has this name.
    NoCluster,
    /// Neither the source nor an override knows the backend.
    NoBackend,
    /// The cluster has as many overrides as it may have.
    TooMany,
    /// A successor starts, which would not learn of the change.
    HandingOver,
}

/// Whether orders are obeyed.
#[derive(Debug, Default)]
pub(super) struct Overriding {
    is_handing_over: bool,
}

impl Proxy {
    /// Changes one backend by hand, and saves the change.
    ///
    /// # Errors
    /// Nothing has changed then.
    pub fn override_backend(&self, order: &OverrideOrder) -> Result<OverrideDone, OverrideRefused> {
        // Held until it is saved, so that no older state replaces a newer one.
        let overriding = self.overriding.lock();
        if overriding.is_handing_over {
            return Err(OverrideRefused::HandingOver);
        }
        let OverrideOrder { cluster: name, backend, command, lasts, .. } = order;
        let cluster = self.cluster(name).ok_or(OverrideRefused::NoCluster)?;
        let outcome = cluster.override_backend(*backend, command.clone(), *lasts).map_err(|error| match error {
            OverrideError::Unknown => OverrideRefused::NoBackend,
            OverrideError::TooMany => OverrideRefused::TooMany,
        })?;
        log(order, outcome.serving);
        let saved = self.saver.save_overrides();
        let error = saved.as_ref().err().map(|error| {
            tracing::warn!(cluster = name, %backend, %error, "backend override not saved yet");
            error.to_string()
        });
        Ok(OverrideDone { serving: outcome.serving, is_persistent: saved.is_ok_and(|is_saved| is_saved), error })
    }

    /// No order is obeyed from now on, or again: a successor starts, or did not come.
    pub fn freeze_overrides(&self, is_frozen: bool) {
        self.overriding.lock().is_handing_over = is_frozen;
    }
}

fn log(order: &OverrideOrder, serving: usize) {
    let OverrideOrder { cluster, backend, command, lasts, caller } = order;
    let lasts = lasts.map(|lasts| tracing::field::display(humantime::format_duration(lasts)));
    let caller = caller.map(tracing::field::display);
    let (action, weight, is_drained) = match command {
        OverrideCommand::Put(endpoint) => ("put", Some(endpoint.weight.as_f64()), None),
        OverrideCommand::Remove => ("remove", None, None),
        OverrideCommand::Patch { weight, is_drained } => {
            ("patch", weight.flatten().map(plimsoll_core::Weight::as_f64), *is_drained)
        }
        OverrideCommand::Revoke => ("revoke", None, None),
    };
    tracing::info!(cluster, %backend, action, weight, drained = is_drained, lasts, caller, "backend override set");
    if serving == 0 {
        tracing::warn!(cluster, "no backend is left: all are removed or drained by hand");
    }
}
