//! The settings of a cluster's balancer.

use core::num::NonZeroU32;

use crate::Ratio;
use crate::health::{BackoffConfig, CheckConfig, OutlierConfig, Scope, SlowStartConfig};
use crate::pick::{HashConfig, PolicyKind, PrequalConfig, WeightedConfig};

/// Limit of one client's active requests at a backend; flow control skips a backend at the limit.
/// The value of SRE ch. 20. A backend with this many open requests of one client is unlikely to
/// serve another soon.
pub const DEFAULT_MAX_ACTIVE_REQUESTS: NonZeroU32 = NonZeroU32::new(100).expect("not zero");

/// The settings of a [`Balancer`](crate::Balancer); the defaults are right for most clusters.
///
/// ```
/// use plimsoll_core::BalancerConfig;
/// use plimsoll_core::pick::PolicyKind;
///
/// let mut config = BalancerConfig::new(PolicyKind::Weighted);
/// config.outlier.consecutive_failures = None;
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct BalancerConfig {
    /// The policy that picks backends.
    pub policy: PolicyKind,
    /// Flow control: limit of active requests at a backend, which is skipped at the limit.
    pub max_active_requests: NonZeroU32,
    /// Active health checks.
    pub checks: CheckConfig,
    /// Outlier detection: ejection of backends that fail.
    pub outlier: OutlierConfig,
    /// Panic threshold: share of healthy backends below which verdicts on the others are set aside.
    pub panic_threshold: Ratio,
    /// Slow start: the growing share of a new backend.
    pub slow_start: SlowStartConfig,
    /// Weights from load reports.
    pub weighted: WeightedConfig,
    /// Use of probe answers.
    pub prequal: PrequalConfig,
    /// Consistent hashing with bounded loads.
    pub hash: HashConfig,
    /// Waits between connection attempts to a refusing backend.
    pub backoff: BackoffConfig,
}

impl BalancerConfig {
    /// The default settings, with this policy.
    #[must_use]
    pub fn new(policy: PolicyKind) -> Self {
        Self { policy, ..Self::default() }
    }
}

impl Default for BalancerConfig {
    fn default() -> Self {
        Self {
            policy: PolicyKind::default(),
            max_active_requests: DEFAULT_MAX_ACTIVE_REQUESTS,
            checks: CheckConfig::default(),
            outlier: OutlierConfig::default(),
            panic_threshold: Scope::DEFAULT_PANIC_THRESHOLD,
            slow_start: SlowStartConfig::default(),
            weighted: WeightedConfig::default(),
            prequal: PrequalConfig::default(),
            hash: HashConfig::default(),
            backoff: BackoffConfig::default(),
        }
    }
}
