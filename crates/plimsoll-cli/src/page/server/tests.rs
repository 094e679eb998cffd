//! The page in front of proxies that tests play: real sockets, made-up figures.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use plimsoll_admin::Live;
use plimsoll_admin::parts::{MAX_VIEWERS, event, serve_router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tower::ServiceExt as _;

use super::*;
use crate::fleet::tests::examples::{fine, no_gate, overload};

/// A proxy that shows the same figures each 100 ms, for all clusters that it has.
struct Played {
    address: SocketAddr,
    commands: Arc<Mutex<Vec<String>>>,
    streams: Arc<Semaphore>,
    _server: Abort,
}

/// A task that ends with its owner.
struct Abort(JoinHandle<()>);

impl Drop for Abort {
    fn drop(&mut self) {
        self.0.abort();
    }
}

const MAX_STREAMS: usize = 16;

/// The figures as of now.
fn present(live: &Live) -> Live {
    let at = plimsoll_admin::parts::now();
    let sample = live.sample.clone().map(|sample| plimsoll_admin::LiveSample { at, ..sample });
    Live { at, sample, ..live.clone() }
}

async fn play(name: &str, mut live: Live) -> Played {
    live.process.name = name.to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (commands, streams) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Semaphore::new(MAX_STREAMS)));
    let has = |live: &Live, name: &str| live.cluster.as_ref().is_some_and(|of| of.name == name);
    let missing = || Problem::new(StatusCode::NOT_FOUND, "there is no cluster", "GET /api/v1/clusters lists them");
    let (once, whole) = (live.clone(), live.clone());
    let (told, open) = (Arc::clone(&commands), Arc::clone(&streams));
    let asked = live.process.name.clone();
    let router = Router::new()
        .route(
            "/api/v1/live",
            get(async move |Query(Wanted { cluster }): Query<Wanted>| match cluster {
                Some(name) if !has(&once, &name) => Err(missing()),
                _ => Ok(Form::Compact.json(&present(&once))),
            }),
        )
        .route(
            "/api/v1/live/stream",
            get(async move |Query(Wanted { cluster }): Query<Wanted>| {
                if cluster.is_some_and(|name| !has(&whole, &name)) {
                    return Err(missing());
                }
                let permit = Arc::clone(&open).try_acquire_owned().expect("sixteen streams are enough");
                let each = futures_util::stream::unfold((true, permit), move |(is_first, permit)| {
                    let next = event("live", &present(&whole));
                    async move {
                        if !is_first {
                            sleep(Duration::from_millis(100)).await;
                        }
                        Some((Ok::<_, std::io::Error>(next), (false, permit)))
                    }
                });
                Ok(([("content-type", "text/event-stream")], Body::from_stream(each)).into_response())
            }),
        )
        .route(
            "/api/v1/explain",
            get(async move || {
                let request = json!({ "id": asked, "at": asked.len(), "outcome": "refused" });
                Form::Compact.json(&json!({ "requests": [request], "remembered": [] }))
            }),
        )
        .route(
            "/api/v1/clusters/{name}/backends/{address}/{verb}",
            post(async move |Path(of): Path<(String, String, String)>, headers: HeaderMap| {
                assert!(!headers.contains_key("origin"), "a command of the page is none of a browser");
                told.lock().push(format!("{} {} {}", of.2, of.0, of.1));
                Form::Compact.json(&json!({ "address": of.1, "state": "lame-duck" }))
            }),
        );
    let server = tokio::spawn(serve_router(listener, router, std::future::pending()));
    Played { address, commands, streams, _server: Abort(server) }
}

fn page(proxies: &[&Played]) -> (Router, Arc<Desk>, Abort) {
    let desk = Arc::new(Desk::new(proxies.iter().map(|proxy| proxy.address.to_string()).collect()));
    let run = tokio::spawn(Arc::clone(&desk).run());
    (router(Arc::clone(&desk)), desk, Abort(run))
}

async fn send(router: &Router, request: Request<Body>) -> Response {
    router.clone().oneshot(request).await.unwrap()
}

async fn get_json(router: &Router, path: &str) -> (u16, Value) {
    let response = send(router, Request::get(path).header("host", "127.0.0.1").body(Body::empty()).unwrap()).await;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or_else(|error| panic!("{error}: {}", body.escape_ascii())))
}

/// Waits until the state of the fleet is as it has to be.
async fn until(router: &Router, words: &str, holds: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..200 {
        let (_, live) = get_json(router, "/api/v1/live").await;
        if holds(&live) {
            return live;
        }
        sleep(Duration::from_millis(50)).await;
    }
    panic!("not within 10 s: {words}");
}

fn name(live: &Value) -> &str {
    live["process"]["name"].as_str().unwrap()
}

#[tokio::test]
async fn answer_is_the_sum_of_the_proxies_that_answer() {
    let (a, b) = (play("edge-1", fine()).await, play("edge-2", overload()).await);
    let (router, _desk, _run) = page(&[&a, &b]);
    let (status, live) = get_json(&router, "/api/v1/live").await;
    assert_eq!((status, name(&live)), (200, "2 of 2 proxies"));
    assert_eq!((&live["cluster"]["name"], &live["cluster"]["gate"]["capacity_cpus"]), (&json!("web"), &json!(16.0)));
    assert_eq!(live["cluster"]["gate"]["proxy"], "edge-2");
    assert_eq!(live["sample"]["offered_qps.critical"], 840.0);
    drop(b);
    let live = until(&router, "one is lost", |live| name(live) == "1 of 2 proxies").await;
    assert_eq!(live["cluster"]["gate"]["capacity_cpus"], 8.0);
    let row = &live["proxies"][1];
    assert_eq!((&row["name"], &row["answers"], &row["load"]), (&json!("edge-2"), &json!(false), &Value::Null));
    assert!(row["problem"].as_str().is_some_and(|why| !why.is_empty()), "{row}");
    let change = &live["changes"].as_array().unwrap().iter().find(|of| of["kind"] == "connection").unwrap().clone();
    assert_eq!(change["subject"], live["proxies"][1]["address"]);
}

#[tokio::test]
async fn stream_begins_with_history_and_ends_with_its_viewer() {
    let a = play("edge-1", overload()).await;
    let (router, desk, _run) = page(&[&a]);
    let request = Request::get("/api/v1/live/stream?cluster=web").header("host", "localhost").body(Body::empty());
    let mut response = send(&router, request.unwrap()).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut text = String::new();
    while text.matches("event: live").count() < 3 {
        let frame = timeout(Duration::from_secs(5), response.body_mut().frame()).await.expect("an event a second");
        text += std::str::from_utf8(&frame.unwrap().unwrap().into_data().unwrap()).unwrap();
    }
    assert!(text.starts_with("retry: 1000\n\nevent: history\ndata: {\"cluster\":\"web\","), "{}", &text[..200]);
    assert_eq!(a.streams.available_permits(), MAX_STREAMS - 1, "one stream for a viewer");
    drop(response);
    assert_eq!(desk.viewers.subjects(), [], "its viewer has gone");
}

#[tokio::test(start_paused = true)]
async fn watch_without_a_viewer_ends() {
    // Time is virtual here, so that no proxy can be asked: nobody listens at this port.
    let desk = Arc::new(Desk::new(vec!["127.0.0.1:1".to_owned()]));
    let _run = Abort(tokio::spawn(Arc::clone(&desk).run()));
    desk.live(&None).await.unwrap();
    assert_eq!(desk.watched(), 1);
    sleep(Duration::from_secs(8)).await;
    assert_eq!(desk.watched(), 1, "a page that is loaded again finds it");
    sleep(Duration::from_secs(4)).await;
    assert_eq!(desk.watched(), 0);
}

#[tokio::test]
async fn slow_proxy_does_not_stop_the_others() {
    // It accepts, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let a = play("edge-1", fine()).await;
    let desk = Arc::new(Desk::new(vec![a.address.to_string(), address]));
    let router = router(desk);
    let begun = std::time::Instant::now();
    let (status, live) = get_json(&router, "/api/v1/live").await;
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    assert_eq!((status, name(&live)), (200, "1 of 2 proxies"));
    assert_eq!(live["proxies"][1]["problem"], "no answer yet");
}

#[tokio::test]
async fn cluster_of_some_proxies_can_be_chosen() {
    let mut other = no_gate();
    for name in [&mut other.cluster.as_mut().unwrap().name, &mut other.clusters[0].name] {
        *name = "mail".to_owned();
    }
    let (a, b) = (play("edge-1", fine()).await, play("edge-2", other).await);
    let (router, _desk, _run) = page(&[&a, &b]);
    let live = until(&router, "both are known", |live| name(live) == "2 of 2 proxies").await;
    let names: Vec<&str> = live["clusters"].as_array().unwrap().iter().filter_map(|of| of["name"].as_str()).collect();
    assert_eq!((names, &live["cluster"]["name"]), (vec!["web", "mail"], &json!("web")));
    assert_eq!(live["proxies"][1]["problem"], "it has no cluster web");
    let (status, mail) = get_json(&router, "/api/v1/live?cluster=mail").await;
    assert_eq!((status, &mail["cluster"]["name"], &mail["cluster"]["gate"]), (200, &json!("mail"), &Value::Null));
    let (status, none) = get_json(&router, "/api/v1/live?cluster=no").await;
    assert_eq!((status, &none["error"]), (404, &json!("no proxy has a cluster \"no\"")));
    let (status, wrong) = get_json(&router, "/api/v1/live?clusters=web").await;
    assert_eq!(status, 400, "{wrong}");
}

#[tokio::test]
async fn commands_and_questions_go_to_all_proxies() {
    let (a, b) = (play("a", fine()).await, play("bb", overload()).await);
    let (router, _desk, _run) = page(&[&a, &b]);
    until(&router, "names are known", |live| name(live) == "2 of 2 proxies").await;
    let request = Request::post("/api/v1/clusters/web/backends/10.0.0.1:80/drain").header("host", "127.0.0.1:9901");
    let response = send(&router, request.header("origin", "http://127.0.0.1:9901").body(Body::empty()).unwrap()).await;
    assert_eq!(response.status(), 200);
    let body: Value = serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap();
    let names: Vec<&Value> = body["proxies"].as_array().unwrap().iter().map(|of| &of["name"]).collect();
    assert_eq!(names, ["a", "bb"]);
    for proxy in [&a, &b] {
        assert_eq!(*proxy.commands.lock(), ["drain web 10.0.0.1:80"]);
    }
    let (status, told) = get_json(&router, "/api/v1/explain?reason=quota&last=20").await;
    assert_eq!(
        (status, &told["requests"][0]["proxy"], &told["requests"][1]["proxy"]),
        (200, &json!("bb"), &json!("a"))
    );
}

#[tokio::test]
async fn pages_of_strangers_change_nothing_and_read_nothing() {
    let a = play("edge-1", fine()).await;
    let (router, _desk, _run) = page(&[&a]);
    let drain = "/api/v1/clusters/web/backends/10.0.0.1:80/drain";
    for (field, value) in [
        ("origin", "http://evil.example"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
        ("host", "evil.example"),
    ] {
        let request = Request::post(drain).header(field, value);
        let request = if field == "host" { request } else { request.header("host", "127.0.0.1:9901") };
        let response = send(&router, request.body(Body::empty()).unwrap()).await;
        assert_eq!(response.status(), 403, "{field}: {value}");
    }
    for path in ["/api/v1/live", "/api/v1/explain", "/live/"] {
        let request = Request::get(path).header("host", "evil.example:9901").body(Body::empty()).unwrap();
        assert_eq!(send(&router, request).await.status(), 403, "{path}");
    }
    assert!(a.commands.lock().is_empty());
    // Other commands of the admin API do not pass.
    let reload = Request::post("/api/v1/process/reload").header("host", "127.0.0.1").body(Body::empty()).unwrap();
    assert_eq!(send(&router, reload).await.status(), 404);
    let remove = Request::delete("/api/v1/clusters/web/backends/10.0.0.1:80").header("host", "127.0.0.1");
    assert_eq!(send(&router, remove.body(Body::empty()).unwrap()).await.status(), 404);
    let get = Request::get(drain).header("host", "127.0.0.1").body(Body::empty()).unwrap();
    assert_eq!(send(&router, get).await.status(), 405);
}

#[tokio::test]
async fn viewers_and_watches_have_a_bound() {
    let a = play("edge-1", overload()).await;
    let (router, desk, _run) = page(&[&a]);
    let stream = async |cluster: &str| {
        let path = format!("/api/v1/live/stream{cluster}");
        send(&router, Request::get(path).header("host", "127.0.0.1").body(Body::empty()).unwrap()).await
    };
    let mut open = Vec::new();
    for _ in 0..MAX_VIEWERS {
        open.push(stream("").await);
    }
    assert!(open.iter().all(|response| response.status() == 200));
    assert_eq!(stream("").await.status(), 503);
    assert_eq!(a.streams.available_permits(), MAX_STREAMS - 1, "one stream for all viewers");
    open.clear();
    for place in 0..50 {
        assert_eq!(get_json(&router, &format!("/api/v1/live?cluster=no-{place}")).await.0, 404);
    }
    assert!(desk.watched() <= 4, "{}", desk.watched());
}
