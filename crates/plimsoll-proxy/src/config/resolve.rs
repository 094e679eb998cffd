//! Turns the names of backends into addresses to connect to.
//!
//! Apart from reading the file, because it asks the network: `check` must give the same answer on a
//! laptop as on the machine that the file is for. A name with several addresses stands for as many
//! backends, as headless services of Kubernetes mean it, in the order of these addresses: resolvers rotate them, and
//! proxies that number the same backends differently would take subsets that do not fit together.
//!
//! This is the first answer. The names are looked up again by their TTL while the proxy runs
//! ([`Names`](plimsoll_discover::dns::Names)). The system's resolver gives the first answer, or the DNS server that the
//! cluster names.
//!
//! A name that was known keeps the addresses of its last answer beside those of this one, as the source does: two
//! answers in a row must lack an address. So the last two answers of each name are known here. A lookup that fails is
//! none: the name keeps both answers, and the addresses that are in use. The rest of a reload does not wait for a
//! resolver.
//!
//! A new name has no address, and its cluster goes on without it: one name of one cluster must not keep a proxy from
//! serving all others. Names are looked up side by side, since an unanswered question takes many seconds.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::thread;

use http::uri::Authority;
use parking_lot::Mutex;
use plimsoll::address::Address;
use plimsoll::discover::Endpoint;
use plimsoll_discover::dns::{Dns, Named};
use tokio::runtime;

use super::{Backend, Cluster, Config, ConfigError, Problem};

/// Names that are looked up at once: so many threads, and so many questions to the resolver.
const AT_ONCE: usize = 16;

/// In place of an address that is not known yet.
const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// A name, and the DNS server that is asked for it; `None`: the system's resolver.
pub(crate) type Asked = (String, Option<SocketAddr>);

/// The last answer about each name, and the one before it: addresses with port 0.
pub(crate) type Names = BTreeMap<Asked, [Vec<SocketAddr>; 2]>;

/// What is known of the backends of a config.
#[derive(Debug)]
pub(crate) struct Resolved {
    /// The backends of each cluster, by the cluster's name; one that has a host name is asked for by that name.
    pub(crate) endpoints: BTreeMap<String, Vec<Endpoint>>,
    /// The same by name, for the clusters with names.
    pub(crate) named: BTreeMap<String, Vec<Named>>,
    pub(crate) names: Names,
    /// Names that keep the addresses that they had, and why.
    pub(crate) kept: Vec<(String, String)>,
    /// The clusters with backends without an address, and these backends.
    pub(crate) incomplete: BTreeMap<String, Vec<Problem>>,
}

impl Config {
    /// Looks up the names of all backends; `known` are those of the config before. Blocks.
    pub(crate) fn resolve(&self, known: &Names) -> Resolved {
        self.resolve_with(known, |host, server| match server {
            None => (host, 0).to_socket_addrs().map(Iterator::collect),
            Some(server) => ask(host, server),
        })
    }

    fn resolve_with(
        &self,
        known: &Names,
        look_up: impl Fn(&str, Option<SocketAddr>) -> io::Result<Vec<SocketAddr>> + Sync,
    ) -> Resolved {
        let hosts: BTreeSet<Asked> = self.clusters().values().flat_map(Cluster::names).collect();
        let (mut names, mut kept, mut unknown) = (Names::new(), Vec::new(), BTreeMap::new());
        // By the server before, where the new one cannot be asked. A server that is still in use may know another
        // service by this name.
        let by_former = |host: &Asked| known.iter().find(|(asked, _)| asked.0 == host.0 && !hosts.contains(asked));
        for (host, found) in look_up_all(&hosts, look_up) {
            match found {
                Ok(found) => {
                    let [last, _] = known.get(host).cloned().unwrap_or_default();
                    names.insert(host.clone(), [found, last]);
                }
                Err(reason) => {
                    let answers = known.get(host).or_else(|| by_former(host).map(|(_, answers)| answers));
                    let Some(answers) = answers else {
                        unknown.insert(host, reason);
                        continue;
                    };
                    names.insert(host.clone(), answers.clone());
                    kept.push((host.0.clone(), reason));
                }
            }
        }
        let clusters = || self.clusters().iter();
        let incomplete = clusters()
            .map(|(name, cluster)| (name.clone(), self.problems(name, cluster, &unknown)))
            .filter(|(_, problems)| !problems.is_empty())
            .collect();
        let endpoints = clusters().map(|(name, cluster)| (name.clone(), endpoints(cluster, &names))).collect();
        let named = clusters()
            .filter(|(_, cluster)| cluster.names().next().is_some())
            .map(|(name, cluster)| (name.clone(), by_name(cluster, &names)))
            .collect();
        Resolved { endpoints, named, names, kept, incomplete }
    }

    /// The backends of a cluster without an address, each at its place in the file.
    fn problems(&self, name: &str, cluster: &Cluster, unknown: &BTreeMap<&Asked, String>) -> Vec<Problem> {
        let problem = |(i, backend): (usize, &Backend)| {
            let reason = unknown.get(&cluster.asked(backend))?.clone();
            let path = format!("clusters.{name}.backends[{i}]");
            let help = "correct the name, or write the backend's IP address".to_owned();
            Some(Problem { position: self.places.find(&path), path, reason, help })
        };
        cluster.backends.iter().enumerate().filter_map(problem).collect()
    }

    /// The problems of one cluster in one line: the first of them, and the number of the others.
    pub(crate) fn unresolved(&self, problems: &[Problem]) -> Option<String> {
        let (Problem { path, position, reason, help }, others) = problems.split_first()?;
        let position = position.map(|position| format!(":{position}")).unwrap_or_default();
        let further = match others.len() {
            0 => String::new(),
            more => format!(", and {more} more of the cluster"),
        };
        Some(format!("{}{position}: {path}: {reason}{further}; {help}, then reload", self.source_name))
    }
}

impl Resolved {
    /// Every name without an address, each at its place in the file of `config`; `None` if there is none.
    pub(crate) fn problems(&self, config: &Config) -> Option<ConfigError> {
        let problems: Vec<Problem> = self.incomplete.values().flatten().cloned().collect();
        (!problems.is_empty()).then(|| ConfigError::new(&config.source_name, problems))
    }
}

impl Cluster {
    /// The question about a backend, if it is a name.
    fn asked(&self, backend: &Backend) -> Asked {
        (
            backend.address.name().map_or_else(String::new, |(host, _)| host.to_owned()),
            self.resolver.map(|resolver| resolver.0),
        )
    }

    /// The names among its backends.
    fn names(&self) -> impl Iterator<Item = Asked> {
        let named = self.backends.iter().filter(|backend| backend.address.known().is_none());
        named.map(|backend| self.asked(backend))
    }
}

/// The addresses of a name by this DNS server. Takes 10 seconds at most.
fn ask(host: &str, server: SocketAddr) -> io::Result<Vec<SocketAddr>> {
    // A port is part of a source's name, and none of the question.
    let mut source = Dns::new(&format!("{host}:1")).map_err(|_| io::Error::other("it is no name for DNS"))?.at(server);
    // The caller's thread is none of the runtime.
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let found = runtime.block_on(source.look_up()).map_err(|error| io::Error::other(error.reason()))?;
    Ok(found.endpoints.iter().filter_map(|endpoint| Some((endpoint.address.ip()?, 0).into())).collect())
}

/// The outcome for each name: its addresses, at least one, in their order, or the reason why there are none.
fn look_up_all(
    hosts: &BTreeSet<Asked>,
    look_up: impl Fn(&str, Option<SocketAddr>) -> io::Result<Vec<SocketAddr>> + Sync,
) -> BTreeMap<&Asked, Result<Vec<SocketAddr>, String>> {
    let left = Mutex::new(hosts.iter());
    let found = Mutex::new(BTreeMap::new());
    let work = || {
        loop {
            // Not in the head of a loop, where the lock would be held for all of its body.
            let next = left.lock().next();
            let Some(asked @ (host, server)) = next else { return };
            let result = match look_up(host, *server) {
                Ok(addresses) if addresses.is_empty() => Err(format!("\"{host}\" has no address")),
                Ok(mut addresses) => {
                    addresses.sort_unstable();
                    Ok(addresses)
                }
                Err(error) => Err(format!("\"{host}\" could not be looked up: {error}")),
            };
            found.lock().insert(asked, result);
        }
    };
    thread::scope(|scope| {
        for _ in 1..hosts.len().min(AT_ONCE) {
            // Where no thread can be had, this one does it all.
            let _ = thread::Builder::new().name("look-up".to_owned()).spawn_scoped(scope, work);
        }
        work();
    });
    found.into_inner()
}

/// Backends by name, with the answers about them.
fn by_name(cluster: &Cluster, names: &Names) -> Vec<Named> {
    let named = cluster.backends.iter().map(|backend| {
        let address = &backend.address;
        let (known, authority) = match address.name() {
            // A backend that is named by its address is asked for by that anyway.
            None => ([address.known().into_iter().collect(), Vec::new()], None),
            Some((_, port)) => {
                let known = names.get(&cluster.asked(backend)).cloned().unwrap_or_default();
                let known = known.map(|answer| answer.iter().map(|found| (found.ip(), port).into()).collect());
                (known, address.to_string().parse::<Authority>().ok())
            }
        };
        let mut properties = Endpoint::new(ANY).weight(backend.weight);
        properties.authority = authority;
        properties.zone = backend.zone.as_deref().map(Into::into);
        properties.locality = backend.locality.as_deref().map(Into::into);
        properties.speed = backend.speed;
        Named { name: address.to_string(), known, properties }
    });
    named.collect()
}

fn endpoints(cluster: &Cluster, names: &Names) -> Vec<Endpoint> {
    let mut endpoints: Vec<Endpoint> = Vec::new();
    for Named { known, properties, .. } in by_name(cluster, names) {
        let known: BTreeSet<Address> = known.into_iter().flatten().collect();
        for address in known {
            // Two names of one machine would make it look like two.
            if !endpoints.iter().any(|known| known.address == address) {
                endpoints.push(properties.clone().at(address));
            }
        }
    }
    endpoints
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use super::*;

    const FILE: &str = "[[listeners]]\naddress = \":80\"\n[[routes]]\ncluster = \"a\"\n[clusters.a]\nbackends = [\"10.0.0.1:80\", \"pair:81\", \"alias:81\", \"gone:1\"]\n";

    fn ip(last: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, last], 0))
    }

    fn look_up(host: &str, _: Option<SocketAddr>) -> io::Result<Vec<SocketAddr>> {
        match host {
            "pair" => Ok(vec![ip(3), ip(2)]),
            "alias" => Ok(vec![ip(3)]),
            "empty" => Ok(Vec::new()),
            _ => Err(io::Error::other("no such host")),
        }
    }

    fn addresses(resolved: &Resolved) -> Vec<String> {
        resolved.endpoints["a"].iter().map(|backend| backend.address.to_string()).collect()
    }

    #[test]
    fn a_name_is_as_many_backends_as_it_has_addresses_in_their_order_and_an_unknown_one_is_named() {
        let config = Config::parse("test.toml", FILE).unwrap();
        let resolved = config.resolve_with(&Names::new(), look_up);
        assert_eq!(addresses(&resolved), ["10.0.0.1:80", "10.0.0.2:81", "10.0.0.3:81"]);
        let problem = config.unresolved(&resolved.incomplete["a"]).unwrap();
        let place = "test.toml:6:51: clusters.a.backends[3]: \"gone\" could not be looked up: no such host; correct";
        assert!(problem.starts_with(place), "{problem}");
        let error = resolved.problems(&config).unwrap().to_string();
        assert!(error.starts_with("test.toml:6:51: clusters.a.backends[3]: \"gone\" could not"), "{error}");
        let config = Config::parse("test.toml", &FILE.replace(", \"gone:1\"", "")).unwrap();
        assert_eq!(config.resolve_with(&Names::new(), look_up).incomplete, BTreeMap::new());
    }

    #[test]
    fn a_name_that_was_known_keeps_its_addresses_while_it_cannot_be_looked_up() {
        let config = Config::parse("test.toml", &FILE.replace("alias:81", "empty:81")).unwrap();
        let before = [("gone", 7), ("empty", 8), ("pair", 9)];
        let before = before.map(|(name, address)| ((name.to_owned(), None), [vec![ip(address)], Vec::new()]));
        let resolved = config.resolve_with(&before.into(), look_up);
        // One answer lacks an address of `pair`.
        let all = ["10.0.0.1:80", "10.0.0.2:81", "10.0.0.3:81", "10.0.0.9:81", "10.0.0.8:81", "10.0.0.7:1"];
        assert_eq!(addresses(&resolved), all);
        assert_eq!(resolved.endpoints["a"][5].authority.as_ref().unwrap(), "gone:1");
        let kept: Vec<&str> = resolved.kept.iter().map(|(_, why)| why.as_str()).collect();
        assert_eq!(kept, ["\"empty\" has no address", "\"gone\" could not be looked up: no such host"]);

        // Once more, by what was found; all of it, when nobody answers.
        let nobody = |_: &str, _| Err(io::ErrorKind::TimedOut.into());
        let again = config.resolve_with(&resolved.names, nobody);
        assert_eq!((&again.names, again.kept.len()), (&resolved.names, 3));
        assert_eq!(addresses(&again), all, "one answer lacks the address, and a failure is none");
        let once_more = config.resolve_with(&again.names, look_up);
        assert_eq!(addresses(&once_more), [&all[..3], &all[4..]].concat(), "two answers lack it");

        let other = Config::parse("test.toml", &FILE.replace("gone", "new")).unwrap();
        let incomplete = other.resolve_with(&again.names, nobody);
        assert_eq!(addresses(&incomplete), all[..4]);
        let problem = other.unresolved(&incomplete.incomplete["a"]).unwrap();
        assert!(problem.contains("\"alias\"") && problem.contains(", and 1 more of the cluster; "), "{problem}");
    }

    #[test]
    fn address_stays_when_one_answer_lacks_it_and_the_lookup_fails() {
        let config = Config::parse("test.toml", &FILE.replace(", \"alias:81\", \"gone:1\"", "")).unwrap();
        // By the source: its last answer lacks one address of the answer before.
        let before = Names::from([(("pair".to_owned(), None), [vec![ip(2)], vec![ip(2), ip(3)]])]);
        let all = ["10.0.0.1:80", "10.0.0.2:81", "10.0.0.3:81"];
        let mut known = before.clone();
        for _ in 0..2 {
            let resolved = config.resolve_with(&known, |_, _| Err(io::ErrorKind::TimedOut.into()));
            assert_eq!((addresses(&resolved), &resolved.names), (all.map(str::to_owned).into(), &before));
            let port = |last| Address::from(([10, 0, 0, last], 81));
            assert_eq!(resolved.named["a"][1].known, [vec![port(2)], vec![port(2), port(3)]], "the source has both");
            known = resolved.names;
        }
        let resolved = config.resolve_with(&known, |_, _| Ok(vec![ip(2)]));
        assert_eq!(addresses(&resolved), all[..2], "two answers in a row lack it");
    }

    #[test]
    fn name_is_asked_at_the_resolver_of_its_cluster() {
        let file = FILE.replace("backends = [", "resolver = \"127.0.0.9\"\nbackends = [");
        let file = format!("{file}[clusters.b]\nbackends = [\"pair:81\"]\n[[routes]]\nhost = \"b\"\ncluster = \"b\"\n");
        let config = Config::parse("test.toml", &file).unwrap();
        let server = SocketAddr::from(([127, 0, 0, 9], 53));
        let by_server = |_: &str, at: Option<SocketAddr>| match at {
            Some(at) if at == server => Ok(vec![ip(7)]),
            Some(_) => Err(io::ErrorKind::NotFound.into()),
            None => Ok(vec![ip(8)]),
        };
        let resolved = config.resolve_with(&Names::new(), by_server);
        assert_eq!(resolved.incomplete, BTreeMap::new());
        assert_eq!(addresses(&resolved), ["10.0.0.1:80", "10.0.0.7:81", "10.0.0.7:1"]);
        assert_eq!(resolved.endpoints["b"][0].address.to_string(), "10.0.0.8:81");

        // The answers of another server are no answers of this one.
        let system = Config::parse("test.toml", &file.replace("resolver", "#")).unwrap();
        let by_system = system.resolve_with(&resolved.names, by_server);
        assert_eq!(addresses(&by_system), ["10.0.0.1:80", "10.0.0.8:81", "10.0.0.8:1"]);
        // They stay while this one fails, unless the other is still in use.
        let other = Config::parse("test.toml", &file.replace("127.0.0.9", "127.0.0.8")).unwrap();
        let failing = other.resolve_with(&resolved.names, by_server);
        assert_eq!(addresses(&failing), ["10.0.0.1:80", "10.0.0.7:81", "10.0.0.7:1"]);
        let split = other.resolve_with(&by_system.names, by_server);
        let [problem] = &split.incomplete["a"][..] else { panic!("{:?}", split.incomplete) };
        assert!(problem.reason.starts_with("\"pair\" could not be looked up"), "{}", problem.reason);
        assert_eq!(addresses(&split), ["10.0.0.1:80", "10.0.0.8:81", "10.0.0.8:1"], "two names were asked there only");
    }

    #[test]
    fn names_are_looked_up_side_by_side_and_each_once() {
        let asked = AtomicUsize::new(0);
        let slow = |_: &str, _| {
            asked.fetch_add(1, Ordering::SeqCst);
            let begun = Instant::now();
            while asked.load(Ordering::SeqCst) < 3 {
                if begun.elapsed() > Duration::from_secs(10) {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                thread::yield_now();
            }
            Ok(vec![ip(1)])
        };
        let config = Config::parse("test.toml", &FILE.replace("10.0.0.1:80", "pair:80")).unwrap();
        config.resolve_with(&Names::new(), slow);
        assert_eq!(asked.into_inner(), 3);
    }
}
