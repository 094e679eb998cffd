//! The effects of each end of an attempt, as one table that a change has to leave as it is.
//!
//! `golden.txt` is the table. To write it anew after an intended change of behaviour, run this test with `PLIMSOLL_BLESS=1`.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::Empty;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use plimsoll_core::batch::{BatchConfig, History};
use plimsoll_core::retry::CallerAnswer;
use plimsoll_core::{Criticality, Ratio, Rejection, Timestamp};
use plimsoll_http1::Fault;
use rustix::io::Errno;
use tokio::io::AsyncWriteExt as _;

use super::*;
use crate::client::attempt::Streams;
use crate::client::batch::Batch;
use crate::client::cluster::{Cluster, Done, Shared, Taken};
use crate::client::config::ClusterConfig;
use crate::client::error::Cause;
use crate::client::stream_id::{ConnectionId, StreamId};
use crate::discover::Endpoint;

const LIMIT: Duration = Duration::from_secs(60);
const AT: ([u8; 4], u16) = ([127, 0, 0, 1], 9);

/// A client without connections, which records the end of its attempts.
struct Recorder {
    cluster: Cluster,
    ends: Mutex<Vec<String>>,
}

impl Streams for Recorder {
    fn cluster(&self) -> &Shared {
        &self.cluster.0
    }

    fn give_back(&self, _: StreamId, _: Option<Timestamp>, _: Timestamp) {}

    fn finish(&self, now: Timestamp, id: BackendId, done: &Done) {
        let throttle = done.taken.map_or_else(|| "-".to_owned(), |taken| format!("{:?}", taken.outcome));
        let before = self.cluster.backends()[0].counts;
        self.cluster().finish(now, id, done);
        let after = self.cluster.backends()[0].counts;
        let classes = before.responses.iter().zip(&after.responses);
        let metric = classes.enumerate().find(|(_, (before, after))| after > before).map_or_else(
            || match () {
                () if after.cancelled > before.cancelled => "cancelled".to_owned(),
                () if after.connect_failed > before.connect_failed => "connect_failed".to_owned(),
                () if after.broken > before.broken => "broken".to_owned(),
                () if after.timed_out > before.timed_out => "timed_out".to_owned(),
                () => "none".to_owned(),
            },
            |(class, _)| format!("{}xx", class + 1),
        );
        self.ends.lock().push(format!("{:?} {throttle} {metric}", done.outcome));
    }

    fn taken(&self, now: Timestamp, taken: Taken) {
        self.cluster().taken(now, taken);
        self.ends.lock().push(format!("early:{:?}", taken.outcome));
    }
}

fn recorder() -> Arc<Recorder> {
    let endpoint = Endpoint::from(crate::address::Address::from(AT));
    let cluster = Cluster::new("test", ClusterConfig::default(), [endpoint]);
    cluster.0.connected(cluster.0.members()[0].0);
    Arc::new(Recorder { cluster, ends: Mutex::default() })
}

/// A backend to fail at: the recorder, its cluster and an attempt.
fn attempt(home: &Arc<Recorder>) -> Attempt {
    let now = home.cluster().now();
    let Found::Backend(id, _) = home.cluster().pick(now, Kind::default()) else { panic!("the backend has headroom") };
    Attempt::new(home.clone(), id, now, Kind::default()).within(LIMIT)
}

/// The effects of `end` on balancer, throttle, metrics and batch credit.
async fn effects(end: impl Fn(Attempt)) -> String {
    effects_after(Duration::ZERO, end).await
}

/// The same of an attempt that ends after this time.
async fn effects_after(time: Duration, end: impl Fn(Attempt)) -> String {
    let home = recorder();
    let plain = attempt(&home);
    tokio::time::advance(time).await;
    end(plain);
    let plain = std::mem::take(&mut *home.ends.lock()).join(", ");
    let home = recorder();
    let batch = Batch::new(BatchConfig::default());
    let place = batch.place(&mut History::new(Criticality::Sheddable), Duration::ZERO).await.ok();
    assert!(place.is_some());
    let in_place = attempt(&home).in_place(place);
    tokio::time::advance(time).await;
    end(in_place);
    let counts = batch.view().counts;
    let credit = match (counts.accepted, counts.rejected) {
        (0, 0) => "unknown",
        (1, 0) => "accepted",
        (0, 1) => "rejected",
        other => panic!("{other:?}"),
    };
    format!("{plain} credit:{credit}")
}

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
}

type Fields = &'static [(&'static str, &'static str)];

/// Response fields that add advice to the status, by a short name.
const ADVICE: [(&str, Fields); 10] = [
    ("nothing", &[]),
    ("retry-after", &[("retry-after", "2")]),
    ("shed without reason", &[("x-plimsoll-shed", "retry=elsewhere")]),
    ("never without reason", &[("x-plimsoll-shed", "retry=never")]),
    ("unknown reason", &[("x-plimsoll-shed", "reason=from-the-future, retry=after"), ("retry-after", "3")]),
    ("envoy-overloaded", &[("x-envoy-overloaded", "true")]),
    ("envoy-ratelimited", &[("x-envoy-ratelimited", "true")]),
    ("pushback 0", &[("grpc-retry-pushback-ms", "0")]),
    ("pushback 40", &[("grpc-retry-pushback-ms", "40")]),
    ("pushback never", &[("grpc-retry-pushback-ms", "-1"), ("x-plimsoll-shed", "retry=never")]),
];
const STATUSES: [u16; 8] = [101, 200, 404, 429, 500, 502, 503, 504];
const CODES: [&str; 7] = ["0", "4", "5", "8", "13", "14", "99"];

/// All fields by their short names: the advice, and the reasons of the table.
fn advice() -> impl Iterator<Item = (&'static str, HeaderMap)> {
    let reasons = Rejection::SHED.iter().filter_map(|reason| {
        let header = reason.header(None)?;
        Some((reason.name(), headers(&[("x-plimsoll-shed", header.value)])))
    });
    ADVICE.iter().map(|(name, fields)| (*name, headers(fields))).chain(reasons)
}

/// The fields with the same effect on one line.
async fn write_grouped(out: &mut String, title: &str, effects: impl AsyncFn(HeaderMap) -> String) {
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for (name, fields) in advice() {
        let effect = effects(fields).await;
        match groups.iter_mut().find(|(other, _)| *other == effect) {
            Some((_, names)) => names.push(name),
            None => groups.push((effect, vec![name])),
        }
    }
    writeln!(out, "{title}").unwrap();
    for (effect, names) in groups {
        writeln!(out, "  {}: {effect}", names.join(", ")).unwrap();
    }
}

/// The effects of a response with a body that ends without trailers or is abandoned, and its
/// refusal.
async fn head_effects(status: StatusCode, fields: &HeaderMap, is_grpc: bool) -> String {
    let read = |mut attempt: Attempt| {
        read_head(&mut attempt, status, fields, is_grpc);
        attempt
    };
    let whole = effects(|attempt| complete(&mut read(attempt), is_grpc)).await;
    let left = effects(|attempt| drop(read(attempt))).await;
    let refused = Refusal::read(status, fields);
    let retry = refused.map(|refused| format!("{refused}: {:?} {:?}", refused.failure(), refused.end().row().batch));
    format!("{whole}; abandoned {left}; {}", retry.as_deref().unwrap_or("no refusal"))
}

async fn write_heads(out: &mut String) {
    writeln!(out, "# responses: balancer, throttle, metrics, credit; the same if abandoned; retry and batch").unwrap();
    for status in STATUSES {
        for is_grpc in [false, true] {
            let title = format!("{} {status}", if is_grpc { "grpc" } else { "http" });
            let status = StatusCode::from_u16(status).unwrap();
            write_grouped(out, &title, async |fields| head_effects(status, &fields, is_grpc).await).await;
        }
    }
    for code in CODES {
        let head = async |mut fields: HeaderMap| {
            fields.insert(GRPC_STATUS, code.parse().unwrap());
            head_effects(StatusCode::OK, &fields, true).await
        };
        write_grouped(out, &format!("grpc head, code {code}"), head).await;
        let trailers = async |mut fields: HeaderMap| {
            fields.insert(GRPC_STATUS, code.parse().unwrap());
            effects(|mut attempt| {
                read_head(&mut attempt, StatusCode::OK, &HeaderMap::new(), true);
                complete_with(&mut attempt, &fields);
            })
            .await
        };
        write_grouped(out, &format!("grpc trailers, code {code}"), trailers).await;
    }
}

/// An error that hyper makes of a server with this conduct.
async fn hyper_error(conduct: &str) -> hyper::Error {
    let (client, mut server) = tokio::io::duplex(1 << 16);
    let conduct = conduct.to_owned();
    tokio::spawn(async move {
        if conduct == "junk" {
            let _ = server.write_all(&[b'x'; 64]).await;
            let _ = tokio::io::copy(&mut server, &mut tokio::io::sink()).await;
            return;
        }
        let mut connection = h2::server::handshake(server).await.unwrap();
        let (_, mut respond) = connection.accept().await.unwrap().unwrap();
        match &*conduct {
            "refused-stream" => respond.send_reset(h2::Reason::REFUSED_STREAM),
            "internal-error" => respond.send_reset(h2::Reason::INTERNAL_ERROR),
            "cancel" => respond.send_reset(h2::Reason::CANCEL),
            "go-away" => connection.abrupt_shutdown(h2::Reason::ENHANCE_YOUR_CALM),
            _ => return,
        }
        let _ = std::future::poll_fn(|cx| connection.poll_closed(cx)).await;
    });
    let io = TokioIo::new(client);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get("http://test/").body(Empty::<Bytes>::new()).unwrap();
    sender.send_request(request).await.unwrap_err()
}

fn connect_errors() -> Vec<(&'static str, ConnectError)> {
    let io = |error: io::Error| ConnectError::Io(Arc::new(error));
    vec![
        ("nobody listens", io(io::ErrorKind::ConnectionRefused.into())),
        ("reset", io(io::ErrorKind::ConnectionReset.into())),
        ("no descriptor", io(Errno::MFILE.into())),
        ("no port", io(Errno::ADDRNOTAVAIL.into())),
        ("tls", ConnectError::Tls(Arc::new(io::Error::other("unknown issuer")))),
        ("timeout", ConnectError::Timeout(LIMIT)),
        ("closed at once", ConnectError::ClosedAtOnce),
        ("not http2", ConnectError::NotHttp2),
    ]
}

async fn errors() -> Vec<(String, Error)> {
    let address = AT.into();
    let (after, second) = (Some(Duration::from_secs(2)), Duration::from_secs(1));
    let mut all = vec![
        ("no backend".to_owned(), Error::NoBackend),
        ("saturated".to_owned(), Error::Saturated { waited: second }),
        (
            "throttled".to_owned(),
            Error::Throttled { criticality: Criticality::Critical, held: Ratio::from_percent(50) },
        ),
        ("no room".to_owned(), Error::NoRoom { criticality: Criticality::Critical }),
        ("timeout".to_owned(), Error::Timeout { after: second, address: Some(address), attempts: 1 }),
        ("body idle".to_owned(), Error::BodyIdle { after: second }),
        ("preempted".to_owned(), Error::Preempted),
        ("cut off".to_owned(), Error::CutOff { address }),
    ];
    for &reason in Rejection::SHED {
        let error = Error::TurnedAway { reason, waited: second, after: second, attempts: 1 };
        all.push((format!("batch {}", reason.name()), error));
    }
    for (name, cause) in connect_errors() {
        for was_seen in [false, true] {
            let error = Error::Connect { address, cause: cause.clone(), attempts: 1, was_seen };
            all.push((format!("connect, {name}, seen: {was_seen}"), error));
        }
    }
    let whys = Rejection::SHED.iter().copied().map(Some).chain([None]);
    for (why, caller_answer) in whys.flat_map(|why| [(why, CallerAnswer::Answer), (why, CallerAnswer::DoNotRetry)]) {
        use plimsoll_core::rejection::Retry;
        let (status, is_certain) = (StatusCode::SERVICE_UNAVAILABLE, why.is_some());
        let refused = Refusal { status, code: None, why, retry: Retry::After, after, is_certain };
        let name = why.map_or("unnamed", Rejection::name);
        all.push((
            format!("refused, {name}, {caller_answer:?}"),
            Error::Refused { address, refused, attempts: 1, caller_answer },
        ));
    }
    for (name, cause) in [
        ("body of the request", Cause::body("no more".into())),
        ("cut off", Fault::CutOff.into()),
        ("malformed", Fault::StartLine.into()),
        ("out of turn", Cause::out_of_turn("early")),
        ("broken", io::Error::from(io::ErrorKind::BrokenPipe).into()),
    ] {
        all.push((format!("http1 {name}"), Error::from_http1(address, cause)));
    }
    for conduct in ["refused-stream", "internal-error", "cancel", "go-away", "junk", "close"] {
        all.push((format!("http2 {conduct}"), Error::from_hyper(address, hyper_error(conduct).await)));
    }
    all
}

async fn write_errors(out: &mut String) {
    writeln!(
        out,
        "# errors: reason, answer, advice; retry, batch; effects: no head, after 200, after a shed, in a silence"
    )
    .unwrap();
    for (name, error) in errors().await {
        let response = error.to_response(false);
        let grpc = error.to_response(true);
        let (reason, answered) = (error.reason(), error.answered_reason());
        writeln!(out, "{name}: {error}; {reason} {answered} {:?}", error.shed_reason()).unwrap();
        writeln!(out, "  {} {:?} {:?}", response.status(), response.headers(), response.body()).unwrap();
        writeln!(out, "  {:?}", grpc.headers()).unwrap();
        writeln!(out, "  {:?}", error.to_trailers()).unwrap();
        let (caller_answer, nothing_sent) = (error.caller_answer(), error.nothing_sent());
        writeln!(out, "  {:?} {caller_answer:?} {nothing_sent} {}", error.retry_after(), error.attempts()).unwrap();
        // Of other errors nothing was sent, or a response is passed on.
        match &error {
            Error::Refused { refused, .. } => {
                writeln!(out, "  {:?} {:?}", refused.failure(), (error.end().row().batch, refused.after)).unwrap();
            }
            _ if name.starts_with("http") || name == "timeout" => {
                let (row, after) = (error.end().row(), None::<Duration>);
                writeln!(out, "  {:?} {:?}", row.retry, (row.batch, after)).unwrap();
            }
            _ => {}
        }
        if !name.starts_with("http") && name != "cut off" {
            continue;
        }
        let mut line = Vec::new();
        for head in [None, Some((200, &[][..])), Some((503, &[("x-plimsoll-shed", "reason=overloaded")]))] {
            let failed = effects(|mut attempt| {
                if let Some((status, fields)) = head {
                    read_head(&mut attempt, StatusCode::from_u16(status).unwrap(), &headers(fields), false);
                }
                fail(&mut attempt, &error);
            });
            line.push(failed.await);
        }
        line.push(effects_after(Duration::from_secs(1), |mut attempt| fail(&mut attempt, &error)).await);
        writeln!(out, "  {}", line.join("; ")).unwrap();
    }
}

/// Ends that are no error of the exchange.
async fn write_others(out: &mut String) {
    let home = recorder();
    let backend = home.cluster().backend(home.cluster().members()[0].0).unwrap();
    writeln!(out, "# other ends").unwrap();
    for (name, cause) in connect_errors() {
        for time in [Duration::ZERO, Duration::from_secs(1)] {
            let end = |mut attempt: Attempt| drop(connect_error(&mut attempt, &backend, cause.clone()));
            writeln!(out, "no connection after {time:?}, {name}: {}", effects_after(time, end).await).unwrap();
        }
    }
    for limit in [LIMIT, Duration::ZERO] {
        let effects = effects(|mut attempt| drop(connect_too_late(&mut attempt, &backend, LIMIT, limit))).await;
        writeln!(out, "no connection in time, limit {limit:?}: {effects}").unwrap();
    }
    writeln!(out, "removed: {}", effects(|mut attempt| drop(gone(&mut attempt))).await).unwrap();
    for (limit, awaits_caller) in [(LIMIT, false), (Duration::ZERO, false), (LIMIT, true), (Duration::ZERO, true)] {
        let effects = effects(|mut attempt| {
            attempt.set_awaits_caller(awaits_caller);
            time_out(&mut attempt, limit);
        });
        writeln!(out, "timeout, limit {limit:?}, caller owes: {awaits_caller}: {}", effects.await).unwrap();
    }
    for (is_over, is_on_stream) in [(false, false), (true, false), (false, true), (true, true)] {
        let effects = effects(|attempt| {
            let race = Race::default();
            let mut attempt = attempt.in_race(Some(race.clone()));
            if is_on_stream {
                let connection = ConnectionId { backend: attempt.id(), key: 0, serial: 0 };
                attempt.sent_on(StreamId { connection, heard: 0 });
            }
            if is_over {
                race.end();
            }
        });
        writeln!(out, "dropped, overtaken: {is_over}, on a stream: {is_on_stream}: {}", effects.await).unwrap();
    }
    let upgraded = effects(|mut attempt| {
        read_head(&mut attempt, StatusCode::SWITCHING_PROTOCOLS, &HeaderMap::new(), false);
        attempt.upgraded();
    });
    writeln!(out, "upgraded: {}", upgraded.await).unwrap();
    for (status, fields) in [(200, &[][..]), (429, &[]), (500, &[]), (503, &[("x-plimsoll-shed", "reason=throttled")])]
    {
        let head = |attempt: &mut Attempt| {
            read_head(attempt, StatusCode::from_u16(status).unwrap(), &headers(fields), false);
        };
        type End = fn(&mut Attempt);
        let ends: [(&str, End); 4] = [
            ("body idle, owed", idle_owed),
            ("body idle", idle),
            ("preempted", preempt),
            ("reported", Attempt::report_now),
        ];
        for (name, end) in ends {
            let effects = effects(|mut attempt| {
                head(&mut attempt);
                end(&mut attempt);
            });
            writeln!(out, "{status} {fields:?} {name}: {}", effects.await).unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn ends_have_the_effects_of_the_golden_table() {
    let mut out = String::new();
    write_heads(&mut out).await;
    write_errors(&mut out).await;
    write_others(&mut out).await;
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/client/send/golden.txt");
    if std::env::var_os("PLIMSOLL_BLESS").is_some() {
        std::fs::write(path, &out).unwrap();
    }
    let golden = std::fs::read_to_string(path).unwrap();
    let changed = golden.lines().zip(out.lines()).find(|(was, is)| was != is);
    assert_eq!(changed, None);
    assert_eq!(golden, out);
}

// How the code under test says each end.

fn complete(attempt: &mut Attempt, is_grpc: bool) {
    attempt.complete(classify::bare_end(is_grpc));
}

fn complete_with(attempt: &mut Attempt, trailers: &HeaderMap) {
    attempt.complete(classify::trailers(trailers));
}

fn fail(attempt: &mut Attempt, error: &Error) {
    attempt.fail(error.end());
}

fn time_out(attempt: &mut Attempt, limit: Duration) {
    attempt.time_out(AttemptEnd::Timeout, limit);
}

fn idle_owed(attempt: &mut Attempt) {
    attempt.fail(AttemptEnd::BodyOverdue);
}

fn idle(attempt: &mut Attempt) {
    attempt.fail(AttemptEnd::BodyIdle);
}

fn preempt(attempt: &mut Attempt) {
    attempt.fail(AttemptEnd::Preempted);
}
