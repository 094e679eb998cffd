use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt as _;
use plimsoll::client::OverrideView;
use plimsoll::discover::OverrideChange;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::*;
use crate::api::router;
use crate::api::tests::{Still, fleet};
use crate::caller::Caller;
use crate::control::Declined;
use crate::fleet::Fleet;

const BACKEND: &str = "/api/v1/clusters/web/backends/127.0.0.1:1";

struct Answer {
    status: u16,
    allow: Option<String>,
    json: Value,
}

/// Sends a request as a client of this process does, or as one on another machine.
async fn send_from(
    fleet: &Arc<Still>,
    is_local: bool,
    method: &str,
    path: &str,
    body: &str,
    origin: Option<&str>,
) -> Answer {
    let mut request = Request::builder().method(method).uri(path).header("host", "127.0.0.1:9900");
    if let Some(origin) = origin {
        request = request.header("origin", origin);
    }
    let mut request = request.body(Body::from(body.to_owned())).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let peer = if is_local { client.local_addr().unwrap() } else { std::net::SocketAddr::from(([192, 0, 2, 1], 5)) };
    request.extensions_mut().insert(Caller::new(peer, listener.local_addr()));
    let fleet: Arc<dyn Fleet> = Arc::<Still>::clone(fleet);
    let response = router(fleet).oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let allow = response.headers().get("allow").map(|value| value.to_str().unwrap().to_owned());
    let body = response.into_body().collect().await.unwrap().to_bytes();
    Answer { status, allow, json: serde_json::from_slice(&body).unwrap() }
}

async fn send(fleet: &Arc<Still>, method: &str, path: &str, body: &str) -> Answer {
    send_from(fleet, true, method, path, body, None).await
}

fn weight(value: f64) -> Weight {
    Weight::new(value).unwrap()
}

fn minutes(count: u64) -> Option<Duration> {
    Some(Duration::from_secs(60 * count))
}

#[tokio::test]
async fn requests_become_orders_to_the_fleet() {
    let fleet = Arc::new(fleet());
    let one: Address = "127.0.0.1:1".parse().unwrap();
    let new: Address = "[::1]:9".parse().unwrap();
    let described = Endpoint::new(new).weight(weight(2.0)).zone("a").locality("far").speed(Speed::new(1.5).unwrap());
    for (method, path, body, backend, command, lasts) in [
        (
            "PUT",
            "[::1]:9?for=10m",
            r#"{"weight": 2, "zone": "a", "locality": "far", "speed": 1.5}"#,
            new,
            OverrideCommand::Put(described),
            minutes(10),
        ),
        ("PUT", "127.0.0.1:1", "", one, OverrideCommand::Put(one.into()), None),
        (
            "PATCH",
            "127.0.0.1:1?for=1h",
            r#"{"weight": 0.5}"#,
            one,
            OverrideCommand::Patch { weight: Some(Some(weight(0.5))), is_drained: None },
            minutes(60),
        ),
        (
            "PATCH",
            "127.0.0.1:1",
            r#"{"weight": null, "state": "ready"}"#,
            one,
            OverrideCommand::Patch { weight: Some(None), is_drained: Some(false) },
            None,
        ),
        (
            "PATCH",
            "127.0.0.1:1",
            r#"{"state": "draining"}"#,
            one,
            OverrideCommand::Patch { weight: None, is_drained: Some(true) },
            None,
        ),
        ("DELETE", "127.0.0.1:1?for=90s", "", one, OverrideCommand::Remove, Some(Duration::from_secs(90))),
        ("DELETE", "127.0.0.1:1?revoke", "", one, OverrideCommand::Revoke, None),
    ] {
        let answer = send(&fleet, method, &format!("/api/v1/clusters/web/backends/{path}"), body).await;
        assert_eq!(answer.status, 200, "{method} {path}: {}", answer.json);
        assert_eq!((&answer.json["persistent"], &answer.json["warnings"]), (&json!(true), &json!([])));
        let order = fleet.orders.lock().pop().unwrap();
        assert!(order.caller.is_some_and(|caller| caller.ip().is_loopback()));
        assert_eq!(order, BackendOrder { cluster: "web".to_owned(), backend, command, lasts, caller: order.caller });
    }
}

#[tokio::test]
async fn bad_requests_are_refused_with_help_and_reach_no_backend() {
    let fleet = Arc::new(fleet());
    let long = format!(r#"{{"zone": "{}"}}"#, "z".repeat(MAX_BODY));
    for (method, path, body, status, error, help) in [
        ("PUT", "web.internal:80", "", 400, "\"web.internal:80\" is no address", "use its IP address and port"),
        ("DELETE", "127.0.0.1", "", 400, "is no address", "use its IP address and port"),
        ("PUT", "127.0.0.1:0", "", 400, "nothing can listen at", "use its IP address"),
        ("PUT", "0.0.0.0:80", "", 400, "nothing can listen at", "use its IP address"),
        ("PUT", "127.0.0.1:1", r#"{"wieght": 1}"#, 400, "unknown field `wieght`", "PUT takes weight"),
        ("PUT", "127.0.0.1:1", r#"{"weight": 0}"#, 400, "weight 0 is out of range", "use 0.001 to 1000"),
        ("PUT", "127.0.0.1:1", r#"{"locality": "here"}"#, 400, "no locality \"here\"", "use one of: near, far"),
        ("PUT", "127.0.0.1:1", r#"{"speed": 0}"#, 400, "speed 0 is out of range", "use 0.01 to 100"),
        ("PATCH", "127.0.0.1:1", r#"{"speed": 2}"#, 400, "unknown field `speed`", "PATCH takes weight"),
        ("PUT", "127.0.0.1:1", "weight=2", 400, "not as expected", "PUT takes weight"),
        ("PUT", "127.0.0.1:1", &long, 413, "length limit", "4096 bytes at most"),
        ("PUT", "127.0.0.1:1?for=10", "", 400, "for=10 is not a duration", "?for=10m"),
        ("PUT", "127.0.0.1:1?for=0s", "", 400, "longer than zero", "?for=10m"),
        ("PUT", "127.0.0.1:1?for=10years", "", 400, "longer than 366 days", "?for=10m"),
        ("PUT", "127.0.0.1:1?till=10m", "", 400, "unknown field `till`", "take for"),
        ("PUT", "127.0.0.1:1?revoke", "", 400, "only DELETE takes revoke", "DELETE also takes"),
        ("PATCH", "127.0.0.1:1", "{}", 400, "changes nothing", "PATCH takes weight"),
        ("PATCH", "127.0.0.1:1", "", 400, "not as expected", "PATCH takes weight"),
        ("PATCH", "127.0.0.1:1", r#"{"state": "gone"}"#, 400, "unknown variant `gone`", "PATCH takes weight"),
        ("DELETE", "127.0.0.1:1?revoke&for=1m", "", 400, "revoke has no time", "DELETE also takes"),
        ("DELETE", "127.0.0.1:1?revoke=no", "", 400, "revoke=no is not known", "DELETE also takes"),
        ("DELETE", "127.0.0.1:9", "", 404, "there is no backend", "use one of: 127.0.0.1:1"),
        ("POST", "127.0.0.1:1", "", 405, "does not take this method", "PUT, PATCH and DELETE"),
    ] {
        let answer = send(&fleet, method, &format!("/api/v1/clusters/web/backends/{path}"), body).await;
        assert_eq!(answer.status, status, "{method} {path} {body}: {}", answer.json);
        let [said, helped] = [&answer.json["error"], &answer.json["help"]].map(|text| text.as_str().unwrap());
        assert!(said.contains(error) && helped.contains(help), "{method} {path} {body}: {}", answer.json);
    }
    let other = send(&fleet, "PUT", "/api/v1/clusters/wbe/backends/127.0.0.1:1", "").await;
    assert_eq!((other.status, other.json["help"].as_str().unwrap()), (404, "use one of: web"));
    assert_eq!(*fleet.orders.lock(), []);
    let allow = send(&fleet, "POST", BACKEND, "").await.allow.unwrap();
    for method in ["GET", "PUT", "PATCH", "DELETE"] {
        assert!(allow.contains(method), "{allow}");
    }
}

#[tokio::test]
async fn strangers_and_pages_of_other_origins_change_nothing() {
    let fleet = Arc::new(fleet());
    for (method, body) in [("PUT", ""), ("PATCH", r#"{"weight": 2}"#), ("DELETE", "")] {
        let answer = send_from(&fleet, false, method, BACKEND, body, None).await;
        assert_eq!(answer.status, 403, "{}", answer.json);
        assert!(answer.json["error"].as_str().unwrap().ends_with("from its own machine only"), "{}", answer.json);
        let answer = send_from(&fleet, true, method, BACKEND, body, Some("https://evil.example")).await;
        assert_eq!(answer.status, 403, "{}", answer.json);
    }
    assert_eq!(*fleet.orders.lock(), []);
    assert_eq!(send_from(&fleet, false, "GET", BACKEND, "", None).await.status, 200, "anybody may read");
}

#[tokio::test]
async fn refusals_of_the_fleet_are_conflicts() {
    let full = Arc::new(Still { refusal: Some(Refused::TooMany), ..fleet() });
    let answer = send(&full, "PUT", BACKEND, "").await;
    assert_eq!(answer.status, 409);
    assert!(answer.json["error"].as_str().unwrap().contains("has 1000 overrides"), "{}", answer.json);
    let declined = Declined { error: "a successor takes over".to_owned(), help: "try again".to_owned() };
    let ending = Arc::new(Still { refusal: Some(Refused::Declined(declined)), ..fleet() });
    let answer = send(&ending, "DELETE", BACKEND, "").await;
    assert_eq!((answer.status, answer.json["error"].as_str().unwrap()), (409, "a successor takes over"));
}

#[tokio::test]
async fn answer_warns_when_no_backend_is_left_or_nothing_is_saved() {
    let obeyed = Obeyed { serving: 0, is_persistent: false, error: Some("the disk is full".to_owned()) };
    let fleet = Arc::new(Still { obeyed, ..fleet() });
    let answer = send(&fleet, "PATCH", BACKEND, r#"{"state": "draining"}"#).await;
    let warnings = answer.json["warnings"].as_array().unwrap().clone();
    assert_eq!((answer.status, warnings.len(), &answer.json["persistent"]), (200, 2, &json!(false)));
    assert!(warnings[0].as_str().unwrap().contains("no backend left"), "{}", answer.json);
    assert!(warnings[1].as_str().unwrap().ends_with("the disk is full"), "{}", answer.json);
}

#[tokio::test]
async fn overrides_are_shown_with_their_backends_and_in_a_list() {
    let still = fleet();
    let of = |address: &str, change, remaining| OverrideView { address: address.parse().unwrap(), change, remaining };
    still.snapshot.lock().clusters[0].view.summary.overrides = vec![
        of("127.0.0.1:1", OverrideChange::Weight(weight(0.5)), minutes(10)),
        of("127.0.0.1:1", OverrideChange::Drained, None),
        of("127.0.0.1:8", OverrideChange::Removed, None),
        of(
            "127.0.0.1:9",
            OverrideChange::Added(
                Endpoint::new("127.0.0.1:9".parse::<Address>().unwrap()).zone("a").speed(Speed::new(2.0).unwrap()),
            ),
            None,
        ),
    ];
    let fleet = Arc::new(still);
    let list = send(&fleet, "GET", "/api/v1/clusters/web/overrides", "").await.json;
    let until = list["overrides"][0]["until"].as_str().unwrap().to_owned();
    let remaining = humantime::parse_rfc3339(&until).unwrap().duration_since(std::time::SystemTime::now()).unwrap();
    assert!((590..=601).contains(&remaining.as_secs()), "{until}");
    let weighed = json!({ "address": "127.0.0.1:1", "kind": "weight", "until": until, "weight": 0.5 });
    let drained = json!({ "address": "127.0.0.1:1", "kind": "drained", "until": null });
    let removed = json!({ "address": "127.0.0.1:8", "kind": "removed", "until": null });
    let added =
        json!({ "address": "127.0.0.1:9", "kind": "added", "until": null, "weight": 1.0, "zone": "a", "speed": 2.0 });
    assert_eq!(list, json!({ "cluster": "web", "overrides": [weighed, drained, removed, added] }));
    let backend = send(&fleet, "GET", BACKEND, "").await.json;
    assert_eq!(backend["overrides"].as_array().unwrap().len(), 2);
    assert_eq!(backend["overrides"][1], drained);
    assert_eq!(send(&fleet, "GET", "/api/v1/clusters/web", "").await.json["overrides"], 4);
}
