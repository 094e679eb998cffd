//! Finds the route of a request: the most specific one, in any order of the file.
//!
//! Of all routes that match, the winner is the one with, in this order of weight:
//! 1. customers listed rather than any;
//! 2. the most specific host: an exact one, then `*.domain` with the longest domain, then any;
//! 3. the path: an exact one, then the longest prefix;
//! 4. clients listed (by the names in their certificates) rather than any;
//! 5. methods listed rather than any;
//! 6. the most conditions on header fields and cookies;
//! 7. the most conditions on query parameters;
//! 8. the earlier place in the file.
//!
//! These are the rules of the Kubernetes Gateway API, which has neither customers nor clients, and
//! counts a cookie as a header field.
//! Customers come first, because a route that lists some is there to take them out of all that is
//! usual, often in a hurry: one line sends them elsewhere, whatever hosts and paths other routes
//! name. Clients come before methods, because a route for one client is an exception made for it: a
//! route that lists methods, for anybody, must not take its requests away. Order of the file alone,
//! as Envoy and nginx's regular expressions have it, makes a route that is added at the end
//! silently dead, or one at the front silently greedy; here the order matters only between routes
//! for the same host and path.
//!
//! A request without a known customer matches no route that lists customers. Its customer is
//! unknown if it names none, or if its listener has no `customer`.
//!
//! Hosts are compared without regard to case, port and a dot at the end; `*.example.com` stands for
//! any depth below, not for `example.com`. A prefix ends where a segment ends: `/api` is for `/api`
//! and `/api/x`, not for `/apis`. Paths are compared byte for byte; the listener brings them into
//! their normal form first (`config::normalise`).
//!
//! A lookup allocates nothing, unless it comes to a route with conditions on fields (`fields`). It
//! costs one hash of the host per label and one of the path per segment, but never of more bytes
//! than the longest path of the table has, so that a long path cannot make it slow.

pub(crate) mod changes;
pub(crate) mod customer;
pub(crate) mod destination;
mod fields;
pub(crate) mod header_rules;
pub(crate) mod holders;
pub(crate) mod host;
pub(crate) mod keys;
pub(crate) mod mirror;
mod path_rewrite;
pub(crate) mod redirect;
pub(crate) mod routes;
pub(crate) mod split;

use std::cmp::Reverse;
use std::collections::HashMap;

use http::Method;

use self::fields::Needs;
pub use self::fields::RequestFields;
use crate::config::{ClientName, CustomerName, HostPattern, Route};

/// The routes of one listener, ready for lookups; each leads to a `T`.
#[derive(Clone, Debug)]
pub struct RouteTable<T> {
    /// Those that list customers; `None` if there are none, so that others pay nothing for it.
    of_customers: Option<Box<Hosts<T>>>,
    others: Hosts<T>,
    asks_for_paths: bool,
}

impl<T> RouteTable<T> {
    /// Compiles routes, given in the order of the file.
    pub fn new<'r>(routes: impl IntoIterator<Item = (&'r Route, T)>) -> Self {
        let routes: Vec<(&Route, T)> = routes.into_iter().collect();
        let needs = Needs::of(routes.iter().map(|(route, _)| *route));
        let mut table = Self { of_customers: None, others: Hosts::default(), asks_for_paths: false };
        for ((route, target), needs) in routes.into_iter().zip(needs) {
            let hosts =
                if route.customers.is_empty() { &mut table.others } else { table.of_customers.get_or_insert_default() };
            hosts.add(route, needs, target);
            let is_for_any = route.path.is_none() && route.path_prefix.as_str().is_empty();
            table.asks_for_paths |= !is_for_any || route.replaces_prefix();
        }
        table
    }

    /// Whether any route is for some paths only, or rewrites the beginning of a path.
    #[must_use]
    pub fn asks_for_paths(&self) -> bool {
        self.asks_for_paths
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

impl<T> Default for Hosts<T> {
    fn default() -> Self {
        Self { exact: HashMap::new(), below: HashMap::new(), any: Paths::default() }
    }
}

impl<T> Hosts<T> {
    fn add(&mut self, route: &Route, needs: Option<Box<Needs>>, target: T) {
        let paths = match &route.host {
            Some(HostPattern::Exact(host)) => self.exact.entry(host.as_str().into()).or_default(),
            Some(HostPattern::Below(domain)) => self.below.entry(domain.as_str().into()).or_default(),
            None => &mut self.any,
        };
        paths.add(route, needs, target);
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
    /// The name of the customer; `None` without one.
    pub customer: Option<&'r [u8]>,
    /// Header fields and query.
    pub fields: &'r RequestFields<'r>,
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
    /// By whole path.
    exact: HashMap<Box<str>, Vec<Rule<T>>>,
    /// Length of the longest of these, in bytes.
    longest_exact: usize,
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
    /// Numbers of conditions on fields and cookies, and on parameters.
    conditions: (usize, usize),
    /// `None` if there are no conditions.
    needs: Option<Box<Needs>>,
    target: T,
}

impl<T> Default for Paths<T> {
    fn default() -> Self {
        Self { root: Vec::new(), prefixes: HashMap::new(), longest: 0, exact: HashMap::new(), longest_exact: 0 }
    }
}

impl<T> Paths<T> {
    fn add(&mut self, route: &Route, needs: Option<Box<Needs>>, target: T) {
        let prefix = route.path_prefix.as_str();
        let rules = match &route.path {
            Some(path) => {
                self.longest_exact = self.longest_exact.max(path.as_str().len());
                self.exact.entry(path.as_str().into()).or_default()
            }
            None if prefix.is_empty() => &mut self.root,
            None => {
                self.longest = self.longest.max(prefix.len());
                self.prefixes.entry(prefix.into()).or_default()
            }
        };
        let mut customers = route.customers.clone();
        customers.sort_unstable();
        let rule = Rule {
            customers: customers.into(),
            clients: route.client_names.clone().into(),
            methods: route.methods.clone().into(),
            conditions: (route.headers.len() + route.cookies.len(), route.query.len()),
            needs,
            target,
        };
        // By rank, those of one rank in the order of the file.
        let place = rules.partition_point(|other| other.rank() <= rule.rank());
        rules.insert(place, rule);
    }

    fn find(&self, request: &RouteQuery<'_>) -> Option<&T> {
        let path = request.path;
        // Without exact paths, no path is this short.
        if path.len() <= self.longest_exact
            && let Some(target) = self.exact.get(path).and_then(|rules| Rule::find(rules, request))
        {
            return Some(target);
        }
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
    fn rank(&self) -> (bool, bool, Reverse<(usize, usize)>) {
        (self.clients.is_empty(), self.methods.is_empty(), Reverse(self.conditions))
    }

    fn takes(&self, request: &RouteQuery<'_>) -> bool {
        let is_client = |pattern: &ClientName| request.client_names.iter().any(|name| pattern.matches(name));
        (self.methods.is_empty() || self.methods.contains(request.method))
            && (self.clients.is_empty() || self.clients.iter().any(is_client))
            && (self.customers.is_empty() || request.customer.is_some_and(|customer| self.is_for(customer)))
            && self.needs.as_ref().is_none_or(|needs| needs.are_met(request.fields))
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

    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::*;
    use crate::config::{Condition, ExactPath, PathPrefix, Wanted};

    /// Routes from `host path conditions` lines. A path after `=` is exact. A condition is a method
    /// or, after `@`, a client or, after `$`, a customer or, after `h:`, `q:` or `c:`, `name=value`
    /// of a field, a parameter or a cookie, with `*` for any value and `!` for none. The target is
    /// the line's index.
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
                let mut route = Route { host, ..Route::default() };
                match words.next().unwrap() {
                    path if path.starts_with('=') => route.path = Some(ExactPath::parse(&path[1..]).unwrap()),
                    prefix => route.path_prefix = PathPrefix::parse_text(prefix).unwrap(),
                }
                for word in words {
                    match word.split_at(1) {
                        ("h", condition) if condition.starts_with(':') => route.headers.push(condition_of(condition)),
                        ("q", condition) if condition.starts_with(':') => route.query.push(condition_of(condition)),
                        ("c", condition) if condition.starts_with(':') => route.cookies.push(condition_of(condition)),
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

    fn condition_of(text: &str) -> Condition {
        let (name, value) = text[1..].split_once('=').unwrap();
        let wanted = match value {
            "*" => Wanted::Present,
            "!" => Wanted::Absent,
            value => Wanted::Value(value.to_owned()),
        };
        Condition { name: name.to_owned(), wanted }
    }

    /// A request without a certificate, customer, fields and query.
    fn plain<T>(ask: impl FnOnce(&RequestFields<'_>) -> T) -> T {
        ask(&RequestFields::new(&HeaderMap::new(), None, None))
    }

    fn get(table: &RouteTable<usize>, host: &str, path: &str) -> Option<usize> {
        find(table, host, path, &Method::GET)
    }

    fn find(table: &RouteTable<usize>, host: &str, path: &str, method: &Method) -> Option<usize> {
        plain(|fields| {
            table.find(&RouteQuery { host, path, method, client_names: &[], customer: None, fields }).copied()
        })
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
            plain(|fields| {
                let (method, client_names) = (&method, &client_names[..]);
                table.find(&RouteQuery { host: "h", path, method, client_names, customer: None, fields }).copied()
            })
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
            let method = &method;
            plain(|fields| table.find(&RouteQuery { host, path, method, client_names: &[], customer, fields }).copied())
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

    #[test]
    fn exact_path_wins_over_any_prefix_and_takes_no_other() {
        let table = table(&["any /a", "any =/a", "any =/a/b GET", "any /a/b/", "any =/ PUT", "any =/a/"]);
        for (path, route) in [("/a", 1), ("/a/", 5), ("/a/b", 2), ("/a/b/", 3), ("/a/bc", 0), ("/a/b/c", 3)] {
            assert_eq!(get(&table, "h", path), Some(route), "{path}");
        }
        assert_eq!(find(&table, "h", "/a/b", &Method::PUT), Some(3), "its prefix takes the other methods");
        assert_eq!(find(&table, "h", "/", &Method::PUT), Some(4));
        assert_eq!(get(&table, "h", "/"), None);
        assert!(table.asks_for_paths());
    }

    #[test]
    fn more_conditions_win_and_fields_come_before_parameters() {
        let table =
            table(&["any /", "any / q:v=2 q:w=*", "any / h:a=1", "any / h:a=* c:b=2", "any / GET", "any /x h:a=!"]);
        let of = |method: Method, path: &str, query: &str, headers: &[(&'static str, &'static str)]| {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.append(*name, HeaderValue::from_static(value));
            }
            let fields = &RequestFields::new(&map, Some(query), None);
            let method = &method;
            table.find(&RouteQuery { host: "h", path, method, client_names: &[], customer: None, fields }).copied()
        };
        assert_eq!(of(Method::PUT, "/", "", &[]), Some(0));
        assert_eq!(of(Method::PUT, "/", "v=2&w", &[]), Some(1));
        assert_eq!(of(Method::PUT, "/", "v=2", &[]), Some(0));
        assert_eq!(of(Method::PUT, "/", "v=2&w=3", &[("a", "1")]), Some(2));
        assert_eq!(of(Method::PUT, "/", "v=2&w=3", &[("a", "1"), ("cookie", "b=2")]), Some(3));
        assert_eq!(of(Method::GET, "/", "v=2&w=3", &[("a", "1"), ("cookie", "b=2")]), Some(4));
        assert_eq!(of(Method::PUT, "/x", "", &[("a", "1")]), Some(2), "a longer prefix does not take it");
        assert_eq!(of(Method::PUT, "/x", "", &[]), Some(5));
    }

    /// A request of the model.
    #[derive(Clone, Debug)]
    struct Asked {
        host: String,
        path: String,
        method: String,
        client: String,
        customer: String,
        /// Names and values, by the letter of their kind.
        fields: Vec<(char, String, String)>,
    }

    impl Asked {
        fn of(&self, kind: char) -> impl Iterator<Item = (&str, &str)> {
            self.fields.iter().filter(move |(of, ..)| *of == kind).map(|(_, name, value)| (&**name, &**value))
        }

        fn meets(&self, kind: char, condition: &str) -> bool {
            let (name, wanted) = condition.split_once('=').unwrap();
            let mut values = self.of(kind).filter(|(other, _)| *other == name).map(|(_, value)| value);
            match wanted {
                "*" => values.next().is_some(),
                "!" => values.next().is_none(),
                wanted => values.any(|value| value == wanted),
            }
        }
    }

    /// The rules at the top of this file, over a plain list.
    fn reference(lines: &[String], asked: &Asked) -> Option<usize> {
        let Asked { host, path, method, client, customer, .. } = asked;
        let matching = lines.iter().enumerate().filter_map(|(i, line)| {
            let words: Vec<&str> = line.split(' ').collect();
            let pattern = words[0];
            let (is_exact, prefix) = match words[1].strip_prefix('=') {
                Some(path) => (true, path),
                None => (false, words[1].trim_end_matches('/')),
            };
            let starting = |with: char| words[2..].iter().filter_map(move |word| word.strip_prefix(with));
            let (customers, clients): (Vec<&str>, Vec<&str>) = (starting('$').collect(), starting('@').collect());
            let conditions = |kind: char| starting(kind).map(|rest| &rest[1..]).collect::<Vec<_>>();
            let [headers, query, cookies] = ['h', 'q', 'c'].map(conditions);
            let methods: Vec<&str> =
                words[2..].iter().copied().filter(|word| word.starts_with(char::is_uppercase)).collect();
            let host_rank = match pattern.strip_prefix("*.") {
                _ if pattern == "any" => Some(0),
                Some(domain) => host.ends_with(&format!(".{domain}")).then_some(domain.len()),
                None => (host == pattern).then_some(usize::MAX),
            }?;
            let below = path.strip_prefix(prefix)?;
            let meets_all = |kind: char, conditions: &[&str]| conditions.iter().all(|one| asked.meets(kind, one));
            let matches = (below.is_empty() || !is_exact && below.starts_with('/'))
                && (methods.is_empty() || methods.contains(&&**method))
                && (clients.is_empty() || clients.contains(&&**client))
                && (customers.is_empty() || customers.contains(&&**customer))
                && meets_all('h', &headers)
                && meets_all('q', &query)
                && meets_all('c', &cookies);
            let rank = (
                (!customers.is_empty(), host_rank, is_exact, prefix.len(), !clients.is_empty(), !methods.is_empty()),
                (headers.len() + cookies.len(), query.len()),
            );
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
        // Names of one kind differ, as in a table of the file.
        let conditions = "( h:a=[12*!])?( h:b=[1*])?( q:a=[12*!])?( q:b=1)?( c:a=[1*!])?";
        (pattern, "=?", path(), "( GET)?( PUT)?( @x)?( @y)?( \\$p)?( \\$q)?", conditions)
            .prop_map(|(pattern, exact, path, lists, conditions)| format!("{pattern} {exact}{path}{lists}{conditions}"))
    }

    fn asked() -> impl Strategy<Value = Asked> {
        let field = (prop_oneof![Just('h'), Just('q'), Just('c')], "[ab]", "[123]");
        (host(), path(), "GET|PUT|POST", "x|y|z", "p|q|r", prop::collection::vec(field, 0..5)).prop_map(
            |(host, path, method, client, customer, fields)| Asked { host, path, method, client, customer, fields },
        )
    }

    proptest! {
        #[test]
        fn lookups_agree_with_the_rules_over_a_plain_list(
            lines in prop::collection::vec(line(), 0..12),
            requests in prop::collection::vec(asked(), 1..20),
        ) {
            let table = table(&lines.iter().map(String::as_str).collect::<Vec<_>>());
            for asked in requests {
                let (method, names) = (asked.method.parse().unwrap(), [asked.client.as_str().into()]);
                let joined = |kind, by: &str| {
                    asked.of(kind).map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(by)
                };
                let (query, cookies) = (joined('q', "&"), joined('c', "; "));
                let mut headers = HeaderMap::new();
                for (name, value) in asked.of('h').chain([("cookie", &*cookies)]) {
                    headers.append(HeaderName::try_from(name).unwrap(), HeaderValue::try_from(value).unwrap());
                }
                let query = RouteQuery {
                    host: &asked.host,
                    path: &asked.path,
                    method: &method,
                    client_names: &names,
                    customer: Some(asked.customer.as_bytes()),
                    fields: &RequestFields::new(&headers, Some(&query), None),
                };
                prop_assert_eq!(table.find(&query).copied(), reference(&lines, &asked), "{:?}", asked);
            }
        }
    }
}
