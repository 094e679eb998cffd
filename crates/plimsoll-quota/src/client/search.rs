//! The search for the owner of a service, beside the stream of a task.
//!
//! ```text
//! begins   when there is no answered stream, reports stay unanswered, or the owner says that another may have begun
//! asks     all other servers, each 0.2 s after the one before, for an owner above the last accepted epoch
//! ends     with the first that knows one
//! ```
//!
//! A server keeps such a question until it has an answer. So tasks hear of a new owner at once, and cost a server next
//! to nothing until then. An unreachable server delays none of the others.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use http::uri::{Authority, PathAndQuery};
use plimsoll::server::FleetLimits;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tonic::Code;
use tonic_prost::ProstCodec;

use super::connection::Connection;
use super::{Client, Target};
use crate::message::{LOCATE, Locate, Located};
use crate::random::draw;

/// Time between the first questions to two servers.
const STAGGER: Duration = Duration::from_millis(200);
/// Time for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time for which a server keeps a question.
const WAIT: Duration = Duration::from_secs(8);
/// Time beyond it in which its answer arrives.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Time between two attempts at a server that does not answer.
const RETRY: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(4)];
/// Tasks of a large fleet search at different times: this long for each of them, and the most.
const SPREAD_PER_TASK: Duration = Duration::from_micros(100);
const MAX_SPREAD: Duration = Duration::from_secs(1);

/// A server that knows an owner.
pub(super) enum Found {
    Owner(Target),
    /// It has no such method: an earlier version.
    Never,
}

impl Client {
    /// Looks for another owner than the one at `current`, whenever that is doubtful: one above the last accepted epoch, and
    /// above `lost`.
    pub(super) async fn search(
        &self,
        current: &Authority,
        limits: &FleetLimits,
        lost: u64,
        mut is_doubtful: watch::Receiver<bool>,
    ) -> Target {
        let others: Vec<&Authority> = self.servers.iter().filter(|server| *server != current).collect();
        loop {
            if others.is_empty() || is_doubtful.wait_for(|doubtful| *doubtful).await.is_err() {
                return std::future::pending().await;
            }
            let ask = async {
                let tasks = limits.with(|_, limiter| limiter.tasks());
                let spread = (SPREAD_PER_TASK * tasks).min(MAX_SPREAD).mul_f64(draw());
                let asked = others.iter().zip(1..).map(|(server, place)| async move {
                    sleep(STAGGER * place + spread).await;
                    self.ask(server, limits, lost).await
                });
                let mut asked: FuturesUnordered<_> = asked.collect();
                while let Some(found) = asked.next().await {
                    if let Found::Owner(target) = found {
                        return target;
                    }
                }
                std::future::pending().await
            };
            tokio::select! {
                target = ask => return target,
                _ = is_doubtful.wait_for(|doubtful| !doubtful) => {}
            }
        }
    }

    /// Asks one server until it knows an owner.
    async fn ask(&self, server: &Authority, limits: &FleetLimits, lost: u64) -> Found {
        let mut backoff = RETRY[0];
        loop {
            match self.questions(server, limits, lost).await {
                Ok(found) => return found,
                Err(error) => tracing::debug!(%server, error, "no answer on the owner"),
            }
            sleep(backoff.mul_f64(0.5 + draw())).await;
            backoff = (2 * backoff).min(RETRY[1]);
        }
    }

    async fn questions(&self, server: &Authority, limits: &FleetLimits, lost: u64) -> Result<Found, String> {
        let opened = timeout(CONNECT_TIMEOUT, Connection::open(server, self.tls_now()?)).await;
        let mut connection = opened.map_err(|_| "no connection within 2 s".to_owned())??;
        loop {
            let above = limits.with(|_, limiter| limiter.epoch()).max(lost);
            let wait_ms = WAIT.as_millis() as u32;
            let question = tonic::Request::new(Locate { service: self.service.clone(), above, wait_ms });
            let codec: ProstCodec<Locate, Located> = ProstCodec::default();
            let mut grpc = connection.grpc();
            grpc.ready().await.map_err(|error| plimsoll::tls::chain(&error))?;
            let answer = grpc.unary(question, PathAndQuery::from_static(LOCATE), codec);
            let answer = timeout(WAIT + ANSWER_TIMEOUT, answer).await.map_err(|_| "no answer".to_owned())?;
            let Located { epoch, address } = match answer {
                Ok(answer) => answer.into_inner(),
                Err(status) if status.code() == Code::Unimplemented => return Ok(Found::Never),
                Err(status) => return Err(connection.described(&status).await),
            };
            if epoch <= above {
                continue;
            }
            if address.is_empty() {
                return Ok(Found::Owner(Target { server: server.clone(), connection: Some(connection), epoch }));
            }
            let server = self.redirect(&address)?;
            return Ok(Found::Owner(Target { server, connection: None, epoch }));
        }
    }
}
