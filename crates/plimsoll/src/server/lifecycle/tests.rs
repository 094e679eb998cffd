use super::*;

const CONFIG: DrainConfig =
    DrainConfig { quiet: Duration::from_millis(500), announce: Duration::from_secs(1), drain: Duration::from_secs(30) };

async fn at(origin: Instant, millis: u64) {
    tokio::time::sleep_until(origin + Duration::from_millis(millis)).await;
}

/// Runs `script` beside `drained`; returns how it ended, and after how many milliseconds.
async fn drain(lifecycle: &Lifecycle, script: impl Future<Output = ()>) -> (DrainEnd, u128) {
    let origin = Instant::now();
    let ended = async { (lifecycle.drained(&CONFIG).await, origin.elapsed().as_millis()) };
    let (ended, ()) = tokio::join!(ended, script);
    assert_eq!(lifecycle.phase(), Phase::Drained);
    ended
}

#[test]
fn phases_go_one_way() {
    let lifecycle = Lifecycle::new();
    assert_eq!(lifecycle.phase(), Phase::Starting);
    lifecycle.ready();
    assert!(lifecycle.phase().is_serving());
    lifecycle.lame_duck();
    lifecycle.ready();
    assert_eq!(lifecycle.phase(), Phase::LameDuck);
}

#[tokio::test(start_paused = true)]
async fn idle_lame_duck_stays_to_be_heard_and_ends() {
    let lifecycle = Lifecycle::new();
    lifecycle.ready();
    let origin = Instant::now();
    let script = async {
        at(origin, 5_000).await;
        lifecycle.lame_duck();
    };
    assert_eq!(drain(&lifecycle, script).await, (DrainEnd::Quiet, 6_000));
}

#[tokio::test(start_paused = true)]
async fn requests_in_flight_and_new_ones_put_the_end_off() {
    let lifecycle = Lifecycle::new();
    lifecycle.lame_duck();
    let origin = Instant::now();
    let first = lifecycle.begin();
    let script = async {
        at(origin, 3_000).await;
        drop(first);
        at(origin, 3_400).await;
        let second = lifecycle.begin();
        at(origin, 3_450).await;
        drop(second);
    };
    let (end, millis) = drain(&lifecycle, script).await;
    assert_eq!(end, DrainEnd::Quiet);
    assert!((3_950..=4_001).contains(&millis), "quiet for half a second after 3450: {millis}");
}

#[tokio::test(start_paused = true)]
async fn endless_request_is_given_up_when_the_time_is_up() {
    let lifecycle = Lifecycle::new();
    let _endless = lifecycle.begin();
    lifecycle.lame_duck();
    assert_eq!(drain(&lifecycle, async {}).await, (DrainEnd::Overdue { unfinished: 1 }, 30_000));
}

#[tokio::test(start_paused = true)]
async fn each_limit_may_be_none() {
    const NONE: Duration = Duration::MAX;
    for (config, expected) in [
        (DrainConfig { drain: NONE, ..CONFIG }, (DrainEnd::Quiet, 1)),
        (DrainConfig { announce: NONE, ..CONFIG }, (DrainEnd::Overdue { unfinished: 0 }, 30)),
        (DrainConfig { quiet: NONE, ..CONFIG }, (DrainEnd::Overdue { unfinished: 0 }, 30)),
    ] {
        let lifecycle = Lifecycle::new();
        lifecycle.lame_duck();
        let origin = Instant::now();
        assert_eq!((lifecycle.drained(&config).await, origin.elapsed().as_secs()), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn end_now_waits_for_nothing() {
    let lifecycle = Lifecycle::new();
    let _endless = lifecycle.begin();
    let origin = Instant::now();
    let script = async {
        at(origin, 100).await;
        lifecycle.end_now();
    };
    assert_eq!(drain(&lifecycle, script).await, (DrainEnd::CutShort { unfinished: 1 }, 100));
}

#[test]
fn serving_is_ready_at_once_and_drains_as_any_other() {
    let lifecycle = Lifecycle::serving();
    assert!(lifecycle.phase().is_serving() && lifecycle.watch().borrow().is_serving());
    lifecycle.lame_duck();
    assert_eq!(lifecycle.phase(), Phase::LameDuck);
}

#[tokio::test(start_paused = true)]
async fn shutdown_completes_when_the_lame_duck_has_served() {
    let lifecycle = Lifecycle::serving();
    let origin = Instant::now();
    // As servers take it: a future of its own, that outlives the handle it came from.
    let shutdown = tokio::spawn(lifecycle.clone().shutdown(CONFIG));
    at(origin, 60_000).await;
    assert!(!shutdown.is_finished(), "nobody asked it to end");
    let request = lifecycle.begin();
    lifecycle.lame_duck();
    at(origin, 63_000).await;
    assert!(!shutdown.is_finished(), "a request is in flight");
    drop(request);
    shutdown.await.unwrap();
    let millis = origin.elapsed().as_millis();
    assert!((63_500..=63_501).contains(&millis), "quiet for half a second after 63000: {millis}");
    assert_eq!(lifecycle.phase(), Phase::Drained);
}

#[tokio::test(start_paused = true)]
async fn hard_stop_completes_after_the_drain_time_or_a_second_signal() {
    for (end_now_at, expected) in [(None, 30_100), (Some(2_000), 2_000)] {
        let lifecycle = Lifecycle::serving();
        let _endless = lifecycle.begin();
        let origin = Instant::now();
        let hard_stop = tokio::spawn(lifecycle.hard_stop(CONFIG));
        lifecycle.lame_duck();
        if let Some(millis) = end_now_at {
            at(origin, millis).await;
            lifecycle.end_now();
        }
        hard_stop.await.unwrap();
        assert_eq!(origin.elapsed().as_millis(), expected);
    }
}

const NEVER_READY: &str = "was never ready";
const UNAWAITED: &str = "process will not end";

#[tokio::test(start_paused = true)]
async fn requests_for_half_a_minute_without_ready_are_logged_once() {
    let (log, _guard) = Log::capture();
    let lifecycle = Lifecycle::new();
    let origin = Instant::now();
    at(origin, 60_000).await;
    for seconds in 0..30 {
        at(origin, 60_000 + seconds * 1_000).await;
        drop(lifecycle.begin());
    }
    assert_eq!(log.count(NEVER_READY), 0, "{log:?}");
    for seconds in 30..40 {
        at(origin, 60_000 + seconds * 1_000).await;
        drop(lifecycle.begin());
    }
    assert_eq!(log.count(NEVER_READY), 1, "{log:?}");
    assert_eq!(log.count("Lifecycle::serving"), 1, "the line names the fix: {log:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_ready_in_time_logs_nothing() {
    let (log, _guard) = Log::capture();
    let late = Lifecycle::new();
    for lifecycle in [Lifecycle::serving(), late] {
        drop(lifecycle.begin());
        tokio::time::advance(Duration::from_millis(29_999)).await;
        drop(lifecycle.begin());
        lifecycle.ready();
        tokio::time::advance(Duration::from_secs(60)).await;
        drop(lifecycle.begin());
    }
    assert_eq!(log.count(NEVER_READY), 0, "{log:?}");
}

/// Two signals; the second at `again_at`, or never.
struct Twice {
    origin: Instant,
    is_first: bool,
    again_at: Option<u64>,
}

impl Signals for Twice {
    async fn next(&mut self) -> Option<&'static str> {
        if std::mem::take(&mut self.is_first) {
            return Some("SIGTERM");
        }
        match self.again_at.take() {
            Some(millis) => at(self.origin, millis).await,
            None => std::future::pending().await,
        }
        Some("SIGTERM")
    }
}

/// A signal to a lifecycle, and another at `again_at` if that is some; returns the log.
async fn signalled(lifecycle: &Lifecycle, again_at: Option<u64>) -> Log {
    let (log, guard) = Log::capture();
    let origin = Instant::now();
    let signals = Twice { origin, is_first: true, again_at };
    let _ = tokio::time::timeout(Duration::from_secs(600), lifecycle.obey(signals)).await;
    drop(guard);
    log
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_no_task_awaits_is_logged_once() {
    for again_at in [None, Some(3_000), Some(100_000)] {
        let log = signalled(&Lifecycle::serving(), again_at).await;
        assert_eq!(log.count(UNAWAITED), 1, "{log:?}");
        assert_eq!(log.count("with_graceful_shutdown"), 1, "the line names the fix: {log:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_a_task_awaits_logs_no_neglect() {
    type Awaits = fn(&Lifecycle) -> tokio::task::JoinHandle<()>;
    let awaits: [Awaits; 4] = [
        |lifecycle| tokio::spawn(lifecycle.shutdown(CONFIG)),
        |lifecycle| tokio::spawn(lifecycle.hard_stop(CONFIG)),
        |lifecycle| {
            let lifecycle = lifecycle.clone();
            tokio::spawn(async move {
                lifecycle.drained(&CONFIG).await;
            })
        },
        // A service with a way of its own.
        |lifecycle| {
            let mut phase = lifecycle.watch();
            tokio::spawn(async move {
                let _ = phase.wait_for(|phase| *phase >= Phase::LameDuck).await;
            })
        },
    ];
    for task in awaits {
        for again_at in [None, Some(100_000)] {
            let lifecycle = Lifecycle::serving();
            let task = task(&lifecycle);
            tokio::task::yield_now().await;
            let log = signalled(&lifecycle, again_at).await;
            assert_eq!(log.count(UNAWAITED), 0, "{log:?}");
            task.await.unwrap();
        }
    }
}

/// The lines that this thread logged.
#[derive(Clone, Default)]
struct Log(Arc<parking_lot::Mutex<Vec<u8>>>);

impl Log {
    fn capture() -> (Self, tracing::subscriber::DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    fn count(&self, text: &str) -> usize {
        String::from_utf8_lossy(&self.0.lock()).lines().filter(|line| line.contains(text)).count()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0.lock()))
    }
}
