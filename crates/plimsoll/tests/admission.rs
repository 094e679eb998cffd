//! A server that protects itself: who is told what, what is measured, what goes along with a request.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::convert::Infallible;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::{BoxFuture, join_all};
use futures_util::stream;
use http::{HeaderName, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use plimsoll::client::{Client, Cluster, ClusterConfig};
use plimsoll::server::throttling::{Cause, Verdict};
use plimsoll::server::{
    Classifier, Customer, Lifecycle, Mode, Outlook, Pressure, Quota, RequestContext, ServerBody, ServerLayer,
    ServerLayerBuilder, Signal, Trust, bind, charge, current, pressure, spawn, spawn_blocking, used,
};
use plimsoll_core::Criticality;
use plimsoll_wire::grpc::Code;
use plimsoll_wire::shed::{Retry, Shed, ShedReason};
use rustix::time::{ClockId, clock_gettime};
use tower::{Layer as _, Service, ServiceExt as _};

type Body = UnsyncBoxBody<Bytes, Infallible>;
type Answer = BoxFuture<'static, Result<Response<Body>, Infallible>>;

/// A server whose CPU is used up by anything.
fn tiny() -> ServerLayerBuilder {
    builder().cpus(0.01)
}

fn builder() -> ServerLayerBuilder {
    let lifecycle = Lifecycle::new();
    lifecycle.ready();
    ServerLayer::builder(lifecycle).readiness_path("/readyz").customer_header(HeaderName::from_static("x-customer"))
}

fn get(path: &str) -> Request<Empty<Bytes>> {
    Request::get(path).body(Empty::new()).unwrap()
}

fn with(mut request: Request<Empty<Bytes>>, headers: &[(&'static str, &str)]) -> Request<Empty<Bytes>> {
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    request
}

/// A service that answers with what `answer` makes of the request.
fn service<F, Fut>(
    answer: F,
) -> impl Service<Request<Empty<Bytes>>, Response = Response<Body>, Error = Infallible, Future = Answer> + Clone
where
    F: Fn(Request<Empty<Bytes>>) -> Fut + Clone,
    Fut: Future<Output = String> + Send + 'static,
{
    tower::service_fn(move |request| {
        let answer = answer(request);
        Box::pin(async move { Ok(Response::new(Full::from(answer.await).boxed_unsync())) }) as Answer
    })
}

async fn text(response: Response<ServerBody<Body>>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().into()).unwrap()
}

fn thread_cpu() -> Duration {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(used.tv_sec.unsigned_abs(), used.tv_nsec as u32)
}

fn burn(cost: Duration) {
    let end = thread_cpu() + cost;
    while thread_cpu() < end {
        (0..1_000_u64).for_each(|number| {
            black_box(number);
        });
    }
}

const MS: Duration = Duration::from_millis(1);

/// More work than a tiny server can do in a second; none of it has ended, for nobody reads the answers.
async fn overload(layer: &ServerLayer, criticality: Criticality) -> Vec<Response<ServerBody<Body>>> {
    let busy = service(|_| async {
        burn(5 * MS);
        String::new()
    });
    let requests = (0..40).map(|_| {
        let request = with(get("/busy"), &[("x-criticality", criticality.name())]);
        layer.layer(busy.clone()).oneshot(request)
    });
    join_all(requests).await.into_iter().map(Result::unwrap).collect()
}

fn is_shed(response: &Response<ServerBody<Body>>) -> Option<ShedReason> {
    Shed::read(response.status(), response.headers())?.reason
}

#[tokio::test]
async fn a_server_with_more_to_do_than_it_can_turns_the_least_critical_away() {
    let layer = tiny().build();
    let answers = overload(&layer, Criticality::Critical).await;
    assert!(answers.iter().any(|answer| is_shed(answer) == Some(ShedReason::Overloaded)));
    let ok = service(|_| async { "served".to_owned() });
    let ask = async |headers: &[(&'static str, &str)], path: &str| {
        layer.layer(ok.clone()).oneshot(with(get(path), headers)).await.unwrap()
    };
    let lower = ask(&[("x-criticality", "sheddable")], "/").await;
    assert_eq!((lower.status(), is_shed(&lower)), (StatusCode::SERVICE_UNAVAILABLE, Some(ShedReason::Overloaded)));
    assert!(lower.headers().contains_key("endpoint-load-metrics-bin"), "it reports its load all the same");
    assert!(text(lower).await.starts_with("overloaded"));
    let grpc = ask(&[("x-criticality", "sheddable"), ("content-type", "application/grpc")], "/s/m").await;
    assert_eq!((grpc.status(), Code::read(grpc.headers())), (StatusCode::OK, Some(Code::Unavailable)));
    assert_eq!(grpc.headers()["grpc-retry-pushback-ms"], "1");
    assert_eq!(text(grpc).await, "");
    let higher = ask(&[("x-criticality", "critical-plus")], "/").await;
    assert_eq!(text(higher).await, "served");
    let ready = ask(&[], "/readyz").await;
    assert_eq!(text(ready).await, "serving", "whatever the load");

    let counts = layer.admission().by_criticality;
    assert_eq!(counts[Criticality::CriticalPlus.rank()].admitted, 1);
    assert_eq!(counts[Criticality::Sheddable.rank()].overloaded, 2);
    let critical = counts[Criticality::Critical.rank()];
    assert!(critical.admitted > 0 && critical.overloaded > 0, "{critical:?}");
}

#[tokio::test]
async fn what_is_turned_away_is_judged_by_who_loses_it() {
    let layer = tiny().build();
    assert_eq!(layer.throttling().unwrap().verdict, Verdict::Fine);
    let answers = overload(&layer, Criticality::Sheddable).await;
    let turned_away = answers.iter().filter(|answer| is_shed(answer).is_some()).count() as u64;
    let summary = layer.throttling().unwrap();
    assert_eq!(summary.verdict, Verdict::AsIntended);
    let class = summary.total[Criticality::Sheddable.rank()];
    assert_eq!((class.offered.requests, class.shed_in_all().requests), (40, turned_away));
    assert!(class.shed[Cause::Overloaded as usize].requests > 0 && summary.enough.is_some());
    assert_eq!((summary.customers[0].name.as_str(), summary.routes[0].name.as_str()), ("(none)", "GET /busy"));
    overload(&layer, Criticality::Critical).await;
    assert_eq!(layer.throttling().unwrap().verdict, Verdict::UsersAffected);
    assert_eq!(builder().admission(None).build().throttling(), None);
}

#[tokio::test]
async fn who_has_been_turned_away_elsewhere_is_told_to_give_up() {
    let layer = tiny().build();
    overload(&layer, Criticality::Critical).await;
    let ok = service(|_| async { String::new() });
    let mut last = None;
    for _ in 0..50 {
        let retry = with(get("/"), &[("x-criticality", "sheddable"), ("x-envoy-attempt-count", "2")]);
        last = Some(layer.layer(ok.clone()).oneshot(retry).await.unwrap());
    }
    let shed = last.map(|response| Shed::read(response.status(), response.headers()).unwrap()).unwrap();
    assert_eq!((shed.reason, shed.retry), (Some(ShedReason::OverloadedNoRetry), Retry::Never));
}

#[tokio::test]
async fn what_cannot_be_answered_in_time_is_not_begun() {
    let layer = builder().build();
    let ok = service(|_| async { String::new() });
    for (header, value) in [("x-envoy-expected-rq-timeout-ms", "1"), ("grpc-timeout", "1n")] {
        overload(&layer, Criticality::Critical).await;
        let request = with(get("/busy"), &[(header, value)]);
        let response = layer.layer(ok.clone()).oneshot(request).await.unwrap();
        assert_eq!((response.status(), is_shed(&response)), (StatusCode::GATEWAY_TIMEOUT, Some(ShedReason::Deadline)));
    }
}

#[tokio::test]
async fn a_dry_run_counts_and_serves() {
    let layer = tiny().admission(Mode::DryRun).build();
    let answers = overload(&layer, Criticality::Critical).await;
    assert!(answers.iter().all(|answer| is_shed(answer).is_none()));
    let critical = layer.admission().by_criticality[Criticality::Critical.rank()];
    assert!(critical.overloaded > 0 && critical.admitted == 40, "{critical:?}");
}

/// One customer has a limit of a twentieth of a CPU, of all that there are.
fn limited() -> ServerLayerBuilder {
    let crawler = Quota::hard(0.05);
    builder().cpus(64.0).quota_by(move |customer| if customer.name() == b"crawler" { crawler } else { None })
}

/// A service that uses half a millisecond, and answers with what it used in nanoseconds.
fn half_a_millisecond()
-> impl Service<Request<Empty<Bytes>>, Response = Response<Body>, Error = Infallible, Future = Answer> + Clone {
    service(|_| async {
        burn(MS / 2);
        tokio::task::yield_now().await;
        used().unwrap().as_nanos().to_string()
    })
}

fn of<'h>(customer: &'h str, criticality: &'h str) -> [(&'static str, &'h str); 2] {
    [("x-customer", customer), ("x-criticality", criticality)]
}

#[tokio::test]
async fn a_customer_uses_no_more_than_its_limit_and_another_does_not_notice() {
    let layer = limited().build();
    let work = half_a_millisecond();
    let ask = async |customer: &str, criticality: &str| {
        layer.layer(work.clone()).oneshot(with(get("/"), &of(customer, criticality))).await.unwrap()
    };
    let begun = Instant::now();
    let (mut nanos, mut over) = (0_u64, 0);
    for _ in 0..600 {
        let response = ask("crawler", "critical").await;
        if response.status() == StatusCode::OK {
            nanos += text(response).await.parse::<u64>().unwrap();
        } else {
            assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
            let shed = Shed::read(response.status(), response.headers()).unwrap();
            assert_eq!((shed.reason, shed.retry), (Some(ShedReason::Quota), Retry::After));
            assert!(shed.after.is_some_and(|after| after >= Duration::from_secs(1)), "{shed:?}");
            over += 1;
        }
        assert_eq!(ask("ann", "sheddable").await.status(), StatusCode::OK);
    }
    // What is there at once, and a second's worth for each that has gone by; the last request was let in before it was known.
    let seconds = begun.elapsed().as_secs_f64() + 1.01;
    let used = Duration::from_nanos(nanos);
    assert!(used.as_secs_f64() <= 0.05 * seconds * 1.02 + 0.001, "{used:?} in {seconds} s");
    assert!(over > 0 && used >= 5 * MS, "{over} were over, {used:?} were used");
    let counts = layer.admission().by_criticality;
    assert_eq!(counts[Criticality::Critical.rank()].quota, over);
    assert_eq!(counts[Criticality::Sheddable.rank()].admitted, 600);

    let grpc = [("x-customer", "crawler"), ("x-criticality", "sheddable"), ("content-type", "application/grpc")];
    let answer = layer.layer(work.clone()).oneshot(with(get("/s/m"), &grpc)).await.unwrap();
    assert_eq!((answer.status(), Code::read(answer.headers())), (StatusCode::OK, Some(Code::ResourceExhausted)));
    assert_eq!(answer.headers()["grpc-retry-pushback-ms"], "-1");
}

#[tokio::test]
async fn a_dry_run_counts_who_is_over_its_limit_and_serves_it() {
    let layer = limited().admission(Mode::DryRun).build();
    let work = half_a_millisecond();
    for _ in 0..400 {
        let request = with(get("/"), &of("crawler", "critical"));
        let response = layer.layer(work.clone()).oneshot(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
    }
    let critical = layer.admission().by_criticality[Criticality::Critical.rank()];
    assert!(critical.quota > 0 && critical.admitted == 400, "{critical:?}");
}

#[tokio::test]
async fn whoever_is_not_known_has_the_limit_of_all_unknown() {
    let nothing = Quota::hard(0.0).unwrap();
    let ann = |customer: &Customer| (customer.name() == b"ann").then_some(Quota::UNLIMITED);
    let layer = builder().quota_by(ann).default_quota(nothing).exempt(|head| head.uri.path() == "/alive").build();
    let ok = service(|_| async { String::new() });
    for (path, headers, status) in [
        ("/", &[("x-customer", "ann")][..], StatusCode::OK),
        ("/", &[("x-customer", "bob")], StatusCode::TOO_MANY_REQUESTS),
        ("/", &[], StatusCode::TOO_MANY_REQUESTS),
        ("/alive", &[("x-customer", "bob")], StatusCode::OK),
        ("/readyz", &[], StatusCode::OK),
    ] {
        let response = layer.layer(ok.clone()).oneshot(with(get(path), headers)).await.unwrap();
        assert_eq!(response.status(), status, "{path} {headers:?}");
    }
}

#[tokio::test]
async fn without_admission_nothing_is_counted() {
    let layer = tiny().admission(None).build();
    let answers = overload(&layer, Criticality::Critical).await;
    assert!(answers.iter().all(|answer| is_shed(answer).is_none()));
    assert_eq!(layer.admission(), Default::default());
}

#[tokio::test]
async fn what_the_owner_exempts_is_served_whatever_the_load() {
    let layer = tiny().exempt(|head| head.uri.path() == "/alive").build();
    overload(&layer, Criticality::Critical).await;
    let ok = service(|_| async { "alive".to_owned() });
    let request = with(get("/alive"), &[("x-criticality", "sheddable")]);
    assert_eq!(text(layer.layer(ok).oneshot(request).await.unwrap()).await, "alive");
}

#[tokio::test]
async fn a_gauge_of_the_owner_leaves_room_for_fewer_at_a_time() {
    let layer = builder().cpus(8.0).gauge(|| 50.0).build();
    assert_eq!(layer.loads().unwrap().binding, None);
    let ok = service(|_| async {
        burn(MS);
        String::new()
    });
    let mut layered = layer.layer(ok);
    let begun = Instant::now();
    let mut turned_away = false;
    while begun.elapsed() < Duration::from_secs(10) && !turned_away {
        let two = [layered.call(get("/")), layered.call(get("/"))];
        turned_away = join_all(two).await.into_iter().any(|answer| is_shed(&answer.unwrap()).is_some());
    }
    assert!(turned_away);
    let loads = layer.loads().unwrap();
    assert_eq!(loads.binding, Some(Signal::Gauge));
    let known: Vec<_> = loads.known().collect();
    assert!(known.contains(&(Signal::Gauge, 50.0)), "{known:?}");
    assert!(known.iter().any(|(signal, load)| *signal == Signal::Memory && *load > 0.0), "by default: {known:?}");
    assert!(known.iter().all(|(signal, _)| *signal != Signal::CpuPressure), "not by default: {known:?}");
    assert_eq!(builder().admission(None).build().loads(), None);
}

/// How many of a hundred requests are in progress that come at once, after so many others have ended that used 1 and 3 ms in turn. No time
/// goes by, so that nothing drains.
async fn in_progress_at_once(outlook: Outlook, others: u32) -> u64 {
    let layer = builder().cpus(1.0).outlook(outlook).build();
    let works = service(|request: Request<_>| async move {
        if request.uri().path() == "/hangs" {
            std::future::pending::<()>().await;
        }
        burn(if request.headers().contains_key("dear") { 3 * MS } else { MS });
        String::new()
    });
    for n in 0..others {
        let request = if n % 2 == 0 { get("/") } else { with(get("/"), &[("dear", "yes")]) };
        assert_eq!(text(layer.layer(works.clone()).oneshot(request).await.unwrap()).await, "");
    }
    let mut burst: Vec<_> = (0..100).map(|_| Box::pin(layer.layer(works.clone()).oneshot(get("/hangs")))).collect();
    for request in &mut burst {
        let _ = request.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }
    layer.admission().by_criticality[Criticality::Critical.rank()].admitted - u64::from(others)
}

/// Its line is as much as eight mean requests take, each counted with what few exceed.
#[tokio::test(start_paused = true)]
async fn a_pessimistic_server_never_exceeds_its_line() {
    for others in [0, 100] {
        let wary = in_progress_at_once(Outlook::Pessimistic, others).await;
        assert!((5..=8).contains(&wary), "{wary} after {others} others");
        let hopeful = in_progress_at_once(Outlook::Optimistic, others).await;
        assert!(hopeful >= 16, "{hopeful} after {others} others");
    }
}

#[tokio::test]
async fn handlers_know_whom_they_serve() {
    let layer = builder().build();
    let say = |context: Option<RequestContext>| {
        let RequestContext { criticality, customer, deadline, attempt, .. } = context.unwrap();
        let customer = customer.map(|customer| String::from_utf8(customer.name().to_vec()).unwrap());
        format!("{criticality} {customer:?} {} {attempt}", deadline.is_some())
    };
    let echo = service(move |request: Request<_>| async move {
        assert_eq!(pressure(), Pressure::None);
        let here = say(current());
        assert_eq!(say(request.extensions().get().cloned()), here);
        assert_eq!(spawn(async move { say(current()) }).await.unwrap(), here);
        assert_eq!(spawn_blocking(move || say(current())).await.unwrap(), here);
        assert_eq!(std::thread::spawn(bind(move || say(current()))).join().unwrap(), here);
        here
    });
    for (headers, said) in [
        (&[][..], "critical None false 1"),
        (
            &[
                ("x-criticality", "sheddable"),
                ("x-customer", "ann"),
                ("grpc-timeout", "5S"),
                ("x-envoy-attempt-count", "3"),
            ],
            r#"sheddable Some("ann") true 3"#,
        ),
        (&[("baggage", "a=b,criticality=critical-plus")], "critical-plus None false 1"),
        (
            &[("x-criticality", "vital"), ("grpc-timeout", "soon"), ("x-envoy-attempt-count", "-1")],
            "critical None false 1",
        ),
    ] {
        let response = layer.layer(echo.clone()).oneshot(with(get("/"), headers)).await.unwrap();
        assert_eq!(text(response).await, said);
    }
    assert_eq!(layer.admission().malformed, 3);
    assert!(current().is_none() && used().is_none());
}

#[tokio::test]
async fn strangers_are_not_believed() {
    let claims = Classifier { trust: Trust::UpTo(Criticality::SheddablePlus), otherwise: Criticality::Sheddable };
    let token = |head: plimsoll::server::RequestHead<'_>| {
        head.headers.get("authorization").and_then(|_| Customer::new("by token"))
    };
    let layer = builder().criticality(claims).customer_by(token).build();
    let echo = service(|_| async {
        let context = current().unwrap();
        format!("{} {:?}", context.criticality, context.customer.map(|customer| customer.name().to_vec()))
    });
    let headers = [("x-criticality", "critical-plus"), ("x-customer", "ann"), ("authorization", "a b")];
    let response = layer.layer(echo.clone()).oneshot(with(get("/"), &headers)).await.unwrap();
    assert_eq!(text(response).await, format!("sheddable-plus {:?}", Some(b"by token")));
    let response = layer.layer(echo).oneshot(with(get("/"), &headers[..2])).await.unwrap();
    assert_eq!(text(response).await, format!("sheddable-plus {:?}", Some(b"ann")));
}

/// Each kind of work for itself, so that one that is missed is not hidden by the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_that_a_request_does_is_charged_to_it() {
    let cost = 20 * MS;
    let measured = |work: fn(Duration) -> BoxFuture<'static, ()>| async move {
        let layer = builder().cpus(64.0).build();
        let burning = service(move |_| async move {
            work(cost).await;
            let used = used().unwrap();
            used.as_micros().to_string()
        });
        let response = layer.layer(burning).oneshot(get("/")).await.unwrap();
        let micros: u64 = text(response).await.parse().unwrap();
        Duration::from_micros(micros)
    };
    for (name, work) in [
        ("polls", (|cost| Box::pin(in_pieces(cost))) as fn(Duration) -> BoxFuture<'static, ()>),
        ("tasks", |cost| {
            Box::pin(async move {
                for task in [spawn(in_pieces(cost / 2)), spawn(in_pieces(cost / 2))] {
                    task.await.unwrap();
                }
                tokio::task::yield_now().await;
            })
        }),
        ("blocking calls", |cost| {
            Box::pin(async move {
                spawn_blocking(move || burn(cost)).await.unwrap();
                tokio::task::yield_now().await;
            })
        }),
    ] {
        let used = measured(work).await;
        assert!(used >= cost.mul_f64(0.95) && used < cost * 2, "{name}: {used:?} of {cost:?}");
    }
}

/// Then a yield, so that what was used shows.
async fn in_pieces(cost: Duration) {
    for _ in 0..20 {
        burn(cost / 20);
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_body_of_a_response_is_charged_too() {
    let layer = builder().build();
    let seen = Arc::new(AtomicU64::new(0));
    let frames = |seen: Arc<AtomicU64>| {
        stream::iter((0..10).map(move |_| {
            seen.store(used().unwrap().as_micros() as u64, Ordering::Relaxed);
            burn(2 * MS);
            Ok(Frame::data(Bytes::from_static(b"x")))
        }))
    };
    let counted = Arc::clone(&seen);
    let streaming = tower::service_fn(move |_: Request<Empty<Bytes>>| {
        let body = StreamBody::new(frames(Arc::clone(&counted))).boxed_unsync();
        async move { Ok::<_, Infallible>(Response::new(body)) }
    });
    let response = layer.layer(streaming).oneshot(get("/")).await.unwrap();
    assert_eq!(text(response).await.len(), 10);
    let micros = seen.load(Ordering::Relaxed);
    assert!((17_000..36_000).contains(&micros), "{micros} µs before the last of ten times two");
}

/// Ten thousand tasks of one request, beside others that come one after another: they wait, and none is turned away.
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

/// So many requests in progress at all times, each of which uses a millisecond of a server that is said to have 16 CPUs, so that some
/// ninety may wait for one. Nothing is asked that this many CPUs could not do: what sheds is that more could run than are in order.
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
    let shed = || layer.admission().by_criticality[Criticality::Sheddable.rank()].overloaded;
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

/// What the report of a response says of its request's cost.
fn cost(headers: &http::HeaderMap) -> std::collections::BTreeMap<String, f64> {
    plimsoll_wire::orca::read(headers).unwrap().unwrap().request_cost
}

#[tokio::test]
async fn the_report_of_a_response_tells_what_its_request_used() {
    let layer = builder().build();
    let work = service(|request: Request<_>| async move {
        burn(if request.uri().path() == "/dear" { 10 * MS } else { MS });
        charge("tokens", 800.0);
        spawn(async { charge("tokens", 12.0) }).await.unwrap();
        String::new()
    });
    for (path, least, most) in [("/dear", 9e-3, 20e-3), ("/cheap", 0.9e-3, 5e-3)] {
        // Of several the cheapest: what a hypervisor takes from a thread may count as its own time.
        let mut cheapest = f64::INFINITY;
        for _ in 0..5 {
            let response = layer.layer(work.clone()).oneshot(get(path)).await.unwrap();
            let cost = cost(response.headers());
            assert_eq!(cost["tokens"], 812.0, "{path}");
            let cpu = plimsoll_wire::orca::request_cpu(response.headers());
            assert_eq!(cpu, Some(cost["cpu"]));
            assert!(plimsoll_wire::orca::read_load(response.headers()).unwrap().is_ok());
            cheapest = cheapest.min(cost["cpu"]);
        }
        assert!((least..most).contains(&cheapest), "{path}: {cheapest}");
    }
    let unmeasured = builder().admission(None).build();
    let response = unmeasured.layer(work.clone()).oneshot(get("/cheap")).await.unwrap();
    assert!(cost(response.headers()).is_empty());
    charge("tokens", 1.0);
}

#[tokio::test]
async fn the_trailers_of_a_call_tell_what_all_of_it_used() {
    let layer = builder().build();
    let streaming = tower::service_fn(move |_: Request<Empty<Bytes>>| {
        let frames = stream::iter((0..5).map(|_| {
            burn(2 * MS);
            Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"x")))
        }));
        let trailers = http::HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), "0".parse().unwrap())]);
        let end = stream::once(async move { Ok(Frame::trailers(trailers)) });
        let body = StreamBody::new(futures_util::StreamExt::chain(frames, end)).boxed_unsync();
        async move {
            Ok::<_, Infallible>(Response::builder().header("content-type", "application/grpc").body(body).unwrap())
        }
    });
    // Of several the cheapest: what a hypervisor takes from a thread may count as its own time.
    let mut cheapest = f64::INFINITY;
    for _ in 0..5 {
        let request = with(get("/s/m"), &[("content-type", "application/grpc")]);
        let body = layer.layer(streaming).oneshot(request).await.unwrap().into_body().collect().await.unwrap();
        cheapest = cheapest.min(cost(body.trailers().unwrap())["cpu"]);
    }
    assert!((9e-3..18e-3).contains(&cheapest), "{cheapest}");
}

/// The waker that tells runnable from waiting passes every wake on, and a future may be polled without one.
#[tokio::test]
async fn wakes_reach_whoever_polls() {
    let layer = builder().build();
    let (send, receive) = tokio::sync::oneshot::channel::<()>();
    let receive = Arc::new(parking_lot::Mutex::new(Some(receive)));
    let waiting = service(move |_| {
        let receive = receive.lock().take().unwrap();
        async move {
            receive.await.unwrap();
            "woken".to_owned()
        }
    });
    let mut answer = std::pin::pin!(layer.layer(waiting).oneshot(get("/")));
    for _ in 0..3 {
        let polled = answer.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
    }
    let (response, ()) = tokio::join!(answer, async {
        tokio::task::yield_now().await;
        send.send(()).unwrap();
    });
    assert_eq!(text(response.unwrap()).await, "woken");
}

#[tokio::test]
async fn requests_made_while_serving_another_have_its_importance_customer_deadline_and_attempt() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let show = tower::service_fn(|request: Request<hyper::body::Incoming>| async move {
        let header = |name: &str| request.headers().get(name).map_or("-", |value| value.to_str().unwrap()).to_owned();
        let names = ["x-criticality", "x-customer", "x-envoy-attempt-count", "x-envoy-expected-rq-timeout-ms"];
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(names.map(header).join(" "))))
    });
    let lifecycle = Lifecycle::new();
    lifecycle.ready();
    tokio::spawn(plimsoll::server::serve([listener], show, ServerLayer::new(lifecycle), Default::default()));

    let cluster = Cluster::new("shown", ClusterConfig::default(), [address]);
    let client = Client::<Empty<Bytes>>::new(&cluster);
    let middle = service(move |request: Request<_>| {
        let client = client.clone();
        async move {
            let mut onward = get("/");
            if let Some(own) = request.headers().get("own") {
                onward.headers_mut().insert("x-criticality", own.clone());
            }
            // Through a task, as services do.
            let response = spawn(async move { client.send(onward).await.unwrap() }).await.unwrap();
            String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().into()).unwrap()
        }
    });
    let layer = builder().build();
    let ask = async |headers: &[(&'static str, &str)]| {
        text(layer.layer(middle.clone()).oneshot(with(get("/"), headers)).await.unwrap()).await
    };
    assert_eq!(ask(&[]).await, "critical - - -");
    assert_eq!(ask(&[("x-criticality", "sheddable"), ("x-customer", "ann")]).await, "sheddable ann - -");
    assert_eq!(ask(&[("x-criticality", "sheddable"), ("own", "critical-plus")]).await, "critical-plus - - -");
    assert_eq!(ask(&[("x-envoy-attempt-count", "3")]).await, "critical - 3 -");
    assert_eq!(ask(&[("x-envoy-attempt-count", "1")]).await, "critical - - -");
    let with_deadline = ask(&[("x-envoy-expected-rq-timeout-ms", "5000")]).await;
    let left: u64 = with_deadline.strip_prefix("critical - - ").unwrap().parse().unwrap();
    assert!((1..=5_000).contains(&left), "{left}");
}
