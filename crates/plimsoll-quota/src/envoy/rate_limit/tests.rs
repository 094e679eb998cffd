//! The rate limit service without sockets.

use super::super::message::UInt64;
use super::*;
use crate::config::Config;
use crate::hosted::Beside;
use crate::service::{Callers, Service};

fn at(ms: u64) -> Timestamp {
    Timestamp::from_nanos(ms * 1_000_000)
}

struct Fixture {
    hosted: Arc<Hosted>,
    limits: RateLimits,
    now: Timestamp,
}

impl Fixture {
    /// A service whose first seconds are over.
    fn new(unit: &str, limit: f64) -> Self {
        let text = format!(
            "[services.shop]\nunit = {unit:?}\n[services.shop.customers.acme]\nhard_limit = {limit}\n\
             [services.shop.customers.dry]\nhard_limit = 0\ndry_run = true\n"
        );
        let config = Config::parse("quota.toml", &text).unwrap().services()["shop"].clone();
        let service = Service::new(at(0), 7, config, Callers::Envoys);
        let hosted = Arc::new(Hosted::new(service, Beside::None));
        let limits = RateLimits::new(at(0));
        limits.tick(at(0), &hosted);
        let mut fixture = Self { hosted, limits, now: at(0) };
        (0..70).for_each(|_| fixture.wait(100));
        fixture
    }

    fn wait(&mut self, ms: u64) {
        self.now = self.now + std::time::Duration::from_millis(ms);
        self.hosted.lock().handle_timeout(self.now);
        self.limits.tick(self.now, &self.hosted);
    }

    fn ask(&self, descriptors: Vec<Descriptor>) -> RateLimitResponse {
        let request = RateLimitRequest { domain: "shop".to_owned(), descriptors, hits_addend: 0 };
        self.limits.ask(self.now, &self.hosted, &request)
    }

    fn is_ok(&self, hits: Option<u64>) -> bool {
        self.ask(vec![descriptor(CUSTOMER, "acme", hits)]).overall_code == OK
    }
}

fn descriptor(key: &str, value: &str, hits: Option<u64>) -> Descriptor {
    let entries = vec![Entry { key: key.to_owned(), value: value.to_owned() }];
    Descriptor { entries, limit: None, hits_addend: hits.map(|value| UInt64 { value }) }
}

#[test]
fn requests_within_the_limit_pass_and_twice_the_limit_gets_it() {
    let mut fixture = Fixture::new("requests", 100.0);
    // 200 requests a second: the last 20 of 30 s.
    let mut passed = 0;
    for step in 0..6_000 {
        fixture.wait(5);
        passed += u32::from(fixture.is_ok(None) && step >= 2_000);
    }
    assert!((1_900..=2_100).contains(&passed), "{passed} of 2000");
}

#[test]
fn cpu_is_charged_afterwards_and_a_question_costs_nothing() {
    let mut fixture = Fixture::new("cpus", 0.1);
    // Each costs 2 ms: 50 a second fit.
    let mut passed = 0;
    for step in 0..6_000 {
        fixture.wait(5);
        if fixture.is_ok(Some(0)) {
            assert!(fixture.is_ok(Some(2_000)), "it is done");
            passed += u32::from(step >= 2_000);
        }
    }
    assert!((950..=1_050).contains(&passed), "{passed} of 1000");
}

#[test]
fn all_descriptors_are_checked_and_unknown_ones_are_ok() {
    let mut fixture = Fixture::new("requests", 0.0);
    let mut own = descriptor("path", "/slow", Some(3));
    own.limit = Some(RateLimit { hits_per_unit: 60, unit: 2 });
    let all = vec![
        descriptor(CUSTOMER, "acme", None),
        descriptor(CUSTOMER, "stranger", None),
        descriptor(CUSTOMER, "dry", None),
        descriptor(CUSTOMER, "", Some(u64::MAX)),
        descriptor("path", "/", None),
        own.clone(),
    ];
    let answer = fixture.ask(all);
    let codes: Vec<i32> = answer.statuses.iter().map(|status| status.code).collect();
    assert_eq!((answer.overall_code, codes), (OVER_LIMIT, vec![OVER_LIMIT, OK, OK, OK, OK, OK]));
    assert_eq!(answer.statuses[5].limit_remaining, 57);
    let left = |fixture: &Fixture| fixture.ask(vec![own.clone()]).statuses[0];
    (0..19).for_each(|_| assert_eq!(left(&fixture).code, OK));
    assert_eq!((left(&fixture).code, left(&fixture).duration_until_reset.unwrap().seconds), (OVER_LIMIT, 60));
    fixture.wait(3_000);
    assert_eq!(left(&fixture).code, OK);
    assert_eq!(fixture.ask(Vec::new()).overall_code, OK);
}

#[test]
fn descriptors_of_strangers_are_bounded() {
    let fixture = Fixture::new("requests", 1.0);
    for stranger in 0..MAX_OWN + 100 {
        let mut own = descriptor("path", &stranger.to_string(), None);
        own.limit = Some(RateLimit { hits_per_unit: 10, unit: 1 });
        fixture.ask(vec![own]);
    }
    assert!(fixture.limits.state.lock().own.count() <= MAX_OWN + 1);
    assert_eq!(fixture.ask(vec![descriptor("path", "/", None); 10_000]).statuses.len(), 10_000);
}
