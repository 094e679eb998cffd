//! How requests to a cluster are sent again that a backend did not serve.

use std::num::NonZeroUsize;
use std::time::Duration;

use plimsoll::client::RetryPolicy;
use plimsoll_config::{ByteSize, Checker, Flaw, Table, Visitor, values, whole};
use plimsoll_core::Ratio;
use plimsoll_core::retry::hedge::HedgeConfig;
use plimsoll_core::retry::{BudgetConfig, MaxAttempts, RetryConfig};

/// How often a request is sent at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempts(pub MaxAttempts);

/// When a request that is not answered yet is sent to a second backend.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Hedge(pub HedgeConfig);

/// How requests are sent again.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Retry {
    /// How often a request is sent at most; 1 switches all of this off.
    pub max_attempts: Attempts,
    /// Retries and hedges that all requests together may have.
    pub budget: BudgetConfig,
    /// The longest wait before the first retry, where no backend names one.
    pub backoff_base: Duration,
    /// The longest before any.
    pub backoff_max: Duration,
    /// The part of each request's body that is stored.
    pub max_body: Option<ByteSize>,
    /// When slow requests are sent to a second backend; `None` for never.
    pub hedge: Option<Hedge>,
}

impl Default for Retry {
    fn default() -> Self {
        let RetryPolicy { attempts, budget, max_body, hedge } = RetryPolicy::default();
        let (max_attempts, max_body) = (Attempts(attempts.max_attempts), max_body.map(ByteSize::from_bytes));
        let RetryConfig { backoff_base, backoff_max, .. } = attempts;
        Self { max_attempts, budget, backoff_base, backoff_max, max_body, hedge: hedge.map(Hedge) }
    }
}

impl Retry {
    /// As the library has it.
    pub(super) fn policy(&self) -> RetryPolicy {
        RetryPolicy {
            attempts: RetryConfig {
                max_attempts: self.max_attempts.0,
                backoff_base: self.backoff_base,
                backoff_max: self.backoff_max,
            },
            budget: self.budget,
            max_body: self.max_body.and_then(|size| NonZeroUsize::new(size.bytes())),
            hedge: self.hedge.map(|hedge| hedge.0),
        }
    }

    /// Reports waits that contradict each other, and hedges that cannot be.
    pub(super) fn check(&mut self, path: &str, checker: &mut Checker<'_>) {
        checker.order(path, ("backoff_base", &mut self.backoff_base), ("backoff_max", self.backoff_max));
        let Some(Hedge(HedgeConfig { quantile, .. })) = self.hedge else { return };
        if self.max_attempts.0 == MaxAttempts::ONE {
            let help = "raise max_attempts, or remove it";
            checker.report(format!("{path}.hedge"), "has no effect: a hedge is a second attempt", help);
        } else if quantile == Ratio::ZERO || quantile == Ratio::ONE {
            let reason = if quantile == Ratio::ONE { "no request takes longer" } else { "every request takes longer" };
            let help = "write a share above 0 and below 1, such as \"95%\"";
            checker.report(format!("{path}.hedge.quantile"), reason, help);
        }
    }
}

impl Table for Retry {
    const OFF: &'static str = "max_attempts = 1";

    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.value("max_attempts", &mut self.max_attempts);
        visitor.value("budget", &mut self.budget.share);
        visitor.value("budget_floor", &mut self.budget.floor);
        visitor.switch("max_body", &mut self.max_body);
        visitor.value("backoff_base", &mut self.backoff_base);
        visitor.value("backoff_max", &mut self.backoff_max);
        visitor.optional_table("hedge", &mut self.hedge);
    }
}

impl Table for Hedge {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.value("quantile", &mut self.0.quantile);
        visitor.value("at_least", &mut self.0.at_least);
    }
}

values! {
    Attempts: |v| {
        let help = format!("write a whole number from 1, for no retry, to {}", MaxAttempts::MAX);
        let attempts = whole::<u8>(v, 1).map_err(|flaw| Flaw::new(flaw.reason, help.as_str()))?;
        MaxAttempts::new(attempts).map(Self).ok_or_else(|| Flaw::new(format!("{attempts} is out of range"), help))
    }, |attempts| attempts.0.get().to_string();
}
