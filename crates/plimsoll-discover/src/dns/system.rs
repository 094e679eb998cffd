//! The machine's own rules about names: `/etc/resolv.conf` and `/etc/hosts`, read for each answer.
//! A machine that changes its network, and a container whose files are mounted late, need no restart.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hickory_proto::rr::Name;
use tokio::io::AsyncReadExt as _;

use super::Failure;

const RESOLV_CONF: &str = "/etc/resolv.conf";
const HOSTS: &str = "/etc/hosts";
/// Largest file that is read.
const MAX_LENGTH: u64 = 1024 * 1024;
/// The port of DNS servers.
const PORT: u16 = 53;
/// Longest time for one question, whatever the file says: it permits minutes.
pub(super) const MAX_QUESTION_TIME: Duration = Duration::from_secs(5);
/// Most servers and search domains that count. The C library takes 3 and 6.
const MAX_ENTRIES: usize = 8;

/// The rules about names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Local {
    /// Domains to append to names with fewer dots than `ndots` before they are tried as they are.
    pub(super) search: Vec<Name>,
    pub(super) ndots: usize,
    /// The text of `/etc/hosts`.
    pub(super) hosts: String,
    pub(super) servers: Vec<SocketAddr>,
    /// Longest time for one question.
    pub(super) timeout: Duration,
}

impl Local {
    /// One server, and names as they are.
    pub(super) fn at(server: SocketAddr) -> Self {
        Self { servers: vec![server], timeout: MAX_QUESTION_TIME, ..Self::default() }
    }

    /// The rules of this machine.
    pub(super) async fn read() -> Result<Self, Failure> {
        let unreadable = |file| move |cause| Failure::Unreadable { file, cause: Arc::new(cause) };
        let text = text(RESOLV_CONF).await.map_err(unreadable(RESOLV_CONF))?;
        let hosts = self::text(HOSTS).await.map_err(unreadable(HOSTS))?;
        Ok(Self { hosts, ..Self::parse(&text) })
    }

    /// The rules in the text of a `resolv.conf`. Lines that are wrong have no effect.
    pub(super) fn parse(text: &str) -> Self {
        let (config, _) = resolv_conf::Config::parse_with_errors(text.as_bytes());
        let search = config.get_last_search_or_domain().filter_map(|domain| {
            let mut domain = Name::from_ascii(domain).ok()?;
            domain.set_fqdn(true);
            (!domain.is_root()).then_some(domain)
        });
        // Without a server the local one, as in the C library.
        let servers = config.get_nameservers_or_local().into_iter().take(MAX_ENTRIES);
        let timeout = Duration::from_secs(u64::from(config.timeout.max(1)) * u64::from(config.attempts.max(1)));
        Self {
            search: search.take(MAX_ENTRIES).collect(),
            ndots: config.ndots as usize,
            hosts: String::new(),
            servers: servers.map(|server| SocketAddr::new(server.into(), PORT)).collect(),
            timeout: timeout.min(MAX_QUESTION_TIME),
        }
    }

    /// The addresses that `/etc/hosts` has for `name`, and for `localhost` those of the machine itself.
    pub(super) fn own(&self, name: &str) -> Vec<IpAddr> {
        let name = name.trim_end_matches('.');
        let lines = self.hosts.lines().filter_map(|line| {
            let mut words = line.split('#').next()?.split_whitespace();
            let address: IpAddr = words.next()?.parse().ok()?;
            words.any(|word| word.trim_end_matches('.').eq_ignore_ascii_case(name)).then_some(address)
        });
        let found: Vec<_> = lines.collect();
        let is_localhost = name.rsplit('.').next().is_some_and(|last| last.eq_ignore_ascii_case("localhost"));
        if found.is_empty() && is_localhost { vec![[127, 0, 0, 1].into(), IpAddr::V6(1.into())] } else { found }
    }
}

/// The text of a file; empty if there is none.
async fn text(file: &str) -> io::Result<String> {
    let file = match tokio::fs::File::open(file).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        file => file?,
    };
    let mut bytes = Vec::new();
    file.take(MAX_LENGTH).read_to_end(&mut bytes).await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolv_conf_gives_servers_domains_and_times() {
        let text = "search shop.svc.cluster.local svc.cluster.local.\nnameserver 10.0.0.10\nnonsense\n\
                    nameserver fd00::a\noptions ndots:5 timeout:1 attempts:3\n";
        let local = Local::parse(text);
        let search: Vec<_> = local.search.iter().map(Name::to_ascii).collect();
        assert_eq!(search, ["shop.svc.cluster.local.", "svc.cluster.local."]);
        assert_eq!(local.servers, ["10.0.0.10:53".parse().unwrap(), "[fd00::a]:53".parse().unwrap()]);
        assert_eq!((local.ndots, local.timeout), (5, Duration::from_secs(3)));
        let none = Local::parse("");
        assert_eq!(
            (none.servers[0], none.ndots, none.timeout),
            ("127.0.0.1:53".parse().unwrap(), 1, MAX_QUESTION_TIME)
        );
    }

    #[test]
    fn hosts_file_and_localhost_need_no_server() {
        let hosts =
            "# comment\n10.0.0.1 db db.internal # the database\n10.0.0.2\tDB\nfd00::1 db\nwrong db\n".to_owned();
        let local = Local { hosts, ..Local::default() };
        let own = |name| local.own(name).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(own("db"), ["10.0.0.1", "10.0.0.2", "fd00::1"]);
        assert_eq!(own("db.internal."), ["10.0.0.1"]);
        assert_eq!(own("localhost"), ["127.0.0.1", "::1"]);
        assert!(own("web").is_empty());
    }
}
