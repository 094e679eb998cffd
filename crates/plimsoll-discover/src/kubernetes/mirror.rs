//! The slices of a service as the API server has them, and the next request to it.
//!
//! ```text
//! list    at the start, every 5 min (±10%), after 410, and after a watch that failed
//! watch   from the version of the list on, for 290 s (±10%); renewed from the last version at once
//! errors  Refresh: 1 s, doubled up to 30 s, ±20%, for lists and watches separately
//! ```
//!
//! A watch says every change once. If one is lost, the list of backends is wrong until the next list.
//! So lists go on beside the watch, as an audit: the watch is not interrupted by them, and a drain is
//! seen while a slow list is read. For a slice with an event since the list began, the watch's word
//! counts, because the list may be from before the event; the watch says everything after it, too.
//!
//! After 410 the server no longer knows the version to go on from. The slices stay until the new list
//! is whole, and that list counts for all slices: no watch would correct older words.
//!
//! Versions are opaque and are never compared.
//!
//! Where it is weak: a watch that is forbidden while lists are not leaves lists every 30 s or so, with
//! an error for each.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use plimsoll_core::Timestamp;
use plimsoll_core::discover::{Refresh, RefreshConfig};
use rand_core::Rng;

use super::slice::{MAX_ENDPOINTS, MAX_SIZE, Slice, SliceError};
use super::wire::{Event, Page};

/// Time between two lists while a watch runs. It bounds the time of a lost event.
const LIST_INTERVAL: Duration = Duration::from_secs(300);
/// Time that the server is asked to end a watch after. Load balancers and NAT in between commonly
/// close connections after 5 minutes or more.
const WATCH_TIME: Duration = Duration::from_secs(290);
/// Pages of one list. A server that sends tokens for ever is at fault.
const MAX_PAGES: usize = 1_000;
/// Time of a list with all of its pages. Tokens expire in about that time.
const MAX_LIST_TIME: Duration = Duration::from_secs(300);
/// A watch that ends earlier, and without an event, is no watch: something in between ends it.
const MIN_WATCH_TIME: Duration = Duration::from_secs(1);
/// Time between the beginnings of two watches.
const MIN_WATCH_INTERVAL: Duration = Duration::from_millis(200);
/// A list that expires earlier is no use; the next ones back off.
const MIN_LIST_LIFE: Duration = Duration::from_secs(10);

/// A request that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// A page of a list: the first, or that of a token.
    List { token: Option<String> },
    /// The events since a version. The server ends the watch after `time`.
    Watch { version: String, time: Duration },
}

/// What an answer means to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The slices are as before.
    Same,
    /// The slices may have changed, or a list is whole.
    New,
}

/// The reason why a sequence of answers makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum MirrorError {
    /// The service is too large.
    #[error(transparent)]
    Slice(#[from] SliceError),
    /// A list has no end.
    #[error("the list has more than {MAX_PAGES} pages")]
    TooManyPages,
    /// Each page comes in time, but not the list.
    #[error("the list took more than {} s", MAX_LIST_TIME.as_secs())]
    SlowList,
    /// A watch ends again and again.
    #[error("the watch ended at once and without an event; help: look for a proxy in between that buffers or ends it")]
    ShortWatch,
    /// The server forgets versions that it has just given out.
    #[error("410 Gone: the API server no longer knows the version of a list that is seconds old")]
    ExpiredAtOnce,
}

/// A list in progress.
#[derive(Debug, Default)]
struct Listing {
    /// The time of its first request.
    began: Option<Timestamp>,
    slices: BTreeMap<String, Slice>,
    token: Option<String>,
    pages: usize,
    is_asked: bool,
    /// Slices with an event since it began.
    touched: BTreeSet<String>,
}

/// A running watch.
#[derive(Clone, Copy, Debug)]
struct Watch {
    began: Timestamp,
    /// It had an event.
    is_heard: bool,
}

/// The slices of a service. See the [module](self).
///
/// Send what [`poll_request`](Self::poll_request) returns until it returns none; call it again after
/// each answer, and at [`poll_timeout`](Self::poll_timeout).
#[derive(Debug)]
pub(super) struct Mirror {
    slices: BTreeMap<String, Slice>,
    /// The version to watch from.
    version: Option<String>,
    listing: Option<Listing>,
    watch: Option<Watch>,
    /// The last watch failed, so the next one waits for the list.
    is_doubtful: bool,
    list_due: Timestamp,
    watch_due: Timestamp,
    /// The time of the last whole list.
    listed: Option<Timestamp>,
    /// The list began anew after its token expired.
    is_restarted: bool,
    list_errors: Refresh,
    watch_errors: Refresh,
}

impl Mirror {
    /// Before the first list, which is due at once.
    pub(super) fn new(now: Timestamp) -> Self {
        let errors = || Refresh::new(RefreshConfig::default());
        Self {
            slices: BTreeMap::new(),
            version: None,
            listing: None,
            watch: None,
            is_doubtful: false,
            list_due: now,
            watch_due: now,
            listed: None,
            is_restarted: false,
            list_errors: errors(),
            watch_errors: errors(),
        }
    }

    /// The slices of the service.
    pub(super) fn slices(&self) -> impl Iterator<Item = &Slice> + Clone {
        self.slices.values()
    }

    /// A request that is due. It counts as sent.
    pub(super) fn poll_request(&mut self, now: Timestamp, rng: &mut impl Rng) -> Option<Request> {
        if now >= self.list_due && self.listing.as_ref().is_none_or(|listing| !listing.is_asked) {
            let listing = self.listing.get_or_insert_default();
            listing.is_asked = true;
            listing.began.get_or_insert(now);
            return Some(Request::List { token: listing.token.clone() });
        }
        if self.watch_due().is_none_or(|due| now < due) {
            return None;
        }
        let version = self.version.as_ref()?;
        self.is_doubtful = false;
        self.watch = Some(Watch { began: now, is_heard: false });
        Some(Request::Watch { version: version.clone(), time: jittered(WATCH_TIME, rng) })
    }

    /// When to call [`poll_request`](Self::poll_request) without an answer.
    pub(super) fn poll_timeout(&self) -> Option<Timestamp> {
        let is_asked = self.listing.as_ref().is_some_and(|listing| listing.is_asked);
        let list = (!is_asked).then_some(self.list_due);
        [list, self.watch_due()].into_iter().flatten().min()
    }

    /// The time of the next watch. `None`: one runs, or waits for the list.
    fn watch_due(&self) -> Option<Timestamp> {
        let is_waiting = self.version.is_none() || self.is_doubtful && self.listing.is_some();
        (self.watch.is_none() && !is_waiting).then_some(self.watch_due)
    }

    /// A page of the list came. An error ends the list: call [`on_list_failed`](Self::on_list_failed).
    pub(super) fn on_page(&mut self, now: Timestamp, page: Page, rng: &mut impl Rng) -> Result<Outcome, MirrorError> {
        let Page { slices, version, next } = page;
        let listing = self.listing.get_or_insert_default();
        listing.is_asked = false;
        listing.pages += 1;
        listing.slices.extend(slices.into_iter().map(|slice| (slice.name.clone(), slice)));
        check_size(&listing.slices)?;
        if let Some(token) = next {
            if listing.pages >= MAX_PAGES {
                return Err(MirrorError::TooManyPages);
            }
            if listing.began.is_some_and(|began| now > began + MAX_LIST_TIME) {
                return Err(MirrorError::SlowList);
            }
            listing.token = Some(token);
            return Ok(Outcome::Same);
        }
        let Listing { mut slices, touched, .. } = self.listing.take().unwrap_or_default();
        for name in touched {
            match self.slices.remove(&name) {
                Some(slice) => slices.insert(name, slice),
                None => slices.remove(&name),
            };
        }
        self.slices = slices;
        self.version.get_or_insert(version);
        self.listed = Some(now);
        self.is_restarted = false;
        self.list_errors = Refresh::new(RefreshConfig::default());
        self.list_due = now + jittered(LIST_INTERVAL, rng);
        Ok(Outcome::New)
    }

    /// The list failed. Returns whether that is an error; else it begins anew at once.
    pub(super) fn on_list_failed(&mut self, now: Timestamp, is_expired: bool, rng: &mut impl Rng) -> bool {
        let listing = self.listing.take().unwrap_or_default();
        // Tokens live for a few minutes.
        if is_expired && listing.token.is_some() && !self.is_restarted {
            self.is_restarted = true;
            self.list_due = now;
            return false;
        }
        self.list_due = now + self.list_errors.on_error(rng);
        true
    }

    /// An event of the watch came. An error ends the watch: call
    /// [`on_watch_failed`](Self::on_watch_failed).
    pub(super) fn on_event(&mut self, event: Event) -> Result<Outcome, MirrorError> {
        let (change, version) = match event {
            Event::Changed { slice, version } => (Some((slice.name.clone(), Some(slice))), version),
            Event::Removed { name, version } => (Some((name, None)), version),
            Event::Bookmark { version } => (None, version),
            // The caller ends the watch for these.
            Event::Expired | Event::Failed(_) => return Ok(Outcome::Same),
        };
        if let Some(watch) = &mut self.watch {
            watch.is_heard = true;
        }
        self.watch_errors = Refresh::new(RefreshConfig::default());
        self.version = version.or(self.version.take());
        let Some((name, new)) = change else { return Ok(Outcome::Same) };
        if let Some(listing) = &mut self.listing {
            listing.touched.insert(name.clone());
            // The names of removed slices take memory, too.
            if listing.touched.len() > MAX_ENDPOINTS {
                return Err(SliceError::TooMany.into());
            }
        }
        if self.slices.get(&name) == new.as_ref() {
            return Ok(Outcome::Same);
        }
        match new {
            Some(slice) => self.slices.insert(name, slice),
            None => self.slices.remove(&name),
        };
        check_size(&self.slices)?;
        Ok(Outcome::New)
    }

    /// The watch ended: by the server, after its time, or with its connection. It is renewed from the
    /// last version. A watch that ended at once is an error.
    pub(super) fn on_watch_ended(&mut self, now: Timestamp, rng: &mut impl Rng) -> Result<(), MirrorError> {
        let Some(Watch { began, is_heard }) = self.watch.take() else { return Ok(()) };
        if !is_heard && now < began + MIN_WATCH_TIME {
            self.on_watch_failed(now, rng);
            return Err(MirrorError::ShortWatch);
        }
        self.watch_due = now.max(began + MIN_WATCH_INTERVAL);
        Ok(())
    }

    /// The watch failed. A list follows, for the case that events are lost.
    pub(super) fn on_watch_failed(&mut self, now: Timestamp, rng: &mut impl Rng) {
        self.watch = None;
        self.is_doubtful = true;
        self.watch_due = now + self.watch_errors.on_error(rng);
        if self.listing.is_none() {
            self.list_due = self.list_due.min(self.watch_due);
        }
    }

    /// The version to watch from is too old: a list follows, at once unless the last one is recent.
    /// The slices stay until then.
    pub(super) fn on_watch_expired(&mut self, now: Timestamp, rng: &mut impl Rng) -> Result<(), MirrorError> {
        self.watch = None;
        self.version = None;
        self.watch_due = now;
        if let Some(listing) = &mut self.listing {
            listing.touched.clear();
            return Ok(());
        }
        if self.listed.is_some_and(|listed| now < listed + MIN_LIST_LIFE) {
            self.list_due = now + self.watch_errors.on_error(rng);
            return Err(MirrorError::ExpiredAtOnce);
        }
        self.list_due = now;
        Ok(())
    }
}

/// `mean` ± 10%, so that the clients of a restarted server do not return in step.
fn jittered(mean: Duration, rng: &mut impl Rng) -> Duration {
    let share = f64::from(rng.next_u32()) / f64::from(u32::MAX);
    mean.mul_f64(0.9 + 0.2 * share)
}

fn check_size(slices: &BTreeMap<String, Slice>) -> Result<(), SliceError> {
    let endpoints: usize = slices.values().map(|slice| slice.count).sum();
    // A slice without endpoints takes memory, too.
    if endpoints.max(slices.len()) > MAX_ENDPOINTS {
        return Err(SliceError::TooMany);
    }
    let size: usize = slices.values().map(|slice| slice.size).sum();
    if size > MAX_SIZE { Err(SliceError::TooLarge) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use rand_core::SeedableRng as _;
    use rand_pcg::Pcg64Mcg;

    use super::super::slice::Family;
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    fn slice(name: &str, count: usize) -> Slice {
        Slice { name: name.to_owned(), family: Family::Ipv4, ports: Vec::new(), endpoints: Vec::new(), count, size: 0 }
    }

    fn page(version: &str, next: Option<&str>, slices: &[Slice]) -> Page {
        Page { slices: slices.to_vec(), version: version.to_owned(), next: next.map(str::to_owned) }
    }

    fn changed(slice: Slice, version: &str) -> Event {
        Event::Changed { slice, version: Some(version.to_owned()) }
    }

    /// After a list of version 1 at 0 ms, with a watch.
    fn watching(rng: &mut Pcg64Mcg) -> Mirror {
        let mut mirror = Mirror::new(at(0));
        assert_eq!(mirror.poll_request(at(0), rng), Some(Request::List { token: None }));
        assert_eq!(mirror.poll_request(at(0), rng), None);
        assert_eq!(mirror.on_page(at(0), page("1", None, &[slice("a", 1)]), rng), Ok(Outcome::New));
        let watch = mirror.poll_request(at(0), rng);
        assert!(matches!(&watch, Some(Request::Watch { version, .. }) if version == "1"), "{watch:?}");
        assert_eq!(mirror.poll_request(at(0), rng), None);
        mirror
    }

    fn names(mirror: &Mirror) -> Vec<&str> {
        mirror.slices().map(|slice| &*slice.name).collect()
    }

    /// The time until the next request, and that request.
    fn next(mirror: &mut Mirror, rng: &mut Pcg64Mcg) -> (Timestamp, Request) {
        let due = mirror.poll_timeout().unwrap();
        (due, mirror.poll_request(due, rng).unwrap())
    }

    #[test]
    fn times_are_within_their_jitter() {
        let rng = &mut Pcg64Mcg::seed_from_u64(1);
        for _ in 0..1_000 {
            assert!((270.0..=330.0).contains(&jittered(LIST_INTERVAL, rng).as_secs_f64()));
            assert!((261.0..=319.0).contains(&jittered(WATCH_TIME, rng).as_secs_f64()));
        }
    }

    #[test]
    fn list_counts_for_slices_without_an_event_since_it_began() {
        let rng = &mut Pcg64Mcg::seed_from_u64(1);
        let mut mirror = watching(rng);
        let (due, request) = next(&mut mirror, rng);
        assert_eq!(request, Request::List { token: None });
        for (name, version) in [("b", "2"), ("c", "3")] {
            assert_eq!(mirror.on_event(changed(slice(name, 1), version)), Ok(Outcome::New));
        }
        let removed = Event::Removed { name: "c".to_owned(), version: Some("4".to_owned()) };
        assert_eq!(mirror.on_event(removed), Ok(Outcome::New));
        // It is from before the events, but after the loss of an event for d; a was deleted unnoticed.
        let found = [slice("c", 1), slice("d", 1)];
        assert_eq!(mirror.on_page(due, page("2", None, &found), rng), Ok(Outcome::New));
        assert_eq!(names(&mirror), ["b", "d"]);
        // The watch goes on from its own version.
        assert_eq!(mirror.on_watch_ended(due, rng), Ok(()));
        assert!(matches!(next(&mut mirror, rng).1, Request::Watch { version, .. } if version == "4"));
    }

    #[test]
    fn list_counts_for_all_slices_after_an_expired_watch() {
        let rng = &mut Pcg64Mcg::seed_from_u64(1);
        let mut mirror = watching(rng);
        let (due, _) = next(&mut mirror, rng);
        assert_eq!(mirror.on_event(changed(slice("b", 1), "2")), Ok(Outcome::New));
        assert_eq!(mirror.on_watch_expired(due, rng), Ok(()));
        assert_eq!(names(&mirror), ["a", "b"]);
        assert_eq!(mirror.poll_request(due, rng), None);
        assert_eq!(mirror.on_page(due, page("9", None, &[slice("a", 1)]), rng), Ok(Outcome::New));
        assert_eq!(names(&mirror), ["a"]);
        assert!(matches!(next(&mut mirror, rng).1, Request::Watch { version, .. } if version == "9"));
    }

    #[test]
    fn watches_that_end_at_once_back_off() {
        let rng = &mut Pcg64Mcg::seed_from_u64(1);
        let mut mirror = watching(rng);
        let mut now = at(0);
        for nominal in [1_000, 2_000, 4_000, 8_000] {
            assert_eq!(mirror.on_watch_ended(now, rng), Err(MirrorError::ShortWatch));
            let share = mirror.poll_timeout().unwrap().since(now).as_millis() * 100 / nominal;
            assert!((80..=120).contains(&share), "{share}% of {nominal}");
            now = next(&mut mirror, rng).0;
            assert_eq!(mirror.on_page(now, page("1", None, &[]), rng), Ok(Outcome::New));
            assert!(matches!(next(&mut mirror, rng).1, Request::Watch { .. }));
        }
        // With an event it is a watch, but the next one begins 200 ms after it at the earliest.
        assert_eq!(mirror.on_event(Event::Bookmark { version: None }), Ok(Outcome::Same));
        assert_eq!(mirror.on_watch_ended(now, rng), Ok(()));
        let (due, request) = next(&mut mirror, rng);
        assert_eq!(request_version(&request), Some("1"));
        assert_eq!(due, now + MIN_WATCH_INTERVAL);
    }

    fn request_version(request: &Request) -> Option<&str> {
        match request {
            Request::Watch { version, .. } => Some(version),
            Request::List { .. } => None,
        }
    }

    #[test]
    fn versions_that_expire_at_once_back_off() {
        let rng = &mut Pcg64Mcg::seed_from_u64(1);
        let mut mirror = watching(rng);
        let mut now = at(0);
        for nominal in [1_000, 2_000, 4_000] {
            assert_eq!(mirror.on_watch_expired(now, rng), Err(MirrorError::ExpiredAtOnce));
            let (due, request) = next(&mut mirror, rng);
            assert_eq!(request, Request::List { token: None });
            let share = due.since(now).as_millis() * 100 / nominal;
            assert!((80..=120).contains(&share), "{share}% of {nominal}");
            now = due;
            assert_eq!(mirror.on_page(now, page("1", None, &[]), rng), Ok(Outcome::New));
            assert!(matches!(next(&mut mirror, rng).1, Request::Watch { .. }));
        }
        now = now + MIN_LIST_LIFE;
        assert_eq!(mirror.on_watch_expired(now, rng), Ok(()));
        assert_eq!(next(&mut mirror, rng), (now, Request::List { token: None }));
    }

    #[test]
    fn endless_and_too_long_lists_are_errors() {
        let rng = &mut Pcg64Mcg::seed_from_u64(1);
        let mut mirror = Mirror::new(at(0));
        for _ in 1..MAX_PAGES {
            assert!(mirror.poll_request(at(0), rng).is_some());
            assert_eq!(mirror.on_page(at(0), page("1", Some("t"), &[]), rng), Ok(Outcome::Same));
        }
        assert_eq!(mirror.on_page(at(0), page("1", Some("t"), &[]), rng), Err(MirrorError::TooManyPages));
        assert!(mirror.on_list_failed(at(0), false, rng));
        let (due, _) = next(&mut mirror, rng);
        let large = [slice("a", MAX_ENDPOINTS), slice("b", 1)];
        let too_many = Err(MirrorError::Slice(SliceError::TooMany));
        assert_eq!(mirror.on_page(due, page("1", None, &large), rng), too_many);
        assert!(mirror.on_list_failed(due, false, rng));
        let mut mirror = watching(rng);
        assert_eq!(mirror.on_event(changed(slice("b", MAX_ENDPOINTS), "2")), too_many);
        let mut mirror = watching(rng);
        let large = |name: &str| Slice { size: MAX_SIZE / 2 + 1, ..slice(name, 1) };
        assert_eq!(mirror.on_event(changed(large("b"), "2")), Ok(Outcome::New));
        let too_large = Err(MirrorError::Slice(SliceError::TooLarge));
        assert_eq!(mirror.on_event(changed(large("c"), "3")), too_large);
    }

    #[test]
    fn list_of_pages_that_take_longer_than_their_tokens_live_is_an_error() {
        let rng = &mut Pcg64Mcg::seed_from_u64(1);
        let mut mirror = Mirror::new(at(0));
        for now in [20_000, 300_000] {
            assert!(mirror.poll_request(at(now - 20_000), rng).is_some());
            assert_eq!(mirror.on_page(at(now), page("1", Some("t"), &[]), rng), Ok(Outcome::Same));
        }
        assert!(mirror.poll_request(at(300_000), rng).is_some());
        assert_eq!(mirror.on_page(at(300_001), page("1", Some("t"), &[]), rng), Err(MirrorError::SlowList));
    }

    #[test]
    fn events_for_ever_new_slices_during_a_list_are_an_error() {
        let rng = &mut Pcg64Mcg::seed_from_u64(1);
        let mut mirror = watching(rng);
        assert_eq!(next(&mut mirror, rng).1, Request::List { token: None });
        let removed = |i: usize| Event::Removed { name: format!("s{i}"), version: None };
        for i in 0..MAX_ENDPOINTS {
            assert_eq!(mirror.on_event(removed(i)), Ok(Outcome::Same));
        }
        assert_eq!(mirror.on_event(removed(0)), Ok(Outcome::Same));
        assert_eq!(mirror.on_event(removed(MAX_ENDPOINTS)), Err(MirrorError::Slice(SliceError::TooMany)));
    }
}
