//! The advice against retries, with Poisson arrivals at eight tasks.

use plimsoll_core::Criticality;

use crate::fleet::{Fleet, Load, Served};

/// The load of each task after five seconds, for 20 s: a customer with this critical and sheddable demand.
fn served(critical: f64, sheddable: f64) -> [Served; 2] {
    let mut fleet = Fleet::new(1, 8, &[1.0]);
    let cost = 0.002;
    let critical = Load { cost, ..Load::new(1, 0..8, critical) };
    let sheddable = Load { cost, criticality: Criticality::SheddablePlus, ..Load::new(1, 0..8, sheddable) };
    let loads = [critical, sheddable];
    fleet.run(&loads, 5.0);
    let outcome = fleet.run(&loads, 20.0);
    [outcome.of(0), outcome.of(1)]
}

/// The part of the demand that is refused.
fn refused(served: Served) -> f64 {
    served.refused / served.asked
}

/// The part of it with the advice against retries.
fn advised(served: Served) -> f64 {
    served.no_retry / served.refused
}

#[test]
fn chance_near_saturation_is_no_reason_against_retries() {
    // 500 requests a second: over some seconds the load of a task deviates by 2 to 3%. It is 7% above the CPU, or a
    // tenth is shed, with a chance below 1% at each task, and at five of eight with one below 1 in 10^8.
    for load in [0.97, 0.985, 1.0] {
        let [critical, _] = served(load, 0.01);
        assert!((0.002..0.05).contains(&refused(critical)), "{load}: {:.4}", refused(critical));
        assert!(advised(critical) < 0.01, "{load}: {:.3}", advised(critical));
    }
}

#[test]
fn lack_of_cpu_at_all_tasks_is_a_reason_against_retries() {
    // 0.99 of 1.25 CPUs of demand.
    let [critical, _] = served(1.25, 0.01);
    assert!((0.17..0.25).contains(&refused(critical)), "{:.4}", refused(critical));
    assert!(advised(critical) > 0.99, "{:.3}", advised(critical));
}

#[test]
fn sheddable_load_is_no_reason_against_retries_of_critical_requests() {
    // Critical requests take all CPU, so most sheddable ones are refused at all tasks.
    let [critical, sheddable] = served(0.985, 1.0);
    assert!((0.002..0.05).contains(&refused(critical)), "{:.4}", refused(critical));
    assert!(advised(critical) < 0.01, "{:.3}", advised(critical));
    assert!(refused(sheddable) > 0.9, "{:.3}", refused(sheddable));
    assert!(advised(sheddable) > 0.99, "{:.3}", advised(sheddable));
}
