//! The limits of a listener: the most that one client may use of it.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_http2::Allowance;

use crate::config;
use crate::forwarded;

/// The most that a client may use of a listener.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Limits {
    /// The listener's name.
    pub(crate) name: Arc<str>,
    pub(crate) header_read_timeout: Duration,
    pub(crate) idle_timeout: Duration,
    pub(crate) max_headers: usize,
    pub(crate) max_header_size: usize,
    pub(crate) max_connections: usize,
    pub(crate) max_connections_per_client: Option<NonZeroUsize>,
    pub(crate) max_body: Option<u64>,
    pub(crate) max_uri: usize,
    /// Bytes a second; zero when off.
    pub(crate) min_body_rate: u64,
    pub(crate) upgrade_idle_timeout: Duration,
    pub(crate) http2: Allowance,
    /// Silence of an HTTP/2 client before a PING.
    pub(crate) ping_interval: Duration,
    pub(crate) ping_timeout: Duration,
    /// Which header of the PROXY protocol connections begin with.
    pub(crate) proxy_protocol: Option<config::ProxyProtocol>,
    pub(crate) forwarding: forwarded::Rules,
}

impl From<&config::Listener> for Limits {
    fn from(listener: &config::Listener) -> Self {
        Self {
            name: listener.name.as_str().into(),
            header_read_timeout: listener.header_read_timeout,
            idle_timeout: listener.idle_timeout,
            max_headers: listener.max_headers.get() as usize,
            max_header_size: listener.max_header_size.bytes(),
            max_connections: listener.max_connections.get(),
            max_connections_per_client: listener.max_connections_per_client,
            max_body: listener.max_body.map(|size| size.bytes() as u64),
            max_uri: listener.max_uri.bytes(),
            min_body_rate: listener.min_body_rate.map_or(0, |size| size.bytes() as u64),
            upgrade_idle_timeout: listener.upgrade_idle_timeout,
            http2: listener.http2.allowance(),
            ping_interval: listener.http2.ping_interval.unwrap_or(listener.idle_timeout),
            ping_timeout: listener.http2.ping_timeout,
            proxy_protocol: listener.proxy_protocol,
            forwarding: forwarded::Rules::from(listener),
        }
    }
}
