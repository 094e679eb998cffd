use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::task::LocalSet;

use super::*;
use crate::load::mix::{Mix, Parts};
use crate::load::spread::Spread;
use crate::load::tally::Group;
use crate::load::target::{Params, Target};

fn plan(address: SocketAddr, protocol: Protocol, shape: Shape, requests: u64) -> Plan {
    let url = format!("http://{address}/");
    let params = Params { url: &url, protocol, method: None, path: None, headers: &[], body_size: 0 };
    Plan {
        target: Target::new(params).unwrap(),
        protocol,
        shape,
        duration: None,
        requests: Some(requests),
        warmup: Duration::ZERO,
        timeout: Duration::from_secs(10),
        max_in_flight: 1_000,
        connections: 1,
        spread: None,
        seed: 1,
    }
}

const ONE_CALLER: Shape = Shape::Closed { concurrency: 1 };

async fn measure(plan: Plan) -> Record {
    let engine = Engine::new(plan);
    engine.run().await.unwrap();
    engine.take_measured()
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::new(Full::from("hello"));
    response.headers_mut().insert("x-backend", "b1".parse().unwrap());
    match request.uri().path() {
        "/close" => drop(response.headers_mut().insert("connection", "close".parse().unwrap())),
        "/shed" if request.headers().get("x-criticality").is_some_and(|name| name == "sheddable") => {
            *response.status_mut() = StatusCode::GATEWAY_TIMEOUT;
            response.headers_mut().insert("x-plimsoll-shed", "retry=after, reason=quota".parse().unwrap());
        }
        "/fail" => *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE,
        "/plimsoll.backend.v1.Backend/Work" => {
            drop(response.headers_mut().insert("grpc-status", "14".parse().unwrap()));
        }
        _ => {}
    }
    Ok(response)
}

fn serve_http1(listener: TcpListener) {
    tokio::task::spawn_local(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::task::spawn_local(http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer)));
        }
    });
}

#[tokio::test]
async fn answers_are_counted_by_status_and_backend() {
    LocalSet::new()
        .run_until(async {
            let (listener, address) = listen().await;
            serve_http1(listener);
            let record = measure(plan(address, Protocol::Http1, ONE_CALLER, 20)).await;
            assert_eq!((record.requests, record.failed(), record.connections, record.bytes), (20, 0, 1, 100));
            assert_eq!(record.statuses[&200], 20);
            assert_eq!(record.backends[&http::HeaderValue::from_static("b1")], 20);

            let mut plan = plan(address, Protocol::Http1, ONE_CALLER, 5);
            let url = format!("http://{address}/fail");
            let params =
                Params { url: &url, protocol: Protocol::Http1, method: None, path: None, headers: &[], body_size: 0 };
            plan.target = Target::new(params).unwrap();
            let record = measure(plan).await;
            assert_eq!((record.statuses[&503], record.failures[&Failure::Status]), (5, 5));
        })
        .await;
}

/// A target whose server sheds what is sheddable, and serves the rest.
fn mixed(address: SocketAddr) -> Target {
    let url = format!("http://{address}/shed");
    let params = Params { url: &url, protocol: Protocol::Http1, method: None, path: None, headers: &[], body_size: 0 };
    let criticalities = Parts::of_criticalities("critical=1,sheddable=1").unwrap();
    let customers = Parts::of_customers("web=1").unwrap();
    let mix = Mix { criticalities: Some(criticalities), customers: Some(customers), ..Mix::default() };
    Target::new(params).unwrap().with_mix(mix).unwrap()
}

#[tokio::test]
async fn requests_say_what_they_are_and_are_counted_by_it() {
    LocalSet::new()
        .run_until(async {
            let (listener, address) = listen().await;
            serve_http1(listener);
            let first =
                measure(Plan { target: mixed(address), ..plan(address, Protocol::Http1, ONE_CALLER, 40) }).await;
            let [all, critical, sheddable, web] =
                [Group::All, Group::Criticality(0), Group::Criticality(1), Group::Customer(0)]
                    .map(|group| first.tallies.of(group));
            assert_eq!((all.requests, web.requests, web.ok), (40, 40, critical.requests));
            assert_eq!((critical.ok, critical.shed), (critical.requests, 0));
            assert_eq!((sheddable.ok, sheddable.shed), (0, sheddable.requests));
            assert_eq!((sheddable.limited, critical.limited), (sheddable.requests, 0));
            // By the seed, with neither of the two missing.
            assert!(critical.requests > 0 && sheddable.requests > 0);
            let again =
                measure(Plan { target: mixed(address), ..plan(address, Protocol::Http1, ONE_CALLER, 40) }).await;
            assert_eq!(again.tallies.of(Group::Criticality(0)).requests, critical.requests);
        })
        .await;
}

#[tokio::test]
async fn dropped_requests_count_in_their_groups() {
    LocalSet::new()
        .run_until(async {
            let (_listener, address) = listen().await; // connects, and then nothing
            let shape = Shape::Open { rate: 10_000.0, arrival: Arrival::Uniform };
            let plan = Plan {
                target: mixed(address),
                timeout: Duration::from_millis(200),
                max_in_flight: 20,
                ..plan(address, Protocol::Http1, shape, 100)
            };
            let record = measure(plan).await;
            let of = |group| record.tallies.of(group);
            assert_eq!((of(Group::All).requests, of(Group::All).dropped), (20, 80));
            let both = [Group::Criticality(0), Group::Criticality(1)].map(of);
            assert_eq!(both.iter().map(|tally| tally.dropped).sum::<u64>(), 80);
            assert_eq!(both.iter().map(|tally| tally.ok + tally.shed).sum::<u64>(), 0);
        })
        .await;
}

#[tokio::test]
async fn connection_that_is_announced_to_close_is_not_used_again() {
    LocalSet::new()
        .run_until(async {
            let (listener, address) = listen().await;
            serve_http1(listener);
            let mut plan = plan(address, Protocol::Http1, ONE_CALLER, 5);
            let url = format!("http://{address}/close");
            let params =
                Params { url: &url, protocol: Protocol::Http1, method: None, path: None, headers: &[], body_size: 0 };
            plan.target = Target::new(params).unwrap();
            let record = measure(plan).await;
            assert_eq!((record.requests, record.failed(), record.connections), (5, 0, 5));
        })
        .await;
}

#[tokio::test]
async fn server_that_never_answers_does_not_slow_an_open_loop() {
    LocalSet::new()
        .run_until(async {
            let (_listener, address) = listen().await; // connects, and then nothing
            let shape = Shape::Open { rate: 10_000.0, arrival: Arrival::Uniform };
            let plan = Plan {
                timeout: Duration::from_millis(200),
                max_in_flight: 20,
                ..plan(address, Protocol::Http1, shape, 100)
            };
            let record = measure(plan).await;
            // All 100 are due within 10 ms, long before the first 20 give up.
            assert_eq!((record.requests, record.dropped), (20, 80));
            assert_eq!(record.failures[&Failure::Timeout], 20);
            assert!(record.latency_ms(0.0) >= 199.0, "a timeout counts with the time waited");
        })
        .await;
}

#[tokio::test]
async fn refused_connections_fail_without_end_of_the_run() {
    LocalSet::new()
        .run_until(async {
            let (listener, address) = listen().await;
            drop(listener);
            for protocol in [Protocol::Http1, Protocol::H2c] {
                let record = measure(plan(address, protocol, ONE_CALLER, 5)).await;
                assert_eq!((record.requests, record.failures[&Failure::Connect]), (5, 5));
            }
        })
        .await;
}

#[tokio::test]
async fn connection_that_dies_before_the_answer_fails_its_request() {
    LocalSet::new()
        .run_until(async {
            let (listener, address) = listen().await;
            tokio::task::spawn_local(async move {
                loop {
                    let (mut stream, _) = listener.accept().await.unwrap();
                    tokio::task::spawn_local(async move {
                        let mut bytes = [0; 1024];
                        tokio::io::AsyncReadExt::read(&mut stream, &mut bytes).await.unwrap();
                    });
                }
            });
            let record = measure(plan(address, Protocol::Http1, ONE_CALLER, 5)).await;
            assert_eq!((record.requests, record.failures[&Failure::Closed]), (5, 5));
        })
        .await;
}

/// Each connection says GOAWAY, in two steps, after its third request.
fn serve_http2_with_goaway(listener: TcpListener) {
    tokio::task::spawn_local(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (third, mut reached) = tokio::sync::mpsc::unbounded_channel();
            let seen = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
            let service = service_fn(move |request| {
                if seen.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 2 {
                    let _ = third.send(());
                }
                answer(request)
            });
            tokio::task::spawn_local(async move {
                let served = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service);
                let mut served = std::pin::pin!(served);
                tokio::select! {
                    _ = served.as_mut() => return,
                    _ = reached.recv() => served.as_mut().graceful_shutdown(),
                }
                let _ = served.await;
            });
        }
    });
}

#[tokio::test]
async fn goaway_costs_no_request() {
    LocalSet::new()
        .run_until(async {
            let (listener, address) = listen().await;
            serve_http2_with_goaway(listener);
            let shape = Shape::Closed { concurrency: 4 };
            let record = measure(plan(address, Protocol::H2c, shape, 60)).await;
            assert_eq!((record.requests, record.failed()), (60, 0), "{:?}", record.failures);
            assert!(record.connections > 1, "{}", record.connections);
        })
        .await;
}

#[tokio::test]
async fn grpc_status_in_the_head_is_read_and_a_missing_one_is_a_failure() {
    LocalSet::new()
        .run_until(async {
            let (listener, address) = listen().await;
            tokio::task::spawn_local(async move {
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    let served = http2::Builder::new(TokioExecutor::new());
                    tokio::task::spawn_local(served.serve_connection(TokioIo::new(stream), service_fn(answer)));
                }
            });
            let record = measure(plan(address, Protocol::Grpc, ONE_CALLER, 5)).await;
            assert_eq!((record.grpc_statuses[&14], record.failures[&Failure::GrpcStatus]), (5, 5));

            let mut plan = plan(address, Protocol::Grpc, ONE_CALLER, 5);
            let url = format!("http://{address}/silent");
            let params =
                Params { url: &url, protocol: Protocol::Grpc, method: None, path: None, headers: &[], body_size: 0 };
            plan.target = Target::new(params).unwrap();
            let record = measure(plan).await;
            assert!(record.grpc_statuses.is_empty());
            assert_eq!(record.failures[&Failure::GrpcStatus], 5);
        })
        .await;
}

#[tokio::test]
async fn warm_up_is_sent_and_not_counted() {
    LocalSet::new()
        .run_until(async {
            let (listener, address) = listen().await;
            serve_http1(listener);
            let shape = Shape::Open { rate: 1_000.0, arrival: Arrival::Uniform };
            let plan = Plan { warmup: Duration::from_millis(10), ..plan(address, Protocol::Http1, shape, 10) };
            let engine = Engine::new(plan);
            engine.run().await.unwrap();
            let record = engine.take_measured();
            assert_eq!((record.requests, record.failed()), (10, 0));
        })
        .await;
}

/// A server of this name, whose requests cost 250 CPU-microseconds each.
fn serve_named(listener: TcpListener, name: &'static str) {
    let answer = move |request: Request<Incoming>| async move {
        let mut response = answer(request).await?;
        response.headers_mut().insert("x-backend", name.parse().unwrap());
        response.headers_mut().insert("x-plimsoll-cost-us", "250".parse().unwrap());
        Ok::<_, Infallible>(response)
    };
    tokio::task::spawn_local(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::task::spawn_local(http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer)));
        }
    });
}

/// Seed 1, n = 400: the share of one in four has a standard error of 2.2%, and the bound is 4 of them. The
/// chance of a false alarm is 6e-5 for another seed, and 0 for this one.
#[tokio::test]
async fn spread_gives_each_server_its_part_and_costs_add_up() {
    LocalSet::new()
        .run_until(async {
            let [(first, to_first), (second, to_second)] = [listen().await, listen().await];
            serve_named(first, "first");
            serve_named(second, "second");
            let plan = Plan {
                target: mixed(to_first),
                spread: Spread::new([(to_first, 3.0), (to_second, 1.0)]),
                ..plan(to_first, Protocol::Http1, ONE_CALLER, 400)
            };
            let record = measure(plan).await;
            let served = |name| record.backends[&http::HeaderValue::from_static(name)];
            assert_eq!((served("first") + served("second"), record.connections), (400, 2));
            assert!((264..=336).contains(&served("first")), "{}", served("first"));
            // Shed requests cost too, and are not served.
            let critical = record.tallies.of(Group::Criticality(0));
            assert_eq!(
                (critical.cost_us, record.tallies.of(Group::All).cost_us),
                (250 * critical.ok, 250 * critical.ok)
            );
        })
        .await;
}
