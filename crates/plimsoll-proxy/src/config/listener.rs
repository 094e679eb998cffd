//! Where requests come in, and how much of a connection a client may take.
//!
//! Every limit is on by default: a client that sends its head one byte a minute, or a gigabyte of
//! it, is no reason for a file to say anything.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use http::HeaderName;
use plimsoll::address::Address;
use plimsoll_config::{ByteSize, Codec, DeValue, Effect, List, Own, Reading, Spanned, quoted, table};
use plimsoll_core::Criticality;
use plimsoll_core::batch::BatchConfig;
use plimsoll_core::classify::{Classifier, Trust};
use plimsoll_tls_config::ListenerTls;

use super::criticality::{self, CRITICALITY, FIELD_NAME, TRUST};
use super::customer_source::{CustomerSource, CustomerSources};
use super::forwarded::{
    DEFAULT_VIA, FORWARDED, Forwarded, PROXY_PROTOCOL, PSEUDONYM, ProxyProtocol, TRUSTED_PROXY, TrustedProxy,
};
use super::http2::Http2;
use super::listener_probes::ListenerProbes;
use super::priority::Priority;
use super::unix_socket::{MODE, SocketMode};
use super::value::LISTENER_ADDRESS;

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

const NEW_CONNECTIONS: Effect = Effect::Applied("for new connections; open ones stay as they are");
const OPEN_CONNECTIONS_STAY: Effect = Effect::Applied("open connections stay");
const NEXT_REQUEST: Effect = Effect::Applied("from the next request on");

table! {
    /// One address that requests come in at. HTTP/1.1 and HTTP/2 (prior knowledge) are told apart by
    /// the first bytes of a connection.
    #[derive(Clone, Debug, PartialEq)]
    #[non_exhaustive]
    pub struct Listener {
        /// Where it listens; port 0 takes a free one.
        pub address: Address = UNSPECIFIED, required_as(LISTENER_ADDRESS), Effect::Another;
        /// Its name in routes and metrics; its address unless the file names it.
        pub name: String = String::new(), value_as(Name), Effect::Applied("routes and metrics use the new name");
        /// The mode of the file of its Unix socket; `None`: the default.
        pub mode: Option<SocketMode> = None, optional_as(MODE), Effect::Applied("at once; open connections stay");
        /// Other processes may listen at the address, and share its connections.
        pub share_port: bool = false, value, Effect::Applied("from the next start on");
        /// Time for the whole head of a request.
        pub header_read_timeout: Duration = DEFAULT_HEADER_READ_TIMEOUT, value, NEW_CONNECTIONS;
        /// Time after which a connection without requests is closed.
        pub idle_timeout: Duration = DEFAULT_IDLE_TIMEOUT, value, NEW_CONNECTIONS;
        /// Header fields in the head of a request.
        pub max_headers: NonZeroU32 = DEFAULT_MAX_HEADERS, value, NEW_CONNECTIONS;
        /// Size of the head of a request.
        pub max_header_size: ByteSize = DEFAULT_MAX_HEADER_SIZE, value, NEW_CONNECTIONS;
        /// Size of the target in it.
        pub max_uri: ByteSize = DEFAULT_MAX_URI, value, NEW_CONNECTIONS;
        /// Bytes a second that a body, and an answer, move at least while the client is waited for;
        /// `None` for any but none.
        pub min_body_rate: Option<ByteSize> = Some(DEFAULT_MIN_BODY_RATE), switch, NEW_CONNECTIONS;
        /// Time after which a WebSocket, or another upgraded connection, without any byte is closed.
        pub upgrade_idle_timeout: Duration = DEFAULT_UPGRADE_IDLE_TIMEOUT, value, NEW_CONNECTIONS;
        /// Connections at once, all threads together; further ones wait in the kernel's queue.
        pub max_connections: NonZeroUsize = DEFAULT_MAX_CONNECTIONS, value, OPEN_CONNECTIONS_STAY;
        /// Connections at once from one client, by its address; `None` for any number.
        pub max_connections_per_client: Option<NonZeroUsize> = Some(DEFAULT_MAX_CONNECTIONS_PER_CLIENT), switch,
            OPEN_CONNECTIONS_STAY;
        /// Size of the body of a request; `None` for any.
        pub max_body: Option<ByteSize> = None, switch, NEW_CONNECTIONS;
        /// The proxies that may name the client.
        pub trusted_proxies: Vec<TrustedProxy> = Vec::new(), value_as(List(TRUSTED_PROXY)), NEW_CONNECTIONS;
        /// Which header of the PROXY protocol connections begin with; `None` for none.
        pub proxy_protocol: Option<ProxyProtocol> = None, switch_as(PROXY_PROTOCOL), NEW_CONNECTIONS;
        /// The fields that tell backends of the client.
        pub forwarded: Forwarded = Forwarded::XForwarded, value_as(FORWARDED), NEW_CONNECTIONS;
        /// The proxy's name in `Via`; `None` for no such field.
        pub via: Option<String> = Some(DEFAULT_VIA.to_owned()), switch_as(PSEUDONYM), NEW_CONNECTIONS;
        /// The criticality of requests without a believed claim.
        pub criticality: Option<Criticality> = None, optional_as(CRITICALITY), NEXT_REQUEST;
        /// How far claims of criticality are believed.
        pub trust_criticality: Option<Trust> = None, optional_as(TRUST), NEXT_REQUEST;
        /// The facts that name the customer: the first that a request has.
        pub customer: Vec<CustomerSource> = Vec::new(), value_as(CustomerSources), NEXT_REQUEST;
        /// The field that names the customer, in place of `customer`.
        pub customer_header: Option<HeaderName> = None, optional_as(FIELD_NAME), NEXT_REQUEST;
        /// The field that names the cohort: requests that are admitted or shed together.
        pub cohort_header: Option<HeaderName> = None, optional_as(FIELD_NAME), NEXT_REQUEST;
        /// An integer priority as a claim of criticality; `None` for none.
        pub priority: Option<Priority> = None, optional_table, NEXT_REQUEST;
        /// Its requests are batch work, and wait for credit; `None` if not.
        pub batch: Option<BatchConfig> = None, optional_table,
            Effect::Applied("from the next request on; queued requests stay queued");
        /// Answers to probes by UDP at its port number; `None` for none.
        pub probes: Option<ListenerProbes> = None, optional_table,
            Effect::Applied("at once; connections stay, and clients of former answers go back to checks");
        /// TLS; `None` for plain connections.
        pub tls: Option<ListenerTls> = None, optional_table,
            Effect::Applied("for new handshakes; open connections stay");
        /// The limits of a client on one HTTP/2 connection.
        pub http2: Http2 = Http2::default(), table, NEW_CONNECTIONS;
    }
}

/// The place of a listener's address, which is required in the file.
const UNSPECIFIED: Address = Address::Inet(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0));

/// The name of a listener. An empty one is replaced by its address in `check`.
struct Name;

impl Codec<String> for Name {
    fn read(&self, value: &Spanned<DeValue<'_>>, reading: &mut Reading<'_>) -> Option<String> {
        Own.read(value, reading)
    }

    fn print(&self, name: &String) -> Option<String> {
        (!name.is_empty()).then(|| quoted(name))
    }
}

impl Listener {
    pub(super) fn new(address: Address) -> Self {
        Self { address, ..Self::default() }
    }

    /// The mode of the file of its Unix socket.
    pub(crate) fn mode(&self) -> SocketMode {
        self.mode.unwrap_or(SocketMode::DEFAULT)
    }

    /// Whether clients at a Unix socket are proxies that may name the client.
    pub(crate) fn trusts_unix(&self) -> bool {
        self.trusted_proxies.contains(&TrustedProxy::Unix)
    }

    /// The facts that name the customer; none where customers are not known.
    pub(crate) fn customer_sources(&self) -> Vec<CustomerSource> {
        match &self.customer_header {
            Some(name) => vec![CustomerSource::Header(name.clone())],
            None => self.customer.clone(),
        }
    }

    /// Whether customers are known.
    pub(super) fn knows_customers(&self) -> bool {
        self.customer_header.is_some() || !self.customer.is_empty()
    }

    /// The fields that name the customer, at the word of a trusted sender.
    pub(crate) fn customer_headers(&self) -> impl Iterator<Item = &HeaderName> {
        self.customer_header.iter().chain(self.customer.iter().filter_map(CustomerSource::header))
    }

    /// The fields that decide on a request at the word of a trusted sender: they name its customer,
    /// its cohort and its priority.
    pub(crate) fn believed_fields(&self) -> impl Iterator<Item = &HeaderName> {
        let priority = self.priority.as_ref().map(|priority| &priority.header);
        self.customer_headers().chain(&self.cohort_header).chain(priority)
    }

    /// The criticality of its requests, by their claims.
    pub(crate) fn classifier(&self) -> Classifier {
        // SRE ch. 21: batch work is sheddable-plus unless something else is known of it.
        let of_batch = self.batch.map(|_| Criticality::SheddablePlus);
        criticality::classifier(self.criticality.or(of_batch), self.trust_criticality)
    }
}
