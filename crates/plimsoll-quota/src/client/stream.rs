//! The stream of a task to the owner of its service.

use std::time::Duration;

use http::uri::PathAndQuery;
use plimsoll::server::FleetLimits;
use plimsoll_core::quota::{Introduced, Report};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic_prost::ProstCodec;

use super::connection::{Connection, KEEP_ALIVE};
use super::{Client, Target};
use crate::convert;
use crate::message::{self, FromOwner, FromTask, JOIN, OWNER, OWNER_EPOCH, ToOwner, ToTask};

/// Time for a connection, and for the first answer on it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Reports that wait for a server which does not read.
const MAX_QUEUE: usize = 64;

/// The end of a stream, or of an attempt at one.
pub(super) enum Ended {
    /// The server names the owner.
    Redirected(Target),
    /// Another server knows a later owner.
    Found(Target),
    Failed(String),
}

impl From<String> for Ended {
    fn from(error: String) -> Self {
        Self::Failed(error)
    }
}

/// A stream whose limits have come.
struct Open {
    reports: mpsc::Sender<ToOwner>,
    messages: tonic::Streaming<ToTask>,
    epoch: u64,
    /// Ends with the stream.
    _connection: Connection,
}

impl Client {
    /// One stream, until it ends. `doubt`: whether the task is to look for another owner.
    pub(super) async fn stream(&self, target: Target, limits: &FleetLimits, doubt: &watch::Sender<bool>) -> Ended {
        match self.try_stream(target, limits, doubt).await {
            Ok(()) => Ended::Failed("the server ended the stream".to_owned()),
            Err(ended) => ended,
        }
    }

    async fn try_stream(&self, target: Target, limits: &FleetLimits, doubt: &watch::Sender<bool>) -> Result<(), Ended> {
        let server = target.server.clone();
        let opened = timeout(CONNECT_TIMEOUT, self.open(target, limits)).await;
        let Open { reports, mut messages, epoch, _connection } =
            opened.map_err(|_| "no answer within 5 s".to_owned())??;
        tracing::info!(%server, service = self.service, instance = self.instance, "quota server connected");
        loop {
            send(&reports, epoch, limits)?;
            let (is_connected, is_doubtful) = limits.with(|_, limiter| (limiter.is_connected(), limiter.is_doubtful()));
            if !is_connected {
                return Err("no answer until the end of the lease".to_owned().into());
            }
            doubt.send_if_modified(|doubt| std::mem::replace(doubt, is_doubtful) != is_doubtful);
            let due = limits.with(|now, limiter| limiter.poll_timeout(now));
            let due = due.map_or_else(|| Instant::now() + KEEP_ALIVE[0], |due| limits.instant(due));
            tokio::select! {
                message = messages.message() => match message {
                    Ok(Some(message)) => take(message, epoch, limits)?,
                    Ok(None) => return Ok(()),
                    Err(status) => return Err(self.redirected(&status).unwrap_or_else(|| status.message().to_owned().into())),
                },
                () = sleep_until(due) => {}
                () = limits.hurried() => {}
            }
        }
    }

    async fn open(&self, target: Target, limits: &FleetLimits) -> Result<Open, Ended> {
        let Target { server, connection, epoch: of_target } = target;
        let mut connection = match connection {
            Some(connection) => connection,
            None => Connection::open(&server, self.tls_now()?).await?,
        };
        let (reports, queue) = mpsc::channel(MAX_QUEUE);
        let cpus = limits.capacity();
        let (hello, epoch) = limits.with(|now, limiter| (limiter.connect(now, cpus), limiter.epoch()));
        let epoch = epoch.max(of_target);
        let hello = convert::hello(&self.service, &self.instance, limits.speed().as_f64(), epoch, hello);
        let hello = ToOwner { message: Some(FromTask::Hello(hello)) };
        reports.try_send(hello).map_err(|_| "the queue is full".to_owned())?;
        let codec: ProstCodec<ToOwner, ToTask> = ProstCodec::default();
        let request = tonic::Request::new(ReceiverStream::new(queue));
        let mut grpc = connection.grpc();
        grpc.ready().await.map_err(|error| plimsoll::tls::chain(&error))?;
        let answer = match grpc.streaming(request, PathAndQuery::from_static(JOIN), codec).await {
            Ok(answer) => {
                let mut messages = answer.into_inner();
                messages.message().await.map(|first| (first, messages))
            }
            Err(status) => Err(status),
        };
        let (first, messages) = match answer {
            Ok(answer) => answer,
            Err(status) => {
                return Err(match self.redirected(&status) {
                    Some(ended) => ended,
                    None => connection.described(&status).await.into(),
                });
            }
        };
        let Some(ToTask { message: Some(FromOwner::Limits(first)) }) = first else {
            return Err("the first message of the server is to be the limits".to_owned().into());
        };
        let epoch = first.epoch;
        if !limits.with(|_, limiter| limiter.accept_epoch(epoch)) {
            return Err(format!("epoch {epoch}: a later owner has been there").into());
        }
        set_limits(&first, limits)?;
        Ok(Open { reports, messages, epoch, _connection: connection })
    }

    /// The owner that a status names.
    fn redirected(&self, status: &tonic::Status) -> Option<Ended> {
        let owner = status.metadata().get(OWNER).filter(|_| status.code() == Code::FailedPrecondition)?;
        let owner = String::from_utf8_lossy(owner.as_bytes());
        let epoch = status.metadata().get(OWNER_EPOCH).and_then(|epoch| epoch.to_str().ok()?.parse().ok());
        let target = |server| Target { server, connection: None, epoch: epoch.unwrap_or(0) };
        Some(self.redirect(&owner).map_or_else(Ended::Failed, |server| Ended::Redirected(target(server))))
    }
}

/// Takes a message of the owner.
fn take(message: ToTask, epoch: u64, limits: &FleetLimits) -> Result<(), String> {
    let of = match &message.message {
        Some(FromOwner::Limits(message)) => message.epoch,
        Some(FromOwner::Assignment(message)) => message.epoch,
        None => return Err("an empty message".to_owned()),
    };
    if of != epoch {
        return Err(format!("epoch {of} on a stream of epoch {epoch}"));
    }
    match message.message {
        Some(FromOwner::Limits(message)) => set_limits(&message, limits)?,
        Some(FromOwner::Assignment(message)) => {
            let assignment = convert::to_assignment(&message).map_err(|error| error.to_string())?;
            limits.with(|now, limiter| limiter.assign(now, &assignment)).map_err(|error| error.to_string())?;
        }
        None => {}
    }
    Ok(())
}

/// Puts limits in force. Those that make no sense end the stream, and the last ones stay.
fn set_limits(message: &message::Limits, limits: &FleetLimits) -> Result<(), String> {
    let all = convert::to_limits(message, |name| limits.key(name)).map_err(|error| error.to_string())?;
    limits.with(|now, limiter| limiter.set_limits(now, message.tasks, all));
    Ok(())
}

/// Sends the report that is due.
fn send(reports: &mpsc::Sender<ToOwner>, epoch: u64, limits: &FleetLimits) -> Result<(), String> {
    let Some(report) = limits.with(|now, limiter| limiter.poll(now)) else { return Ok(()) };
    let report: Introduced<Report> = report;
    let report = ToOwner { message: Some(FromTask::Report(convert::report(epoch, report))) };
    reports.try_send(report).map_err(|_| "the server does not read its stream".to_owned())
}
