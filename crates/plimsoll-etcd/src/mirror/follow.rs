//! The task behind a mirror: lists and watches, at one endpoint after the other.

use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic_prost::ProstCodec;

use super::{Event, Step};
use crate::backoff::Backoff;
use crate::client::{Client, Failure, Record, range_end};
use crate::connection::Connection;
use crate::error::EtcdError;
use crate::message::{
    EVENT_DELETE, WATCH, WatchCreateRequest, WatchEvent, WatchProgressRequest, WatchRequest, WatchRequestKind,
    WatchResponse,
};

/// Time between questions on an idle watch.
const CONTACT: Duration = Duration::from_secs(2);
/// Time without a message after which a stream is broken: two questions without an answer.
const SILENCE: Duration = Duration::from_millis(4_500);
/// Time for a watch to begin.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(3);

/// What is known of the store.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// All changes up to this revision have been passed on.
    revision: i64,
    cluster_id: u64,
}

enum End {
    /// Nobody reads the mirror any more.
    Closed,
    /// The stream broke: the next one goes on from the last revision.
    Broken(EtcdError),
    /// Changes may be missing: the prefix is listed again.
    Gap(&'static str),
}

impl From<mpsc::error::SendError<Step>> for End {
    fn from(_: mpsc::error::SendError<Step>) -> Self {
        Self::Closed
    }
}

/// A watch that has begun.
struct Watch {
    requests: mpsc::Sender<WatchRequest>,
    responses: Streaming<WatchResponse>,
    /// The stream ends with it.
    connection: Arc<Connection>,
}

pub(super) async fn run(client: Client, prefix: String, steps: mpsc::Sender<Step>) {
    let mut backoff = Backoff::new();
    let mut known = None;
    loop {
        let error = match follow(&client, &prefix, &steps, &mut known, &mut backoff).await {
            End::Closed => return,
            End::Broken(error) => error,
            End::Gap(reason) => {
                tracing::info!(prefix, reason, "records are listed again");
                known = None;
                continue;
            }
        };
        if steps.send(Step::Failed(error)).await.is_err() {
            return;
        }
        backoff.wait().await;
    }
}

/// One stream, after a list if there is none.
async fn follow(
    client: &Client,
    prefix: &str,
    steps: &mpsc::Sender<Step>,
    known: &mut Option<Known>,
    backoff: &mut Backoff,
) -> End {
    let mut from = match *known {
        Some(known) => known,
        None => match list(client, prefix, steps).await {
            Ok(listed) => listed,
            Err(end) => return end,
        },
    };
    *known = Some(from);
    let watch = match begin(client, prefix, from.revision + 1).await {
        Ok(watch) => watch,
        Err(error) => return End::Broken(error),
    };
    let connection = Arc::clone(&watch.connection);
    let end = pass_on(client, watch, prefix, &mut from, steps, backoff).await;
    *known = Some(from);
    if let End::Broken(_) = end {
        client.reach().broke();
        client.leave(&connection).await;
    }
    end
}

async fn list(client: &Client, prefix: &str, steps: &mpsc::Sender<Step>) -> Result<Known, End> {
    let listing = client.list(prefix).await.map_err(End::Broken)?;
    let known = Known { revision: listing.revision, cluster_id: listing.cluster_id };
    let mut records = listing.records;
    for record in &mut records {
        record.key.drain(..prefix.len());
    }
    steps.send(Step::Listed { revision: known.revision, records }).await?;
    Ok(known)
}

async fn begin(client: &Client, prefix: &str, start_revision: i64) -> Result<Watch, EtcdError> {
    let connection = client.connection().await?;
    let (requests, queue) = mpsc::channel(1);
    let create = WatchCreateRequest { key: prefix.into(), range_end: range_end(prefix), start_revision };
    let create = WatchRequest { kind: Some(WatchRequestKind::Create(create)) };
    drop(requests.try_send(create));
    let opened = async {
        let request = client.request(&connection, ReceiverStream::new(queue)).await?;
        let mut grpc = connection.grpc();
        grpc.ready().await.map_err(|error| Failure::endpoint(&error, false))?;
        let codec: ProstCodec<WatchRequest, WatchResponse> = ProstCodec::default();
        grpc.streaming(request, PathAndQuery::from_static(WATCH), codec).await.map_err(Failure::from)
    };
    let failure = match timeout(BEGIN_TIMEOUT, opened).await {
        Ok(Ok(responses)) => return Ok(Watch { requests, responses: responses.into_inner(), connection }),
        Ok(Err(failure)) => failure,
        Err(_) => Failure::Endpoint { error: "no watch within 3 s".to_owned(), may_be_done: false },
    };
    match &failure {
        Failure::Token => client.forget_token(),
        Failure::Endpoint { .. } => client.leave(&connection).await,
        Failure::Final(_) => {}
    }
    client.reach().broke();
    Err(failure.into_error())
}

/// Passes the messages of a watch on, until it ends.
async fn pass_on(
    client: &Client,
    mut watch: Watch,
    prefix: &str,
    known: &mut Known,
    steps: &mpsc::Sender<Step>,
    backoff: &mut Backoff,
) -> End {
    let mut heard = Instant::now();
    let mut ask = heard + CONTACT;
    loop {
        tokio::select! {
            message = watch.responses.message() => {
                let response = match message {
                    Ok(Some(response)) => response,
                    Ok(None) => return End::Broken(EtcdError::Unreachable("etcd ended the watch".to_owned())),
                    Err(status) => {
                        let failure = Failure::from(status);
                        if let Failure::Token = failure {
                            client.forget_token();
                        }
                        return End::Broken(failure.into_error());
                    }
                };
                heard = Instant::now();
                ask = heard + CONTACT;
                client.reach().answered();
                backoff.reset();
                let step = match read(response, prefix, known) {
                    Ok(step) => step,
                    Err(end) => return end,
                };
                if let Err(closed) = steps.send(step).await {
                    return closed.into();
                }
            }
            () = sleep_until(ask.min(heard + SILENCE)) => {
                if heard.elapsed() >= SILENCE {
                    return End::Broken(EtcdError::Unreachable("the watch is silent".to_owned()));
                }
                ask += CONTACT;
                // A full queue has a question in it that was not sent.
                drop(watch.requests.try_send(progress()));
            }
            () = steps.closed() => return End::Closed,
        }
    }
}

fn progress() -> WatchRequest {
    WatchRequest { kind: Some(WatchRequestKind::Progress(WatchProgressRequest {})) }
}

/// A message as a step. Advances the revision.
fn read(response: WatchResponse, prefix: &str, known: &mut Known) -> Result<Step, End> {
    if response.compact_revision != 0 {
        return Err(End::Gap("the revision was compacted"));
    }
    if response.canceled {
        return Err(End::Broken(EtcdError::Refused(format!("watch of {prefix}: {}", response.cancel_reason))));
    }
    if let Some(header) = response.header {
        if header.cluster_id != known.cluster_id {
            return Err(End::Gap("another cluster of etcd answers"));
        }
        // A member that lags behind answers with an older revision, and goes on from the one asked for. A
        // store that was restored would be silent until it reached that.
        if response.created && header.revision < known.revision {
            return Err(End::Gap("the store is at an older revision"));
        }
    }
    let mut revision = known.revision;
    let mut events = Vec::with_capacity(response.events.len());
    for WatchEvent { kind, kv } in response.events {
        let Some(kv) = kv.filter(|kv| kv.mod_revision > known.revision) else { continue };
        revision = revision.max(kv.mod_revision);
        let Some(mut record) = Record::new(kv).filter(|record| record.key.starts_with(prefix)) else { continue };
        record.key.drain(..prefix.len());
        events.push(if kind == EVENT_DELETE { Event::Delete(record.key) } else { Event::Put(record) });
    }
    known.revision = revision;
    Ok(if events.is_empty() { Step::Contact } else { Step::Events { revision, events } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{KeyValue, ResponseHeader};

    const KNOWN: Known = Known { revision: 10, cluster_id: 7 };

    fn response(events: &[(i32, &str, i64)]) -> WatchResponse {
        let event = |(kind, key, mod_revision): &(i32, &str, i64)| {
            let kv = KeyValue { key: key.as_bytes().into(), mod_revision: *mod_revision, ..KeyValue::default() };
            WatchEvent { kind: *kind, kv: Some(kv) }
        };
        let header = Some(ResponseHeader { cluster_id: 7, revision: 12 });
        WatchResponse { header, events: events.iter().map(event).collect(), ..WatchResponse::default() }
    }

    #[test]
    fn events_lose_the_prefix_and_advance_the_revision() {
        let mut known = KNOWN;
        let events = [(0, "/p/a", 11), (EVENT_DELETE, "/p/b", 12)];
        let Ok(Step::Events { revision, events }) = read(response(&events), "/p/", &mut known) else {
            panic!("events")
        };
        assert_eq!((revision, known.revision), (12, 12));
        let [Event::Put(a), Event::Delete(b)] = &events[..] else { panic!("{events:?}") };
        assert_eq!((&*a.key, a.mod_revision, &**b), ("a", 11, "b"));
    }

    #[test]
    fn event_that_was_passed_on_is_skipped() {
        let mut known = KNOWN;
        let step = read(response(&[(0, "/p/a", 10)]), "/p/", &mut known);
        assert!(matches!(step, Ok(Step::Contact)));
        assert_eq!(known.revision, 10);
    }

    #[test]
    fn compacted_foreign_and_older_stores_are_gaps() {
        let header = |cluster_id, revision| Some(ResponseHeader { cluster_id, revision });
        let created = WatchResponse { created: true, ..response(&[]) };
        for (gap, of) in [
            (WatchResponse { compact_revision: 11, canceled: true, ..response(&[]) }, "compacted"),
            (WatchResponse { header: header(8, 12), ..response(&[]) }, "another cluster"),
            (WatchResponse { header: header(7, 9), ..created.clone() }, "older revision"),
        ] {
            let Err(End::Gap(reason)) = read(gap, "/p/", &mut { KNOWN }) else { panic!("no gap: {of}") };
            assert!(reason.contains(of), "{reason}");
        }
        assert!(matches!(read(created, "/p/", &mut { KNOWN }), Ok(Step::Contact)));
    }

    #[test]
    fn canceled_watch_is_an_error_with_its_reason() {
        let canceled = WatchResponse { canceled: true, cancel_reason: "permission denied".to_owned(), ..response(&[]) };
        let Err(End::Broken(error)) = read(canceled, "/p/", &mut { KNOWN }) else { panic!("an error") };
        assert_eq!(error.to_string(), "etcd refused the request: watch of /p/: permission denied");
    }
}
