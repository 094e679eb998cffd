//! The settings of the balancing machine, as the file names them.
//!
//! Their defaults and the reasons for these stand beside the rules that they belong to, in
//! `plimsoll_core`; here is only what each is called and how it is written.

use std::time::Duration;

use plimsoll_core::health::{BackoffConfig, OutlierConfig, SlowStartConfig};
use plimsoll_core::pick::WeightedConfig;

use super::table::{Table, Visitor};

/// Shows a duration for which zero means that the rule is off, which the file writes as `"off"`.
pub(super) fn span_or_off<V: Visitor>(visitor: &mut V, key: &'static str, span: &mut Duration) {
    let mut on = (!span.is_zero()).then_some(*span);
    visitor.switch(key, &mut on);
    *span = on.unwrap_or_default();
}

impl Table for OutlierConfig {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.switch("consecutive_failures", &mut self.consecutive_failures);
        visitor.switch("success_rate_stdev", &mut self.success_rate_stdev);
        visitor.value("interval", &mut self.interval);
        visitor.value("base_ejection", &mut self.base_ejection);
        visitor.value("max_ejection", &mut self.max_ejection);
        visitor.value("max_ejected", &mut self.max_ejected);
        visitor.value("min_hosts", &mut self.min_hosts);
        visitor.value("min_requests", &mut self.min_requests);
    }
}

impl Table for SlowStartConfig {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        span_or_off(visitor, "window", &mut self.window);
        visitor.value("floor", &mut self.floor);
    }
}

impl Table for WeightedConfig {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        span_or_off(visitor, "blackout", &mut self.blackout);
        visitor.value("expiry", &mut self.expiry);
        visitor.value("update", &mut self.update);
        visitor.value("smoothing", &mut self.smoothing);
        visitor.value("error_penalty", &mut self.error_penalty);
    }
}

impl Table for BackoffConfig {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.value("initial", &mut self.initial);
        visitor.value("max", &mut self.max);
        visitor.value("jitter", &mut self.jitter);
    }
}
