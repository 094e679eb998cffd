//! The source of a cluster's backends that change at run time.
//!
//! The rules about lists and errors are the core's (`plimsoll_core::discover`); here are only their
//! settings. A problem of the source, such as a file that is not there yet, is none of the
//! configuration: the proxy starts, and the cluster waits for its first list.
//!
//! A kind of source is a key here, its [`Origin`], and its arm in `proxy::source`. A cluster has
//! exactly one: two sources of one list would contradict each other on removals.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll::discover::OnEmpty;
use plimsoll::tls::TlsConfig;
use plimsoll_config::{Checker, Choice, Effect, table};
use plimsoll_core::discover::MergeConfig;
use plimsoll_tls_config::FilePath;

use super::dns_name::{HostName, Resolver, ServiceName};
use super::eds::Eds;
use super::etcd::{Etcd, FleetName, Registered};
use super::kubernetes::{Kubernetes, Service};

const ON_EMPTY: Choice<OnEmpty> =
    Choice { noun: "a meaning of an empty list", names: &[("keep", OnEmpty::Keep), ("obey", OnEmpty::Obey)] };

/// Help where something needs the table `[etcd]`.
pub(super) const ETCD_HELP: &str = "add [etcd] with endpoints = [\"10.0.0.1:2379\"], or remove it";

const FOLLOWED: Effect = Effect::Applied(
    "the source is followed anew; known backends keep their state, and stay until it lists them no more",
);

table! {
    /// The source of a cluster's backends.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct Discovery {
        /// A watched file with a list of backends.
        pub file: Option<FilePath> = None, optional, FOLLOWED;
        /// A host name with a port: each of its addresses is a backend.
        pub dns: Option<HostName> = None, optional, FOLLOWED;
        /// A name with SRV records: each of their targets is a backend.
        pub srv: Option<ServiceName> = None, optional, FOLLOWED;
        /// The DNS server to ask for `dns` or `srv`. `None`: those of the system.
        pub resolver: Option<Resolver> = None, optional, FOLLOWED;
        /// How long missing backends stay after a sudden loss of more than half of them.
        pub hold: Option<Duration> = Some(MergeConfig::DEFAULT_HOLD), switch, FOLLOWED;
        /// The meaning of an empty list.
        pub on_empty: OnEmpty = OnEmpty::Keep, value_as(ON_EMPTY), FOLLOWED;
        /// Whether each backend has an ordinal, a number of its own. A list without ordinals is refused.
        pub ordinals: bool = false, value, FOLLOWED;
        /// A service with EndpointSlices to follow.
        pub kubernetes: Option<Kubernetes> = None, optional_table, FOLLOWED;
        /// A service at an xDS control plane to follow.
        pub eds: Option<Eds> = None, optional_table, FOLLOWED;
        /// A service in the fleet's registry.
        pub etcd: Option<FleetName> = None, optional, FOLLOWED;
    }
    NEEDS = "file = \"web.json\" or dns = \"web.internal:8080\"";
}

/// A source to follow, with everything that decides on its members.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Followed {
    pub(crate) origin: Origin,
    pub(crate) hold: Duration,
    pub(crate) on_empty: OnEmpty,
    pub(crate) ordinals: bool,
}

/// The place that lists backends.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Origin {
    /// A watched file.
    File(PathBuf),
    /// The addresses of a name, at this server or those of the system.
    Dns(HostName, Option<SocketAddr>),
    /// The targets of SRV records.
    Srv(ServiceName, Option<SocketAddr>),
    /// The EndpointSlices of a service.
    Kubernetes(Service),
    /// The endpoints of a service at a control plane, with TLS or without.
    Eds(Eds, Option<TlsConfig>),
    /// The registered backends of a service.
    Etcd(Registered),
}

/// The facts that a source needs beside its own settings.
#[derive(Clone, Copy, Debug)]
pub(super) struct SourceContext<'a> {
    /// The folder of the configuration.
    pub(super) folder: &'a Path,
    /// The content of the source's files of TLS.
    pub(super) tls: Option<&'a TlsConfig>,
    pub(super) etcd: Option<&'a Etcd>,
}

impl Discovery {
    /// The source; `None` before [`Discovery::check`] only.
    pub(super) fn followed(&self, context: SourceContext<'_>) -> Option<Followed> {
        let (_, origin) = self.origins(context).next()?;
        Some(Followed {
            origin,
            hold: self.hold.unwrap_or(Duration::ZERO),
            on_empty: self.on_empty,
            ordinals: self.ordinals,
        })
    }

    /// Reports unless there is exactly one source.
    pub(super) fn check(&self, path: &str, has_etcd: bool, checker: &mut Checker<'_>) {
        let named = self.origins(SourceContext { folder: Path::new(""), tls: None, etcd: None }).map(|(key, _)| key);
        let named: Vec<_> = named.chain(self.etcd.as_ref().map(|_| "etcd")).collect();
        check_one(&named, path, checker);
        if self.etcd.is_some() && !has_etcd && checker.is_readable("etcd") {
            checker.report(format!("{path}.etcd"), "there is no etcd", ETCD_HELP);
        }
        let is_dns = self.dns.is_some() || self.srv.is_some();
        if self.resolver.is_some() && !is_dns && checker.is_readable(path) {
            let help = "add dns = \"web.internal:8080\" or srv = \"_http._tcp.web.internal\", or remove it";
            checker.report(format!("{path}.resolver"), "has no effect: the source is no DNS name", help);
        }
        let without_ordinals = match (is_dns, self.kubernetes.is_some(), self.eds.is_some()) {
            (true, ..) => Some("DNS has no ordinals, so each answer would be an error"),
            (_, true, _) => Some("EndpointSlices have no ordinals, so each answer would be an error"),
            (.., true) => Some("EDS has no ordinals, so each answer would be an error"),
            _ => None,
        };
        if let Some(reason) = without_ordinals.filter(|_| self.ordinals) {
            let help = "remove it, or list the backends in a file, each with its ordinal";
            checker.report(format!("{path}.ordinals"), reason, help);
        }
        if let Some(kubernetes) = &self.kubernetes {
            kubernetes.check(&format!("{path}.kubernetes"), checker);
        }
    }

    /// The sources that are set, each with its key.
    fn origins(&self, context: SourceContext<'_>) -> impl Iterator<Item = (&'static str, Origin)> {
        let SourceContext { folder, tls, etcd } = context;
        let file = self.file.as_ref().map(|file| Origin::File(file.within(folder)));
        let server = self.resolver.map(|resolver| resolver.0);
        let dns = self.dns.clone().map(|name| Origin::Dns(name, server));
        let srv = self.srv.clone().map(|name| Origin::Srv(name, server));
        let kubernetes = self.kubernetes.clone().map(|service| Origin::Kubernetes(service.within(folder)));
        let eds = self.eds.clone().map(|service| Origin::Eds(service, tls.cloned()));
        let registered = |service: &FleetName| Some(Registered { etcd: etcd?.clone(), service: service.0.clone() });
        let registry = self.etcd.as_ref().and_then(registered).map(Origin::Etcd);
        [("file", file), ("dns", dns), ("srv", srv), ("kubernetes", kubernetes), ("eds", eds), ("etcd", registry)]
            .into_iter()
            .filter_map(|(key, origin)| Some((key, origin?)))
    }
}

fn check_one(named: &[&str], path: &str, checker: &mut Checker<'_>) {
    match named {
        // An unreadable one was reported already.
        [] if checker.is_readable(path) => {
            let help =
                "add file = \"web.json\" or dns = \"web.internal:8080\", or remove the table and list the backends";
            checker.report(path, "names no source", help);
        }
        [] | [_] => {}
        [first, others @ ..] => {
            for other in others {
                let reason = format!("the source is named by {first} already");
                checker.report(format!("{path}.{other}"), reason, "remove one of them: a cluster has one source");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_config::Places;

    use super::*;

    #[test]
    fn each_source_after_the_first_is_a_problem_that_names_it() {
        let places = Places::default();
        let mut checker = Checker::new(&places, Vec::new());
        check_one(&["file"], "a", &mut checker);
        check_one(&["file", "dns"], "b", &mut checker);
        let [problem] = &checker.into_problems()[..] else { panic!("one problem") };
        assert_eq!((&*problem.path, &*problem.reason), ("b.dns", "the source is named by file already"));
    }
}
