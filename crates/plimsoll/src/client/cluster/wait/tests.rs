use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::task::Wake;
use std::time::Duration;

use plimsoll_core::slots::Holder;
use plimsoll_core::spill::SpillConfig;
use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use super::*;
use crate::client::cluster::Cluster;
use crate::client::config::ClusterConfig;
use crate::client::localities::Localities;
use crate::discover::{Endpoint, Fixed};

type Waiting<'a> = Pin<Box<dyn Future<Output = Turn> + Send + 'a>>;

/// A waiter as its runtime has it: whether it was woken since it was polled.
struct Waiter<'a> {
    turn: Waiting<'a>,
    woken: Arc<Woken>,
}

#[derive(Default)]
struct Woken {
    flag: AtomicBool,
    /// Asked whenever it is woken or dropped: nobody may do that under the cluster's lock.
    cluster: Weak<Shared>,
}

impl Woken {
    fn look_at_cluster(&self) {
        if let Some(shared) = self.cluster.upgrade() {
            assert!(shared.machine.try_lock_for(Duration::from_secs(5)).is_some(), "not under the lock");
        }
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.look_at_cluster();
        assert!(!self.flag.swap(true, Ordering::Relaxed), "woken twice");
    }
}

impl Drop for Woken {
    fn drop(&mut self) {
        self.look_at_cluster();
    }
}

impl<'a> Waiter<'a> {
    fn new(cluster: &'a Cluster, tried: &'a [BackendId]) -> Self {
        let woken = Woken { flag: AtomicBool::new(false), cluster: Arc::downgrade(&cluster.0) };
        Self { turn: Box::pin(cluster.0.wait_turn(Kind::default(), 0, tried)), woken: Arc::new(woken) }
    }

    /// One that has begun to wait.
    fn begun(cluster: &'a Cluster) -> Self {
        let mut waiter = Self::new(cluster, &[]);
        assert!(waiter.poll().is_pending());
        waiter
    }

    fn poll(&mut self) -> Poll<Turn> {
        self.woken.flag.store(false, Ordering::Relaxed);
        self.turn.as_mut().poll(&mut Context::from_waker(&Waker::from(self.woken.clone())))
    }

    fn is_woken(&self) -> bool {
        self.woken.flag.load(Ordering::Relaxed)
    }

    fn backend(&mut self) -> Option<BackendId> {
        match self.poll() {
            Poll::Ready(Ok((id, _))) => Some(id),
            _ => None,
        }
    }
}

fn config(max_active: u32) -> ClusterConfig {
    let mut config = ClusterConfig::default();
    config.balancer.max_active_requests = NonZeroU32::new(max_active).unwrap();
    config
}

fn endpoints(ports: impl IntoIterator<Item = u16>) -> Vec<Endpoint> {
    ports.into_iter().map(|port| Endpoint::new(([127, 0, 0, 1], 1 + port))).collect()
}

fn healthy(backends: u16, max_active: u32) -> Cluster {
    let cluster = Cluster::new("test", config(max_active), endpoints(0..backends));
    cluster.0.members().iter().for_each(|(id, _)| cluster.0.connected(*id));
    cluster
}

/// A cluster with every slot taken, and the backend of each slot.
fn full(backends: u16, max_active: u32) -> (Cluster, Vec<BackendId>) {
    let cluster = healthy(backends, max_active);
    let mut picked = Vec::new();
    while let Found::Backend(id, _) = cluster.0.pick(cluster.now(), Kind::default()) {
        picked.push(id);
    }
    assert_eq!(picked.len(), backends as usize * max_active as usize);
    (cluster, picked)
}

fn finish(cluster: &Cluster, id: BackendId) {
    cluster.0.finish(cluster.now(), id, &given_back(Kind::default()));
}

fn active(cluster: &Cluster) -> u32 {
    cluster.backends().iter().map(|backend| backend.snapshot.active).sum()
}

#[tokio::test]
async fn a_waiter_that_is_not_run_does_not_hold_up_those_behind_it() {
    let (cluster, picked) = full(2, 1);
    let (first, mut second) = (Waiter::begun(&cluster), Waiter::begun(&cluster));
    picked.iter().for_each(|id| finish(&cluster, *id));
    assert!(first.is_woken() && second.is_woken(), "two places, two who waited");
    assert!(second.backend().is_some());
    assert_eq!(active(&cluster), 2, "the first has its own, to look at whenever it runs");
    // Until the first waiter runs, a slot that comes free is there for any request.
    finish(&cluster, picked[0]);
    assert!(matches!(cluster.0.pick(cluster.now(), Kind::default()), Found::Backend(..)));
}

#[tokio::test]
async fn a_backend_in_the_hands_of_a_waiter_that_goes_away_goes_to_the_next() {
    let (cluster, picked) = full(1, 1);
    let (first, mut second, third) = (Waiter::begun(&cluster), Waiter::begun(&cluster), Waiter::begun(&cluster));
    finish(&cluster, picked[0]);
    assert!(first.is_woken() && !second.is_woken());
    drop(first);
    assert!(second.is_woken() && !third.is_woken());
    assert_eq!((second.backend(), active(&cluster), cluster.waiting()), (Some(picked[0]), 1, 1));
    drop(third);
    finish(&cluster, picked[0]);
    assert_eq!((active(&cluster), cluster.waiting()), (0, 0));
}

#[tokio::test]
async fn a_waiter_that_goes_away_from_the_middle_is_passed_over() {
    let (cluster, picked) = full(2, 1);
    let (first, second, third) = (Waiter::begun(&cluster), Waiter::begun(&cluster), Waiter::begun(&cluster));
    drop(second);
    picked.iter().for_each(|id| finish(&cluster, *id));
    assert!(first.is_woken() && third.is_woken());
}

#[tokio::test]
async fn a_request_that_comes_while_others_wait_goes_behind_them() {
    let (cluster, picked) = full(1, 1);
    let mut first = Waiter::begun(&cluster);
    finish(&cluster, picked[0]);
    assert!(matches!(cluster.0.pick(cluster.now(), Kind::default()), Found::Wait(..)), "the place is the first one's");
    assert!(first.backend().is_some());
}

#[tokio::test]
async fn a_place_that_came_free_before_the_wait_began_is_taken_at_once() {
    let (cluster, picked) = full(1, 1);
    finish(&cluster, picked[0]);
    assert!(Waiter::new(&cluster, &[]).backend().is_some());
    assert_eq!(cluster.waiting(), 0);
}

#[tokio::test]
async fn who_waits_is_served_by_a_backend_that_is_added_and_by_a_higher_limit() {
    let (cluster, _) = full(1, 1);
    let waiters: Vec<_> = (0..4).map(|_| Waiter::begun(&cluster)).collect();
    let woken = || waiters.iter().filter(|waiter| waiter.is_woken()).count();
    cluster.follow(Fixed::new(endpoints(0..2)));
    assert_eq!(woken(), 0, "nobody has reached it yet");
    cluster.0.members().iter().for_each(|(id, _)| cluster.0.connected(*id));
    assert_eq!(woken(), 1);
    cluster.set_config(config(2));
    assert_eq!((woken(), active(&cluster)), (3, 4));
}

#[tokio::test]
async fn all_who_wait_are_told_when_no_backend_is_usable_any_more() {
    let (cluster, _) = full(1, 1);
    let mut waiters: Vec<_> = (0..3).map(|_| Waiter::begun(&cluster)).collect();
    assert!(cluster.drain(([127, 0, 0, 1], 1)));
    for waiter in &mut waiters {
        assert!(waiter.is_woken());
        assert!(matches!(waiter.poll(), Poll::Ready(Err(NoTurn::NoBackend))));
    }
    assert_eq!((cluster.waiting(), cluster.counts().no_backend), (0, 3));
}

#[tokio::test]
async fn a_waiter_whose_backend_is_removed_before_it_runs_keeps_its_turn() {
    let (cluster, picked) = full(2, 1);
    let (mut first, second) = (Waiter::begun(&cluster), Waiter::begun(&cluster));
    finish(&cluster, picked[0]);
    assert!(first.is_woken());
    let stays = cluster.0.backend(picked[1]).unwrap().endpoint().clone();
    cluster.follow(Fixed::new([stays]));
    assert!(first.poll().is_pending());
    assert_eq!((cluster.waiting(), cluster.counts().waited), (2, 2));
    finish(&cluster, picked[1]);
    assert!(first.is_woken() && !second.is_woken());
    assert_eq!(first.backend(), Some(picked[1]));
}

#[tokio::test]
async fn a_waiter_that_moves_to_another_task_is_woken_there() {
    let (cluster, picked) = full(1, 1);
    let mut waiter = Waiter::begun(&cluster);
    let former = std::mem::take(&mut waiter.woken);
    assert!(waiter.poll().is_pending());
    finish(&cluster, picked[0]);
    assert!(waiter.is_woken() && !former.flag.load(Ordering::Relaxed));
}

/// Arrivals, ends, looks and departures in any order. All backends are healthy, so that a place is a place.
#[tokio::test]
async fn no_place_is_lost_or_left_free_whatever_waiters_do() {
    for seed in 0..200 {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut below = |bound: usize| rng.next_u32() as usize % bound;
        let (backends, limit) = (1 + below(3), 1 + below(3));
        let (cluster, mut held) = full(backends as u16, limit as u32);
        let ids: Vec<_> = cluster.0.members().iter().map(|(id, _)| *id).collect();
        let mut waiters: Vec<Waiter<'_>> = Vec::new();
        for _ in 0..300 {
            let at = below(waiters.len().max(1));
            match below(8) {
                0..3 => {
                    let tried = &ids[..below(backends + 1)];
                    match cluster.0.pick(cluster.now(), Kind::default()) {
                        Found::Backend(id, _) => held.push(id),
                        _ => {
                            let mut waiter = Waiter::new(&cluster, tried);
                            assert!(waiter.poll().is_pending());
                            waiters.push(waiter);
                        }
                    }
                }
                3..5 if !held.is_empty() => finish(&cluster, held.swap_remove(below(held.len()))),
                5 if !waiters.is_empty() => drop(waiters.remove(at)),
                _ if !waiters.is_empty() => {
                    let was_woken = waiters[at].is_woken();
                    let backend = waiters[at].backend();
                    assert_eq!(backend.is_some(), was_woken, "who is woken has a backend, and nobody else");
                    if let Some(id) = backend {
                        held.push(id);
                        drop(waiters.remove(at));
                    }
                }
                _ => {}
            }
            let served = waiters.iter().take_while(|waiter| waiter.is_woken()).count();
            assert!(!waiters[served..].iter().any(Waiter::is_woken), "first come, first served");
            assert_eq!(active(&cluster) as usize, held.len() + served, "each place is somebody's");
            assert!(cluster.backends().iter().all(|backend| backend.snapshot.active as usize <= limit));
            assert_eq!(cluster.waiting(), waiters.len() - served);
            assert!(cluster.waiting() == 0 || active(&cluster) as usize == backends * limit, "nobody waits in vain");
        }
        drop(waiters);
        held.iter().for_each(|id| finish(&cluster, *id));
        assert_eq!((active(&cluster), cluster.waiting()), (0, 0));
    }
}

/// Threads with a runtime each, as the proxy has them. A wake-up that is lost hangs it; a limit that is passed is seen.
#[test]
fn threads_that_share_a_cluster_all_get_their_turns() {
    const THREADS: usize = 4;
    const TASKS: usize = 32;
    const REQUESTS: usize = 40;
    const LIMIT: u32 = 3;
    let cluster = healthy(2, LIMIT);
    let under_way: [AtomicU32; 2] = Default::default();
    let request = async |cluster: &Cluster, number: usize| {
        let id = match cluster.0.pick(cluster.now(), Kind::default()) {
            Found::Backend(id, _) => id,
            _ => {
                let mut turn = std::pin::pin!(cluster.0.wait_turn(Kind::default(), 0, &[]));
                if number.is_multiple_of(7) {
                    // Goes away after it was run twice at most, often with a backend in its hands.
                    let twice = async { tokio::task::yield_now().await };
                    tokio::select! { biased; () = twice => return, turn = &mut turn => turn.unwrap().0 }
                } else {
                    turn.await.unwrap().0
                }
            }
        };
        assert!(under_way[id.slot()].fetch_add(1, Ordering::SeqCst) < LIMIT);
        tokio::task::yield_now().await;
        under_way[id.slot()].fetch_sub(1, Ordering::SeqCst);
        finish(cluster, id);
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
                let tasks = (0..TASKS).map(|_| async {
                    for number in 0..REQUESTS {
                        request(&cluster, number).await;
                    }
                });
                let all = futures_util::future::join_all(tasks);
                runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), all).await }).unwrap();
            });
        }
    });
    assert_eq!((active(&cluster), cluster.waiting()), (0, 0));
}

/// A request of this client.
fn of_client(number: u64) -> Kind {
    // Both counters and the line of a holder are given by different bits of its hash.
    Kind { client: Holder::new(number.wrapping_mul(0x9E37_79B9_7F4A_7C15)), ..Kind::default() }
}

/// Slots that this client gets at once.
fn taken(cluster: &Cluster, kind: Kind) -> Vec<BackendId> {
    let next = || match cluster.0.pick(cluster.now(), kind) {
        Found::Backend(id, _) => Some(id),
        _ => None,
    };
    std::iter::from_fn(next).collect()
}

#[tokio::test]
async fn client_at_its_limit_waits_for_its_own_requests_alone() {
    let limited = |max| ClusterConfig { max_active_requests_per_client: NonZeroU32::new(max), ..config(10) };
    let cluster = Cluster::new("test", limited(3), endpoints(0..2));
    cluster.0.members().iter().for_each(|(id, _)| cluster.0.connected(*id));
    let (greedy, other) = (of_client(1), of_client(2));
    let held = taken(&cluster, greedy);
    let mut turn = Box::pin(cluster.0.wait_turn(greedy, 0, &[]));
    let woken = Arc::new(Woken::default());
    let mut poll = || turn.as_mut().poll(&mut Context::from_waker(&Waker::from(woken.clone())));
    assert!(held.len() == 3 && poll().is_pending());
    // Neither a request of another nor its end changes that.
    let others = taken(&cluster, other);
    assert_eq!(others.len(), 3);
    cluster.0.finish(cluster.now(), others[0], &given_back(other));
    assert!(!woken.flag.load(Ordering::Relaxed) && cluster.waiting() == 1);
    cluster.0.finish(cluster.now(), held[0], &given_back(greedy));
    assert!(woken.flag.load(Ordering::Relaxed) && poll().is_ready());
    // A higher limit applies at once, and none takes what is free.
    cluster.set_config(limited(5));
    assert_eq!(taken(&cluster, greedy).len(), 2);
    cluster.set_config(config(10));
    assert!(taken(&cluster, greedy).len() > 10);
}

#[tokio::test]
async fn client_at_its_limit_is_told_when_no_backend_is_usable() {
    let limited = ClusterConfig { max_active_requests_per_client: NonZeroU32::new(1), ..config(10) };
    let cluster = Cluster::new("test", limited, endpoints(0..1));
    cluster.0.members().iter().for_each(|(id, _)| cluster.0.connected(*id));
    assert_eq!(taken(&cluster, Kind::default()).len(), 1);
    let mut waiter = Waiter::begun(&cluster);
    assert!(cluster.drain(([127, 0, 0, 1], 1)));
    assert!(waiter.is_woken() && matches!(waiter.poll(), Poll::Ready(Err(NoTurn::NoBackend))));
    assert!(matches!(cluster.0.pick(cluster.now(), Kind::default()), Found::NoBackend));
}

/// Two localities of one backend each, with one place each.
#[tokio::test]
async fn who_waits_for_one_locality_holds_up_nobody_for_another() {
    let order = Localities::new(["near", "far"], SpillConfig::default()).unwrap();
    let config = ClusterConfig { localities: Some(order), ..config(1) };
    let named = endpoints(0..2).into_iter().zip(["near", "far"]).map(|(endpoint, name)| endpoint.locality(name));
    let cluster = Cluster::new("test", config, named.collect::<Vec<_>>());
    cluster.0.members().iter().for_each(|(id, _)| cluster.0.connected(*id));
    let ids: Vec<_> = cluster.0.members().iter().map(|(id, _)| *id).collect();
    for id in &ids {
        let found = cluster.0.pick(cluster.now(), Kind::default());
        assert!(matches!(found, Found::Backend(picked, _) if picked == *id), "the nearest with a place");
    }
    let waiter = |at| {
        let woken = Woken { flag: AtomicBool::new(false), cluster: Arc::downgrade(&cluster.0) };
        let turn: Waiting<'_> = Box::pin(cluster.0.wait_turn(Kind::default(), at, &[]));
        let mut waiter = Waiter { turn, woken: Arc::new(woken) };
        assert!(waiter.poll().is_pending());
        waiter
    };
    let (mut for_near, mut for_far) = (waiter(0), waiter(1));
    assert_eq!(cluster.waiting(), 2);
    finish(&cluster, ids[1]);
    // The waiter for the nearest locality is asked first, and a slot elsewhere serves it as well.
    assert_eq!((for_near.is_woken(), for_near.backend()), (true, Some(ids[1])));
    finish(&cluster, ids[0]);
    assert_eq!((for_far.is_woken(), for_far.backend()), (true, Some(ids[0])));
    assert_eq!(cluster.waiting(), 0);
}
