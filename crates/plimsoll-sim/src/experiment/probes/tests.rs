//! Probes in cases that are small enough to compute by hand.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use plimsoll_core::Ratio;

use super::plan::{Arm, Change, Link, Occurrence, Plan, Rule};
use super::{metric_names, run};

fn plan(changes: &[(u64, Occurrence)], arms: &[(&str, Rule)]) -> Plan {
    let change = |(at, event): &(u64, Occurrence)| Change { at: Duration::from_secs(*at), event: *event };
    let arm = |(name, rule): &(&str, Rule)| Arm { name: (*name).to_owned(), rule: *rule, loss: None };
    Plan {
        clients: NonZeroU32::new(20).unwrap(),
        backends: NonZeroU32::new(5).unwrap(),
        changes: changes.iter().map(change).collect(),
        arms: arms.iter().map(arm).collect(),
        ..Plan::default()
    }
}

fn found(plan: &Plan) -> BTreeMap<String, f64> {
    run(plan, 1, &mut |_| ()).metrics
}

#[test]
fn metric_names_lists_exactly_the_metrics_of_a_run() {
    let plan = plan(&[(120, Occurrence::LameDuck), (180, Occurrence::Block)], &[("a", Rule::Notices)]);
    let mut announced = metric_names(&plan);
    announced.sort_unstable();
    assert_eq!(found(&plan).into_keys().collect::<Vec<_>>(), announced);
}

#[test]
fn lossless_notices_take_half_a_round_trip_and_one_datagram() {
    let metrics = found(&plan(&[(120, Occurrence::LameDuck)], &[("a", Rule::Notices)]));
    assert_eq!(metrics["a.notices_per_client"], 1.0);
    // Five responders have a pace of their own: 20 notices at once are within a burst.
    assert_eq!((metrics["a.known_p50"], metrics["a.known_last"]), (1.0, 1.0));
    assert_eq!((metrics["a.probing_share"], metrics["a.wrong_states"]), (1.0, 0.0));
}

#[test]
fn ways_without_notices_learn_by_the_next_query_or_check() {
    let arms = [("polled", Rule::Polled), ("checks", Rule::Checks)];
    let metrics = found(&plan(&[(120, Occurrence::LameDuck)], &arms));
    for (arm, seconds) in [("polled", 24.0), ("checks", 11.0)] {
        let last = metrics[&format!("{arm}.known_last")];
        assert!(last <= seconds * 1e3 + 2.0 && last > seconds * 700.0, "{arm}: {last}");
        assert_eq!(metrics[&format!("{arm}.notices_per_client")], 0.0);
    }
    assert_eq!((metrics["checks.probes"], metrics["checks.inactive_share"]), (0.0, 0.0));
    assert_eq!(metrics["polled.checks_per_second"], 0.0, "probes replace checks");
}

#[test]
fn blocked_udp_brings_checks_back_and_changes_nothing() {
    let mut plan = plan(&[(100, Occurrence::Block)], &[("a", Rule::Notices)]);
    plan.warmup = Duration::from_secs(150);
    let metrics = found(&plan);
    assert!((3.0..=5.0).contains(&metrics["a.resumed_after"]), "{}", metrics["a.resumed_after"]);
    assert_eq!((metrics["a.silenced"], metrics["a.wrong_states"], metrics["a.inactive_share"]), (100.0, 0.0, 0.0));
    assert!((metrics["a.checks_per_second"] - 10.0).abs() < 0.5, "{}", metrics["a.checks_per_second"]);
}

#[test]
fn path_that_opens_again_is_used_again() {
    let mut plan = plan(&[(60, Occurrence::Block), (120, Occurrence::Open)], &[("a", Rule::Notices)]);
    (plan.duration, plan.warmup) = (Duration::from_secs(900), Duration::from_secs(600));
    assert_eq!(found(&plan)["a.inactive_share"], 1.0);
}

#[test]
fn restarts_under_loss_repetition_and_reordering_invent_no_state() {
    let events = [(60, Occurrence::LameDuck), (90, Occurrence::RESTART), (150, Occurrence::LameDuck)];
    let mut plan = plan(&[&events[..], &[(160, Occurrence::RESTART)]].concat(), &[("a", Rule::Notices)]);
    plan.request_every = Some(Duration::from_secs(20));
    plan.link = Link {
        jitter: Duration::from_millis(30),
        loss: Ratio::from_percent(10),
        duplicates: Ratio::from_percent(20),
        ..Link::default()
    };
    for seed in 1..=5 {
        let metrics = run(&plan, seed, &mut |_| ()).metrics;
        assert_eq!(metrics["a.wrong_states"], 0.0, "seed {seed}");
        assert!(metrics["a.probes"] > 1_000.0);
    }
}
