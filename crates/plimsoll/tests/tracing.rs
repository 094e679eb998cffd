//! Traces: the spans of attempts, and the trace of a request that another is made for.
#![allow(clippy::unwrap_used, reason = "a test may fail by it")]

mod support;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, Full};
use plimsoll::client::{
    AttemptSpan, AttemptStart, AttemptSummary, Client, Cluster, ClusterConfig, Error, Protocol, RequestOptions, Tracer,
};
use plimsoll::server::{Lifecycle, ServerLayer};
use tower::{Layer as _, ServiceExt as _};
use tracing::field::{Field, Visit};
use tracing::{Instrument as _, Subscriber, span};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

use self::support::{Answer, Server, Speaks, get, now, plain_config, running, text, until};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

type Facts = BTreeMap<String, String>;

/// Spans and events with the target for traces, as a subscriber sees them.
#[derive(Clone, Debug, Default)]
struct Seen(Arc<Mutex<Vec<Facts>>>);

struct Reader<'f>(&'f mut Facts);

impl Visit for Reader<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}").trim_matches('"').to_owned());
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Seen {
    fn on_new_span(&self, attributes: &span::Attributes<'_>, id: &span::Id, context: Context<'_, S>) {
        let mut facts = Facts::new();
        attributes.record(&mut Reader(&mut facts));
        let span = context.span(id).unwrap();
        facts.insert("parent".to_owned(), span.parent().map_or(String::new(), |span| span.name().to_owned()));
        span.extensions_mut().insert(facts);
    }

    fn on_record(&self, id: &span::Id, values: &span::Record<'_>, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        values.record(&mut Reader(span.extensions_mut().get_mut::<Facts>().unwrap()));
    }

    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() == "plimsoll::trace" {
            let mut facts = Facts::new();
            event.record(&mut Reader(&mut facts));
            self.0.lock().unwrap().push(facts);
        }
    }

    fn on_close(&self, id: span::Id, context: Context<'_, S>) {
        let span = context.span(&id).unwrap();
        if span.metadata().target() == "plimsoll::trace" {
            self.0.lock().unwrap().push(span.extensions().get::<Facts>().unwrap().clone());
        }
    }
}

impl Seen {
    fn subscribed() -> (Self, tracing::subscriber::DefaultGuard) {
        let seen = Self::default();
        let subscriber = tracing_subscriber::registry().with(seen.clone());
        (seen, tracing::subscriber::set_default(subscriber))
    }

    /// Those with this value, in the order of their ends.
    fn of(&self, key: &str, value: &str) -> Vec<Facts> {
        let all = self.0.lock().unwrap();
        all.iter().filter(|facts| facts.get(key).is_some_and(|found| found == value)).cloned().collect()
    }
}

fn facts<const N: usize>(facts: [(&str, &str); N]) -> Facts {
    facts.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

fn shed() -> Answer {
    let response = Response::builder().status(503).header("x-plimsoll-shed", "reason=overloaded, retry=elsewhere");
    now(response.body(Empty::new().boxed()).unwrap())
}

#[tokio::test]
async fn attempts_are_spans_within_that_of_their_caller() {
    let (full, well) = (Server::start(Speaks::Http1, |_| shed()).await, Server::plain().await);
    let cluster = running(plain_config(), &[&full, &well]).await;
    let client = Client::new(&cluster);
    let (seen, _guard) = Seen::subscribed();
    for _ in 0..2 {
        let sent = client.send(get("/")).instrument(tracing::info_span!("handler"));
        sent.await.unwrap().into_body().collect().await.unwrap();
    }
    let port = |server: &Server| server.address.port().to_string();
    let common = |server: &Server| {
        let mut common = facts([
            ("http.request.method", "GET"),
            ("otel.kind", "client"),
            ("otel.name", "GET"),
            ("parent", "handler"),
            ("plimsoll.cluster", "test"),
            ("server.address", "127.0.0.1"),
        ]);
        common.insert("server.port".to_owned(), port(server));
        common
    };
    let mut shed = common(&full);
    shed.extend(facts([
        ("error.type", "overloaded"),
        ("http.response.status_code", "503"),
        ("otel.status_code", "ERROR"),
        ("plimsoll.reason", "overloaded"),
    ]));
    // Round robin: one request or both come to the full one first.
    let at_full = seen.of("server.port", &port(&full));
    assert!(!at_full.is_empty() && at_full.iter().all(|span| *span == shed), "{at_full:?}");
    let mut served = common(&well);
    served.extend(facts([("http.response.status_code", "200")]));
    let mut again = served.clone();
    again.extend(facts([("http.request.resend_count", "1")]));
    let at_well = seen.of("server.port", &port(&well));
    let retries = at_well.iter().filter(|span| **span == again).count();
    assert_eq!((retries, at_well.iter().filter(|span| **span == served).count()), (at_full.len(), 2 - retries));
}

#[tokio::test]
async fn request_that_is_not_sent_is_an_event_with_the_reason() {
    let cluster = Cluster::new("empty", ClusterConfig::default(), [] as [std::net::SocketAddr; 0]);
    let (seen, _guard) = Seen::subscribed();
    let error = Client::new(&cluster).send(get("/")).await.unwrap_err();
    assert!(matches!(error, Error::NoBackend));
    let event = facts([("cluster", "empty"), ("message", "request not sent"), ("reason", "no-backend")]);
    assert_eq!(seen.of("message", "request not sent"), [event]);
}

#[tokio::test]
async fn shed_request_is_an_event_with_the_reason() {
    let lifecycle = Lifecycle::new();
    lifecycle.ready();
    let service = tower::service_fn(|_| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())) });
    let (seen, _guard) = Seen::subscribed();
    let mut request = get("/");
    request.headers_mut().insert("grpc-timeout", HeaderValue::from_static("0S"));
    let response = ServerLayer::new(lifecycle).layer(service).oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(seen.of("reason", "deadline"), [facts([("message", "request shed"), ("reason", "deadline")])]);
}

/// Each attempt's number of resends, and its end.
type Ends = Vec<(u32, Option<AttemptSummary>)>;

/// A tracer that numbers attempts, in the headers too.
#[derive(Clone, Debug, Default)]
struct Numbers(Arc<Mutex<Ends>>);

struct Number(Numbers, usize);

impl Tracer for Numbers {
    fn begin(&self, attempt: &AttemptStart<'_>, headers: &mut HeaderMap) -> Box<dyn AttemptSpan> {
        let mut all = self.0.lock().unwrap();
        all.push((attempt.resends, None));
        headers.insert("x-span", HeaderValue::from(all.len()));
        Box::new(Number(self.clone(), all.len() - 1))
    }
}

impl AttemptSpan for Number {
    fn end(self: Box<Self>, end: &AttemptSummary) {
        let Self(Numbers(all), at) = *self;
        assert_eq!(all.lock().unwrap()[at].1.replace(*end), None, "it ends once");
    }
}

#[tokio::test]
async fn each_backend_gets_the_span_of_its_own_attempt() {
    for (speaks, protocol) in [(Speaks::Http1, Protocol::Http1), (Speaks::Http2(100), Protocol::Http2)] {
        let heads = [(); 2].map(|()| Arc::<Mutex<Vec<String>>>::default());
        let server = |answer: fn() -> Answer, head: &Arc<Mutex<Vec<String>>>| {
            let head = head.clone();
            Server::start(speaks, move |request| {
                head.lock().unwrap().push(request.headers()["x-span"].to_str().unwrap().to_owned());
                answer()
            })
        };
        let (full, well) = (server(shed, &heads[0]).await, server(|| text("ok"), &heads[1]).await);
        let mut config = plain_config();
        config.requests.protocol = protocol;
        let cluster = running(config, &[&full, &well]).await;
        let client = Client::new(&cluster);
        // Round robin: one of them or both come to the full one first.
        let mut first = 0;
        for _ in 0..2 {
            let tracer = Numbers::default();
            heads.iter().for_each(|head| head.lock().unwrap().clear());
            let request = Request::builder().method(Method::GET).uri("/").body(Full::<Bytes>::default()).unwrap();
            let options = RequestOptions::default().with_tracer(Arc::new(tracer.clone()));
            client.send_with(request, options).await.unwrap().into_body().collect().await.unwrap();
            let count = tracer.0.lock().unwrap().len();
            until(|| tracer.0.lock().unwrap().iter().all(|(_, end)| end.is_some())).await;
            let ends: Vec<_> = tracer.0.lock().unwrap().iter().map(|(n, end)| (*n, end.unwrap().end)).collect();
            let [at_full, at_well] = heads.each_ref().map(|head| head.lock().unwrap().clone());
            if count == 2 {
                first += 1;
                assert_eq!(ends, [(0, "overloaded"), (1, "served")]);
                assert_eq!((at_full, at_well), (vec!["1".to_owned()], vec!["2".to_owned()]));
            } else {
                assert_eq!((ends, at_well), (vec![(0, "served")], vec!["1".to_owned()]));
            }
        }
        assert!(first > 0);
    }
}

/// A client of tower or tonic cannot name a tracer for each request.
#[tokio::test]
async fn tracer_of_the_cluster_gets_requests_without_their_own() {
    let server = Server::plain().await;
    let (of_cluster, of_request) = (Numbers::default(), Numbers::default());
    let cluster = Cluster::builder("test").endpoints([server.address]).tracer(Arc::new(of_cluster.clone()));
    let cluster = cluster.spawn().unwrap();
    assert!(!cluster.trace_with(Arc::new(of_request.clone())), "there is one already");
    let client = Client::new(&cluster);
    let counts = || [&of_cluster, &of_request].map(|tracer| tracer.0.lock().unwrap().len());
    client.clone().oneshot(get("/")).await.unwrap();
    assert_eq!(counts(), [1, 0]);
    let options = RequestOptions::default().with_tracer(Arc::new(of_request.clone()));
    client.send_with(get("/"), options).await.unwrap();
    assert_eq!(counts(), [1, 1]);
}

#[tokio::test]
async fn caller_that_leaves_ends_the_span_of_its_attempt() {
    let server = Server::start(Speaks::Http1, |_| Box::pin(std::future::pending())).await;
    let client = Client::new(&running(plain_config(), &[&server]).await);
    let tracer = Numbers::default();
    let options = RequestOptions::default().with_tracer(Arc::new(tracer.clone()));
    let sent = tokio::spawn(async move { client.send_with(get("/"), options).await.map(drop) });
    until(|| server.requests() == 1).await;
    sent.abort();
    until(|| tracer.0.lock().unwrap().iter().all(|(_, end)| end.is_some())).await;
    let (_, end) = tracer.0.lock().unwrap()[0];
    assert_eq!((end.unwrap().end, end.unwrap().status, end.unwrap().error_type()), ("left", None, Some("left")));
}

/// The fields of a trace in a request that a service makes for one with `fields`.
async fn onward(fields: &[(&'static str, &'static str)]) -> (Option<String>, Option<String>) {
    let heads = Arc::<Mutex<Vec<HeaderMap>>>::default();
    let notes = heads.clone();
    let server = Server::start(Speaks::Http1, move |request| {
        notes.lock().unwrap().push(request.headers().clone());
        text("ok")
    });
    let server = server.await;
    let client = Client::new(&running(plain_config(), &[&server]).await);
    let service = tower::service_fn(move |request: Request<Empty<Bytes>>| {
        let client = client.clone();
        async move {
            let mut onward = get("/");
            if let Some(own) = request.headers().get("own") {
                onward.headers_mut().insert("traceparent", own.clone());
            }
            client.send(onward).await.unwrap();
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
        }
    });
    let lifecycle = Lifecycle::new();
    lifecycle.ready();
    let mut request = get("/");
    for (name, value) in fields {
        request.headers_mut().append(*name, HeaderValue::from_static(value));
    }
    ServerLayer::new(lifecycle).layer(service).oneshot(request).await.unwrap();
    let head = heads.lock().unwrap().remove(0);
    let field = |name| head.get(name).map(|value| value.to_str().unwrap().to_owned());
    (field("traceparent"), field("tracestate"))
}

#[tokio::test]
async fn trace_goes_on_to_requests_made_for_it() {
    let text = |text: &str| Some(text.to_owned());
    let state = [("tracestate", "a=1"), ("tracestate", "b=2")];
    let with = |parent: &[(&'static str, &'static str)]| [parent, &state].concat();
    assert_eq!(onward(&with(&[("traceparent", PARENT)])).await, (text(PARENT), text("a=1,b=2")));
    assert_eq!(onward(&[("traceparent", PARENT)]).await, (text(PARENT), None));
    for unreadable in [&[("traceparent", "junk")][..], &[("traceparent", PARENT), ("traceparent", PARENT)], &[]] {
        assert_eq!(onward(&with(unreadable)).await, (None, None));
    }
    // The service continues the trace with a span of its own.
    let own = "00-4bf92f3577b34da6a3ce929d0e0e4736-00000000000000aa-01";
    assert_eq!(onward(&with(&[("traceparent", PARENT), ("own", own)])).await, (text(own), None));
}
