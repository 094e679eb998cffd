//! Requests that could run, on a real runtime.

use super::*;

/// Ten thousand tasks of one request beside a series of other requests: those wait, and none is
/// shed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_of_small_tasks_of_one_request_sheds_nobody_else() {
    let layer = builder().cpus(2.0).build();
    let work = service(|request: Request<_>| async move {
        if request.uri().path() == "/burst" {
            let tasks: Vec<_> = (0..10_000).map(|_| spawn(async { burn(5 * MS / 1_000) })).collect();
            join_all(tasks).await;
        } else {
            burn(MS / 5);
        }
        String::new()
    });
    let others = async {
        let mut shed = 0;
        for _ in 0..300 {
            let request = with(get("/other"), &[("x-criticality", "sheddable")]);
            shed += u32::from(is_shed(&layer.layer(work.clone()).oneshot(request).await.unwrap()).is_some());
            tokio::task::yield_now().await;
        }
        shed
    };
    let bursts = async {
        for _ in 0..3 {
            let burst = layer.layer(work.clone()).oneshot(get("/burst")).await.unwrap();
            assert_eq!(is_shed(&burst), None);
        }
    };
    let (shed, ()) = tokio::join!(others, bursts);
    assert_eq!(shed, 0);
    assert!(layer.admission().charged >= 3 * 50 * MS, "the burst was measured: {:?}", layer.admission().charged);
}

/// A constant number of requests in progress, each using a millisecond, on a server configured with
/// 16 CPUs. Its limit allows some ninety to wait for a CPU. The work itself is within the capacity
/// of 16 CPUs: the server sheds because more tasks are runnable than the limit allows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lasting_doubling_of_the_load_sheds() {
    let layer = builder().cpus(16.0).build();
    let work = service(|_| async {
        for _ in 0..5 {
            burn(MS / 5);
            tokio::task::yield_now().await;
        }
        String::new()
    });
    let shed = || layer.admission().by_criticality[Criticality::Sheddable.rank()].shed_for(Rejection::Overloaded);
    let mut running = tokio::task::JoinSet::new();
    let ask = |running: &mut tokio::task::JoinSet<_>| {
        let request = with(get("/"), &[("x-criticality", "sheddable")]);
        running.spawn(layer.layer(work.clone()).oneshot(request));
    };
    (0..50).for_each(|_| ask(&mut running));
    for _ in 0..500 {
        running.join_next().await.unwrap().unwrap().unwrap();
        ask(&mut running);
    }
    assert_eq!(shed(), 0, "{:?}", layer.loads());
    (0..100).for_each(|_| ask(&mut running));
    let begun = Instant::now();
    while shed() == 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", layer.loads());
        running.join_next().await.unwrap().unwrap().unwrap();
        ask(&mut running);
    }
    assert_eq!(layer.loads().unwrap().binding, Some(Signal::LoadAverage));
}
