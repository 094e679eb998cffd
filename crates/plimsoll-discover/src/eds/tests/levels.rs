//! States and weights of endpoints, as a `ClusterLoadAssignment` lists them.

use plimsoll::discover::{Endpoint, Readiness};

use super::super::assignment::{self, read};
use super::super::levels::LocalityFrom;
use super::super::message::UInt32;
use super::build::{self, Localities, any, locality};

const A: &str = "10.0.0.1:80";
const B: &str = "10.0.0.2:80";
const C: &str = "10.0.0.3:80";
const D: &str = "10.0.0.4:80";
const HEALTHY: i32 = 1;
const UNHEALTHY: i32 = 2;
const DRAINING: i32 = 3;
const TIMEOUT: i32 = 4;
const DEGRADED: i32 = 5;

fn read_from(
    endpoints: Vec<Localities>,
    from: LocalityFrom,
) -> Result<assignment::Assignment, assignment::AssignmentError> {
    read(any(&build::assignment("web", endpoints)).value, from)
}

fn list(endpoints: Vec<Localities>) -> Vec<Endpoint> {
    read_from(endpoints, LocalityFrom::default()).unwrap().endpoints
}

/// One letter for each state, in the order of the addresses.
fn states(list: &[Endpoint]) -> String {
    let letter = |endpoint: &Endpoint| match endpoint.readiness {
        Readiness::Ready => 'R',
        Readiness::Starting => 's',
        Readiness::Draining => 'd',
    };
    list.iter().map(letter).collect()
}

fn weights(list: &[Endpoint]) -> Vec<f64> {
    list.iter().map(|endpoint| endpoint.weight.as_f64()).collect()
}

/// Addresses in a locality, with their health.
fn health(priority: u32, endpoints: &[(&str, i32)]) -> Localities {
    let mut all = locality("", &endpoints.iter().map(|(address, _)| *address).collect::<Vec<_>>());
    for (endpoint, (_, status)) in all.lb_endpoints.iter_mut().zip(endpoints) {
        endpoint.health_status = *status;
    }
    Localities { priority, ..all }
}

fn weighted(weight: Option<u32>, endpoints: &[(&str, u32)]) -> Localities {
    let mut all = locality("", &endpoints.iter().map(|(address, _)| *address).collect::<Vec<_>>());
    for (endpoint, (_, weight)) in all.lb_endpoints.iter_mut().zip(endpoints) {
        endpoint.load_balancing_weight = Some(UInt32 { value: *weight });
    }
    Localities { load_balancing_weight: weight.map(|value| UInt32 { value }), ..all }
}

#[test]
fn health_decides_on_the_state() {
    for (statuses, expected) in [
        ([0, HEALTHY, UNHEALTHY, TIMEOUT], "RRss"),
        ([DRAINING, HEALTHY, HEALTHY, 77], "dRRR"),
        // 3 · 1.4 > 4 > 2 · 1.4
        ([HEALTHY, HEALTHY, HEALTHY, DEGRADED], "RRRs"),
        ([HEALTHY, HEALTHY, UNHEALTHY, DEGRADED], "RRsR"),
        ([DEGRADED, DEGRADED, DRAINING, UNHEALTHY], "RRds"),
        // The checks of the control plane fail everywhere.
        ([UNHEALTHY, TIMEOUT, DRAINING, UNHEALTHY], "RRdR"),
        ([DRAINING; 4], "dddd"),
    ] {
        let endpoints: Vec<_> = [A, B, C, D].into_iter().zip(statuses).collect();
        assert_eq!(states(&list(vec![health(0, &endpoints)])), expected, "{statuses:?}");
    }
}

#[test]
fn first_level_with_a_usable_endpoint_is_in_use() {
    for (statuses, flat, by_priority) in [
        ([HEALTHY, HEALTHY, HEALTHY, HEALTHY], "RRss", "RRRR"),
        ([HEALTHY, UNHEALTHY, HEALTHY, DRAINING], "Rssd", "RsRd"),
        ([UNHEALTHY, DRAINING, HEALTHY, UNHEALTHY], "sdRs", "sdRs"),
        ([UNHEALTHY, UNHEALTHY, DEGRADED, UNHEALTHY], "ssRs", "ssRs"),
        ([UNHEALTHY, UNHEALTHY, UNHEALTHY, TIMEOUT], "RRss", "RRRR"),
        ([DRAINING, DRAINING, DRAINING, TIMEOUT], "dddR", "dddR"),
    ] {
        let levels = |a, b| {
            let endpoints: Vec<_> = [A, B, C, D].into_iter().zip(statuses).collect();
            vec![health(b, &endpoints[2..]), health(a, &endpoints[..2])]
        };
        // Gaps have no effect.
        assert_eq!(states(&list(levels(0, 1))), flat, "{statuses:?}");
        assert_eq!(states(&list(levels(3, 128))), flat, "{statuses:?}");
        let all = read_from(levels(0, 1), LocalityFrom::Priority).unwrap().endpoints;
        assert_eq!(states(&all), by_priority, "{statuses:?}");
        assert_eq!(all[3].locality.as_deref(), Some("1"));
    }
}

#[test]
fn weights_stay_unless_localities_have_weights() {
    assert_eq!(weights(&list(vec![weighted(None, &[(A, 3)]), locality("", &[B])])), [3.0, 1.0]);
    // Istio: each locality has the sum of its endpoints.
    let istio = vec![weighted(Some(4), &[(A, 1), (B, 3)]), weighted(Some(2), &[(C, 2)])];
    assert_eq!(weights(&list(istio)), [1.0, 3.0, 2.0]);
    // A quarter of the load for the first locality: 1.5 of 6.
    let quarter = vec![weighted(Some(1), &[(A, 1), (B, 2)]), weighted(Some(3), &[(C, 3)])];
    assert_eq!(weights(&list(quarter)), [0.5, 1.0, 4.5]);
    // A locality without a weight beside it gets no request, and has no share. One without endpoints neither.
    let mixed = vec![weighted(Some(9), &[(A, 1), (B, 3)]), weighted(None, &[(C, 5)]), weighted(Some(7), &[])];
    let found = list(mixed);
    assert_eq!((states(&found), weights(&found)), ("RRs".to_owned(), vec![1.0, 3.0, 5.0]));
    // So it does not make its level usable.
    let mut unfit = weighted(Some(1), &[(A, 1)]);
    unfit.lb_endpoints[0].health_status = UNHEALTHY;
    let standby = Localities { priority: 1, ..locality("", &[C]) };
    assert_eq!(states(&list(vec![unfit, locality("", &[B]), standby])), "ssR");
    // Levels are apart.
    let level = Localities { priority: 1, ..weighted(Some(50), &[(B, 1)]) };
    assert_eq!(weights(&list(vec![weighted(None, &[(A, 2)]), level])), [2.0, 1.0]);
}

#[test]
fn share_of_a_locality_falls_with_its_usable_endpoints() {
    let mut half = weighted(Some(1), &[(A, 1), (B, 1)]);
    half.lb_endpoints[1].health_status = UNHEALTHY;
    let found = list(vec![half, weighted(Some(1), &[(C, 1), (D, 1)])]);
    assert_eq!((states(&found), weights(&found)), ("RsRR".to_owned(), vec![1.0; 4]));
}

#[test]
fn weights_shrink_together_to_the_range() {
    let found = list(vec![weighted(None, &[(A, u32::MAX), (B, u32::MAX / 2), (C, 1)])]);
    let [a, b, c] = weights(&found)[..] else { panic!("three") };
    assert!(a == 1000.0 && (b - 500.0).abs() < 0.001 && c == 0.001, "{found:?}");
}

#[test]
fn first_entry_of_an_address_counts() {
    let twice = vec![health(0, &[(A, HEALTHY)]), health(1, &[(A, DRAINING), (B, HEALTHY)])];
    assert_eq!(states(&list(twice.clone())), "Rs");
    // The order is that of the resource, and not of priorities.
    assert_eq!(states(&list(twice.into_iter().rev().collect())), "dR");
}
