//! The open pages: how many there may be, and the events that they get.
//!
//! An event is encoded once for all pages that show the same subject, such as a cluster. A page that reads
//! too slowly misses events, and gets the latest one: nothing queues up for it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures_util::Stream;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::sleep;

use crate::lease::Lease;

/// Pages at a time. The admin port has twice as many connections: scrapers and scripts get the rest.
pub const MAX_VIEWERS: usize = 16;

/// The subject of a page; `None` for the one that the program thinks most important.
pub type Subject = Option<Box<str>>;

/// All open pages of a process.
#[derive(Debug)]
pub struct Viewers {
    subjects: Mutex<HashMap<Subject, watch::Sender<Bytes>>>,
    permits: Arc<Semaphore>,
}

impl Default for Viewers {
    fn default() -> Self {
        Self { subjects: Mutex::default(), permits: Arc::new(Semaphore::new(MAX_VIEWERS)) }
    }
}

impl Viewers {
    /// The subjects that pages are open for.
    #[must_use]
    pub fn subjects(&self) -> Vec<Subject> {
        let mut subjects = self.subjects.lock();
        subjects.retain(|_, events| events.receiver_count() > 0);
        subjects.keys().cloned().collect()
    }

    /// Sends an event to the pages of a subject. Without an event their streams end: the subject is no
    /// more.
    pub fn send(&self, subject: &Subject, event: Option<Bytes>) {
        let mut subjects = self.subjects.lock();
        match event {
            Some(event) => {
                if let Some(events) = subjects.get(subject) {
                    events.send_replace(event);
                }
            }
            None => drop(subjects.remove(subject)),
        }
    }

    /// The body of an answer that begins with `first` and goes on with the events of the subject;
    /// `None` if too many pages are open.
    #[must_use]
    pub fn watch(&self, subject: Subject, first: Bytes, lease: Option<Lease>) -> Option<Body> {
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok()?;
        let events =
            self.subjects.lock().entry(subject).or_insert_with(|| watch::Sender::new(Bytes::new())).subscribe();
        Some(Body::from_stream(stream(Some(first), events, lease, permit)))
    }

    /// The body of an answer that begins with `first`, and goes on with an event for each look that
    /// finds something, one look each `period`. `None` if too many pages are open.
    #[must_use]
    pub fn poll(&self, first: Bytes, period: Duration, look: Look, lease: Option<Lease>) -> Option<Body> {
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok()?;
        let poll = Poll { first: Some(first), period, look, lease, _permit: permit };
        Some(Body::from_stream(futures_util::stream::unfold(poll, Poll::next)))
    }
}

/// A look for something to tell; `None` if there is nothing.
pub type Look = Box<dyn FnMut() -> Option<Bytes> + Send>;

/// A page with a look of its own.
struct Poll {
    first: Option<Bytes>,
    period: Duration,
    look: Look,
    lease: Option<Lease>,
    _permit: OwnedSemaphorePermit,
}

impl Poll {
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        if let Some(first) = self.first.take() {
            return Some((Ok(first), self));
        }
        loop {
            // A page that reads slowly is asked for less often, and each look finds more.
            tokio::select! {
                () = ending(self.lease.as_ref()) => return None,
                () = sleep(self.period) => {}
            }
            if let Some(event) = (self.look)() {
                if let Some(lease) = &self.lease {
                    lease.renew();
                }
                return Some((Ok(event), self));
            }
        }
    }
}

/// Completes at the end of the server.
async fn ending(lease: Option<&Lease>) {
    match lease {
        Some(lease) => lease.until_end().await,
        None => std::future::pending().await,
    }
}

fn stream(
    first: Option<Bytes>,
    events: watch::Receiver<Bytes>,
    lease: Option<Lease>,
    permit: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    futures_util::stream::unfold((first, events, lease, permit), |(first, mut events, lease, permit)| async move {
        let event = match first {
            Some(first) => first,
            None => next(&mut events, lease.as_ref()).await?,
        };
        Some((Ok(event), (None, events, lease, permit)))
    })
}

/// The next event; `None` at the end of the subject, and of the server.
async fn next(events: &mut watch::Receiver<Bytes>, lease: Option<&Lease>) -> Option<Bytes> {
    tokio::select! {
        () = ending(lease) => return None,
        changed = events.changed() => changed.ok()?,
    }
    if let Some(lease) = lease {
        lease.renew();
    }
    Some(events.borrow_and_update().clone())
}
