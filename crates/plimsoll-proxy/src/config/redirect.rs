//! An answer that sends the client to another URL; `crate::route` gives it.

use http::StatusCode;
use http::uri::Scheme;
use plimsoll_config::{
    Checker, Choice, DeValue, Flaw, Format, Reading, Spanned, Value, inline, quoted, table, text, whole,
};
use plimsoll_tls_config::is_host_name;

use super::exact_path::ExactPath;
use super::route::PathPrefix;

/// It lets clients keep the method and the body. After 301 and 302 many change POST to GET, so that
/// a redirect to `https` would lose requests of APIs. Caddy and ingress-nginx choose 308, too.
const DEFAULT_STATUS: StatusCode = StatusCode::PERMANENT_REDIRECT;

/// The statuses that clients follow.
const STATUSES: [StatusCode; 5] = [
    StatusCode::MOVED_PERMANENTLY,
    StatusCode::FOUND,
    StatusCode::SEE_OTHER,
    StatusCode::TEMPORARY_REDIRECT,
    StatusCode::PERMANENT_REDIRECT,
];

/// The scheme of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlScheme {
    /// `http`.
    Http,
    /// `https`.
    Https,
}

impl UrlScheme {
    /// The scheme of a connection with TLS, or without.
    pub(crate) fn of(is_tls: bool) -> Self {
        if is_tls { Self::Https } else { Self::Http }
    }

    /// The name in a URL.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    /// The port of a URL that names none.
    #[must_use]
    pub fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

const SCHEME: Choice<UrlScheme> =
    Choice { noun: "a scheme", names: &[("http", UrlScheme::Http), ("https", UrlScheme::Https)] };

table! {
    /// The parts of a URL that a redirect changes. The query always stays.
    #[derive(Clone, Debug, PartialEq)]
    #[non_exhaustive]
    pub struct Redirect {
        /// The scheme.
        pub scheme: Option<UrlScheme> = None, optional_as(SCHEME);
        /// The host.
        pub host: Option<String> = None, optional_as(HOST);
        /// The port; that of the scheme if the scheme is set.
        pub port: Option<u16> = None, optional_as(PORT);
        /// The whole path.
        pub path: Option<ExactPath> = None, optional;
        /// The prefix of the path that the route matches.
        pub prefix: Option<PathPrefix> = None, optional;
        /// The status.
        pub status: StatusCode = DEFAULT_STATUS, value_as(STATUS);
    }
    NEEDS = "scheme, host, port, path or prefix";
}

const HOST: Format<String> = Format {
    read: |v| {
        let host = text(v, "a host", "a name in quotes, such as \"www.example.com\"")?;
        let help = "write a name such as \"www.example.com\"; port and scheme have their own settings";
        let lower = host.to_ascii_lowercase();
        if is_host_name(&lower) { Ok(lower) } else { Err(Flaw::new(format!("\"{host}\" is not a host"), help)) }
    },
    print: |host| quoted(host),
};

const PORT: Format<u16> = Format { read: |v| whole::<u16>(v, 1), print: u16::to_string };

const STATUS: Format<StatusCode> = Format {
    read: |v| {
        let number = whole::<u16>(v, 0)?;
        let status = STATUSES.into_iter().find(|status| status.as_u16() == number);
        status.ok_or_else(|| {
            let help = "write 301, 302, 303, 307 or 308; for another status write answer = { status = ... }";
            Flaw::new(format!("{number} is not the status of a redirect"), help)
        })
    },
    print: |status| status.as_u16().to_string(),
};

/// In the file `"https"`, or a table.
impl Value for Redirect {
    fn read(value: &Spanned<DeValue<'_>>, reading: &mut Reading<'_>) -> Option<Self> {
        match value.get_ref() {
            DeValue::Table(table) => {
                let mut redirect = Self::default();
                reading.fill(table, &mut redirect);
                Some(redirect)
            }
            value => {
                let help = "write redirect = \"https\", or a table such as { host = \"www.example.com\" }";
                let example = "\"https\", or a table such as { host = \"www.example.com\" }";
                let read = text(value, "a redirect", example).and_then(|text| match text {
                    "https" => Ok(Self { scheme: Some(UrlScheme::Https), ..Self::default() }),
                    _ => Err(Flaw::new(
                        format!("{} is not a redirect", quoted(text)),
                        help_for_url(text).unwrap_or_else(|| help.to_owned()),
                    )),
                });
                reading.take(read)
            }
        }
    }

    fn print(&self) -> String {
        match self {
            Self { scheme: Some(UrlScheme::Https), host: None, port: None, path: None, prefix: None, status }
                if *status == DEFAULT_STATUS =>
            {
                quoted(UrlScheme::Https.name())
            }
            _ => format!("{{ {} }}", inline(&mut self.clone())),
        }
    }
}

/// The table for a URL; `None` if `text` is none.
fn help_for_url(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://")?;
    let scheme: Scheme = scheme.parse().ok().filter(|scheme| *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS)?;
    let (host, path) = rest.split_at(rest.find(['/', '$']).unwrap_or(rest.len()));
    let mut parts = vec![format!("scheme = \"{scheme}\"")];
    if is_host_name(host) {
        parts.push(format!("host = \"{host}\""));
    }
    if path.len() > 1 && ExactPath::parse(path).is_ok() {
        parts.push(format!("path = \"{path}\""));
    }
    Some(format!("write {{ {} }}: the parts that are left out stay, and so does the query", parts.join(", ")))
}

impl Redirect {
    /// Reports contradictions among its settings, those at `path`. `is_exact`: its route has no
    /// prefix.
    pub(super) fn check(&self, path: &str, is_exact: bool, checker: &mut Checker<'_>) {
        if self.is_empty() && checker.is_readable(path) {
            let help = "add scheme, host, port, path or prefix";
            checker.report(path, "leads every request to itself", help);
        }
        if self.path.is_some() && self.prefix.is_some() {
            checker.report(format!("{path}.prefix"), "the redirect has a path already", "remove one of them");
        } else if self.prefix.is_some() && is_exact {
            let help = "write path here, or path_prefix in the route";
            checker.report(format!("{path}.prefix"), "the route matches one path, and no prefix", help);
        }
    }

    /// Whether it changes nothing.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self { status: self.status, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_is_answered_with_the_table_that_it_means() {
        for (text, table) in [
            ("https://www.example.com", "{ scheme = \"https\", host = \"www.example.com\" }"),
            ("http://a.b/new", "{ scheme = \"http\", host = \"a.b\", path = \"/new\" }"),
            ("https://$host$request_uri", "{ scheme = \"https\" }"),
        ] {
            assert_eq!(
                help_for_url(text).unwrap(),
                format!("write {table}: the parts that are left out stay, and so does the query")
            );
        }
        assert_eq!(help_for_url("/new"), None);
        assert_eq!(help_for_url("ftp://a"), None);
    }
}
