//! Saves the lists of clusters, each soon after it changed, and the changes of backends by hand.
//!
//! Changes of backends by hand are saved before the order is answered, and by the task if that failed: the
//! predecessor in an upgrade may hold the folder for a moment longer.
//!
//! The task looks at the revisions once a second, so a deployment costs a few writes and not one for
//! each of its steps. Writes wait for the disk, so they run on a thread of their own.
//!
//! Failures are a warning once, until a write succeeds. They change nothing else: the lists in force do
//! not come from the folder.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use plimsoll::client::Cluster;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::overrides::{self, SavedOverrides};
use super::{StateDir, lists};

/// Time between two looks for changed lists.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);
/// Time until a failed write is repeated. A full disk stays full for a while.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// Time for which another process may save in the folder without a warning: it is the predecessor in an
/// upgrade, and hands over soon.
const MAX_HANDOVER: Duration = Duration::from_secs(60);

/// A cluster whose list is saved.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) cluster: Cluster,
    /// The description of its source.
    pub(crate) source: String,
}

/// Saves the lists of clusters in the folder for state. The task ends with the last handle.
#[derive(Debug, Default)]
pub(crate) struct Saver(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// There is a folder now.
    changed: Notify,
    /// One round at a time.
    saving: tokio::sync::Mutex<Spell>,
    /// One writer of overrides at a time, so that no older state replaces a newer one.
    overriding: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    dir: Option<Arc<StateDir>>,
    targets: BTreeMap<String, Entry>,
    /// All clusters, with a source or without.
    clusters: Vec<Cluster>,
    /// The folder may lack the present overrides.
    has_unsaved_overrides: bool,
}

#[derive(Debug)]
struct Entry {
    target: Target,
    /// The revision that the folder has.
    saved: Option<u64>,
}

/// Failures without a success between them.
#[derive(Debug, Default)]
struct Spell {
    since: Option<Instant>,
    is_logged: bool,
}

impl Spell {
    /// A failure. Whether it is to be logged.
    fn must_log(&mut self, is_in_use: bool, now: Instant) -> bool {
        let since = *self.since.get_or_insert(now);
        let is_late = !is_in_use || now.duration_since(since) >= MAX_HANDOVER;
        is_late && !std::mem::replace(&mut self.is_logged, true)
    }
}

impl Saver {
    /// Starts the task. Needs a runtime.
    pub(crate) fn start() -> Self {
        let saver = Self::default();
        tokio::spawn(run(Arc::downgrade(&saver.0)));
        saver
    }

    /// The folder in use.
    pub(crate) fn dir(&self) -> Option<Arc<StateDir>> {
        self.0.state.lock().dir.clone()
    }

    /// Saves the lists of `targets` from now on, and the overrides of all `clusters`, in `dir`.
    pub(crate) fn follow(&self, dir: Option<Arc<StateDir>>, targets: BTreeMap<String, Target>, clusters: Vec<Cluster>) {
        let mut state = self.0.state.lock();
        let is_same_dir = match (&state.dir, &dir) {
            (Some(old), Some(new)) => Arc::ptr_eq(old, new),
            _ => false,
        };
        let mut former = std::mem::take(&mut state.targets);
        // Overrides end with their cluster, and those in another folder count no more.
        state.has_unsaved_overrides |= !is_same_dir || clusters != state.clusters;
        state.clusters = clusters;
        state.dir = dir;
        state.targets = targets
            .into_iter()
            .map(|(name, target)| {
                let former = former.remove(&name).filter(|former| {
                    let Target { cluster, source } = &former.target;
                    is_same_dir && *cluster == target.cluster && *source == target.source
                });
                (name, Entry { target, saved: former.and_then(|former| former.saved) })
            })
            .collect();
        drop(state);
        self.0.changed.notify_one();
    }

    /// Saves the overrides of all clusters now. `false` without a folder. Waits for the disk.
    ///
    /// # Errors
    /// The task repeats it.
    pub(crate) fn save_overrides(&self) -> io::Result<bool> {
        let has_dir = {
            let mut state = self.0.state.lock();
            state.has_unsaved_overrides = true;
            state.dir.is_some()
        };
        self.0.save_overrides()?;
        Ok(has_dir)
    }

    /// Saves changed lists now, within `limit`: the process ends.
    pub(crate) async fn flush(&self, limit: Duration) {
        if timeout(limit, self.0.save()).await.is_err() {
            tracing::warn!("lists not saved in time: the disk is slow");
        }
    }

    /// Lets the successor of this process save, after a last time. From now on this process does not.
    pub(crate) async fn hand_over(&self, limit: Duration) {
        self.flush(limit).await;
        if let Some(dir) = self.dir() {
            dir.release();
        }
        self.follow(None, BTreeMap::new(), Vec::new());
    }
}

async fn run(saver: Weak<Shared>) {
    loop {
        let wait = {
            let Some(shared) = saver.upgrade() else { return };
            let has_dir = shared.state.lock().dir.is_some();
            if !has_dir {
                // Woken up once in a while to see the end of the proxy.
                let _ = timeout(MAX_HANDOVER, shared.changed.notified()).await;
                continue;
            }
            if shared.save().await { SAVE_INTERVAL } else { RETRY_INTERVAL }
        };
        sleep(wait).await;
    }
}

impl Shared {
    /// Saves each list that changed. `false` if one could not be saved.
    async fn save(self: &Arc<Self>) -> bool {
        let mut spell = self.saving.lock().await;
        let shared = Arc::clone(self);
        let saved = tokio::task::spawn_blocking(move || shared.save_now());
        match saved.await.expect("saving does not panic") {
            Ok(0) => true,
            Ok(_) => {
                *spell = Spell::default();
                true
            }
            Err(failure) => {
                let is_in_use = failure.error.kind() == io::ErrorKind::WouldBlock;
                if spell.must_log(is_in_use, Instant::now()) {
                    let Failure { path, error } = failure;
                    tracing::warn!(path, %error, "backends not saved: the next start may lack them");
                }
                // A predecessor hands over any moment.
                is_in_use
            }
        }
    }

    /// `false` if there is nothing to save.
    fn save_overrides(&self) -> io::Result<bool> {
        let _one_at_a_time = self.overriding.lock();
        let (dir, clusters) = {
            let mut state = self.state.lock();
            let Some(dir) = state.dir.clone().filter(|_| state.has_unsaved_overrides) else { return Ok(false) };
            state.has_unsaved_overrides = false;
            (dir, state.clusters.clone())
        };
        let all = clusters.iter().map(|cluster| (cluster.name().to_owned(), cluster.overrides()));
        let all: SavedOverrides = all.filter(|(_, overrides)| !overrides.is_empty()).collect();
        let saved = overrides::save(&dir, &all);
        self.state.lock().has_unsaved_overrides |= saved.is_err();
        saved.map(|()| true)
    }

    /// Returns the number of written files.
    fn save_now(&self) -> Result<usize, Failure> {
        let (dir, due) = {
            let state = self.state.lock();
            let Some(dir) = state.dir.clone() else { return Ok(0) };
            let due = state.targets.iter().filter_map(|(name, Entry { target, saved })| {
                // Read before the list: a later change is saved by the next round.
                let revision = target.cluster.list_revision()?;
                let Target { cluster, source } = target;
                (Some(revision) != *saved).then(|| (name.clone(), source.clone(), cluster.clone(), revision))
            });
            (dir, due.collect::<Vec<_>>())
        };
        let failure = |name: &str, error| Failure { path: dir.file(name).display().to_string(), error };
        let overrides = self.save_overrides().map_err(|error| failure(overrides::NAME, error));
        let mut written = 0;
        for (name, source, cluster, revision) in due {
            let failure = |error| failure(&lists::file_name(&name), error);
            dir.writable().map_err(failure)?;
            let list = cluster.listed();
            // A source that was replaced meanwhile is saved by a later round.
            lists::save(&dir, &name, &source, list).map_err(failure)?;
            let mut state = self.state.lock();
            if let Some(entry) = state.targets.get_mut(&name)
                && entry.target.cluster == cluster
                && entry.target.source == source
            {
                entry.saved = Some(revision);
            }
            written += 1;
        }
        // Last: overrides that cannot be saved must not keep the lists from it.
        Ok(written + usize::from(overrides?))
    }
}

/// A file that could not be saved.
#[derive(Debug)]
struct Failure {
    path: String,
    error: io::Error,
}

#[cfg(test)]
mod tests {
    use std::fs;

    use plimsoll::client::ClusterConfig;
    use plimsoll::discover::{Answer, Discover, Endpoint, OverrideCommand};
    use tokio::sync::mpsc;

    use super::super::SavedList;
    use super::super::test_folder::TestFolder;
    use super::*;

    struct Lists(mpsc::UnboundedReceiver<Answer>);

    impl Discover for Lists {
        async fn next(&mut self) -> Option<Answer> {
            self.0.recv().await
        }
    }

    /// A cluster and its source.
    fn cluster() -> (Cluster, mpsc::UnboundedSender<Answer>) {
        let cluster = Cluster::new("web", ClusterConfig::default(), [] as [Endpoint; 0]);
        let (lists, receiver) = mpsc::unbounded_channel();
        cluster.follow(Lists(receiver));
        tokio::spawn(cluster.run());
        (cluster, lists)
    }

    fn list(ports: impl IntoIterator<Item = u16>) -> Vec<Endpoint> {
        ports.into_iter().map(|port| ([10, 0, 0, 1], port).into()).collect()
    }

    fn targets(cluster: &Cluster, source: &str) -> BTreeMap<String, Target> {
        let target = Target { cluster: cluster.clone(), source: source.to_owned() };
        [("web".to_owned(), target)].into()
    }

    fn saved(dir: &StateDir, source: &str) -> Option<Vec<Endpoint>> {
        SavedList::read(dir, "web", source).map(|list| list.backends)
    }

    fn open(folder: &TestFolder) -> Option<Arc<StateDir>> {
        Some(Arc::new(StateDir::open(&folder.0).unwrap()))
    }

    /// Lets the cluster take in what its source sent. It asks again up to 120 ms after an error.
    async fn settle() {
        sleep(Duration::from_millis(131)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn changed_list_is_saved_once_and_an_error_saves_nothing() {
        let folder = TestFolder::new();
        let (cluster, lists) = cluster();
        let saver = Saver::default();
        saver.follow(open(&folder), targets(&cluster, "a"), Vec::new());
        let dir = saver.dir().unwrap();
        assert!(saver.0.save().await);
        assert_eq!(saved(&dir, "a"), None);
        lists.send(Ok(list(1..4))).unwrap();
        settle().await;
        assert_eq!(saver.0.save_now().ok(), Some(1));
        assert_eq!(saved(&dir, "a"), Some(list(1..4)));
        lists.send(Err("broken".into())).unwrap();
        lists.send(Ok(vec![])).unwrap();
        settle().await;
        assert_eq!(saver.0.save_now().ok(), Some(0));
        lists.send(Ok(list(2..4))).unwrap();
        settle().await;
        // The next config has the same cluster and source.
        saver.follow(saver.dir(), targets(&cluster, "a"), Vec::new());
        assert_eq!(saver.0.save_now().ok(), Some(1));
        assert_eq!(saved(&dir, "a"), Some(list(2..4)));
        assert_eq!(saver.0.save_now().ok(), Some(0));
    }

    #[tokio::test(start_paused = true)]
    async fn list_of_a_former_source_is_not_saved_for_the_next_one() {
        let folder = TestFolder::new();
        let (cluster, lists) = cluster();
        let saver = Saver::default();
        saver.follow(open(&folder), targets(&cluster, "a"), Vec::new());
        lists.send(Ok(list(1..4))).unwrap();
        settle().await;
        saver.0.save_now().unwrap();
        let (other, receiver) = mpsc::unbounded_channel();
        cluster.follow_on(Lists(receiver), plimsoll::discover::FollowConfig::default());
        saver.follow(saver.dir(), targets(&cluster, "b"), Vec::new());
        settle().await;
        assert_eq!(saver.0.save_now().ok(), Some(0));
        let dir = saver.dir().unwrap();
        assert_eq!((saved(&dir, "a"), saved(&dir, "b")), (Some(list(1..4)), None));
        other.send(Ok(list(1..4))).unwrap();
        settle().await;
        assert_eq!(saver.0.save_now().ok(), Some(1));
        assert_eq!(saved(&dir, "b"), Some(list(1..4)));
    }

    #[tokio::test(start_paused = true)]
    async fn task_saves_until_the_proxy_hands_over() {
        let folder = TestFolder::new();
        let (cluster, lists) = cluster();
        let saver = Saver::start();
        sleep(Duration::from_secs(30)).await;
        saver.follow(open(&folder), targets(&cluster, "a"), Vec::new());
        let dir = saver.dir().unwrap();
        lists.send(Ok(list(1..3))).unwrap();
        while saved(&dir, "a").is_none() {
            sleep(Duration::from_millis(100)).await;
        }
        let successor = StateDir::open(&folder.0).unwrap();
        assert!(lists::save(&successor, "web", "a", list(7..8)).is_err());
        lists.send(Ok(list(1..4))).unwrap();
        settle().await;
        saver.hand_over(Duration::from_secs(9)).await;
        assert_eq!(saved(&dir, "a"), Some(list(1..4)));
        lists::save(&successor, "web", "a", list(7..8)).unwrap();
        lists.send(Ok(list(1..5))).unwrap();
        sleep(Duration::from_secs(30)).await;
        assert_eq!(saved(&dir, "a"), Some(list(7..8)));
    }

    #[tokio::test(start_paused = true)]
    async fn overrides_are_saved_at_once_and_later_if_the_folder_fails() {
        let folder = TestFolder::new();
        let (cluster, lists) = cluster();
        let saver = Saver::default();
        assert!(!saver.save_overrides().unwrap(), "there is no folder");
        let predecessor = StateDir::open(&folder.0).unwrap();
        predecessor.writable().unwrap();
        saver.follow(open(&folder), BTreeMap::new(), vec![cluster.clone()]);
        assert!(cluster.override_backend(([10, 0, 0, 1], 1), OverrideCommand::Remove, None).is_ok());
        assert_eq!(saver.save_overrides().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        predecessor.release();
        let of_cluster = || overrides::read(&saver.dir().unwrap()).remove("web").unwrap_or_default();
        assert!(saver.0.save().await);
        assert_eq!(of_cluster(), cluster.overrides());
        // In place of the file, so that it cannot be renamed over. Lists are saved all the same.
        let (path, kept) = (folder.0.join(overrides::NAME), folder.0.join("kept"));
        fs::rename(&path, &kept).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(saver.save_overrides().is_err());
        lists.send(Ok(list(1..3))).unwrap();
        settle().await;
        saver.follow(saver.dir(), targets(&cluster, "a"), vec![cluster.clone()]);
        assert!(!saver.0.save().await);
        assert_eq!(saved(&saver.dir().unwrap(), "a"), Some(list(1..3)));
        fs::remove_dir(&path).unwrap();
        fs::rename(&kept, &path).unwrap();
        // A cluster that a reload removed has none after a restart.
        saver.follow(saver.dir(), BTreeMap::new(), Vec::new());
        assert!(saver.0.save().await);
        assert_eq!(of_cluster(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn list_is_saved_later_when_the_folder_fails_for_a_time() {
        let folder = TestFolder::new();
        let (cluster, lists) = cluster();
        let saver = Saver::default();
        saver.follow(open(&folder), targets(&cluster, "a"), Vec::new());
        lists.send(Ok(list(1..3))).unwrap();
        settle().await;
        // In place of the file, so that it cannot be renamed over.
        let path = folder.0.join("list-web.json");
        fs::create_dir(&path).unwrap();
        assert!(!saver.0.save().await);
        fs::remove_dir(&path).unwrap();
        assert!(saver.0.save().await);
        assert_eq!(saved(&saver.dir().unwrap(), "a"), Some(list(1..3)));
    }

    #[test]
    fn failure_is_logged_once_and_a_predecessor_only_after_a_minute() {
        let now = Instant::now();
        let mut spell = Spell::default();
        assert_eq!([false, false].map(|is_in_use| spell.must_log(is_in_use, now)), [true, false]);
        let mut spell = Spell::default();
        let seconds = [0, 59, 60, 61].map(|seconds| spell.must_log(true, now + Duration::from_secs(seconds)));
        assert_eq!(seconds, [false, false, true, false]);
    }
}
