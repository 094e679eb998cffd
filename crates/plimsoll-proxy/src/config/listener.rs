//! Where requests come in, and how much of a connection a client may take.
//!
//! Every limit is on by default: a client that sends its head one byte a minute, or a gigabyte of
//! it, is no reason for a file to say anything.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use plimsoll_config::{ByteSize, Table, Visitor};
use plimsoll_core::Criticality;
use plimsoll_core::classify::Classifier;

use super::batch::Batch;
use super::criticality::{self, Believed, FieldName, Level};
use super::forwarded::{Forwarded, Network, ProxyProtocol, Pseudonym};
use super::http2::Http2;
use super::tls::ListenerTls;
use super::value::ListenAddress;
use plimsoll_http2::Allowance;

/// The whole head of a request. Long enough for a bad mobile link, short enough that slow clients
/// cannot pile up connections (slowloris); nginx allows 60 s, hyper 30 s.
const DEFAULT_HEADER_READ_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection with no request on it. nginx's `keepalive_timeout`; longer than the 60 s for which
/// usual clients and balancers before us keep connections, so that the client closes first and no
/// request is lost.
const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(75);
/// hyper's default; browsers send about 20.
const DEFAULT_MAX_HEADERS: NonZeroU32 = NonZeroU32::new(100).expect("not zero");
/// Room for large cookies and tokens; Envoy allows 60 KiB, nginx 32 KiB.
const DEFAULT_MAX_HEADER_SIZE: ByteSize = ByteSize::kib(64);
/// The minimum of the HTTP/1 parser.
pub(super) const LEAST_MAX_HEADER_SIZE: ByteSize = ByteSize::kib(8);
/// Twice the limit of nginx and most servers, and four times that of old browsers.
const DEFAULT_MAX_URI: ByteSize = ByteSize::kib(16);
/// A second's worth of the slowest modem ever in use, as in Kestrel. A client that is slower for
/// the whole of `idle_timeout` while the proxy waits for it is not slow but hostile.
const DEFAULT_MIN_BODY_RATE: ByteSize = ByteSize::from_bytes(NonZeroUsize::new(240).expect("not zero"));
/// WebSocket clients and servers say at least a ping each minute or so; an hour of silence is a
/// peer that is gone.
const DEFAULT_UPGRADE_IDLE_TIMEOUT: Duration = Duration::from_secs(3600);
/// At some 20 KiB each 200 MiB, and below the 20,000 descriptors that a service is commonly allowed
/// once each has its counterpart at a backend.
const DEFAULT_MAX_CONNECTIONS: NonZeroUsize = NonZeroUsize::new(10_000).expect("not zero");
/// Half of that: a balancer in front of the proxy, or an office behind one address, has headroom,
/// and no single client can keep out all others.
const DEFAULT_MAX_CONNECTIONS_PER_CLIENT: NonZeroUsize = NonZeroUsize::new(5_000).expect("not zero");

/// One address that requests come in at. HTTP/1.1 and HTTP/2 (prior knowledge) are told apart by
/// the first bytes of a connection.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Listener {
    /// Its name in routes and metrics; its address unless the file names it.
    pub name: String,
    /// Where it listens; port 0 takes a free one.
    pub address: SocketAddr,
    /// Other processes may listen at the address, and share its connections.
    pub share_port: bool,
    /// Time for the whole head of a request.
    pub header_read_timeout: Duration,
    /// Time after which a connection without requests is closed.
    pub idle_timeout: Duration,
    /// Header fields in the head of a request.
    pub max_headers: NonZeroU32,
    /// Size of the head of a request.
    pub max_header_size: ByteSize,
    /// Size of the target in it.
    pub max_uri: ByteSize,
    /// Bytes a second that a body, and an answer, move at least while the client is waited for;
    /// `None` for any but none.
    pub min_body_rate: Option<ByteSize>,
    /// Time after which a WebSocket, or another upgraded connection, without any byte is closed.
    pub upgrade_idle_timeout: Duration,
    /// Connections at once, all threads together; further ones wait in the kernel's queue.
    pub max_connections: NonZeroUsize,
    /// Connections at once from one client, by its address; `None` for any number.
    pub max_connections_per_client: Option<NonZeroUsize>,
    /// Size of the body of a request; `None` for any.
    pub max_body: Option<ByteSize>,
    /// The proxies that may name the client.
    pub trusted_proxies: Vec<Network>,
    /// Which header of the PROXY protocol connections begin with; `None` for none.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// The fields that tell backends of the client.
    pub forwarded: Forwarded,
    /// The proxy's name in `Via`; `None` for no such field.
    pub via: Option<Pseudonym>,
    /// The criticality of requests without a believed claim.
    pub criticality: Option<Level>,
    /// How far claims of criticality are believed.
    pub trust_criticality: Option<Believed>,
    /// The field that names the customer.
    pub customer_header: Option<FieldName>,
    /// The field that names the cohort: requests that are admitted or shed together.
    pub cohort_header: Option<FieldName>,
    /// Its requests are batch work, and wait for credit; `None` if not.
    pub batch: Option<Batch>,
    /// TLS; `None` for plain connections.
    pub tls: Option<ListenerTls>,
    /// The limits of a client on one HTTP/2 connection.
    pub http2: Allowance,
}

impl Listener {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self {
            name: String::new(),
            address,
            share_port: false,
            header_read_timeout: DEFAULT_HEADER_READ_TIMEOUT,
            idle_timeout: DEFAULT_IDLE_TIMEOUT,
            max_headers: DEFAULT_MAX_HEADERS,
            max_header_size: DEFAULT_MAX_HEADER_SIZE,
            max_uri: DEFAULT_MAX_URI,
            min_body_rate: Some(DEFAULT_MIN_BODY_RATE),
            upgrade_idle_timeout: DEFAULT_UPGRADE_IDLE_TIMEOUT,
            max_connections: DEFAULT_MAX_CONNECTIONS,
            max_connections_per_client: Some(DEFAULT_MAX_CONNECTIONS_PER_CLIENT),
            max_body: None,
            trusted_proxies: Vec::new(),
            proxy_protocol: None,
            forwarded: Forwarded::default(),
            via: Some(Pseudonym::of_product()),
            criticality: None,
            trust_criticality: None,
            customer_header: None,
            cohort_header: None,
            batch: None,
            tls: None,
            http2: Http2::default().0,
        }
    }

    /// The criticality of its requests, by their claims.
    pub(crate) fn classifier(&self) -> Classifier {
        // SRE ch. 21: batch work is sheddable-plus unless something else is known of it.
        let of_batch = self.batch.map(|_| Level(Criticality::SheddablePlus));
        criticality::classifier(self.criticality.or(of_batch), self.trust_criticality)
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
        visitor.value("share_port", &mut self.share_port);
        visitor.value("header_read_timeout", &mut self.header_read_timeout);
        visitor.value("idle_timeout", &mut self.idle_timeout);
        visitor.value("max_headers", &mut self.max_headers);
        visitor.value("max_header_size", &mut self.max_header_size);
        visitor.value("max_uri", &mut self.max_uri);
        visitor.switch("min_body_rate", &mut self.min_body_rate);
        visitor.value("upgrade_idle_timeout", &mut self.upgrade_idle_timeout);
        visitor.value("max_connections", &mut self.max_connections);
        visitor.switch("max_connections_per_client", &mut self.max_connections_per_client);
        visitor.switch("max_body", &mut self.max_body);
        visitor.value("trusted_proxies", &mut self.trusted_proxies);
        visitor.switch("proxy_protocol", &mut self.proxy_protocol);
        visitor.value("forwarded", &mut self.forwarded);
        visitor.switch("via", &mut self.via);
        visitor.optional("criticality", &mut self.criticality);
        visitor.optional("trust_criticality", &mut self.trust_criticality);
        visitor.optional("customer_header", &mut self.customer_header);
        visitor.optional("cohort_header", &mut self.cohort_header);
        visitor.optional_table("batch", &mut self.batch);
        visitor.optional_table("tls", &mut self.tls);
        let mut http2 = Http2(self.http2);
        visitor.table("http2", &mut http2);
        self.http2 = http2.0;
    }
}
