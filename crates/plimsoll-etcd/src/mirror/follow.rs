//! The task behind a mirror: lists and watches, at one endpoint after the other.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::{Event, Step};
use crate::backoff::Backoff;
use crate::client::{Client, Record, range_end};
use crate::error::EtcdError;
use crate::failure::Failure;
use crate::message::{
    EVENT_DELETE, WATCH, WatchCreateRequest, WatchEvent, WatchProgressRequest, WatchRequest, WatchRequestKind,
    WatchResponse,
};
use crate::stream::Stream;

/// Time between questions on an idle watch.
const CONTACT: Duration = Duration::from_secs(2);
/// Time without a message after which a stream is broken: two questions without an answer.
const SILENCE: Duration = Duration::from_millis(4_500);
/// Time for a watch to begin.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(3);
/// Time after which a watch that goes on is a success.
const SETTLED: Duration = Duration::from_secs(2);
/// Time that a message waits for the user of a mirror.
const PATIENCE: Duration = Duration::from_millis(500);

/// Facts known about the store.
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
    /// etcd refused the watch. It names no reason that can be trusted: a lost token looks like a missing
    /// right.
    Refused(EtcdError),
    /// Changes may be missing: the prefix is listed again.
    Gap(&'static str),
    /// The user reads slowly. A stream that is not read would fill the connection of all others.
    Full,
}

impl From<mpsc::error::SendError<Step>> for End {
    fn from(_: mpsc::error::SendError<Step>) -> Self {
        Self::Closed
    }
}

type Watch = Stream<WatchRequest, WatchResponse>;

pub(super) async fn run(client: Client, prefix: String, steps: mpsc::Sender<Step>) {
    let mut backoff = Backoff::new();
    let mut known = None;
    loop {
        let error = match follow(&client, &prefix, &steps, &mut known, &mut backoff).await {
            End::Closed => return,
            End::Full => {
                if steps.reserve_many(steps.max_capacity() / 2).await.is_err() {
                    return;
                }
                continue;
            }
            End::Gap(reason) => {
                tracing::info!(prefix, reason, "records are listed again");
                known = None;
                backoff.wait().await;
                continue;
            }
            // A read tells the reason, and has a new token if that was it.
            End::Refused(error) => client.get(&prefix).await.err().unwrap_or(error),
            End::Broken(error) => error,
        };
        let is_lost = matches!(error, EtcdError::Unreachable(_) | EtcdError::Compacted);
        if steps.send(Step::Failed(error)).await.is_err() {
            return;
        }
        if is_lost { backoff.wait().await } else { backoff.wait_after_refusal().await }
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
    let create =
        WatchCreateRequest { key: prefix.into(), range_end: range_end(prefix), start_revision: from.revision + 1 };
    let create = WatchRequest { kind: Some(WatchRequestKind::Create(create)) };
    let mut watch = match Watch::open(client, WATCH, create, BEGIN_TIMEOUT).await {
        Ok(watch) => watch,
        Err(error) => return End::Broken(error),
    };
    let end = pass_on(&mut watch, prefix, &mut from, steps, backoff).await;
    *known = Some(from);
    match end {
        Ok(end) => end,
        Err(Failure::Final(EtcdError::MessageTooLarge)) => End::Gap("the changes are larger than a message"),
        Err(failure) => End::Broken(watch.fail(failure).await),
    }
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

/// Passes the messages of a watch on, until it ends: by itself, or for a failure of its stream.
async fn pass_on(
    watch: &mut Watch,
    prefix: &str,
    known: &mut Known,
    steps: &mpsc::Sender<Step>,
    backoff: &mut Backoff,
) -> Result<End, Failure> {
    let began = Instant::now();
    let mut heard = began;
    let mut ask = heard + CONTACT;
    loop {
        let permit = match timeout(PATIENCE, steps.reserve()).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(_)) => return Ok(End::Closed),
            Err(_) => return Ok(End::Full),
        };
        tokio::select! {
            biased;
            message = watch.next() => {
                let response = message?;
                heard = Instant::now();
                ask = heard + CONTACT;
                // One that ends right after its begin is no success.
                if began.elapsed() > SETTLED {
                    backoff.reset();
                }
                match read(response, prefix, known) {
                    Ok(step) => permit.send(step),
                    Err(end) => return Ok(end),
                }
            }
            () = sleep_until(ask.min(heard + SILENCE)) => {
                if heard.elapsed() >= SILENCE {
                    return Err(Failure::silent("the watch is silent"));
                }
                ask += CONTACT;
                // A full queue has a question in it that was not sent.
                drop(watch.requests.try_send(progress()));
            }
            () = steps.closed() => return Ok(End::Closed),
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
        return Err(End::Refused(EtcdError::Refused(format!("watch of {prefix}: {}", response.cancel_reason))));
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
        let Err(End::Refused(error)) = read(canceled, "/p/", &mut { KNOWN }) else { panic!("an error") };
        assert_eq!(error.to_string(), "etcd refused the request: watch of /p/: permission denied");
    }
}
