//! What is remembered of requests, and what their senders are told to ask by.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod support;

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Empty;
use plimsoll::client::NextStep;
use plimsoll_proxy::Proxy;
use plimsoll_proxy::explain::{Explanation, Kind};
use support::*;
use tokio::net::TcpListener;

/// A proxy before these backends.
async fn proxy(backends: &[SocketAddr], settings: &str) -> Arc<Proxy> {
    proxy_with(backends, settings, "").await
}

async fn proxy_with(backends: &[SocketAddr], settings: &str, cluster: &str) -> Arc<Proxy> {
    let backends: Vec<String> = backends.iter().map(|address| format!("\"{address}\"")).collect();
    let text = format!(
        "threads = 1\n{settings}\n[[listeners]]\naddress = \"127.0.0.1:0\"\nname = \"main\"\n[[routes]]\n\
         path_prefix = \"/web\"\ncluster = \"c\"\n[clusters.c]\nbackends = [{}]\n{cluster}\n",
        backends.join(", ")
    );
    start(&text).await
}

async fn ask(proxy: &Proxy, path: &str, fields: &str) -> Answered {
    let mut client = Raw::to(address_of(proxy, "main")).await;
    client.ask(&format!("GET {path} HTTP/1.1\r\nhost: a\r\n{fields}\r\n")).await
}

fn explained(proxy: &Proxy, id: &str) -> Option<Arc<Explanation>> {
    proxy.explanations().into_iter().find(|known| known.id.as_str() == id)
}

#[tokio::test]
async fn a_refusal_is_remembered_under_the_sender_s_own_id_without_its_query() {
    let backend = Backend::echo().await;
    let proxy = proxy(&[backend.address], "").await;
    let answer = ask(&proxy, "/nowhere?token=secret", "x-request-id: mine-1\r\n").await;
    assert!(answer.status == 404 && answer.head.contains("x-request-id: mine-1\r\n"), "{}", answer.head);
    let known = explained(&proxy, "mine-1").unwrap();
    assert_eq!((known.end.kind, known.end.word()), (Kind::Refused, Some("no-route")));
    assert_eq!((known.path.as_str(), known.is_own_id, known.route.as_deref()), ("/nowhere", false, None));
}

#[tokio::test]
async fn a_method_of_any_length_is_refused_and_not_remembered_whole() {
    let backend = Backend::echo().await;
    let proxy = proxy(&[backend.address], "").await;
    let long = "M".repeat(10_000);
    let mut one = Raw::to(address_of(&proxy, "main")).await;
    assert_eq!(one.ask(&format!("{long} /web HTTP/1.1\r\nhost: a\r\n\r\n")).await.status, 501);
    let (mut two, _ended) = http2::<Empty<Bytes>>(address_of(&proxy, "main")).await;
    let request = Request::builder().method(Method::from_bytes(long.as_bytes()).unwrap()).uri("http://a/web");
    let answer = soon(two.send_request(request.body(Empty::new()).unwrap())).await.unwrap();
    let id = answer.headers()["x-request-id"].to_str().unwrap();
    let known = explained(&proxy, id).unwrap();
    assert_eq!((answer.status(), known.end.word()), (StatusCode::NOT_IMPLEMENTED, Some("method-too-long")));
    assert_eq!((known.method.as_str(), backend.requests()), (&long[..64], 0));
}

#[tokio::test]
async fn a_failure_names_each_attempt_and_why_there_was_no_other() {
    let gone = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    let backend = Backend::echo().await;
    let proxy = proxy(&[backend.address], "").await;
    let served = ask(&proxy, "/web", "x-request-id: served\r\n").await;
    assert_eq!(served.status, 200);
    assert!(!served.head.contains("x-request-id: served\r\n"), "what a backend answers is its own: {}", served.head);
    assert_eq!(explained(&proxy, "served").unwrap().end.kind, Kind::Served, "the first is kept");
    ask(&proxy, "/web", "x-request-id: another\r\n").await;
    assert!(explained(&proxy, "another").is_none(), "one in a hundred of those that are served");

    // The one backend is another now, and nobody is there.
    let text = format!(
        "threads = 1\n[[listeners]]\naddress = \"127.0.0.1:0\"\nname = \"main\"\n[[routes]]\npath_prefix = \
         \"/web\"\ncluster = \"c\"\n[clusters.c]\nbackends = [\"{gone}\"]\n"
    );
    proxy.reload(parse(&text)).await.unwrap();
    let answer = ask(&proxy, "/web", "").await;
    assert_eq!(answer.status, 503);
    let id = answer.head.split("x-request-id: ").nth(1).and_then(|rest| rest.split("\r\n").next()).unwrap();
    let known = explained(&proxy, id).unwrap();
    assert_eq!(known.end.kind, Kind::Failed);
    assert_eq!((known.cluster.as_deref(), known.route.as_deref()), (Some("c"), Some("/web")));
    assert_eq!(explained(&proxy, "served").unwrap().id.as_str(), "served", "a reload forgets nothing");
}

#[tokio::test]
async fn what_is_tried_elsewhere_is_remembered_with_where_it_failed_first() {
    let (first, second) = (Backend::echo().await, Backend::echo().await);
    // No connection is open by which it would be noticed that one of them goes.
    let proxy = proxy_with(&[first.address, second.address], "[explain]\nsample = 0\n", "min_connections = 0").await;
    let gone = first.address;
    drop(first);
    soon(async {
        for number in 0.. {
            let id = format!("r{number}");
            assert_eq!(ask(&proxy, "/web", &format!("x-request-id: {id}\r\n")).await.status, 200);
            let Some(known) = explained(&proxy, &id) else { continue };
            assert_eq!((known.end.kind, known.end.backend), (Kind::Retried, Some(second.address.into())));
            let failed: Vec<_> = known.failed.iter().map(|failed| (failed.backend, failed.next)).collect();
            assert_eq!(failed, [(Some(gone.into()), NextStep::Elsewhere)]);
            break;
        }
    })
    .await;
}

#[tokio::test]
async fn a_backend_that_fails_is_remembered_and_what_is_off_is_not() {
    let fails = |_| async { Response::builder().status(StatusCode::INTERNAL_SERVER_ERROR).body(full("no")).unwrap() };
    let backend = Backend::start(fails).await;
    let on = proxy(&[backend.address], "[explain]\nsample = 0\n").await;
    assert_eq!(ask(&on, "/web", "x-request-id: f\r\n").await.status, 500);
    let known = explained(&on, "f").unwrap();
    assert_eq!((known.end.kind, known.end.word()), (Kind::Failed, Some("answered-with-failure")));
    let off = proxy(&[backend.address], "[explain]\nentries = \"off\"\n").await;
    ask(&off, "/web", "").await;
    let answer = ask(&off, "/nowhere", "").await;
    assert!(!answer.head.contains("x-request-id") && off.explanations().is_empty(), "{}", answer.head);
}

#[tokio::test]
async fn who_falls_into_a_black_hole_or_gets_the_route_s_own_answer_can_be_asked_about() {
    let backend = Backend::echo().await;
    let ends = "[[routes]]\npath_prefix = \"/hole\"\nblack_hole = true\n\
                [[routes]]\npath_prefix = \"/gone\"\nanswer = { status = 410 }\n";
    let proxy = proxy_with(&[backend.address], "", ends).await;
    assert_eq!(ask(&proxy, "/gone", "x-request-id: g\r\n").await.status, 410);
    let mut client = Raw::to(address_of(&proxy, "main")).await;
    client.send("GET /hole HTTP/1.1\r\nhost: a\r\nx-request-id: h\r\n\r\n").await;
    assert_eq!(client.rest().await, "");
    let end = |id| explained(&proxy, id).map(|known| (known.end.status, known.end.word()));
    assert_eq!(end("g"), Some((Some(StatusCode::GONE), Some("route-answer"))));
    assert_eq!(end("h"), Some((None, Some("black-hole"))));
}

#[tokio::test]
async fn name_of_a_route_tells_no_secret_of_its_conditions() {
    let backend = Backend::echo().await;
    let routes = ["1", "2"].map(|version| {
        format!(
            "[[routes]]\nheaders = {{ authorization = \"Bearer secret-{version}\" }}\nquery = {{ token = \"secret\" }}\n\
             split = [{{ cluster = \"a\", weight = 1 }}, {{ cluster = \"b\", weight = 1 }}]\nmirror = {{ cluster = \"c\" }}\n"
        )
    });
    let clusters = ["a", "b", "c"].map(|name| format!("[clusters.{name}]\nbackends = [\"{}\"]\n", backend.address));
    let listener = "threads = 1\n[[listeners]]\naddress = \"127.0.0.1:0\"\nname = \"main\"\n";
    let proxy = start(&format!("{listener}{}{}", routes.concat(), clusters.concat())).await;
    let answer = ask(&proxy, "/?token=secret", "authorization: Bearer secret-2\r\nx-request-id: one\r\n").await;
    assert_eq!(answer.status, 200);
    let names = ["/ header authorization query token", "/ header authorization query token #2"];
    assert_eq!(explained(&proxy, "one").unwrap().route.as_deref(), Some(names[1]));
    assert_eq!(proxy.splits().iter().map(|split| &*split.route).collect::<Vec<_>>(), names);
    assert_eq!(proxy.mirrors().iter().map(|mirror| &*mirror.route).collect::<Vec<_>>(), names);
    let told = format!("{:?}", (proxy.explanations(), proxy.splits(), proxy.mirrors()));
    assert!(!told.contains("secret"), "{told}");
}

#[tokio::test]
async fn choice_by_a_key_is_remembered_with_source_and_home() {
    let backends = [Backend::echo().await, Backend::echo().await, Backend::echo().await];
    let addresses = backends.each_ref().map(|backend| backend.address);
    let hash = "policy = \"hash\"\n[clusters.c.hash]\nkey = [\"header:x-user\"]\n";
    let proxy = proxy_with(&addresses, "[explain]\nsample = 1", hash).await;
    for user in 0..20 {
        ask(&proxy, "/web", &format!("x-user: {user}\r\nx-request-id: {user}\r\n")).await;
        let known = explained(&proxy, &user.to_string()).unwrap();
        let choice = known.hash.as_ref().unwrap();
        assert_eq!(choice.source.as_deref(), Some("header:x-user"));
        assert_eq!(choice.home, known.end.backend.map(|backend| (backend, true)), "nothing else is active");
    }
    ask(&proxy, "/web", "x-request-id: none\r\n").await;
    let none = explained(&proxy, "none").unwrap();
    assert!(none.hash.as_ref().is_some_and(|choice| choice.source.is_none() && choice.home.is_none()));
}
