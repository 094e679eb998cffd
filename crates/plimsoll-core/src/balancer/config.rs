//! What a cluster's owner can set.

use core::num::NonZeroU32;

use crate::Ratio;
use crate::health::{BackoffConfig, CheckConfig, OutlierConfig, Scope, SlowStartConfig};
use crate::pick::{PolicyKind, PrequalConfig, WeightedConfig};

/// Active requests of one client at one backend from which on the backend is passed over: the value of SRE ch. 20. A backend
/// that has so many of one client's requests open is unlikely to get to another soon.
pub const DEFAULT_MAX_ACTIVE_REQUESTS: NonZeroU32 = NonZeroU32::new(100).expect("not zero");

/// The settings of a [`Balancer`](crate::Balancer); the default is right for most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BalancerConfig {
    /// How to choose.
    pub policy: PolicyKind,
    /// Flow control: active requests at one backend from which on it is passed over.
    pub max_active_requests: NonZeroU32,
    /// Active health checks.
    pub checks: CheckConfig,
    /// Passive ejection of backends that fail.
    pub outlier: OutlierConfig,
    /// Share of healthy backends below which verdicts on the others are set aside.
    pub panic_threshold: Ratio,
    /// Growing share of a backend that just came.
    pub slow_start: SlowStartConfig,
    /// How load reports turn into weights.
    pub weighted: WeightedConfig,
    /// How probe answers are kept and used.
    pub prequal: PrequalConfig,
    /// When to look again at a backend that refuses.
    pub backoff: BackoffConfig,
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
            backoff: BackoffConfig::default(),
        }
    }
}
