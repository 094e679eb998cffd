use plimsoll_core::subset::Algorithm;

use super::*;

fn number(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).expect("not zero")
}

fn row(clients: u32, backends: u32, size: u32) -> Row {
    Row { clients: number(clients), backends: number(backends), size: number(size), published: None, failures: 0 }
}

fn plan(algorithms: &[Algorithm], rows: &[Row]) -> Plan {
    Plan {
        rows: rows.to_vec(),
        arms: algorithms.iter().map(|a| Arm::from(*a)).collect(),
        draws: NonZeroU32::MIN,
        even: None,
    }
}

#[test]
fn the_metrics_found_are_those_announced() {
    let published = Some(Published { least: 3, most: 9 });
    let plan = Plan {
        rows: vec![Row { published, failures: 2, ..row(20, 12, 5) }, row(7, 12, 5)],
        draws: number(3),
        even: Some(Ratio::from_percent(10)),
        ..Plan::default()
    };
    let found: Vec<String> = plan.run(1, &mut |_| {}).metrics.into_keys().collect();
    let mut announced = plan.metrics();
    announced.sort_unstable();
    assert_eq!(found, announced);
}

#[test]
fn the_book_s_small_fleet_has_two_or_three_clients_each() {
    let findings = plan(&[Algorithm::Deterministic], &[row(10, 12, 3)]).run(0, &mut |_| {});
    assert_eq!(findings.metrics["deterministic.10x12x3.least"], 2.0);
    assert_eq!(findings.metrics["deterministic.10x12x3.most"], 3.0);
}

#[test]
fn random_subsets_are_as_uneven_as_binomial_draws_are() {
    // Connections are binomial (300, 0.3): mean 90, deviation 7.94. The extremes of 300 such lie about 2.9 deviations away,
    // 67 and 113; over 50 draws their mean varies by less than 1.
    let findings = Plan { draws: number(50), ..plan(&[Algorithm::Random], &[row(300, 300, 90)]) }.run(3, &mut |_| {});
    let (least, most) = (findings.metrics["random.300x300x90.least"], findings.metrics["random.300x300x90.most"]);
    assert!((66.0..70.0).contains(&least) && (110.0..114.5).contains(&most), "{least}..{most}");
}

#[test]
fn one_more_backend_moves_to_the_ledger_no_more_than_its_share() {
    let findings = plan(&[Algorithm::Ledger], &[row(50, 1000, 20), row(137, 60, 10)]).run(0, &mut |_| {});
    for name in ["50x1000x20", "137x60x10"] {
        let excess = findings.metrics[&format!("ledger.{name}.excess_add_backend")];
        assert!(excess <= 1.0, "{name}: {excess}");
        assert!(findings.metrics[&format!("ledger.{name}.spread")] <= 1.0);
    }
}

#[test]
fn clients_that_are_alike_send_all_of_a_failed_backend_to_one_other() {
    let mut alike = Arm::from(Algorithm::Deterministic);
    alike.name = "one shuffle".to_owned();
    alike.distinct_clients = Some(number(30));
    let row = row(300, 300, 10);
    let plan = Plan { arms: vec![Arm::from(Algorithm::Deterministic), alike], ..plan(&[], &[row]) };
    let findings = plan.run(0, &mut |_| {});
    // Ten clients each: all to one, or nearly each to another.
    assert!((findings.metrics["one shuffle.300x300x10.takers"] - 0.1).abs() < 1e-9);
    assert!(findings.metrics["deterministic.300x300x10.takers"] > 0.9);
}

#[test]
fn algorithm_has_one_colour_in_every_figure() {
    let looks = |algorithms: &[Algorithm]| {
        let findings = plan(algorithms, &[row(10, 12, 3)]).run(0, &mut |_| {});
        findings.figures[0].series.iter().map(|series| series.look.colour).collect::<Vec<_>>()
    };
    let all = looks(&Algorithm::ALL);
    assert_eq!(looks(&[Algorithm::ALL[3], Algorithm::ALL[1]]), [all[3], all[1]]);
    assert_eq!(looks(&[Algorithm::Random, Algorithm::Random]), [None, None], "they could not be told apart");
}

#[test]
fn series_of_one_algorithm_differ_by_their_dashes() {
    let rows = [2, 4, 6, 8].map(|size| row(20, 12, size));
    let failing = rows.map(|row| Row { failures: 1, ..row });
    for rows in [rows, failing] {
        let findings = plan(&[Algorithm::Rocksteadier], &rows).run(0, &mut |_| {});
        let looks: Vec<_> = findings.figures[0].series.iter().map(|series| series.look).collect();
        assert_eq!(looks.iter().map(|look| look.dashed).collect::<Vec<_>>(), [false, true]);
        assert_eq!(looks[0].colour, looks[1].colour);
    }
}
