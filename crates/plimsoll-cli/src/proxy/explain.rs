//! What the proxy remembers of requests, in the words of the admin API.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, UNIX_EPOCH};

use plimsoll::address::Address;
use plimsoll::client::{Cluster, FailedAttempt};
use plimsoll_admin::{
    AttemptExplained, CriticalityExplained, Explained, Explanation, FleetExplained, GateExplained, HashExplained,
    Marks, QuotaExplained, Remembered, RequestLimitExplained, SplitExplained, Tap, Tapped, Wanted,
};
use plimsoll_core::Criticality as Level;
use plimsoll_core::admit::{Pressure, Standing};
use plimsoll_core::quota::{Refusal, Refused};
use plimsoll_proxy::explain::{Criticality, Explanation as Known, Gated, HashChoice, Kind, customer_label};
use plimsoll_proxy::split::{SplitView, worst};
use plimsoll_proxy::{Proxy, printable};

/// µCPU of a CPU.
const MICROS: f64 = 1e6;

/// Where backends are now, by cluster and address: asked for when requests are told, so that nothing of it is remembered with each.
#[derive(Default)]
struct Localities(HashMap<String, HashMap<Address, Arc<str>>>);

impl Localities {
    fn of(clusters: &[Cluster]) -> Self {
        let has_some = |cluster: &&Cluster| cluster.config().localities.is_some();
        let backends = |cluster: &Cluster| {
            let of_each = cluster.backends().into_iter().filter_map(|it| Some((it.backend.address(), it.locality?)));
            (cluster.name().to_owned(), of_each.collect())
        };
        Self(clusters.iter().filter(has_some).map(backends).collect())
    }

    fn find(&self, known: &Known) -> Option<String> {
        let backends = self.0.get(known.cluster.as_deref()?)?;
        Some(backends.get(&known.end.backend?)?.to_string())
    }
}

/// Facts about the whole proxy, given with each request.
#[derive(Default)]
pub(super) struct Context {
    localities: Localities,
    splits: Vec<SplitView>,
}

impl Context {
    pub(super) fn of(proxy: &Proxy) -> Self {
        Self { localities: Localities::of(&proxy.clusters()), splits: proxy.splits() }
    }

    fn explanation(&self, known: &Known, now: Instant) -> Explanation {
        let (locality, split) = (self.localities.find(known), split(&self.splits, known));
        Explanation { locality, split, ..explanation(known, now) }
    }
}

/// The side of a split that served a request.
fn split(splits: &[SplitView], known: &Known) -> Option<SplitExplained> {
    let (route, cluster) = (known.route.as_deref()?, known.cluster.as_deref()?);
    // The name of a split has the listeners of its route behind it, if the route names some.
    let is_of_route = |split: &&SplitView| match split.route.strip_prefix(route) {
        Some("") => true,
        Some(rest) => {
            rest.strip_prefix(" at ").is_some_and(|names| names.split(", ").any(|name| *name == *known.listener))
        }
        None => false,
    };
    let split = splits.iter().find(is_of_route)?;
    let place = split.sides.iter().position(|side| side.cluster == cluster)?;
    let report = split.comparisons.get(place.saturating_sub(1))?;
    Some(SplitExplained {
        side: if place == 0 { "main" } else { "canary" },
        share: split.sides[place].share,
        by: split.by.clone(),
        verdict: report.verdict.name(),
        difference: worst(report),
        needed_requests: report.needed,
    })
}

/// Of `known`, the latest first, those that are wanted; and how far back it reaches.
pub(super) fn explained(known: &[Arc<Known>], wanted: &Wanted, context: &Context) -> Explained {
    let now = Instant::now();
    let forms = forms(wanted);
    let is_wanted = |known: &&Arc<Known>| is_wanted(known, &forms);
    let told = |known: &Arc<Known>| context.explanation(known, now);
    let requests = known.iter().filter(is_wanted).take(wanted.most()).map(told).collect();
    let remembered = Kind::ALL.map(|kind| {
        let mut of_kind = known.iter().filter(|known| known.end.kind == kind);
        let requests = of_kind.clone().count();
        let reaches_back_s = of_kind.next_back().map(|first| seconds(now.saturating_duration_since(first.ended)));
        Remembered { outcome: kind.name(), requests, reaches_back_s }
    });
    Explained { requests, remembered: remembered.to_vec() }
}

fn is_wanted(known: &Known, forms: &[Wanted]) -> bool {
    let marks = Marks {
        id: known.id.as_str(),
        outcome: known.end.kind.name(),
        reasons: known.end.reason.map_or([None; 3], |reason| reason.words()),
        criticality: known.criticality.map(|criticality| criticality.level.name()),
        customer: known.customer.as_ref().map(|customer| customer.as_str()),
        cluster: known.cluster.as_deref(),
    };
    forms.iter().any(|wanted| wanted.includes(&marks))
}

/// A reader of the requests of a proxy. It does not keep the proxy alive: a viewer may stay for days.
pub(super) struct ProxyTap {
    proxy: Weak<Proxy>,
    tap: plimsoll_proxy::explain::Tap,
}

impl ProxyTap {
    pub(super) fn new(proxy: &Arc<Proxy>, tap: plimsoll_proxy::explain::Tap) -> Self {
        Self { proxy: Arc::downgrade(proxy), tap }
    }
}

impl Tap for ProxyTap {
    fn look(&mut self, wanted: &Wanted) -> Tapped {
        let plimsoll_proxy::explain::Tapped { explanations, overwritten: missed } = self.tap.look();
        let forms = forms(wanted);
        let mut known: Vec<_> = explanations.into_iter().filter(|known| is_wanted(known, &forms)).collect();
        let left_out = known.len().saturating_sub(wanted.most());
        known.drain(..left_out);
        let mut requests = Vec::with_capacity(known.len());
        if !known.is_empty() {
            let now = Instant::now();
            let context = self.proxy.upgrade().map(|proxy| Context::of(&proxy));
            let told = |known: &Arc<Known>| match &context {
                Some(context) => context.explanation(known, now),
                None => explanation(known, now),
            };
            requests.extend(known.iter().map(told));
        }
        Tapped { requests, left_out: left_out as u64, missed }
    }
}

/// What is wanted, with the customer's name as it may be meant: as its requests give it, and as it is told here.
fn forms(wanted: &Wanted) -> [Wanted; 2] {
    let of = |customer: Option<String>| Wanted { customer, ..wanted.clone() };
    let name = wanted.customer.as_deref();
    let given = name.map(|name| customer_label(name.as_bytes()).as_str().to_owned());
    let told = name.map(|name| name.strip_suffix('…').unwrap_or(name).to_owned());
    [of(given), of(told)]
}

fn explanation(known: &Known, now: Instant) -> Explanation {
    Explanation {
        id: known.id.to_string(),
        id_is_own: known.is_own_id,
        at: seconds(known.at.duration_since(UNIX_EPOCH).unwrap_or_default()),
        ago_s: seconds(now.saturating_duration_since(known.ended)),
        took_ms: millis(known.took),
        listener: known.listener.to_string(),
        client: known.client.to_string(),
        method: known.method.to_string(),
        // On HTTP/2 it may hold any character.
        path: printable(&known.path.to_string()).into_owned(),
        route: known.route.as_ref().map(ToString::to_string),
        cluster: known.cluster.as_ref().map(ToString::to_string),
        split: None,
        criticality: known.criticality.map(|Criticality { level, from, malformed }| CriticalityExplained {
            level: level.name(),
            why: from.text(),
            malformed_values: malformed,
        }),
        customer: known.customer.as_ref().map(ToString::to_string),
        request_limit: known.over.map(|over| RequestLimitExplained {
            requests_per_second: over.limit.rate(),
            burst: over.limit.burst(),
            retry_after_ms: over.after.as_secs_f64() * 1e3,
            dry_run: over.shed().is_none(),
        }),
        gate: known.gate.map(|Gated { decision, is_dry_run, expected, pressure, standing, fleet }| GateExplained {
            decision,
            dry_run: is_dry_run,
            expected_cost_ms: millis(expected),
            pressure: match pressure {
                Pressure::None => "none",
                Pressure::Degrade => "degrade",
                Pressure::Severe => "severe",
            },
            quota: standing.map(|Standing { limit, used, debt }| QuotaExplained {
                hard_limit_cpus: limit,
                customer_used_cpus: cpus(used),
                customer_debt_cpu_s: cpus(debt),
            }),
            fleet: fleet.map(fleet_refusal),
        }),
        hash: known.hash.as_ref().map(|choice| hash(choice, known.end.backend)),
        failed_attempts: known.failed.iter().map(attempt).collect(),
        outcome: known.end.kind.name(),
        status: known.end.status.map(|status| status.as_u16()),
        reason: known.end.word(),
        cause: known.end.reason.and_then(|reason| reason.cause),
        backend: known.end.backend,
        // Known of the backend, not of the request.
        locality: None,
    }
}

/// The words are those of `plimsoll_hash_picks_total`.
fn hash(choice: &HashChoice, backend: Option<Address>) -> HashExplained {
    let place = match (&choice.source, choice.home, backend) {
        (_, _, None) => None,
        (None, ..) => Some("unkeyed"),
        (Some(_), None, _) => None,
        (Some(_), Some((home, _)), Some(backend)) if home == backend => Some("first"),
        (Some(_), Some((_, is_usable)), Some(_)) => Some(if is_usable { "overflow" } else { "moved" }),
    };
    let key = choice.source.as_ref().map(ToString::to_string);
    HashExplained { key, home: choice.home.map(|(home, _)| home), place }
}

fn fleet_refusal(Refused { refusal, is_dry_run, standing, group }: Refused) -> FleetExplained {
    let cut = (refusal == Refusal::Cut).then_some(standing.cut);
    FleetExplained {
        fleet_limit_cpus: cpus(standing.limit as f64 / MICROS),
        fleet_rate_cpus: cpus(standing.rate / MICROS),
        fleet_demand_cpus: standing.fleet.map(|fleet| cpus(fleet.total() as f64 / MICROS)),
        fleet_used_cpus: standing.fleet.map(|fleet| cpus(fleet.used as f64 / MICROS)),
        fleet_cut: cut.map(|cut| Level::ALL[cut.rank].name()),
        fleet_cut_admitted: cut.map(|cut| cut.part),
        fleet_dry_run: is_dry_run,
        fleet_group: group.map(|name| name.as_str().to_owned()),
    }
}

fn attempt(failed: &FailedAttempt) -> AttemptExplained {
    AttemptExplained {
        backend: failed.backend,
        after_ms: millis(failed.after),
        reason: failed.failure.reason(),
        error: failed.failure.to_string(),
        next: failed.next.text(),
    }
}

/// To a ten-thousandth.
fn cpus(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e3).round() / 1e3
}

fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests {
    use http::Method;
    use plimsoll_core::shedding::Label;
    use plimsoll_proxy::explain::{End, Reason};

    use super::*;

    fn of(customer: &[u8]) -> Arc<Known> {
        Arc::new(Known {
            id: Label::of("7"),
            is_own_id: false,
            at: UNIX_EPOCH,
            ended: Instant::now(),
            took: Duration::ZERO,
            listener: "public".into(),
            client: Address::from(([10, 0, 0, 1], 80)),
            method: Method::GET,
            path: Label::of("/"),
            route: None,
            cluster: None,
            criticality: None,
            customer: Some(customer_label(customer)),
            over: None,
            hash: None,
            gate: None,
            failed: Vec::new(),
            end: End { kind: Kind::Refused, status: None, reason: None, backend: None },
        })
    }

    #[test]
    fn a_customer_is_found_by_its_name_and_by_what_is_told_of_it() {
        let long = "n".repeat(Label::MAX_LEN + 9);
        let known = ["O'Neil", "Müller", &long, "ann"].map(|name| of(name.as_bytes()));
        let find = |customer: &str| {
            let wanted = Wanted { customer: Some(customer.to_owned()), ..Wanted::default() };
            explained(&known, &wanted, &Context::default()).requests
        };
        for name in ["O'Neil", "Müller", &long, "ann"] {
            let found = find(name);
            assert_eq!(found.len(), 1, "{name}");
            let told = found[0].customer.as_deref().unwrap();
            assert_eq!(find(told).len(), 1, "{told}");
        }
        assert!(find("O").is_empty() && find("nnn").is_empty());
    }

    #[test]
    fn a_request_is_found_by_every_word_of_its_reason() {
        let reason = Reason { word: "no-backend", cause: Some("connect-failed"), degraded: Some("failed") };
        let mut known = Arc::unwrap_or_clone(of(b"ann"));
        known.end.reason = Some(reason);
        let known = [Arc::new(known)];
        let find = |word: &str| {
            let wanted = Wanted { reason: Some(word.to_owned()), ..Wanted::default() };
            explained(&known, &wanted, &Context::default()).requests
        };
        for word in ["no-backend", "connect-failed", "failed"] {
            let found = find(word);
            assert_eq!(found.len(), 1, "{word}");
            assert_eq!((found[0].reason, found[0].cause), (Some("no-backend"), Some("connect-failed")));
        }
        assert!(find("deadline").is_empty());
    }

    #[test]
    fn a_path_tells_no_terminal_what_to_do() {
        let mut known = Arc::unwrap_or_clone(of(b"ann"));
        known.path = "/\u{9b}2J\u{202e}\u{e4}".into();
        assert_eq!(explanation(&known, Instant::now()).path, "/\\u009b2J\\u202e\u{e4}");
    }
}
