//! Clients by the names in their certificates.

use std::fmt;

use plimsoll_config::{Flaw, quoted, text, values};

use crate::host_name::is_host_name;

/// Names in clients' certificates.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ClientName {
    /// This host, in lower case.
    Host(String),
    /// Any host below this domain (`*.example.com`, held without `*.`), at any depth, not the
    /// domain itself.
    HostBelow(String),
    /// This URI, as it is written.
    Uri(String),
    /// Any URI that begins so (`spiffe://example.com/web/*`, held without `*`).
    UriBelow(String),
}

impl ClientName {
    /// A name, as it is written in a file.
    ///
    /// # Errors
    /// It is neither a host nor a URI.
    pub fn parse(name: &str) -> Result<Self, Flaw> {
        let help = "write a name of a certificate, such as \"spiffe://example.com/web\", \"spiffe://example.com/web/*\", \
                    \"web.example.com\" or \"*.example.com\"";
        let flaw = || Flaw::new(format!("\"{name}\" is not the name of a client"), help);
        if let Some((scheme, rest)) = name.split_once("://") {
            let good = !scheme.is_empty() && !rest.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic());
            return match name.strip_suffix("/*") {
                _ if !good => Err(flaw()),
                Some(above) if !above.contains('*') && !above.ends_with('/') => Ok(Self::UriBelow(format!("{above}/"))),
                None if !name.contains('*') => Ok(Self::Uri(name.to_owned())),
                _ => Err(flaw()),
            };
        }
        let lower = name.to_ascii_lowercase();
        match lower.strip_prefix("*.") {
            Some(domain) if is_host_name(domain) => Ok(Self::HostBelow(domain.to_owned())),
            None if is_host_name(&lower) => Ok(Self::Host(lower)),
            _ => Err(flaw()),
        }
    }

    /// Whether it stands for `name`, one of a certificate.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        match self {
            Self::Host(host) => name == host,
            Self::HostBelow(domain) => {
                !name.contains("://") && name.strip_suffix(domain.as_str()).is_some_and(|front| front.ends_with('.'))
            }
            Self::Uri(uri) => name == uri,
            Self::UriBelow(above) => name.len() > above.len() && name.starts_with(above.as_str()),
        }
    }
}

/// As it is written in the file.
impl fmt::Display for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(name) | Self::Uri(name) => f.write_str(name),
            Self::HostBelow(domain) => write!(f, "*.{domain}"),
            Self::UriBelow(above) => write!(f, "{above}*"),
        }
    }
}

values! {
    ClientName: |v| ClientName::parse(text(v, "a name of a client", "a name in quotes, such as \"spiffe://example.com/web\"")?), |name| quoted(name);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_hosts_and_uris_and_patterns_of_both() {
        for (pattern, good, bad) in [
            ("spiffe://td/Web", &["spiffe://td/Web"][..], &["spiffe://td/web", "spiffe://td/Web/x", "td"][..]),
            (
                "spiffe://td/web/*",
                &["spiffe://td/web/a", "spiffe://td/web/a/b"],
                &["spiffe://td/web/", "spiffe://td/webs"],
            ),
            ("Web.example.com", &["web.example.com"], &["a.web.example.com", "*.example.com"]),
            (
                "*.example.com",
                &["a.example.com", "b.a.example.com"],
                &["example.com", "aexample.com", "spiffe://a.example.com"],
            ),
        ] {
            let pattern = ClientName::parse(pattern).unwrap();
            assert_eq!(ClientName::parse(&pattern.to_string()).unwrap(), pattern);
            for name in good {
                assert!(pattern.matches(name), "{pattern} {name}");
            }
            for name in bad {
                assert!(!pattern.matches(name), "{pattern} {name}");
            }
        }
        for junk in
            ["", "*", "*.", "a.*.b", "spiffe://", "://a", "spiffe://a/*/b", "spiffe://a b", "spiffe://a/b*", "a/b"]
        {
            assert!(ClientName::parse(junk).is_err(), "{junk}");
        }
    }
}
