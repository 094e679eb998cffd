//! The services of a balancer, and which of them are ready.
//!
//! A service is polled when it was added, was called, or has woken its waker. So a request costs
//! the same with any number of services that wait.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use plimsoll_core::BackendId;
use tower_service::Service;

use crate::lock::lock;

/// Services by the slot of their backend.
pub(super) struct Services<K, S> {
    slots: Vec<Option<Member<K, S>>>,
    by_key: HashMap<K, BackendId>,
    /// Backends whose service is not ready.
    pending: Vec<BackendId>,
    wakes: Arc<Wakes>,
    /// Slots to poll, reused.
    due: Vec<usize>,
}

struct Member<K, S> {
    key: K,
    id: BackendId,
    service: S,
    is_ready: bool,
    alarm: Arc<Alarm>,
    waker: Waker,
}

/// Slots whose services may be ready, and the task that wants to know.
#[derive(Default)]
struct Wakes {
    state: Mutex<(Vec<usize>, Option<Waker>)>,
}

/// The waker of one slot.
struct Alarm {
    slot: usize,
    is_due: AtomicBool,
    wakes: Arc<Wakes>,
}

impl Alarm {
    /// Makes the slot due, for a caller that polls soon.
    fn note(&self) {
        if !self.is_due.swap(true, Ordering::AcqRel) {
            lock(&self.wakes.state).0.push(self.slot);
        }
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_due.swap(true, Ordering::AcqRel) {
            return;
        }
        let task = {
            let (due, task) = &mut *lock(&self.wakes.state);
            due.push(self.slot);
            task.take()
        };
        if let Some(task) = task {
            task.wake();
        }
    }
}

/// A change of readiness.
pub(super) enum Readiness {
    /// The service of this backend is ready.
    Ready(BackendId),
    /// The service of this backend failed, and is removed.
    Failed(BackendId),
}

impl<K, S> Default for Services<K, S> {
    fn default() -> Self {
        Self { slots: Vec::new(), by_key: HashMap::new(), pending: Vec::new(), wakes: Arc::default(), due: Vec::new() }
    }
}

impl<K: Hash + Eq + Clone, S> Services<K, S> {
    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Backends whose service is not ready.
    pub(super) fn pending(&self) -> &[BackendId] {
        &self.pending
    }

    pub(super) fn is_ready(&self, id: BackendId) -> bool {
        self.member(id).is_some_and(|member| member.is_ready)
    }

    pub(super) fn is_any_ready(&self) -> bool {
        self.pending.len() < self.by_key.len()
    }

    fn member(&self, id: BackendId) -> Option<&Member<K, S>> {
        self.slots.get(id.slot())?.as_ref().filter(|member| member.id == id)
    }

    /// Adds a service for a new backend. It is polled next time.
    pub(super) fn insert(&mut self, id: BackendId, key: K, service: S) {
        let slot = id.slot();
        if self.slots.len() <= slot {
            self.slots.resize_with(slot + 1, || None);
        }
        let alarm = Arc::new(Alarm { slot, is_due: AtomicBool::new(false), wakes: Arc::clone(&self.wakes) });
        let waker = Waker::from(Arc::clone(&alarm));
        alarm.note();
        self.by_key.insert(key.clone(), id);
        self.pending.push(id);
        self.slots[slot] = Some(Member { key, id, service, is_ready: false, alarm, waker });
    }

    /// Removes the service with this key. Returns its backend and the service.
    pub(super) fn remove(&mut self, key: &K) -> Option<(BackendId, S)> {
        let id = self.by_key.remove(key)?;
        self.pending.retain(|pending| *pending != id);
        let member = self.slots[id.slot()].take()?;
        Some((id, member.service))
    }

    /// Polls the services that may be ready. The task of `cx` is woken when others may be.
    pub(super) fn poll_due<Req>(&mut self, cx: &mut Context<'_>, mut tell: impl FnMut(Readiness))
    where
        S: Service<Req>,
    {
        let stale = {
            let (due, task) = &mut *lock(&self.wakes.state);
            std::mem::swap(due, &mut self.due);
            register(task, cx)
        };
        drop(stale);
        let mut slots = std::mem::take(&mut self.due);
        for slot in slots.drain(..) {
            let Some(member) = self.slots[slot].as_mut() else { continue };
            // Before the poll: a wake during it counts.
            member.alarm.is_due.store(false, Ordering::Release);
            if member.is_ready {
                continue;
            }
            let id = member.id;
            match member.service.poll_ready(&mut Context::from_waker(&member.waker)) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => {
                    member.is_ready = true;
                    self.pending.retain(|pending| *pending != id);
                    tell(Readiness::Ready(id));
                }
                Poll::Ready(Err(_)) => {
                    let key = member.key.clone();
                    self.remove(&key);
                    tell(Readiness::Failed(id));
                }
            }
        }
        self.due = slots;
    }

    /// Calls a ready service. It is polled again before its next call.
    pub(super) fn call<Req>(&mut self, id: BackendId, request: Req) -> S::Future
    where
        S: Service<Req>,
    {
        let member = self.slots[id.slot()].as_mut().expect("a ready service is there");
        debug_assert!(member.id == id && member.is_ready);
        let future = member.service.call(request);
        member.is_ready = false;
        member.alarm.note();
        self.pending.push(id);
        future
    }
}

/// Registers the waker of a task. Returns the former one, to be dropped without a lock: it may be
/// the last of its task.
pub(super) fn register(task: &mut Option<Waker>, cx: &Context<'_>) -> Option<Waker> {
    match task {
        Some(task) if task.will_wake(cx.waker()) => None,
        task => task.replace(cx.waker().clone()),
    }
}
