//! The changes of a reload, for a person who is about to do it: each difference, and its effect on
//! traffic.
//!
//! Differences are found in the settings as they are printed, with every default written out, so
//! that any setting is compared without being named here; its effect stands on its line in its
//! table. Only identities are special: listeners
//! are the same when they have the same address, clusters by their name, backends by their address,
//! routes when they take the same requests.
//!
//! Routes have their names here, which hold no values of conditions, and values of header rules are
//! hidden: both may be secrets, and this list goes into logs of builds and reviews.
//!
//! It asks neither the network nor the running proxy: that a name has other addresses now, or a
//! certificate's file other contents, is not seen here.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use http::{HeaderName, HeaderValue};
use plimsoll_config::{Effect, Entry, Table, flat};

use super::Config;
use super::raw::RawConfig;
use super::route::{Route, RouteKey};

/// An inline table without settings.
const EMPTY: &str = "{}";

/// A difference between two configurations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The subject, such as `cluster "web"`; empty for a setting that stands for itself.
    pub part: String,
    /// The difference.
    pub difference: Difference,
    /// The effect on traffic.
    pub effect: &'static str,
    /// A reload does not bring it into force.
    pub needs_restart: bool,
}

/// The difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The part is only in the newer one.
    Added,
    /// The part is only in the older one.
    Removed,
    /// The parts of this kind that both have stand in another order.
    Order,
    /// Only one of them has this table, and the effect is that of these of its settings.
    Table {
        /// Its path within the part.
        path: String,
        /// It is in the newer one.
        is_added: bool,
        /// Those that differ from their defaults, as an inline table.
        settings: String,
    },
    /// A setting has another value; `None` where it is not set.
    Setting {
        /// Its path within the part.
        path: String,
        /// Its value before, as TOML.
        old: Option<String>,
        /// Its value now.
        new: Option<String>,
    },
}

/// `listener "public": max_connections 10000 -> 500: open connections stay`
impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unset = "(not set)";
        match &self.difference {
            Difference::Added => write!(f, "{} added", self.part)?,
            Difference::Removed => write!(f, "{} removed", self.part)?,
            Difference::Order => write!(f, "order of the {}", self.part)?,
            Difference::Table { path, is_added, settings } => {
                self.write_part(f)?;
                write!(f, "{path} {}", if *is_added { "added" } else { "removed" })?;
                if settings != EMPTY {
                    write!(f, " {settings}")?;
                }
            }
            Difference::Setting { path, old, new } => {
                self.write_part(f)?;
                let [old, new] = [old, new].map(|value| value.as_deref().unwrap_or(unset));
                write!(f, "{path} {old} -> {new}")?;
            }
        }
        write!(f, ": {}", self.effect)
    }
}

impl Change {
    fn write_part(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.part.is_empty() { Ok(()) } else { write!(f, "{}: ", self.part) }
    }
}

impl Config {
    /// The differences from `old`, and their effects in a proxy that runs by `old` and reloads
    /// this.
    #[must_use]
    pub fn changes_since(&self, old: &Self) -> Vec<Change> {
        let mut changes = Vec::new();
        top(&mut changes, &old.raw, &self.raw);
        listeners(&mut changes, &old.raw, &self.raw);
        routes(&mut changes, old, self);
        clusters(&mut changes, &old.raw, &self.raw);
        if changes.is_empty() && self != old {
            let effect = "requests take the same routes";
            changes.push(Change {
                part: "file".to_owned(),
                difference: Difference::Order,
                effect,
                needs_restart: false,
            });
        }
        changes
    }
}

/// The settings outside listeners, routes and clusters.
fn top(changes: &mut Vec<Change>, old: &RawConfig, new: &RawConfig) {
    let alone = |raw: &RawConfig| {
        let mut raw = raw.clone();
        raw.listeners.clear();
        raw.routes.clear();
        raw.clusters.clear();
        raw
    };
    settings(changes, "", &alone(old), &alone(new));
}

fn listeners(changes: &mut Vec<Change>, old: &RawConfig, new: &RawConfig) {
    let by_address = |raw: &RawConfig| raw.listeners.iter().map(|l| (l.address.to_string(), l.clone())).collect();
    let added = "starts to listen; nothing else is disturbed";
    let removed = "accepts no more connections; open ones finish their requests, and are closed after drain.timeout at the latest";
    let name = |address: &String, _: &_| format!("listener {address}");
    parts(changes, by_address(old), by_address(new), name, [added, removed], settings);
}

fn routes(changes: &mut Vec<Change>, old: &Config, new: &Config) {
    let by_key = |config: &'_ Config| -> BTreeMap<RouteKey, (String, Route)> {
        config
            .named_routes()
            .map(|route| (route.key(), (format!("route {}", route.name), route.route.clone())))
            .collect()
    };
    let (added, removed) = ("from the next matching request on", "requests in flight finish");
    let name = |_: &RouteKey, (name, _): &(String, Route)| name.clone();
    parts(changes, by_key(old), by_key(new), name, [added, removed], |changes, part, (_, old), (_, new)| {
        let [old, new] = without_values(old, new);
        settings(changes, part, &old, &new);
    });
    let [was, is] = [old, new].map(|config| config.named_routes().map(|route| route.key()).collect::<Vec<_>>());
    if was.iter().filter(|route| is.contains(route)).ne(is.iter().filter(|route| was.contains(route))) {
        let effect = "among equally specific routes, another may come first";
        changes.push(Change { part: "routes".to_owned(), difference: Difference::Order, effect, needs_restart: false });
    }
}

/// Both versions of a route without the values of header rules. Rules that differed still differ.
fn without_values(old: &Route, new: &Route) -> [Route; 2] {
    let [mut old, mut new] = [old, new].map(Route::clone);
    let both =
        [(&mut old.request_headers, &mut new.request_headers), (&mut old.response_headers, &mut new.response_headers)];
    for (old, new) in both {
        if let Some(new) = new {
            let (set, add) = old.as_ref().map_or((&[][..], &[][..]), |old| (&old.set, &old.add));
            hide(&mut new.set, set);
            hide(&mut new.add, add);
        }
        if let Some(old) = old {
            hide(&mut old.set, &[]);
            hide(&mut old.add, &[]);
        }
    }
    [old, new]
}

/// Hides the values. One that its field does not have in `before` is another one.
fn hide(lines: &mut [(HeaderName, HeaderValue)], before: &[(HeaderName, HeaderValue)]) {
    for (name, value) in lines {
        let mut known = before.iter().filter(|(known, _)| known == name).peekable();
        let is_other = known.peek().is_some() && known.all(|(_, known)| known != value);
        *value = HeaderValue::from_static(if is_other { "(hidden, another)" } else { "(hidden)" });
    }
}

fn clusters(changes: &mut Vec<Change>, old: &RawConfig, new: &RawConfig) {
    let added = "its backends are connected and checked, and warm up";
    let removed = "its requests finish, then its connections close";
    let [old, new] = [old, new].map(|raw| raw.clusters.clone());
    let name = |name: &String, _: &_| format!("cluster {name}");
    parts(changes, old, new, name, [added, removed], |changes, part, old, new| {
        let by_address = |cluster: &super::Cluster| {
            cluster.backends.iter().map(|backend| (backend.address.to_string(), backend.clone())).collect()
        };
        let added = "connected, checked, and warms up; other backends are not disturbed";
        let removed = "no new requests; its requests finish, then its connections close";
        let name = |address: &String, _: &_| format!("{part}: backend {address}");
        parts(changes, by_address(old), by_address(new), name, [added, removed], settings);
        settings(changes, part, old, new);
    });
}

/// Compares parts by identity: those that only one side has, and those that both have by `compare`.
/// `name` is for readers.
fn parts<K: Ord, T>(
    changes: &mut Vec<Change>,
    old: BTreeMap<K, T>,
    mut new: BTreeMap<K, T>,
    name: impl Fn(&K, &T) -> String,
    [added, removed]: [&'static str; 2],
    compare: impl Fn(&mut Vec<Change>, &str, &T, &T),
) {
    let alone = |part, difference, effect| Change { part, difference, effect, needs_restart: false };
    for (key, old) in old {
        match new.remove(&key) {
            Some(new) => compare(changes, &name(&key, &new), &old, &new),
            None => changes.push(alone(name(&key, &old), Difference::Removed, removed)),
        }
    }
    changes.extend(new.iter().map(|(key, new)| alone(name(key, new), Difference::Added, added)));
}

/// Compares two tables setting by setting, and as a whole each table within that only one of them
/// has. Settings that make another part are compared part by part.
fn settings<T: Table + Clone>(changes: &mut Vec<Change>, part: &str, old: &T, new: &T) {
    let old = flat(old);
    let new = flat(new);
    let find = |entries: &[Entry], path: &str| {
        entries.iter().find(|entry| entry.path == path).map(|entry| entry.value.clone())
    };
    let gone = old.iter().filter(|entry| find(&new, &entry.path).is_none());
    let (old_parts, new_parts) = (parts_of(&old), parts_of(&new));
    for entry in new.iter().chain(gone) {
        if alone(entry, &old_parts).or(alone(entry, &new_parts)).is_some() {
            continue;
        }
        let Some((effect, needs_restart)) = applied(entry.effect) else { continue };
        let [before, now] = [find(&old, &entry.path), find(&new, &entry.path)];
        if before != now {
            let difference = Difference::Setting { path: entry.path.clone(), old: before, new: now };
            changes.push(Change { part: part.to_owned(), difference, effect, needs_restart });
        }
    }
    tables(changes, part, &new, &old_parts, true);
    tables(changes, part, &old, &new_parts, false);
}

/// The tables that only one side has: a change for each effect of their settings. `others` are the
/// parts of the other side.
fn tables(changes: &mut Vec<Change>, part: &str, own: &[Entry], others: &HashSet<&str>, is_added: bool) {
    let own: Vec<(&Entry, &str)> = own.iter().filter_map(|entry| Some((entry, alone(entry, others)?))).collect();
    for table in own.chunk_by(|(_, a), (_, b)| a == b) {
        let path = table.first().map_or("", |(_, path)| *path);
        let mut by_effect: Vec<((&'static str, bool), Vec<String>)> = Vec::new();
        for (entry, effect) in table.iter().filter_map(|(entry, _)| Some((entry, applied(entry.effect)?))) {
            let key = entry.path[path.len()..].trim_start_matches('.');
            let setting = (!entry.is_default).then(|| format!("{key} = {}", entry.value));
            match by_effect.iter_mut().find(|(known, _)| *known == effect) {
                Some((_, settings)) => settings.extend(setting),
                None => by_effect.push((effect, setting.into_iter().collect())),
            }
        }
        // A table that states nothing has an effect too: its first setting's.
        if by_effect.iter().any(|(_, settings)| !settings.is_empty()) {
            by_effect.retain(|(_, settings)| !settings.is_empty());
        } else {
            by_effect.truncate(1);
        }
        changes.extend(by_effect.into_iter().map(|((effect, needs_restart), settings)| Change {
            part: part.to_owned(),
            difference: Difference::Table { path: path.to_owned(), is_added, settings: inline(&settings) },
            effect,
            needs_restart,
        }));
    }
}

fn inline(settings: &[String]) -> String {
    if settings.is_empty() { EMPTY.to_owned() } else { format!("{{ {} }}", settings.join(", ")) }
}

fn parts_of(entries: &[Entry]) -> HashSet<&str> {
    entries.iter().flat_map(|entry| &entry.parts).map(String::as_str).collect()
}

/// The outermost table around it that the other side does not have; `None` if it has all.
fn alone<'e>(entry: &'e Entry, others: &HashSet<&str>) -> Option<&'e str> {
    entry.parts.iter().map(String::as_str).find(|part| !others.contains(part))
}

/// The effect of a change, and whether it waits for a restart; `None` where it makes another part.
fn applied(effect: Option<Effect>) -> Option<(&'static str, bool)> {
    match effect {
        Some(Effect::Another) => None,
        Some(Effect::Applied(effect)) => Some((effect, false)),
        Some(Effect::Restart(effect)) => Some((effect, true)),
        None => Some(("at once", false)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = r#"
        threads = 4
        [[listeners]]
        address = "127.0.0.1:8080"
        name = "public"
        [[listeners]]
        address = "127.0.0.1:8081"
        [[routes]]
        cluster = "web"
        [[routes]]
        path_prefix = "/api"
        methods = ["GET"]
        cluster = "api"
        [clusters.web]
        backends = ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"]
        [clusters.api]
        backends = ["10.0.1.1:80"]
    "#;

    fn changes(from: &[(&str, &str)]) -> Vec<String> {
        let mut text = OLD.to_owned();
        for (old, new) in from {
            assert!(text.contains(old), "{old}");
            text = text.replacen(old, new, 1);
        }
        between(OLD, &text)
    }

    fn between(old: &str, new: &str) -> Vec<String> {
        let parse = |text: &str| Config::parse("test", text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        parse(new).changes_since(&parse(old)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn equal_files_have_no_changes_and_layout_is_none() {
        assert!(changes(&[]).is_empty());
        assert!(changes(&[("threads = 4", "# text\nthreads = 4")]).is_empty());
        assert!(
            changes(&[("name = \"public\"", "name = \"public\"\nmax_connections = 10000")]).is_empty(),
            "the default"
        );
    }

    #[test]
    fn changed_settings_are_reported_with_both_values_and_the_effect() {
        assert_eq!(
            changes(&[
                ("threads = 4", "threads = 8"),
                ("name = \"public\"", "name = \"public\"\nmax_connections = 500")
            ]),
            [
                "threads 4 -> 8: needs a restart (`plimsoll upgrade` does it without loss)",
                "listener 127.0.0.1:8080: max_connections 10000 -> 500: open connections stay",
            ]
        );
        assert_eq!(
            changes(&[("cluster = \"api\"", "cluster = \"web\"\nrequest_timeout = \"5s\"")]),
            [
                "route /api GET: cluster \"api\" -> \"web\": from the next request on; those in flight finish where they are",
                "route /api GET: request_timeout (not set) -> \"5s\": from the next request on; those in flight finish where they are",
            ]
        );
    }

    #[test]
    fn a_new_name_of_the_admin_api_does_not_move_it() {
        assert_eq!(
            changes(&[("threads = 4", "threads = 4\nadmin.hosts = [\"proxy.internal\"]")]),
            ["admin.hosts [] -> [\"proxy.internal\"]: from the next request to the admin API on"]
        );
    }

    #[test]
    fn backends_are_known_by_their_address_wherever_they_stand() {
        assert_eq!(
            changes(&[(
                "\"10.0.0.1:80\", \"10.0.0.2:80\", \"10.0.0.3:80\"",
                "\"10.0.0.2:80\", { address = \"10.0.0.1:80\", weight = 2 }, \"10.0.0.4:80\""
            )]),
            [
                "cluster web: backend 10.0.0.1:80: weight 1 -> 2: from the next request on; its state and connections stay",
                "cluster web: backend 10.0.0.3:80 removed: no new requests; its requests finish, then its connections close",
                "cluster web: backend 10.0.0.4:80 added: connected, checked, and warms up; other backends are not disturbed",
            ]
        );
    }

    #[test]
    fn a_backend_in_another_locality_is_the_same_backend() {
        let old = OLD.replace(
            "[\"10.0.1.1:80\"]",
            "[{ address = \"10.0.1.1:80\", locality = \"a\" }]\nlocalities = [\"a\", \"b\"]",
        );
        let new = old.replace("locality = \"a\"", "locality = \"b\"").replace("[\"a\", \"b\"]", "[\"b\", \"a\"]");
        assert_eq!(
            between(&old, &new),
            [
                "cluster api: backend 10.0.1.1:80: locality \"a\" -> \"b\": from the next request on; its state and connections stay",
                "cluster api: localities [\"a\", \"b\"] -> [\"b\", \"a\"]: from the next request on; the load of remaining localities stays known",
            ]
        );
    }

    #[test]
    fn speed_of_a_backend_is_shown_and_changes_nothing_else() {
        let old = OLD.replace("[\"10.0.1.1:80\"]", "[{ address = \"10.0.1.1:80\", speed = 1.5 }]");
        assert_eq!(
            between(&old, &old.replace("1.5", "2")),
            ["cluster api: backend 10.0.1.1:80: speed 1.5 -> 2: shown from then on; nothing else"]
        );
    }

    #[test]
    fn connections_are_reopened_for_changed_trust_but_not_for_an_identity() {
        let tls = |line: &str| format!("{OLD}[clusters.api.tls]\n{line}\n");
        let told = between(&tls("insecure_accept_any_certificate = true"), &tls("server_name = \"a.example\""));
        let anew = "new connections are opened; requests in flight finish on the old ones, which then close";
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told.iter().all(|line| line.starts_with("cluster api: tls.") && line.ends_with(anew)), "{told:?}");
        let mut settings = plimsoll_config::settings::<crate::config::ClusterTls>().into_iter();
        let certificate = settings.find(|setting| setting.key == "certificate").and_then(|setting| setting.effect);
        let Some(Effect::Applied(effect)) = certificate else { panic!("{certificate:?}") };
        assert!(effect.ends_with("stay if the new certificate has the same names"), "{effect}");
    }

    #[test]
    fn changed_hedge_delay_keeps_the_measured_latencies() {
        let hedge = |hedge: &str| format!("{OLD}[clusters.api.retry]\nhedge = {{ {hedge} }}\n");
        assert_eq!(
            between(&hedge(""), &hedge("quantile = 0.9")),
            ["cluster api: retry.hedge.quantile 0.95 -> 0.9: from the next request on; known latencies stay"]
        );
    }

    #[test]
    fn an_added_table_is_one_line_of_what_it_states() {
        let gate = "[clusters.api.inbound]\npid_file = \"/run/api.pid\"\ncpus = 1\noutlook = \"optimistic\"\n";
        let old = OLD.replace("10.0.1.1:80", "127.0.0.1:80");
        let with = format!("{old}{gate}");
        let effect = "from the next request on; request costs are learned from the start";
        let stated = "{ pid_file = \"/run/api.pid\", cpus = 1.0 }";
        assert_eq!(between(&old, &with), [format!("cluster api: inbound added {stated}: {effect}")]);
        assert_eq!(between(&with, &old), [format!("cluster api: inbound removed {stated}: {effect}")]);
        let with = with.replace("name = \"public\"", "name = \"public\"\ncustomer_header = \"x-customer\"");
        let told = between(&with, &format!("{with}[customers.crawler]\nhard_limit = 0.2\n"));
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("customers.crawler added { hard_limit = 0.2 }: "), "{told:?}");
    }

    #[test]
    fn an_added_table_that_states_nothing_is_one_line() {
        let told = between(OLD, &format!("{OLD}[clusters.api.retry]\nhedge = {{}}\n"));
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("cluster api: retry.hedge added: "), "{told:?}");
    }

    #[test]
    fn a_table_added_within_one_that_stays_is_one_line() {
        let routes = |degraded: &str| OLD.replace("cluster = \"web\"\n", &format!("cluster = \"web\"\n{degraded}\n"));
        let stale = "[routes.degraded]\nmax_stale = \"1h\"";
        let answer = "[routes.degraded.answer]\nstatus = 200\nbody = \"sorry\"";
        let told = between(&routes(stale), &routes(&format!("{stale}\n{answer}")));
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("route /: degraded.answer added { status = 200, body = \"sorry\" }: "), "{told:?}");
        let told = between(&routes(""), &routes(&format!("{stale}\n{answer}")));
        assert_eq!(told.len(), 1, "{told:?}");
        let stated = "degraded added { max_stale = \"1h\", answer.status = 200, answer.body = \"sorry\" }";
        assert!(told[0].contains(stated), "{told:?}");
    }

    #[test]
    fn a_table_with_settings_of_several_effects_is_a_line_for_each() {
        let entry = |path: &str, effect, is_default| Entry {
            path: format!("t.{path}"),
            value: "1".to_owned(),
            effect: Some(effect),
            is_default,
            parts: vec!["t".to_owned()],
        };
        let own = [
            entry("a", Effect::Applied("soon"), false),
            entry("b", Effect::Restart("later"), false),
            entry("c", Effect::Applied("never said"), true),
            entry("d", Effect::Applied("soon"), false),
        ];
        let mut changes = Vec::new();
        tables(&mut changes, "", &own, &HashSet::new(), true);
        let told: Vec<_> = changes.iter().map(|change| (change.to_string(), change.needs_restart)).collect();
        assert_eq!(
            told,
            [("t added { a = 1, d = 1 }: soon".to_owned(), false), ("t added { b = 1 }: later".to_owned(), true)]
        );
    }

    #[test]
    fn a_gate_of_another_outlook_is_another_gate() {
        let gate = |outlook: &str| format!("{OLD}[clusters.api.inbound]\ncgroup = \"/sys/fs/cgroup/api\"\n{outlook}");
        assert_eq!(
            between(&gate(""), &gate("outlook = \"pessimistic\"\n")),
            [
                "cluster api: inbound.outlook \"optimistic\" -> \"pessimistic\": from the next request on; request costs are learned from the start"
            ]
        );
    }

    #[test]
    fn a_listener_at_another_address_is_another_listener() {
        let told = changes(&[("127.0.0.1:8081", "127.0.0.1:8082")]);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with("listener 127.0.0.1:8081 removed: accepts no more connections"), "{told:?}");
        assert!(told[1].starts_with("listener 127.0.0.1:8082 added: starts to listen"), "{told:?}");
    }

    #[test]
    fn a_route_that_takes_other_requests_is_another_route() {
        let told = changes(&[("[\"GET\"]", "[\"GET\", \"PUT\"]")]);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told.iter().any(|line| line.starts_with("route /api GET removed: ")), "{told:?}");
    }

    #[test]
    fn no_difference_shows_the_value_of_a_condition_or_header_rule() {
        let route = |more: &str| {
            let conditions = "headers = { authorization = \"s3cret-1\" }\ncookies = { session = \"s3cret-2\" }";
            format!("{OLD}[[routes]]\npath_prefix = \"/x\"\n{conditions}\ncluster = \"api\"\n{more}\n")
        };
        let rules = |set: &str| route(&format!("request_headers = {{ set = {{ {set} }} }}"));
        let set = |value: &str| rules(&format!("authorization = \"s3cret-{value}\", x-env = \"s3cret-3\""));
        let name = "route /x header authorization cookie session";
        let effect = "from the next request on; those in flight finish where they are";
        let told = between(&set("4"), &set("5"));
        assert_eq!(
            told,
            [format!(
                "{name}: request_headers.set {{ \"authorization\" = \"(hidden)\", \"x-env\" = \"(hidden)\" }} -> \
                 {{ \"authorization\" = \"(hidden, another)\", \"x-env\" = \"(hidden)\" }}: {effect}"
            )]
        );
        assert!(between(&set("4"), &set("4")).is_empty());
        let told = between(&route(""), &set("4"));
        assert!(told.len() == 1 && told[0].starts_with(&format!("{name}: request_headers added")), "{told:?}");
        let told = [
            told,
            between(&set("4"), &rules("x-env = \"s3cret-3\"")),
            between(&set("4"), &route("request_timeout = \"1s\"")),
            between(&set("4"), &set("4").replace("s3cret-1", "s3cret-6")),
            between(OLD, &set("4")),
        ];
        assert!(told.iter().all(|lines| !lines.is_empty()), "{told:?}");
        assert!(told.iter().flatten().all(|line| !line.contains("s3cret")), "{told:?}");
    }

    #[test]
    fn changed_order_alone_is_reported_as_such() {
        let told = changes(&[("[\"10.0.0.1:80\", \"10.0.0.2:80\",", "[\"10.0.0.2:80\", \"10.0.0.1:80\",")]);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("order of the file"), "{told:?}");
    }

    #[test]
    fn changed_order_of_routes_is_reported_beside_other_changes() {
        let route =
            |methods: &str| format!("[[routes]]\npath_prefix = \"/x\"\nmethods = [\"{methods}\"]\ncluster = \"api\"\n");
        let [delete, put, post] = ["GET\", \"DELETE", "GET\", \"PUT", "GET\", \"POST"].map(route);
        let old = format!("{OLD}{delete}{put}");
        let order = "order of the routes: among equally specific routes, another may come first";
        assert_eq!(between(&old, &format!("{OLD}{put}{delete}")), [order]);
        let told = between(&old, &format!("{OLD}{put}{post}{delete}").replace("threads = 4", "threads = 8"));
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told.iter().any(|line| line == order), "{told:?}");
        let told = between(&old, &format!("{OLD}{post}{put}"));
        assert!(told.len() == 2 && !told.iter().any(|line| line == order), "{told:?}");
    }

    #[test]
    fn every_setting_that_exists_is_compared() {
        let text = std::fs::read_to_string(
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/several-clusters.toml"),
        )
        .unwrap();
        let all = Config::parse("all", &text).unwrap();
        let old = Config::parse("old", OLD).unwrap();
        assert!(!all.changes_since(&old).is_empty());
        assert!(all.changes_since(&all.clone()).is_empty());
    }
}
