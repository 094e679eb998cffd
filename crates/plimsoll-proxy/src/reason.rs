//! The proxy's refusals of requests, in HTTP and in gRPC.
//!
//! The core has the one table of rejections, and the codec has the faults of HTTP/1 messages. A
//! refusal is one or the other. The library has the failures at backends.

use http::StatusCode;
use plimsoll_core::Rejection;
use plimsoll_core::admit::Shed;
use plimsoll_http1::Fault;
use plimsoll_wire::grpc::Code;
use plimsoll_wire::shed;

use crate::counts::Label;

/// The reason for an answer of the proxy's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// A decision of the proxy, or of the gate before the process behind the cluster.
    Rejected(Shed),
    /// The message cannot be read, or not in one way only.
    Malformed(Fault),
}

impl Refusal {
    const COUNT: usize = Rejection::COUNT + Fault::ALL.len();

    /// Decisions of the proxy, those of a gate, faults of messages, and the other reasons of the
    /// table.
    const TABLE: [Self; Self::COUNT] = {
        let mut table = [Self::Malformed(Fault::ALL[0]); Self::COUNT];
        let (mut at, mut own, mut other) = (0, 0, Self::COUNT);
        while at < Rejection::COUNT {
            let reason = Rejection::ALL[at];
            if is_own(reason) {
                table[own] = Self::of(reason);
                own += 1;
            } else if reason.row().gate.is_none() {
                other -= 1;
                table[other] = Self::of(reason);
            }
            at += 1;
        }
        let mut gate = 0;
        while gate < Rejection::GATE.len() {
            table[own + gate] = Self::of(Rejection::GATE[gate]);
            gate += 1;
        }
        let mut fault = 0;
        while fault < Fault::ALL.len() {
            table[own + gate + fault] = Self::Malformed(Fault::ALL[fault]);
            fault += 1;
        }
        table
    };

    /// The refusal for this reason.
    pub(crate) const fn of(reason: Rejection) -> Self {
        Self::Rejected(Shed { reason, after: None })
    }

    /// The status in HTTP.
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::Rejected(Shed { reason, .. }) => shed::status(reason),
            Self::Malformed(fault) => fault.status(),
        }
    }

    /// The code in gRPC.
    pub(crate) const fn code(self) -> Code {
        match self {
            Self::Rejected(Shed { reason, .. }) => shed::code(reason),
            Self::Malformed(_) => Code::InvalidArgument,
        }
    }

    /// The text for the client, which begins with the name.
    pub(crate) fn text(self) -> String {
        match self {
            Self::Rejected(Shed { reason, .. }) => reason.row().text.to_owned(),
            Self::Malformed(fault) => format!("{}: {}", fault.name(), fault.message()),
        }
    }
}

/// Whether the reason is a decision of the proxy about the request itself.
const fn is_own(reason: Rejection) -> bool {
    reason.row().header.is_none()
}

impl Label for Refusal {
    type Name = &'static str;

    const ALL: &'static [Self] = &Self::TABLE;

    fn index(self) -> usize {
        match self {
            Self::Rejected(Shed { reason, .. }) => reason as usize,
            Self::Malformed(fault) => Rejection::COUNT + fault as usize,
        }
    }

    fn is_always_listed(self) -> bool {
        match self {
            Self::Rejected(Shed { reason, .. }) => is_own(reason) || reason.row().gate.is_some(),
            Self::Malformed(_) => true,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Rejected(Shed { reason, .. }) => reason.name(),
            Self::Malformed(fault) => fault.name(),
        }
    }
}

#[cfg(test)]
mod golden;
