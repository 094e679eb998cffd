//! How requests to a cluster are sent again that a backend did not serve.

use std::num::NonZeroUsize;
use std::time::Duration;

use plimsoll::client::RetryPolicy;
use plimsoll_config::{ByteSize, Checker, Effect, Flaw, Format, table, whole};
use plimsoll_core::Ratio;
use plimsoll_core::retry::hedge::HedgeConfig;
use plimsoll_core::retry::{BudgetConfig, MaxAttempts, RetryConfig};

table! {
    /// How requests are sent again.
    #[derive(Clone, Debug, PartialEq)]
    #[non_exhaustive]
    pub struct Retry {
        /// How often a request is sent at most; 1 switches all of this off.
        pub max_attempts: MaxAttempts = MaxAttempts::default(), value_as(MAX_ATTEMPTS);
        /// How long one attempt may take where another can be made; `None` for no limit.
        pub attempt_timeout: Option<Duration> = None, switch,
            Effect::Applied("from the next request on; health states and connections stay");
        /// Retries and hedges that all requests together may have, as a share of requests.
        pub budget: Ratio = BudgetConfig::DEFAULT_SHARE, value;
        /// Retries that they may have at any rate of requests.
        pub budget_floor: u32 = BudgetConfig::DEFAULT_FLOOR, value;
        /// The part of each request's body that is stored.
        pub max_body: Option<ByteSize> = Some(ByteSize::from_bytes(RetryPolicy::DEFAULT_MAX_BODY)), switch;
        /// The longest wait before the first retry, where no backend names one.
        pub backoff_base: Duration = RetryConfig::default().backoff_base, value;
        /// The longest before any.
        pub backoff_max: Duration = RetryConfig::default().backoff_max, value;
        /// The longest wait that a backend may name; for a longer one the client gets the answer.
        pub pushback_max: Duration = RetryConfig::DEFAULT_PUSHBACK_MAX, value;
        /// When a request without a response is sent to a second backend; `None` for never.
        pub hedge: Option<HedgeConfig> = None, optional_table,
            Effect::Applied("from the next request on; known latencies stay");
    }
    OFF = "max_attempts = 1";
}

const MAX_ATTEMPTS: Format<MaxAttempts> = Format {
    read: |v| {
        let help = format!("write a whole number from 1, for no retry, to {}", MaxAttempts::MAX);
        let attempts = whole::<u8>(v, 1).map_err(|flaw| Flaw::new(flaw.reason, help.as_str()))?;
        MaxAttempts::new(attempts).ok_or_else(|| Flaw::new(format!("{attempts} is out of range"), help))
    },
    print: |attempts| attempts.get().to_string(),
};

impl Retry {
    /// As the library has it.
    pub(super) fn policy(&self) -> RetryPolicy {
        let mut policy = RetryPolicy::default();
        policy.attempts.max_attempts = self.max_attempts;
        policy.attempts.backoff_base = self.backoff_base;
        policy.attempts.backoff_max = self.backoff_max;
        policy.attempts.pushback_max = self.pushback_max;
        policy.budget = BudgetConfig { share: self.budget, floor: self.budget_floor };
        policy.max_body = self.max_body.and_then(|size| NonZeroUsize::new(size.bytes()));
        policy.hedge = self.hedge;
        policy
    }

    /// Reports waits that contradict each other, and hedges that cannot be.
    pub(super) fn check(&mut self, path: &str, checker: &mut Checker<'_>) {
        if self.attempt_timeout.is_some() && self.max_attempts == MaxAttempts::ONE {
            let reason = "has no effect: an attempt ends early only for another";
            checker.report(format!("{path}.attempt_timeout"), reason, "raise max_attempts, or remove it");
        }
        checker.order(path, ("backoff_base", &mut self.backoff_base), ("backoff_max", self.backoff_max));
        let Some(HedgeConfig { quantile, .. }) = self.hedge else { return };
        if self.max_attempts == MaxAttempts::ONE {
            let help = "raise max_attempts, or remove it";
            checker.report(format!("{path}.hedge"), "has no effect: a hedge is a second attempt", help);
        } else if quantile == Ratio::ZERO || quantile == Ratio::ONE {
            let reason = if quantile == Ratio::ONE { "no request takes longer" } else { "every request takes longer" };
            let help = "write a share above 0 and below 1, such as \"95%\"";
            checker.report(format!("{path}.hedge.quantile"), reason, help);
        }
    }
}
