//! The processes of the scene: a quota server, and the backends that share its limits.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::time::Instant;

use super::customer::{COST, COST_SIGMA, CUSTOMERS};
use super::state::State;
use crate::demo::child::Child;
use crate::demo::cpu;

/// Backends of the fleet.
pub(crate) const BACKENDS: usize = 8;
/// How long tasks may take to join: the server waits 5 s for those with rates of an earlier one.
const SHARED_WITHIN: Duration = Duration::from_secs(20);
/// Between two looks whether they have.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A port that the system chooses.
const FREE_PORT: &str = "127.0.0.1:0";

/// One backend.
#[derive(Debug)]
struct Member {
    address: SocketAddr,
    child: Child,
}

/// Running processes. They end when this is dropped.
#[derive(Debug)]
pub(crate) struct Fleet {
    members: Vec<Member>,
    /// `None` while it is lost.
    server: Option<Child>,
    /// Where tasks reach it.
    tasks: SocketAddr,
    /// Where its API listens.
    pub(crate) admin: SocketAddr,
}

impl Fleet {
    /// Starts everything, and waits until the limits are shared.
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let (server, [tasks, admin]) = start_server(FREE_PORT, FREE_PORT).await?;
        let mut members = Vec::new();
        for number in 0..BACKENDS {
            let (cost, server) = (format!("lognormal:{}us,{COST_SIGMA}", COST * 1e6), tasks.to_string());
            let arguments = ["backend", "--listen", FREE_PORT, "--cost", &cost, "--protect", "--cost-header"];
            let arguments = arguments.into_iter().chain(["--quota", &server]).map(ToOwned::to_owned);
            let child = Child::start(format!("backend {number}"), &arguments.collect::<Vec<_>>())?;
            // The address is not known before it is ready.
            members.push(Member { address: tasks, child });
        }
        for member in &mut members {
            member.address = member.child.listening().await?;
        }
        let mut fleet = Self { members, server: Some(server), tasks, admin };
        fleet.wait_until_shared().await?;
        Ok(fleet)
    }

    async fn wait_until_shared(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + SHARED_WITHIN;
        while !self.state().await?.is_some_and(|state| state.is_sure && state.connected == BACKENDS) {
            self.must_run()?;
            if Instant::now() > deadline {
                bail!("the limits are not shared by {BACKENDS} backends after {SHARED_WITHIN:?}");
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// The addresses of the backends.
    pub(crate) fn backends(&self) -> Vec<SocketAddr> {
        self.members.iter().map(|member| member.address).collect()
    }

    /// Kills the quota server.
    pub(crate) async fn lose_server(&mut self) {
        if let Some(server) = self.server.take() {
            server.end().await;
        }
    }

    /// Starts it again at its address, unless it runs.
    pub(crate) async fn restore_server(&mut self) -> anyhow::Result<()> {
        if self.server.is_none() {
            let (server, _) = start_server(&self.tasks.to_string(), &self.admin.to_string()).await?;
            self.server = Some(server);
        }
        Ok(())
    }

    /// The state of the limits by the server; `None` while it is lost.
    pub(crate) async fn state(&self) -> anyhow::Result<Option<State>> {
        if self.server.is_none() {
            return Ok(None);
        }
        let pids: Vec<u32> = self.members.iter().map(|member| member.child.pid()).collect();
        State::read(self.admin, &pids).await.map(Some)
    }

    /// CPU seconds that all backends have used until now, by the kernel.
    pub(crate) fn cpu_used(&self) -> anyhow::Result<f64> {
        let used = self.members.iter().map(|member| cpu::used(member.child.pid()));
        used.sum::<Result<f64, _>>().context("cannot measure the backends")
    }

    /// An error if one of the processes has ended that should run.
    pub(crate) fn must_run(&mut self) -> anyhow::Result<()> {
        self.server.iter_mut().try_for_each(Child::must_run)?;
        self.members.iter_mut().try_for_each(|member| member.child.must_run())
    }

    /// Ends all processes, and waits until they have ended.
    pub(crate) async fn end(mut self) {
        self.lose_server().await;
        for member in self.members {
            member.child.end().await;
        }
    }
}

/// A quota server, with its addresses for tasks and for its API.
async fn start_server(listen: &str, admin: &str) -> anyhow::Result<(Child, [SocketAddr; 2])> {
    let mut arguments = ["quota", "--listen", listen, "--admin", admin].map(ToOwned::to_owned).to_vec();
    for customer in CUSTOMERS {
        arguments.extend(["--limit".to_owned(), format!("{}={}", customer.name, customer.limit)]);
    }
    let mut server = Child::start("the quota server", &arguments)?;
    let addresses = server.listening_with_admin().await?;
    Ok((server, addresses))
}
