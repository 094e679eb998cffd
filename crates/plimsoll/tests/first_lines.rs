//! The first lines of a program: the builder of a cluster, and the body of any type.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use plimsoll::Body;
use plimsoll::client::{
    BuildError, Client, Cluster, ClusterBuilder, ClusterConfig, Error, Idempotent, Protocol, RequestConfig,
};
use plimsoll::discover::{Answer, Discover, Endpoint};
use plimsoll_core::Weight;
use plimsoll_core::pick::PolicyKind;
use plimsoll_core::throttle::ThrottlePolicy;
use tokio::sync::mpsc;
use tokio::time::Instant;

use self::support::{Server, Speaks, now, plain_config, status, text, until};

/// A source whose lists come from a test.
struct Lists(mpsc::Receiver<Vec<Endpoint>>);

impl Discover for Lists {
    async fn next(&mut self) -> Option<Answer> {
        self.0.recv().await.map(Ok)
    }
}

fn search() -> ClusterBuilder {
    Cluster::builder("search")
}

fn get() -> Request<Body> {
    Request::get("/").body(Body::empty()).unwrap()
}

#[tokio::test]
async fn three_lines_are_a_working_client() {
    let server = Server::plain().await;
    let cluster = search().backends([server.address.to_string()]).timeout(Duration::from_secs(20)).spawn().unwrap();
    let client = Client::new(&cluster);
    let response = client.send(Request::get("/").body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "ok");
}

#[tokio::test]
async fn settings_reach_the_cluster() {
    let (zone, port) = ("a", 8_081);
    let cluster = search()
        .timeout(Duration::from_secs(7))
        .attempt_timeout(Duration::from_secs(3))
        .policy(PolicyKind::Random)
        .protocol(Protocol::Http2)
        .configure(|config| config.pool.min_connections = 2)
        .backends(["10.0.0.1:8080", "unix:/run/search.sock"])
        .endpoints([Endpoint::new(([10, 0, 0, 2], port)).zone(zone).weight(Weight::new(2.0).unwrap())])
        .build()
        .unwrap();
    let config = cluster.config();
    assert_eq!(config.requests.request_timeout, Duration::from_secs(7));
    assert_eq!(config.requests.attempt_timeout, Duration::from_secs(3));
    assert_eq!(config.requests.protocol, Protocol::Http2);
    assert_eq!((config.balancer.policy, config.pool.min_connections), (PolicyKind::Random, 2));
    assert_eq!((cluster.name(), cluster.known()), ("search", 3));
    let labels: Vec<_> = cluster.backends().iter().map(|view| view.backend.label().to_owned()).collect();
    assert_eq!(labels, ["10.0.0.1:8080", "unix:/run/search.sock", "10.0.0.2:8081"]);
}

#[test]
fn problem_names_its_place_and_the_fix() {
    let one = || search().backends(["10.0.0.1:80"]);
    for (builder, problem, help) in [
        (Cluster::builder("").backends(["10.0.0.1:80"]), "cluster without a name: ", "Cluster::builder(\"search\")"),
        (search(), "cluster `search`: no backends", ".backends([\"10.0.0.1:8080\"])"),
        (
            search().backends(["search-2:8080"]),
            "cluster `search`, backend `search-2:8080`: a name is no address",
            ".dns(\"search-2:8080\")",
        ),
        (
            search().backends(["10.0.0.1"]),
            "cluster `search`, backend `10.0.0.1`: no IP address with a port",
            "10.0.0.1:8080 or",
        ),
        (
            search().backends(["unix:app.sock"]),
            "cluster `search`, backend `unix:app.sock`: the path of a Unix socket must be absolute",
            "unix:/run/app.sock",
        ),
        (one().backends(["10.0.0.1:80"]), "cluster `search`, backend `10.0.0.1:80`: listed twice", "Endpoint::weight"),
        (one().timeout(Duration::ZERO), "cluster `search`, timeout: every request would fail", "a longer time"),
        (
            one().attempt_timeout(Duration::ZERO),
            "cluster `search`, attempt_timeout: every request would fail",
            "Duration::MAX is no limit",
        ),
        (
            one().timeout(Duration::from_secs(1)).attempt_timeout(Duration::from_secs(1)),
            "cluster `search`, attempt_timeout: 1s has no effect, since the request ends after 1s",
            "a shorter time",
        ),
        // The first problem counts.
        (search().backends(["a", "b"]).timeout(Duration::ZERO), "cluster `search`, backend `a`: ", "with a port"),
    ] {
        let error = builder.build().unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with(problem), "{text}");
        assert!(text.lines().nth(1).is_some_and(|line| line.starts_with("help: ") && line.contains(help)), "{text}");
        assert_eq!(format!("{error:?}"), text, "`unwrap` shows it too");
    }
    assert!(matches!(one().spawn(), Err(BuildError::NoRuntime { .. })));
    assert!(one().build().is_ok(), "without a source it needs no runtime");
}

#[tokio::test]
async fn second_source_is_an_error() {
    let source = || Lists(mpsc::channel(1).1);
    let error = search().source(source()).source(source()).build().unwrap_err();
    assert_eq!(error.to_string().lines().next(), Some("cluster `search`: two sources, custom and custom"));
}

#[tokio::test]
async fn request_waits_for_the_first_list_of_a_source() {
    let server = Server::plain().await;
    let (lists, receiver) = mpsc::channel(1);
    let client = Client::new(&search().source(Lists(receiver)).spawn().unwrap());
    let early = tokio::spawn({
        let client = client.clone();
        async move { client.send(get()).await.map(|response| response.status()) }
    });
    tokio::task::yield_now().await;
    lists.send(vec![Endpoint::new(server.address)]).await.unwrap();
    assert_eq!(early.await.unwrap().unwrap(), StatusCode::OK);
    assert_eq!(client.cluster().counts().no_backend, 0);
}

#[tokio::test(start_paused = true)]
async fn wait_for_the_first_list_has_an_end() {
    let (_lists, receiver) = mpsc::channel(1);
    let one_waits = |config: &mut ClusterConfig| config.requests.max_pending = 1;
    let client = Client::new(&search().source(Lists(receiver)).configure(one_waits).spawn().unwrap());
    let begun = Instant::now();
    let first = tokio::spawn({
        let client = client.clone();
        async move { client.send(get()).await.map(drop) }
    });
    tokio::task::yield_now().await;
    // The queue has one place.
    assert!(matches!(client.send(get()).await, Err(Error::NoBackend)));
    assert!(begun.elapsed() < Duration::from_millis(100), "{:?}", begun.elapsed());
    assert!(matches!(first.await.unwrap(), Err(Error::NoBackend)));
    let waited = begun.elapsed();
    assert!(waited >= RequestConfig::DEFAULT_QUEUE_TIMEOUT && waited < Duration::from_secs(6), "{waited:?}");
}

#[tokio::test]
async fn fixed_backends_stay_beside_a_source() {
    let (lists, receiver) = mpsc::channel(1);
    let cluster = search().backends(["10.0.0.1:80"]).source(Lists(receiver)).spawn().unwrap();
    lists.send(vec![Endpoint::new(([10, 0, 0, 2], 80))]).await.unwrap();
    until(|| cluster.known() == 2).await;
}

/// A server that sheds, and one that notes bodies and their lengths.
async fn retrying() -> (Server, Server, Arc<Mutex<Vec<(Option<String>, Bytes)>>>, Cluster) {
    let shed = Server::start(Speaks::Http1, |_| {
        let response =
            http::Response::builder().status(503).header("x-plimsoll-shed", "reason=overloaded, retry=elsewhere");
        now(response.body(http_body_util::Empty::new().boxed()).unwrap())
    })
    .await;
    let seen = Arc::<Mutex<Vec<_>>>::default();
    let notes = seen.clone();
    let notes = Server::start(Speaks::Http1, move |request| {
        let notes = notes.clone();
        Box::pin(async move {
            let length = request.headers().get("content-length").map(|value| value.to_str().unwrap().to_owned());
            let body = request.into_body().collect().await.unwrap().to_bytes();
            notes.lock().unwrap().push((length, body));
            text("ok").await
        })
    })
    .await;
    let endpoints = [shed.address, notes.address];
    let mut config = plain_config();
    config.throttle = ThrottlePolicy::Off;
    let cluster = search().configure(|settings| *settings = config).endpoints(endpoints).spawn().unwrap();
    (shed, notes, seen, cluster)
}

#[tokio::test]
async fn body_of_any_type_is_sent_again_with_its_length() {
    let (shed, _notes, seen, cluster) = retrying().await;
    let client = Client::new(&cluster);
    for body in [
        Body::from("text"),
        Body::from(b"text".to_vec()),
        Body::new(Full::new(Bytes::from_static(b"text"))),
        Body::new(axum::body::Body::from("text")),
        Body::new(tonic::body::Body::new(Full::new(Bytes::from_static(b"text")))),
    ] {
        let response = client.send(Request::put("/").body(body).unwrap()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
    }
    // Pieces have no length together; they are kept for a retry all the same.
    let pieces = Body::from_stream(stream::iter(["te", "xt"].map(Ok::<_, std::io::Error>)));
    let mut request = Request::post("/").body(pieces).unwrap();
    request.extensions_mut().insert(Idempotent);
    assert_eq!(client.send(request).await.unwrap().status(), StatusCode::OK);
    let seen = seen.lock().unwrap();
    assert!(shed.requests() > 0, "some of them were sent again");
    assert!(seen.iter().all(|(_, body)| body == "text"), "{seen:?}");
    let lengths: Vec<_> = seen.iter().map(|(length, _)| length.as_deref()).collect();
    assert_eq!(lengths[..5], [Some("4"); 5]);
    // Pieces that were kept for the second attempt have a length there.
    assert!(matches!(lengths[5..], [None | Some("4")]), "{lengths:?}");
}

#[tokio::test]
async fn error_of_a_stream_is_that_of_the_request_body() {
    let server = Server::start(Speaks::Http1, |request| {
        Box::pin(async move {
            let _ = request.into_body().collect().await;
            status(200).await
        })
    })
    .await;
    let cluster = search().endpoints([server.address]).spawn().unwrap();
    let pieces = stream::iter([Ok("te"), Err(std::io::Error::other("the file is gone"))]);
    let error = Client::new(&cluster).send(Request::post("/").body(Body::from_stream(pieces)).unwrap()).await;
    let error = error.unwrap_err();
    assert!(matches!(error, Error::RequestBody(_)), "{error}");
    assert!(error.in_full().to_string().contains("the file is gone"), "{}", error.in_full());
}
