//! What is told of single requests: `GET /api/v1/explain`.
//!
//! Whoever runs a fleet remembers requests in whatever form is cheap, asks [`Wanted`] which of them are to be told, and writes those
//! alone as an [`Explanation`].

use plimsoll::address::Address;
use serde::{Deserialize, Serialize};

/// Which requests are to be told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// Those with this id.
    #[serde(skip)]
    pub id: Option<String>,
    /// Those that ended so: `refused`, `failed`, `retried`, `served`.
    pub outcome: Option<String>,
    /// Those that were not served for this reason.
    pub reason: Option<String>,
    /// Those of this criticality.
    pub criticality: Option<String>,
    /// Those of this customer.
    pub customer: Option<String>,
    /// Those to this cluster.
    pub cluster: Option<String>,
    /// How many at most.
    pub last: Option<usize>,
}

/// What a request is chosen by.
#[derive(Clone, Copy, Debug, Default)]
pub struct Marks<'a> {
    /// Its id.
    pub id: &'a str,
    /// How it ended.
    pub outcome: &'a str,
    /// Why it was not served: the word in its response, and other words for the same.
    pub reasons: [Option<&'a str>; 3],
    /// How critical it is.
    pub criticality: Option<&'a str>,
    /// Whose it is.
    pub customer: Option<&'a str>,
    /// Where it went.
    pub cluster: Option<&'a str>,
}

impl Wanted {
    /// Told unless more, or fewer, are asked for: what fits on a screen or two.
    const USUAL: usize = 50;

    /// Told at most: of an answer of a few hundred bytes each, so that one to a question takes no more than a megabyte.
    pub(crate) const MOST: usize = 1000;

    /// How many are to be told at most.
    #[must_use]
    pub fn most(&self) -> usize {
        self.last.unwrap_or(Self::USUAL)
    }

    /// Whether this one is to be told.
    #[must_use]
    pub fn includes(&self, marks: &Marks<'_>) -> bool {
        let is = |wanted: &Option<String>, found: Option<&str>| wanted.is_none() || wanted.as_deref() == found;
        is(&self.id, Some(marks.id))
            && is(&self.outcome, Some(marks.outcome))
            && (self.reason.is_none() || marks.reasons.into_iter().flatten().any(|word| is(&self.reason, Some(word))))
            && is(&self.criticality, marks.criticality)
            && is(&self.customer, marks.customer)
            && is(&self.cluster, marks.cluster)
    }
}

/// What is remembered.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Explained {
    /// The requests that are wanted, the latest first.
    pub requests: Vec<Explanation>,
    /// How far back what is remembered reaches.
    pub remembered: Vec<Remembered>,
}

/// What is remembered of requests that ended in the same way.
#[derive(Clone, Debug, Serialize)]
pub struct Remembered {
    /// How they ended.
    pub outcome: &'static str,
    /// How many there are.
    pub requests: usize,
    /// How long ago the first of them ended, in seconds; `null` without any.
    pub reaches_back_s: Option<f64>,
}

/// What became of a request, and why.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Explanation {
    /// By what it can be asked about.
    pub id: String,
    /// Its sender had given it none.
    pub id_is_own: bool,
    /// When the head of its answer was there, in seconds of Unix time.
    pub at: f64,
    /// How long ago that was, in seconds.
    pub ago_s: f64,
    /// How long it took until then, in milliseconds.
    pub took_ms: f64,
    /// Where it came in.
    pub listener: String,
    /// Who sent it.
    pub client: String,
    /// Its method.
    pub method: String,
    /// Its path, without the query; a long one is cut.
    pub path: String,
    /// The route that it took.
    pub route: Option<String>,
    /// Where that leads.
    pub cluster: Option<String>,
    /// Its side, if its route splits requests over clusters.
    pub split: Option<SplitExplained>,
    /// How critical it is.
    pub criticality: Option<CriticalityExplained>,
    /// Whose it is.
    pub customer: Option<String>,
    /// The limit on its customer's requests; absent for one within it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_limit: Option<RequestLimitExplained>,
    /// What its gate said.
    pub gate: Option<GateExplained>,
    /// The choice of the backend by the policy `hash`; absent under another policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<HashExplained>,
    /// Attempts at backends that failed.
    pub failed_attempts: Vec<AttemptExplained>,
    /// How it ended: `refused`, `failed`, `retried`, `served`.
    pub outcome: &'static str,
    /// Of the answer; `None` where there was none, as in a black hole.
    pub status: Option<u16>,
    /// Why it was not served: the word in its response.
    pub reason: Option<&'static str>,
    /// A narrower word for the cause, such as `connect-failed` of a `no-backend`; `None` if there is none.
    pub cause: Option<&'static str>,
    /// Who answered, or was asked last.
    #[serde(serialize_with = "address_text")]
    pub backend: Option<Address>,
    /// The locality that this backend is in now; `None` where its cluster has none, or it is gone.
    pub locality: Option<String>,
}

/// The side of a split that served a request, and the comparison now.
#[derive(Clone, Debug, Serialize)]
pub struct SplitExplained {
    /// `main` or `canary`.
    pub side: &'static str,
    /// The share of requests that this side is to get, in [0, 1].
    pub share: f64,
    /// The fact that keeps a user on one side; `None` for nothing.
    pub by: Option<String>,
    /// The verdict on this canary; of the main version, on the first canary.
    pub verdict: &'static str,
    /// The differences that decided, in words; empty while nothing is known.
    pub difference: String,
    /// Estimate of the requests of the canary that an undecided verdict still needs.
    pub needed_requests: Option<u64>,
}

/// The choice of a backend by the policy `hash`.
#[derive(Clone, Debug, Serialize)]
pub struct HashExplained {
    /// The source of the key, such as `header:x-user`; `None` for a request without a key.
    pub key: Option<String>,
    /// The home of the key: its backend unless that is unusable or at its bound.
    #[serde(serialize_with = "address_text")]
    pub home: Option<Address>,
    /// The place of the backend in the order of the key: `first` (the home), `moved` (the home was
    /// unusable), `overflow`, or `unkeyed`. `None` if it is not known.
    pub place: Option<&'static str>,
}

/// How critical a request is, and why.
#[derive(Clone, Debug, Serialize)]
pub struct CriticalityExplained {
    /// How critical.
    pub level: &'static str,
    /// Who says so, in words.
    pub why: &'static str,
    /// Values of its headers that could not be read.
    pub malformed_values: u8,
}

/// What a gate said of a request.
#[derive(Clone, Debug, Serialize)]
pub struct GateExplained {
    /// `admitted`, or why not.
    pub decision: &'static str,
    /// It is let in all the same.
    pub dry_run: bool,
    /// CPU time that it was expected to cost, in milliseconds.
    pub expected_cost_ms: f64,
    /// How near requests as critical were to being turned away: `none`, `degrade`, `severe`.
    pub pressure: &'static str,
    /// The customer's hard limit and use of it, of a request that was shed for its quota.
    #[serde(flatten)]
    pub quota: Option<QuotaExplained>,
    /// The refusal by the customer's limit over the fleet.
    #[serde(flatten)]
    pub fleet: Option<FleetExplained>,
}

/// Both sides of a refusal by a limit over the fleet.
#[derive(Clone, Debug, Serialize)]
pub struct FleetExplained {
    /// The limit over all tasks, in CPUs.
    pub fleet_limit_cpus: f64,
    /// The part of it that this task may use.
    pub fleet_rate_cpus: f64,
    /// CPUs that the customer, or its group, asks for at all tasks. `null`: not known.
    pub fleet_demand_cpus: Option<f64>,
    /// CPUs that it uses at all tasks.
    pub fleet_used_cpus: Option<f64>,
    /// The criticality that is admitted in part: all below it are refused. `null`: the rate is used up.
    pub fleet_cut: Option<&'static str>,
    /// The admitted part of that criticality.
    pub fleet_cut_admitted: Option<f32>,
    /// Whether the refusal is only counted.
    pub fleet_dry_run: bool,
    /// The group, if its limit refuses; absent if the customer's own limit does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet_group: Option<String>,
}

/// The limit on requests that a request is over.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct RequestLimitExplained {
    /// Requests per second of the customer.
    pub requests_per_second: f64,
    /// Requests at once.
    pub burst: u32,
    /// Time until the customer's next request, in milliseconds.
    pub retry_after_ms: f64,
    /// It is forwarded all the same.
    pub dry_run: bool,
}

/// Both sides of a refusal for quota.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct QuotaExplained {
    /// The customer's hard limit, in CPUs.
    pub hard_limit_cpus: f64,
    /// CPUs that the customer used in the last second.
    pub customer_used_cpus: f64,
    /// CPU-seconds of earlier requests above the limit, to be paid off first.
    pub customer_debt_cpu_s: f64,
}

#[expect(clippy::ref_option, reason = "as serde calls it")]
fn address_text<S: serde::Serializer>(address: &Option<Address>, serializer: S) -> Result<S::Ok, S::Error> {
    address.map(|address| address.to_string()).serialize(serializer)
}

/// An attempt that failed.
#[derive(Clone, Debug, Serialize)]
pub struct AttemptExplained {
    /// Where.
    #[serde(serialize_with = "address_text")]
    pub backend: Option<Address>,
    /// When it had failed, since the request came, in milliseconds.
    pub after_ms: f64,
    /// Why, in a word.
    pub reason: &'static str,
    /// Why, in words.
    pub error: String,
    /// What came of it, in words.
    pub next: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_asked_for_must_be_so() {
        let marks = Marks {
            id: "7",
            outcome: "refused",
            reasons: [Some("quota"), Some("limit"), None],
            customer: Some("ann"),
            ..Marks::default()
        };
        let some = |text: &str| Some(text.to_owned());
        assert!(Wanted::default().includes(&marks));
        assert!(Wanted { reason: some("quota"), customer: some("ann"), ..Wanted::default() }.includes(&marks));
        assert!(Wanted { reason: some("limit"), ..Wanted::default() }.includes(&marks), "another word for it");
        assert!(!Wanted { reason: some("overloaded"), ..Wanted::default() }.includes(&marks));
        assert!(!Wanted { reason: some("quota"), customer: some("bob"), ..Wanted::default() }.includes(&marks));
        assert!(!Wanted { cluster: some("web"), ..Wanted::default() }.includes(&marks), "it has none");
        assert!(!Wanted { id: some("8"), ..Wanted::default() }.includes(&marks));
    }
}
