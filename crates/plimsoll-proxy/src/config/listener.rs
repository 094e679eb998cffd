//! Where requests come in, and how much of a connection a client may take.
//!
//! Every limit is on by default: a client that sends its head one byte a minute, or a gigabyte of
//! it, is no reason for a file to say anything.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use plimsoll_config::{ByteSize, Table, Visitor};

use super::value::ListenAddress;

/// The whole head of a request. Long enough for a bad mobile link, short enough that slow clients cannot
/// pile up connections (slowloris); nginx allows 60 s, hyper 30 s.
const DEFAULT_HEADER_READ_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection with no request on it. nginx's `keepalive_timeout`; longer than the 60 s for which usual
/// clients and balancers before us keep connections, so that the client closes first and no request is lost.
const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(75);
/// What hyper takes by default; browsers send about 20.
const DEFAULT_MAX_HEADERS: NonZeroU32 = NonZeroU32::new(100).expect("not zero");
/// Room for large cookies and tokens; Envoy allows 60 KiB, nginx 32 KiB.
const DEFAULT_MAX_HEADER_SIZE: ByteSize = ByteSize::kib(64);
/// What the HTTP/1 parser needs to start with.
pub(super) const LEAST_MAX_HEADER_SIZE: ByteSize = ByteSize::kib(8);
/// At some 20 KiB each 200 MiB, and below the 20,000 descriptors that a service is commonly allowed once
/// each has its counterpart at a backend.
const DEFAULT_MAX_CONNECTIONS: NonZeroUsize = NonZeroUsize::new(10_000).expect("not zero");

/// One address that requests come in at. HTTP/1.1 and HTTP/2 (prior knowledge) are told apart by
/// the first bytes of a connection.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Listener {
    /// What routes and metrics call it; its address unless the file names it.
    pub name: String,
    /// Where it listens; port 0 takes a free one.
    pub address: SocketAddr,
    /// Time for the whole head of a request.
    pub header_read_timeout: Duration,
    /// Time after which a connection without requests is closed.
    pub idle_timeout: Duration,
    /// Header fields in the head of a request.
    pub max_headers: NonZeroU32,
    /// Size of the head of a request.
    pub max_header_size: ByteSize,
    /// Connections at once, all threads together; further ones wait in the kernel's queue.
    pub max_connections: NonZeroUsize,
    /// Size of the body of a request; `None` for any.
    pub max_body: Option<ByteSize>,
}

impl Listener {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self {
            name: String::new(),
            address,
            header_read_timeout: DEFAULT_HEADER_READ_TIMEOUT,
            idle_timeout: DEFAULT_IDLE_TIMEOUT,
            max_headers: DEFAULT_MAX_HEADERS,
            max_header_size: DEFAULT_MAX_HEADER_SIZE,
            max_connections: DEFAULT_MAX_CONNECTIONS,
            max_body: None,
        }
    }
}

impl Default for Listener {
    /// A place to read into; the address is required in the file.
    fn default() -> Self {
        Self::new(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))
    }
}

impl Table for Listener {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        let mut address = ListenAddress(self.address);
        visitor.required("address", &mut address);
        self.address = address.0;
        let mut name = (!self.name.is_empty()).then(|| self.name.clone());
        visitor.optional("name", &mut name);
        self.name = name.unwrap_or_else(|| self.address.to_string());
        visitor.value("header_read_timeout", &mut self.header_read_timeout);
        visitor.value("idle_timeout", &mut self.idle_timeout);
        visitor.value("max_headers", &mut self.max_headers);
        visitor.value("max_header_size", &mut self.max_header_size);
        visitor.value("max_connections", &mut self.max_connections);
        visitor.switch("max_body", &mut self.max_body);
    }
}
