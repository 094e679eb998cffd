//! The processes of an act: backends, and a proxy in front of them.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::process::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::child::Child;
use super::cpu;
use super::stage::Stage;

/// How long the proxy may take to answer its first request.
const READY_WITHIN: Duration = Duration::from_secs(10);
/// Between two looks whether it does.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// One backend.
#[derive(Debug)]
pub(crate) struct Member {
    /// Where it listens, and its `x-backend`.
    pub(crate) address: SocketAddr,
    /// Relative to a backend of speed 1.
    pub(crate) speed: f64,
    child: Child,
    /// CPU seconds of its earlier processes.
    used_before: f64,
}

/// Running processes. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Fleet {
    /// In the order of the speeds that were asked for.
    pub(crate) members: Vec<Member>,
    /// Where the proxy takes requests.
    pub(crate) proxy: SocketAddr,
    /// Where its admin API listens.
    pub(crate) admin: SocketAddr,
    /// Cost of a request at a backend, as its argument.
    cost: String,
    proxy_process: Child,
    config: ConfigFile,
}

impl Fleet {
    /// Starts everything, and waits until a request gets through. The admin API is at `admin`.
    pub(crate) async fn start(speeds: &[f64], cost: &str, stage: Stage, admin: SocketAddr) -> anyhow::Result<Self> {
        let mut members = Vec::new();
        for (number, speed) in speeds.iter().enumerate() {
            // The address is not known before it is ready.
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let mut member =
                Member { address, speed: *speed, child: backend(number, address, cost, *speed)?, used_before: 0.0 };
            member.address = member.child.listening().await?;
            members.push(member);
        }
        let proxy = free_address()?;
        let addresses = members.iter().map(|member| member.address).collect();
        let config = ConfigFile::new(proxy, admin, addresses)?;
        config.write_pid(members[0].child.pid())?;
        config.write(stage)?;
        let arguments = ["proxy".to_owned(), "-c".to_owned(), config.path.display().to_string()];
        let mut proxy_process = Child::start("the proxy", &arguments)?;
        proxy_process.follow();
        let mut fleet = Self { members, proxy, admin, cost: cost.to_owned(), proxy_process, config };
        fleet.wait_until_ready().await?;
        Ok(fleet)
    }

    async fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + READY_WITHIN;
        while !answers(self.proxy).await.unwrap_or(false) {
            self.must_run()?;
            if Instant::now() > deadline {
                bail!("the proxy answers no request after {READY_WITHIN:?}");
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Has the proxy reload its config with another setting. No process is restarted.
    pub(crate) fn switch(&self, stage: Stage) -> anyhow::Result<()> {
        self.config.write(stage)?;
        self.proxy_process.signal(Signal::HUP)
    }

    /// Says how many CPUs the one service can keep busy, for the stage that protects it.
    pub(crate) fn set_cpus(&mut self, cpus: f64) {
        self.config.cpus = cpus;
    }

    /// CPU seconds that each backend has used until now.
    pub(crate) fn cpu_used(&self) -> anyhow::Result<Vec<f64>> {
        self.members.iter().map(Member::cpu_used).collect::<Result<_, _>>().context("cannot measure the backends")
    }

    /// Ends a backend as a deployment does, and starts it again at its address.
    pub(crate) async fn restart(&mut self, number: usize) -> anyhow::Result<()> {
        let member = &mut self.members[number];
        member.used_before = member.cpu_used().context("cannot measure a backend")?;
        member.child.drain().await?;
        member.child = backend(number, member.address, &self.cost, member.speed)?;
        member.child.listening().await?;
        Ok(())
    }

    /// An error if one of the processes has ended.
    pub(crate) fn must_run(&mut self) -> anyhow::Result<()> {
        self.proxy_process.must_run()?;
        self.members.iter_mut().try_for_each(|member| member.child.must_run())
    }

    /// Ends all processes, the proxy first, and waits until they have ended.
    pub(crate) async fn end(self) {
        self.proxy_process.end().await;
        for member in self.members {
            member.child.end().await;
        }
    }
}

impl Member {
    /// CPU seconds that it has used until now.
    fn cpu_used(&self) -> std::io::Result<f64> {
        Ok(self.used_before + cpu::used(self.child.pid())?)
    }
}

/// Starts a backend.
fn backend(number: usize, address: SocketAddr, cost: &str, speed: f64) -> anyhow::Result<Child> {
    let (address, speed) = (address.to_string(), speed.to_string());
    let arguments = ["backend", "--listen", &address, "--cost", cost, "--speed", &speed];
    Child::start(format!("backend {number}"), &arguments.map(ToOwned::to_owned))
}

/// Whether a request gets a 200.
async fn answers(address: SocketAddr) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: demo\r\nconnection: close\r\n\r\n").await?;
    let mut head = [0; 12];
    let read = tokio::time::timeout(Duration::from_secs(1), stream.read_exact(&mut head)).await;
    Ok(matches!(read, Ok(Ok(_))) && head.ends_with(b" 200"))
}

/// An address that nobody listens on. Someone else may take it before the proxy does; it then says
/// so, and the demo ends.
pub(crate) fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// The proxy's config, in a folder that goes when this does.
#[derive(Debug)]
struct ConfigFile {
    folder: PathBuf,
    path: PathBuf,
    proxy: SocketAddr,
    admin: SocketAddr,
    backends: Vec<SocketAddr>,
    /// CPUs that the service can keep busy on this machine.
    cpus: f64,
}

impl Drop for ConfigFile {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl ConfigFile {
    fn new(proxy: SocketAddr, admin: SocketAddr, backends: Vec<SocketAddr>) -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join(format!("plimsoll-demo-{}", std::process::id()));
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self { path: folder.join("plimsoll.toml"), folder, proxy, admin, backends, cpus: 1.0 })
    }

    fn write(&self, stage: Stage) -> anyhow::Result<()> {
        fs::write(&self.path, self.text(stage)).with_context(|| format!("cannot write {}", self.path.display()))
    }

    fn pid_path(&self) -> PathBuf {
        self.folder.join("service.pid")
    }

    fn write_pid(&self, pid: u32) -> anyhow::Result<()> {
        let path = self.pid_path();
        fs::write(&path, pid.to_string()).with_context(|| format!("cannot write {}", path.display()))
    }

    /// The config of a stage. Some settings differ from production: the machine has one thread to spare
    /// for the proxy, and half a minute is too short for the usual patience with new backends.
    fn text(&self, stage: Stage) -> String {
        let Self { proxy, admin, backends, cpus, .. } = self;
        let backends: Vec<String> = backends.iter().map(|backend| format!("\"{backend}\"")).collect();
        let trust = if stage.is_overload() { "trust_criticality = \"critical-plus\"\n" } else { "" };
        let mut text = format!(
            "threads = 1\n\n[admin]\nlisten = \"{admin}\"\n\n[[listeners]]\naddress = \"{proxy}\"\n{trust}\n\
             [[routes]]\ncluster = \"demo\"\n\n[clusters.demo]\npolicy = \"{}\"\nbackends = [{}]\n",
            stage.policy().name(),
            backends.join(", "),
        );
        match stage {
            Stage::RoundRobin | Stage::Weighted | Stage::Steady | Stage::Restarts => text.push_str(
                "\n[clusters.demo.slow_start]\nwindow = \"off\"\n\n\
                 [clusters.demo.weighted]\nblackout = \"1s\"\nupdate = \"250ms\"\n",
            ),
            // Without protection the gate counts, and the live page shows, the requests that it would shed.
            Stage::OverloadUnprotected | Stage::Overload => {
                let (pid_file, dry_run) = (self.pid_path().display().to_string(), stage == Stage::OverloadUnprotected);
                // Writing to a string does not fail.
                let _ = write!(
                    text,
                    "\n[clusters.demo.inbound]\npid_file = {pid_file:?}\ncpus = {cpus:.2}\ndry_run = {dry_run}\n",
                );
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_proxy::config::Config;

    use super::*;

    #[test]
    fn config_passes_the_check_at_every_stage() {
        let address = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let file = ConfigFile {
            folder: PathBuf::from("/nonexistent/demo"),
            path: PathBuf::new(),
            proxy: address(1),
            admin: address(2),
            backends: vec![address(3), address(4)],
            cpus: 0.97,
        };
        for stage in Stage::ALL {
            let config = Config::parse("demo", &file.text(stage)).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(config.clusters()["demo"].balancer.policy, stage.policy());
            assert_eq!(config.clusters()["demo"].backends.len(), 2);
            let sheds = config.clusters()["demo"].inbound.as_ref().map(|inbound| !inbound.dry_run);
            assert_eq!(sheds, stage.is_overload().then_some(stage == Stage::Overload));
        }
    }
}
