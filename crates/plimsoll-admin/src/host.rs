//! Whether a request is meant for this API, by the host that it names.
//!
//! The API trusts who can reach it, and so can a browser on this machine. What keeps its pages from reading here is that another
//! site's answers are not shown to them; which is void once the name of their own site is made to lead here (DNS rebinding):
//! browsers send neither an `Origin` with what a page then reads nor, to names without TLS, `Sec-Fetch-Site`. But the request
//! names the site. So it has to name an address, which cannot be made to lead elsewhere, or a name that this process is known by.
//! Who names nothing is no browser. How the process is may be asked by any name: probes do, and there is nothing in it to read.

use std::net::IpAddr;

use axum::http::HeaderMap;
use axum::http::header::HOST;
use axum::http::uri::Authority;

/// The host that a request with these fields names, if that is neither an address nor, by `is_own`, this process.
pub(crate) fn foreign(fields: &HeaderMap, is_own: impl Fn(&str) -> bool) -> Option<String> {
    let named = fields.get_all(HOST).iter().map(|host| name(host.as_bytes()));
    named.into_iter().find(|name| !name.is_empty() && !is_address(name) && !is_own(name))
}

/// In lower case, without the port and without the dot of the root.
fn name(host: &[u8]) -> String {
    let name = Authority::try_from(host).map(|host| host.host().to_owned());
    let name = name.unwrap_or_else(|_| host.escape_ascii().to_string());
    name.strip_suffix('.').unwrap_or(&name).to_ascii_lowercase()
}

/// Whether browsers take this for an address without asking DNS.
fn is_address(name: &str) -> bool {
    let ip = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name == "localhost" || ip.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn addresses_and_own_names_are_meant_and_other_names_are_not() {
        let foreign = |host: &str| {
            let fields = HeaderMap::from_iter([(HOST, HeaderValue::from_str(host).unwrap())]);
            foreign(&fields, |name| name == "proxy.internal")
        };
        for own in ["127.0.0.1", "127.0.0.1:9900", "[::1]:9900", "LocalHost:9900", "localhost.", "Proxy.internal.:9900"]
        {
            assert_eq!(foreign(own), None, "{own}");
        }
        for (other, name) in [
            ("evil.example:9900", "evil.example"),
            ("127.0.0.1.evil.example", "127.0.0.1.evil.example"),
            ("localhost.evil.example:80", "localhost.evil.example"),
            ("a.proxy.internal", "a.proxy.internal"),
            ("not a host", "not a host"),
        ] {
            assert_eq!(foreign(other).as_deref(), Some(name));
        }
    }

    #[test]
    fn of_several_hosts_each_has_to_be_own_and_none_is_no_browser() {
        let both = [(HOST, HeaderValue::from_static("127.0.0.1")), (HOST, HeaderValue::from_static("evil.example"))];
        assert_eq!(foreign(&HeaderMap::from_iter(both), |_| false).as_deref(), Some("evil.example"));
        assert_eq!(foreign(&HeaderMap::new(), |_| false), None);
        assert_eq!(foreign(&HeaderMap::from_iter([(HOST, HeaderValue::from_static(""))]), |_| false), None);
    }
}
