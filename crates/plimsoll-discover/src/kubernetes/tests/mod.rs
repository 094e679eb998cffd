//! The source against a server in virtual time.

mod fake;

use std::time::Duration;

use plimsoll::discover::Discover as _;
use serde_json::json;
use tokio::time::{Instant, sleep};

use self::fake::{Fake, addresses, slice};
use super::*;

fn ready(first: usize, count: usize) -> Vec<String> {
    let mut list = addresses(first, count);
    // By number, as the source sorts them.
    list.sort_by_key(|address| address.rsplit('.').next().and_then(|last| last.parse::<u32>().ok()));
    list.iter().map(|address| format!("{address}:80 Ready")).collect()
}

#[tokio::test(start_paused = true)]
async fn pages_are_one_list_and_events_change_it() {
    let mut fake = Fake::new();
    fake.list().await.list("10", "a/b=", &[slice("a", "5", &addresses(1, 1))]).await;
    let second = fake.call().await;
    assert!(second.target.ends_with("&limit=500&continue=a%2Fb%3D"), "{}", second.target);
    assert_eq!(second.authorization.as_deref(), Some("Bearer secret-1"));
    second.list("10", "", &[slice("b", "6", &addresses(2, 1))]).await;
    assert_eq!(fake.answer().await, ready(1, 2));
    let mut watch = fake.watch("10").await;
    watch.send("ADDED", &slice("c", "11", &addresses(3, 1))).await;
    assert_eq!(fake.answer().await, ready(1, 3));
    let mut terminating = slice("c", "12", &addresses(3, 1));
    terminating["endpoints"][0]["conditions"] = json!({"ready": false, "serving": true, "terminating": true});
    watch.send("MODIFIED", &terminating).await;
    assert_eq!(fake.answer().await, [ready(1, 2), vec!["10.0.0.3:80 Draining".to_owned()]].concat());
    watch.send("DELETED", &slice("c", "13", &addresses(3, 1))).await;
    assert_eq!(fake.answer().await, ready(1, 2));
    // The same in other words, and of another service.
    watch.send("MODIFIED", &slice("b", "14", &addresses(2, 1))).await;
    let mut other = slice("x", "15", &addresses(9, 1));
    other["metadata"]["labels"] = json!({"kubernetes.io/service-name": "api"});
    watch.send("ADDED", &other).await;
    fake.assert_silent().await;
}

/// Linkerd lost all endpoints when the 101st made a second slice.
#[tokio::test(start_paused = true)]
async fn deleted_slice_takes_only_its_own_endpoints() {
    let (a, b) = (slice("a", "1", &addresses(1, 100)), slice("b", "2", &addresses(101, 10)));
    let mut fake = Fake::new();
    fake.list().await.list("10", "", &[a, b.clone()]).await;
    assert_eq!(fake.answer().await, ready(1, 110));
    let mut watch = fake.watch("10").await;
    watch.send("DELETED", &b).await;
    assert_eq!(fake.answer().await, ready(1, 100));
    watch.send("ADDED", &b).await;
    assert_eq!(fake.answer().await, ready(1, 110));
}

#[tokio::test(start_paused = true)]
async fn many_events_at_once_are_one_answer() {
    let (mut fake, mut watch) = Fake::started(&[]).await;
    let lines: Vec<String> = (1..=50)
        .map(|i| json!({"type": "ADDED", "object": slice(&format!("s{i}"), "11", &addresses(i, 1))}).to_string())
        .collect();
    watch.raw((lines.join("\n") + "\n").as_bytes()).await;
    assert_eq!(fake.answer().await, ready(1, 50));
}

#[tokio::test(start_paused = true)]
async fn service_without_slices_is_an_empty_list() {
    let mut fake = Fake::new();
    fake.list().await.list("10", "", &[]).await;
    assert_eq!(fake.answer().await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn ended_watch_is_renewed_at_once_from_the_last_bookmark() {
    let (mut fake, mut watch) = Fake::started(&[slice("a", "1", &addresses(1, 1))]).await;
    watch.bookmark("20").await;
    sleep(Duration::from_secs(240)).await;
    let began = Instant::now();
    watch.end().await;
    fake.watch("20").await.bookmark("21").await;
    assert!(began.elapsed() < Duration::from_millis(10), "{:?}", began.elapsed());
    fake.assert_silent().await;
}

/// As a status and as an event. The list that follows may find the same, or other backends.
#[tokio::test(start_paused = true)]
async fn expired_version_is_followed_by_a_list_and_drops_no_backend() {
    let (mut fake, watch) = Fake::started(&[slice("a", "1", &addresses(1, 2))]).await;
    sleep(Duration::from_secs(60)).await;
    watch.end().await;
    fake.call().await.refuse("410 Gone", "too old resource version").await;
    let list = fake.list().await;
    fake.assert_silent().await;
    list.list("30", "", &[slice("a", "1", &addresses(1, 2))]).await;
    let mut watch = fake.watch("30").await;
    sleep(Duration::from_secs(60)).await;
    watch.send("ERROR", &json!({"kind": "Status", "code": 410, "reason": "Expired"})).await;
    let list = fake.list().await;
    fake.assert_silent().await;
    list.list("40", "", &[slice("a", "35", &addresses(1, 3))]).await;
    assert_eq!(fake.answer().await, ready(1, 3));
    let _watch = fake.watch("40").await;
    fake.assert_silent().await;
}

#[tokio::test(start_paused = true)]
async fn expired_token_of_a_page_begins_the_list_anew() {
    let mut fake = Fake::new();
    fake.list().await.list("10", "t", &[slice("a", "1", &addresses(1, 1))]).await;
    fake.call().await.refuse("410 Gone", "The provided continue parameter is too old").await;
    fake.list().await.list("12", "t", &[slice("b", "1", &addresses(2, 1))]).await;
    // The second time is an error.
    fake.call().await.refuse("410 Gone", "The provided continue parameter is too old").await;
    assert!(fake.error().await.contains("410 Gone for list endpointslices: The provided continue"));
    fake.list().await.list("14", "", &[slice("b", "1", &addresses(2, 1))]).await;
    assert_eq!(fake.answer().await, ready(2, 1));
}

#[tokio::test(start_paused = true)]
async fn rotated_token_is_read_again() {
    let (mut fake, watch) = Fake::started(&[]).await;
    fake.write_token("secret-2");
    sleep(Duration::from_secs(100)).await;
    watch.end().await;
    let call = fake.call().await;
    assert_eq!(call.authorization.as_deref(), Some("Bearer secret-2"));
    // It is replaced between the request and its answer.
    fake.write_token("secret-3");
    call.refuse("401 Unauthorized", "Unauthorized").await;
    let call = fake.call().await;
    assert_eq!(call.authorization.as_deref(), Some("Bearer secret-3"));
    let watch = call.watch().await;
    fake.assert_silent().await;
    watch.end().await;
    fake.call().await.refuse("401 Unauthorized", "Unauthorized").await;
    let error = fake.error().await;
    assert!(
        error.contains("401 Unauthorized for watch endpointslices: Unauthorized; help: look for the token"),
        "{error}"
    );
    assert!(!error.contains("secret"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn token_is_in_no_debug_output() {
    let folder = std::env::temp_dir().join(format!("plimsoll-kubernetes-debug-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("token"), "secret-1").unwrap();
    let source = EndpointSlices::new("web").unwrap().service_account(&folder);
    let token = source.api.account.token().await.unwrap().unwrap();
    assert_eq!(token, "Bearer secret-1");
    for shown in [format!("{source:?}"), format!("{token:?}")] {
        assert!(!shown.contains("secret"), "{shown}");
    }
    // A line break would end the header field.
    std::fs::write(folder.join("token"), "secret\r\nx: 1").unwrap();
    let error = source.api.account.token().await.unwrap_err().to_string();
    assert!(error.contains("token holds no token") && !error.contains("secret"), "{error}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test(start_paused = true)]
async fn token_is_not_sent_in_the_clear_to_another_machine() {
    let mut fake = Fake::with(|source| source.server("http://10.0.0.1:8001".parse().unwrap()));
    assert_eq!(fake.list().await.authorization, None);
}

#[tokio::test(start_paused = true)]
async fn silent_watch_is_abandoned_after_its_time() {
    let (mut fake, mut watch) = Fake::started(&[]).await;
    watch.bookmark("15").await;
    let began = Instant::now();
    // A list is due at about the same time.
    let renewed = loop {
        let call = fake.call().await;
        if !call.is_list() {
            break call;
        }
        call.list("16", "", &[]).await;
    };
    assert!(renewed.target.contains("&resourceVersion=15&timeoutSeconds="), "{}", renewed.target);
    let elapsed = began.elapsed().as_secs();
    assert!((271..=330).contains(&elapsed), "{elapsed}");
    watch.ended().await;
}

/// The rest of the event comes with the next watch.
#[tokio::test(start_paused = true)]
async fn half_an_event_before_a_disconnection_has_no_effect() {
    let (mut fake, mut watch) = Fake::started(&[slice("a", "1", &addresses(1, 1))]).await;
    watch.send("ADDED", &slice("b", "11", &addresses(2, 1))).await;
    assert_eq!(fake.answer().await, ready(1, 2));
    let event = json!({"type": "DELETED", "object": slice("a", "12", &[])}).to_string();
    watch.raw(&event.as_bytes()[..event.len() / 2]).await;
    drop(watch);
    let mut watch = fake.watch("11").await;
    fake.assert_silent().await;
    watch.raw((event + "\n").as_bytes()).await;
    assert_eq!(fake.answer().await, ready(2, 1));
}

#[tokio::test(start_paused = true)]
async fn event_in_pieces_is_one_event() {
    let (mut fake, mut watch) = Fake::started(&[]).await;
    let event = json!({"type": "ADDED", "object": slice("a", "11", &addresses(1, 1))}).to_string() + "\n\n";
    for piece in event.as_bytes().chunks(7) {
        watch.raw(piece).await;
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(fake.answer().await, ready(1, 1));
}

/// The list takes long, and the watch goes on beside it.
#[tokio::test(start_paused = true)]
async fn list_every_five_minutes_finds_a_lost_event() {
    let (mut fake, mut watch) = Fake::started(&[slice("a", "1", &addresses(1, 1))]).await;
    let began = Instant::now();
    let list = loop {
        let call = fake.call().await;
        if call.is_list() {
            break call;
        }
        watch = call.watch().await;
    };
    assert!((270..=330).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    // From before the list, and after it: the event counts, and the list for the slice without one.
    watch.send("ADDED", &slice("c", "21", &addresses(3, 1))).await;
    assert_eq!(fake.answer().await, [ready(1, 1), ready(3, 1)].concat());
    list.list("20", "", &[slice("a", "1", &addresses(1, 1)), slice("b", "15", &addresses(2, 1))]).await;
    assert_eq!(fake.answer().await, ready(1, 3));
}

#[tokio::test(start_paused = true)]
async fn failed_list_leaves_the_watch_and_is_sent_again_later() {
    let (mut fake, mut watch) = Fake::started(&[slice("a", "1", &addresses(1, 1))]).await;
    let mut lists = 0;
    while lists < 3 {
        let call = fake.call().await;
        if call.is_list() {
            lists += 1;
            call.refuse("503 Service Unavailable", "apiserver is shutting down").await;
            assert!(fake.error().await.contains("503 Service Unavailable for list endpointslices: apiserver is"));
        } else {
            watch = call.watch().await;
        }
    }
    watch.send("DELETED", &slice("a", "11", &[])).await;
    assert_eq!(fake.answer().await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn errors_back_off_and_name_the_problem_and_the_fix() {
    let mut fake = Fake::new();
    let html = b"<html>captive portal</html>";
    for (status, body, expected) in [
        (
            "403 Forbidden",
            r#"{"message": "endpointslices is forbidden: User \"system:serviceaccount:shop:web\" cannot list"}"#
                .as_bytes(),
            "Kubernetes service web: 403 Forbidden for list endpointslices: endpointslices is forbidden: User \
             \"system:serviceaccount:shop:web\" cannot list; help: bind a Role with apiGroups [\"discovery.k8s.io\"], \
             resources [\"endpointslices\"], verbs [\"list\", \"watch\"] to the pod's service account",
        ),
        (
            "404 Not Found",
            b"404 page not found\n",
            "404 page not found; help: discovery.k8s.io/v1 needs Kubernetes 1.21",
        ),
        (
            "429 Too Many Requests",
            b"",
            "429 Too Many Requests for list endpointslices; help: the API server is overloaded",
        ),
        ("500 Internal Server Error", b"\0etcd\nis away", "endpointslices:  etcd is away"),
        ("302 Found", b"", "302 Found for list endpointslices"),
        ("200 OK", html, "not a list or an event of EndpointSlices: expected value at line 1"),
        ("200 OK", b"{\"metadata\": {\"resourceVersion\": \"1\"}, \"items\": [{", "EOF while parsing"),
    ] {
        let began = Instant::now();
        fake.list().await.answer(status, body).await;
        let error = fake.error().await;
        assert!(error.contains(expected), "{error}");
        assert!(began.elapsed() < Duration::from_secs(37), "{:?}", began.elapsed());
    }
    let began = Instant::now();
    fake.list().await.list("10", "", &[]).await;
    assert_eq!(fake.answer().await, Vec::<String>::new());
    // 1, 2, 4, 8, 16, 30 s and so on, each with 20% of jitter.
    assert!((24..=36).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn unreachable_or_silent_server_is_an_error_in_time() {
    let (mut fake, watch) = Fake::started(&[slice("a", "1", &addresses(1, 1))]).await;
    sleep(Duration::from_secs(100)).await;
    fake.refuse(true);
    drop(watch);
    assert!(fake.error().await.contains("cannot connect to http://127.0.0.1:1: connection refused"));
    fake.refuse(false);
    let unanswered = fake.list().await;
    let began = Instant::now();
    assert!(fake.error().await.contains("no response from http://127.0.0.1:1 within 10 s"));
    assert!(began.elapsed() < Duration::from_secs(11), "{:?}", began.elapsed());
    drop(unanswered);
    let _watch = fake.watch("10").await;
    // The same list after an error is an answer.
    fake.list().await.list("11", "", &[slice("a", "1", &addresses(1, 1))]).await;
    assert_eq!(fake.answer().await, ready(1, 1));
}

#[tokio::test(start_paused = true)]
async fn failure_in_a_watch_is_an_error_and_a_list_follows() {
    let (mut fake, mut watch) = Fake::started(&[slice("a", "1", &addresses(1, 1))]).await;
    watch.send("ERROR", &json!({"kind": "Status", "code": 500, "message": "etcd is away"})).await;
    assert!(fake.error().await.contains("the API server ended the watch: etcd is away"));
    fake.list().await.list("11", "", &[slice("a", "1", &addresses(1, 1))]).await;
    assert_eq!(fake.answer().await, ready(1, 1));
    let mut watch = fake.watch("10").await;
    watch.raw(b"{\"type\": \"ADDED\", \"object\": 7}\n").await;
    assert!(fake.error().await.contains("not a list or an event of EndpointSlices"));
    watch.ended().await;
    fake.list().await.list("11", "", &[slice("a", "1", &addresses(1, 1))]).await;
    assert_eq!(fake.answer().await, ready(1, 1));
    let mut watch = fake.watch("10").await;
    for _ in 0..=8 {
        watch.raw(&vec![b'x'; 1024 * 1024]).await;
    }
    assert!(fake.error().await.contains("an event of the watch is longer than 8 MiB"));
    watch.ended().await;
}

#[test]
fn description_has_everything_that_decides_on_the_backends() {
    let source = || EndpointSlices::new("web").unwrap();
    assert_eq!(source().description(), "web");
    let server = "http://127.0.0.1:8001".parse().unwrap();
    let full = source().namespace("shop").unwrap().port("http".parse().unwrap()).server(server);
    assert_eq!(full.description(), "shop/web port named http at http://127.0.0.1:8001");
    assert_eq!(source().port(ServicePort::Number(80)).description(), "web port 80");
}

/// A server that sends without an end cannot keep the audit from its turn.
#[tokio::test]
async fn endless_events_leave_the_list_its_turn() {
    for event in [Some(Event::Bookmark { version: None }), None] {
        let page = |slices| Page { slices, version: "1".to_owned(), next: None };
        let found = json!({"metadata": {"resourceVersion": "1"}, "items": [slice("a", "1", &addresses(1, 1))]});
        let found = wire::page(found.to_string().as_bytes(), "web").unwrap().slices;
        let mut source = EndpointSlices::new("web").unwrap();
        let (now, rng) = (source.now(), &mut source.rng);
        assert!(source.mirror.poll_request(now, rng).is_some());
        source.mirror.on_page(now, page(Vec::new()), rng).unwrap();
        assert!(matches!(source.mirror.poll_request(now, rng), Some(Request::Watch { .. })));
        let again = move || match event {
            Some(_) => Ok(Some(Event::Bookmark { version: None })),
            None => Ok(None),
        };
        source.watch = Some(futures_util::stream::repeat_with(again).boxed());
        let list = async move {
            tokio::task::yield_now().await;
            Ok(page(found))
        };
        source.listing = Some(list.boxed());
        assert_eq!(source.next().await.unwrap().unwrap().len(), 1);
    }
}

/// The token is a part of the next request's target, and that has a greatest length.
#[tokio::test(start_paused = true)]
async fn too_long_token_of_a_page_is_an_error() {
    let mut fake = Fake::new();
    fake.list().await.list("10", &"t".repeat(70_000), &[]).await;
    assert!(fake.error().await.contains("the token of the next page has 70000 bytes, more than 4096"));
    fake.list().await.list("10", "", &[]).await;
    assert_eq!(fake.answer().await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn too_long_page_is_an_error() {
    let mut fake = Fake::new();
    fake.list().await.answer("200 OK", &vec![b' '; 64 * 1024 * 1024 + 1]).await;
    assert!(fake.error().await.contains("a page of the list is longer than 64 MiB"));
}

#[tokio::test(start_paused = true)]
async fn missing_port_is_an_error_until_a_slice_has_it() {
    let mut fake = Fake::with(|source| source.port(ServicePort::Named("grpc".to_owned())));
    fake.list().await.list("10", "", &[slice("a", "1", &addresses(1, 1))]).await;
    let error = fake.error().await;
    assert!(error.contains("no port named grpc: its pods have http (80); help: set port to one of these"), "{error}");
    let mut watch = fake.watch("10").await;
    let mut with = slice("a", "11", &addresses(1, 1));
    with["ports"][0]["name"] = json!("grpc");
    watch.send("MODIFIED", &with).await;
    assert_eq!(fake.answer().await, ready(1, 1));
}

#[tokio::test(start_paused = true)]
async fn files_of_the_account_are_needed_as_far_as_they_are_used() {
    // Without a token, as with `kubectl proxy`, but in a namespace.
    let mut fake = Fake::new();
    fake.remove("token");
    fake.list().await.list("10", "", &[]).await;
    assert_eq!(fake.answer().await, Vec::<String>::new());
    let mut fake = Fake::new();
    fake.remove("namespace");
    let error = fake.error().await;
    assert!(
        error.contains("namespace cannot be read: No such file") && error.ends_with("help: set namespace"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn dropped_source_ends_its_connections() {
    let (fake, watch) = Fake::started(&[]).await;
    fake.drop_source();
    watch.ended().await;
}

#[tokio::test]
async fn process_outside_of_a_cluster_gets_an_error_with_the_fix() {
    // In no cluster: the variables are not set where tests run.
    let folder = std::env::temp_dir().join(format!("plimsoll-kubernetes-outside-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("token"), "secret-1").unwrap();
    let mut source = EndpointSlices::new("web").unwrap().namespace("shop").unwrap().service_account(&folder);
    let error = source.next().await.unwrap().unwrap_err().to_string();
    assert!(
        error.contains("shop/web: KUBERNETES_SERVICE_HOST is not set") && error.contains("kubectl proxy"),
        "{error}"
    );
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn names_that_kubernetes_does_not_permit_are_refused() {
    for name in ["", "Web", "web/api", "-web", "web-", "web&limit=1", "w.b", &"w".repeat(64)] {
        assert!(EndpointSlices::new(name).is_err(), "{name}");
        assert!(EndpointSlices::new("web").unwrap().namespace(name).is_err(), "{name}");
    }
}
