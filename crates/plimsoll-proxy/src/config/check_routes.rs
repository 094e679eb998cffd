//! Routes that can never match, and matches and actions of a route that contradict each other.
//!
//! The most specific route wins, in any order of the file. So only routes for the very same host and path
//! compete, if both list customers or both do not. Between those the order is that of
//! [`crate::route`]: clients listed, methods listed, more header fields and cookies, more query
//! parameters, the earlier place in the file. A route is dead if earlier ones of the same rank take
//! all its requests, one of them or several together.
//!
//! The search for redirects that lead to themselves is cautious: it reports only certain loops. It
//! asks neither DNS nor the balancers in front. `crate::route` finds the others at run time.

use std::collections::BTreeSet;

use http::Method;
use plimsoll_config::Checker;
use plimsoll_tls_config::ClientCertificate;
use plimsoll_wire::hop::Claim;

use super::conditions::{Condition, Wanted};
use super::listener::Listener;
use super::raw::RawConfig;
use super::redirect::{Redirect, UrlScheme};
use super::route::{HostPattern, Route};

/// Reports the problems of route `i`.
pub(super) fn check(raw: &RawConfig, i: usize, checker: &mut Checker<'_>) {
    let (path, route) = (format!("routes[{i}]"), &raw.routes[i]);
    paths(&path, route, checker);
    methods(&path, route, checker);
    conditions(&path, raw, route, checker);
    clients_and_customers(&path, raw, route, checker);
    let claims: Vec<_> = raw.listeners.iter().flat_map(Listener::believed_fields).collect();
    for (key, rules) in [("request_headers", &route.request_headers), ("response_headers", &route.response_headers)] {
        if let Some(rules) = rules {
            rules.check(&format!("{path}.{key}"), &claims, checker);
        }
    }
    if route.response_headers.is_some() && route.black_hole && checker.is_readable(&format!("{path}.black_hole")) {
        let reason = "has no effect: the route gives no response";
        checker.report(format!("{path}.response_headers"), reason, "remove it");
    }
    if let Some(redirect) = &route.redirect {
        let at = format!("{path}.redirect");
        redirect.check(&at, route.path.is_some(), checker);
        if let Some(listener) = listeners(raw, route).find(|listener| leads_to_itself(raw, i, redirect, listener)) {
            let tls = if listener.tls.is_some() { " (TLS)" } else { "" };
            let reason = format!("leads requests of listener \"{}\"{tls} to this route again", listener.name);
            let help = match redirect {
                Redirect { host: None, port: None, path: None, prefix: None, .. } => {
                    "list the listeners without TLS in the listeners of the route"
                }
                _ => "redirect to another host or path, or add a route for the target",
            };
            checker.report(at, reason, help);
        }
    }
    let shadowing = shadowing(raw, i);
    if !shadowing.is_empty() {
        let names: Vec<String> = shadowing.iter().map(|j| format!("routes[{j}]")).collect();
        let verb = if names.len() == 1 { "takes" } else { "take" };
        let reason = format!("no request gets here: {} {verb} all requests for {route}", names.join(" and "));
        checker.report(path, reason, "give it another host, path_prefix or methods, or remove it");
    }
}

/// The listeners with requests for this route.
fn listeners<'r>(raw: &'r RawConfig, route: &'r Route) -> impl Iterator<Item = &'r Listener> {
    raw.listeners.iter().filter(|listener| route.applies_to(&listener.name))
}

/// A route matches one path or a prefix, and rewrites it in one way.
fn paths(path: &str, route: &Route, checker: &mut Checker<'_>) {
    let is_exact = route.path.is_some();
    if is_exact && !route.path_prefix.as_str().is_empty() {
        let reason = "the route matches a path_prefix already";
        checker.report(format!("{path}.path"), reason, "remove one of them");
    }
    if route.prefix_rewrite.is_none() {
        return;
    }
    let at = format!("{path}.prefix_rewrite");
    if route.path_rewrite.is_some() {
        checker.report(at, "the route has a path_rewrite already", "remove one of them");
    } else if is_exact {
        let help = "write path_rewrite, or path_prefix in place of path";
        checker.report(at, "the route matches one path, and no prefix", help);
    }
}

/// Requests with these methods never come as far as the routes.
fn methods(path: &str, route: &Route, checker: &mut Checker<'_>) {
    for (k, method) in route.methods.iter().enumerate() {
        let help = match *method {
            Method::CONNECT => "remove it; a WebSocket on HTTP/2 counts as GET",
            Method::TRACE => "remove it",
            _ => continue,
        };
        let reason = format!("no request gets here: {method} is refused before a route is chosen");
        checker.report(format!("{path}.methods[{k}]"), reason, help);
    }
}

/// Conditions on fields that listeners remove from requests, or that have settings of their own.
fn conditions(path: &str, raw: &RawConfig, route: &Route, checker: &mut Checker<'_>) {
    for Condition { name, wanted } in &route.headers {
        let at = format!("{path}.headers.{name}");
        let is_own = |listener: &Listener| listener.believed_fields().any(|own| own.as_str() == name);
        if raw.listeners.iter().any(|listener| listener.customer_headers().any(|own| own.as_str() == name)) {
            let help = "write customers = [\"...\"] in the route";
            checker.report(at, format!("\"{name}\" names the customer"), help);
        } else if raw.listeners.iter().any(is_own)
            && let Some(listener) = listeners(raw, route).find(|listener| !is_own(listener))
        {
            let reason = format!("listener \"{}\" does not believe \"{name}\", which another one does", listener.name);
            let help = "name the listeners that believe it in the listeners of the route";
            checker.report(at, reason, help);
        } else if http::HeaderName::from_bytes(name.as_bytes()).is_ok_and(|name| Claim::of(&name).is_some())
            && listeners(raw, route).next().is_some()
            && listeners(raw, route).all(|listener| listener.trusted_proxies.is_empty())
        {
            let effect = if *wanted == Wanted::Absent { "has no effect" } else { "no request gets here" };
            let reason = format!("{effect}: \"{name}\" counts only from trusted_proxies, and there are none");
            checker.report(
                at,
                reason,
                "add trusted_proxies = [\"10.0.0.0/8\"] to a listener of the route, or remove it",
            );
        }
    }
}

/// One listener must know both the clients and the customers of a route.
fn clients_and_customers(path: &str, raw: &RawConfig, route: &Route, checker: &mut Checker<'_>) {
    if route.client_names.is_empty() || route.customers.is_empty() {
        return;
    }
    let has_names =
        |listener: &Listener| listener.tls.as_ref().is_some_and(|tls| tls.client_certificate != ClientCertificate::Off);
    let has_customers = |listener: &Listener| listener.knows_customers();
    let of_route: Vec<&Listener> = listeners(raw, route).collect();
    let is_known = |has: &dyn Fn(&Listener) -> bool| of_route.iter().any(|listener| has(listener));
    if is_known(&has_names)
        && is_known(&has_customers)
        && !is_known(&|listener| has_names(listener) && has_customers(listener))
    {
        let reason = "no request gets here: no listener has both customers and certificates of clients";
        let help =
            "add customer or customer_header to the listener with client_ca, or remove client_names or customers";
        checker.report(format!("{path}.customers"), reason, help);
    }
}

/// Whether a request of this listener that follows the redirect certainly comes to route `i` again.
fn leads_to_itself(raw: &RawConfig, i: usize, redirect: &Redirect, listener: &Listener) -> bool {
    let route = &raw.routes[i];
    // Behind trusted proxies the client's scheme may be another than the listener's.
    let is_same_scheme =
        |scheme| scheme == UrlScheme::of(listener.tls.is_some()) && listener.trusted_proxies.is_empty();
    let is_same_place = redirect.scheme.is_none_or(is_same_scheme)
        && redirect.port.is_none_or(|port| Some(port) == listener.address.port());
    if redirect.is_empty() || !is_same_place {
        return false;
    }
    let host = redirect.host.as_deref();
    let target = match (&redirect.path, &redirect.prefix) {
        (Some(path), _) => Some(path.as_str()),
        (None, Some(prefix)) => Some(if prefix.as_str().is_empty() { "/" } else { prefix.as_str() }),
        (None, None) => None,
    };
    if host.is_none() && target.is_none() {
        return true;
    }
    let takes = |other: &Route| {
        let takes_host = match (host, &other.host, &route.host) {
            (Some(host), Some(pattern), _) => pattern.includes(host),
            (None, Some(HostPattern::Exact(host)), Some(HostPattern::Exact(own))) => host == own,
            _ => true,
        };
        takes_host && target.is_none_or(|target| takes_path(other, target))
    };
    let may_take = |(j, other): (usize, &Route)| {
        j != i && other.applies_to(&listener.name) && takes(other) && !is_less_specific(other, route)
    };
    takes(route) && !raw.routes.iter().enumerate().any(may_take)
}

/// Whether `route` comes before `other`, by host and path.
fn is_less_specific(other: &Route, route: &Route) -> bool {
    let rank = |route: &Route| {
        let host = match &route.host {
            None => 0,
            Some(HostPattern::Below(domain)) => domain.len(),
            Some(HostPattern::Exact(_)) => usize::MAX,
        };
        (!route.customers.is_empty(), host, route.path.is_some(), route.path_prefix.as_str().len())
    };
    rank(other) < rank(route)
}

fn takes_path(route: &Route, path: &str) -> bool {
    match &route.path {
        Some(own) => own.as_str() == path,
        None => {
            let rest = path.strip_prefix(route.path_prefix.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        }
    }
}

/// The path or prefix, and whether it is a path.
fn path_of(route: &Route) -> (bool, &str) {
    match &route.path {
        Some(path) => (true, path.as_str()),
        None => (false, route.path_prefix.as_str()),
    }
}

/// The earlier routes that take all requests of route `i`; empty if they leave some to it.
fn shadowing(raw: &RawConfig, i: usize) -> BTreeSet<usize> {
    let route = &raw.routes[i];
    let is_rival = |other: &Route| {
        other.host == route.host
            && path_of(other) == path_of(route)
            && is_same_rank(other, route)
            && implies(&route.headers, &other.headers)
            && implies(&route.query, &other.query)
            && implies(&route.cookies, &other.cookies)
    };
    let rivals: Vec<(usize, &Route)> =
        raw.routes[..i].iter().enumerate().filter(|(_, other)| is_rival(other)).collect();
    if rivals.is_empty() {
        return BTreeSet::new();
    }
    // One that takes all comes first: it says more than several that do so together.
    let takes_all = |other: &Route| {
        let listeners = match route.listeners[..] {
            [] => other.listeners.is_empty(),
            ref names => names.iter().all(|name| other.applies_to(name)),
        };
        listeners
            && contains(&other.customers, &route.customers)
            && contains(&other.client_names, &route.client_names)
            && contains(&other.methods, &route.methods)
    };
    if let Some((j, _)) = rivals.iter().find(|(_, other)| takes_all(other)) {
        return BTreeSet::from([*j]);
    }
    let mut taking = BTreeSet::new();
    let listeners: Vec<&str> = match route.listeners[..] {
        [] => raw.listeners.iter().map(|listener| listener.name.as_str()).collect(),
        ref names => names.iter().map(String::as_str).collect(),
    };
    for listener in listeners {
        for customer in each(&route.customers) {
            for client in each(&route.client_names) {
                for method in each(&route.methods) {
                    let takes = |other: &Route| {
                        other.applies_to(listener)
                            && customer.is_none_or(|one| other.customers.contains(one))
                            && client.is_none_or(|one| other.client_names.contains(one))
                            && method.is_none_or(|one| other.methods.contains(one))
                    };
                    match rivals.iter().find(|(_, other)| takes(other)) {
                        Some((j, _)) => taking.insert(*j),
                        None => return BTreeSet::new(),
                    };
                }
            }
        }
    }
    taking
}

/// The elements of a list, or `None` once for an empty one, which stands for any.
fn each<T>(list: &[T]) -> impl Iterator<Item = Option<&T>> {
    list.iter().map(Some).chain(list.is_empty().then_some(None))
}

/// Whether the order of the file decides between the two.
fn is_same_rank(other: &Route, route: &Route) -> bool {
    let rank = |route: &Route| {
        let fields = route.headers.len() + route.cookies.len();
        let (customers, clients) = (route.customers.is_empty(), route.client_names.is_empty());
        (customers, clients, route.methods.is_empty(), fields, route.query.len())
    };
    rank(other) == rank(route)
}

/// Whether each request that meets all of `conditions` meets all `others`.
fn implies(conditions: &[Condition], others: &[Condition]) -> bool {
    others.iter().all(|other| conditions.iter().any(|one| other.is_implied_by(one)))
}

fn contains<T: PartialEq>(list: &[T], other: &[T]) -> bool {
    list.is_empty() == other.is_empty() && other.iter().all(|one| list.contains(one))
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    fn problems(routes: &str) -> Vec<String> {
        let text = format!(
            "[[listeners]]\naddress = \"127.0.0.1:80\"\nname = \"plain\"\n[[listeners]]\naddress = \"127.0.0.1:81\"\n\
             name = \"second\"\n{routes}\n[clusters.a]\nbackends = [\"10.0.0.1:80\"]\n"
        );
        match Config::parse("test", &text) {
            Ok(_) => Vec::new(),
            Err(error) => {
                error.problems().iter().map(|problem| format!("{}: {}", problem.path, problem.reason)).collect()
            }
        }
    }

    /// Routes to one cluster, one a line; the place of the first dead one.
    fn dead(lines: &[&str]) -> Option<String> {
        let routes: String = lines.iter().map(|line| format!("[[routes]]\ncluster = \"a\"\n{line}\n")).collect();
        let problems = problems(&routes);
        assert!(problems.len() < 2, "{problems:?}");
        problems.into_iter().next()
    }

    #[test]
    fn route_is_dead_when_earlier_ones_of_its_rank_take_all_its_requests() {
        for lines in [
            &["", "headers = { a = \"1\" }"][..],
            &["headers = { a = \"1\" }", ""],
            &["headers = { a = \"1\" }", "headers = { a = true }"],
            &["headers = { a = \"1\" }", "headers = { a = \"2\" }"],
            &["headers = { a = true }", "headers = { a = \"1\", b = true }"],
            &["headers = { a = true }", "cookies = { a = true }"],
            &["query = { a = true }", "headers = { a = true }"],
            &["path_prefix = \"/x\"", "path = \"/x\""],
            &["methods = [\"GET\"]", "methods = [\"GET\", \"PUT\"]"],
            &["methods = [\"GET\", \"PUT\"]\nlisteners = [\"plain\"]", "methods = [\"GET\"]"],
            &["headers = { a = false }", "headers = { a = \"1\" }"],
        ] {
            assert_eq!(dead(lines), None, "{lines:?}");
        }
        let one = "routes[1]: no request gets here: routes[0] takes all requests for";
        for (lines, start) in [
            (&["", ""][..], one),
            (&["headers = { a = true }", "headers = { a = \"1\" }"], one),
            (&["headers = { a = \"1\" }", "headers = { A = \"1\" }"], one),
            (&["headers = { a = false }", "headers = { a = false }"], one),
            (&["cookies = { a = true }\nquery = { b = \"1\" }", "query = { b = \"1\" }\ncookies = { a = \"x\" }"], one),
            (&["path = \"/x\"", "path = \"/%78\""], one),
            (&["methods = [\"GET\"]", "methods = [\"GET\"]\nlisteners = [\"plain\"]"], one),
            (
                &["methods = [\"GET\"]", "methods = [\"PUT\"]", "methods = [\"PUT\", \"GET\"]"],
                "routes[2]: no request gets here: routes[0] and routes[1] take all requests for / PUT GET",
            ),
            (
                &["listeners = [\"plain\"]", "listeners = [\"second\"]", ""],
                "routes[2]: no request gets here: routes[0] and routes[1] take all requests for /",
            ),
        ] {
            let found = dead(lines).unwrap_or_default();
            assert!(found.starts_with(start), "{lines:?}: {found}");
        }
    }

    #[test]
    fn redirect_is_a_problem_only_when_it_certainly_leads_to_itself() {
        let cluster = "[[routes]]\npath_prefix = \"/c\"\ncluster = \"a\"\n";
        for redirect in [
            "redirect = \"https\"",
            "host = \"a.com\"\nredirect = { host = \"www.a.com\" }",
            "path_prefix = \"/old\"\nredirect = { prefix = \"/new\" }",
            "path = \"/old\"\nredirect = { path = \"/old/new\" }",
            "path_prefix = \"/old\"\nredirect = { host = \"b.com\", prefix = \"/old\", port = 8080 }",
        ] {
            let found = problems(&format!("[[routes]]\n{redirect}\n{cluster}"));
            assert_eq!(found, Vec::<String>::new(), "{redirect}");
        }
        for redirect in [
            "redirect = { scheme = \"http\" }",
            "redirect = { host = \"www.a.com\" }",
            "host = \"*.a.com\"\nredirect = { host = \"www.a.com\" }",
            "path_prefix = \"/old\"\nredirect = { prefix = \"/old/new\" }",
            "path_prefix = \"/old\"\nredirect = { path = \"/old\" }",
            "redirect = { path = \"/new\" }",
        ] {
            let found = problems(&format!("[[routes]]\n{redirect}\n"));
            assert_eq!(found.len(), 1, "{redirect}: {found:?}");
            assert!(found[0].contains("to this route again"), "{redirect}: {found:?}");
        }
        // A route for the target ends it.
        let target = "[[routes]]\npath_prefix = \"/new\"\ncluster = \"a\"\n";
        assert_eq!(problems(&format!("[[routes]]\nredirect = {{ path = \"/new\" }}\n{target}")), Vec::<String>::new());
        let target = "[[routes]]\nhost = \"www.a.com\"\ncluster = \"a\"\n";
        assert_eq!(
            problems(&format!("[[routes]]\nredirect = {{ host = \"www.a.com\" }}\n{target}")),
            Vec::<String>::new()
        );
    }
}
