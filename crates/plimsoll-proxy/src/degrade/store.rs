//! Answers of backends that may be given again, in bounded memory: those used longest ago go first.
//!
//! One for all threads and routes, since the bound is on the memory of the process. It is locked
//! for a look-up or a change, and neither copies a body. Expired responses are dropped when they
//! are found, or as the least recently used.
//!
//! Responses that differ by fields of the request (`Vary`, and `vary` of the route) are stored side
//! by side under one [`Owner`], a few of them. A client that sends new values each time replaces
//! its own responses only.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Uri};
use lru::LruCache;
use parking_lot::Mutex;
use plimsoll_core::Timestamp;
use tokio::time::Instant;

use super::Asker;
use crate::config::StaleAnswers;

/// An answer as young as this is not replaced by a younger one.
const RECENT: Duration = Duration::from_secs(1);
/// Of one owner, by fields of requests: languages, encodings, formats.
const MOST_VARIANTS: usize = 8;
/// The memory of a response beside its bytes: the maps, the counts, the slot in the table.
const OVERHEAD: usize = 512;
/// Largest part of the store for copies in progress.
const PART_FOR_COPIES: usize = 4;

/// The key of a response without the fields that it may vary by: cluster, scheme, host, path and
/// query, customer, and the names in the client's certificate.
///
/// The fields that may name the customer count, too, as the backend saw them. A client can hide them
/// from the backend by naming them in `Connection`. And where several facts name customers, the
/// backend may go by another one than the proxy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Owner(Arc<[u8]>);

impl Owner {
    /// `asked` is the place that the route asks, and `request` has the fields for the backend.
    pub(super) fn new(
        asked: &str,
        asker: Asker<'_>,
        uri: &Uri,
        request: &HeaderMap,
        customer_fields: &[HeaderName],
    ) -> Self {
        let target = uri.path_and_query().map_or("", |target| target.as_str());
        let mut name = Vec::with_capacity(asked.len() + asker.host.len() + target.len() + 32);
        name.push(u8::from(asker.is_tls));
        let host = asker.host.to_ascii_lowercase();
        let customer = asker.customer.map(|customer| [b"=", customer].concat()).unwrap_or_default();
        for part in [asked.as_bytes(), host.as_bytes(), target.as_bytes(), &customer] {
            add(&mut name, part);
        }
        for field in customer_fields {
            add(&mut name, &value(request, field));
        }
        for client in asker.client_names {
            add(&mut name, client.as_bytes());
        }
        Self(name.into())
    }
}

/// With its length, so that no two lists of parts look alike.
fn add(name: &mut Vec<u8>, part: &[u8]) {
    name.extend_from_slice(&(part.len() as u64).to_le_bytes());
    name.extend_from_slice(part);
}

/// Fields of a request that select one of several responses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Fields(Box<[(HeaderName, Vec<u8>)]>);

impl Fields {
    pub(super) fn new(request: &HeaderMap, names: impl Iterator<Item = HeaderName>) -> Self {
        let with_value = |name: HeaderName| {
            let value = value(request, &name);
            (name, value)
        };
        let mut fields: Vec<_> = names.map(with_value).collect();
        fields.sort_unstable_by(|(a, _), (b, _)| a.as_str().cmp(b.as_str()));
        fields.dedup();
        Self(fields.into())
    }

    fn are_of(&self, request: &HeaderMap) -> bool {
        self.0.iter().all(|(name, known)| *known == value(request, name))
    }

    fn size(&self) -> usize {
        self.0.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
    }
}

/// All values of a field as one, and one that is not there as none.
fn value(request: &HeaderMap, name: &HeaderName) -> Vec<u8> {
    let mut all = Vec::new();
    for value in request.get_all(name) {
        all.extend_from_slice(value.as_bytes());
        all.push(b'\n');
    }
    all
}

/// An answer with status 200.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) fields: Fields,
    /// Without those that are written anew.
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) came: Timestamp,
    /// How old it was when it came.
    pub(super) age: Duration,
    /// It may be given until then.
    pub(super) until: Timestamp,
}

impl Kept {
    fn size(&self) -> usize {
        OVERHEAD + self.fields.size() + size_of(&self.headers) + self.body.len()
    }
}

/// Bytes of the names and values.
pub(super) fn size_of(headers: &HeaderMap) -> usize {
    headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum()
}

/// The content of the store, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StaleView {
    /// How many answers.
    pub entries: usize,
    /// Their size.
    pub bytes: usize,
}

/// Answers that may be given again.
#[derive(Debug)]
pub(crate) struct Store {
    origin: Instant,
    table: Mutex<Table>,
    /// Bytes of copies that are under way.
    copying: AtomicUsize,
}

#[derive(Debug)]
struct Table {
    /// Answers of one owner, the youngest last; never none.
    answers: LruCache<Owner, Vec<Arc<Kept>>>,
    /// `None`: nothing is kept.
    limits: Option<StaleAnswers>,
    now: StaleView,
}

impl Default for Store {
    fn default() -> Self {
        let table = Table { answers: LruCache::unbounded(), limits: None, now: StaleView::default() };
        Self { origin: Instant::now(), table: Mutex::new(table), copying: AtomicUsize::new(0) }
    }
}

impl Store {
    pub(super) fn now(&self) -> Timestamp {
        Timestamp::from_origin(self.origin.elapsed())
    }

    /// Keeps no more than `limits` from now on; nothing, if there are none.
    pub(crate) fn limit(&self, limits: Option<StaleAnswers>) {
        let mut table = self.table.lock();
        table.limits = limits;
        table.fit();
    }

    /// The content of the store now.
    pub(crate) fn view(&self) -> StaleView {
        self.table.lock().now
    }

    /// The answer to this request of `owner`, and how old it is.
    pub(super) fn find(&self, owner: &Owner, request: &HeaderMap) -> Option<(Arc<Kept>, Duration)> {
        let now = self.now();
        let mut table = self.table.lock();
        table.forget_older(owner, now);
        let kept = Arc::clone(table.answers.get(owner)?.iter().rfind(|kept| kept.fields.are_of(request))?);
        let age = kept.age + now.since(kept.came);
        Some((kept, age))
    }

    /// Whether the stored response is so young that another would gain nothing.
    pub(super) fn is_recent(&self, owner: &Owner, request: &HeaderMap) -> bool {
        let now = self.now();
        let table = self.table.lock();
        let Some(answers) = table.answers.peek(owner) else { return false };
        answers.iter().any(|kept| now.since(kept.came) < RECENT && kept.until > now && kept.fields.are_of(request))
    }

    /// Drops the answers of `owner`.
    pub(super) fn forget(&self, owner: &Owner) {
        self.table.lock().remove(owner);
    }

    /// Keeps an answer, in place of that to the same request.
    pub(super) fn keep(&self, owner: &Owner, kept: Kept) {
        let size = kept.size();
        let mut table = self.table.lock();
        if table.limits.is_none_or(|limits| size > limits.max_entry.bytes()) {
            return;
        }
        table.take_out(owner, |known| known.fields == kept.fields);
        if table.answers.peek(owner).is_some_and(|answers| answers.len() >= MOST_VARIANTS) {
            let oldest = table.answers.peek(owner).and_then(|answers| answers.first().cloned());
            table.take_out(owner, |known| oldest.as_ref().is_some_and(|oldest| Arc::ptr_eq(known, oldest)));
        }
        table.now.entries += 1;
        table.now.bytes += size;
        table.answers.get_or_insert_mut(owner.clone(), Vec::new).push(Arc::new(kept));
        table.fit();
    }

    /// The most that one answer may take; `None` if none is kept.
    pub(super) fn max_entry(&self) -> Option<usize> {
        self.table.lock().limits.map(|limits| limits.max_entry.bytes())
    }

    /// Frees `more` bytes for a copy; says whether that was possible.
    pub(super) fn reserve(&self, more: usize) -> bool {
        let most = self
            .table
            .lock()
            .limits
            .map_or(0, |limits| (limits.max_size.bytes() / PART_FOR_COPIES).max(limits.max_entry.bytes()));
        let reserved = |taken: usize| taken.checked_add(more).filter(|taken| *taken <= most);
        self.copying.fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserved).is_ok()
    }

    /// So much of a copy is no more.
    pub(super) fn release(&self, bytes: usize) {
        self.copying.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Table {
    /// Drops the least recently used ones until the rest fits.
    fn fit(&mut self) {
        let fits = |now: StaleView, limits: Option<StaleAnswers>| {
            limits.is_some_and(|limits| now.bytes <= limits.max_size.bytes() && now.entries <= limits.max_entries.get())
        };
        while !fits(self.now, self.limits) {
            let Some((_, answers)) = self.answers.pop_lru() else { return };
            answers.iter().for_each(|kept| self.gone(kept));
        }
    }

    fn remove(&mut self, owner: &Owner) {
        for kept in self.answers.pop(owner).unwrap_or_default() {
            self.gone(&kept);
        }
    }

    fn forget_older(&mut self, owner: &Owner, now: Timestamp) {
        self.take_out(owner, |kept| kept.until <= now);
    }

    fn take_out(&mut self, owner: &Owner, which: impl Fn(&Arc<Kept>) -> bool) {
        let Some(answers) = self.answers.peek_mut(owner) else { return };
        let out: Vec<_> = answers.extract_if(.., |kept| which(kept)).collect();
        if answers.is_empty() {
            self.answers.pop(owner);
        }
        out.iter().for_each(|kept| self.gone(kept));
    }

    fn gone(&mut self, kept: &Kept) {
        self.now.entries -= 1;
        self.now.bytes -= kept.size();
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use plimsoll_config::ByteSize;
    use proptest::prelude::*;

    use super::*;

    fn limits(max_size: usize, max_entries: usize, max_entry: usize) -> Option<StaleAnswers> {
        let size = |bytes| ByteSize::from_bytes(NonZeroUsize::new(bytes).unwrap());
        Some(StaleAnswers {
            max_size: size(max_size),
            max_entries: NonZeroUsize::new(max_entries).unwrap(),
            max_entry: size(max_entry),
        })
    }

    fn store(limits: Option<StaleAnswers>) -> Store {
        let store = Store::default();
        store.limit(limits);
        store
    }

    fn owner(path: &str) -> Owner {
        let asker = Asker { is_tls: false, host: "a.example", client_names: &[], customer: None };
        Owner::new("web", asker, &path.parse().unwrap(), &HeaderMap::new(), &[])
    }

    fn language(language: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(http::header::ACCEPT_LANGUAGE, language.parse().unwrap())])
    }

    fn keep(store: &Store, path: &str, request: &HeaderMap, body: &str, for_secs: u64) {
        let came = store.now();
        let fields = Fields::new(request, [http::header::ACCEPT_LANGUAGE].into_iter());
        let (body, until) = (Bytes::from(body.to_owned()), came + Duration::from_secs(for_secs));
        let kept = Kept { fields, headers: HeaderMap::new(), body, came, age: Duration::from_secs(5), until };
        store.keep(&owner(path), kept);
    }

    fn found(store: &Store, path: &str, request: &HeaderMap) -> Option<String> {
        store.find(&owner(path), request).map(|(kept, _)| String::from_utf8(kept.body.to_vec()).unwrap())
    }

    #[test]
    fn owners_differ_by_everything_that_an_answer_may_be_meant_for() {
        let asker = Asker { is_tls: false, host: "a", client_names: &[], customer: None };
        let uri: Uri = "/x?y".parse().unwrap();
        let names: [Box<str>; 1] = ["acme".into()];
        let fields = [HeaderName::from_static("x-customer"), HeaderName::from_static("x-key")];
        let of = |asked: &str, asker: Asker<'_>, uri: &Uri, seen: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            seen.iter().for_each(|(name, value)| _ = headers.append(*name, value.parse().unwrap()));
            Owner::new(asked, asker, uri, &headers, &fields)
        };
        let all = [
            of("web", asker, &uri, &[]),
            of("web", Asker { customer: Some(b""), ..asker }, &uri, &[]),
            of("web", Asker { customer: Some(b"acme"), ..asker }, &uri, &[]),
            of("web", Asker { customer: Some(b"acme"), ..asker }, &uri, &[("x-customer", "acme")]),
            of("web", Asker { customer: Some(b"acme"), ..asker }, &uri, &[("x-key", "acme")]),
            of("web", asker, &uri, &[("x-customer", "")]),
            of("web", asker, &uri, &[("x-customer", "a"), ("x-customer", "b")]),
            of("web", asker, &uri, &[("x-customer", "a"), ("x-key", "b")]),
            of("web", Asker { client_names: &names, ..asker }, &uri, &[]),
            of("web", Asker { is_tls: true, ..asker }, &uri, &[]),
            of("we", Asker { host: "ba", ..asker }, &uri, &[]),
            of("web", asker, &"/x?z".parse().unwrap(), &[]),
        ];
        for (i, one) in all.iter().enumerate() {
            assert_eq!(all.iter().filter(|other| *other == one).count(), 1, "{i}");
        }
        assert_eq!(of("web", Asker { host: "A", ..asker }, &uri, &[("accept", "a")]), all[0], "a host has no case");
    }

    #[tokio::test(start_paused = true)]
    async fn answers_are_found_by_the_fields_that_they_differ_by_until_their_time_is_up() {
        let store = store(limits(1 << 20, 100, 1 << 20));
        keep(&store, "/a", &language("de"), "hallo", 20);
        keep(&store, "/a", &language("en"), "hello", 10);
        assert_eq!(found(&store, "/a", &language("de")).as_deref(), Some("hallo"));
        assert_eq!(found(&store, "/a", &language("fr")), None);
        assert_eq!(found(&store, "/b", &language("de")), None);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(found(&store, "/a", &language("en")), None);
        let (_, age) = store.find(&owner("/a"), &language("de")).unwrap();
        assert_eq!(age, Duration::from_secs(15), "5 when it came");
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(found(&store, "/a", &language("de")), None);
        assert_eq!(store.view(), StaleView::default());
    }

    #[tokio::test(start_paused = true)]
    async fn a_younger_answer_takes_the_place_of_the_older_and_is_recent_for_a_second() {
        let store = store(limits(1 << 20, 100, 1 << 20));
        keep(&store, "/a", &language("de"), "eins", 60);
        assert!(store.is_recent(&owner("/a"), &language("de")) && !store.is_recent(&owner("/a"), &language("en")));
        tokio::time::advance(RECENT).await;
        assert!(!store.is_recent(&owner("/a"), &language("de")));
        keep(&store, "/a", &language("de"), "zwei", 60);
        assert_eq!((found(&store, "/a", &language("de")).as_deref(), store.view().entries), (Some("zwei"), 1));
        store.forget(&owner("/a"));
        assert_eq!((found(&store, "/a", &language("de")), store.view()), (None, StaleView::default()));
    }

    #[tokio::test(start_paused = true)]
    async fn the_answer_used_longest_ago_goes_first_and_one_too_large_never_comes() {
        let none = HeaderMap::new();
        let store = store(limits(1 << 20, 2, 1_000));
        keep(&store, "/a", &none, "a", 60);
        keep(&store, "/b", &none, "b", 60);
        assert!(found(&store, "/a", &none).is_some());
        keep(&store, "/c", &none, "c", 60);
        assert_eq!(["/a", "/b", "/c"].map(|path| found(&store, path, &none).is_some()), [true, false, true]);
        keep(&store, "/d", &none, &"d".repeat(1_000), 60);
        assert_eq!((found(&store, "/d", &none), store.view().entries), (None, 2));
        store.limit(None);
        assert_eq!(store.view(), StaleView::default());
    }

    #[tokio::test(start_paused = true)]
    async fn one_owner_has_a_few_variants_and_loses_its_own_oldest() {
        let store = store(limits(1 << 20, 100, 1 << 20));
        keep(&store, "/other", &HeaderMap::new(), "x", 60);
        for i in 0..=MOST_VARIANTS {
            keep(&store, "/a", &language(i.to_string().leak()), "y", 60);
        }
        assert_eq!(store.view().entries, MOST_VARIANTS + 1);
        assert!(found(&store, "/a", &language("0")).is_none() && found(&store, "/a", &language("8")).is_some());
        assert!(found(&store, "/other", &HeaderMap::new()).is_some());
    }

    #[test]
    fn copies_under_way_take_no_more_than_their_part() {
        let store = store(limits(4_000, 10, 500));
        assert!(store.reserve(600) && store.reserve(400) && !store.reserve(1));
        store.release(400);
        assert!(store.reserve(400));
    }

    proptest! {
        /// After any operations, the counts match the content and stay within the limits.
        #[test]
        fn counts_are_true_and_within_limits(
            steps in prop::collection::vec((0..5_u8, 0..6_u8, 0..3_u8, 0..900_usize), 1..80),
        ) {
            let store = store(limits(6_000, 7, 1_200));
            for (what, path, variant, size) in steps {
                let path = format!("/{path}");
                let request = language(["a", "b", "c"][usize::from(variant)]);
                match what {
                    0 => store.forget(&owner(&path)),
                    1 => drop(store.find(&owner(&path), &request)),
                    _ => keep(&store, &path, &request, &"x".repeat(size), 60),
                }
                let table = store.table.lock();
                let all: Vec<_> = table.answers.iter().flat_map(|(_, answers)| answers).collect();
                prop_assert_eq!(table.now.entries, all.len());
                prop_assert_eq!(table.now.bytes, all.iter().map(|kept| kept.size()).sum::<usize>());
                prop_assert!(table.now.entries <= 7 && table.now.bytes <= 6_000);
                prop_assert!(table.answers.iter().all(|(_, answers)| !answers.is_empty()));
            }
        }
    }
}
