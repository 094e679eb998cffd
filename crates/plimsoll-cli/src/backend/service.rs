//! Decides how the synthetic backend answers each request.
//!
//! | request | answer |
//! |---|---|
//! | `/control` | the settings, shown or changed; without work |
//! | gRPC `/plimsoll.backend.v1.Backend/Work` | the message of the request, after the work |
//! | any other gRPC method | UNIMPLEMENTED |
//! | POST `/echo` | the body of the request, after the work |
//! | anything else | 200 and a small body, after the work |
//!
//! Work is the cost divided by the speed, on one of the cores, and then the wait. Every answer names
//! its backend in `x-backend`.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use parking_lot::Mutex;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::body::AnswerBody;
use super::machine::Machine;
use super::settings::{Report, Settings};
use super::{control, settings};

const X_BACKEND: HeaderName = HeaderName::from_static("x-backend");
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
/// The one gRPC method there is.
const WORK: &str = "/plimsoll.backend.v1.Backend/Work";
/// Where HTTP requests get their own body back.
const ECHO: &str = "/echo";

/// Statuses of gRPC, as they are sent.
mod grpc {
    use http::HeaderValue;

    pub(super) const OK: HeaderValue = HeaderValue::from_static("0");
    pub(super) const UNIMPLEMENTED: HeaderValue = HeaderValue::from_static("12");
    pub(super) const INTERNAL: HeaderValue = HeaderValue::from_static("13");
}

/// A synthetic backend.
pub(crate) struct Backend {
    listen: SocketAddr,
    name: HeaderValue,
    machine: Machine,
    settings: Mutex<Settings>,
    rng: Mutex<Pcg64Mcg>,
}

/// What one request is to meet.
struct Lot {
    cost: Duration,
    wait: Duration,
    fails: bool,
    body_size: u32,
}

impl Backend {
    /// `listen` is where it can be reached, and its name in `x-backend`.
    pub(crate) fn new(listen: SocketAddr, machine: Machine, settings: Settings, seed: u64) -> Self {
        Self {
            listen,
            name: HeaderValue::from_str(&listen.to_string()).expect("addresses are printable"),
            machine,
            settings: Mutex::new(settings),
            rng: Mutex::new(Pcg64Mcg::seed_from_u64(seed)),
        }
    }

    /// Whether this machine alone can reach it.
    pub(crate) fn is_local(&self) -> bool {
        self.listen.ip().is_loopback()
    }

    /// What the load reports are to say.
    pub(crate) fn report(&self) -> Report {
        self.settings.lock().report
    }

    /// The settings, as they are now.
    pub(crate) fn settings(&self) -> Settings {
        self.settings.lock().clone()
    }

    /// Changes the settings.
    pub(crate) fn change(&self, change: settings::Change) -> Result<(), String> {
        self.settings.lock().apply(change)
    }

    /// Answers one request.
    pub(crate) async fn answer(&self, request: Request<Incoming>) -> Response<AnswerBody> {
        let mut response = if control::is_meant(request.uri().path()) {
            control::answer(self, request).await
        } else if is_grpc(request.headers()) {
            self.answer_grpc(request).await
        } else {
            self.answer_http(request).await
        };
        response.headers_mut().insert(X_BACKEND, self.name.clone());
        response
    }

    async fn answer_http(&self, request: Request<Incoming>) -> Response<AnswerBody> {
        let lot = self.draw();
        let echo = request.method() == Method::POST && request.uri().path() == ECHO;
        let body = request.into_body();
        let body = if echo {
            self.work(&lot).await;
            AnswerBody::echo(body)
        } else {
            discard(body).await;
            self.work(&lot).await;
            AnswerBody::bytes(vec![b'x'; lot.body_size as usize])
        };
        if lot.fails {
            let mut response = Response::new(AnswerBody::bytes("failed, as it was set to\n"));
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            return response;
        }
        Response::new(body)
    }

    async fn answer_grpc(&self, request: Request<Incoming>) -> Response<AnswerBody> {
        if request.uri().path() != WORK {
            return trailers_only(grpc::UNIMPLEMENTED);
        }
        let lot = self.draw();
        self.work(&lot).await;
        if lot.fails {
            return trailers_only(grpc::INTERNAL);
        }
        let (head, body) = request.into_parts();
        let trailers = HeaderMap::from_iter([(GRPC_STATUS, grpc::OK)]);
        let mut response = Response::new(AnswerBody::echo(body).with_trailers(trailers));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        // The message goes back as it came, so if it is compressed the client has to be told how.
        if let Some(encoding) = head.headers.get(GRPC_ENCODING) {
            response.headers_mut().insert(GRPC_ENCODING, encoding.clone());
        }
        response
    }

    /// All that is random about a request is drawn when it comes, so that the same seed gives the same
    /// sequence however long each takes.
    fn draw(&self) -> Lot {
        let settings = self.settings.lock();
        let mut rng = self.rng.lock();
        let fails = settings.fail_fast || uniform(&mut *rng) < settings.error_rate;
        let cost = settings.cost.sample(&mut *rng).div_f64(settings.speed);
        let wait = settings.wait.sample(&mut *rng);
        let (cost, wait) = if settings.fail_fast { (Duration::ZERO, Duration::ZERO) } else { (cost, wait) };
        Lot { cost, wait, fails, body_size: settings.body_size }
    }

    async fn work(&self, lot: &Lot) {
        self.machine.spend(lot.cost).await;
        if !lot.wait.is_zero() {
            tokio::time::sleep(lot.wait).await;
        }
    }
}

/// In [0, 1), from the 53 bits that an `f64` holds.
fn uniform(rng: &mut impl Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// A gRPC answer without a message: its status stands in the head.
fn trailers_only(status: HeaderValue) -> Response<AnswerBody> {
    let mut response = Response::new(AnswerBody::empty());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response.headers_mut().insert(GRPC_STATUS, status);
    response
}

/// Reads the body to its end, so that the connection can carry the next request.
async fn discard(mut body: Incoming) {
    if body.is_end_stream() {
        return;
    }
    while let Some(Ok(_)) = body.frame().await {}
}

/// An answer in JSON.
pub(crate) fn json(status: StatusCode, text: String) -> Response<AnswerBody> {
    let mut response = Response::new(AnswerBody::bytes(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
