//! Whether requests to a cluster are throttled that would most likely be shed.

use std::time::Duration;

use plimsoll_config::{Checker, Flaw, Table, Visitor, choice, number, quoted, values};
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

impl ThrottleKind {
    const ALL: [(&'static str, Self); 3] = [("paced", Self::Paced), ("adaptive", Self::Adaptive), ("off", Self::Off)];
}

impl From<ThrottlePolicy> for ThrottleKind {
    fn from(policy: ThrottlePolicy) -> Self {
        match policy {
            ThrottlePolicy::Off => Self::Off,
            ThrottlePolicy::Adaptive { .. } => Self::Adaptive,
            ThrottlePolicy::Paced { .. } => Self::Paced,
        }
    }
}

/// K of SRE ch. 21.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct K(pub Multiple);

/// The throttle of requests.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Throttle {
    /// How.
    pub policy: ThrottleKind,
    /// The multiple of accepted requests that is sent.
    pub k: K,
    /// For how long a request counts; only `adaptive` asks.
    pub window: Option<Duration>,
}

impl Default for Throttle {
    fn default() -> Self {
        Self { policy: ThrottlePolicy::default().into(), k: K::default(), window: None }
    }
}

impl Throttle {
    /// As the library has it.
    pub(super) fn policy(&self) -> ThrottlePolicy {
        let k = self.k.0;
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

impl Table for Throttle {
    const OFF: &'static str = "policy = \"off\"";

    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.value("policy", &mut self.policy);
        visitor.value("k", &mut self.k);
        visitor.optional("window", &mut self.window);
    }
}

values! {
    ThrottleKind: |v| choice(v, "a policy of throttling", &Self::ALL), |kind| {
        quoted(Self::ALL.into_iter().find(|(_, known)| known == kind).expect("all are listed").0)
    };
    K: |v| {
        let range = Multiple::RANGE;
        let help = format!("write a number from {} to {}, without quotes, such as 2", range.start(), range.end());
        number(v).and_then(Multiple::new).map(Self).ok_or_else(|| Flaw::new("is not a multiple of the accepted requests", help))
    }, |k| format!("{:?}", k.0.as_f64());
}
