//! Traces: the collector that spans are sent to, and which requests are recorded.

use std::fmt;
use std::num::NonZeroU32;

use http::Uri;
use http::uri::{Authority, PathAndQuery};
use plimsoll_config::{Checker, Effect, Flaw, Format, quoted, table, text, values};
use plimsoll_core::Ratio;
use plimsoll_tls_config::ClusterTls;
use plimsoll_wire::otlp;

/// One in a hundred shows what is usual, and costs the others nothing.
const DEFAULT_SAMPLE: Ratio = Ratio::from_percent(1);
const DEFAULT_SERVICE: &str = "plimsoll";
/// At some 10 µs and three spans a request, 0.1% of a core and 150 kB a second to the collector.
const DEFAULT_MAX_PER_SECOND: NonZeroU32 = NonZeroU32::new(100).expect("not zero");
/// Ten clients that have all their requests sampled are needed to use up the total.
const DEFAULT_MAX_PER_CLIENT: NonZeroU32 = NonZeroU32::new(10).expect("not zero");
/// The longest name of a service.
const MAX_NAME: usize = 256;

const NEXT_REQUEST: Effect = Effect::Applied("from the next request on");
const NEXT_BATCH: Effect = Effect::Applied("with the next spans that are sent");

/// The name of a service.
const SERVICE: Format<String> = Format {
    read: |v| {
        let name = text(v, "the name of a service", "a name in quotes, such as \"edge\"")?;
        let is_name = !name.is_empty() && name.len() <= MAX_NAME;
        let flaw = || Flaw::new(format!("\"{name}\" is not the name of a service"), "use 1 to 256 bytes");
        is_name.then(|| name.to_owned()).ok_or_else(flaw)
    },
    print: |name| quoted(name),
};

table! {
    /// Traces.
    #[derive(Clone, Debug, PartialEq)]
    #[non_exhaustive]
    pub struct Tracing {
        /// The collector, by OTLP over HTTP.
        pub endpoint: CollectorUrl = CollectorUrl::default(), required, NEXT_BATCH;
        /// The share of the requests without a decision of a trusted sender that is recorded.
        pub sample: Ratio = DEFAULT_SAMPLE, value, NEXT_REQUEST;
        /// The name of this proxy in traces.
        pub service_name: String = DEFAULT_SERVICE.to_owned(), value_as(SERVICE), NEXT_BATCH;
        /// Recorded requests a second at most.
        pub max_per_second: NonZeroU32 = DEFAULT_MAX_PER_SECOND, value, NEXT_REQUEST;
        /// The same of one client.
        pub max_per_client: NonZeroU32 = DEFAULT_MAX_PER_CLIENT, value, NEXT_REQUEST;
        /// TLS with a collector at https; `None`: the authorities of the system are trusted.
        pub tls: Option<ClusterTls> = None, optional_table, NEXT_BATCH;
    }
}

/// The address of a collector: `http://HOST:PORT`, with the path `/v1/traces` unless it has another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorUrl {
    /// By https.
    pub(crate) is_tls: bool,
    /// Host and port.
    pub(crate) authority: Authority,
    /// The path.
    pub(crate) path: PathAndQuery,
}

impl CollectorUrl {
    fn parse(url: &str) -> Result<Self, Flaw> {
        let help = "write http://HOST:4318 or https://HOST:4318; the path is /v1/traces unless you write another";
        let flaw = || Flaw::new(format!("\"{url}\" is not the address of a collector"), help);
        let parts = url.parse::<Uri>().map_err(|_| flaw())?.into_parts();
        let is_tls = match parts.scheme.as_ref().map(|scheme| scheme.as_str()) {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(flaw()),
        };
        let authority = parts.authority.filter(|authority| !authority.as_str().contains('@')).ok_or_else(flaw)?;
        if authority.port_u16().is_none() {
            return Err(Flaw::new(format!("\"{url}\" has no port"), help));
        }
        let path = parts.path_and_query.filter(|path| path.as_str() != "/");
        Ok(Self { is_tls, authority, path: path.unwrap_or(PathAndQuery::from_static(otlp::PATH)) })
    }
}

/// The usual one on this machine; the file names its own.
impl Default for CollectorUrl {
    fn default() -> Self {
        let (authority, path) = (Authority::from_static("127.0.0.1:4318"), PathAndQuery::from_static(otlp::PATH));
        Self { is_tls: false, authority, path }
    }
}

impl fmt::Display for CollectorUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority)?;
        if self.path == otlp::PATH { Ok(()) } else { write!(f, "{}", self.path) }
    }
}

impl Tracing {
    /// Reports TLS settings that are never used.
    pub(super) fn check(&self, checker: &mut Checker<'_>) {
        if self.tls.is_some() && !self.endpoint.is_tls && checker.is_readable("tracing.endpoint") {
            let help = "write https:// in tracing.endpoint, or remove this table";
            checker.report("tracing.tls", "has no effect: the collector is at http://", help);
        }
        if self.max_per_client > self.max_per_second && checker.is_readable("tracing.max_per_client") {
            let help = "lower it, or raise max_per_second";
            checker.report("tracing.max_per_client", "is above tracing.max_per_second", help);
        }
    }
}

values! {
    CollectorUrl: |v| CollectorUrl::parse(text(v, "an address", "an address in quotes, such as \"http://127.0.0.1:4318\"")?), |url| quoted(url);
}
