//! Whether requests to a cluster are throttled that would most likely be shed.

use std::time::Duration;

use plimsoll_config::{Checker, Choice, Flaw, Format, number, table};
use plimsoll_core::throttle::{Multiple, ThrottlePolicy, adaptive};

/// How, by its name in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThrottleKind {
    /// By each outcome.
    Paced,
    /// By what two minutes held.
    Adaptive,
    /// Not.
    Off,
}

const KIND: Choice<ThrottleKind> = Choice {
    noun: "a policy of throttling",
    names: &[("paced", ThrottleKind::Paced), ("adaptive", ThrottleKind::Adaptive), ("off", ThrottleKind::Off)],
};

impl From<ThrottlePolicy> for ThrottleKind {
    fn from(policy: ThrottlePolicy) -> Self {
        match policy {
            ThrottlePolicy::Off => Self::Off,
            ThrottlePolicy::Adaptive { .. } => Self::Adaptive,
            ThrottlePolicy::Paced { .. } => Self::Paced,
        }
    }
}

table! {
    /// The throttle of requests.
    #[derive(Clone, Debug, PartialEq)]
    #[non_exhaustive]
    pub struct Throttle {
        /// How.
        pub policy: ThrottleKind = ThrottlePolicy::default().into(), value_as(KIND);
        /// The multiple of accepted requests that is sent: K of SRE ch. 21.
        pub k: Multiple = Multiple::default(), value_as(K);
        /// For how long a request counts; only `adaptive` asks.
        pub window: Option<Duration> = None, optional;
    }
    OFF = "policy = \"off\"";
}

const K: Format<Multiple> = Format {
    read: |v| {
        let range = Multiple::RANGE;
        let help = format!("write a number from {} to {}, without quotes, such as 2", range.start(), range.end());
        let flaw = || Flaw::new("is not a multiple of the accepted requests", help);
        number(v).and_then(Multiple::new).ok_or_else(flaw)
    },
    print: |k| format!("{:?}", k.as_f64()),
};

impl Throttle {
    /// As the library has it.
    pub(super) fn policy(&self) -> ThrottlePolicy {
        let k = self.k;
        match self.policy {
            ThrottleKind::Off => ThrottlePolicy::Off,
            ThrottleKind::Paced => ThrottlePolicy::Paced { k },
            ThrottleKind::Adaptive => {
                ThrottlePolicy::Adaptive { k, window: self.window.unwrap_or(adaptive::DEFAULT_WINDOW) }
            }
        }
    }

    /// Reports a window that has no effect.
    pub(super) fn check(&self, path: &str, checker: &mut Checker<'_>) {
        if self.window.is_some() && self.policy != ThrottleKind::Adaptive {
            let help = "add policy = \"adaptive\", or remove it";
            checker.report(format!("{path}.window"), "has no effect: only policy \"adaptive\" has a window", help);
        }
    }
}
