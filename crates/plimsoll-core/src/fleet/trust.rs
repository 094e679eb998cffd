//! Whether the disappearance of a record from the store is believed.
//!
//! A record with a lease disappears when its holder dies. It also disappears when the *store* was
//! unreachable or paused for the length of a lease: then all leases expire at once, though every
//! holder is alive. A process that believes these removals drops all backends. So removals are not
//! believed for a while after a gap in the contact with the store:
//!
//! ```text
//! gap        now − last contact > max_gap            max_gap = lease / 2
//! believed   no gap, and now ≥ end of the last gap + 2 · lease
//! ```
//!
//! Holders renew every lease / 3. A lease that was renewed just before a gap of the whole store has
//! at least 2/3 of its time left when the gap begins, so a gap of up to half a lease ends none.
//! After a longer gap, each holder notices within one lease that its own lease ended, and writes
//! its record again; the second lease is for holders that reach the store later than this process
//! did.
//!
//! **The start of the process counts as the end of a gap.** The first list removes nothing, because
//! nothing was known. But the process may have a saved list, and it may have started during the
//! outage: then it sees records that are about to expire. The cost is small. A lease takes one of
//! the two lease times to expire anyway, and a holder that ends on purpose first says that it
//! drains, which is no removal.
//!
//! Rejected: to count the records that disappear at once, as `discover` does. Leases that were
//! renewed at different times expire one by one. Rejected: to ask the store whether it was paused.
//! It does not know.
//!
//! Where it is weak:
//! - A holder that alone is cut off from the store looks dead, and its removal is believed. Health
//!   checks do not outvote it.
//! - A *contact* must prove that leases can be renewed. An answer of a store member without a
//!   leader does not: count answers to renewals, linearizable reads, and messages of watches that
//!   require a leader.
//! - Silence of a healthy store looks like a gap. The caller must cause a message at least every
//!   `max_gap / 2`; renewals of a lease of its own every lease / 3 do.
//! - A process that was stopped itself distrusts for two lease times without need.
//!
//! Source: etcd documentation, "Lease API" and "etcd API guarantees": a lease expires when the
//! store has received no renewal within its time. A new leader of the store extends all leases, but
//! one that was paused may first end those that ran out.

use core::time::Duration;

use crate::Timestamp;

/// Lease times after a gap until removals are believed.
const DISTRUSTED_LEASES: u32 = 2;

/// Settings of [`RemovalTrust`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrustConfig {
    /// The time of the holders' leases.
    pub lease: Duration,
    /// Longest time between two messages of a store in contact.
    pub max_gap: Duration,
}

impl TrustConfig {
    /// The time in which the death of a task is noticed. A renewal every 3.3 s from each of 10,000
    /// tasks is 3,000 a second, which etcd serves without writing to disk.
    pub const DEFAULT_LEASE: Duration = Duration::from_secs(10);

    /// For leases of this time.
    #[must_use]
    pub const fn of_lease(lease: Duration) -> Self {
        Self { lease, max_gap: lease.checked_div(2).expect("two is not zero") }
    }
}

impl Default for TrustConfig {
    fn default() -> Self {
        Self::of_lease(Self::DEFAULT_LEASE)
    }
}

/// The trust of one process in removals.
#[derive(Clone, Debug)]
pub struct RemovalTrust {
    config: TrustConfig,
    /// None: there was none yet.
    last_contact: Option<Timestamp>,
    /// The end of the distrust after the last gap, until a timeout passes it.
    distrusted_until: Option<Timestamp>,
}

impl RemovalTrust {
    /// Before the first contact.
    #[must_use]
    pub const fn new(config: TrustConfig) -> Self {
        Self { config, last_contact: None, distrusted_until: None }
    }

    /// The store sent a message. Call it before the removals in that message are judged.
    pub fn on_contact(&mut self, now: Timestamp) {
        if !self.is_in_contact(now) {
            self.distrusted_until = Some(now + self.config.lease * DISTRUSTED_LEASES);
        }
        self.last_contact = self.last_contact.max(Some(now));
    }

    /// Whether the store sent a message in the last `max_gap`.
    #[must_use]
    pub fn is_in_contact(&self, now: Timestamp) -> bool {
        self.last_contact.is_some_and(|last| now.since(last) <= self.config.max_gap)
    }

    /// Whether a record that disappears now is gone.
    #[must_use]
    pub fn believes_removals(&self, now: Timestamp) -> bool {
        self.is_in_contact(now) && self.distrusted_until.is_none_or(|until| now >= until)
    }

    /// The end of the distrust, for [`handle_timeout`](Self::handle_timeout).
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Timestamp> {
        self.distrusted_until
    }

    /// Ends the distrust, if it is time.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        self.distrusted_until = self.distrusted_until.filter(|until| now < *until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Timestamp {
        Timestamp::from_origin(Duration::from_secs_f64(seconds))
    }

    /// In contact every three seconds until `end`.
    fn trust_until(end: u32) -> RemovalTrust {
        let mut trust = RemovalTrust::new(TrustConfig::default());
        for second in (0..=end).step_by(3) {
            trust.on_contact(at(second.into()));
        }
        trust
    }

    #[test]
    fn removals_are_believed_two_leases_after_the_first_contact() {
        let fresh = RemovalTrust::new(TrustConfig::default());
        assert!(!fresh.believes_removals(at(0.0)) && fresh.poll_timeout().is_none());
        assert!(!trust_until(18).believes_removals(at(19.999)));
        assert!(trust_until(18).believes_removals(at(20.0)));
    }

    #[test]
    fn half_a_lease_without_contact_is_no_gap() {
        let mut trust = trust_until(30);
        assert!(trust.believes_removals(at(35.0)));
        trust.on_contact(at(35.0));
        assert!(trust.believes_removals(at(35.0)));
    }

    #[test]
    fn gap_is_followed_by_two_leases_of_distrust() {
        let mut trust = trust_until(30);
        assert!(!trust.believes_removals(at(35.001)), "nothing is known during the gap");
        trust.on_contact(at(36.0));
        for second in [36.0, 40.0, 44.0, 48.0, 52.0, 55.999] {
            trust.on_contact(at(second));
            assert!(!trust.believes_removals(at(second)), "{second}");
        }
        assert_eq!(trust.poll_timeout(), Some(at(56.0)));
        assert!(trust.believes_removals(at(56.0)));
        trust.handle_timeout(at(56.0));
        assert!(trust.believes_removals(at(56.0)) && trust.poll_timeout().is_none());
    }

    #[test]
    fn second_gap_begins_the_distrust_anew() {
        let mut trust = trust_until(30);
        trust.on_contact(at(40.0));
        trust.on_contact(at(50.0));
        trust.handle_timeout(at(60.0));
        assert!(!trust.believes_removals(at(60.0)));
        assert_eq!(trust.poll_timeout(), Some(at(70.0)));
    }

    #[test]
    fn distrust_that_ends_without_contact_begins_again_with_it() {
        let mut trust = trust_until(0);
        trust.handle_timeout(at(20.0));
        assert!(!trust.believes_removals(at(20.0)) && trust.poll_timeout().is_none());
        trust.on_contact(at(21.0));
        assert_eq!(trust.poll_timeout(), Some(at(41.0)));
    }

    #[test]
    fn timeout_that_comes_early_ends_nothing() {
        let mut trust = trust_until(18);
        trust.handle_timeout(at(19.9));
        assert!(!trust.believes_removals(at(19.9)));
        assert_eq!(trust.poll_timeout(), Some(at(20.0)));
    }

    #[test]
    fn contacts_out_of_order_keep_the_latest() {
        let mut trust = trust_until(30);
        trust.on_contact(at(29.0));
        assert!(trust.believes_removals(at(35.0)));
    }
}
