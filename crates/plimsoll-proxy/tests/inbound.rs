//! How critical requests are taken to be, and what a gate before the process of a cluster does with them.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response, Version};
use http_body_util::{BodyExt as _, Empty};
use plimsoll_core::Criticality;
use plimsoll_core::admit::Pressure;
use plimsoll_core::shedding::Verdict;
use plimsoll_proxy::Proxy;
use plimsoll_proxy::explain::{Kind, Origin};
use plimsoll_wire::metadata::Claim;
use support::*;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// A listener, routes by path, and one cluster.
fn text(backend: SocketAddr, listener: &str, routes: &str, inbound: &str) -> String {
    format!(
        "threads = 1\n[[listeners]]\naddress = \"127.0.0.1:0\"\nname = \"main\"\n{listener}\n[[routes]]\ncluster = \
         \"c\"\n{routes}\n[clusters.c]\nbackends = [\"{backend}\"]\n{inbound}\n"
    )
}

fn route(path: &str, settings: &str) -> String {
    format!("[[routes]]\npath_prefix = \"{path}\"\ncluster = \"c\"\n{settings}\n")
}

/// What the backend sees of `fields` in a request for `path`: its lines about criticality.
async fn seen(proxy: &Proxy, path: &str, fields: &str) -> Vec<String> {
    let mut client = Raw::to(address_of(proxy, "main")).await;
    let answer = client.ask(&format!("GET {path} HTTP/1.1\r\nhost: a\r\n{fields}\r\n")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.body.lines().filter(|line| line.contains("criticality")).map(str::to_owned).collect()
}

#[tokio::test]
async fn claims_that_are_not_believed_do_not_reach_the_backend() {
    let backend = Backend::echo().await;
    let routes = route("/batch", "criticality = \"sheddable\"");
    let listener = "criticality = \"sheddable-plus\"\ntrust_criticality = \"critical\"";
    let proxy = start(&text(backend.address, listener, &routes, "")).await;
    for (path, fields, decided) in [
        ("/", "", "x-criticality: sheddable-plus"),
        ("/", "x-criticality: sheddable\r\n", "x-criticality: sheddable"),
        ("/", "x-criticality: critical-plus\r\n", "x-criticality: critical"),
        ("/", "x-criticality: critical-plus\r\nx-criticality: critical-plus\r\n", "x-criticality: critical"),
        ("/", "x-criticality: urgent\r\n", "x-criticality: sheddable-plus"),
        ("/", "connection: x-criticality\r\nx-criticality: critical-plus\r\n", "x-criticality: critical"),
        ("/batch", "x-criticality: critical-plus\r\n", "x-criticality: sheddable"),
        ("/batch", "", "x-criticality: sheddable"),
    ] {
        assert_eq!(seen(&proxy, path, fields).await, [decided], "{path} {fields:?}");
    }
    let fields = "baggage: user=7,criticality=critical-plus\r\n";
    let mut both = seen(&proxy, "/batch", fields).await;
    both.sort();
    assert_eq!(both, ["baggage: user=7,criticality=sheddable", "x-criticality: sheddable"]);
}

#[tokio::test]
async fn listener_that_says_nothing_of_criticality_caps_claims() {
    let backend = Backend::echo().await;
    let routes = route("/batch", "criticality = \"sheddable\"");
    let proxy = start(&text(backend.address, "", &routes, "")).await;
    assert_eq!(seen(&proxy, "/", "").await, Vec::<String>::new());
    for (fields, goes_on) in [
        ("x-criticality: critical-plus\r\n", &["x-criticality: critical"][..]),
        ("x-criticality: sheddable\r\n", &["x-criticality: sheddable"]),
        ("x-criticality: urgent\r\n", &["x-criticality: critical"]),
        ("x-criticality: urgent\r\nx-criticality: critical-plus\r\n", &["x-criticality: critical"]),
        (
            "baggage: a=b,criticality=critical-plus\r\n",
            &["baggage: a=b,criticality=critical", "x-criticality: critical"],
        ),
        (
            "x-criticality: sheddable\r\nbaggage: criticality=critical-plus\r\n",
            &["baggage: criticality=sheddable", "x-criticality: sheddable"],
        ),
    ] {
        let mut lines = seen(&proxy, "/", fields).await;
        lines.sort();
        assert_eq!(lines, goes_on, "{fields:?}");
    }
    assert_eq!(seen(&proxy, "/batch", "").await, ["x-criticality: sheddable"]);
}

/// A gate before this very process, which uses far more than the hundredth of a CPU that it is said to have.
async fn gated(backend: &Backend, dry_run: bool) -> (Arc<Proxy>, String) {
    let listener = "trust_criticality = \"critical-plus\"";
    let inbound = format!("[clusters.c.inbound]\npid = {}\ncpus = 0.01\ndry_run = {dry_run}\n", std::process::id());
    let text = text(backend.address, listener, &route("/healthz", "exempt = true"), &inbound);
    let proxy = start(&text).await;
    until(|| proxy.inbound("c").unwrap().cpus.is_some()).await;
    (proxy, text)
}

fn decided(proxy: &Proxy, criticality: Criticality, decision: &str) -> u64 {
    let view = proxy.inbound("c").unwrap();
    let found = view.decisions.iter().find(|(of, name, _)| *of == criticality && *name == decision);
    found.expect("is counted").2
}

/// Sends requests of this criticality until `end` says so of an answer.
async fn ask_until(proxy: &Proxy, criticality: &str, end: impl Fn(&Answered) -> bool) -> Answered {
    let mut client = Raw::to(address_of(proxy, "main")).await;
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let request = format!("GET / HTTP/1.1\r\nhost: a\r\nx-criticality: {criticality}\r\n\r\n");
        let answer = client.ask(&request).await;
        if end(&answer) {
            return answer;
        }
    }
    panic!("no such answer to a {criticality} request");
}

#[tokio::test]
async fn the_least_important_are_turned_away_and_told_why() {
    let backend = Backend::echo().await;
    let (proxy, _) = gated(&backend, false).await;
    let shed = ask_until(&proxy, "sheddable", |answer| answer.status != 200).await;
    assert_eq!(shed.status, 503);
    assert!(shed.head.contains("x-plimsoll-shed: reason=overloaded, retry=elsewhere\r\n"), "{}", shed.head);
    assert!(shed.body.starts_with("overloaded: "), "{}", shed.body);
    let turned_away = decided(&proxy, Criticality::Sheddable, "overloaded");
    assert!(turned_away >= 1 && proxy.listeners()[0].refusals.contains(&("overloaded", turned_away)));

    let asked = backend.requests();
    let mut client = Raw::to(address_of(&proxy, "main")).await;
    for _ in 0..100 {
        assert_eq!(client.ask("GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").await.status, 200, "exempt");
    }
    ask_until(&proxy, "critical-plus", |answer| answer.status == 200).await;
    assert_eq!(decided(&proxy, Criticality::CriticalPlus, "admitted"), 1, "the first is let in");
    assert_eq!(backend.requests(), asked + 101);
}

#[tokio::test]
async fn who_is_turned_away_is_told_by_what_to_ask_why() {
    let backend = Backend::echo().await;
    let (proxy, _) = gated(&backend, false).await;
    let shed = ask_until(&proxy, "sheddable", |answer| answer.status != 200).await;
    let id = shed.head.split("x-request-id: ").nth(1).and_then(|rest| rest.split("\r\n").next()).expect("has an id");
    let known = proxy.explanations();
    let explained = known.iter().find(|known| known.id.as_str() == id).expect("is remembered");
    assert!(explained.is_own_id);
    assert_eq!((explained.end.kind, explained.end.word()), (Kind::Refused, Some("overloaded")));
    let criticality = explained.criticality.expect("is known");
    assert_eq!((criticality.level, criticality.from), (Criticality::Sheddable, Origin::Claimed(Claim::Header)));
    let gate = explained.gate.expect("was asked");
    assert_eq!((gate.decision, gate.is_dry_run), ("overloaded", false));
    assert!(!gate.expected.is_zero() && gate.pressure > Pressure::None);
    assert_eq!((explained.route.as_deref(), explained.cluster.as_deref()), (Some("/"), Some("c")));
    assert_eq!(proxy.inbound("c").unwrap().shedding.verdict, Verdict::AsIntended);
}

#[tokio::test]
async fn a_grpc_call_is_turned_away_in_the_words_of_grpc() {
    let backend = Backend::echo().await;
    let (proxy, _) = gated(&backend, false).await;
    let (mut client, _ended) = http2::<Empty<Bytes>>(address_of(&proxy, "main")).await;
    let begun = Instant::now();
    let head = loop {
        assert!(begun.elapsed() < PATIENCE, "none was turned away");
        let request = Request::post("http://a/shop.Orders/List")
            .version(Version::HTTP_2)
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("x-criticality", "sheddable")
            .body(Empty::new())
            .unwrap();
        let (head, body) = soon(client.send_request(request)).await.unwrap().into_parts();
        let _ = soon(body.collect()).await;
        if head.headers.contains_key("x-plimsoll-shed") {
            break head;
        }
    };
    assert_eq!(head.status, 200);
    assert_eq!(head.headers["grpc-status"], "14");
    assert_eq!(head.headers["grpc-retry-pushback-ms"], "1");
}

#[tokio::test]
async fn a_dry_run_counts_and_turns_nobody_away() {
    let go = Arc::new(Semaphore::new(0));
    let backend = Backend::start({
        let go = Arc::clone(&go);
        move |_| {
            let go = Arc::clone(&go);
            async move {
                go.acquire().await.unwrap().forget();
                Response::new(full("done"))
            }
        }
    })
    .await;
    let (proxy, _) = gated(&backend, true).await;
    let (client, _ended) = http2::<Empty<Bytes>>(address_of(&proxy, "main")).await;
    let mut calls = JoinSet::new();
    // More at once than a hundredth of a CPU has room for, however little each may cost.
    for _ in 0..100 {
        let request = Request::get("http://a/").header("x-criticality", "sheddable").body(Empty::new()).unwrap();
        let mut client = client.clone();
        calls.spawn(async move { client.send_request(request).await.unwrap().status() });
    }
    until(|| backend.requests() == 100).await;
    assert!(decided(&proxy, Criticality::Sheddable, "overloaded") > 0);
    assert_eq!(decided(&proxy, Criticality::Sheddable, "admitted"), 100);
    go.add_permits(100);
    assert!(soon(calls.join_all()).await.iter().all(|status| *status == 200));
}

/// Two routes that are asked for in turn, so that nobody could tell from outside which of them costs what.
#[tokio::test]
async fn what_a_backend_says_that_requests_cost_is_believed() {
    let backend = Backend::start(|request| async move {
        let cost =
            if request.uri().path() == "/dear" { "TEXT request_cost.cpu=2e-4" } else { "TEXT request_cost.cpu=2e-6" };
        Response::builder().header("endpoint-load-metrics", cost).body(full("done")).unwrap()
    })
    .await;
    let inbound = format!("[clusters.c.inbound]\npid = {}\ncpus = 64\n", std::process::id());
    let routes = route("/cheap", "criticality = \"sheddable\"");
    let proxy = start(&text(backend.address, "", &routes, &inbound)).await;
    until(|| proxy.inbound("c").unwrap().cpus.is_some()).await;
    let mut client = Raw::to(address_of(&proxy, "main")).await;
    // What each was expected to cost when it came, of all so far.
    let expected = || {
        let total = proxy.inbound("c").unwrap().shedding.total;
        [Criticality::Critical, Criticality::Sheddable].map(|criticality| total[criticality.rank()].offered.cost)
    };
    let begun = Instant::now();
    loop {
        let before = expected();
        for _ in 0..50 {
            for path in ["/dear", "/cheap"] {
                let answer = client.ask(&format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n")).await;
                assert!(answer.status == 200 && !answer.head.contains("endpoint-load-metrics"), "{}", answer.head);
            }
        }
        let after = expected();
        let [dear, cheap] = [0, 1].map(|at| (after[at] - before[at]) / 50.0);
        if (1e-4..3e-4).contains(&dear) && cheap < dear / 20.0 {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "{dear} and {cheap} CPU-seconds");
    }
}

#[tokio::test]
async fn only_who_is_trusted_says_that_a_request_was_sent_before() {
    let backend = Backend::echo().await;
    let inbound = format!("[clusters.c.inbound]\npid = {}\ncpus = 64\n", std::process::id());
    for (listener, retried) in [
        ("", 0),
        ("trust_criticality = \"off\"", 0),
        ("trust_criticality = \"critical\"", 0),
        ("trust_criticality = \"critical-plus\"", 1),
        ("customer_header = \"x-customer\"", 1),
    ] {
        let proxy = start(&text(backend.address, listener, "", &inbound)).await;
        until(|| proxy.inbound("c").unwrap().cpus.is_some()).await;
        let mut client = Raw::to(address_of(&proxy, "main")).await;
        let answer = client.ask("GET / HTTP/1.1\r\nhost: a\r\nx-envoy-attempt-count: 2\r\n\r\n").await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.body.contains("x-envoy-attempt-count"), retried == 1, "{listener}: {}", answer.body);
        let class = proxy.inbound("c").unwrap().shedding.total[Criticality::Critical.rank()];
        assert_eq!((class.offered.requests, class.retried.requests), (1, retried), "{listener}");
    }
}

#[tokio::test]
async fn requests_that_get_no_backend_do_not_look_cheap() {
    let inbound = format!("[clusters.c.inbound]\npid = {}\ncpus = 64\n", std::process::id());
    let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
    let proxy = Proxy::start(parse(&text(nobody, "", "", &inbound))).await.unwrap();
    until(|| proxy.inbound("c").unwrap().cpus.is_some()).await;
    let mut client = Raw::to(address_of(&proxy, "main")).await;
    let begun = Instant::now();
    // Some windows of the fit, in which this process uses a little for other things.
    while begun.elapsed() < Duration::from_millis(700) {
        let answer = client.ask("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        assert!(answer.status >= 500, "{}", answer.head);
    }
    let offered = proxy.inbound("c").unwrap().shedding.total[Criticality::Critical.rank()].offered;
    let cost = offered.cost / offered.requests as f64;
    assert!((cost - 1e-3).abs() < 1e-6, "{cost} CPU-seconds, of {} requests", offered.requests);
}

#[tokio::test]
async fn a_reload_keeps_a_gate_that_did_not_change() {
    let backend = Backend::echo().await;
    let (proxy, text) = gated(&backend, false).await;
    ask_until(&proxy, "critical-plus", |answer| answer.status == 200).await;
    let admitted = || decided(&proxy, Criticality::CriticalPlus, "admitted");
    assert_eq!(admitted(), 1);
    proxy.reload(parse(&format!("{text}[clusters.more]\nbackends = [\"127.0.0.1:1\"]\n"))).await.unwrap();
    assert_eq!(admitted(), 1);
    proxy.reload(parse(&text.replace("cpus = 0.01", "cpus = 0.02"))).await.unwrap();
    assert_eq!(admitted(), 0);
    proxy
        .reload(parse(text.split("[clusters.c.inbound]").next().unwrap().replace("exempt = true", "").as_str()))
        .await
        .unwrap();
    assert!(proxy.inbound("c").is_none());
    ask_until(&proxy, "sheddable", |answer| answer.status == 200).await;
}
