//! The names under which the admin API may be asked for.

use std::fmt;

use plimsoll_config::{Flaw, quoted, text, values};

use super::route::HostPattern;

/// A name, or all names below a domain, under which the admin API may be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AdminHost(HostPattern);

impl AdminHost {
    /// Whether this is one of them; in lower case and without a port.
    pub(super) fn includes(&self, name: &str) -> bool {
        match &self.0 {
            HostPattern::Exact(own) => name == own,
            HostPattern::Below(domain) => name.strip_suffix(domain).is_some_and(|labels| labels.ends_with('.')),
        }
    }

    fn parse(host: &str) -> Result<Self, Flaw> {
        let help = "write a name without a port, such as \"proxy.internal\" or \"*.proxy.internal\"";
        HostPattern::parse(host).map(Self).map_err(|flaw| Flaw::new(flaw.reason, help))
    }
}

/// As it is written in the file.
impl fmt::Display for AdminHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

values! {
    AdminHost: |v| AdminHost::parse(text(v, "a host", "a name in quotes, such as \"proxy.internal\"")?), |host| quoted(host);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_whole_or_below_a_domain() {
        let exact = AdminHost::parse("Proxy.internal").unwrap();
        assert!(exact.includes("proxy.internal") && !exact.includes("a.proxy.internal"));
        let below = AdminHost::parse("*.proxy.internal").unwrap();
        assert!(below.includes("a.proxy.internal") && below.includes("a.b.proxy.internal"));
        assert!(!below.includes("proxy.internal") && !below.includes("evilproxy.internal"));
    }
}
