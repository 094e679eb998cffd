//! Settings of a server that shares its services with others, and services that are in etcd.

use std::net::IpAddr;
use std::path::Path;

use http::uri::Authority;
use plimsoll_config::{Checker, ConfigError, Flaw, Format, Read, quoted, text};

use super::{MAX_NAME, OnSplit, Root, ServiceConfig, check_service};

/// The longest text of a service in etcd, which takes 1.5 MiB in a request.
const MAX_TEXT: usize = 1 << 20;

/// The address of this server, as tasks and other servers know it.
pub(super) const ADVERTISED: Format<String> = Format {
    read: |v| {
        let help =
            "write host and port as tasks reach this server, such as \"quota-1.internal:9800\" or \"10.0.0.1:9800\"";
        let text = text(v, "the address of this server", "host and port in quotes, such as \"10.0.0.1:9800\"")?;
        let flaw = |reason: &str| Flaw::new(format!("\"{text}\" {reason}"), help);
        let authority: Option<Authority> = text.parse().ok();
        let authority = authority
            .filter(|authority| authority.port_u16().is_some_and(|port| port > 0) && !text.contains(['@', '/']))
            .ok_or_else(|| flaw("is not the address of a server"))?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        if host.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified()) {
            return Err(flaw("is no address that tasks can connect to"));
        }
        Ok(text.to_owned())
    },
    print: |address| quoted(address),
};

/// Checks the settings of a fleet of servers.
pub(super) fn check(root: &Root, folder: &Path, checker: &mut Checker<'_>) {
    match (&root.etcd, &root.advertise) {
        (Some(etcd), advertise) => {
            etcd.check("etcd", folder, checker);
            if advertise.is_none() && checker.is_readable("advertise") {
                let help = "add advertise = \"...\", host and port as tasks reach this server";
                checker.report("etcd", "needs advertise", help);
            }
        }
        (None, advertise) => {
            let help = "add [etcd] with endpoints, or remove it";
            if advertise.is_some() {
                checker.report("advertise", "has no effect without [etcd]", help);
            }
            if root.on_split != OnSplit::Keep {
                checker.report("on_split", "has no effect without [etcd]", help);
            }
        }
    }
}

impl ServiceConfig {
    /// Reads and checks the table of a service that is a text of its own, such as a value in etcd. Messages call it
    /// `source`. `has_tls`: whether servers of the service speak TLS, so that it needs reporters; `None`: not known.
    ///
    /// # Errors
    /// All its problems.
    pub fn parse(source: &str, text: &str, has_tls: Option<bool>) -> Result<Self, ConfigError> {
        let Read { root, places, problems } = plimsoll_config::read::<Self>(text);
        let mut checker = Checker::new(&places, problems);
        check_service("", &root, has_tls.unwrap_or(!root.reporters.is_empty()), &mut checker);
        if text.len() > MAX_TEXT {
            let reason = format!("has {} bytes, and {MAX_TEXT} are the most", text.len());
            checker.report("", reason, "use other_customers for customers of one limit");
        }
        let problems = checker.into_problems();
        if problems.is_empty() { Ok(root) } else { Err(ConfigError::new(source, problems)) }
    }
}

/// Whether a name may be that of a service in etcd.
pub(crate) fn is_service_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && !name.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    #[test]
    fn service_of_its_own_has_the_checks_of_a_file() {
        let good = "[customers.acme]\nhard_limit = 2\n";
        let service = ServiceConfig::parse("shop", good, Some(false)).unwrap();
        let file = Config::parse("quota.toml", "[services.shop.customers.acme]\nhard_limit = 2\n").unwrap();
        assert_eq!(service, file.services()["shop"]);
        let bad = "lease = \"1s\"\n[customers.acme]\nhard_limit = -2\nhard_limt = 3\ngroup = \"x\"\n";
        let error = ServiceConfig::parse("shop", bad, Some(true)).unwrap_err().to_string();
        for line in [
            "shop:1:9: lease: is not from 5s to 1h",
            "shop:3:14: customers.acme.hard_limit: is not a number of CPUs",
            "hard_limt",
            "shop:5:9: customers.acme.group: there is no group \"x\" in this service",
            "add [groups.x] with hard_limit",
            "has no reporters: no task may join",
        ] {
            assert!(error.contains(line), "no {line:?} in\n{error}");
        }
        let error = ServiceConfig::parse("shop", &"#".repeat(MAX_TEXT + 1), None).unwrap_err().to_string();
        assert!(error.contains("1048577 bytes"), "{error}");
    }

    #[test]
    fn server_of_a_fleet_needs_an_address_that_others_can_use() {
        let good = "advertise = \"127.0.0.1:9800\"\n[etcd]\nendpoints = [\"127.0.0.1:2379\"]\n";
        let config = Config::parse("quota.toml", good).unwrap();
        assert!(config.services().is_empty() && config.advertise() == Some("127.0.0.1:9800"));
        assert_eq!(Config::parse("printed", &config.print()), Ok(config));
        for (text, line) in [
            ("[etcd]\nendpoints = [\"127.0.0.1:2379\"]\n", "quota.toml:1:1: etcd: needs advertise"),
            ("advertise = \"10.0.0.1:9800\"\n[services.shop]\n", "advertise: has no effect without [etcd]"),
            ("on_split = \"expire\"\n[services.shop]\n", "on_split: has no effect without [etcd]"),
            ("advertise = \"0.0.0.0:9800\"\n[services.shop]\n", "is no address that tasks can connect to"),
            ("advertise = \"quota-1.internal\"\n[services.shop]\n", "is not the address of a server"),
            ("on_split = \"stop\"\n[services.shop]\n", "on_split: \"stop\" is not a rule for a split"),
        ] {
            let error = Config::parse("quota.toml", text).unwrap_err().to_string();
            assert!(error.contains(line), "no {line:?} in\n{error}");
        }
    }
}
