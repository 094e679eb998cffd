//! The accuracy and the cost of the CPU that requests are charged with.
//!
//! A mix of typical work (short handlers, long ones, tasks, blocking calls, bodies in pieces) runs
//! within a [`ServerLayer`], first alone and then beside processes that compete for the machine.
//! The CPU charged to requests stands beside the process's own CPU clock. Then a future that does
//! nothing is polled, metered and not.
//!
//! ```text
//! cargo bench -p plimsoll --bench metering                a table
//! cargo bench -p plimsoll --bench metering -- --check     exit 1 beyond 3%, or 60 ns a poll
//! ```
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark")]

use std::convert::Infallible;
use std::hint::black_box;
use std::pin::Pin;
use std::process::{Child, Command, ExitCode};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use plimsoll::server::{Lifecycle, ServerLayer, spawn, spawn_blocking};
use rustix::time::{ClockId, clock_gettime};
use tower::{Layer as _, Service, ServiceExt as _};

type Body = UnsyncBoxBody<Bytes, Infallible>;

const LENGTH: Duration = Duration::from_secs(5);
/// Callers that each wait for their answer: more than there are cores.
const CALLERS: usize = 8;
/// The argument with which this program burns CPU, as another process.
const ANTAGONIST: &str = "--antagonist";
const POLLS: u32 = 2_000_000;
/// Rounds per result; the median counts.
const ROUNDS: usize = 9;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.iter().any(|argument| argument == ANTAGONIST) {
        loop {
            burn(Duration::from_millis(10));
        }
    }
    let alone = charged_share();
    let antagonists = Antagonists::start(2);
    let beside = charged_share();
    drop(antagonists);
    let (plain, metered) = (per_poll(false), per_poll(true));
    let more = metered - plain;
    println!("| what | measured | goal |\n|---|--:|--:|");
    println!("| charged to requests, of the process's CPU | {:.2}% | 97% to 103% |", 100.0 * alone);
    println!("| the same beside two processes that burn | {:.2}% | 97% to 103% |", 100.0 * beside);
    println!("| a poll, metered, on top of {plain:.1} ns | {more:.1} ns | 60 ns |");
    let is_near = |share: f64| (share - 1.0).abs() <= 0.03;
    let holds = is_near(alone) && is_near(beside) && more <= 60.0;
    if arguments.iter().any(|argument| argument == "--check") && !holds { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

struct Antagonists(Vec<Child>);

impl Antagonists {
    fn start(count: usize) -> Self {
        let program = std::env::current_exe().unwrap();
        Self((0..count).map(|_| Command::new(&program).arg(ANTAGONIST).spawn().unwrap()).collect())
    }
}

impl Drop for Antagonists {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn layer() -> ServerLayer {
    let lifecycle = Lifecycle::new();
    lifecycle.ready();
    // Enough CPUs that nothing is shed.
    ServerLayer::builder(lifecycle).cpus(1_000.0).build()
}

/// CPU charged to requests, divided by the CPU that the process used for them.
fn charged_share() -> f64 {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let layer = layer();
    let service = layer.layer(tower::service_fn(|request: Request<Empty<Bytes>>| async move {
        Ok::<_, Infallible>(answer(request.uri().path()).await)
    }));
    let before = process_cpu();
    runtime.block_on(async {
        let callers = (0..CALLERS).map(|caller| {
            let service = service.clone();
            tokio::spawn(async move {
                let begun = Instant::now();
                for number in 0.. {
                    if begun.elapsed() >= LENGTH {
                        break;
                    }
                    let path = ["/short", "/long", "/tasks", "/blocking", "/body"][(caller + number) % 5];
                    let request = Request::get(path).body(Empty::new()).unwrap();
                    let response = service.clone().oneshot(request).await.unwrap();
                    response.into_body().collect().await.unwrap();
                }
            })
        });
        for caller in callers.collect::<Vec<_>>() {
            caller.await.unwrap();
        }
    });
    layer.admission().charged.as_secs_f64() / (process_cpu() - before).as_secs_f64()
}

async fn answer(path: &str) -> Response<Body> {
    const MICROS: fn(u64) -> Duration = Duration::from_micros;
    match path {
        "/short" => burn(MICROS(200)),
        "/long" => {
            for _ in 0..20 {
                burn(MICROS(500));
                tokio::task::yield_now().await;
            }
        }
        "/tasks" => {
            let tasks = [MICROS(100), MICROS(1_000), MICROS(3_000)].map(|cost| spawn(async move { burn(cost) }));
            for task in tasks {
                task.await.unwrap();
            }
        }
        "/blocking" => spawn_blocking(|| burn(MICROS(4_000))).await.unwrap(),
        _ => {
            let frames = stream::iter((0..20).map(|_| {
                burn(MICROS(150));
                Ok(Frame::data(Bytes::from_static(b"piece")))
            }));
            return Response::new(StreamBody::new(frames).boxed_unsync());
        }
    }
    Response::new(Full::from("done").boxed_unsync())
}

/// Nanoseconds of a poll of a future that does nothing, within a layer or not.
fn per_poll(metered: bool) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let mut idle = tower::service_fn(|_: Request<Empty<Bytes>>| async {
                Idle(POLLS).await;
                Ok::<_, Infallible>(Response::new(Full::from("done").boxed_unsync()))
            });
            let request = Request::get("/").body(Empty::new()).unwrap();
            match metered {
                true => nanos_per_poll(layer().layer(idle).call(request)),
                false => nanos_per_poll(idle.call(request)),
            }
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

fn nanos_per_poll(call: impl Future) -> f64 {
    let mut call = std::pin::pin!(call);
    let mut context = Context::from_waker(Waker::noop());
    let begun = Instant::now();
    while call.as_mut().poll(&mut context).is_pending() {}
    begun.elapsed().as_secs_f64() * 1e9 / f64::from(POLLS)
}

/// A future that is pending this number of times.
struct Idle(u32);

impl Future for Idle {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if black_box(self.0) == 0 {
            return Poll::Ready(());
        }
        self.0 -= 1;
        Poll::Pending
    }
}

fn burn(cost: Duration) {
    let end = thread_cpu() + cost;
    let mut number = 1_u64;
    while thread_cpu() < end {
        for _ in 0..2_000 {
            number = black_box(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
}

fn thread_cpu() -> Duration {
    since_start(ClockId::ThreadCPUTime)
}

fn process_cpu() -> Duration {
    since_start(ClockId::ProcessCPUTime)
}

fn since_start(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap())
}
