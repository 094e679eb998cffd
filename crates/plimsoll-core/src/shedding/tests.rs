//! Verdicts on loads that last for hours.

extern crate std;

use std::vec::Vec;

use Criticality::{Critical, CriticalPlus, Sheddable, SheddablePlus};

use super::*;

const HOUR: u64 = 3_600;

fn s(seconds: u64) -> Timestamp {
    Timestamp::from_nanos(seconds * 1_000_000_000)
}

/// Requests of one criticality in each second, and the number that is shed.
#[derive(Clone, Copy)]
struct Load {
    criticality: Criticality,
    offered: u32,
    shed: u32,
    reason: Rejection,
    is_expired: bool,
}

const CALM: Load =
    Load { criticality: Critical, offered: 10, shed: 0, reason: Rejection::Overloaded, is_expired: false };
const BATCH: Load =
    Load { criticality: Sheddable, offered: 10, shed: 5, reason: Rejection::Overloaded, is_expired: false };
const HURT: Load =
    Load { criticality: CriticalPlus, offered: 10, shed: 1, reason: Rejection::Overloaded, is_expired: false };

/// CPU-seconds of each request.
const COST: f64 = 0.05;

struct Server {
    shedding: SheddingReport,
    at: u64,
    /// CPU-seconds of each request.
    capacity: f64,
    quota: Quota,
}

impl Server {
    fn new() -> Self {
        Self {
            shedding: SheddingReport::new(s(0), SheddingReportConfig::default()),
            at: 0,
            capacity: 0.5,
            quota: Quota::UNLIMITED,
        }
    }

    fn decide(&mut self, criticality: Criticality, shed: Option<Rejection>, is_retry: bool, is_expired: bool) {
        let (customer, route) = (KeyedName { key: 1, name: &"ann" }, KeyedName { key: 2, name: &"/search" });
        let capacity = self.capacity;
        let quota = self.quota;
        let decision =
            Decision { criticality, cost: COST, is_retry, shed, is_expired, customer, quota, route, capacity };
        self.shedding.on_decision(s(self.at), &decision);
    }

    fn serve(&mut self, seconds: u64, loads: &[Load]) -> &mut Self {
        // In runs of hours, each fifth second stands for five.
        let step = if seconds > 2 * HOUR { 5 } else { 1 };
        for _ in 0..seconds / step {
            for load in loads {
                for n in 0..load.offered {
                    self.decide(load.criticality, (n < load.shed).then_some(load.reason), false, load.is_expired);
                }
            }
            self.at += step;
        }
        self
    }

    fn summary(&mut self) -> Summary {
        self.shedding.summary(s(self.at))
    }

    fn verdict(&mut self) -> Verdict {
        self.summary().verdict
    }
}

#[test]
fn verdict_follows_from_the_load() {
    let quota = |criticality| Load { criticality, reason: Rejection::Quota, ..BATCH };
    let late = Load { reason: Rejection::Deadline, ..BATCH };
    let few = Load { offered: 2_000, shed: 1, ..HURT };
    let (in_queue, expired) =
        (Load { reason: Rejection::Deadline, ..HURT }, Load { reason: Rejection::Deadline, is_expired: true, ..HURT });
    for (what, load, seconds, is) in [
        ("nothing comes", &[][..], 600, Verdict::Fine),
        ("all are served", &[CALM], 600, Verdict::Fine),
        ("batch waits", &[CALM, BATCH], 600, Verdict::AsIntended),
        ("batch has waited for all but twelve hours", &[CALM, BATCH], 12 * HOUR - 60, Verdict::AsIntended),
        ("batch has waited for twelve hours", &[CALM, BATCH], 12 * HOUR + 60, Verdict::CapacityShort),
        ("users lose one in ten", &[HURT, BATCH], 60, Verdict::UsersAffected),
        ("users lose one in ten for a day", &[HURT, BATCH], 24 * HOUR, Verdict::UsersAffected),
        ("users lose one in two thousand", &[few], 60, Verdict::AsIntended),
        ("a customer is at its limit", &[CALM, quota(CriticalPlus)], 600, Verdict::AsIntended),
        ("a customer is at its limit for a day", &[CALM, quota(SheddablePlus)], 24 * HOUR, Verdict::AsIntended),
        ("users lose one in ten to a queue", &[in_queue], 60, Verdict::UsersAffected),
        ("one in ten comes when nobody waits for it", &[expired], 600, Verdict::AsIntended),
        ("batch that is too late for a day", &[CALM, late], 24 * HOUR, Verdict::AsIntended),
    ] {
        assert_eq!(Server::new().serve(seconds, load).verdict(), is, "{what}");
    }
}

#[test]
fn admitted_request_without_a_backend_affects_users() {
    let mut server = Server::new();
    for second in 0..60 {
        server.serve(1, &[CALM]);
        server.shedding.on_lost(s(second), Critical, COST, Rejection::NoBackend);
    }
    let summary = server.summary();
    assert_eq!(summary.verdict, Verdict::UsersAffected);
    let critical = summary.total[Critical.rank()];
    assert_eq!((critical.offered.requests, critical.admitted.requests, critical.shed_total().requests), (600, 600, 60));
}

#[test]
fn verdict_is_kept_when_shedding_pauses_for_minutes() {
    let mut server = Server::new();
    let mut verdicts = Vec::new();
    for _ in 0..120 {
        for load in [&[CALM, BATCH][..], &[CALM], &[CALM], &[CALM]] {
            server.serve(60, load);
            verdicts.push(server.verdict());
        }
    }
    assert!(verdicts.iter().all(|verdict| *verdict == Verdict::AsIntended), "{verdicts:?}");
    // Pauses do not reset it: eight hours of this and five more exceed twelve hours.
    server.serve(5 * HOUR, &[CALM, BATCH]);
    assert_eq!(server.verdict(), Verdict::CapacityShort);
    let affected = Server::new().serve(120, &[HURT]).serve(200, &[CALM]).verdict();
    assert_eq!(affected, Verdict::UsersAffected);
}

#[test]
fn spell_ends_and_is_recorded_after_a_pause_of_five_minutes() {
    let mut server = Server::new();
    server.serve(600, &[HURT, BATCH]).serve(290, &[CALM]);
    assert_eq!(server.verdict(), Verdict::UsersAffected);
    server.serve(30, &[CALM]);
    let summary = server.summary();
    assert_eq!((summary.verdict, summary.shedding_for, summary.enough), (Verdict::Fine, None, None));
    let last = summary.last.expect("there was one");
    assert_eq!((last.ended.as_secs(), last.lasted.as_secs()), (321, 599));
}

#[test]
fn verdict_ends_at_the_right_time_when_no_request_arrives() {
    let mut server = Server::new();
    server.serve(600, &[HURT]);
    server.at += 5 * HOUR;
    let summary = server.summary();
    assert_eq!(summary.verdict, Verdict::Fine);
    let since = 600 + 5 * HOUR - summary.verdict_for.as_secs();
    assert!((890..=920).contains(&since), "{since}");
    server.serve(1, &[BATCH]);
    assert_eq!(server.summary().shedding_for, Some(Duration::from_secs(1)), "a new one");
}

#[test]
fn spell_begins_with_the_first_shed_request() {
    let mut server = Server::new();
    server.serve(1_000, &[CALM]).serve(2_000, &[CALM, BATCH]);
    let summary = server.summary();
    assert_eq!(summary.shedding_for, Some(Duration::from_secs(2_000)));
    assert_eq!(summary.verdict_for, Duration::from_secs(2_000));
}

#[test]
fn enough_is_the_user_visible_peak_or_the_mean_of_all() {
    let enough = |server: &mut Server| server.summary().enough.expect("something was turned away") * 0.98;
    let near = |found: f64, is: f64| assert!((found / is - 1.0).abs() < 0.02, "{found} for {is}");
    // Half a CPU for users and half a CPU of batch, for hours.
    near(enough(Server::new().serve(2 * HOUR, &[CALM, BATCH])), 1.0);
    // Users need ten CPUs for two minutes, within hours of half a CPU of batch.
    let burst = Load { offered: 200, shed: 20, ..HURT };
    let mut server = Server::new();
    server.serve(HOUR, &[BATCH]).serve(120, &[burst, BATCH]).serve(HOUR, &[BATCH]);
    near(enough(&mut server), 10.0);
    // The same cost of batch is averaged over the whole time.
    let bulk = Load { criticality: SheddablePlus, ..burst };
    let mut server = Server::new();
    server.serve(HOUR, &[BATCH]).serve(120, &[bulk, BATCH]).serve(HOUR, &[BATCH]);
    near(enough(&mut server), 0.5 + 10.0 * 120.0 / 7_320.0);
}

#[test]
fn retries_need_no_capacity_of_their_own() {
    let mut server = Server::new();
    for _ in 0..1_200 {
        for n in 0..50 {
            server.decide(Sheddable, (n >= 10).then_some(Rejection::OverloadedNoRetry), n >= 10, false);
        }
        server.at += 1;
    }
    let summary = server.summary();
    let enough = summary.enough.expect("something was turned away");
    assert!((enough * 0.98 / 0.5 - 1.0).abs() < 0.02, "{enough}");
    let [minute, ..] = summary.windows;
    let retried = minute.classes[Sheddable.rank()].retried;
    assert_eq!((retried.requests, minute.user_visible_share()), (40 * minute.span.as_secs(), Some(0.0)));
}

#[test]
fn summary_names_the_heaviest_customer_and_route() {
    let mut server = Server::new();
    let summary = server.serve(300, &[CALM, BATCH]).summary();
    let (customer, route) = (summary.customers[0], summary.routes[0]);
    assert_eq!((customer.name.as_str(), route.name.as_str()), ("ann", "/search"));
    assert!(
        (customer.offered_cost - 20.0 * COST).abs() < 0.05 && (route.shed - 5.0).abs() < 0.25,
        "{customer:?} {route:?}"
    );
    assert_eq!(summary.windows[0].user_visible_share(), Some(0.0));
}

#[test]
fn customer_has_shed_counts_by_cause_limits_and_use() {
    let mut server = Server { quota: Quota::hard(0.25).expect("a limit"), ..Server::new() };
    let over = Load { reason: Rejection::Quota, ..BATCH };
    let summary = server.serve(300, &[over, HURT]).summary();
    let customer = summary.customers[0];
    let by = |reason: Rejection| reason.report_place().map_or(0.0, |place| customer.shed_by[place]);
    assert!(
        (by(Rejection::Quota) - 5.0).abs() < 0.25 && (by(Rejection::Overloaded) - 1.0).abs() < 0.05,
        "{customer:?}"
    );
    assert!((customer.shed - 6.0).abs() < 0.3 && by(Rejection::Deadline) == 0.0, "{customer:?}");
    let used = customer.offered_cost - customer.shed_cost;
    assert!((used - 14.0 * COST).abs() < 0.04, "{customer:?}");
    assert_eq!((customer.quota.most, customer.quota.share.as_f64()), (Some(0.25), 0.25));
    assert_eq!(summary.routes[0].quota, Quota::UNLIMITED);
    server.quota = Quota::hard(0.5).expect("a limit");
    assert_eq!(server.serve(1, &[CALM]).summary().customers[0].quota.most, Some(0.5), "a reload");
}

#[test]
fn reason_in_the_report_has_a_unique_place() {
    let places = Rejection::ALL.into_iter().filter_map(Rejection::report_place);
    assert!(places.eq(0..REASONS));
    assert!(Verdict::ALL.is_sorted());
}

/// Three times the capacity: users lose two of three requests.
const INCIDENT: Load =
    Load { criticality: Critical, offered: 60, shed: 40, reason: Rejection::Overloaded, is_expired: false };

#[test]
fn enough_is_unknown_until_shedding_has_lasted_ten_minutes() {
    let mut server = Server { capacity: 1.0, ..Server::new() };
    server.serve(HOUR, &[CALM]);
    for _ in 0..599 {
        server.serve(1, &[INCIDENT]);
        let summary = server.summary();
        assert!(summary.shedding_for.is_some(), "{summary:?}");
        assert_eq!(summary.enough, None, "after {:?}", summary.shedding_for);
    }
    let summary = server.serve(1, &[INCIDENT]).summary();
    let enough = summary.enough.expect("ten minutes have passed");
    assert!((enough * 0.98 / 3.0 - 1.0).abs() < 0.02, "{enough}");
    // A shorter incident ends before the figure is known.
    let mut server = Server { capacity: 1.0, ..Server::new() };
    let last = server.serve(HOUR, &[CALM]).serve(11, &[INCIDENT]).serve(400, &[CALM]).summary().last;
    assert_eq!(last.map(|last| (last.lasted.as_secs(), last.enough)), Some((10, None)));
}

#[test]
fn enough_is_never_below_capacity_while_users_lose_requests() {
    // A burst of ten seconds in each minute: the mean over a minute is below the capacity.
    for (burst, is_known) in [(INCIDENT, false), (Load { criticality: Sheddable, ..INCIDENT }, true)] {
        let mut server = Server { capacity: 1.0, ..Server::new() };
        for _ in 0..30 {
            server.serve(10, &[burst]).serve(50, &[CALM]);
        }
        let summary = server.summary();
        assert!(summary.shedding_for.is_some_and(|time| time > Duration::from_secs(1_500)), "{summary:?}");
        assert_eq!(summary.enough.is_some(), is_known, "{:?}: {:?}", burst.criticality, summary.enough);
        let last = server.serve(400, &[CALM]).summary().last.expect("it is over");
        assert_eq!(last.enough.is_some(), is_known, "{:?}: {last:?}", burst.criticality);
    }
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(64))]

    /// With any load: a figure below the capacity means that no user lost a request.
    #[test]
    fn enough_below_capacity_means_that_no_user_lost_a_request(
        steps in proptest::collection::vec((1_u64..120, 0_usize..4, 0_u32..5, 0.0..1.0_f64), 1..25),
    ) {
        let mut server = Server { capacity: 0.1, ..Server::new() };
        for (seconds, rank, offered, part) in steps {
            let shed = (f64::from(offered) * part) as u32;
            let load = Load { criticality: Criticality::ALL[rank], offered, shed, ..CALM };
            let summary = server.serve(seconds, &[load]).summary();
            if let (Some(enough), Some(time)) = (summary.enough, summary.shedding_for) {
                let window = server.shedding.history.since(s(server.at), s(server.at - time.as_secs()));
                proptest::prop_assert!(time >= MIN_SPREAD && (enough >= 0.1 || window.visible().lost == 0));
            }
        }
    }
}

#[test]
fn user_visible_share_excludes_expired_requests() {
    let mut window = Window::default();
    assert_eq!(window.user_visible_share(), None, "nothing was shed");
    for (criticality, reason, requests) in [
        (CriticalPlus, Rejection::Quota, 1),
        (Critical, Rejection::Deadline, 4),
        (SheddablePlus, Rejection::Overloaded, 11),
    ] {
        window.classes[criticality.rank()].shed[reason.report_place().unwrap()].requests = requests;
    }
    assert_eq!(window.user_visible_share(), Some(5.0 / 16.0));
    window.classes[Critical.rank()].expired = 1;
    assert_eq!(window.user_visible_share(), Some(4.0 / 16.0));
}

/// Batch is shed all the time, and users lose requests for a minute of it.
#[test]
fn verdict_begins_at_its_update_when_users_were_affected() {
    let mut server = Server::new();
    server.serve(600, &[CALM, BATCH]).serve(60, &[HURT, BATCH]);
    let summary = server.summary();
    assert_eq!(summary.verdict, Verdict::UsersAffected);
    assert!((40..=60).contains(&summary.verdict_for.as_secs()), "{:?}", summary.verdict_for);
    let summary = server.serve(400, &[CALM, BATCH]).summary();
    assert_eq!((summary.verdict, summary.shedding_for), (Verdict::AsIntended, Some(Duration::from_secs(1_060))));
    assert!((90..=110).contains(&summary.verdict_for.as_secs()), "{:?}", summary.verdict_for);
}

/// An update five seconds before the end makes the next one due five seconds after it.
#[test]
fn spell_is_recorded_when_the_next_begins_just_as_it_ends() {
    let mut server = Server::new();
    server.serve(10, &[BATCH]).at += 294;
    assert_eq!(server.summary().shedding_for, Some(Duration::from_secs(304)));
    server.at += 5;
    server.decide(Sheddable, Some(Rejection::Overloaded), false, false);
    let summary = server.summary();
    assert_eq!(summary.shedding_for, Some(Duration::ZERO));
    let last = summary.last.map(|last| (last.lasted.as_secs(), last.ended.as_secs()));
    assert_eq!(last, Some((9, 300)));
}
