//! Servers that do their work in another process.

use plimsoll::server::RemoteWork;

use super::*;

/// A layer of one CPU elsewhere, and the nanoseconds that this CPU has used.
fn remote() -> (ServerLayer, Arc<AtomicU64>) {
    let elsewhere = Arc::new(AtomicU64::new(0));
    let clock = Arc::clone(&elsewhere);
    let layer = builder().cpus(1.0).cpu_clock(move || Duration::from_nanos(clock.load(Ordering::Relaxed))).build();
    (layer, elsewhere)
}

/// Uses this much CPU elsewhere.
async fn work(elsewhere: Arc<AtomicU64>, cost: Duration) {
    let work = RemoteWork::begin();
    tokio::time::sleep(cost).await;
    elsewhere.fetch_add(cost.as_nanos() as u64, Ordering::Relaxed);
    work.charge(cost);
}

#[tokio::test(start_paused = true)]
async fn remote_work_is_charged_and_the_code_here_is_not() {
    let (layer, elsewhere) = remote();
    let working = service(move |_| {
        let elsewhere = Arc::clone(&elsewhere);
        async move {
            burn(2 * MS);
            work(elsewhere, 30 * MS).await;
            used().unwrap().as_nanos().to_string()
        }
    });
    let response = layer.layer(working).oneshot(get("/")).await.unwrap();
    assert_eq!(text(response).await, (30 * MS).as_nanos().to_string());
    assert_eq!(layer.admission().charged, 30 * MS);
}

#[tokio::test(start_paused = true)]
async fn reports_tell_the_load_of_the_remote_cpu() {
    let (layer, elsewhere) = remote();
    let working = service(move |_| {
        let elsewhere = Arc::clone(&elsewhere);
        async move {
            work(elsewhere, 50 * MS).await;
            String::new()
        }
    });
    for _ in 0..20 {
        layer.layer(working.clone()).oneshot(get("/")).await.unwrap();
        tokio::time::advance(50 * MS).await;
    }
    // Half of the time in each window of a tenth of a second.
    let utilization = layer.load().cpu_utilization;
    assert!((0.45..=0.55).contains(&utilization), "{utilization}");
}

/// A request of 20 ms each 10 ms to one CPU that works on one at a time. Nothing runs in this
/// process.
#[tokio::test(start_paused = true)]
async fn overload_of_the_remote_cpu_sheds() {
    let start = tokio::time::Instant::now();
    // Time used by requests that have ended, and the begin of the one that runs, in nanoseconds; 0
    // for none.
    let (ended, begun) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let now = move || start.elapsed().as_nanos() as u64 + 1;
    let clock = (Arc::clone(&ended), Arc::clone(&begun));
    let used = move || {
        let since = match clock.1.load(Ordering::Relaxed) {
            0 => 0,
            begun => now() - begun,
        };
        Duration::from_nanos(clock.0.load(Ordering::Relaxed) + since)
    };
    let layer = builder().cpus(1.0).cpu_clock(used).build();
    let core = Arc::new(tokio::sync::Mutex::new(()));
    let working = service(move |_| {
        let (ended, begun, core) = (Arc::clone(&ended), Arc::clone(&begun), Arc::clone(&core));
        async move {
            let remote = RemoteWork::begin();
            let _core = core.lock().await;
            let from = now();
            begun.store(from, Ordering::Relaxed);
            tokio::time::sleep(20 * MS).await;
            begun.store(0, Ordering::Relaxed);
            ended.fetch_add(now() - from, Ordering::Relaxed);
            remote.charge(Duration::from_nanos(now() - from));
            String::new()
        }
    });
    let mut running = tokio::task::JoinSet::new();
    for _ in 0..400 {
        running.spawn(layer.layer(working.clone()).oneshot(get("/")));
        tokio::time::sleep(10 * MS).await;
    }
    let answers = running.join_all().await;
    let shed = answers.iter().filter(|answer| is_shed(answer.as_ref().unwrap()).is_some()).count();
    // Twice the load: at least a half cannot be served.
    assert!((180..=300).contains(&shed), "{shed} of 400");
    assert!(layer.admission().charged > 2_000 * MS, "{:?} of CPU in four seconds", layer.admission().charged);
}
