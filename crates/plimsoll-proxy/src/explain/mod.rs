//! The latest requests that were shed, failed, were retried or served, each with the reason.
//!
//! ```text
//! forward ──▶ Case (on the stack) ──ends──▶ Explain ──▶ one of three rings ◀── the admin API, `plimsoll explain`
//!                                              └──▶ a line in the log, a few a second
//! ```
//!
//! Recorded are all requests that were refused, failed or were retried, and a share of the others.
//! Each kind has a ring of its own. Else a storm of refusals, which is when people ask, would
//! displace the few failures that explain it. A request that is not
//! kept nothing is allocated.
//!
//! A request is recorded with the head of its response. The access log covers its body.

mod case;
mod id;
mod log;
mod reason;
mod ring;
mod tap;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwapOption;
use http::{HeaderMap, Method, StatusCode};
use plimsoll::address::Address;
use plimsoll::client::FailedAttempt;
use plimsoll_core::admit::{Pressure, Standing};
use plimsoll_core::quota::Refused;
use plimsoll_core::request_limit::Over;
use plimsoll_core::shedding::Label;

pub(crate) use self::case::{BackendAnswer, Case, HashFacts, Source};
pub(crate) use self::id::X_REQUEST_ID;
use self::log::RefusalLog;
#[cfg(test)]
pub(crate) use self::reason::tests::errors;
pub use self::reason::{Reason, may_be_only_counted};
use self::ring::Ring;
pub use self::tap::{Tap, Tapped};
pub use crate::classify::Origin;
use crate::config;

/// The name of a customer as in [`Explanation::customer`]: escaped where it does not print, cut
/// where it is too long.
#[must_use]
pub fn customer_label(name: &[u8]) -> Label {
    Label::of(name.escape_ascii())
}

/// The outcome of one request, with its reason.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The id to ask about it.
    pub id: Label,
    /// Its sender had given it none.
    pub is_own_id: bool,
    /// When the head of its answer was there.
    pub at: SystemTime,
    /// The same, for how long ago that was.
    pub ended: Instant,
    /// How long that took.
    pub took: Duration,
    /// Where it came in.
    pub listener: Arc<str>,
    /// The client's address.
    pub client: Address,
    /// Its method.
    pub method: Method,
    /// Its path, without the query.
    pub path: Label,
    /// The route that it took; `None` if none matched, or it was refused before.
    pub route: Option<Arc<str>>,
    /// Where the route leads.
    pub cluster: Option<Arc<str>>,
    /// How critical it is; `None` where nothing depends on it.
    pub criticality: Option<Criticality>,
    /// Whose it is, where the listener says how customers are known.
    pub customer: Option<Label>,
    /// The limit on the customer's requests; `None` if this one is within it.
    pub over: Option<Over>,
    /// The decision of the cluster's gate; `None` if it was not asked.
    pub gate: Option<Gated>,
    /// The choice of the backend by the policy `hash`; `None` under another policy.
    pub hash: Option<HashChoice>,
    /// Attempts at backends that failed, in their order.
    pub failed: Vec<FailedAttempt>,
    /// How it ended.
    pub end: End,
}

/// The key of a request under the policy `hash`, and the home of the key: its backend unless that is
/// unusable or at its bound.
#[derive(Clone, Debug)]
pub struct HashChoice {
    /// The source of the key, such as `header:x-user`; `None` for a request without a key.
    pub source: Option<Arc<str>>,
    /// The home, and whether it was usable when the request was recorded; `None` with localities,
    /// without a key, and without backends.
    pub home: Option<(Address, bool)>,
}

/// How critical a request is, and why.
#[derive(Clone, Copy, Debug)]
pub struct Criticality {
    /// How critical.
    pub level: plimsoll_core::Criticality,
    /// The source of that level.
    pub from: Origin,
    /// Values of its headers about criticality, time and attempt that could not be read.
    pub malformed: u8,
}

/// The decision of a gate on a request.
#[derive(Clone, Copy, Debug)]
pub struct Gated {
    /// `admitted`, or the reason for which it was shed.
    pub decision: &'static str,
    /// It is admitted all the same.
    pub is_dry_run: bool,
    /// CPU time that it was expected to cost.
    pub expected: Duration,
    /// How close requests of this criticality were to being shed.
    pub pressure: Pressure,
    /// The customer's hard limit and use of it, of a request that is shed for its quota.
    pub standing: Option<Standing>,
    /// The refusal by a limit over the fleet, if there was one.
    pub fleet: Option<Refused>,
}

/// How a request ended.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// Well, or how not.
    pub kind: Kind,
    /// Of the answer; `None` where there was none, as in a black hole.
    pub status: Option<StatusCode>,
    /// Why it was not served, in a word; `None` if it was.
    pub reason: Option<Reason>,
    /// The backend that responded, or was asked last.
    pub backend: Option<Address>,
}

impl End {
    /// The word in the response for why the request was not served; `None` if it was.
    #[must_use]
    pub fn word(&self) -> Option<&'static str> {
        self.reason.map(|reason| reason.word)
    }
}

/// How a request ended, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The proxy did not let it go on.
    Refused,
    /// No backend could be asked or gave an answer, or the answer was that it failed.
    Failed,
    /// It was served, by another backend than the first.
    Retried,
    /// It was served at once.
    Served,
}

impl Kind {
    /// All.
    pub const ALL: [Self; 4] = [Self::Refused, Self::Failed, Self::Retried, Self::Served];

    /// The word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Retried => "retried",
            Self::Served => "served",
        }
    }

    /// Which ring it goes into.
    const fn ring(self) -> usize {
        match self {
            Self::Refused => 0,
            Self::Failed | Self::Retried => 1,
            Self::Served => 2,
        }
    }
}

/// All that is remembered; clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Explain(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    rings: ArcSwapOption<[Ring<Explanation>; 3]>,
    /// Of those that are served at once, the share that is kept, in parts of 2⁶⁴; the largest
    /// number for all.
    step: AtomicU64,
    log: RefusalLog,
}

impl Explain {
    /// Records as `config` says from now on. Earlier records stay if their number did not change.
    pub(crate) fn configure(&self, config: &config::Explain) {
        let share = config.sample.as_f64();
        let step = if share >= 1.0 { u64::MAX } else { (share * (u64::MAX as f64)) as u64 };
        self.0.step.store(if config.entries.is_some() { step } else { 0 }, Ordering::Relaxed);
        let entries = config.entries;
        let known = self.0.rings.load().as_ref().map(|rings| rings[0].places());
        if known != entries {
            self.0.rings.store(entries.map(|entries| Arc::new([(); 3].map(|()| Ring::new(entries)))));
        }
    }

    /// For the requests of one thread.
    pub(crate) fn recorder(&self) -> Recorder {
        // The first is recorded: a first trial shows something.
        Recorder { explain: self.clone(), sum: AtomicU64::new(u64::MAX) }
    }

    /// All that are kept, the latest first.
    pub(crate) fn latest(&self) -> Vec<Arc<Explanation>> {
        let rings = self.0.rings.load();
        let mut all: Vec<_> = rings.iter().flat_map(|rings| rings.iter()).flat_map(Ring::all).collect();
        all.sort_by_key(|explanation| std::cmp::Reverse(explanation.ended));
        all
    }

    fn push(&self, explanation: Explanation) {
        if let Some(rings) = &*self.0.rings.load() {
            rings[explanation.end.kind.ring()].push(explanation);
        }
    }

    fn is_on(&self) -> bool {
        self.0.rings.load().is_some()
    }
}

/// Records the requests of one thread.
#[derive(Debug)]
pub(crate) struct Recorder {
    explain: Explain,
    /// The sum of the shares of served requests; a request is recorded when it overflows.
    sum: AtomicU64,
}

impl Recorder {
    /// Whether requests are recorded.
    pub(crate) fn is_on(&self) -> bool {
        self.explain.is_on()
    }

    /// The proxy responds to a request itself: records the reason, logs it now and then, and puts
    /// the id into `headers`.
    pub(crate) fn unserved(&self, source: Source<'_>, case: &mut Case, end: End, headers: &mut HeaderMap) {
        let id = case.id();
        let is_on = self.explain.is_on();
        if is_on {
            id.put_into(headers);
        }
        let explanation = case.explain(source, id, end);
        self.explain.0.log.write(&explanation);
        if is_on {
            self.explain.push(explanation);
        }
    }

    /// The route ends the request, as it does with all: remembered, and no line in the log.
    pub(crate) fn ended_by_route(
        &self,
        source: Source<'_>,
        case: &mut Case,
        status: Option<StatusCode>,
        reason: &'static str,
    ) {
        if self.explain.is_on() {
            let end = End { kind: Kind::Refused, status, reason: Some(Reason::of(reason)), backend: None };
            let id = case.id();
            self.explain.push(case.explain(source, id, end));
        }
    }

    /// A backend has answered.
    pub(crate) fn answered(&self, source: Source<'_>, case: &mut Case, answered: &BackendAnswer) {
        let &BackendAnswer { status, backend, attempts, failure } = answered;
        let kind = match (failure, attempts) {
            (Some(_), _) => Kind::Failed,
            (None, 2..) => Kind::Retried,
            (None, _) if self.is_sampled() => Kind::Served,
            (None, _) => return,
        };
        if self.explain.is_on() {
            let end = End { kind, status: Some(status), reason: failure, backend: Some(backend) };
            let id = case.id();
            self.explain.push(case.explain(source, id, end));
        }
    }

    /// Evenly spread ones. One thread asks, so that loads and stores do.
    fn is_sampled(&self) -> bool {
        let step = self.explain.0.step.load(Ordering::Relaxed);
        if matches!(step, 0 | u64::MAX) {
            return step > 0;
        }
        let (sum, carries) = self.sum.load(Ordering::Relaxed).overflowing_add(step);
        self.sum.store(sum, Ordering::Relaxed);
        carries
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Ratio;

    use super::*;

    fn taken(share: f64, requests: usize) -> usize {
        let explain = Explain::default();
        explain.configure(&config::Explain { sample: Ratio::new(share).unwrap(), ..config::Explain::default() });
        let recorder = explain.recorder();
        (0..requests).filter(|_| recorder.is_sampled()).count()
    }

    #[test]
    fn a_share_of_those_served_is_kept_and_the_first_among_them() {
        assert_eq!((taken(1.0, 100), taken(0.0, 100), taken(0.01, 1)), (100, 0, 1));
        assert!((10..=11).contains(&taken(0.01, 1_000)));
    }

    #[test]
    fn explain_records_nothing_when_off() {
        let explain = Explain::default();
        let off = config::Explain { entries: None, ..config::Explain::default() };
        explain.configure(&off);
        assert!(!explain.is_on() && !explain.recorder().is_sampled());
        explain.configure(&config::Explain::default());
        assert!(explain.is_on() && explain.recorder().is_sampled());
    }
}
