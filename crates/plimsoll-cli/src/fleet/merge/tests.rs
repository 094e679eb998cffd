//! Merges of answers, against sums that are worked out by hand.

use std::time::Duration;

use plimsoll_admin::parts::MAX_ROWS_OF_MANY;
use plimsoll_admin::{LiveBackend, LiveBackends, LiveChange, LiveGate};

use super::*;
use crate::fleet::tests::examples::{AT, fine, many, no_gate, overload};

fn member<'a>(admin: &'a str, live: &'a Live) -> Member<'a> {
    Member { admin, live: Some(live), name: Some(&live.process.name), problem: None, for_s: 60.0, ahead_s: 0.0 }
}

fn named(name: &str, live: Live) -> Live {
    Live { process: LiveProcess { name: name.to_owned(), ..live.process }, ..live }
}

fn merged(members: &[Member<'_>]) -> FleetLive {
    let process = LiveProcess::new("page", "ready", Duration::from_secs(1));
    merge(members, worst_cluster(members), process, AT, None)
}

fn gate(fleet: &FleetLive) -> &LiveGate {
    fleet.live.cluster.as_ref().unwrap().gate.as_ref().unwrap()
}

fn backends(fleet: &FleetLive) -> &LiveBackends {
    &fleet.live.cluster.as_ref().unwrap().backends
}

fn row<'a>(fleet: &'a FleetLive, address: &str) -> &'a LiveBackend {
    backends(fleet).rows.iter().find(|row| row.address == address).unwrap_or_else(|| panic!("no row {address}"))
}

#[test]
fn load_adds_up_and_the_worst_verdict_has_a_name() {
    let (a, b) = (named("edge-1", fine()), named("edge-2", overload()));
    let fleet = merged(&[member("a:1", &a), member("b:1", &b)]);
    let demand = &fleet.live.cluster.as_ref().unwrap().demand;
    assert_eq!(demand[1].offered_cpus, Some(8.4), "2.0 and 6.4");
    assert_eq!(demand[3].shed["overloaded"].qps, 200.0);
    let gate = gate(&fleet);
    assert_eq!((gate.verdict.as_str(), gate.proxy.as_deref()), ("users-affected", Some("edge-2")));
    assert_eq!((gate.capacity_cpus, gate.load_line_cpus, gate.used_cpus), (16.0, 15.7, Some(11.1)));
    assert_eq!(gate.enough_cpus, Some(19.4), "11.4, and the 8 of the proxy that has enough");
    let verdict = fleet.live.verdict.as_ref().unwrap();
    assert_eq!((verdict.verdict.as_str(), verdict.proxy.as_deref()), ("users-affected", Some("edge-2")));
    assert_eq!(fleet.live.process.name, "2 of 2 proxies");
    let traffic = &fleet.live.cluster.as_ref().unwrap().traffic;
    assert_eq!((traffic.requests_qps, traffic.in_flight, traffic.held["sheddable"]), (1_460.0, 132, 0.4));
}

#[test]
fn order_of_the_proxies_changes_rows_alone() {
    let (a, b, c) = (named("a", fine()), named("b", overload()), named("c", many()));
    let [one, two] = [
        merged(&[member("a:1", &a), member("b:1", &b), member("c:1", &c)]),
        merged(&[member("c:1", &c), member("b:1", &b), member("a:1", &a)]),
    ];
    assert_eq!(one.live.clusters, two.live.clusters);
    assert_eq!(one.live.changes, two.live.changes);
    let (one, two) = (one.live.cluster.unwrap(), two.live.cluster.unwrap());
    assert_eq!((&one.demand, &one.traffic, &one.customers), (&two.demand, &two.traffic, &two.customers));
    assert_eq!((&one.backends.rows, one.backends.mean), (&two.backends.rows, two.backends.mean));
}

#[test]
fn proxy_that_does_not_answer_has_a_row_and_no_part() {
    let a = named("edge-1", fine());
    let lost = Member {
        admin: "b:1",
        live: None,
        name: Some("edge-2"),
        problem: Some("connection refused"),
        for_s: 12.0,
        ahead_s: 0.0,
    };
    let alone = merged(&[member("a:1", &a)]);
    let fleet = merged(&[member("a:1", &a), lost]);
    assert_eq!(fleet.live.process.name, "1 of 2 proxies");
    assert_eq!(fleet.live.cluster, alone.live.cluster);
    let row = &fleet.proxies[1];
    assert_eq!((row.answers, row.for_s, row.load.is_none()), (false, 12.0, true));
    assert_eq!((row.name.as_str(), row.problem.as_deref()), ("edge-2", Some("connection refused")));
    let nobody = merged(&[lost]);
    assert_eq!((nobody.live.cluster, nobody.live.process.name.as_str()), (None, "0 of 1 proxies"));
}

#[test]
fn proxy_without_the_cluster_answers_and_has_no_part() {
    let (a, mut b) = (named("edge-1", overload()), named("edge-2", no_gate()));
    b.cluster.as_mut().unwrap().name = "mail".to_owned();
    b.clusters[0].name = "mail".to_owned();
    let fleet = merged(&[member("a:1", &a), member("b:1", &b)]);
    assert_eq!(gate(&fleet).capacity_cpus, 8.0);
    let row = &fleet.proxies[1];
    assert_eq!((row.answers, row.problem.as_deref()), (true, Some("it has no cluster web")));
    let names: Vec<&str> = fleet.live.clusters.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["web", "api", "mail"], "it can be chosen");
    assert_eq!(rank_of(&[member("b:1", &b)], "web"), None);
}

#[test]
fn dry_run_is_no_loss_where_another_proxy_sheds() {
    let (mut a, mut b) = (named("edge-1", overload()), named("edge-2", overload()));
    a.cluster.as_mut().unwrap().gate.as_mut().unwrap().dry_run = true;
    b.cluster.as_mut().unwrap().gate.as_mut().unwrap().verdict = "capacity-short".to_owned();
    let fleet = merged(&[member("a:1", &a), member("b:1", &b)]);
    assert_eq!((gate(&fleet).verdict.as_str(), gate(&fleet).dry_run), ("capacity-short", false));
    let fleet = merged(&[member("a:1", &a), member("c:1", &named("edge-3", fine()))]);
    assert_eq!((gate(&fleet).verdict.as_str(), gate(&fleet).dry_run), ("users-affected", true));
}

#[test]
fn enough_is_unknown_while_a_short_proxy_does_not_know() {
    let (a, mut b) = (overload(), overload());
    b.cluster.as_mut().unwrap().gate.as_mut().unwrap().enough_cpus = None;
    assert_eq!(gate(&merged(&[member("a:1", &a), member("b:1", &b)])).enough_cpus, None);
    assert_eq!(gate(&merged(&[member("a:1", &a), member("b:1", &a)])).enough_cpus, Some(22.8));
}

#[test]
fn shared_backend_is_one_row_with_the_worst_state() {
    let (a, mut b, mut c) = (named("a", overload()), named("b", overload()), named("c", overload()));
    for (live, state) in [(&mut b, "ejected"), (&mut c, "refusing")] {
        let row = &mut live.cluster.as_mut().unwrap().backends.rows[0];
        (row.state, row.reason, row.load) = (state.to_owned(), "connect-failed".to_owned(), None);
        row.in_flight = 2;
    }
    let fleet = merged(&[member("a:1", &a), member("b:1", &b), member("c:1", &c)]);
    assert_eq!((backends(&fleet).total, backends(&fleet).known, backends(&fleet).is_complete), (40, 40, true));
    let first = row(&fleet, "10.0.0.1:80");
    assert_eq!((first.state.as_str(), first.in_flight), ("ejected", 11 + 2 + 2));
    assert_eq!(first.seen.map(|seen| (seen.proxies, seen.in_state)), Some((3, 1)));
    let second = row(&fleet, "10.0.0.2:80");
    assert_eq!((second.load, second.qps), (Some(0.96), Some(120.0 * 0.96)), "reports of the backend itself");
    assert_eq!(second.seen.map(|seen| (seen.proxies, seen.in_state)), Some((3, 3)));
    assert_eq!(backends(&fleet).by_state["healthy"], 37);
    // Loads 0.60 to 0.96 in steps of 0.01: 37 backends.
    assert_eq!(
        (backends(&fleet).max, backends(&fleet).mean, backends(&fleet).waste),
        (Some(0.96), Some(0.78), Some(6.66))
    );
}

#[test]
fn requests_in_flight_of_proxies_add_up_at_a_backend() {
    let with = |loads: [f64; 2]| {
        let mut live = no_gate();
        let backends = &mut live.cluster.as_mut().unwrap().backends;
        for (row, load) in backends.rows.iter_mut().zip(loads) {
            row.load = Some(load);
        }
        backends.rows[2].load = None;
        live
    };
    let (a, b) = (with([6.0, 4.0]), with([1.0, 9.0]));
    let fleet = merged(&[member("a:1", &a), member("b:1", &b)]);
    assert_eq!((row(&fleet, "10.0.0.1:80").load, row(&fleet, "10.0.0.2:80").load), (Some(7.0), Some(13.0)));
    let of = backends(&fleet);
    assert_eq!((of.measure.as_str(), of.max, of.mean, of.waste), ("in-flight", Some(13.0), Some(10.0), Some(6.0)));
    assert_eq!(of.histogram.iter().sum::<u32>(), 2);
}

#[test]
fn cut_lists_stay_small_and_say_what_is_left_off() {
    let (a, b) = (many(), many());
    let fleet = merged(&[member("a:1", &a), member("b:1", &b)]);
    let of = backends(&fleet);
    assert!(!of.is_complete && of.rows.len() <= MAX_ROWS_OF_MANY);
    assert_eq!((of.total, of.by_state["ejected"], of.by_state["healthy"]), (10_000, 500, 9_499));
    assert_eq!(of.left_off + of.rows.iter().filter(|row| row.state != "healthy").count(), 501);
    assert_eq!(of.mean, Some(0.69), "of proxies with as many backends each");
    assert!(serde_json::to_vec(&fleet).unwrap().len() < 24 << 10);
}

#[test]
fn union_of_whole_lists_may_be_too_long_for_a_whole_list() {
    let of = |place: u32| {
        let mut live = overload();
        for row in &mut live.cluster.as_mut().unwrap().backends.rows {
            row.address = format!("10.{place}.{}", row.address);
        }
        live
    };
    let (a, b) = (of(1), of(2));
    let fleet = merged(&[member("a:1", &a), member("b:1", &b)]);
    let of = backends(&fleet);
    assert_eq!((of.total, of.by_state["healthy"], of.is_complete, of.rows.len()), (80, 76, false, MAX_ROWS_OF_MANY));
    assert_eq!((of.left_off, of.histogram.iter().sum::<u32>()), (0, 76));
}

#[test]
fn customers_add_up_by_name() {
    let (a, b) = (overload(), overload());
    let fleet = merged(&[member("a:1", &a), member("b:1", &b)]);
    let customers = &fleet.live.cluster.as_ref().unwrap().customers;
    let names: Vec<&str> = customers.iter().map(|of| of.name.as_str()).collect();
    assert_eq!(names, ["acme", "initech", "hooli"]);
    let acme = &customers[0];
    assert_eq!((acme.offered_cpus, acme.used_cpus, acme.shed["quota"]), (12.4, 5.8, 660.0));
    assert_eq!((acme.soft_limit_cpus, acme.hard_limit_cpus), (4.0, Some(8.0)));
    assert_eq!((acme.fleet.fleet_limit_cpus, acme.fleet.fleet_cut.as_deref()), (Some(20.0), Some("sheddable")));
    assert_eq!(customers[1].hard_limit_cpus, None, "no limit at one is no limit");
}

#[test]
fn changes_are_in_one_order_with_the_names_of_their_proxies() {
    let change = |at: f64, subject: &str| LiveChange {
        at,
        kind: "backend".to_owned(),
        cluster: Some("web".to_owned()),
        subject: subject.to_owned(),
        text: "ejected: success-rate".to_owned(),
        proxies: Vec::new(),
    };
    let with = |name: &str, changes: Vec<LiveChange>| named(name, Live { changes, ..fine() });
    let a = with(
        "a",
        vec![change(AT - 1.0, "10.0.0.1:80"), change(AT - 3.0, "10.0.0.1:80"), change(AT - 50.0, "10.0.0.9:80")],
    );
    let b = with("b", vec![change(AT + 100.0 - 2.0, "10.0.0.1:80"), change(AT + 100.0 - 9.0, "10.0.0.2:80")]);
    let members = [member("a:1", &a), Member { ahead_s: 100.0, ..member("b:1", &b) }];
    let told: Vec<(f64, String, String)> = merged(&members)
        .live
        .changes
        .into_iter()
        .map(|of| ((of.at - AT).round(), of.subject, of.proxies.join(" ")))
        .collect();
    let expected = [
        (-1.0, "10.0.0.1:80", "a b"),
        (-3.0, "10.0.0.1:80", "a"),
        (-9.0, "10.0.0.2:80", "b"),
        (-50.0, "10.0.0.9:80", "a"),
    ];
    assert_eq!(told, expected.map(|(at, subject, names)| (at, subject.to_owned(), names.to_owned())));
}

#[test]
fn sixty_four_proxies_make_an_event_of_a_bounded_size() {
    let lives: Vec<Live> = (0..64).map(|place| named(&format!("edge-{place}.example"), overload())).collect();
    let addresses: Vec<String> = (0..64).map(|place| format!("edge-{place}.example:9900")).collect();
    let members: Vec<_> = addresses.iter().zip(&lives).map(|(admin, live)| member(admin, live)).collect();
    let fleet = merged(&members);
    assert_eq!(gate(&fleet).capacity_cpus, 512.0);
    assert_eq!(fleet.live.changes.len(), 3, "each change once, with 64 names");
    let size = serde_json::to_vec(&fleet).unwrap().len();
    assert!(size < 60 << 10, "{size} bytes");
}

#[test]
fn proxies_of_one_machine_are_told_apart_by_their_addresses() {
    let (a, b, c) = (named("edge-1", overload()), named("edge-1", overload()), named("edge-2", fine()));
    let fleet = merged(&[member("edge-1:9900", &a), member("edge-1:9910", &b), member("edge-2:9900", &c)]);
    let names: Vec<&str> = fleet.proxies.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["edge-1:9900", "edge-1:9910", "edge-2"]);
    assert_eq!(fleet.live.changes[0].proxies, ["edge-1:9900", "edge-1:9910"]);
    assert_eq!(labels(&[(None, "a:1"), (Some(""), "b:1"), (Some("c"), "c:1")]), ["a:1", "b:1", "c"]);
}
