//! Probes of a cluster's backends by UDP.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use plimsoll::client::ProbeConfig;
use plimsoll::probe::ProbeKeys;
use plimsoll_config::{Checker, Effect, table};
use plimsoll_tls_config::FilePath;

use super::address::Backend;
use super::health::Health;
use super::probe_keys;

/// Queries more often than each second cost as much as checks. Three of them fit into the longest
/// lease of a responder, two minutes.
const INTERVAL: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(40);

const NEXT_QUERY: Effect = Effect::Applied("with the next queries; health states stay");

table! {
    /// Probes of a cluster's backends.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct Probes {
        /// The file of the keys that the fleet shares. `None`: health checks by HTTP or gRPC bring keys,
        /// and backends at loopback need none.
        pub keys: Option<FilePath> = None, optional, NEXT_QUERY;
        /// Mean time between two queries of a backend.
        pub interval: Duration = ProbeConfig::DEFAULT_INTERVAL, value, NEXT_QUERY;
    }
}

impl Probes {
    /// The setting for the library's client.
    pub(super) fn client(&self, keys: Option<ProbeKeys>) -> ProbeConfig {
        let mut config = ProbeConfig::default();
        config.interval = self.interval;
        config.keys = keys;
        config
    }

    /// The keys of the file; `None` without one, and after a problem. `path` is that of the table.
    pub(super) fn keys(&self, path: &str, folder: &Path, checker: &mut Checker<'_>) -> Option<ProbeKeys> {
        probe_keys::read(format!("{path}.keys"), self.keys.as_ref()?, folder, checker, ProbeKeys::read)
    }

    /// Reports an interval out of range, and backends that keys are needed for. `path` is that of
    /// the cluster.
    pub(super) fn check(&self, path: &str, backends: &[Backend], health: &Health, checker: &mut Checker<'_>) {
        let setting = format!("{path}.probes.interval");
        if !INTERVAL.contains(&self.interval) && checker.is_readable(&setting) {
            let reason = format!("{} is out of range", humantime::format_duration(self.interval));
            checker.report(setting, reason, "use 1s to 40s");
        }
        let is_unix = |backend: &&Backend| backend.address.known().is_some_and(|address| address.unix().is_some());
        if !backends.is_empty() && backends.iter().all(|backend| is_unix(&backend)) {
            let reason = "has no effect: probes go by UDP, and all backends are Unix sockets";
            let help = "remove it: health checks and the connections tell as much on one machine";
            checker.report(format!("{path}.probes"), reason, help);
        }
        let is_beyond = |backend: &&Backend| match (backend.address.known(), backend.address.name()) {
            (Some(address), _) => address.ip().is_some_and(|ip| !ip.to_canonical().is_loopback()),
            (None, name) => name.is_some_and(|(host, _)| host != "localhost"),
        };
        let setting = format!("{path}.probes.keys");
        let brings_keys = health.check().can_bring_keys() || !checker.is_readable(&format!("{path}.health.check"));
        if self.keys.is_none()
            && !brings_keys
            && checker.is_readable(&setting)
            && let Some(backend) = backends.iter().find(is_beyond)
        {
            let reason = format!("missing, and {} is beyond loopback: answers could be forged", backend.address);
            let help = "set check = \"http\" or \"grpc\" in [clusters.NAME.health], which brings keys, or name a file of \
                        keys that the fleet shares; see docs/probes.md";
            checker.report(setting, reason, help);
        }
    }
}
