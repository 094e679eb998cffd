//! The fixed backends of a cluster, beside those of the source that it follows.
//!
//! They are a source of their own: one list, or the addresses of names that change. [`Merge`] decides
//! on them as on any source, apart from the followed one. Its members are the fixed part of the
//! cluster's list ([`Merge::set_fixed`]). So an error of one source keeps the backends of both, and a
//! loss at one is no loss at the other.

use crate::address::Address;
use std::sync::Arc;

use plimsoll_core::Timestamp;
use plimsoll_core::discover::{Listed, Merge, MergeConfig, MergeCounts};

use super::source_log::{Lines, SourceAccount, SourceFailure, SourceName};
use crate::discover::{Answer, Endpoint, Readiness};

/// The decision on the members.
pub(super) type Members = Merge<Address, Arc<Endpoint>>;

/// An entry of a list in the core's terms.
pub(super) fn listed(endpoint: Endpoint) -> Listed<Address, Arc<Endpoint>> {
    let Endpoint { address, readiness, .. } = endpoint;
    Listed { key: address, readiness, properties: Arc::new(endpoint.readiness(Readiness::Ready)) }
}

/// The fixed backends and the account of their source.
pub(super) struct FixedPart {
    merge: Members,
    account: SourceAccount,
}

impl FixedPart {
    /// For a source that was not asked yet.
    pub(super) fn new(now: Timestamp, settings: MergeConfig, source: SourceName) -> Self {
        let mut account = SourceAccount::default();
        account.begin(source, MergeCounts::default());
        Self { merge: Merge::new(now, settings, Vec::new()), account }
    }

    /// The answer of their source, for the list of the cluster. Returns whether that changed, and lines
    /// for the log.
    pub(super) fn take_in(&mut self, now: Timestamp, answer: Answer, to: &mut Members) -> (bool, Lines) {
        let mut lines = Lines::default();
        let is_list = answer.is_ok();
        match answer {
            Ok(endpoints) => {
                let list = endpoints.into_iter().map(listed).collect();
                self.merge.on_list(now, list, &mut |event| lines.events.push(event));
            }
            Err(error) => {
                self.merge.on_error(now, &mut |event| lines.events.push(event));
                self.account.on_error(now, &error, &mut lines);
            }
        }
        let is_settled = self.merge.handle_timeout(now, &mut |event| lines.events.push(event));
        // The first list also replaces that of a former source, even if it is empty.
        let is_changed = (is_list || is_settled) && to.set_fixed(self.merge.members().to_vec());
        (is_changed, self.account.finish(now, lines))
    }

    /// Lets due changes take effect in the list of the cluster. Returns the same.
    pub(super) fn handle_timeout(&mut self, now: Timestamp, to: &mut Members) -> (bool, Lines) {
        let mut lines = Lines::default();
        let is_settled = self.merge.handle_timeout(now, &mut |event| lines.events.push(event));
        let is_changed = is_settled && to.set_fixed(self.merge.members().to_vec());
        (is_changed, self.account.finish(now, lines))
    }

    /// When to call [`Self::handle_timeout`].
    pub(super) fn poll_timeout(&self) -> Option<Timestamp> {
        self.merge.poll_timeout()
    }

    /// Whether their source lists this backend, in any state.
    pub(super) fn is_listed(&self, address: &Address) -> bool {
        self.merge.may_list(address)
    }

    /// The last error, while their source fails.
    pub(super) fn failure(&self) -> Option<&SourceFailure> {
        self.account.last_error.as_ref().filter(|_| self.merge.is_failing())
    }

    /// `counts` of the followed source, and the changes at the fixed backends.
    pub(super) fn add_to(&self, counts: MergeCounts) -> MergeCounts {
        let MergeCounts { drained, expired, held, .. } = self.merge.counts();
        MergeCounts {
            drained: counts.drained + drained,
            expired: counts.expired + expired,
            held: counts.held + held,
            ..counts
        }
    }
}
