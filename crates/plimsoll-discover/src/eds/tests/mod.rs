//! The source against a control plane in virtual time.

pub(super) mod build;
mod fake;
mod levels;

use std::time::Duration;

use bytes::Bytes;
use plimsoll::discover::Discover as _;
use prost::Message as _;
use rand_core::Rng as _;
use tokio::time::{Instant, sleep, timeout};

use self::build::{any, assignment, framed, locality, response, web};
use self::fake::Fake;
use super::message::{Any, WRAPPER, Wrapper};
use super::*;

const A: &str = "10.0.0.1:80";
const B: &str = "10.0.0.2:80";
const SECOND: Duration = Duration::from_secs(1);

/// The version and nonce of a request.
fn words(request: &DiscoveryRequest) -> [&str; 2] {
    [&request.version_info, &request.response_nonce]
}

#[tokio::test(start_paused = true)]
async fn each_response_is_accepted_by_its_version_and_nonce() {
    let mut fake = Fake::new();
    let (mut stream, first) = fake.stream().await;
    assert_eq!(stream.path, message::STREAM);
    let node = first.node.clone().unwrap();
    assert_eq!((&*node.id, &*node.cluster, &*node.user_agent_name), ("proxy-1", "plimsoll", "plimsoll"));
    assert_eq!((words(&first), &*first.type_url), (["", ""], ASSIGNMENT));
    stream.send("1", &[web(&[B, A])]).await;
    assert_eq!(fake.answer().await, [A, B]);
    let ack = stream.request().await;
    assert_eq!((words(&ack), &ack.error_detail), (["1", "n1"], &None));
    assert_eq!((&ack.resource_names[..], ack.node), (&["web".to_owned()][..], None));
    // The same list in another order is an ACK, and no answer.
    stream.send("2", &[web(&[A, B])]).await;
    assert_eq!(words(&stream.request().await), ["2", "n2"]);
    fake.assert_silent(SECOND).await;
    stream.send("3", &[web(&[])]).await;
    assert_eq!(fake.answer().await, Vec::<String>::new());
    assert_eq!(words(&stream.request().await), ["3", "n3"]);
    stream.assert_no_request().await;
}

#[tokio::test(start_paused = true)]
async fn wrong_resource_is_rejected_by_the_last_good_version() {
    let mut fake = Fake::new();
    let (mut stream, _) = fake.stream().await;
    let error = "rejected: endpoints[0].lb_endpoints[1]: `web.internal` is no IP address";
    for round in ["0", "2"] {
        let good = if round == "0" { "" } else { "1" };
        stream.send(round, &[web(&[A, "web.internal:80"])]).await;
        assert!(fake.error().await.contains(error));
        let nack = stream.request().await;
        assert_eq!(words(&nack), [good, &*format!("n{round}")]);
        let Status { code, message } = nack.error_detail.unwrap();
        assert!(code == 3 && message.starts_with("web: endpoints[0].lb_endpoints[1]: `web.internal`"), "{message}");
        // The same list as before the error is an answer again.
        stream.send("1", &[web(&[A])]).await;
        assert_eq!(fake.answer().await, [A]);
        assert_eq!(words(&stream.request().await), ["1", "n1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn response_without_the_service_removes_nothing() {
    let (mut fake, mut stream) = Fake::started(&[A]).await;
    let other = any(&assignment("api", vec![locality("", &["api.internal:1"])]));
    stream.send("2", std::slice::from_ref(&other)).await;
    assert_eq!(words(&stream.request().await), ["2", "n2"]);
    stream.send("3", &[]).await;
    assert_eq!(words(&stream.request().await), ["3", "n3"]);
    fake.assert_silent(60 * SECOND).await;
    stream.send("4", &[other, web(&[B])]).await;
    assert_eq!(fake.answer().await, [B]);
}

/// Else a control plane that sends other services would make a wrong one look right.
#[tokio::test(start_paused = true)]
async fn rejection_stands_until_a_good_list() {
    let (mut fake, mut stream) = Fake::started(&[A]).await;
    stream.send("2", &[web(&["0.0.0.256:80"])]).await;
    assert!(fake.error().await.contains("`0.0.0.256` is no IP address"));
    stream.request().await;
    stream.send("3", &[any(&assignment("api", vec![]))]).await;
    assert_eq!(words(&stream.request().await), ["3", "n3"]);
    fake.assert_silent(60 * SECOND).await;
    stream.send("4", &[web(&[A])]).await;
    assert_eq!(fake.answer().await, [A]);
}

#[tokio::test(start_paused = true)]
async fn resources_in_wrappers_are_read_and_heartbeats_ignored() {
    let (mut fake, mut stream) = Fake::started(&[A]).await;
    let wrapped = |resource| Any { type_url: WRAPPER.to_owned(), value: Wrapper { resource }.encode_to_vec().into() };
    stream.send("2", &[wrapped(None), wrapped(Some(web(&[B])))]).await;
    assert_eq!(fake.answer().await, [B]);
    assert_eq!(words(&stream.request().await), ["2", "n2"]);
}

#[tokio::test(start_paused = true)]
async fn senseless_resources_are_rejected() {
    let (mut fake, mut stream) = Fake::started(&[A]).await;
    let cluster =
        Any { type_url: "type.googleapis.com/envoy.config.cluster.v3.Cluster".to_owned(), value: Bytes::new() };
    let broken = Any { value: Bytes::from_static(&[0x12, 9]), ..web(&[]) };
    for (resources, text) in [
        (vec![cluster], "a resource is a `type.googleapis.com/envoy.config.cluster"),
        (vec![web(&[A]), web(&[B])], "it is there twice"),
        (vec![broken], "it is no ClusterLoadAssignment"),
    ] {
        stream.send("2", &resources).await;
        let error = fake.error().await;
        assert!(error.starts_with("EDS web at xds.internal:18000: ") && error.contains(text), "{error}");
        let nack = stream.request().await;
        assert!(words(&nack) == ["1", "n2"] && nack.error_detail.is_some(), "{nack:?}");
    }
}

/// An answer would subscribe to that type.
#[tokio::test(start_paused = true)]
async fn response_of_another_type_gets_no_answer() {
    let (mut fake, mut stream) = Fake::started(&[A]).await;
    let cluster = "type.googleapis.com/envoy.config.cluster.v3.Cluster".to_owned();
    stream.send_response(&build::Response { type_url: cluster, ..response("9", &[]) }).await;
    stream.assert_no_request().await;
    stream.send("2", &[web(&[B])]).await;
    assert_eq!(fake.answer().await, [B]);
    assert_eq!(words(&stream.request().await), ["2", "n2"]);
}

#[tokio::test(start_paused = true)]
async fn unknown_service_is_an_error_after_eight_seconds_and_found_later() {
    let mut fake = Fake::new();
    let began = Instant::now();
    let (mut stream, _) = fake.stream().await;
    stream.send("1", &[]).await;
    let error = fake.error().await;
    assert_eq!(began.elapsed().as_secs(), 8);
    let head = "EDS web at xds.internal:18000: no endpoints of it within 8 s; help: ";
    assert!(error.starts_with(head) && error.ends_with("for node proxy-1"), "{error}");
    fake.assert_silent(120 * SECOND).await;
    stream.request().await;
    stream.send("2", &[web(&[A])]).await;
    assert_eq!(fake.answer().await, [A]);
}

/// Also one that accepts the connection and does not even send the head of its response.
#[tokio::test(start_paused = true)]
async fn silent_server_is_an_error_and_its_dead_connection_is_found() {
    let mut source = Eds::new("xds.internal:18000", "web").unwrap();
    let (kept, mut connections) = tokio::sync::mpsc::unbounded_channel();
    source.plane.dial = std::sync::Arc::new(move |_, _| {
        let (client, server) = tokio::io::duplex(64 * 1024);
        kept.send(server).unwrap();
        Box::pin(async { Ok(Box::new(client) as Box<dyn connection::Io>) })
    });
    let began = Instant::now();
    let error = source.next().await.unwrap().unwrap_err().to_string();
    assert!(error.contains("no endpoints of it within 8 s"), "{error}");
    assert_eq!(began.elapsed().as_secs(), 8);
    let error = source.next().await.unwrap().unwrap_err().to_string();
    assert!(error.contains("the connection broke without an answer: ") && began.elapsed().as_secs() <= 332, "{error}");
    assert!(timeout(5 * SECOND, source.next()).await.is_err());
    assert!(connections.try_recv().is_ok() && connections.try_recv().is_ok());
}

#[tokio::test(start_paused = true)]
async fn ended_stream_is_followed_at_once_by_one_from_the_last_version() {
    let (mut fake, stream) = Fake::started(&[A]).await;
    sleep(60 * SECOND).await;
    let ended = Instant::now();
    tokio::spawn(stream.end(0, ""));
    let (mut stream, first) = fake.stream().await;
    assert!(ended.elapsed() <= SECOND, "{:?}", ended.elapsed());
    assert_eq!(words(&first), ["1", ""], "the nonce is of the former stream");
    assert!(first.node.is_some());
    // The control plane has nothing new to say.
    fake.assert_silent(60 * SECOND).await;
    stream.send("2", &[web(&[B])]).await;
    assert_eq!(fake.answer().await, [B]);
    assert_eq!(words(&stream.request().await), ["2", "n2"]);
}

#[tokio::test(start_paused = true)]
async fn lost_control_plane_is_an_error_until_it_is_back_with_back_off() {
    let (mut fake, stream) = Fake::started(&[A]).await;
    sleep(60 * SECOND).await;
    fake.refuse(true);
    drop(stream);
    let mut times = Vec::new();
    for _ in 0..7 {
        let error = fake.error().await;
        assert!(error.contains("cannot connect: connection refused"), "{error}");
        times.push(Instant::now());
    }
    for (pair, nominal) in times.windows(2).zip([1.0, 2.0, 4.0, 8.0, 16.0, 30.0]) {
        let share = (pair[1] - pair[0]).as_secs_f64() / nominal;
        assert!((0.79..=1.21).contains(&share), "{share} of {nominal} s");
    }
    fake.refuse(false);
    let (stream, first) = fake.stream().await;
    assert_eq!(words(&first), ["1", ""]);
    // It knows the version: its silence for 8 s means that nothing changed.
    let back = Instant::now();
    assert_eq!(fake.answer().await, [A]);
    assert_eq!(back.elapsed().as_secs(), 8);
    // And that was a stream in order.
    let ended = Instant::now();
    drop(stream);
    let (mut stream, _) = fake.stream().await;
    assert!(ended.elapsed() <= SECOND, "{:?}", ended.elapsed());
    stream.send("1", &[web(&[A])]).await;
    stream.request().await;
    fake.assert_silent(SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn status_of_the_control_plane_is_an_error_that_has_it() {
    let mut fake = Fake::new();
    let (stream, _) = fake.stream().await;
    tokio::spawn(stream.end(12, "unknown service"));
    let error = fake.error().await;
    let expected = "the control plane answers Unimplemented: unknown service; help: the server has no aggregated";
    assert!(error.contains(expected), "{error}");
    let (stream, _) = fake.stream().await;
    tokio::spawn(stream.end(0, ""));
    assert!(fake.error().await.contains("ended the stream without an answer"));
    let (stream, _) = fake.stream().await;
    drop(stream);
    let error = fake.error().await;
    let head = "the connection broke without an answer: ";
    assert!(error.contains(head) && error.ends_with("; help: the control plane may speak TLS: set tls"), "{error}");
}

/// As a process that hangs, or a machine behind a middlebox that forgot the connection.
#[tokio::test(start_paused = true)]
async fn dead_connection_is_found_by_pings_that_servers_permit() {
    let (mut fake, stream) = Fake::started(&[A]).await;
    stream.freeze();
    let frozen = Instant::now();
    let (_stream, _) = timeout(600 * SECOND, fake.stream()).await.expect("a second stream");
    let found = frozen.elapsed().as_secs();
    assert!((300..=332).contains(&found), "{found}");
    fake.assert_silent(SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn flood_of_responses_is_read_at_ten_a_second() {
    let (mut fake, mut stream) = Fake::started(&[A]).await;
    let began = Instant::now();
    for version in 2..=21 {
        stream.send(&version.to_string(), &[web(&[if version % 2 == 0 { B } else { A }])]).await;
    }
    for version in 2..=21 {
        assert_eq!(fake.answer().await, [if version % 2 == 0 { B } else { A }]);
    }
    assert_eq!(began.elapsed().as_secs(), 2, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn responses_beyond_all_bounds_end_the_stream() {
    let (mut fake, mut stream) = Fake::started(&[A]).await;
    // Of 32 MiB and a byte.
    stream.send_raw(Bytes::from_static(&[0, 2, 0, 0, 1])).await;
    let (mut stream, _) = fake.stream().await;
    stream.send_raw(Bytes::from_static(&[0, 2, 0, 0, 1])).await;
    let error = fake.error().await;
    assert!(error.contains("answers OutOfRange: ") && error.contains("33554432"), "{error}");
    let (mut stream, _) = { fake.stream().await };
    stream.send(&"1".repeat(5000), &[web(&[B])]).await;
    assert!(fake.error().await.contains("a version or nonce has more than 4096 bytes"));
    let (mut stream, _) = fake.stream().await;
    stream.send_raw(framed(&[0xff])).await;
    assert!(fake.error().await.contains("a response is no DiscoveryResponse"));
    let (mut stream, _) = fake.stream().await;
    stream.send("1", &[web(&[A])]).await;
    assert_eq!(fake.answer().await, [A]);
    // Also on a stream that was in order.
    stream.send_raw(framed(&[0xff])).await;
    assert!(fake.error().await.contains("a response is no DiscoveryResponse"));
}

#[test]
fn settings_that_make_no_source_are_errors_with_an_example() {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
        for server in ["xds.internal", "http://xds:1", "u@xds:1", ":1", "xds:0", ""] {
            let error = Eds::new(server, "web").unwrap_err();
            assert_eq!(error, InvalidEds::Server(server.to_owned()));
            assert!(error.to_string().contains("xds.internal:18000"));
        }
        for name in ["", "a\n", &"a".repeat(1025)] {
            assert!(matches!(Eds::new("xds:1", name), Err(InvalidEds::Name(_))), "{name}");
        }
        let source = Eds::new("[::1]:18000", "xdstp://a/envoy.config.endpoint.v3.ClusterLoadAssignment/web").unwrap();
        assert!(source.description().ends_with("/web at [::1]:18000"), "{}", source.description());
        let source = Eds::new("xds:1", "web").unwrap().node_id("a").unwrap().node_cluster("b").unwrap();
        let source = source.locality_from(LocalityFrom::Priority);
        assert_eq!((source.kind(), &*source.description()), ("eds", "web at xds:1 as a of b by priority"));
        assert!(!Eds::new("xds:1", "web").unwrap().node().id.is_empty(), "the name of the machine");
    });
}

/// A control plane can send any bytes: each answer is an error or one of the right form.
#[test]
fn mutated_responses_are_errors_or_lists() {
    let mut rng = Pcg64Mcg::seed_from_u64(74);
    let localities = vec![locality("a", &[A, B]), locality("b", &["10.0.0.3:80"])];
    let good = response("1", &[any(&assignment("api", vec![])), any(&assignment("web", localities))]).encode_to_vec();
    let (mut lists, mut rejected, mut malformed) = (0, 0, 0);
    for _ in 0..20_000 {
        let mut bytes = good.clone();
        for _ in 0..=rng.next_u32() % 4 {
            let at = rng.next_u32() as usize % bytes.len();
            match rng.next_u32() % 20 {
                0..9 => bytes[at] = rng.next_u32() as u8,
                9..19 => bytes[at] ^= 1 << (rng.next_u32() % 8),
                _ => bytes.truncate(at + 1),
            }
        }
        let mut subscription = Subscription::new("web".to_owned(), Timestamp::ZERO);
        subscription.poll_stream(Timestamp::ZERO).unwrap();
        match subscription.on_response(bytes.into()) {
            (Some(request), Ok(())) => {
                assert!(request.rejected.is_none());
                lists += usize::from(subscription.poll_list().is_some_and(|list| list.len() <= 3));
            }
            (Some(request), Err(error)) => {
                assert!(request.version.is_empty() && request.rejected.is_some(), "{error}");
                rejected += 1;
            }
            // Of another type, or no response at all.
            (None, outcome) => malformed += usize::from(outcome.is_err()),
        }
    }
    // The cases are there, each by the hundred.
    assert!(lists > 200 && rejected > 500 && malformed > 500, "{lists} {rejected} {malformed}");
}
