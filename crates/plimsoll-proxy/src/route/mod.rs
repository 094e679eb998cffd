//! Finds the route of a request: the most specific one, in any order of the file.
//!
//! Of all routes that match, the winner is the one with, in this order of weight:
//! 1. customers listed rather than any;
//! 2. the most specific host: an exact one, then `*.domain` with the longest domain, then any;
//! 3. the longest path prefix;
//! 4. clients listed (by the names in their certificates) rather than any;
//! 5. methods listed rather than any;
//! 6. the earlier place in the file.
//!
//! These are the rules of the Kubernetes Gateway API, which has neither customers nor clients.
//! Customers come first, because a route that lists some is there to take them out of all that is
//! usual, often in a hurry: one line sends them elsewhere, whatever hosts and paths other routes
//! name. Clients come before methods, because a route for one client is an exception made for it: a
//! route that lists methods, for anybody, must not take its requests away. Order of the file alone,
//! as Envoy and nginx's regular expressions have it, makes a route that is added at the end
//! silently dead, or one at the front silently greedy; here the order matters only between routes
//! for the same host and path.
//!
//! A request without a known customer matches no route that lists customers. Its customer is
//! unknown if it names none, or if its listener has no `customer_header`.
//!
//! Hosts are compared without regard to case, port and a dot at the end; `*.example.com` stands for
//! any depth below, not for `example.com`. A prefix ends where a segment ends: `/api` is for `/api`
//! and `/api/x`, not for `/apis`. Paths are compared byte for byte; the listener brings them into
//! their normal form first (`config::normalise`).
//!
//! A lookup allocates nothing. It costs one hash of the host per label and one of the path per
//! segment, but never of more bytes than the longest prefix of the table has, so that a long path
//! cannot make it slow.

pub(crate) mod destination;
pub(crate) mod holders;
pub(crate) mod routes;

use std::collections::HashMap;

use http::Method;

use crate::config::{ClientName, CustomerName, HostPattern, Route};

/// The routes of one listener, ready for lookups; each leads to a `T`.
#[derive(Clone, Debug)]
pub struct RouteTable<T> {
    /// Those that list customers; `None` if there are none, so that others pay nothing for it.
    of_customers: Option<Box<Hosts<T>>>,
    others: Hosts<T>,
}

impl<T> RouteTable<T> {
    /// Compiles routes, given in the order of the file.
    pub fn new<'r>(routes: impl IntoIterator<Item = (&'r Route, T)>) -> Self {
        let mut table = Self { of_customers: None, others: Hosts::default() };
        for (route, target) in routes {
            let hosts =
                if route.customers.is_empty() { &mut table.others } else { table.of_customers.get_or_insert_default() };
            hosts.add(route, target);
        }
        table
    }

    /// Whether any route is for some paths only.
    #[must_use]
    pub fn asks_for_paths(&self) -> bool {
        self.others.has_prefixes() || self.of_customers.as_deref().is_some_and(Hosts::has_prefixes)
    }

    /// Where a request goes; `None` when no route matches.
    #[must_use]
    pub fn find(&self, request: &RouteQuery<'_>) -> Option<&T> {
        let of_customers = self.of_customers.as_deref().filter(|_| request.customer.is_some());
        of_customers.and_then(|hosts| hosts.find(request)).or_else(|| self.others.find(request))
    }
}

/// Routes by host.
#[derive(Clone, Debug)]
struct Hosts<T> {
    exact: HashMap<Box<str>, Paths<T>>,
    below: HashMap<Box<str>, Paths<T>>,
    any: Paths<T>,
}

impl<T> Hosts<T> {
    fn has_prefixes(&self) -> bool {
        let mut all = self.exact.values().chain(self.below.values()).chain([&self.any]);
        all.any(|paths| !paths.prefixes.is_empty())
    }
}

impl<T> Default for Hosts<T> {
    fn default() -> Self {
        Self { exact: HashMap::new(), below: HashMap::new(), any: Paths::default() }
    }
}

impl<T> Hosts<T> {
    fn add(&mut self, route: &Route, target: T) {
        let paths = match &route.host {
            Some(HostPattern::Exact(host)) => self.exact.entry(host.as_str().into()).or_default(),
            Some(HostPattern::Below(domain)) => self.below.entry(domain.as_str().into()).or_default(),
            None => &mut self.any,
        };
        paths.add(route, target);
    }

    fn find(&self, request: &RouteQuery<'_>) -> Option<&T> {
        if self.exact.is_empty() && self.below.is_empty() {
            return self.any.find(request);
        }
        let mut buffer = [0; MAX_HOST];
        normal_host(request.host, &mut buffer)
            .and_then(|host| self.find_by_host(host, request))
            .or_else(|| self.any.find(request))
    }

    fn find_by_host(&self, host: &str, request: &RouteQuery<'_>) -> Option<&T> {
        let exact = self.exact.get(host).and_then(|paths| paths.find(request));
        // The first dot leaves the longest domain.
        let mut domains = host.match_indices('.').map(|(dot, _)| &host[dot + 1..]);
        exact.or_else(|| domains.find_map(|domain| self.below.get(domain)?.find(request)))
    }
}

/// The parts of a request that its route depends on.
#[derive(Clone, Copy, Debug)]
pub struct RouteQuery<'r> {
    /// The request's authority, with or without a port; empty when it names none.
    pub host: &'r str,
    /// Without the query.
    pub path: &'r str,
    /// The method.
    pub method: &'r Method,
    /// The names in the client's certificate; empty without one.
    pub client_names: &'r [Box<str>],
    /// The name of the customer, from a trusted sender; `None` without one.
    pub customer: Option<&'r [u8]>,
}

/// The longest name that a host can have (RFC 1035), in characters.
const MAX_HOST: usize = 253;

/// The host in lower case, without its port and a dot at its end; `None` when it is too long to be
/// one.
fn normal_host<'b>(authority: &str, buffer: &'b mut [u8; MAX_HOST]) -> Option<&'b str> {
    let end = match authority.rfind(':') {
        Some(colon) if !authority[colon..].contains(']') => colon,
        _ => authority.len(),
    };
    let host = &authority[..end];
    let host = host.strip_suffix('.').unwrap_or(host).as_bytes();
    let lower = buffer.get_mut(..host.len())?;
    lower.copy_from_slice(host);
    lower.make_ascii_lowercase();
    std::str::from_utf8(lower).ok()
}

/// The routes of one host pattern.
#[derive(Clone, Debug)]
struct Paths<T> {
    /// For all paths, apart because most tables have nothing else.
    root: Vec<Rule<T>>,
    /// By prefix, without `/` at its end.
    prefixes: HashMap<Box<str>, Vec<Rule<T>>>,
    /// Length of the longest prefix, in bytes.
    longest: usize,
}

/// One route of a host and path.
#[derive(Clone, Debug)]
struct Rule<T> {
    /// Sorted; empty for any.
    customers: Box<[CustomerName]>,
    /// Empty for any.
    clients: Box<[ClientName]>,
    /// Empty for any.
    methods: Box<[Method]>,
    target: T,
}

impl<T> Default for Paths<T> {
    fn default() -> Self {
        Self { root: Vec::new(), prefixes: HashMap::new(), longest: 0 }
    }
}

impl<T> Paths<T> {
    fn add(&mut self, route: &Route, target: T) {
        let prefix = route.path_prefix.as_str();
        let rules = if prefix.is_empty() { &mut self.root } else { self.prefixes.entry(prefix.into()).or_default() };
        let mut customers = route.customers.clone();
        customers.sort_unstable();
        let rule = Rule {
            customers: customers.into(),
            clients: route.client_names.clone().into(),
            methods: route.methods.clone().into(),
            target,
        };
        // By rank, those of one rank in the order of the file.
        let place = rules.partition_point(|other| other.rank() <= rule.rank());
        rules.insert(place, rule);
        self.longest = self.longest.max(prefix.len());
    }

    fn find(&self, request: &RouteQuery<'_>) -> Option<&T> {
        let path = request.path;
        let mut end = self.last_segment_end(path);
        while end > 0 {
            if let Some(target) = self.prefixes.get(&path[..end]).and_then(|rules| Rule::find(rules, request)) {
                return Some(target);
            }
            end = path[..end].rfind('/').unwrap_or(0);
        }
        Rule::find(&self.root, request)
    }

    /// Where the last segment ends that the longest prefix can reach to.
    fn last_segment_end(&self, path: &str) -> usize {
        match path.as_bytes().get(..=self.longest) {
            None => path.len(),
            Some(reach) => reach.iter().rposition(|byte| *byte == b'/').unwrap_or(0),
        }
    }
}

impl<T> Rule<T> {
    /// Its place among those for the same host and path: lower ones are asked first.
    fn rank(&self) -> (bool, bool) {
        (self.clients.is_empty(), self.methods.is_empty())
    }

    fn takes(&self, request: &RouteQuery<'_>) -> bool {
        let is_client = |pattern: &ClientName| request.client_names.iter().any(|name| pattern.matches(name));
        (self.methods.is_empty() || self.methods.contains(request.method))
            && (self.clients.is_empty() || self.clients.iter().any(is_client))
            && (self.customers.is_empty() || request.customer.is_some_and(|customer| self.is_for(customer)))
    }

    fn is_for(&self, customer: &[u8]) -> bool {
        self.customers.binary_search_by(|name| name.as_str().as_bytes().cmp(customer)).is_ok()
    }

    fn find<'r>(rules: &'r [Self], request: &RouteQuery<'_>) -> Option<&'r T> {
        rules.iter().find(|rule| rule.takes(request)).map(|rule| &rule.target)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::PathPrefix;

    /// Routes from `host path conditions` lines, a condition being a method or, after `@`, a client
    /// or, after `$`, a customer; the target is the line's index.
    fn table(lines: &[&str]) -> RouteTable<usize> {
        let routes: Vec<Route> = lines
            .iter()
            .map(|line| {
                let mut words = line.split(' ');
                let host = words.next().unwrap();
                let host = match host.strip_prefix("*.") {
                    Some(domain) => Some(HostPattern::Below(domain.to_owned())),
                    None => (host != "any").then(|| HostPattern::Exact(host.to_owned())),
                };
                let path_prefix = PathPrefix::parse_text(words.next().unwrap()).unwrap();
                let mut route = Route { host, path_prefix, ..Route::default() };
                for word in words {
                    match word.split_at(1) {
                        ("@", client) => route.client_names.push(ClientName::Host(client.to_owned())),
                        ("$", customer) => route.customers.push(CustomerName::parse(customer).unwrap()),
                        _ => route.methods.push(word.parse().unwrap()),
                    }
                }
                route
            })
            .collect();
        RouteTable::new(routes.iter().zip(0..))
    }

    fn get(table: &RouteTable<usize>, host: &str, path: &str) -> Option<usize> {
        find(table, host, path, &Method::GET)
    }

    fn find(table: &RouteTable<usize>, host: &str, path: &str, method: &Method) -> Option<usize> {
        table.find(&RouteQuery { host, path, method, client_names: &[], customer: None }).copied()
    }

    #[test]
    fn the_longest_prefix_wins_and_ends_with_a_segment() {
        let table = table(&["any /api", "any /", "any /api/v2"]);
        for (path, route) in [
            ("/api", 0),
            ("/api/", 0),
            ("/api/x", 0),
            ("/apis", 1),
            ("/", 1),
            ("/api/v2", 2),
            ("/api/v2/x/y/z", 2),
            ("/api/v22", 0),
        ] {
            assert_eq!(get(&table, "h", path), Some(route), "{path}");
        }
        assert_eq!(get(&table, "", "*"), Some(1));
    }

    #[test]
    fn hosts_are_compared_without_case_port_and_last_dot() {
        let table = table(&["example.com /", "*.example.com /", "*.b.example.com /", "[::1] /"]);
        let cases = [
            ("EXAMPLE.com:8080", Some(0)),
            ("example.com.", Some(0)),
            ("a.example.com", Some(1)),
            ("x.a.example.com", Some(1)),
            ("x.b.example.com", Some(2)),
            ("b.example.com", Some(1)),
            ("notexample.com", None),
            ("[::1]:80", Some(3)),
            ("[::1]", Some(3)),
            ("", None),
        ];
        for (host, route) in cases {
            assert_eq!(get(&table, host, "/"), route, "{host}");
        }
        assert_eq!(get(&table, &"a".repeat(5000), "/"), None);
    }

    #[test]
    fn listed_methods_win_over_any_and_other_methods_go_on() {
        let table = table(&["any /a", "any /a POST", "any /a/b PUT", "any / DELETE"]);
        assert_eq!(find(&table, "h", "/a", &Method::POST), Some(1));
        assert_eq!(find(&table, "h", "/a", &Method::GET), Some(0));
        assert_eq!(find(&table, "h", "/a/b", &Method::GET), Some(0));
        assert_eq!(find(&table, "h", "/", &Method::GET), None);
    }

    #[test]
    fn listed_clients_win_over_methods_and_take_nobody_else() {
        let table = table(&["any /a", "any /a GET", "any /a @x", "any /a PUT @x @y", "any /b @y"]);
        let of = |path: &str, method: Method, names: &[&str]| {
            let client_names: Vec<Box<str>> = names.iter().map(|name| (*name).into()).collect();
            table
                .find(&RouteQuery { host: "h", path, method: &method, client_names: &client_names, customer: None })
                .copied()
        };
        assert_eq!(of("/a", Method::GET, &[]), Some(1));
        assert_eq!(of("/a", Method::GET, &["x"]), Some(2));
        assert_eq!(of("/a", Method::PUT, &["x"]), Some(3));
        assert_eq!(of("/a", Method::PUT, &["z", "y"]), Some(3));
        assert_eq!(of("/a", Method::GET, &["y"]), Some(1));
        assert_eq!(of("/a", Method::POST, &["z"]), Some(0));
        assert_eq!(
            (of("/b", Method::GET, &["y"]), of("/b", Method::GET, &["x"]), of("/b", Method::GET, &[])),
            (Some(4), None, None)
        );
    }

    #[test]
    fn listed_customers_win_over_any_host_and_path_and_take_nobody_else() {
        let table = table(&["a.com /api/v2", "any / $x $y", "any /api $y", "any / GET $z", "any /"]);
        let of = |host: &str, path: &str, method: Method, customer: &str| {
            let customer = Some(customer.as_bytes()).filter(|name| !name.is_empty());
            table.find(&RouteQuery { host, path, method: &method, client_names: &[], customer }).copied()
        };
        assert_eq!(of("a.com", "/api/v2", Method::GET, "x"), Some(1));
        assert_eq!(of("a.com", "/api/v2", Method::GET, "y"), Some(2));
        assert_eq!(of("a.com", "/api/v2", Method::GET, "z"), Some(3));
        assert_eq!(of("a.com", "/api/v2", Method::PUT, "z"), Some(0), "what their routes leave goes on");
        assert_eq!(of("a.com", "/api/v2", Method::GET, "X"), Some(0));
        assert_eq!(of("a.com", "/api/v2", Method::GET, ""), Some(0), "who says nothing is nobody");
        assert_eq!(of("b.com", "/", Method::GET, "xy"), Some(4));
    }

    #[test]
    fn less_specific_host_gets_paths_that_the_more_specific_one_lacks() {
        let table = table(&["a.com /x", "any /"]);
        assert_eq!(get(&table, "a.com", "/x"), Some(0));
        assert_eq!(get(&table, "a.com", "/y"), Some(1));
    }

    /// The rules at the top of this file, over a plain list.
    fn reference(
        lines: &[String],
        host: &str,
        path: &str,
        method: &str,
        client: &str,
        customer: &str,
    ) -> Option<usize> {
        let matching = lines.iter().enumerate().filter_map(|(i, line)| {
            let words: Vec<&str> = line.split(' ').collect();
            let (pattern, prefix) = (words[0], words[1].trim_end_matches('/'));
            let (customers, others): (Vec<&str>, Vec<&str>) = words[2..].iter().partition(|word| word.starts_with('$'));
            let (clients, methods): (Vec<&str>, Vec<&str>) = others.iter().partition(|word| word.starts_with('@'));
            let host_rank = match pattern.strip_prefix("*.") {
                _ if pattern == "any" => Some(0),
                Some(domain) => host.ends_with(&format!(".{domain}")).then_some(domain.len()),
                None => (host == pattern).then_some(usize::MAX),
            }?;
            let below = path.strip_prefix(prefix)?;
            let matches = (below.is_empty() || below.starts_with('/'))
                && (methods.is_empty() || methods.contains(&method))
                && (clients.is_empty() || clients.iter().any(|name| name[1..] == *client))
                && (customers.is_empty() || customers.iter().any(|name| name[1..] == *customer));
            let rank = (!customers.is_empty(), host_rank, prefix.len(), !clients.is_empty(), !methods.is_empty());
            matches.then_some((rank, std::cmp::Reverse(i)))
        });
        matching.max().map(|(_, std::cmp::Reverse(i))| i)
    }

    fn host() -> impl Strategy<Value = String> {
        "[ab](\\.[ab]){0,3}"
    }

    fn path() -> impl Strategy<Value = String> {
        "(/[ab]{1,2}){0,4}/?".prop_map(|path| if path.is_empty() { "/".to_owned() } else { path })
    }

    fn line() -> impl Strategy<Value = String> {
        let pattern = prop_oneof![Just("any".to_owned()), host(), host().prop_map(|host| format!("*.{host}"))];
        (pattern, path(), "( GET)?( PUT)?( @x)?( @y)?( \\$p)?( \\$q)?")
            .prop_map(|(pattern, path, methods)| format!("{pattern} {path}{methods}"))
    }

    proptest! {
        #[test]
        fn lookups_agree_with_the_rules_over_a_plain_list(
            lines in prop::collection::vec(line(), 0..12),
            requests in prop::collection::vec((host(), path(), "GET|PUT|POST", "x|y|z", "p|q|r"), 1..20),
        ) {
            let table = table(&lines.iter().map(String::as_str).collect::<Vec<_>>());
            for (host, path, method, client, customer) in requests {
                let (parsed, names) = (method.parse().unwrap(), [client.as_str().into()]);
                let customer_name = Some(customer.as_bytes());
                let asked =
                    RouteQuery { host: &host, path: &path, method: &parsed, client_names: &names, customer: customer_name };
                let found = table.find(&asked).copied();
                let expected = reference(&lines, &host, &path, &method, &client, &customer);
                prop_assert_eq!(found, expected, "{} {} {} {} {}", method, host, path, client, customer);
            }
        }
    }
}
