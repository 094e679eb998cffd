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
