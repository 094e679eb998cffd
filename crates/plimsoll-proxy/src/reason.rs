//! Why a request was not served, in the words of HTTP and of gRPC.
//!
//! The wire crate has the one table of overload protection. The codec has the faults of HTTP/1
//! messages, the library the failures at backends. Those here are the rest: the proxy's own
//! refusals.

use http::StatusCode;
use plimsoll_core::admit::Shed;
use plimsoll_http1::Fault;
use plimsoll_wire::grpc::Code;
use plimsoll_wire::shed;

use crate::counts::Label;
use crate::inbound;

/// Why the proxy answers itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No route matches.
    NoRoute,
    /// `CONNECT`: this is no forward proxy.
    Connect,
    /// `TRACE`: its response shows a client the fields that proxies add, credentials included.
    Trace,
    /// The body is longer than the listener allows.
    BodyTooLarge,
    /// The head took too long.
    SlowHead,
    /// The body came too slowly.
    SlowBody,
    /// Memory is nearly used up.
    Memory,
    /// The route has an answer for all its requests.
    RouteAnswer,
    /// The route drops its requests; nothing is said.
    BlackHole,
    /// An extended CONNECT, and the cluster speaks HTTP/2 only.
    NoUpgrade,
    /// Servers read the path in different ways, and routes depend on it.
    AmbiguousPath,
    /// The customer is named more than once.
    Customers,
    /// It has passed this proxy before, again and again.
    Loop,
    /// The gate before the process behind the cluster turned it away.
    Shed(Shed),
    /// The message is none that could be read in one way.
    Malformed(Fault),
}

/// How a reason is said in metrics, in HTTP, in gRPC, and to a person.
type Row = (&'static str, StatusCode, Code, &'static str);

impl Refusal {
    /// Those of the proxy itself, in the order of their declaration, which is the order of the
    /// metric.
    const OWN: [Self; 13] = [
        Self::NoRoute,
        Self::Connect,
        Self::Trace,
        Self::BodyTooLarge,
        Self::SlowHead,
        Self::SlowBody,
        Self::Memory,
        Self::RouteAnswer,
        Self::BlackHole,
        Self::NoUpgrade,
        Self::AmbiguousPath,
        Self::Customers,
        Self::Loop,
    ];

    /// All that can be counted.
    const COUNT: usize = Self::OWN.len() + inbound::REASONS.len() + Fault::ALL.len();

    /// Those of the proxy itself, those of a gate, and those of messages.
    const TABLE: [Self; Self::COUNT] = {
        let mut table = [Self::NoRoute; Self::COUNT];
        let (mut own, mut shed, mut fault) = (0, 0, 0);
        while own < Self::OWN.len() {
            table[own] = Self::OWN[own];
            own += 1;
        }
        while shed < inbound::REASONS.len() {
            table[own + shed] = Self::Shed(Shed { reason: inbound::REASONS[shed], after: None });
            shed += 1;
        }
        while fault < Fault::ALL.len() {
            table[own + shed + fault] = Self::Malformed(Fault::ALL[fault]);
            fault += 1;
        }
        table
    };

    /// Its name in metrics, and how it is said in HTTP, in gRPC, and to a person.
    pub(crate) fn row(self) -> Row {
        match self {
            Self::NoRoute => ("no-route", StatusCode::NOT_FOUND, Code::Unimplemented, "no route matches this request"),
            Self::Connect => {
                ("connect", StatusCode::METHOD_NOT_ALLOWED, Code::Unimplemented, "a reverse proxy opens no tunnels")
            }
            Self::Trace => ("trace", StatusCode::METHOD_NOT_ALLOWED, Code::Unimplemented, "TRACE is not allowed"),
            Self::BodyTooLarge => (
                "body-too-large",
                StatusCode::PAYLOAD_TOO_LARGE,
                Code::ResourceExhausted,
                "the body is longer than this listener allows",
            ),
            Self::SlowHead => {
                ("slow-head", StatusCode::REQUEST_TIMEOUT, Code::DeadlineExceeded, "the request head took too long")
            }
            Self::SlowBody => (
                "slow-body",
                StatusCode::REQUEST_TIMEOUT,
                Code::DeadlineExceeded,
                "the request body arrived too slowly",
            ),
            Self::Memory => {
                ("memory", StatusCode::SERVICE_UNAVAILABLE, Code::Unavailable, "the proxy is almost out of memory")
            }
            Self::RouteAnswer => {
                ("route-answer", StatusCode::FORBIDDEN, Code::PermissionDenied, "the route has a fixed answer")
            }
            Self::BlackHole => {
                ("black-hole", StatusCode::FORBIDDEN, Code::PermissionDenied, "the route drops its requests")
            }
            Self::NoUpgrade => (
                "no-upgrade",
                StatusCode::NOT_IMPLEMENTED,
                Code::Unimplemented,
                "backends of this route speak HTTP/2 only and cannot switch protocols",
            ),
            Self::AmbiguousPath => (
                "ambiguous-path",
                StatusCode::BAD_REQUEST,
                Code::InvalidArgument,
                "servers may read this path in different ways, with different routes",
            ),
            Self::Customers => {
                ("customers", StatusCode::BAD_REQUEST, Code::InvalidArgument, "the customer is named more than once")
            }
            Self::Loop => (
                "loop",
                StatusCode::LOOP_DETECTED,
                Code::Internal,
                "the request passed this proxy too often: a backend leads back to it",
            ),
            Self::Shed(Shed { reason, .. }) => {
                (reason.name(), shed::status(reason), shed::code(reason), reason.row().text)
            }
            Self::Malformed(fault) => (fault.name(), fault.status(), Code::InvalidArgument, fault.message()),
        }
    }

    /// The text for the client.
    pub(crate) fn text(self) -> String {
        let (name, _, _, message) = self.row();
        match self {
            // Those of that table begin with the word.
            Self::Shed(_) => message.to_owned(),
            _ => format!("{name}: {message}"),
        }
    }
}

impl Label for Refusal {
    type Name = &'static str;

    const ALL: &'static [Self] = &Self::TABLE;

    fn index(self) -> usize {
        match self {
            Self::NoRoute => 0,
            Self::Connect => 1,
            Self::Trace => 2,
            Self::BodyTooLarge => 3,
            Self::SlowHead => 4,
            Self::SlowBody => 5,
            Self::Memory => 6,
            Self::RouteAnswer => 7,
            Self::BlackHole => 8,
            Self::NoUpgrade => 9,
            Self::AmbiguousPath => 10,
            Self::Customers => 11,
            Self::Loop => 12,
            Self::Shed(Shed { reason, .. }) => {
                let place = inbound::REASONS.iter().position(|listed| *listed == reason);
                Self::OWN.len() + place.expect("a gate has no other reasons")
            }
            Self::Malformed(fault) => Self::OWN.len() + inbound::REASONS.len() + fault as usize,
        }
    }

    fn name(self) -> &'static str {
        self.row().0
    }
}

#[cfg(test)]
mod golden;
