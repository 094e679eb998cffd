//! What routes give without a backend: answers of their own, nothing at all, and what stands in for errors.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod support;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode, Version};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use plimsoll_proxy::Proxy;
use support::*;
use tokio::sync::Notify;

/// When to break off the body of `cut`.
static CUT: Notify = Notify::const_new();

const OVERLOADED: &str = "x-plimsoll-shed: reason=overloaded, retry=elsewhere\r\n";

/// Answers as the request's `x-do` says: `ok` and what follows it as body, `large`, `cut`, or a status. Fields of the request that
/// begin with `x-say-` are those of the answer.
async fn obedient() -> Backend {
    Backend::start(|request: Request<Incoming>| async move {
        let field = |name| request.headers().get(name).map_or("", |value| value.to_str().unwrap());
        let mut response = match field("x-do").split_once(' ').unwrap_or((field("x-do"), "")) {
            ("ok", text) => Response::new(full(text.to_owned())),
            ("large", _) => Response::new(full("x".repeat(3_000))),
            ("cut", _) => {
                let (hand, body) = by_hand();
                tokio::spawn(async move {
                    hand.send(data("half")).unwrap();
                    CUT.notified().await;
                    hand.send(Err("the backend breaks it off".into())).unwrap();
                });
                Response::new(http_body_util::combinators::BoxBody::new(body))
            }
            (status, _) => {
                let mut response = Response::new(full("its own page"));
                *response.status_mut() = status.parse::<StatusCode>().unwrap();
                response
            }
        };
        for (name, value) in request.headers() {
            if let Some(name) = name.as_str().strip_prefix("x-say-") {
                let name: http::HeaderName = name.parse().unwrap();
                response.headers_mut().append(name, value.clone());
            }
        }
        response
    })
    .await
}

fn text(backend: SocketAddr, listener: &str, degraded: &str, further: &str) -> String {
    format!(
        "threads = 1\n[[listeners]]\naddress = \"127.0.0.1:0\"\nname = \"main\"\n{listener}\n[[routes]]\ncluster = \
         \"c\"\n{degraded}\n[clusters.c]\nbackends = [\"{backend}\"]\n[clusters.c.health]\ncheck = \"none\"\n\
         [clusters.c.outlier]\nconsecutive_failures = \"off\"\nsuccess_rate_stdev = \"off\"\n{further}\n"
    )
}

/// Asks for `target` on a connection of its own.
async fn ask(proxy: &Proxy, method: &str, target: &str, fields: &str) -> Answered {
    let mut client = Raw::to(address_of(proxy, "main")).await;
    client.ask(&format!("{method} {target} HTTP/1.1\r\nhost: a\r\n{fields}\r\n")).await
}

async fn get(proxy: &Proxy, target: &str, fields: &str) -> Answered {
    ask(proxy, "GET", target, fields).await
}

/// Has the backend say that it has too much to do.
async fn get_shed(proxy: &Proxy, target: &str, fields: &str) -> Answered {
    get(proxy, target, &format!("x-do: 503\r\nx-say-{OVERLOADED}{fields}")).await
}

fn degraded(proxy: &Proxy, kind: &str, reason: &str) -> u64 {
    let listeners = proxy.listeners();
    listeners[0].degraded.iter().find(|(k, r, _)| *k == kind && *r == reason).unwrap().2
}

fn refused(proxy: &Proxy, reason: &str) -> u64 {
    proxy.listeners()[0].refusals.iter().find(|(name, _)| *name == reason).unwrap().1
}

#[tokio::test]
async fn what_was_answered_before_stands_in_for_an_error_and_says_so() {
    let backend = obedient().await;
    let proxy = start(&text(backend.address, "", "degraded = { max_stale = \"10m\" }", "")).await;
    let plain = get_shed(&proxy, "/a", "").await;
    assert_eq!((plain.status, plain.body.as_str()), (503, "its own page"), "nothing is there yet");
    let first = get(&proxy, "/a", "x-do: ok eins\r\nx-say-age: 7\r\nx-say-x-own: 1\r\n").await;
    assert_eq!((first.status, first.body.as_str()), (200, "eins"));
    assert!(!first.head.contains("x-plimsoll-degraded"), "{}", first.head);

    let stale = get_shed(&proxy, "/a", "").await;
    assert_eq!((stale.status, stale.body.as_str()), (200, "eins"));
    for line in ["x-plimsoll-degraded: stale; reason=overloaded", "age: 7", "content-length: 4", "x-own: 1"] {
        assert!(stale.head.contains(&format!("{line}\r\n")), "{line} in {}", stale.head);
    }
    assert!(!stale.head.contains("x-plimsoll-shed"), "{}", stale.head);
    let head = ask(&proxy, "HEAD", "/a", &format!("x-do: 503\r\nx-say-{OVERLOADED}")).await;
    assert!(head.status == 200 && head.head.contains("content-length: 4\r\n"), "{head:?}");
    assert_eq!((degraded(&proxy, "stale", "overloaded"), proxy.stale_answers().entries), (2, 1));

    for (target, fields) in [("/a?x", ""), ("/b", ""), ("/a", "authorization: me\r\n")] {
        assert_eq!(get_shed(&proxy, target, fields).await.status, 503, "{target} {fields}");
    }
    assert_eq!(ask(&proxy, "POST", "/a", &format!("x-do: 503\r\nx-say-{OVERLOADED}")).await.status, 503);
    assert_eq!(get(&proxy, "/a", "x-do: 500\r\n").await.body, "its own page", "not asked for");
    assert_eq!(get(&proxy, "/a", "x-do: ok zwei\r\n").await.body, "zwei", "a backend comes first");
}

#[tokio::test]
async fn a_backend_that_is_gone_is_stood_in_for_over_a_reload() {
    let backend = obedient().await;
    let text = text(backend.address, "", "degraded = { max_stale = \"10m\", on = [\"no-backend\", \"failed\"] }", "");
    let proxy = start(&text).await;
    get(&proxy, "/a", "x-do: ok eins\r\n").await;
    proxy.reload(parse(&text)).await.unwrap();
    drop(backend);
    let stale = soon(async {
        loop {
            let answer = get(&proxy, "/a", "x-do: ok zwei\r\n").await;
            if answer.head.contains("x-plimsoll-degraded") {
                return answer;
            }
        }
    })
    .await;
    assert_eq!((stale.status, stale.body.as_str()), (200, "eins"));
    assert!(degraded(&proxy, "stale", "no-backend") + degraded(&proxy, "stale", "failed") >= 1);
    let without = text.replace("degraded = { max_stale = \"10m\", on", "degraded = { answer = {}, on");
    proxy.reload(parse(&without)).await.unwrap();
    assert_eq!(proxy.stale_answers().entries, 0, "what nobody gives is not kept");
}

#[tokio::test]
async fn one_customer_never_gets_what_was_given_to_another() {
    let backend = obedient().await;
    let listener = "customer_header = \"x-customer\"";
    let proxy = start(&text(backend.address, listener, "degraded = { max_stale = \"10m\" }", "")).await;
    get(&proxy, "/", "x-customer: acme\r\nx-do: ok for acme\r\n").await;
    assert_eq!(get_shed(&proxy, "/", "x-customer: acme\r\n").await.body, "for acme");
    for other in ["x-customer: corp\r\n", "x-customer: \r\n", ""] {
        assert_eq!(get_shed(&proxy, "/", other).await.status, 503, "{other:?}");
    }
}

#[tokio::test]
async fn answers_stand_side_by_side_by_the_fields_that_they_or_the_route_name() {
    let backend = obedient().await;
    let proxy =
        start(&text(backend.address, "", "degraded = { max_stale = \"10m\", vary = [\"x-api-key\"] }", "")).await;
    for language in ["de", "en"] {
        let fields = format!("accept-language: {language}\r\nx-do: ok {language}\r\nx-say-vary: Accept-Language\r\n");
        get(&proxy, "/", &fields).await;
    }
    assert_eq!(get_shed(&proxy, "/", "accept-language: de\r\n").await.body, "de");
    assert_eq!(get_shed(&proxy, "/", "accept-language: en\r\n").await.body, "en");
    assert_eq!(get_shed(&proxy, "/", "accept-language: fr\r\n").await.status, 503);
    assert_eq!(get_shed(&proxy, "/", "accept-language: de\r\nx-api-key: 7\r\n").await.status, 503);
}

#[tokio::test]
async fn nobody_leaves_an_answer_under_fields_that_its_backend_did_not_see() {
    let backend = obedient().await;
    let listener = "customer_header = \"x-customer\"";
    let degraded = "degraded = { max_stale = \"10m\", vary = [\"x-tenant\"] }";
    let proxy = start(&text(backend.address, listener, degraded, "")).await;
    let claim = "x-tenant: victim\r\nx-customer: victim\r\n";
    let hidden = format!("{claim}connection: x-tenant, x-customer\r\n");
    get(&proxy, "/", &format!("{hidden}x-do: ok for nobody\r\n")).await;
    assert_eq!(get_shed(&proxy, "/", claim).await.status, 503);
    assert_eq!(get_shed(&proxy, "/", &hidden).await.body, "for nobody");
}

#[tokio::test]
async fn stale_answer_needs_the_customer_that_its_backend_saw() {
    let backend = obedient().await;
    for sources in [
        "{ header = \"x-customer\" }",
        "[{ header = \"x-customer\" }, \"address\"]",
        "[{ key = \"x-customer\" }, \"host\"]",
        // The first one that a request has wins, and its backend may read the other one.
        "[{ key = \"x-key\" }, { header = \"x-customer\" }]",
    ] {
        let listener = format!("customer = {sources}");
        let proxy = start(&text(backend.address, &listener, "degraded = { max_stale = \"10m\" }", "")).await;
        let victim = "x-key: 7\r\nx-customer: victim\r\n";
        let hidden = format!("{victim}connection: x-customer\r\n");
        let other = "x-key: 7\r\nx-customer: other\r\n";
        get(&proxy, "/", &format!("{hidden}x-do: ok for nobody\r\n")).await;
        assert_eq!(get_shed(&proxy, "/", victim).await.status, 503, "{sources}");
        get(&proxy, "/", &format!("{victim}x-do: ok for the victim\r\n")).await;
        assert_eq!(get_shed(&proxy, "/", &hidden).await.body, "for nobody", "{sources}");
        assert_eq!(get_shed(&proxy, "/", victim).await.body, "for the victim", "{sources}");
        assert_eq!(get_shed(&proxy, "/", other).await.status, 503, "{sources}");
    }
}

#[tokio::test]
async fn answer_of_one_side_of_a_split_is_not_given_for_the_other() {
    let (main, canary) = (obedient().await, obedient().await);
    let text = text(main.address, "", "split_by = \"header:x-user\"\ndegraded = { max_stale = \"10m\" }", "")
        .replace("cluster = \"c\"", "split = [{ cluster = \"c\", weight = 1 }, { cluster = \"d\", weight = 1 }]");
    let cluster = &text[text.find("[clusters.c]").unwrap()..];
    let other =
        cluster.replace("clusters.c", "clusters.d").replace(&main.address.to_string(), &canary.address.to_string());
    let proxy = start(&format!("{text}{other}")).await;
    // A user of each side.
    let mut users = [None, None];
    for user in 0..100 {
        let before = canary.requests();
        get(&proxy, "/probe", &format!("x-user: {user}\r\nx-do: 204\r\n")).await;
        users[canary.requests() - before].get_or_insert(format!("x-user: {user}\r\n"));
    }
    let [of_main, of_canary] = users.map(|user| user.expect("both sides have users"));
    get(&proxy, "/", &format!("{of_main}x-do: ok by main\r\n")).await;
    assert_eq!(get_shed(&proxy, "/", &of_main).await.body, "by main");
    assert_eq!(get_shed(&proxy, "/", &of_canary).await.status, 503, "the canary gave no answer yet");
    get(&proxy, "/", &format!("{of_canary}x-do: ok by canary\r\n")).await;
    assert_eq!(get_shed(&proxy, "/", &of_canary).await.body, "by canary");
    assert_eq!(get_shed(&proxy, "/", &of_main).await.body, "by main");
}

#[tokio::test]
async fn what_is_cut_off_too_long_or_forbidden_is_not_kept_and_a_change_drops_what_is() {
    let backend = obedient().await;
    let further = "[stale_answers]\nmax_entry = \"2KiB\"\n";
    let proxy = start(&text(backend.address, "", "degraded = { max_stale = \"10m\" }", further)).await;
    let mut client = Raw::to(address_of(&proxy, "main")).await;
    client.send("GET /cut HTTP/1.1\r\nhost: a\r\nx-do: cut\r\n\r\n").await;
    client.up_to("half").await;
    CUT.notify_one();
    client.rest().await;
    get(&proxy, "/large", "x-do: large\r\n").await;
    get(&proxy, "/private", "x-do: ok mine\r\nx-say-cache-control: private\r\n").await;
    assert_eq!(proxy.stale_answers().entries, 0);
    get(&proxy, "/a", "x-do: ok eins\r\n").await;
    assert_eq!(ask(&proxy, "PUT", "/a", "x-do: 500\r\n").await.status, 500);
    assert_eq!(proxy.stale_answers().entries, 1, "nothing was changed");
    assert_eq!(ask(&proxy, "PUT", "/a", "x-do: 204\r\n").await.status, 204);
    assert_eq!(proxy.stale_answers().entries, 0);
}

#[tokio::test]
async fn an_answer_from_the_file_stands_in_and_tells_nobody_of_a_change_that_was_not_made() {
    let backend = obedient().await;
    let answer = "degraded = { answer = { status = 200, body = \"[]\", content_type = \"application/json\" } }";
    let proxy = start(&text(backend.address, "", answer, "")).await;
    let fixed = get_shed(&proxy, "/", "").await;
    assert_eq!((fixed.status, fixed.body.as_str()), (200, "[]"));
    assert!(fixed.head.contains("x-plimsoll-degraded: static; reason=overloaded\r\n"), "{}", fixed.head);
    assert!(fixed.head.contains("content-type: application/json\r\n") && !fixed.head.contains("x-plimsoll-shed"));
    let post = ask(&proxy, "POST", "/", &format!("x-do: 503\r\nx-say-{OVERLOADED}")).await;
    assert_eq!((post.status, post.body.as_str()), (503, "its own page"));
    assert_eq!((degraded(&proxy, "static", "overloaded"), degraded(&proxy, "stale", "overloaded")), (1, 0));

    let answer = "degraded = { answer = { body = \"sorry\" } }";
    let proxy = start(&text(backend.address, "", answer, "")).await;
    let fields = format!("x-do: 503\r\nx-say-retry-after: 9\r\nx-say-{OVERLOADED}");
    let fixed = ask(&proxy, "POST", "/", &fields).await;
    assert_eq!((fixed.status, fixed.body.as_str()), (503, "sorry"), "the status of the error");
    assert!(fixed.head.contains(OVERLOADED) && fixed.head.contains("retry-after: 9\r\n"), "{}", fixed.head);
}

#[tokio::test]
async fn a_grpc_call_gets_neither() {
    let backend = obedient().await;
    let settings = "degraded = { max_stale = \"10m\", answer = { status = 200, body = \"[]\" } }";
    let proxy = start(&text(backend.address, "", settings, "")).await;
    let (mut client, _ended) = http2::<Empty<Bytes>>(address_of(&proxy, "main")).await;
    for (what, status) in [("ok x", "200"), ("503", "503")] {
        let request = Request::get("http://a/shop.Orders/List")
            .version(Version::HTTP_2)
            .header("content-type", "application/grpc")
            .header("x-do", what)
            .header("x-say-retry-after", "1")
            .body(Empty::new())
            .unwrap();
        let head = soon(client.send_request(request)).await.unwrap();
        assert!(head.headers().get("x-plimsoll-degraded").is_none() && head.status().as_str() == status, "{head:?}");
    }
    assert_eq!(proxy.stale_answers().entries, 0);
}

#[tokio::test]
async fn http2_clients_leave_answers_and_get_them() {
    let backend = obedient().await;
    let proxy = start(&text(backend.address, "", "degraded = { max_stale = \"10m\" }", "")).await;
    let (mut client, _ended) = http2::<Empty<Bytes>>(address_of(&proxy, "main")).await;
    for (what, is_stale) in [("ok eins", false), ("503", true)] {
        let request = Request::get("http://a/").version(Version::HTTP_2).header("x-do", what);
        let request = request.header("x-say-retry-after", "1").body(Empty::new()).unwrap();
        let (head, body) = soon(client.send_request(request)).await.unwrap().into_parts();
        assert_eq!(head.headers.contains_key("x-plimsoll-degraded"), is_stale, "{head:?}");
        assert_eq!(soon(body.collect()).await.unwrap().to_bytes(), "eins");
    }
}

/// A proxy that isolates some customers and hosts.
async fn isolating(backend: &Backend) -> Arc<Proxy> {
    let routes = "[[routes]]\ncustomers = [\"noisy\"]\nanswer = { status = 429, body = \"later\\n\", retry_after = \"90s\" }\n\
                  [[routes]]\nhost = \"hole\"\nblack_hole = true\n[[routes]]\npath_prefix = \"/api\"\ncluster = \"c\"\n";
    start(&text(backend.address, "customer_header = \"x-customer\"", "", routes)).await
}

#[tokio::test]
async fn a_customer_is_taken_out_of_every_route_and_its_body_is_not_read() {
    let backend = obedient().await;
    let proxy = isolating(&backend).await;
    let asked = backend.requests();
    for target in ["/", "/api/x"] {
        let told = get(&proxy, target, "x-customer: noisy\r\nx-do: ok\r\n").await;
        assert_eq!((told.status, told.body.as_str()), (429, "later\n"), "{target}");
        assert!(told.head.contains("retry-after: 90\r\n"), "{}", told.head);
    }
    let mut client = Raw::to(address_of(&proxy, "main")).await;
    client.send("POST / HTTP/1.1\r\nhost: a\r\nx-customer: noisy\r\ncontent-length: 1000000\r\n\r\n").await;
    assert_eq!(client.answer_to("POST").await.status, 429, "before the body came");
    assert_eq!((refused(&proxy, "route-answer"), backend.requests()), (3, asked));
    assert_eq!(get(&proxy, "/", "x-customer: quiet\r\nx-do: ok\r\n").await.status, 200);
    assert_eq!(get(&proxy, "/", "x-do: ok\r\n").await.status, 200, "who says nothing is not isolated");
}

#[tokio::test]
async fn an_isolated_grpc_call_is_told_so_in_the_words_of_grpc() {
    let backend = obedient().await;
    let proxy = isolating(&backend).await;
    let (mut client, _ended) = http2::<Empty<Bytes>>(address_of(&proxy, "main")).await;
    let request = Request::post("http://a/shop.Orders/List")
        .version(Version::HTTP_2)
        .header("content-type", "application/grpc")
        .header("x-customer", "noisy")
        .body(Empty::new())
        .unwrap();
    let head = soon(client.send_request(request)).await.unwrap();
    let field = |name| head.headers().get(name).map(|value| value.to_str().unwrap());
    assert_eq!((head.status().as_u16(), field("grpc-status")), (200, Some("8")));
    assert_eq!((field("grpc-retry-pushback-ms"), field("content-type")), (Some("90000"), Some("application/grpc")));
}

#[tokio::test]
async fn a_black_hole_says_nothing_and_others_on_the_connection_go_on() {
    let backend = obedient().await;
    let proxy = isolating(&backend).await;
    let asked = backend.requests();
    let mut client = Raw::to(address_of(&proxy, "main")).await;
    client.send("POST /api HTTP/1.1\r\nhost: hole\r\ncontent-length: 9\r\n\r\n").await;
    assert_eq!(client.rest().await, "", "HTTP/1 has no way to drop one request");

    let (mut client, _ended) = http2::<Empty<Bytes>>(address_of(&proxy, "main")).await;
    let request = |host: &str| {
        let request = Request::get(format!("http://{host}/api")).version(Version::HTTP_2).header("x-do", "ok there");
        request.body(Empty::new()).unwrap()
    };
    let error = soon(client.send_request(request("hole"))).await.unwrap_err();
    let reset = std::error::Error::source(&error).and_then(|cause| cause.downcast_ref::<h2::Error>()).unwrap();
    assert_eq!(reset.reason(), Some(h2::Reason::CANCEL));
    let answer = soon(client.send_request(request("a"))).await.unwrap();
    assert_eq!(soon(answer.into_body().collect()).await.unwrap().to_bytes(), "there");
    assert_eq!((refused(&proxy, "black-hole"), backend.requests()), (2, asked + 1));
    assert_eq!(proxy.listeners()[0].ended.iter().map(|(_, count)| count).sum::<u64>(), 0, "it is no abuse");
}

#[tokio::test]
async fn a_body_in_a_file_is_read_again_on_reload() {
    let backend = obedient().await;
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("degraded-file");
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("sorry.html");
    fs::write(&file, "eins").unwrap();
    let route = format!("[[routes]]\nhost = \"fixed\"\nanswer = {{ file = \"{}\" }}\n", file.display());
    let text = text(backend.address, "", "", &route);
    let proxy = start(&text).await;
    let ask = async || {
        let mut client = Raw::to(address_of(&proxy, "main")).await;
        client.ask("GET / HTTP/1.1\r\nhost: fixed\r\n\r\n").await
    };
    let answer = ask().await;
    assert_eq!((answer.status, answer.body.as_str()), (403, "eins"));
    assert!(answer.head.contains("content-type: text/html; charset=utf-8\r\n"), "{}", answer.head);
    fs::write(&file, "zwei").unwrap();
    assert_eq!(ask().await.body, "eins");
    proxy.reload(parse(&text)).await.unwrap();
    assert_eq!(ask().await.body, "zwei");
    fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test]
async fn kept_answer_is_of_the_path_and_fields_that_its_route_asked_for() {
    let backend = obedient().await;
    let stale = "degraded = { max_stale = \"10m\" }";
    let route = |value: &str, rules: &str| {
        format!("[[routes]]\nheaders = {{ x-new = \"{value}\" }}\ncluster = \"c\"\n{stale}\n{rules}\n")
    };
    let further = route("1", "path_rewrite = \"/new\"\nresponse_headers = { set = { x-edge = \"1\" } }")
        + &route("2", "request_headers = { set = { x-env = \"prod\" } }")
        + &route("3", "request_headers = { set = { authorization = \"Basic YTph\" } }");
    let proxy = start(&text(backend.address, "", stale, &further)).await;
    get(&proxy, "/a", "x-do: ok plain\r\n").await;
    for value in ["1", "2", "3"] {
        let field = format!("x-new: {value}\r\n");
        assert_eq!(get_shed(&proxy, "/a", &field).await.status, 503, "{value}: an answer to another request");
        get(&proxy, "/a", &format!("x-do: ok {value}\r\n{field}")).await;
    }
    for (value, body) in [("1", Some("1")), ("2", Some("2")), ("3", None)] {
        let answer = get_shed(&proxy, "/a", &format!("x-new: {value}\r\n")).await;
        assert_eq!((answer.status, answer.status == 200), (if body.is_some() { 200 } else { 503 }, body.is_some()));
        assert_eq!(answer.head.contains("x-edge: 1\r\n"), value == "1", "{}", answer.head);
        assert!(body.is_none_or(|body| answer.body == body), "{value}: {}", answer.body);
    }
    assert_eq!(get_shed(&proxy, "/a", "").await.body, "plain");
}
