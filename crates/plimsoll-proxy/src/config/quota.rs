//! The quota server: limits of customers over a fleet.

use plimsoll_config::{Checker, Effect, Flaw, Format, List, quoted, table, text};
use plimsoll_tls_config::ClusterTls;

use super::address::BackendAddress;

/// The longest name of a service.
const MAX_NAME: usize = 256;
const JOINED: Effect =
    Effect::Applied("gates leave their server and join the other one, with the rates that they hold");

/// The name of a service.
const SERVICE: Format<String> = Format {
    read: |v| {
        let name = text(v, "the name of a service", "a name in quotes, such as \"shop\"")?;
        let is_name = !name.is_empty() && name.len() <= MAX_NAME;
        let flaw = || Flaw::new(format!("\"{name}\" is not the name of a service"), "use the name at the quota server");
        is_name.then(|| name.to_owned()).ok_or_else(flaw)
    },
    print: |name| quoted(name),
};

/// The address of a quota server.
const SERVER: Format<BackendAddress> = Format {
    read: |v| BackendAddress::parse_inet(text(v, "an address", "host and port in quotes, such as \"127.0.0.1:9800\"")?),
    print: |address| quoted(address),
};

table! {
    /// The quota server.
    #[derive(Clone, Debug, PartialEq)]
    #[non_exhaustive]
    pub struct Quota {
        /// The servers, the first that answers.
        pub servers: Vec<BackendAddress> = Vec::new(), required_as(List(SERVER)), JOINED;
        /// The service whose limits the gates share.
        pub service: String = String::new(), required_as(SERVICE), JOINED;
        /// TLS with the servers; `None`: in plain text.
        pub tls: Option<ClusterTls> = None, optional_table, JOINED;
    }
}

impl Quota {
    /// Reports an empty list, unless it was reported already.
    pub(super) fn check(&self, checker: &mut Checker<'_>) {
        if self.servers.is_empty() && checker.is_readable("quota.servers") {
            checker.report("quota.servers", "names no server", "write its address, such as [\"127.0.0.1:9800\"]");
        }
    }
}
