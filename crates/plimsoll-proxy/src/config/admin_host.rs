//! The names under which the admin API may be asked for.

use plimsoll_config::{Flaw, Format, quoted, text};

use super::route::HostPattern;

/// A name without a port, or all names below a domain.
pub(super) const ADMIN_HOST: Format<HostPattern> = Format {
    read: |v| {
        let help = "write a name without a port, such as \"proxy.internal\" or \"*.proxy.internal\"";
        let host = text(v, "a host", "a name in quotes, such as \"proxy.internal\"")?;
        HostPattern::parse(host).map_err(|flaw| Flaw::new(flaw.reason, help))
    },
    print: |host| quoted(host),
};

impl HostPattern {
    /// Whether the host `name`, in lower case and without a port, is one of them.
    pub(super) fn includes(&self, name: &str) -> bool {
        match self {
            Self::Exact(own) => name == own,
            Self::Below(domain) => name.strip_suffix(domain).is_some_and(|labels| labels.ends_with('.')),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_whole_or_below_a_domain() {
        let exact = HostPattern::parse("Proxy.internal").unwrap();
        assert!(exact.includes("proxy.internal") && !exact.includes("a.proxy.internal"));
        let below = HostPattern::parse("*.proxy.internal").unwrap();
        assert!(below.includes("a.proxy.internal") && below.includes("a.b.proxy.internal"));
        assert!(!below.includes("proxy.internal") && !below.includes("evilproxy.internal"));
    }
}
