//! The matches and actions of routes, as in the file; `crate::route` compiles them.

use std::collections::HashMap;
use std::fmt;
use std::net::Ipv6Addr;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http::uri::Authority;
use plimsoll_config::{Effect, Flaw, Format, List, quoted, table, text, values};
use plimsoll_core::Criticality;
use plimsoll_tls_config::{ClientName, is_host_name};

use super::answer::Answer;
use super::conditions::{self, Condition, Wanted};
use super::criticality::CRITICALITY;
use super::customer::CustomerName;
use super::degraded::Degraded;
use super::exact_path::ExactPath;
use super::header_rules::HeaderRules;
use super::mirror::Mirror;
use super::path::normalise;
use super::redirect::Redirect;
use super::split::{Margins, SplitKey, SplitSide};
use super::value::METHOD;

/// The hosts that a route is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// This host, in lower case.
    Exact(String),
    /// Any host below this domain (`*.example.com`, held without `*.`), at any depth, not the
    /// domain itself.
    Below(String),
}

impl HostPattern {
    pub(super) fn parse(host: &str) -> Result<Self, Flaw> {
        let help = "write a name without a port, such as \"example.com\" or \"*.example.com\"; without host, a route is for any host";
        let flaw = |reason: &str| Flaw::new(format!("\"{host}\" {reason}"), help);
        if host.starts_with(['~', '^']) || host.ends_with('$') || host.contains(['(', '\\']) {
            return Err(flaw("is a regular expression, which hosts cannot be"));
        }
        if host == "*" {
            return Err(Flaw::new("\"*\" is not a host pattern", "remove host: the route is then for any host"));
        }
        if host.contains("://") || host.contains('/') {
            return Err(flaw("is a URL, not a host"));
        }
        let lower = host.to_ascii_lowercase();
        if let Some(domain) = lower.strip_prefix("*.") {
            return if is_host_name(domain) {
                Ok(Self::Below(domain.to_owned()))
            } else {
                Err(flaw("is not a host pattern"))
            };
        }
        let is_ipv6 = |host: &str| {
            host.strip_prefix('[')
                .and_then(|host| host.strip_suffix(']'))
                .is_some_and(|ip| ip.parse::<Ipv6Addr>().is_ok())
        };
        match lower.rsplit_once(':') {
            _ if is_host_name(&lower) || is_ipv6(&lower) => Ok(Self::Exact(lower)),
            Some((_, port)) if port.parse::<u16>().is_ok() => Err(flaw("has a port")),
            _ if lower.contains('*') => Err(flaw("has \"*\" in the wrong place: only \"*.\" at the front is known")),
            _ => Err(flaw("is not a host")),
        }
    }
}

/// As it is written in the file.
impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(host) => f.write_str(host),
            Self::Below(domain) => write!(f, "*.{domain}"),
        }
    }
}

/// The paths that a route is for: `/api` stands for `/api` and all below it, not for `/apis`.
///
/// A `/` at the end says nothing more, as in the Kubernetes Gateway API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PathPrefix(String);

impl PathPrefix {
    /// The prefix without a `/` at its end; empty for all paths.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn parse_text(path: &str) -> Option<Self> {
        is_path_text(path).then(|| Self(normalise(path).text.trim_end_matches('/').to_owned()))
    }

    fn parse(path: &str) -> Result<Self, Flaw> {
        let help = match path {
            _ if is_regular_expression(path) => "write a prefix such as \"/api\": regular expressions are not known".to_owned(),
            _ if !path.starts_with('/') => format!("write \"/{path}\""),
            _ if path.contains(['?', '#']) => "remove the query: routes match the path only".to_owned(),
            _ if path.contains('*') => "remove the \"*\": a prefix matches all paths below it".to_owned(),
            _ if !has_one_reading(path) => {
                "write the path without dot segments, parameters (\";\") and encoded slashes: requests are matched in that form"
                    .to_owned()
            }
            _ => "write a path such as \"/api\", other characters percent-encoded".to_owned(),
        };
        Self::parse_text(path).ok_or_else(|| Flaw::new(format!("\"{path}\" is not a path prefix"), help))
    }
}

/// Whether `path` is one without a query, that can be brought into its normal form.
pub(super) fn is_path_text(path: &str) -> bool {
    path.starts_with('/')
        && path.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#' | b'*'))
        && !path.contains("//")
        && has_one_reading(path)
}

/// Whether `path` is a pattern of nginx or HAProxy: `~ ^/api`, `= /api`, `^/api`, `/api/.*`,
/// `\.php$`.
pub(super) fn is_regular_expression(path: &str) -> bool {
    path.starts_with(['~', '^', '=', '\\']) || path.ends_with('$') || path.contains(".*") || path.contains('(')
}

/// Whether a prefix is one that a path in normal form can begin with.
pub(super) fn has_one_reading(path: &str) -> bool {
    let has_dots = path.split('/').any(|segment| matches!(segment, "." | ".."));
    !has_dots && !path.contains(';') && !normalise(path).is_ambiguous
}

/// As it is written in the file.
impl fmt::Display for PathPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "/" } else { &self.0 })
    }
}

values! {
    HostPattern: |v| HostPattern::parse(text(v, "a host", "a name in quotes, such as \"example.com\"")?), |host| quoted(host);
    PathPrefix: |v| PathPrefix::parse(text(v, "a path", "a path in quotes, such as \"/api\"")?), |path| quoted(path);
}

/// A host, with a port or without.
const HOST_NAME: Format<Authority> = Format {
    read: |v| {
        let host = text(v, "a host", "a name in quotes, such as \"web.internal\"")?;
        let help = "write a name, such as \"web.internal\" or \"web.internal:8080\"";
        let parsed = host.parse().ok().filter(|_| !host.contains('@'));
        parsed.ok_or_else(|| Flaw::new(format!("\"{host}\" is not a host"), help))
    },
    print: |host| quoted(host),
};

/// Another match makes another route; another action is one of the same route.
const ACTION: Effect = Effect::Applied("from the next request on; those in flight finish where they are");

/// The counts of a split and a mirror go on under it.
const NAME: Effect = Effect::Applied("metrics, logs and explanations name it so from now on");

table! {
    /// A rule for the end of some requests.
    #[derive(Clone, Debug, PartialEq)]
    #[non_exhaustive]
    pub struct Route {
        /// Hosts; `None` for any.
        pub host: Option<HostPattern> = None, optional, Effect::Another;
        /// Paths.
        pub path_prefix: PathPrefix = PathPrefix::default(), value, Effect::Another;
        /// One path, in place of a prefix.
        pub path: Option<ExactPath> = None, optional, Effect::Another;
        /// Methods; empty for any.
        pub methods: Vec<Method> = Vec::new(), value_as(List(METHOD)), Effect::Another;
        /// Conditions on header fields, sorted by name.
        pub headers: Vec<Condition> = Vec::new(), value_as(conditions::HEADERS), Effect::Another;
        /// Conditions on parameters of the query, sorted by name.
        pub query: Vec<Condition> = Vec::new(), value_as(conditions::QUERY), Effect::Another;
        /// Conditions on cookies, sorted by name.
        pub cookies: Vec<Condition> = Vec::new(), value_as(conditions::COOKIES), Effect::Another;
        /// Clients, by the names in their certificates; empty for any, with a certificate or without.
        pub client_names: Vec<ClientName> = Vec::new(), value, Effect::Another;
        /// Customers, by the names that their requests give; empty for any, with a name or without.
        pub customers: Vec<CustomerName> = Vec::new(), value, Effect::Another;
        /// The cluster that answers, by name; it exists. Of this, `split`, `answer`, `redirect` and
        /// `black_hole` exactly one is there.
        pub cluster: Option<String> = None, optional, ACTION;
        /// What keeps a user on one side of `split`; `None`: requests take turns.
        pub split_by: Option<SplitKey> = None, optional, ACTION;
        /// The URL that clients are sent to.
        pub redirect: Option<Redirect> = None, optional, ACTION;
        /// Its requests are dropped without an answer.
        pub black_hole: bool = false, value, ACTION;
        /// Time to the head of the response, in place of the cluster's.
        pub request_timeout: Option<Duration> = None, optional, ACTION;
        /// The host that backends are asked for, in place of the one that clients name.
        pub host_rewrite: Option<Authority> = None, optional_as(HOST_NAME), ACTION;
        /// The prefix that backends are asked for, in place of `path_prefix`.
        pub prefix_rewrite: Option<PathPrefix> = None, optional, ACTION;
        /// The path that backends are asked for, in place of the whole path.
        pub path_rewrite: Option<ExactPath> = None, optional, ACTION;
        /// The criticality of its requests, in place of their claims.
        pub criticality: Option<Criticality> = None, optional_as(CRITICALITY), ACTION;
        /// Its requests are never shed by the gate of its cluster.
        pub exempt: bool = false, value, ACTION;
        /// Its cluster gets paths that servers read in different ways, too.
        pub ambiguous_paths: bool = false, value, ACTION;
        /// Listeners whose requests are looked at, by name; empty for all. They exist.
        pub listeners: Vec<String> = Vec::new(), value, Effect::Another;
        /// Its name in metrics, logs and explanations; its matches if left out.
        pub name: Option<String> = None, optional, NAME;
        /// The clusters that answer, by weight; the first is the main version.
        pub split: Vec<SplitSide> = Vec::new(), tables, ACTION;
        /// The differences that are relevant between the sides of `split`.
        pub margins: Option<Margins> = None, optional_table, ACTION;
        /// Copies of its requests for another cluster.
        pub mirror: Option<Mirror> = None, optional_table, ACTION;
        /// The answer to all its requests.
        pub answer: Option<Answer> = None, optional_table, ACTION;
        /// The answers in place of an error.
        pub degraded: Option<Degraded> = None, optional_table, ACTION;
        /// Changes to the fields of requests on their way to backends.
        pub request_headers: Option<HeaderRules> = None, optional_table, ACTION;
        /// Changes to the fields of responses on their way to clients.
        pub response_headers: Option<HeaderRules> = None, optional_table, ACTION;
    }
}

/// Where a route leads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Leads<'r> {
    /// To the cluster of this name.
    Cluster(&'r str),
    /// To one of these clusters.
    Split(&'r [SplitSide]),
    /// To this answer.
    Answer(&'r Answer),
    /// To another URL.
    Redirect(&'r Redirect),
    /// Nowhere.
    BlackHole,
}

impl Route {
    /// Where it leads.
    #[must_use]
    pub fn leads(&self) -> Leads<'_> {
        match (&self.cluster, &self.answer, &self.redirect) {
            (Some(cluster), _, _) => Leads::Cluster(cluster),
            _ if !self.split.is_empty() => Leads::Split(&self.split),
            (None, Some(answer), _) => Leads::Answer(answer),
            (None, None, Some(redirect)) => Leads::Redirect(redirect),
            (None, None, None) => Leads::BlackHole,
        }
    }

    /// The clusters that it leads to, by name.
    pub fn clusters(&self) -> impl Iterator<Item = &str> {
        self.cluster.as_deref().into_iter().chain(self.split.iter().map(|side| side.cluster.as_str()))
    }

    /// Its matches. No two routes of a configuration have the same: one of them would be dead.
    pub(crate) fn key(&self) -> RouteKey {
        let Self { host, path_prefix, path, methods, headers, query, cookies, .. } = self;
        let Self { client_names, customers, listeners, .. } = self;
        RouteKey(format!(
            "{:?}",
            (host, path_prefix, path, methods, headers, query, cookies, client_names, customers, listeners)
        ))
    }

    /// Its conditions on fields, parameters and cookies, with the names of their tables.
    pub(crate) fn conditions(&self) -> [(&'static str, &[Condition]); 3] {
        [("headers", &self.headers), ("query", &self.query), ("cookies", &self.cookies)]
    }

    /// Whether it puts another prefix in place of the one that it matches, for a backend or a client.
    pub(crate) fn replaces_prefix(&self) -> bool {
        self.prefix_rewrite.is_some() || self.redirect.as_ref().is_some_and(|redirect| redirect.prefix.is_some())
    }

    /// All answers that it has of its own, with the names of their tables in the route.
    pub(super) fn answers(&self) -> impl Iterator<Item = (&'static str, &Answer)> {
        let degraded = self.degraded.as_ref().and_then(|degraded| degraded.answer.as_ref());
        let answer = self.answer.as_ref().map(|answer| ("answer", answer));
        answer.into_iter().chain(degraded.map(|answer| ("degraded.answer", answer)))
    }

    /// Whether requests that come in at the listener of this name are looked at.
    #[must_use]
    pub fn applies_to(&self, listener: &str) -> bool {
        self.listeners.is_empty() || self.listeners.iter().any(|name| name == listener)
    }
}

/// The matches of a route, by which two configurations have the same route. They may hold secrets.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RouteKey(String);

/// A route and its name, which no other route of the configuration has.
#[derive(Clone, Copy, Debug)]
pub struct NamedRoute<'c> {
    /// For metrics, logs and explanations.
    pub name: &'c Arc<str>,
    /// The route.
    pub route: &'c Route,
}

impl Deref for NamedRoute<'_> {
    type Target = Route;

    fn deref(&self) -> &Route {
        self.route
    }
}

/// The names of `routes`: those of the file, else their matches with their listeners. Further routes
/// with the same matches but for values have a number: `/ header x-version`, `/ header x-version #2`.
///
/// Values of conditions are no part of a name. They may be secrets, such as `Authorization`.
pub(super) fn names(routes: &[Route]) -> Vec<Arc<str>> {
    let mut known: HashMap<String, u32> = HashMap::new();
    let name = |route: &Route| {
        if let Some(name) = &route.name {
            return name.as_str().into();
        }
        let mut name = route.to_string();
        if !route.listeners.is_empty() {
            name.push_str(&format!(" at {}", route.listeners.join(", ")));
        }
        let number = known.entry(name.clone()).and_modify(|number| *number += 1).or_insert(1);
        if *number > 1 {
            name.push_str(&format!(" #{number}"));
        }
        name.into()
    };
    routes.iter().map(name).collect()
}

/// The matches in words, without values of conditions.
impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(host) = &self.host {
            write!(f, "{host}")?;
        }
        match &self.path {
            Some(path) => write!(f, "{path} exact")?,
            None => write!(f, "{}", self.path_prefix)?,
        }
        for method in &self.methods {
            write!(f, " {method}")?;
        }
        for name in &self.client_names {
            write!(f, " {name}")?;
        }
        for name in &self.customers {
            write!(f, " customer {name}")?;
        }
        for (word, condition) in ["header", "query", "cookie"]
            .into_iter()
            .zip(self.conditions())
            .flat_map(|(word, (_, conditions))| conditions.iter().map(move |condition| (word, condition)))
        {
            let absent = if condition.wanted == Wanted::Absent { "!" } else { "" };
            write!(f, " {word} {absent}{}", condition.name)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_exact_or_below_a_domain() {
        assert_eq!(HostPattern::parse("Example.COM"), Ok(HostPattern::Exact("example.com".into())));
        assert_eq!(HostPattern::parse("*.example.com"), Ok(HostPattern::Below("example.com".into())));
        assert_eq!(HostPattern::parse("[::1]"), Ok(HostPattern::Exact("[::1]".into())));
        for junk in ["", "*", "a.*.b", "a:80", "http://a", "a/b", "-a", "*.", "a..b"] {
            assert!(HostPattern::parse(junk).is_err(), "{junk}");
        }
    }

    #[test]
    fn pattern_of_another_proxy_is_not_answered_with_a_wrong_prefix() {
        for text in ["^/api", "~ ^/api", "= /api", "/api/.*", "\\.php$"] {
            let flaw = PathPrefix::parse(text).unwrap_err();
            assert!(flaw.help.contains("regular expressions are not known"), "{text}: {}", flaw.help);
        }
        let flaw = HostPattern::parse("~^www").unwrap_err();
        assert!(flaw.reason.contains("is a regular expression"), "{}", flaw.reason);
    }

    #[test]
    fn name_of_a_route_has_each_of_its_matches() {
        let text = "[[listeners]]\naddress = \":80\"\n[[routes]]\nhost = \"a.b\"\npath = \"/x\"\nmethods = [\"GET\"]\ncluster = \"w\"\n\
                    headers = { \"X-B\" = \"1\", x-a = false }\nquery = { v = \"2\" }\ncookies = { c = true }\n\
                    [clusters.w]\nbackends = [\"10.0.0.1:80\"]\n";
        let config = super::super::Config::parse("test", text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(config.routes()[0].to_string(), "a.b/x exact GET header !x-a header x-b query v cookie c");
    }

    #[test]
    fn name_of_a_route_is_unique_and_has_no_values() {
        let route = |more: &str| format!("[[routes]]\n{more}\ncluster = \"w\"\n");
        let bearer = |token: &str| route(&format!("headers = {{ authorization = \"Bearer {token}\" }}"));
        let text = [
            "[[listeners]]\naddress = \":80\"\nname = \"a\"\n[[listeners]]\naddress = \":81\"\nname = \"b\"\n",
            &bearer("secret-1"),
            &bearer("secret-2"),
            &route("cookies = { session = \"secret-3\" }\nquery = { token = \"secret-4\" }"),
            &route("headers = { authorization = \"Bearer secret-5\" }\nname = \"partners\""),
            &bearer("secret-6"),
            &route("listeners = [\"a\"]"),
            &route("listeners = [\"b\"]"),
            "[clusters.w]\nbackends = [\"10.0.0.1:80\"]\n",
        ]
        .concat();
        let config = super::super::Config::parse("test", &text).unwrap_or_else(|error| panic!("{error}"));
        let names: Vec<&str> = config.named_routes().map(|route| &**route.name).collect();
        let expected = [
            "/ header authorization",
            "/ header authorization #2",
            "/ query token cookie session",
            "partners",
            "/ header authorization #3",
            "/ at a",
            "/ at b",
        ];
        assert_eq!(names, expected);
        let keys: std::collections::BTreeSet<_> = config.routes().iter().map(Route::key).collect();
        assert_eq!(keys.len(), names.len());
    }

    #[test]
    fn a_slash_at_the_end_of_a_prefix_says_nothing() {
        assert_eq!(PathPrefix::parse("/api/").unwrap(), PathPrefix::parse("/api").unwrap());
        assert_eq!(PathPrefix::parse("/").unwrap(), PathPrefix::default());
        for junk in ["", "api", "/a?b", "/a*", "/a b", "//"] {
            assert!(PathPrefix::parse(junk).is_err(), "{junk}");
        }
    }

    #[test]
    fn prefix_is_kept_in_normal_form_and_refused_when_none_exists() {
        for (written, kept) in [("/%61pi", "/api"), ("/caf%c3%a9/", "/caf%C3%A9"), ("/a%20b", "/a%20b")] {
            assert_eq!(PathPrefix::parse(written).unwrap().as_str(), kept);
        }
        for junk in ["/a/../b", "/./a", "/a;b", "/a%2fb", "/a\\b", "/a%00", "/a%", "/%2e%2e"] {
            let flaw = PathPrefix::parse(junk).unwrap_err();
            assert!(flaw.help.contains("without dot segments"), "{junk}: {}", flaw.help);
        }
    }
}
