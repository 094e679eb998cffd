//! Events on a client connection, for its time limits.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

/// The event that a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stage {
    /// For the client's next request.
    Idle,
    /// For the rest of a head.
    Head,
    /// For us, or for a backend.
    Busy,
    /// For more of a request's body.
    Body,
}

impl Stage {
    /// Whether no request is under way.
    pub(crate) fn is_before_request(self) -> bool {
        matches!(self, Self::Idle | Self::Head)
    }
}

/// The memory of a connection for requests; see [`Http1::serve`](crate::http1::Http1::serve).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Memory {
    /// It has none.
    Free,
    Held,
    /// Held, and no request came for some time.
    Unused,
    /// To be given back as soon as no request uses it.
    Unwanted,
}

/// Events on a connection, for its time limits.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// Requests begun so far, wrapping.
    begun: AtomicU32,
    active: AtomicU32,
    stage: AtomicU8,
    memory: AtomicU8,
    /// Bytes of bodies that came in so far.
    received: AtomicU64,
    /// Bytes that went out so far.
    sent: AtomicU64,
    /// The last write got nothing out: the client does not read.
    write_blocked: AtomicBool,
    /// Bytes that the present step of its task moved, and those that it may move; see
    /// [`turns`](super::turns).
    moved: AtomicU32,
    allowance: AtomicU32,
    /// Ends with the request in progress.
    closing: AtomicBool,
    /// Has overstayed a time limit.
    overdue: AtomicBool,
    /// Ends at once.
    cut_off: AtomicBool,
}

// One thread drives a connection, so that plain loads and stores would do; relaxed atomics are the
// same instructions and need no promise to the compiler.
impl Activity {
    pub(crate) fn begin(&self) {
        self.begun.store(self.begun().wrapping_add(1), Ordering::Relaxed);
        self.active.fetch_add(1, Ordering::Relaxed);
        self.enter(Stage::Busy);
    }

    pub(crate) fn end(&self) {
        if self.active.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.enter(Stage::Idle);
        }
    }

    pub(crate) fn begun(&self) -> u32 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Requests that began and that ended so far, together, wrapping.
    pub(crate) fn events(&self) -> u32 {
        self.begun().wrapping_mul(2).wrapping_sub(self.active.load(Ordering::Relaxed))
    }

    pub(crate) fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Relaxed) {
            0 => Stage::Idle,
            1 => Stage::Head,
            2 => Stage::Busy,
            _ => Stage::Body,
        }
    }

    pub(crate) fn enter(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Relaxed);
    }

    pub(crate) fn memory(&self) -> Memory {
        match self.memory.load(Ordering::Relaxed) {
            0 => Memory::Free,
            1 => Memory::Held,
            2 => Memory::Unused,
            _ => Memory::Unwanted,
        }
    }

    pub(crate) fn set_memory(&self, memory: Memory) {
        self.memory.store(memory as u8, Ordering::Relaxed);
    }

    /// Whether the next step is the client's: a request, more of one, or to take more of an answer.
    pub(crate) fn waits_for_client(&self) -> bool {
        self.stage() != Stage::Busy || self.is_write_blocked()
    }

    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    pub(crate) fn on_received(&self, bytes: usize) {
        self.received.store(self.received() + bytes as u64, Ordering::Relaxed);
        self.on_moved(bytes);
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    pub(crate) fn on_sent(&self, bytes: usize) {
        self.sent.store(self.sent() + bytes as u64, Ordering::Relaxed);
        self.on_moved(bytes);
    }

    pub(crate) fn begin_step(&self, allowance: u32) {
        self.moved.store(0, Ordering::Relaxed);
        self.allowance.store(allowance, Ordering::Relaxed);
    }

    pub(crate) fn moved_in_step(&self) -> u32 {
        self.moved.load(Ordering::Relaxed)
    }

    pub(crate) fn is_step_over(&self) -> bool {
        self.moved_in_step() >= self.allowance.load(Ordering::Relaxed)
    }

    /// Bytes moved either way.
    pub(crate) fn on_moved(&self, bytes: usize) {
        let moved = self.moved_in_step().saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        self.moved.store(moved, Ordering::Relaxed);
    }

    pub(crate) fn is_write_blocked(&self) -> bool {
        self.write_blocked.load(Ordering::Relaxed)
    }

    pub(crate) fn write_is_blocked(&self, blocked: bool) {
        self.write_blocked.store(blocked, Ordering::Relaxed);
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_overdue(&self) -> bool {
        self.overdue.load(Ordering::Relaxed)
    }

    pub(crate) fn overstay(&self) {
        self.overdue.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_cut_off(&self) -> bool {
        self.cut_off.load(Ordering::Relaxed)
    }

    pub(crate) fn cut_off(&self) {
        self.cut_off.store(true, Ordering::Relaxed);
    }
}
