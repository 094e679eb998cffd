//! Streams of Envoys at a service, without sockets.

use super::*;
use crate::config::Config;
use crate::hosted::Beside;
use crate::service::{Callers, Service};

fn at(ms: u64) -> Timestamp {
    Timestamp::from_nanos(ms * 1_000_000)
}

fn hosted(text: &str) -> Arc<Hosted> {
    let config = Config::parse("quota.toml", text).unwrap().services()["shop"].clone();
    let service = Service::new(at(0), 7, config, Callers::Envoys);
    Arc::new(Hosted::new(service, Beside::None))
}

fn requests() -> Arc<Hosted> {
    hosted(
        "[services.shop]\nunit = \"requests\"\n[services.shop.customers.acme]\nhard_limit = 100\n\
         [services.shop.customers.none]\nhard_limit = 0\n\
         [services.shop.customers.dry]\nhard_limit = 1\ndry_run = true\n",
    )
}

fn bucket(key: &str, value: &str) -> BucketId {
    BucketId { bucket: [(key.to_owned(), value.to_owned())].into() }
}

fn usage(customer: &str, elapsed: i64, allowed: u64) -> BucketUsage {
    let time_elapsed = Some(Duration { seconds: elapsed, nanos: 0 });
    BucketUsage { bucket_id: Some(bucket(CUSTOMER, customer)), time_elapsed, allowed, denied: 0 }
}

fn reports(usages: Vec<BucketUsage>) -> UsageReports {
    UsageReports { domain: "shop".to_owned(), usages }
}

struct Envoy {
    stream: QuotaStream,
    queue: mpsc::Receiver<ToTask>,
}

impl Envoy {
    fn new(now: Timestamp, hosted: &Arc<Hosted>, name: &str, first: &UsageReports) -> Self {
        let (stream, queue) = QuotaStream::open(now, Arc::clone(hosted), name.to_owned(), first).unwrap();
        Self { stream, queue }
    }

    fn says(&mut self, now: Timestamp, usages: Vec<BucketUsage>) -> Vec<(BucketId, Option<Kind>)> {
        let answer = self.stream.report(now, &reports(usages), &mut self.queue).unwrap();
        let kind = |action: BucketAction| match action.action {
            Some(Action::Assign(assign)) => {
                let seconds = assign.time_to_live.map_or(0, |time| time.seconds);
                assert!((20..=58).contains(&seconds), "{seconds}");
                (action.bucket_id.unwrap(), assign.strategy.and_then(|strategy| strategy.kind))
            }
            _ => (action.bucket_id.unwrap(), None),
        };
        answer.actions.into_iter().map(kind).collect()
    }

    /// Takes what the owner sends at this time. Returns the requests a second that acme may make then.
    fn pushed(&mut self, now: Timestamp, rate: f64) -> f64 {
        let mut latest = rate;
        while let Ok(message) = self.queue.try_recv() {
            let answer = self.stream.assign(now, &message).unwrap();
            for action in answer.actions {
                if let Some(Action::Assign(Assign { strategy: Some(Strategy { kind: Some(kind) }), .. })) =
                    action.action
                {
                    let Kind::TokenBucket(TokenBucket { tokens_per_fill: Some(tokens), .. }) = kind else { panic!() };
                    latest = f64::from(tokens.value) / 10.0;
                }
            }
        }
        latest
    }

    /// Requests a second that acme may make.
    fn rate(&mut self, now: Timestamp, allowed: u64) -> f64 {
        let answer = self.says(now, vec![usage("acme", 5, allowed)]);
        match answer.as_slice() {
            [(_, Some(Kind::TokenBucket(TokenBucket { tokens_per_fill: Some(tokens), .. })))] => {
                f64::from(tokens.value) / 10.0
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn customers_get_what_their_limit_says() {
    let hosted = requests();
    let mut envoy = Envoy::new(at(0), &hosted, "one", &reports(Vec::new()));
    hosted.lock().handle_timeout(at(6_000));
    let (allow, deny) = (Some(Kind::ALLOW_ALL), Some(Kind::DENY_ALL));
    let one = |envoy: &mut Envoy, id: BucketId| {
        let usage = BucketUsage { bucket_id: Some(id.clone()), time_elapsed: None, allowed: 1, denied: 0 };
        let answer = envoy.says(at(6_000), vec![usage]);
        assert_eq!(answer[0].0, id);
        answer[0].1
    };
    // Alone, it gets all of the limit until it is measured.
    let all = TokenBucket {
        max_tokens: 50,
        tokens_per_fill: Some(UInt32 { value: 1_000 }),
        fill_interval: Some(Duration { seconds: 10, nanos: 0 }),
    };
    for (key, value, expected) in [
        (CUSTOMER, "acme", Some(Kind::TokenBucket(all))),
        (CUSTOMER, "none", deny),
        (CUSTOMER, "dry", allow),
        (CUSTOMER, "stranger", allow),
        (CUSTOMER, "", allow),
        (CUSTOMER, &"x".repeat(257), allow),
        ("client", "acme", allow),
    ] {
        assert_eq!(one(&mut envoy, bucket(key, value)), expected, "{key} {value}");
    }
}

#[test]
fn garbage_changes_nothing_and_is_no_error() {
    let hosted = requests();
    let mut envoy = Envoy::new(at(0), &hosted, "one", &reports(vec![usage("acme", i64::MIN, u64::MAX)]));
    let mut second = bucket(CUSTOMER, "acme");
    second.bucket.insert("path".to_owned(), "/".to_owned());
    let two = BucketUsage { bucket_id: Some(second.clone()), ..usage("acme", 0, 1) };
    let none = BucketUsage { bucket_id: None, ..usage("acme", 0, 1) };
    let empty = BucketUsage { bucket_id: Some(BucketId::default()), ..usage("acme", 0, 1) };
    let huge = BucketUsage { denied: u64::MAX, ..usage("acme", 0, u64::MAX) };
    let answer = envoy.says(at(0), vec![none, empty, huge.clone(), huge.clone(), two]);
    // A second bucket of one customer is abandoned.
    assert_eq!((answer.len(), &answer[0]), (2, &(second, None)));
    hosted.lock().handle_timeout(at(6_000));
    envoy.says(at(6_000), vec![huge]);
    assert!(hosted.lock().named(&crate::name::Name::customer(b"acme")).unwrap().state.held <= 100_000);
}

#[test]
fn sum_of_two_envoys_is_within_the_limit_while_the_load_moves() {
    let hosted = requests();
    let mut one = Envoy::new(at(0), &hosted, "one", &reports(Vec::new()));
    let mut two = Envoy::new(at(0), &hosted, "two", &reports(Vec::new()));
    hosted.lock().handle_timeout(at(6_000));
    let mut rates = [one.rate(at(6_000), 1), two.rate(at(6_000), 1)];
    for step in 1..12_u64 {
        let now = at(6_000 + 5_000 * step);
        // 120 and 20 requests a second, and after 30 s the other way round.
        let counts = if step < 6 { [600, 100] } else { [100, 600] };
        rates[0] = one.rate(now, counts[0]);
        rates[1] = two.rate(now, counts[1]);
        for ms in [20, 40, 100, 200] {
            let now = now + std::time::Duration::from_millis(ms);
            hosted.lock().handle_timeout(now);
            rates = [one.pushed(now, rates[0]), two.pushed(now, rates[1])];
            assert!(rates.iter().sum::<f64>() <= 100.2, "{step}: {rates:?}");
        }
        // The lower rate is free with the second report after the move.
        match step {
            5 => assert!(rates[0] > 80.0 && rates[1] > 13.0, "{rates:?}"),
            7 => assert!(rates[1] > 80.0 && rates[0] > 13.0, "{rates:?}"),
            _ => {}
        }
    }
}

#[test]
fn envoy_that_was_there_before_keeps_its_rate() {
    let hosted = requests();
    let mut envoy = Envoy::new(at(0), &hosted, "one", &reports(vec![usage("acme", 5, 300)]));
    let rate = envoy.rate(at(0), 300);
    assert!((59.0..=63.0).contains(&rate), "{rate}");
    assert!(hosted.lock().is_unsure());
}

#[test]
fn cpu_limit_needs_a_cost_from_backends() {
    let text = "[services.shop.customers.acme]\nhard_limit = 1\n";
    let hosted = hosted(text);
    let mut envoy = Envoy::new(at(0), &hosted, "one", &reports(Vec::new()));
    assert_eq!(envoy.says(at(0), vec![usage("acme", 0, 1)]), []);
}

/// An Envoy that passes 150 of 100 requests a second, alone at a sure service, and its rate after 20 s.
fn alone(hosted: &Arc<Hosted>) -> (Envoy, f64) {
    let mut envoy = Envoy::new(at(0), hosted, "one", &reports(Vec::new()));
    hosted.lock().handle_timeout(at(6_000));
    let rates = (6..=26).step_by(5).map(|second| envoy.rate(at(1_000 * second), 750));
    let rate = rates.last().unwrap();
    assert!((99.0..=100.1).contains(&rate), "{rate}");
    (envoy, rate)
}

#[test]
fn envoy_that_joins_with_the_whole_limit_takes_only_its_part() {
    let hosted = requests();
    let (mut one, mut rate) = alone(&hosted);
    // It passed 200 requests a second until now.
    let first = reports(vec![usage("acme", 5, 1_000)]);
    let mut two = Envoy::new(at(27_000), &hosted, "two", &first);
    let mut other = two.rate(at(27_000), 1_000);
    assert!(other < 2.0, "nothing is free: {other}");
    for ms in (27_000..60_000).step_by(100) {
        hosted.lock().handle_timeout(at(ms));
        (rate, other) = (one.pushed(at(ms), rate), two.pushed(at(ms), other));
        if ms % 5_000 == 1_000 {
            rate = one.rate(at(ms), 750);
        }
        if ms % 5_000 == 2_000 && ms > 27_000 {
            other = two.rate(at(ms), 1_000);
        }
        assert!(rate > 40.0 && rate + other <= 100.2, "{ms}: {rate} {other}");
    }
    // 150 and 200 requests a second.
    assert!((41.0..46.0).contains(&rate) && (54.0..59.0).contains(&other), "{rate} {other}");
}

/// The lowest rate of the first Envoy while another opens a stream each 3 s, each time from another port, and reads
/// no answer.
fn least_beside_reopened_streams(requests_each: u64, first: u64) -> f64 {
    let hosted = requests();
    let (mut one, mut rate) = alone(&hosted);
    let (mut other, mut least) = (None, rate);
    for ms in (27_000..150_000).step_by(100) {
        if ms % 3_000 == 0 {
            // The stream of before ends first.
            drop(other.take());
            let name = format!("127.0.0.1:{ms}");
            let mut envoy = Envoy::new(at(ms), &hosted, &name, &reports(vec![usage("acme", 5, first)]));
            envoy.says(at(ms), vec![usage("acme", 5, requests_each)]);
            other = Some(envoy);
        }
        hosted.lock().handle_timeout(at(ms));
        rate = if ms % 5_000 == 1_000 { one.rate(at(ms), 750) } else { one.pushed(at(ms), rate) };
        least = least.min(rate);
        let held = hosted.lock().named(&crate::name::Name::customer(b"acme")).unwrap().state.held;
        assert!(held <= 98_000, "{ms}: {held}");
    }
    least
}

#[test]
fn envoy_that_reopens_its_stream_leaves_others_more_than_a_third() {
    // It states 200 requests a second, of which the limit is believed.
    let least = least_beside_reopened_streams(1_000, 1_000);
    assert!(least > 36.0, "{least}");
    // It states one request a second.
    let least = least_beside_reopened_streams(5, 5);
    assert!(least > 90.0, "{least}");
}
