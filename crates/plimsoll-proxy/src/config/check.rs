//! Checks over several settings of a file: names must exist, times must fit, routes must be
//! reachable.
//!
//! When a rule is left out, and that a default gives way, is decided in [`Checker`].

use std::collections::BTreeMap;

use plimsoll::address::Address;
use plimsoll::client::Protocol;
use plimsoll_config::{Checker, Places, check_balancer, help_for_name};
use plimsoll_core::pick::ProbeSource;
use plimsoll_core::subset::{Algorithm, SubsetConfig};
use plimsoll_fleet::Name;
use plimsoll_tls_config::ClientCertificate;

use super::Problem;
use super::check_routes;
use super::cluster::Cluster;
use super::customer::{CustomerLimits, CustomerName};
use super::customer_source::{CustomerSource, name_flaw};
use super::discovery::ETCD_HELP;
use super::health::Kind;
use super::listener::{LEAST_MAX_HEADER_SIZE, Listener};
use super::named::{cohort_header_matters, customers_matter, limits_requests};
use super::raw::RawConfig;
use super::route::{Leads, Route};
use super::split::SplitKey;
use super::subset::Identity;

/// Help for a bad name.
const NAME_HELP: &str = "use letters, digits, \"-\", \"_\" and \".\": the name stands in URLs and metrics";

/// Help for a setting that only a gate uses.
const INBOUND_HELP: &str = "add [clusters.NAME.inbound] with pid_file = \"/run/app.pid\", or remove it";

/// Help where no listener knows customers.
const CUSTOMER_HELP: &str = "add customer = \"address\" to a listener, or customer_header = \"x-customer\" to one that only \
                             trusted clients reach";

/// Help where no gate, limit or route uses customers.
const CUSTOMERS_HELP: &str = "add requests_per_second = 10 to [other_customers], [clusters.NAME.inbound] with pid_file = \
                              \"/run/app.pid\", or a route with customers = [\"...\"], or remove it";

/// The reason where no listener knows customers.
const NO_CUSTOMERS: &str = "has no effect: no listener has a customer or customer_header";

/// Whether `name` has only characters that a name may have.
fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// Adds contradictions among the settings of `raw` to `problems`, and fits defaults to the
/// settings.
pub(super) fn check(raw: &mut RawConfig, places: &Places, problems: Vec<Problem>) -> Vec<Problem> {
    let mut rules = Rules { checker: Checker::new(places, problems) };
    rules.name_listeners(raw);
    rules.whole(raw);
    rules.checker.order("drain", ("announce", &mut raw.drain.announce), ("timeout", raw.drain.timeout));
    raw.stale_answers.check(&mut rules.checker);
    rules.customers(raw);
    rules.quota(raw);
    if let Some(tracing) = &raw.tracing {
        tracing.check(&mut rules.checker);
    }
    rules.listeners(raw);
    for (i, route) in raw.routes.iter().enumerate() {
        rules.route(raw, i, route);
    }
    rules.identity(&raw.client, raw.etcd.is_some());
    for (name, cluster) in &mut raw.clusters {
        rules.cluster(name, cluster);
        if let Some(inbound) = &cluster.inbound {
            let path = format!("clusters.{name}.inbound");
            inbound.check(&path, &mut rules.checker);
            inbound.check_backends(&path, &cluster.backends, &mut rules.checker);
        }
        cluster.throttle.check(&format!("clusters.{name}.throttle"), &mut rules.checker);
        cluster.load_reports.check(&format!("clusters.{name}.load_reports"), &mut rules.checker);
        cluster.retry.check(&format!("clusters.{name}.retry"), &mut rules.checker);
        rules.subset(name, cluster, &raw.client);
        if cluster.probes.is_none() && cluster.balancer.prequal.source == ProbeSource::Frugal {
            let help = format!("add [clusters.{name}.probes], or use \"responses\"");
            rules.checker.report(format!("clusters.{name}.prequal.source"), "there are no probes", help);
        }
        if let Some(probes) = &cluster.probes {
            probes.check(&format!("clusters.{name}"), &cluster.backends, &cluster.health, &mut rules.checker);
        }
        if let Some(discovery) = &cluster.discovery {
            discovery.check(&format!("clusters.{name}.discovery"), raw.etcd.is_some(), &mut rules.checker);
        }
    }
    rules.loops(raw);
    rules.checker.into_problems()
}

/// The rules of this file.
struct Rules<'p> {
    checker: Checker<'p>,
}

impl Rules<'_> {
    fn report(&mut self, path: impl Into<String>, reason: impl Into<String>, help: impl Into<String>) {
        self.checker.report(path, reason, help);
    }

    /// Gives each listener that the file does not name its address as the name.
    fn name_listeners(&self, raw: &mut RawConfig) {
        for (i, listener) in raw.listeners.iter_mut().enumerate() {
            let path = format!("listeners[{i}].name");
            if !self.checker.is_set(&path) || !self.checker.is_readable(&path) {
                listener.name = listener.address.to_string();
            }
        }
    }

    /// Reports backends that are the very listener whose requests they are to answer: each would
    /// come in again, for ever.
    fn loops(&mut self, raw: &RawConfig) {
        for route in &raw.routes {
            let mirror = route.mirror.iter().map(|mirror| mirror.cluster.as_str());
            let clusters =
                || route.clusters().chain(mirror.clone()).filter_map(|name| raw.clusters.get_key_value(name));
            for listener in raw.listeners.iter().filter(|listener| route.applies_to(&listener.name)) {
                for (name, cluster) in clusters() {
                    for (k, backend) in cluster.backends.iter().enumerate() {
                        if backend.address.known().is_some_and(|address| reaches(address, listener.address)) {
                            self.report(
                                format!("clusters.{name}.backends[{k}]"),
                                format!(
                                    "{} is the listener \"{}\", so its requests would loop",
                                    backend.address, listener.name
                                ),
                                "write the address of the service, not of the proxy",
                            );
                        }
                    }
                }
            }
        }
    }

    /// Checks that limits of customers are enforced: those in CPUs by a gate, those on requests by a
    /// listener that knows customers.
    fn customers(&mut self, raw: &RawConfig) {
        let others = &raw.other_customers;
        let named = raw.customers.iter().map(|(name, limits)| (format!("customers.{name}"), limits));
        let others = (*others != CustomerLimits::default()).then(|| ("other_customers".to_owned(), others));
        let are_named = raw.listeners.iter().any(Listener::knows_customers);
        let limits_requests = limits_requests(raw);
        let has_gate = raw.clusters.values().any(|cluster| cluster.inbound.is_some());
        for (path, limits) in named.chain(others) {
            limits.check(&path, &mut self.checker);
            if let Some(Err(flaw)) = path.strip_prefix("customers.").map(CustomerName::parse) {
                self.report(&path, flaw.reason, flaw.help);
            }
            if !has_gate && (limits.limits_cpu() || !limits_requests) {
                let path = match (limits.requests_per_second, limits.hard_limit) {
                    (None, _) => path.clone(),
                    (Some(_), Some(_)) => format!("{path}.hard_limit"),
                    (Some(_), None) => format!("{path}.soft_limit"),
                };
                self.report(path, "has no effect: limits in CPUs need a cluster with inbound", INBOUND_HELP);
            } else if !are_named {
                self.report(&path, NO_CUSTOMERS, CUSTOMER_HELP);
            }
            if let Some(name) = path.strip_prefix("customers.") {
                self.customer_name(raw, &path, name);
            }
        }
    }

    /// Checks that a customer of this name can come.
    fn customer_name(&mut self, raw: &RawConfig, path: &str, name: &str) {
        let sources: Vec<CustomerSource> = raw.listeners.iter().flat_map(Listener::customer_sources).collect();
        let are_readable = (0..raw.listeners.len()).all(|i| {
            ["customer", "customer_header"].iter().all(|key| self.checker.is_readable(&format!("listeners[{i}].{key}")))
        });
        if let Some(flaw) = name_flaw(name, &sources).filter(|_| are_readable) {
            self.report(path, flaw.reason, flaw.help);
        }
    }

    /// Checks that the quota server has a gate to serve, and customers.
    fn quota(&mut self, raw: &RawConfig) {
        let Some(quota) = &raw.quota else { return };
        quota.check(&mut self.checker);
        if !raw.clusters.values().any(|cluster| cluster.inbound.is_some()) {
            self.report("quota", "has no effect: limits need a cluster with inbound", INBOUND_HELP);
        } else if !raw.listeners.iter().any(Listener::knows_customers) {
            self.report("quota", NO_CUSTOMERS, CUSTOMER_HELP);
        }
    }

    fn whole(&mut self, raw: &RawConfig) {
        if raw.listeners.is_empty() {
            self.report("listeners", "there is no listener", "add [[listeners]] with address = \"0.0.0.0:8080\"");
        }
        if raw.clusters.is_empty() {
            self.report("clusters", "there is no cluster", "add [clusters.web] with backends = [\"10.0.0.1:8080\"]");
        }
        if raw.routes.is_empty() {
            let cluster = raw.clusters.keys().next().map_or("web", String::as_str);
            self.report(
                "routes",
                "there is no route, so every request would get 404",
                format!("add [[routes]] with cluster = \"{cluster}\""),
            );
        }
    }

    fn listeners(&mut self, raw: &RawConfig) {
        let is_known = |name: &String| raw.listeners.iter().any(|listener| listener.name == *name);
        let names_are_known = raw.routes.iter().flat_map(|route| &route.listeners).all(is_known);
        for (i, listener) in raw.listeners.iter().enumerate() {
            let path = format!("listeners[{i}]");
            for (j, other) in raw.listeners[..i].iter().enumerate() {
                if overlap(listener.address, other.address) {
                    let reason = format!("{} is taken by listeners[{j}] ({})", listener.address, other.address);
                    self.report(format!("{path}.address"), reason, "give each listener an address of its own");
                } else if listener.name == other.name && listener.address.port() != Some(0) {
                    let reason = format!("\"{}\" is the name of listeners[{j}] too", listener.name);
                    self.report(format!("{path}.name"), reason, "give each listener a name of its own");
                }
            }
            if listener.name != listener.address.to_string() && !is_name(&listener.name) {
                let reason = format!("\"{}\" is not a name for a listener", listener.name);
                self.report(format!("{path}.name"), reason, NAME_HELP);
            }
            if raw.admin.listen.is_some_and(|admin| overlap(listener.address, admin.into())) {
                let reason = format!("{} is the address of the admin API", listener.address);
                self.report(format!("{path}.address"), reason, "choose another port here or for admin.listen");
            }
            let is_unix = listener.address.unix().is_some();
            let trusts_any = if is_unix { listener.trusts_unix() } else { !listener.trusted_proxies.is_empty() };
            if listener.proxy_protocol.is_some() && !trusts_any {
                let reason = "no proxy is trusted, so every connection would be closed";
                let help = match is_unix {
                    true => "add \"unix:\" to trusted_proxies: the proxies in front are clients of the Unix socket",
                    false => "add trusted_proxies = [\"10.0.0.0/8\"], the addresses of the load balancers in front",
                };
                self.report(format!("{path}.proxy_protocol"), reason, help);
            }
            self.unix_socket(&path, listener);
            if listener.cohort_header.is_some() && !cohort_header_matters(raw, listener) {
                let reason = "has no effect: no cluster of its routes has inbound";
                self.report(format!("{path}.cohort_header"), reason, INBOUND_HELP);
            }
            self.customers_of(raw, &path, listener);
            if listener.batch.is_some()
                && let Some(cluster) =
                    raw.routes.iter().filter(|route| route.applies_to(&listener.name)).find_map(|route| {
                        let has_gate =
                            |name: &&str| raw.clusters.get(*name).is_some_and(|cluster| cluster.inbound.is_some());
                        route.clusters().find(has_gate)
                    })
            {
                let reason = format!("inbound of cluster \"{cluster}\" would shed requests before they could wait");
                let help = "route its requests to a cluster without inbound, or remove it";
                self.report(format!("{path}.batch"), reason, help);
            }
            if let Some(priority) = &listener.priority {
                priority.check(&format!("{path}.priority"), &mut self.checker);
            }
            if let Some(probes) = &listener.probes {
                probes.check(&format!("{path}.probes"), listener.address, listener.share_port, &mut self.checker);
            }
            if listener.max_header_size < LEAST_MAX_HEADER_SIZE {
                let reason = "is too small for ordinary requests";
                self.report(format!("{path}.max_header_size"), reason, "write at least \"8KiB\"");
            }
            if names_are_known
                && !raw.routes.is_empty()
                && !raw.routes.iter().any(|route| route.applies_to(&listener.name))
            {
                let reason = format!("no route takes requests from listener \"{}\"", listener.name);
                self.report(path, reason, "add it to the listeners of a route, or remove it");
            }
        }
    }

    /// Checks the settings that only a Unix socket has, and those that it lacks.
    fn unix_socket(&mut self, path: &str, listener: &Listener) {
        let Some(socket) = listener.address.unix() else {
            if listener.mode.is_some() && self.checker.is_readable(&format!("{path}.address")) {
                let reason = "has no effect: a port has no mode";
                self.report(format!("{path}.mode"), reason, "remove it: any user of the machine can connect to a port");
            }
            if listener.trusts_unix() && self.checker.is_readable(&format!("{path}.address")) {
                let reason = "\"unix:\" has no effect: the listener is at a port";
                self.report(
                    format!("{path}.trusted_proxies"),
                    reason,
                    "remove it, or write the addresses of the proxies",
                );
            }
            return;
        };
        if listener.mode.is_some() && socket.abstract_name().is_some() {
            let reason = "has no effect: an abstract socket has no file, and all users may connect";
            self.report(format!("{path}.mode"), reason, "write a path, such as \"unix:/run/plimsoll/web.sock\"");
        }
        if listener.share_port {
            let reason = "has no effect: a Unix socket has no port that processes could share";
            let help = "remove it; plimsoll upgrade replaces a process without losing a connection";
            self.report(format!("{path}.share_port"), reason, help);
        }
    }

    /// Checks the sources of customers of the listener at `path`.
    fn customers_of(&mut self, raw: &RawConfig, path: &str, listener: &Listener) {
        if listener.knows_customers() && !customers_matter(raw, listener) {
            let key = if listener.customer_header.is_some() { "customer_header" } else { "customer" };
            let reason = "has no effect: none of its routes has customers or max_stale, no cluster of theirs has inbound or \
                          max_active_requests_per_client, and there is no requests_per_second";
            self.report(format!("{path}.{key}"), reason, CUSTOMERS_HELP);
        }
        if let (Some(name), false) = (&listener.customer_header, listener.customer.is_empty()) {
            let help = format!("remove one of them: customer_header is short for customer = {{ header = \"{name}\" }}");
            self.report(format!("{path}.customer"), "the listener has a customer_header, too", help);
        }
        let asks = |listener: &Listener| {
            listener.tls.as_ref().is_some_and(|tls| tls.client_certificate != ClientCertificate::Off)
        };
        for (k, source) in listener.customer.iter().enumerate() {
            let path =
                if listener.customer.len() > 1 { format!("{path}.customer[{k}]") } else { format!("{path}.customer") };
            if *source == CustomerSource::Certificate && !asks(listener) {
                let help = "add client_ca and client_certificate = \"required\" to [listeners.tls]";
                self.report(&path, "the listener asks clients for no certificates", help);
            }
            if listener.customer[..k].contains(source) {
                self.report(&path, format!("{source} is in the list twice"), "remove one of them");
            }
            let is_always_known = matches!(listener.customer[..k].last(), Some(CustomerSource::Address));
            if is_always_known {
                let help = "put \"address\" last: each request has one";
                self.report(&path, format!("{source} is never used: it comes after \"address\""), help);
            }
        }
    }

    fn route(&mut self, raw: &RawConfig, i: usize, route: &Route) {
        let path = format!("routes[{i}]");
        if let Some(name) = &route.name {
            let at = format!("{path}.name");
            if !is_name(name) {
                self.report(at, format!("\"{name}\" is not a name for a route"), NAME_HELP);
            } else if let Some(j) = raw.routes[..i].iter().position(|other| other.name.as_ref() == Some(name)) {
                let reason = format!("\"{name}\" is the name of routes[{j}] too");
                self.report(at, reason, "give each route a name of its own");
            }
        }
        self.leads(raw, &path, route);
        for (k, name) in route.listeners.iter().enumerate() {
            if !raw.listeners.iter().any(|listener| listener.name == *name) {
                let help = help_for_name(name, raw.listeners.iter().map(|listener| listener.name.as_str()));
                self.report(format!("{path}.listeners[{k}]"), format!("there is no listener \"{name}\""), help);
            }
        }
        for (k, method) in route.methods.iter().enumerate() {
            if route.methods[..k].contains(method) {
                self.report(
                    format!("{path}.methods[{k}]"),
                    format!("{method} is in the list twice"),
                    "remove one of them",
                );
            }
        }
        if let Leads::Cluster(name) = route.leads()
            && route.exempt
            && raw.clusters.get(name).is_some_and(|cluster| cluster.inbound.is_none())
            && !limits_requests(raw)
        {
            let reason = format!("has no effect: cluster \"{name}\" has no inbound, so it sheds nothing");
            self.report(format!("{path}.exempt"), reason, INBOUND_HELP);
        }
        for (k, customer) in route.customers.iter().enumerate() {
            if route.customers[..k].contains(customer) {
                let reason = format!("\"{customer}\" is in the list twice");
                self.report(format!("{path}.customers[{k}]"), reason, "remove one of them");
            }
        }
        let mut listeners = raw.listeners.iter().filter(|listener| route.applies_to(&listener.name));
        let by_customer = route.split_by == Some(SplitKey::Customer);
        let knows_customers = listeners.any(Listener::knows_customers);
        let reason = "no listener of this route has a customer or customer_header";
        if !route.customers.is_empty() && !knows_customers {
            self.report(format!("{path}.customers"), reason, CUSTOMER_HELP);
        }
        for (k, customer) in route.customers.iter().enumerate() {
            self.customer_name(raw, &format!("{path}.customers[{k}]"), customer.as_str());
        }
        if by_customer && !knows_customers {
            self.report(format!("{path}.split_by"), reason, CUSTOMER_HELP);
        }
        let clusters = raw.clusters.iter().map(|(name, cluster)| (name.as_str(), cluster.inbound.is_some()));
        route.check_split(&path, clusters.clone().map(|(name, _)| name), &mut self.checker);
        route.check_mirror(&path, clusters, &mut self.checker);
        let asks = |listener: &&Listener| {
            route.applies_to(&listener.name)
                && listener.tls.as_ref().is_some_and(|tls| tls.client_certificate != ClientCertificate::Off)
        };
        if !route.client_names.is_empty() && raw.listeners.iter().find(asks).is_none() {
            let reason = "no listener of this route asks clients for certificates";
            let help = "add client_ca and client_certificate = \"required\" to the [listeners.tls] of one";
            self.report(format!("{path}.client_names"), reason, help);
        }
        check_routes::check(raw, i, &mut self.checker);
    }

    /// Checks that a route leads to one place, and has no settings of another.
    fn leads(&mut self, raw: &RawConfig, path: &str, route: &Route) {
        let places = [
            ("cluster", route.cluster.is_some()),
            ("split", !route.split.is_empty()),
            ("answer", route.answer.is_some()),
            ("redirect", route.redirect.is_some()),
            ("black_hole", route.black_hole),
        ];
        let named: Vec<_> = places.into_iter().filter(|(_, is_there)| *is_there).map(|(key, _)| key).collect();
        match named[..] {
            // Unreadable settings were reported already.
            [] if *route == Route::default() && !self.checker.is_readable(path) => {}
            [] if places.iter().all(|(key, _)| self.checker.is_readable(&format!("{path}.{key}"))) => {
                let help = "add cluster = \"...\", [[routes.split]], answer = { status = 403 }, redirect = \"https\" or \
                            black_hole = true";
                self.report(format!("{path}.cluster"), "is missing: the route leads nowhere", help);
            }
            [first, second, ..] => {
                let reason = format!("the route leads to its {first} already");
                self.report(format!("{path}.{second}"), reason, "remove one of them");
            }
            _ => {}
        }
        match route.leads() {
            Leads::Cluster(name) if !raw.clusters.contains_key(name) && !raw.clusters.is_empty() => {
                let help = help_for_name(name, raw.clusters.keys().map(String::as_str));
                self.report(format!("{path}.cluster"), format!("there is no cluster \"{name}\""), help);
            }
            Leads::Cluster(_) | Leads::Split(_) => {}
            Leads::Answer(_) | Leads::Redirect(_) | Leads::BlackHole => {
                let of_clusters = [
                    ("request_timeout", route.request_timeout.is_some()),
                    ("host_rewrite", route.host_rewrite.is_some()),
                    ("prefix_rewrite", route.prefix_rewrite.is_some()),
                    ("path_rewrite", route.path_rewrite.is_some()),
                    ("criticality", route.criticality.is_some()),
                    ("exempt", route.exempt),
                    ("ambiguous_paths", route.ambiguous_paths),
                    ("degraded", route.degraded.is_some()),
                    ("request_headers", route.request_headers.is_some()),
                    ("mirror", route.mirror.is_some()),
                ];
                for (key, _) in of_clusters.into_iter().filter(|(_, is_there)| *is_there && !named.is_empty()) {
                    let reason = "has no effect: the route leads to no cluster";
                    self.report(format!("{path}.{key}"), reason, "remove it");
                }
            }
        }
        if let Some(answer) = &route.answer {
            answer.check(&format!("{path}.answer"), &mut self.checker);
        }
        if let Some(degraded) = &route.degraded {
            degraded.check(&format!("{path}.degraded"), &mut self.checker);
        }
    }

    fn cluster(&mut self, name: &str, cluster: &mut Cluster) {
        let path = format!("clusters.{name}");
        if !is_name(name) {
            let reason = format!("\"{name}\" is not a name for a cluster");
            self.report(&path, reason, NAME_HELP);
        }
        self.backends(&path, cluster);
        let mut first: BTreeMap<_, usize> = BTreeMap::new();
        for (k, backend) in cluster.backends.iter().enumerate().filter(|(_, backend)| backend.address.is_set()) {
            if let Some(j) = first.get(&backend.address) {
                let help = format!("remove it; for a larger share give backends[{j}] a weight");
                self.report(
                    format!("{path}.backends[{k}]"),
                    format!("{} is backends[{j}] already", backend.address),
                    help,
                );
            } else {
                first.insert(&backend.address, k);
            }
        }
        let min_connections = format!("{path}.min_connections");
        if cluster.pool.min_connections > cluster.pool.max_idle_connections {
            let reason = format!(
                "{} is more than max_idle_connections ({})",
                cluster.pool.min_connections, cluster.pool.max_idle_connections
            );
            self.report(min_connections, reason, "lower it, or raise max_idle_connections");
        } else if cluster.requests.protocol == Protocol::Http2 && !self.checker.is_set(&min_connections) {
            // All requests of a thread share it, and no server of HTTP/2 serves one connection at a
            // time.
            cluster.pool.min_connections = 1;
        }
        if cluster.proxy_protocol.is_some() && cluster.requests.protocol != Protocol::Http1 {
            if self.checker.is_set(&format!("{path}.protocol")) {
                let reason = "needs HTTP/1: connections of HTTP/2 are shared by clients";
                let help = "write protocol = \"http1\" in the cluster, or remove this";
                self.report(format!("{path}.proxy_protocol"), reason, help);
            } else {
                cluster.requests.protocol = Protocol::Http1;
            }
        }
        if cluster.ping_interval.is_some() && cluster.requests.protocol == Protocol::Http1 {
            let help = "write protocol = \"auto\" or \"http2\" in the cluster, or remove it";
            self.report(format!("{path}.ping_interval"), "has no effect: HTTP/1 has no PING", help);
        }
        if cluster.ping_timeout.is_some() && cluster.ping_interval.is_none() {
            let reason = "has no effect: no PING is sent";
            self.report(format!("{path}.ping_timeout"), reason, "add ping_interval = \"30s\", or remove it");
        }
        cluster.check_localities(&path, is_name, &mut self.checker);
        cluster.check_hash(&path, &mut self.checker);
        self.times(&path, cluster);
        check_balancer(&mut self.checker, &path, &mut cluster.balancer);
        self.health(&format!("{path}.health"), cluster);
    }

    /// A cluster has backends, or a source of them.
    fn backends(&mut self, path: &str, cluster: &Cluster) {
        let resolver = format!("{path}.resolver");
        let has_name = cluster.backends.iter().any(|backend| backend.address.known().is_none());
        if cluster.resolver.is_some() && !has_name && self.checker.is_readable(&format!("{path}.backends")) {
            let reason = "has no effect: no backend is a name";
            let help = match cluster.discovery {
                Some(_) => "move it into [clusters.NAME.discovery] for the name there, or remove it",
                None => "remove it, or write a backend as a name with a port, such as \"web.internal:8080\"",
            };
            self.report(resolver, reason, help);
        }
        let is_followed = cluster.discovery.is_some() || !self.checker.is_readable(&format!("{path}.discovery"));
        if !cluster.backends.is_empty() || is_followed {
            return;
        }
        let help = "list at least one, such as \"10.0.0.1:8080\", or add [clusters.NAME.discovery]";
        self.report(format!("{path}.backends"), "there is no backend", help);
    }

    fn identity(&mut self, identity: &Identity, has_etcd: bool) {
        if let (Some(index), Some(count)) = (identity.index, identity.count)
            && index >= count.get()
        {
            let reason = format!("{index} is out of range for {count} clients");
            self.report("client.index", reason, format!("number them from 0 to {}", count.get() - 1));
        }
        if identity.id.as_ref().is_some_and(String::is_empty) {
            self.report("client.id", "is empty", "write a name unique among the clients, or remove it");
        }
        if identity.group.is_some() {
            if !has_etcd && self.checker.is_readable("etcd") {
                self.report("client.group", "there is no etcd", ETCD_HELP);
            }
            if let Err(error) = Name::new(identity.name())
                && identity.id.as_ref().is_none_or(|id| !id.is_empty())
            {
                self.report("client.id", error.to_string(), "write a name unique among the proxies of the group");
            }
        }
    }

    /// The facts about the fleet that a subset needs.
    fn subset(&mut self, name: &str, cluster: &Cluster, identity: &Identity) {
        let path = format!("clusters.{name}.subset");
        let Some(size) = cluster.subset.size else {
            if cluster.subset.algorithm.is_some() && !self.checker.is_set(&format!("{path}.size")) {
                let help = format!("add size = {}, or remove it", SubsetConfig::DEFAULT_SIZE);
                self.report(format!("{path}.algorithm"), "has no effect without size", help);
            }
            return;
        };
        let algorithm = cluster.subset.algorithm(identity, cluster.is_numbered());
        if !cluster.is_numbered() && algorithm.needs_client_index() {
            let reason = format!("{algorithm} numbers the backends, and those of discovery have no fixed numbers");
            let help =
                "write \"rendezvous\", or give each backend an ordinal, and add ordinals = true to the discovery";
            self.report(format!("{path}.algorithm"), reason, help);
        } else if cluster.discovery.is_some() && !cluster.backends.is_empty() && algorithm.needs_client_index() {
            let reason = format!("{algorithm} numbers the backends, and those of the file have no ordinals");
            let help = "write \"rendezvous\", or move them into the list of the source";
            self.report(format!("clusters.{name}.backends"), reason, help);
        } else if algorithm == Algorithm::Ledger && identity.group.is_none() && self.checker.is_readable("client") {
            let reason = "ledger needs a group of proxies that share it in etcd";
            let help = "add [client] with group = \"edge\", and [etcd], or write \"rendezvous\"";
            self.report(format!("{path}.algorithm"), reason, help);
        } else if algorithm.needs_client_index()
            && identity.index.is_none()
            && identity.group.is_none()
            && self.checker.is_readable("client")
        {
            let reason = format!("{algorithm} needs this proxy's index among the clients of the cluster");
            let help =
                "add [client] with index = 0 in the first proxy's file, 1 in the next, ..., or write \"rendezvous\"";
            self.report(format!("{path}.algorithm"), reason, help);
        }
        if cluster.subset.coordinated(name, identity, cluster.is_numbered()).is_some()
            && let Err(error) = Name::new(name)
        {
            self.report(format!("clusters.{name}"), error.to_string(), "shorten it: it is a part of keys in etcd");
        }
        // Names may stand for several backends: the listed ones are the minimum.
        let backends = cluster.backends.len() as u64;
        if let Some(count) = identity.count
            && u64::from(count.get()) * u64::from(size.get()) < backends
        {
            let least = backends.div_ceil(u64::from(count.get()));
            let reason =
                format!("{count} clients with {size} backends each leave some of {backends} backends without a client");
            self.report(format!("{path}.size"), reason, format!("write at least {least}"));
        }
    }

    /// The times of a cluster that must fit one another.
    fn times(&mut self, path: &str, cluster: &mut Cluster) {
        let request_timeout = ("request_timeout", cluster.requests.request_timeout);
        self.checker.order(path, ("connect_timeout", &mut cluster.requests.connect_timeout), request_timeout);
        self.checker.order(path, ("queue_timeout", &mut cluster.requests.queue_timeout), request_timeout);
        if let Some(attempt) = cluster.retry.attempt_timeout.filter(|attempt| *attempt >= request_timeout.1) {
            let [attempt, request] = [attempt, request_timeout.1].map(humantime::format_duration);
            let reason = format!("{attempt} has no effect: the whole request has {request} (request_timeout)");
            let help = "write a shorter time, such as half of request_timeout, or raise request_timeout";
            self.report(format!("{path}.retry.attempt_timeout"), reason, help);
        }
        let interval = ("interval", cluster.balancer.checks.interval);
        self.checker.order(&format!("{path}.health"), ("timeout", &mut cluster.health.timeout), interval);
    }

    fn health(&mut self, path: &str, cluster: &Cluster) {
        let health = &cluster.health;
        if health.kind == Kind::Grpc && cluster.requests.protocol == Protocol::Http1 {
            let reason = "gRPC needs HTTP/2, and the cluster has protocol = \"http1\"";
            let help = match cluster.proxy_protocol {
                Some(_) => "remove proxy_protocol, which needs HTTP/1, or write another check",
                None => "write protocol = \"auto\" or \"http2\" in the cluster, or another check",
            };
            self.report(format!("{path}.check"), reason, help);
        }
        if !self.checker.is_readable(&format!("{path}.check")) {
            return;
        }
        let belongs = [
            ("path", Kind::Http, health.path.is_some()),
            ("host", Kind::Http, health.host.is_some()),
            ("service", Kind::Grpc, health.service.is_some()),
        ];
        for (key, kind, given) in belongs {
            if given && health.kind != kind {
                let reason = format!("has no effect when check = \"{}\"", health.kind.name());
                self.report(
                    format!("{path}.{key}"),
                    reason,
                    format!("write check = \"{}\", or remove it", kind.name()),
                );
            }
        }
    }
}

/// Whether the two cannot both be listened at.
fn overlap(a: Address, b: Address) -> bool {
    let (Address::Inet(a), Address::Inet(b)) = (a, b) else { return a == b };
    let any = |address: std::net::SocketAddr| address.ip().is_unspecified();
    let same_family = a.is_ipv4() == b.is_ipv4();
    a.port() != 0 && a.port() == b.port() && (a.ip() == b.ip() || same_family && (any(a) || any(b)))
}

/// Whether a connection to `to` comes in at the listener `at`, as far as can be told without asking
/// the machine for its addresses.
fn reaches(to: Address, at: Address) -> bool {
    let (Address::Inet(to), Address::Inet(at)) = (to, at) else { return to == at };
    to.port() == at.port() && (to.ip() == at.ip() || at.ip().is_unspecified() && to.ip().is_loopback())
}

/// The names of a file's settings as arguments, in reasons and help texts. Longer texts come before
/// those that are in them.
const AS_ARGUMENTS: [(&str, &str); 10] = [
    (", and add [clusters.NAME.tls] for TLS", " in a config (-c FILE) with [clusters.NAME.tls] for TLS"),
    (", and add [listeners.tls] for TLS", " in a config (-c FILE) with [listeners.tls] for TLS"),
    (", with protocol = \"http2\" in the cluster", ", with --protocol http2"),
    ("add [[listeners]] with address = \"0.0.0.0:8080\"", "add --from :8080"),
    ("list at least one, such as \"10.0.0.1:8080\"", "add --to 10.0.0.1:8080"),
    ("\"0.0.0.0:8080\" for all addresses", "\":8080\" for all addresses"),
    ("give backends[", "use a config (-c FILE), and give backends["),
    (" is backends[", " is --to["),
    (" is taken by listeners[", " is taken by --from["),
    ("admin.listen", "--admin"),
];

/// Puts the problems that the command line's arguments cause at the arguments, with help for these.
#[must_use]
pub fn at_arguments(problem: Problem) -> Problem {
    let path = problem
        .path
        .replace("clusters.default.backends", "--to")
        .replace("listeners", "--from")
        .replace(".address", "");
    let named = |text: String| AS_ARGUMENTS.iter().fold(text, |text, (setting, words)| text.replace(setting, words));
    Problem { path, reason: named(problem.reason), help: named(problem.help), ..problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_overlap_when_one_of_them_is_all_addresses() {
        let overlap = |a: &str, b: &str| overlap(a.parse().unwrap(), b.parse().unwrap());
        assert!(overlap("127.0.0.1:80", "127.0.0.1:80"));
        assert!(overlap("0.0.0.0:80", "127.0.0.1:80"));
        assert!(!overlap("127.0.0.2:80", "127.0.0.1:80"));
        assert!(!overlap("0.0.0.0:80", "[::1]:80"));
        assert!(!overlap("127.0.0.1:0", "127.0.0.1:0"));
        assert!(overlap("unix:/run/a", "unix:/run/a"));
        assert!(!overlap("unix:/run/a", "unix:/run/b") && !overlap("unix:/run/a", "0.0.0.0:80"));
    }
}
