//! The answers to probes by UDP at a listener: whether there are any, and their keys.
//!
//! Off without the table: a proxy opens no port that its file does not name. Beyond loopback keys are
//! required, because anybody on the way could forge what clients believe.

use std::path::Path;

use plimsoll::address::Address;
use plimsoll::probe::{Keyring, read_keys};
use plimsoll_config::{Checker, Effect, table};
use plimsoll_tls_config::FilePath;

const LEASES_STAY: Effect = Effect::Applied("for the next datagram; clients keep their leases");

table! {
    /// Answers to probes by UDP, at the port number of a listener.
    #[derive(Clone, Debug, PartialEq)]
    #[non_exhaustive]
    pub struct ListenerProbes {
        /// The file of keys. `None`: without keys, at loopback alone.
        pub keys: Option<FilePath> = None, optional, LEASES_STAY;
    }
    NEEDS = "keys = \"/etc/plimsoll/probe-keys\"";
}

impl ListenerProbes {
    /// Reports answers that anybody could forge, or that several processes would give.
    pub(super) fn check(&self, path: &str, address: Address, share_port: bool, checker: &mut Checker<'_>) {
        let Some(address) = address.inet() else {
            let help = "remove this table, or give the service a listener at a port";
            return checker.report(path, "probes come by UDP, and the listener is at a Unix socket", help);
        };
        if self.keys.is_none() && !address.ip().is_loopback() && checker.is_readable(path) {
            let reason = format!("probes beyond loopback need keys, and the listener is at {}", address.ip());
            let help = "add keys = \"/etc/plimsoll/probe-keys\", and make that file: \
                        echo \"1 $(openssl rand -hex 32)\" > /etc/plimsoll/probe-keys";
            checker.report(path, reason, help);
        }
        if share_port {
            let reason = "one process alone can answer probes at an address, and share_port is for several";
            checker.report(
                path,
                reason,
                "remove share_port and replace the process by plimsoll upgrade, or remove this table",
            );
        }
    }

    /// The keys; `None` after a problem. `path` is that of the table.
    pub(super) fn keyring(&self, path: &str, folder: &Path, checker: &mut Checker<'_>) -> Option<Keyring> {
        let Some(keys) = &self.keys else { return Some(Keyring::keyless()) };
        super::probe_keys::read(format!("{path}.keys"), keys, folder, checker, |text| Ok(read_keys(text)?.0))
    }
}
