//! What sets requests apart: how bad it is to lose one, whose it is, and until when its answer is of use.
//!
//! Each request is drawn by itself, as the requests of unrelated users mix, and not dealt in turn: a
//! server that sheds by class has to do so in bursts of one class, too. Header values are made once
//! and copied. The deadline counts from the moment at which a request was meant to be sent, so what
//! the server is told is what is left of it when the request leaves.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use plimsoll_core::Criticality;
use rand_core::Rng;

use crate::units;

use super::plan::Protocol;
use super::record::{Answer, Failure};
use super::tally::Fate;

const X_CRITICALITY: HeaderName = HeaderName::from_static("x-criticality");
const X_CUSTOMER: HeaderName = HeaderName::from_static("x-customer");
/// The deadline in HTTP, milliseconds: what meshes send.
const X_EXPECTED_MS: HeaderName = HeaderName::from_static("x-envoy-expected-rq-timeout-ms");
/// The deadline in gRPC, a number and a unit.
const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
/// gRPC allows eight digits.
const LONGEST_TOLD_MS: u128 = 99_999_999;

/// Kinds of request by name, each with its part of the whole.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    names: Vec<HeaderValue>,
    /// The sum of the parts up to and including each.
    until: Vec<f64>,
}

impl Parts {
    /// `critical-plus=10,sheddable=90`, in any order; kept from the most critical down.
    pub(crate) fn of_criticalities(text: &str) -> Result<Self, String> {
        let mut parts = parse(text)?;
        let rank = |name: &str| Criticality::from_name(name).map(Criticality::rank);
        for (name, _) in &parts {
            if rank(name).is_none() {
                let known = Criticality::ALL.map(Criticality::name).join(", ");
                return Err(format!("`{name}` is not a criticality; use {known}"));
            }
        }
        parts.sort_by_key(|(name, _)| rank(name));
        Self::new(&parts)
    }

    /// `web=3,batch=1`.
    pub(crate) fn of_customers(text: &str) -> Result<Self, String> {
        Self::new(&parse(text)?)
    }

    fn new(parts: &[(&str, f64)]) -> Result<Self, String> {
        let (mut names, mut until, mut sum) = (Vec::new(), Vec::new(), 0.0);
        for (name, part) in parts {
            // Bytes beyond ASCII may stand in a header, and servers cannot read them as text.
            let value = HeaderValue::from_str(name).ok().filter(|value| value.to_str().is_ok());
            let value = value.ok_or_else(|| format!("`{name}` is not valid in a header; write it in visible ASCII"))?;
            sum += part;
            names.push(value);
            until.push(sum);
        }
        // Each is finite, and their sum need not be; then all but the first would be drawn never or always.
        if !sum.is_finite() {
            return Err("the sum of the parts is too large; use percent".to_owned());
        }
        Ok(Self { names, until })
    }

    /// What they are called, in their order.
    pub(crate) fn names(&self) -> impl Iterator<Item = String> {
        self.names.iter().map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned())
    }

    fn draw(&self, rng: &mut impl Rng) -> usize {
        draw(&self.until, rng)
    }
}

/// A place in a list of parts. `until` has the sum of the parts up to and including each.
pub(super) fn draw(until: &[f64], rng: &mut impl Rng) -> usize {
    let last = until.len() - 1;
    let at = uniform(rng) * until[last];
    // Rounding may make it the sum itself, which lies behind the last.
    until.partition_point(|until| *until <= at).min(last)
}

/// Uniform in [0, 1), in steps of 2^-53.
fn uniform(rng: &mut impl Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

fn parse(text: &str) -> Result<Vec<(&str, f64)>, String> {
    let mut parts: Vec<(&str, f64)> = Vec::new();
    for item in text.split(',') {
        let (name, part) = match item.split_once('=') {
            Some((name, part)) if !name.trim().is_empty() => (name.trim(), part),
            _ => return Err(format!("`{item}` must be of the form NAME=PART, as in this=70,that=30")),
        };
        let part = units::positive(part).map_err(|error| format!("the part of `{name}`: {error}"))?;
        if parts.iter().any(|(other, _)| *other == name) {
            return Err(format!("`{name}` is named twice; give it one part"));
        }
        parts.push((name, part));
    }
    Ok(parts)
}

/// Which of each list a request is, by its place there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kind {
    /// In [`Mix::criticalities`].
    pub(crate) criticality: Option<usize>,
    /// In [`Mix::customers`].
    pub(crate) customer: Option<usize>,
}

/// What sets the requests of a load apart. The default: nothing does.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mix {
    /// What the requests say of their criticality, if anything.
    pub(crate) criticalities: Option<Parts>,
    /// What they say of their customer, if anything.
    pub(crate) customers: Option<Parts>,
    /// How long after a request was meant to be sent its answer is of use; `None` for ever.
    pub(crate) useful_within: Option<Duration>,
    /// Where the server reads how much of that is left; `None` if it is not told.
    pub(crate) deadline: Option<DeadlineHeader>,
}

/// Where a deadline is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeadlineHeader {
    /// `x-envoy-expected-rq-timeout-ms: 250`
    ExpectedMs,
    /// `grpc-timeout: 250m`
    GrpcTimeout,
}

impl DeadlineHeader {
    /// The one that servers of this protocol read.
    pub(crate) fn of(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Http1 | Protocol::H2c => Self::ExpectedMs,
            Protocol::Grpc => Self::GrpcTimeout,
        }
    }

    fn name(self) -> HeaderName {
        match self {
            Self::ExpectedMs => X_EXPECTED_MS,
            Self::GrpcTimeout => GRPC_TIMEOUT,
        }
    }

    /// `left` is rounded down, for a server must not take longer; to 1 ms at least, since 0 stands for no limit at some.
    fn value(self, left: Duration) -> HeaderValue {
        let ms = left.as_millis().clamp(1, LONGEST_TOLD_MS) as u64;
        match self {
            Self::ExpectedMs => HeaderValue::from(ms),
            Self::GrpcTimeout => {
                HeaderValue::try_from(format!("{ms}m")).expect("digits and a letter are visible ASCII")
            }
        }
    }
}

impl Mix {
    /// Whether requests are all alike, and their answers never too late.
    pub(crate) fn is_plain(&self) -> bool {
        self.criticalities.is_none() && self.customers.is_none() && self.useful_within.is_none()
    }

    /// What the next request is.
    pub(crate) fn draw(&self, rng: &mut impl Rng) -> Kind {
        Kind {
            criticality: self.criticalities.as_ref().map(|parts| parts.draw(rng)),
            customer: self.customers.as_ref().map(|parts| parts.draw(rng)),
        }
    }

    /// The headers that it sets, each with the option that makes it do so.
    pub(crate) fn headers(&self) -> impl Iterator<Item = (HeaderName, &'static str)> {
        [
            self.criticalities.as_ref().map(|_| (X_CRITICALITY, "--criticality")),
            self.customers.as_ref().map(|_| (X_CUSTOMER, "--customers")),
            self.deadline.map(|deadline| (deadline.name(), "--tell-deadline")),
        ]
        .into_iter()
        .flatten()
    }

    /// Makes the headers those of a request of this kind, which leaves `lag` after it was meant to.
    pub(crate) fn mark(&self, headers: &mut HeaderMap, kind: Kind, lag: Duration) {
        if let (Some(parts), Some(at)) = (&self.criticalities, kind.criticality) {
            headers.insert(X_CRITICALITY, parts.names[at].clone());
        }
        if let (Some(parts), Some(at)) = (&self.customers, kind.customer) {
            headers.insert(X_CUSTOMER, parts.names[at].clone());
        }
        if let (Some(deadline), Some(within)) = (self.deadline, self.useful_within) {
            headers.insert(deadline.name(), deadline.value(within.saturating_sub(lag)));
        }
    }

    /// What a result is worth that came `latency` after the request was meant to be sent.
    pub(crate) fn fate(&self, latency: Duration, result: &Result<Answer, Failure>) -> Fate {
        match result {
            Ok(answer) if answer.is_ok() => match self.useful_within {
                Some(within) if latency > within => Fate::Late,
                _ => Fate::Useful,
            },
            Ok(answer) if answer.was_shed() => Fate::Shed,
            _ => Fate::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng;
    use rand_pcg::Pcg64Mcg;

    use super::*;

    fn names(parts: &Parts) -> Vec<String> {
        parts.names().collect()
    }

    fn value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
        headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// Seed 5, n = 100,000. A share p has a standard error of sqrt(p(1-p)/n), 0.16% at most; the bound is
    /// 4 of them, so the false-alarm probability of all six together is 4e-4 at most.
    #[test]
    fn each_kind_has_its_part_and_the_lists_are_independent() {
        const N: u32 = 100_000;
        let mix = Mix {
            criticalities: Some(Parts::of_criticalities("sheddable=6,critical-plus=1,critical=3").unwrap()),
            customers: Some(Parts::of_customers("web=0.75,batch=0.25").unwrap()),
            ..Mix::default()
        };
        let mut rng = Pcg64Mcg::seed_from_u64(5);
        let mut counts = [[0_u32; 2]; 3];
        for _ in 0..N {
            let kind = mix.draw(&mut rng);
            counts[kind.criticality.unwrap()][kind.customer.unwrap()] += 1;
        }
        for (row, part) in counts.iter().zip([0.1, 0.3, 0.6]) {
            for (count, of_customer) in row.iter().zip([0.75, 0.25]) {
                let share = f64::from(*count) / f64::from(N);
                assert!((share - part * of_customer).abs() < 0.0064, "{counts:?}");
            }
        }
    }

    #[test]
    fn criticalities_stand_from_the_most_critical_down_and_customers_as_given() {
        let parts = Parts::of_criticalities("sheddable=1, critical=2,critical-plus=3").unwrap();
        assert_eq!(names(&parts), ["critical-plus", "critical", "sheddable"]);
        assert_eq!(parts.until, [3.0, 5.0, 6.0]);
        assert_eq!(names(&Parts::of_customers("web=1,batch=1").unwrap()), ["web", "batch"]);
    }

    #[test]
    fn mistakes_name_the_place_and_the_help() {
        for (text, part) in [
            ("critical", "NAME=PART"),
            ("=3", "NAME=PART"),
            ("critical=1,", "NAME=PART"),
            ("Critical=1", "use critical-plus, critical, sheddable-plus, sheddable"),
            ("critical=0", "the part of `critical`: must be greater than zero"),
            ("critical=x", "the part of `critical`: `x` is not a number"),
            ("critical=1,critical=2", "`critical` is named twice"),
            ("critical=1e308,sheddable=1e308", "percent"),
        ] {
            let error = Parts::of_criticalities(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert!(Parts::of_customers("b\u{fc}ro=1").unwrap_err().contains("ASCII"));
    }

    #[test]
    fn a_request_carries_what_it_is_and_what_is_left_of_its_deadline() {
        let mix = Mix {
            criticalities: Some(Parts::of_criticalities("critical=1,sheddable=1").unwrap()),
            customers: Some(Parts::of_customers("web=1").unwrap()),
            useful_within: Some(Duration::from_millis(250)),
            deadline: Some(DeadlineHeader::of(Protocol::Http1)),
        };
        let mut headers = HeaderMap::new();
        let kind = Kind { criticality: Some(1), customer: Some(0) };
        mix.mark(&mut headers, kind, Duration::from_micros(10_500));
        assert_eq!(value(&headers, "x-criticality"), Some("sheddable"));
        assert_eq!(value(&headers, "x-customer"), Some("web"));
        assert_eq!(value(&headers, "x-envoy-expected-rq-timeout-ms"), Some("239"));

        mix.mark(&mut headers, kind, Duration::from_secs(1));
        assert_eq!(value(&headers, "x-envoy-expected-rq-timeout-ms"), Some("1"));
        let grpc = Mix { deadline: Some(DeadlineHeader::of(Protocol::Grpc)), ..mix };
        grpc.mark(&mut headers, kind, Duration::ZERO);
        assert_eq!(value(&headers, "grpc-timeout"), Some("250m"));
    }

    #[test]
    fn a_mix_of_nothing_leaves_requests_alone() {
        let mix = Mix::default();
        assert!(mix.is_plain());
        let mut headers = HeaderMap::new();
        let kind = mix.draw(&mut Pcg64Mcg::seed_from_u64(1));
        mix.mark(&mut headers, kind, Duration::ZERO);
        assert!(headers.is_empty());
    }

    #[test]
    fn an_answer_is_useful_when_it_is_ok_and_in_time_and_a_shed_one_is_no_other_failure() {
        let mix = Mix { useful_within: Some(Duration::from_millis(250)), ..Mix::default() };
        let answer = |status, marked_shed| {
            Ok(Answer { status, grpc: None, backend: None, bytes: 0, marked_shed, by_limit: false, cost_us: None })
        };
        for (ms, result, fate) in [
            (250, answer(200, false), Fate::Useful),
            (251, answer(200, false), Fate::Late),
            (1, answer(503, false), Fate::Shed),
            (1, answer(429, false), Fate::Shed),
            (1, answer(504, true), Fate::Shed),
            (1, answer(504, false), Fate::Failed),
            (1, Err(Failure::Closed), Fate::Failed),
        ] {
            assert_eq!(mix.fate(Duration::from_millis(ms), &result), fate, "{ms} {result:?}");
        }
        assert_eq!(Mix::default().fate(Duration::from_secs(9), &answer(200, false)), Fate::Useful);
    }
}
