//! HTTP/1.1 messages as bytes: parsing, framing and writing (RFC 9110, RFC 9112), without I/O.
//!
//! ```text
//! bytes ──▶ Scan ──▶ RequestHead / ResponseHead (with its Framing) ──▶ Decoder ──▶ data, trailers
//! bytes ◀── write ◀─ method, status, fields, Framing, data, trailers
//! ```
//!
//! Two programs that disagree on where a request ends let a client hide one inside another (request smuggling). Whoever
//! stands between clients and backends is the one who must not guess: what a client sends is taken only if it can be
//! read in one way, and is refused with the status that the RFC asks for otherwise ([`Fault::status`]). What backends
//! send may be a little sloppier ([`Origin::Backend`]), where that cannot change a message's length.
//!
//! Not hyper's codec, because that is made to be forgiving (it takes bare line feeds, and a length beside a chunked
//! body), hides the bytes, and hands every message from one task to another. Splitting lines into names and values
//! is left to `httparse`, which does it with vector instructions.
//!
//! Nothing here keeps time or decides for how long to wait; sizes are bounded by [`Limits`].

mod body;
mod fault;
mod fields;
mod framing;
mod method;
mod names;
mod request;
mod response;
mod scan;
mod target;
pub mod write;

pub use body::{Decoder, Piece};
pub use fault::Fault;
pub use fields::{are_valid, strip_forbidden_trailers};
pub use framing::{Framing, has_valid_length};
pub use method::{MAX_METHOD, is_miscased};
pub use request::RequestHead;
pub use response::ResponseHead;
pub use scan::{Limits, Scan};
pub use target::is_host;

/// Who sent a message, and so how much is forgiven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Anybody: nothing that could be read in two ways is taken.
    Client,
    /// A server that was chosen to be asked: lines of heads and trailers may end without a carriage return, equal lengths may
    /// be said twice, and the size of a chunk may be filled up with blanks.
    Backend,
}

/// Runs the example of the README as a test of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
