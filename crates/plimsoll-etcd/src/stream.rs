//! A stream of requests and one of answers, at the endpoint that is in use.

use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::client::Client;
use crate::connection::Connection;
use crate::error::EtcdError;
use crate::failure::Failure;
use crate::token::Token;

pub(crate) struct Stream<Q, A> {
    client: Client,
    /// Its connection stays while it does.
    connection: Arc<Connection>,
    used: Token,
    pub(crate) requests: mpsc::Sender<Q>,
    answers: Streaming<A>,
}

impl<Q, A> Stream<Q, A>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    /// A stream with this first request. The head of the answer must come within a time: etcd sends it
    /// with its first answer.
    pub(crate) async fn open(
        client: &Client,
        path: &'static str,
        first: Q,
        within: Duration,
    ) -> Result<Self, EtcdError> {
        let connection = client.connection().await?;
        let (requests, queue) = mpsc::channel(1);
        // The queue is empty.
        drop(requests.try_send(first));
        let mut used = None;
        let opened = async {
            let request = client.request(&connection, ReceiverStream::new(queue), &mut used).await?;
            connection.streaming(PathAndQuery::from_static(path), request, within).await
        };
        match opened.await {
            Ok(answers) => Ok(Self { client: client.clone(), connection, used, requests, answers }),
            Err(failure) => Err(client.stream_failed(&connection, &used, failure).await),
        }
    }

    /// The next answer. May be dropped without a loss.
    pub(crate) async fn next(&mut self) -> Result<A, Failure> {
        match self.answers.message().await {
            Ok(Some(answer)) => {
                self.connection.answered();
                self.client.reach().answered();
                Ok(answer)
            }
            Ok(None) => Err(Failure::silent("etcd ended the stream")),
            Err(status) => Err(status.into()),
        }
    }

    /// Ends the stream for a failure of [`Self::next`], or because it is silent.
    pub(crate) async fn fail(self, failure: Failure) -> EtcdError {
        self.client.stream_failed(&self.connection, &self.used, failure).await
    }
}
