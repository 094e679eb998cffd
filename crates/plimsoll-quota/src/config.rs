//! The configuration of a quota server: the addresses, and the limits of each service.

mod groups;
mod shared;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use plimsoll::tls::ServerTls;
use plimsoll_config::{Checker, Choice, ConfigError, DeTable, Effect, Flaw, Format, Read, number, quoted, table, text};
use plimsoll_core::admit::Outlook;
use plimsoll_core::quota::{MAX_NAMED, OwnerConfig};
use plimsoll_etcd::settings::EtcdSettings;
use plimsoll_tls_config::{CertificateExpiry, ClientCertificate, ClientName, ListenerTls, Reader};

pub(crate) use self::shared::is_service_name;

const OUTLOOK: Choice<Outlook> =
    Choice { noun: "an outlook", names: &[("optimistic", Outlook::Optimistic), ("pessimistic", Outlook::Pessimistic)] };
const ON_SPLIT: Choice<OnSplit> =
    Choice { noun: "a rule for a split", names: &[("keep", OnSplit::Keep), ("expire", OnSplit::Expire)] };
const UNIT: Choice<Unit> = Choice { noun: "a unit", names: &[("cpus", Unit::Cpus), ("requests", Unit::Requests)] };
const LIMITED: Effect = Effect::Applied("one task has it at once, and all of them 3 s later; rates follow");
const AUTHORISED: Effect = Effect::Applied("a task without the right loses its stream with its next report");
const OPERATED: Effect = Effect::Applied("from the next request on");
const SPOKEN: Effect = Effect::Applied("for new connections; a table that is added or removed needs a restart");
const BOUND: Effect = Effect::Restart("addresses are bound at the start");
const OWNED: Effect = Effect::Restart("an owner keeps it: another one begins with the next start");
const ANNOUNCED: Effect = Effect::Restart("other servers and tasks know the address from the start on");
/// A lease shorter than this ends at each pause of a task.
const MIN_LEASE: Duration = Duration::from_secs(5);
/// Envoy reports every 5 s, and is to keep its assignments for some of these.
pub(crate) const MIN_ENVOY_LEASE: Duration = Duration::from_secs(30);
/// A task without a server uses its last rates for so long at most.
const MAX_LEASE: Duration = Duration::from_secs(3_600);
/// The largest limit, in CPUs: a hundred large data centres.
const MAX_CPUS: f64 = 1e8;
/// The smallest soft limit, in CPUs.
const MIN_SOFT: f64 = 0.001;
/// The longest name of a customer.
const MAX_NAME: usize = 256;

/// The default address for tasks.
pub const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9800);
/// The default address of the admin API.
pub const DEFAULT_ADMIN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9801);

/// An address to listen at.
const ADDRESS: Format<SocketAddr> = Format {
    read: |v| {
        let help = "write an IP address and a port, such as \"127.0.0.1:9800\" or \"[::1]:9800\"";
        let text = text(v, "an address to listen at", "an address in quotes, such as \"127.0.0.1:9800\"")?;
        text.parse().map_err(|_| Flaw::new(format!("\"{text}\" is not an address to listen at"), help))
    },
    print: |address| quoted(address.to_string()),
};
/// A soft limit: a part of nothing is no share.
const SOFT: Format<f64> = Format {
    read: |v| {
        let help = "write a number from 0.001 to 100000000, without quotes, such as 2 or 0.5";
        let cpus = number(v).filter(|cpus| (MIN_SOFT..=MAX_CPUS).contains(cpus));
        cpus.ok_or_else(|| Flaw::new("is not a number of CPUs", help))
    },
    print: |cpus| format!("{cpus:?}"),
};
/// A number of CPUs.
const CPUS: Format<f64> = Format {
    read: |v| {
        let help = "write a number from 0 to 100000000, without quotes, such as 2 or 0.5";
        let cpus = number(v).filter(|cpus| (0.0..=MAX_CPUS).contains(cpus));
        cpus.ok_or_else(|| Flaw::new("is not a number of CPUs", help))
    },
    print: |cpus| format!("{cpus:?}"),
};

table! {
    #[derive(Clone, Debug, PartialEq)]
    struct Root {
        listen: SocketAddr = DEFAULT_LISTEN, value_as(ADDRESS), BOUND;
        advertise: Option<String> = None, optional_as(shared::ADVERTISED), ANNOUNCED;
        on_split: OnSplit = OnSplit::Keep, value_as(ON_SPLIT), ANNOUNCED;
        admin: Admin = Admin::default(), table;
        tls: Option<ListenerTls> = None, optional_table, SPOKEN;
        etcd: Option<EtcdSettings> = None, optional_table;
        services: BTreeMap<String, ServiceConfig> = BTreeMap::new(), named;
    }
    EXAMPLE = "[services.shop.customers.acme]\nhard_limit = 2";
}

table! {
    #[derive(Clone, Debug, PartialEq)]
    struct Admin {
        listen: Option<SocketAddr> = Some(DEFAULT_ADMIN), switch_as(ADDRESS), BOUND;
        operators: Vec<ClientName> = Vec::new(), value, OPERATED;
    }
    OFF = "listen = \"off\"";
}

/// The conduct of an owner whose lease in etcd can have expired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnSplit {
    /// It goes on until another owner is known.
    #[default]
    Keep,
    /// It ends its streams, so that leases of tasks end.
    Expire,
}

/// The unit of the limits of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// CPUs: the costs of requests in CPU-seconds a second.
    #[default]
    Cpus,
    /// Requests a second.
    Requests,
}

impl Unit {
    /// The cost of a request where each counts as one, in rate units.
    pub(crate) const REQUEST: f64 = 1e3;

    /// Rate units of one CPU, or of one request a second. Rates of tasks have 32 bits.
    pub(crate) const fn scale(self) -> f64 {
        match self {
            Self::Cpus => 1e6,
            Self::Requests => Self::REQUEST,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Cpus => "cpus",
            Self::Requests => "requests",
        }
    }
}

table! {
    /// A service: its tasks share the limits.
    #[derive(Clone, Debug, PartialEq)]
    #[non_exhaustive]
    pub struct ServiceConfig {
        /// The unit of its limits.
        pub unit: Unit = Unit::Cpus, value_as(UNIT), OWNED;
        /// The time for which a task may use its rates after its last report.
        pub lease: Duration = OwnerConfig::DEFAULT_LEASE, value, OWNED;
        /// Whether a part of each limit is lent to tasks at once.
        pub outlook: Outlook = Outlook::Optimistic, value_as(OUTLOOK), OWNED;
        /// Whether refusals are only counted.
        pub dry_run: bool = false, value, LIMITED;
        /// Names in certificates of its tasks.
        pub reporters: Vec<ClientName> = Vec::new(), value, AUTHORISED;
        /// The limit of each customer without a table of its own.
        pub other_customers: OtherCustomers = OtherCustomers::default(), table;
        /// Limits by name.
        pub customers: BTreeMap<String, CustomerConfig> = BTreeMap::new(), named;
        /// Limits of customers together, by the name of their group.
        pub groups: BTreeMap<String, GroupConfig> = BTreeMap::new(), named;
    }
}

table! {
    /// The limit of each customer without a table of its own.
    #[derive(Clone, Debug, PartialEq)]
    #[non_exhaustive]
    pub struct OtherCustomers {
        /// The share of each while tasks have not enough CPU for all, in CPUs over all tasks; the hard limit if left out.
        pub soft_limit: Option<f64> = None, optional_as(SOFT), LIMITED;
        /// In the unit over all tasks; without it there is no limit.
        pub hard_limit: Option<f64> = None, optional_as(CPUS), LIMITED;
        /// The group of all of them together.
        pub group: Option<String> = None, optional, LIMITED;
    }
}

table! {
    /// The limit of one customer.
    #[derive(Clone, Debug, PartialEq)]
    #[non_exhaustive]
    pub struct CustomerConfig {
        /// Its share while tasks have not enough CPU for all, in CPUs over all tasks; the hard limit if left out.
        pub soft_limit: Option<f64> = None, optional_as(SOFT), LIMITED;
        /// In the unit over all tasks; without it there is no limit.
        pub hard_limit: Option<f64> = None, optional_as(CPUS), LIMITED;
        /// Whether its refusals are only counted.
        pub dry_run: bool = false, value, LIMITED;
        /// Its group, whose limit holds as well.
        pub group: Option<String> = None, optional, LIMITED;
    }
}

table! {
    /// The limit of the customers of a group together.
    #[derive(Clone, Copy, Debug, PartialEq)]
    #[non_exhaustive]
    pub struct GroupConfig {
        /// In the unit over all tasks; a group has to have one.
        pub hard_limit: Option<f64> = None, optional_as(CPUS), LIMITED;
        /// Whether its refusals are only counted.
        pub dry_run: bool = false, value, LIMITED;
    }
}

/// Whether a file is meant for a quota server: it has the table `services`, or services in etcd.
#[must_use]
pub fn is_quota(text: &str) -> bool {
    let has = |table: &DeTable<'_>| ["services", "advertise"].iter().any(|key| table.contains_key(*key));
    DeTable::parse(text).is_ok_and(|table| has(table.get_ref()))
}

/// A checked configuration.
#[derive(Clone, Debug)]
pub struct Config {
    root: Root,
    /// By the certificates of the files; `None`: without TLS.
    tls: Option<Arc<ServerTls>>,
    /// The ends of those certificates.
    expiries: Arc<[CertificateExpiry]>,
    /// Relative paths begin there.
    folder: PathBuf,
}

/// Equal when the settings are.
impl PartialEq for Config {
    fn eq(&self, other: &Self) -> bool {
        self.root == other.root
    }
}

impl ServiceConfig {
    /// The settings of the owner of Envoys, beside that of the backends.
    pub(crate) fn front(&self) -> Self {
        Self { lease: self.lease.max(MIN_ENVOY_LEASE), ..self.without_groups() }
    }
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// The file cannot be read, or all its problems.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        let folder = file.parent().unwrap_or(Path::new(""));
        Self::parse_in(folder, &file.display().to_string(), &plimsoll_config::load(file)?)
    }

    /// Reads and checks the text of a file, which messages call `source`. Relative paths begin at the
    /// working directory.
    ///
    /// # Errors
    /// All its problems.
    pub fn parse(source: &str, text: &str) -> Result<Self, ConfigError> {
        Self::parse_in(Path::new(""), source, text)
    }

    fn parse_in(folder: &Path, source: &str, text: &str) -> Result<Self, ConfigError> {
        let Read { root, places, problems } = plimsoll_config::read::<Root>(text);
        let mut checker = Checker::new(&places, problems);
        check(&root, &mut checker);
        shared::check(&root, folder, &mut checker);
        let mut reader = Reader::new(checker, folder);
        let material = root.tls.as_ref().and_then(|tls| reader.listener("tls", tls));
        let problems = reader.into_problems();
        if !problems.is_empty() {
            return Err(ConfigError::new(source, problems));
        }
        let expiries = material.as_ref().map(CertificateExpiry::of).unwrap_or_default();
        let tls = material.map(|material| Arc::new(ServerTls::new(&material)));
        Ok(Self { root, tls, expiries, folder: folder.to_owned() })
    }

    /// The settings of another configuration that need a restart.
    #[must_use]
    pub fn needs_restart(&self, other: &Self) -> Vec<&'static str> {
        let differs = [
            ("listen", self.listen() != other.listen()),
            ("admin.listen", self.admin() != other.admin()),
            ("tls", self.tls.is_some() != other.tls.is_some()),
            ("etcd", self.root.etcd != other.root.etcd),
            ("advertise", self.root.advertise != other.root.advertise),
            ("on_split", self.root.on_split != other.root.on_split),
        ];
        differs.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
    }

    /// A configuration of one service, from arguments. `limits` are in CPUs by customer; `others` is the limit of
    /// each other customer.
    ///
    /// # Errors
    /// All problems.
    pub fn simple(
        service: &str,
        limits: &[(String, f64)],
        others: Option<f64>,
        listen: SocketAddr,
        admin: Option<SocketAddr>,
    ) -> Result<Self, ConfigError> {
        let customers = limits.iter().map(|(name, limit)| {
            (name.clone(), CustomerConfig { hard_limit: Some(*limit), ..CustomerConfig::default() })
        });
        let service_config = ServiceConfig {
            other_customers: OtherCustomers { hard_limit: others, ..OtherCustomers::default() },
            customers: customers.collect(),
            ..ServiceConfig::default()
        };
        let services = BTreeMap::from([(service.to_owned(), service_config)]);
        let root = Root { listen, admin: Admin { listen: admin, ..Admin::default() }, services, ..Root::default() };
        // The printed file is read again, so that arguments have the checks of a file.
        Self::parse("command line", &plimsoll_config::print(&root))
    }

    /// The address for tasks.
    #[must_use]
    pub fn listen(&self) -> SocketAddr {
        self.root.listen
    }

    /// The address of the admin API; `None`: off.
    #[must_use]
    pub fn admin(&self) -> Option<SocketAddr> {
        self.root.admin.listen
    }

    /// TLS at both addresses; `None`: without TLS, at loopback.
    #[must_use]
    pub fn tls(&self) -> Option<&Arc<ServerTls>> {
        self.tls.as_ref()
    }

    /// The ends of the certificates that clients are shown; none without TLS.
    pub(crate) fn certificate_expiries(&self) -> &Arc<[CertificateExpiry]> {
        &self.expiries
    }

    /// Names in certificates of clients that may change limits.
    #[must_use]
    pub fn operators(&self) -> &[ClientName] {
        &self.root.admin.operators
    }

    /// The services, by name.
    #[must_use]
    pub fn services(&self) -> &BTreeMap<String, ServiceConfig> {
        &self.root.services
    }

    /// The etcd that servers of a fleet share; `None`: this server is alone.
    #[must_use]
    pub fn etcd(&self) -> Option<Result<plimsoll_etcd::Client, plimsoll_etcd::InvalidConfig>> {
        self.root.etcd.as_ref().map(|etcd| etcd.client(&self.folder))
    }

    /// The address of this server for tasks, as others know it.
    pub(crate) fn advertise(&self) -> Option<&str> {
        self.root.advertise.as_deref()
    }

    pub(crate) fn on_split(&self) -> OnSplit {
        self.root.on_split
    }

    /// The configuration as TOML, with every default. Parses to an equal one.
    #[must_use]
    pub fn print(&self) -> String {
        plimsoll_config::print(&self.root)
    }
}

fn check(root: &Root, checker: &mut Checker<'_>) {
    if root.services.is_empty() && root.etcd.is_none() && checker.is_readable("services") {
        let help = "add [services.NAME], with a limit such as [services.NAME.customers.acme] hard_limit = 2";
        checker.report("services", "there is no service", help);
    }
    for (path, address) in [("listen", Some(root.listen)), ("admin.listen", root.admin.listen)] {
        if root.tls.is_none() && address.is_some_and(|address| !address.ip().is_loopback()) {
            let help =
                "add [tls] with certificates and client_ca, or use an address of this machine, such as 127.0.0.1";
            checker.report(path, "is open to the network, and callers are not authenticated without [tls]", help);
        }
    }
    check_rights(root, checker);
    for (name, service) in &root.services {
        check_service(&format!("services.{name}"), service, root.tls.is_some(), checker);
    }
}

/// The place of a key in the table at `path`, which is empty for a text of its own.
fn at(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// Checks the service whose table is at `path`.
fn check_service(path: &str, service: &ServiceConfig, has_tls: bool, checker: &mut Checker<'_>) {
    check_reporters(path, service, has_tls, checker);
    let lease = at(path, "lease");
    if !(MIN_LEASE..=MAX_LEASE).contains(&service.lease) {
        checker.report(&lease, "is not from 5s to 1h", "use 60s, unless tasks pause for longer");
    }
    if service.unit == Unit::Requests && (MIN_LEASE..MIN_ENVOY_LEASE).contains(&service.lease) {
        let help = "use 60s: Envoy reports every 5 s, and has to keep its limits meanwhile";
        checker.report(lease, "is below 30s for a service that counts requests", help);
    }
    let limits = service.customers.len() + service.groups.len();
    if limits > MAX_NAMED {
        let reason = format!("{limits} customers and groups, and {MAX_NAMED} are the most");
        checker.report(at(path, "customers"), reason, "use other_customers for those of one limit");
    }
    let customers = service.customers.keys().map(|name| ("customer", name));
    let groups = service.groups.keys().map(|name| ("group", name));
    for (kind, name) in customers.chain(groups) {
        if name.is_empty() || name.len() > MAX_NAME {
            let help = "use 1 to 256 bytes, for a customer as requests name it";
            checker.report(at(path, &format!("{kind}s.{name}")), format!("is not the name of a {kind}"), help);
        }
    }
    let others = &service.other_customers;
    let others = (at(path, "other_customers"), others.soft_limit, others.hard_limit);
    let named = service.customers.iter();
    let named = named.map(|(name, of)| (at(path, &format!("customers.{name}")), of.soft_limit, of.hard_limit));
    for (path, soft, hard) in named.chain([others]) {
        check_soft_limit(&format!("{path}.soft_limit"), soft, hard, service.unit, checker);
    }
    groups::check(path, service, checker);
}

fn check_soft_limit(path: &str, soft: Option<f64>, hard: Option<f64>, unit: Unit, checker: &mut Checker<'_>) {
    let Some(soft) = soft else { return };
    if unit == Unit::Requests {
        let help = "remove it: Envoys have no CPU to share";
        checker.report(path, "has no effect in a service that counts requests", help);
    }
    if let Some(hard) = hard.filter(|hard| soft > *hard) {
        checker.report(path, format!("{soft} is more than hard_limit ({hard})"), "lower it, or raise hard_limit");
    }
}

/// Checks that certificates are asked for.
fn check_rights(root: &Root, checker: &mut Checker<'_>) {
    match &root.tls {
        Some(tls) if tls.client_certificate != ClientCertificate::Required => {
            let (path, reason) = ("tls.client_certificate", "is not \"required\": rights are by certificates");
            let path = if checker.is_set(path) { path } else { "tls" };
            checker.report(path, reason, "write client_certificate = \"required\", and client_ca");
        }
        None if !root.admin.operators.is_empty() => checker.report("admin.operators", WITHOUT_TLS.0, WITHOUT_TLS.1),
        _ => {}
    }
}

const WITHOUT_TLS: (&str, &str) =
    ("has no effect without [tls]", "add [tls] with certificates and client_ca, or remove it");

/// Checks that somebody may report for the service whose table is at `path`.
fn check_reporters(path: &str, service: &ServiceConfig, has_tls: bool, checker: &mut Checker<'_>) {
    let reporters = at(path, "reporters");
    match (has_tls, service.reporters.is_empty()) {
        (false, false) => checker.report(reporters, WITHOUT_TLS.0, WITHOUT_TLS.1),
        (true, true) => {
            let place = if checker.is_set(&reporters) { reporters } else { path.to_owned() };
            let help = "add reporters, names in certificates of its tasks, such as [\"spiffe://example.com/shop\"]";
            checker.report(place, "has no reporters: no task may join", help);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_config::Setting;

    use super::*;

    #[test]
    fn file_is_read_and_printed_with_every_default() {
        let text = "[services.shop]\ndry_run = true\n[services.shop.customers.acme]\nhard_limit = 2\nsoft_limit = 1\n\
                    [services.shop.other_customers]\nhard_limit = 0.5\n";
        let config = Config::parse("quota.toml", text).unwrap();
        let shop = &config.services()["shop"];
        assert_eq!((shop.customers["acme"].hard_limit, shop.other_customers.hard_limit), (Some(2.0), Some(0.5)));
        assert!(shop.dry_run && shop.lease == Duration::from_secs(60));
        let printed = config.print();
        assert!(printed.contains("listen = \"127.0.0.1:9800\"") && printed.contains("lease = \"1m\""), "{printed}");
        assert_eq!(Config::parse("printed", &printed), Ok(config));
    }

    #[test]
    fn every_problem_is_reported_at_its_place() {
        let text = "listen = \"0.0.0.0:9800\"\n[services.shop]\nlease = \"1s\"\n[services.shop.customers.acme]\n\
                    hard_limit = -2\nhard_limt = 3\n";
        let error = Config::parse("quota.toml", text).unwrap_err().to_string();
        for line in [
            "quota.toml:1:10: listen: is open to the network",
            "quota.toml:3:9: services.shop.lease: is not from 5s to 1h",
            "quota.toml:5:14: services.shop.customers.acme.hard_limit: is not a number of CPUs",
            "hard_limt",
        ] {
            assert!(error.contains(line), "no {line:?} in\n{error}");
        }
        let error = Config::parse("quota.toml", "").unwrap_err().to_string();
        assert!(error.contains("services: there is no service"), "{error}");
    }

    #[test]
    fn soft_limit_is_a_share_below_the_hard_one_of_cpus() {
        let text = "[services.a]\nunit = \"requests\"\nother_customers.soft_limit = 1\n[services.b.customers]\n\
                    acme = { soft_limit = 3, hard_limit = 2 }\nweb = { soft_limit = 0 }\n";
        let error = Config::parse("quota.toml", text).unwrap_err().to_string();
        for line in [
            "quota.toml:3:30: services.a.other_customers.soft_limit: has no effect in a service that counts requests",
            "quota.toml:5:23: services.b.customers.acme.soft_limit: 3 is more than hard_limit (2)",
            "quota.toml:6:22: services.b.customers.web.soft_limit: is not a number of CPUs",
        ] {
            assert!(error.contains(line), "no {line:?} in\n{error}");
        }
    }

    #[test]
    fn group_has_a_limit_and_members_or_is_a_problem() {
        let good = "[services.shop.groups.free]\nhard_limit = 2\n[services.shop.other_customers]\ngroup = \"free\"\n";
        let config = Config::parse("quota.toml", good).unwrap();
        assert_eq!(config.services()["shop"].groups["free"].hard_limit, Some(2.0));
        assert_eq!(config.services()["shop"].other_customers.group.as_deref(), Some("free"));
        assert_eq!(Config::parse("printed", &config.print()), Ok(config));
        let text = "[services.shop.groups.free]\ndry_run = true\n[services.shop.groups.paid]\nhard_limit = 2\n\
                    [services.shop.customers.acme]\nhard_limit = 1\ngroup = \"fee\"\n[services.shop.other_customers]\n\
                    group = \"free\"\n[services.web]\nunit = \"requests\"\nother_customers.group = \"x\"\n\
                    [services.web.groups.x]\nhard_limit = 5\n[services.api.groups.paid]\nhard_limit = 2\n";
        let error = Config::parse("quota.toml", text).unwrap_err().to_string();
        for line in [
            "quota.toml:1:23: services.shop.groups.free: is a group without a limit",
            "services.api.groups.paid: is a group without customers",
            "quota.toml:7:9: services.shop.customers.acme.group: there is no group \"fee\" in this service",
            "add [services.shop.groups.fee] with hard_limit, or name one of: free, paid",
            "services.web.groups.x: is a group of a service that counts requests",
        ] {
            assert!(error.contains(line), "no {line:?} in\n{error}");
        }
        assert!(!error.contains("services.shop.groups.paid"), "its customer may be the one with the typo\n{error}");
    }

    #[test]
    fn every_setting_is_in_the_documentation() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/quotas.md");
        let page = std::fs::read_to_string(page).unwrap();
        for Setting { table, key, default, .. } in plimsoll_config::settings::<Root>() {
            let default = default.map_or_else(|| "-".to_owned(), |default| format!("`{default}`"));
            let row = match &*table {
                "" => format!("| `{key}` | {default} |"),
                table => format!("| `{table}.{key}` | {default} |"),
            };
            assert!(page.contains(&row), "docs/quotas.md should hold a row {row}");
        }
    }

    #[test]
    fn arguments_have_the_checks_of_a_file() {
        let simple = |limit| Config::simple("shop", &[("acme".to_owned(), limit)], Some(0.5), DEFAULT_LISTEN, None);
        assert_eq!(simple(2.0).unwrap().services()["shop"].customers["acme"].hard_limit, Some(2.0));
        assert!(simple(f64::NAN).is_err() && simple(-1.0).is_err());
    }
}
