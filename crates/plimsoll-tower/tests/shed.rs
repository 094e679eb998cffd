//! The shed layer: admission up to the capacity, by criticality, and exact accounts of costs.

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll_core::admit::{AdmissionConfig, Mode};
use plimsoll_core::{Criticality, Rejection};
use plimsoll_tower::classify::with_facts;
use plimsoll_tower::shed::Gate;
use plimsoll_tower::{BoxError, ByResult, Rejected, RequestFacts, ShedLayer};
use tokio::time::Instant;
use tower::{Layer as _, Service, ServiceExt as _};

/// A request with its criticality, its route and the units that it will use.
#[derive(Clone, Copy)]
struct Query {
    criticality: Criticality,
    route: u64,
    units: f64,
}

const CAPACITY: f64 = 1_000.0;

fn layer()
-> ShedLayer<impl plimsoll_tower::Classify<Query, f64> + Clone, impl plimsoll_tower::shed::Measure<f64> + Clone> {
    let classify = with_facts(ByResult, |query: &Query, facts: RequestFacts| {
        facts.with_criticality(query.criticality).with_kind(query.route, 0)
    });
    let config = AdmissionConfig::new(CAPACITY).expect("units a second");
    ShedLayer::with_cost(config, classify, |units: &f64, _| *units)
}

/// A server that works through its requests one after another, at [`CAPACITY`].
#[derive(Clone, Default)]
struct Server {
    busy_until: Arc<Mutex<Option<Instant>>>,
}

impl Server {
    async fn serve(self, units: f64) -> Result<f64, BoxError> {
        let end = {
            let busy_until = &mut *self.busy_until.lock().expect("no panic");
            let begin = busy_until.map_or_else(Instant::now, |end| end.max(Instant::now()));
            *busy_until.insert(begin + Duration::from_secs_f64(units / CAPACITY))
        };
        tokio::time::sleep_until(end).await;
        Ok(units)
    }
}

/// Twice the capacity arrives, three tenths of it critical. Critical requests are admitted, and the
/// rest of the capacity goes to sheddable ones, without a queue.
#[tokio::test(start_paused = true)]
async fn capacity_goes_to_critical_requests_first_and_is_used() {
    let server = Server::default();
    let layer = layer();
    let service = layer.layer(tower::service_fn(move |query: Query| server.clone().serve(query.units)));
    let (seconds, warm_up) = (20, 5);
    let begun = Instant::now();
    let mut tasks = Vec::new();
    for number in 0..seconds * 1_000_u64 {
        tokio::time::sleep_until(begun + Duration::from_millis(number)).await;
        let criticality = if number % 10 < 3 { Criticality::Critical } else { Criticality::Sheddable };
        let query = Query { criticality, route: number % 3, units: (number % 3 + 1) as f64 };
        let call = service.clone().oneshot(query);
        let task = tokio::spawn(async move { (call.await, Instant::now()) });
        tasks.push((number, query, Instant::now(), task));
    }
    let ([mut critical, mut sheddable], mut slowest) = ([0.0, 0.0], Duration::ZERO);
    for (number, query, sent, task) in tasks {
        let (result, ended) = task.await.expect("no panic");
        match result {
            Ok(units) if number >= warm_up * 1_000 => {
                slowest = slowest.max(ended - sent);
                match query.criticality {
                    Criticality::Critical => critical += units,
                    _ => sheddable += units,
                }
            }
            Ok(_) => {}
            Err(error) => {
                let reason = Rejected::find(&*error).map(Rejected::reason);
                assert!(matches!(reason, Some(Rejection::Overloaded | Rejection::OverloadedNoRetry)), "{error}");
            }
        }
    }
    let [critical, sheddable] = [critical, sheddable].map(|units| units / (seconds - warm_up) as f64);
    assert!((590.0..=610.0).contains(&critical), "{critical} critical units a second of 600");
    assert!((250.0..=410.0).contains(&sheddable), "{sheddable} sheddable units a second of 1,400");
    assert!(slowest < Duration::from_millis(60), "{slowest:?}");
}

#[tokio::test(start_paused = true)]
async fn request_that_is_dropped_does_not_stay_at_the_gate() {
    let layer = layer();
    let mut service = layer.layer(tower::service_fn(|_: Query| pending::<Result<f64, BoxError>>()));
    let query = Query { criticality: Criticality::Critical, route: 0, units: 1.0 };
    // A thousand requests without an end are far more than the gate admits at a time.
    let mut admitted = 0;
    for number in 0..1_000 {
        let call = service.ready().await.expect("ready").call(query);
        let end = match number % 2 {
            0 => Some(tokio::time::timeout(Duration::from_millis(10), call).await),
            _ => {
                drop(call);
                tokio::time::advance(Duration::from_millis(10)).await;
                None
            }
        };
        admitted += u32::from(!matches!(end, Some(Ok(Err(_)))));
    }
    assert_eq!((admitted, layer.gate().admitted(), layer.gate().shed()), (1_000, 1_000, 0));
}

/// A request that costs more than expected is charged while it runs.
#[tokio::test(start_paused = true)]
async fn running_request_is_charged_when_it_exceeds_its_expectation() {
    let gate = Gate::new(AdmissionConfig::new(1.0).expect("CPUs"), Mode::Protect);
    let facts = RequestFacts::default();
    for _ in 0..100 {
        tokio::time::advance(Duration::from_millis(10)).await;
        gate.ask(&facts).expect("a light load").end(1e-3);
    }
    // Each is expected to take an eighth of the work in progress that the gate admits.
    let mut heavy: Vec<_> = (0..4).map(|_| gate.ask(&facts).expect("half of it")).collect();
    gate.ask(&facts).expect("five eighths").end(1e-3);
    for admitted in &mut heavy {
        assert!((1e-4..1e-2).contains(&admitted.progress_due()), "{admitted:?}");
        admitted.progress(0.1);
        assert!(admitted.progress_due() >= 0.1, "{admitted:?}");
    }
    // Each has cost a hundred times as much, and now counts for a quarter.
    let reason = gate.ask(&facts).expect_err("full").reason();
    assert!(matches!(reason, Rejection::Overloaded | Rejection::OverloadedNoRetry), "{reason}");
    heavy.into_iter().for_each(|admitted| admitted.end(0.1));
    gate.ask(&facts).expect("nothing is in progress").end(1e-3);
}

#[tokio::test(start_paused = true)]
async fn dry_run_counts_and_admits() {
    let gate = Gate::new(AdmissionConfig::new(0.001).expect("CPUs"), Mode::DryRun);
    let admitted: Vec<_> = (0..1_000).map(|_| gate.ask(&RequestFacts::default()).expect("a dry run")).collect();
    drop(admitted);
    assert!(gate.shed() > 900 && gate.shed() + gate.admitted() == 1_000, "{gate:?}");
}

#[tokio::test(start_paused = true)]
async fn request_whose_time_is_too_short_is_shed() {
    let gate = Gate::new(AdmissionConfig::new(1.0).expect("CPUs"), Mode::Protect);
    for _ in 0..50 {
        tokio::time::advance(Duration::from_millis(500)).await;
        gate.ask(&RequestFacts::default()).expect("a light load").end(0.1);
    }
    let _in_progress = gate.ask(&RequestFacts::default()).expect("a light load");
    let hurried = RequestFacts::default().with_timeout(Duration::from_millis(1));
    assert_eq!(gate.ask(&hurried).expect_err("a tenth of a second is before it").reason(), Rejection::Deadline);
}

/// The default layer measures the time of polls, on this machine's clock.
#[tokio::test]
async fn default_layer_measures_the_time_of_polls() {
    let layer = ShedLayer::new(ByResult);
    let mut service = layer.layer(tower::service_fn(|()| async {
        let begun = std::time::Instant::now();
        while begun.elapsed() < Duration::from_millis(2) {
            std::hint::spin_loop();
        }
        Ok::<_, BoxError>(())
    }));
    for _ in 0..50 {
        // Some may be shed on a busy machine.
        service.ready().await.expect("ready").call(()).await.ok();
    }
    let next = layer.gate().ask(&RequestFacts::default().with_criticality(Criticality::CriticalPlus));
    let expected = next.map(|admitted| admitted.progress_due());
    assert!(expected.is_ok_and(|seconds| seconds > 0.9e-3) || layer.gate().shed() > 0, "{:?}", layer.gate());
}

/// Requests one after another: none is in progress beside another, so their CPU alone shows the
/// overload. One thread never uses all CPUs of a machine with several, but more than a hundredth.
#[cfg(all(unix, feature = "process-cpu"))]
#[test]
fn gate_of_part_of_a_process_sheds_requests_in_sequence() {
    let hundredth = AdmissionConfig::new(0.01).expect("above zero");
    let gate = Gate::of_process_with(hundredth, Mode::Protect);
    let has_shed = (0..2_000).any(|_| {
        let Ok(admitted) = gate.ask(&RequestFacts::default()) else { return true };
        let begun = std::time::Instant::now();
        while begun.elapsed() < Duration::from_millis(1) {
            std::hint::spin_loop();
        }
        admitted.end(begun.elapsed().as_secs_f64());
        false
    });
    assert!(has_shed, "two seconds of one CPU: {gate:?}");
}
