//! `deterministic`: rounds of clients share one shuffle of the backends, and each client of a round
//! takes a slice of it.
//!
//! The algorithm of the SRE book. Imagine the n backends shuffled over and over, one round after
//! the other in an endless row; client i takes the k positions from i·k. So any number of clients
//! takes whole rounds and a part of one, and the connections of any two backends differ by **at
//! most 1**.
//!
//! If k divides n, each round has n/k clients, and that is all. Otherwise some client **straddles**
//! the end of one round and the beginning of the next, and must not get a backend twice. The book
//! leaves the odd backends of a round out, which is even only after all rounds of a cycle. Here the
//! straddlers are served first, from one **base** shuffle of all backends. The straddler between
//! rounds r and r + 1 takes the window
//!
//! ```text
//! base[(r·k + j) mod n],   j = 0 … k − 1
//! ```
//!
//! Its first t backends are the end of round r, the other k − t the beginning of round r + 1. The
//! rest of a round, in the middle, is shuffled with the round's number as seed and cut into slices
//! of k.
//!
//! *Each round has each backend once.* The straddler before it gets the end of one window, the
//! straddler after it the beginning of the next. Windows follow each other without a gap, so the
//! two are one stretch of the base, at most n long. The middle is all other backends, and their
//! number is a multiple of k. *No client has a backend twice*: a window is k ≤ n in a row. And
//! nothing depends on other clients: a client is served in O(n).
//!
//! The replacements of a client follow its slice in its round, so they differ between rounds. The
//! load of a failed backend spreads over about as many backends as it had clients.
//!
//! Churn is its weakness: one more backend changes all shuffles, and most connections move.
//!
//! With failure domains or sizes, base and middles are [mixed](Mixture::shuffle) and not only
//! shuffled, so that a slice has its share of each, give or take one. Balance stays within 1.
//!
//! Source: SRE ch. 20.

use alloc::vec;
use alloc::vec::Vec;

use super::strata::Mixture;
use super::{Backend, Sizes, seeds};

/// The order of the client numbered `index`.
pub(super) fn order(sizes: Sizes, seed: u64, index: u32, backends: &[Backend]) -> Vec<u32> {
    let n = backends.len();
    if n == 0 {
        return Vec::new();
    }
    let layout = Layout { n: n as u64, k: u64::from(sizes.subset.get()).min(n as u64) };
    let mixture = Mixture::of(backends);
    let start = u64::from(index) * layout.k;
    let (round, offset) = (start / layout.n, start % layout.n);
    let straddles = offset + layout.k > layout.n;
    // The round whose shuffle has the client's slice, or its replacements.
    let round = if straddles { round + 1 } else { round };
    let base = if layout.before(round) > 0 || layout.before(round + 1) > 0 {
        let mut base: Vec<u32> = (0..n as u32).collect();
        // Round numbers are below 2⁶⁴ / k: the last is free for the base.
        mixture.shuffle(&mut base, &mut seeds::generator(seed, u64::MAX));
        base
    } else {
        Vec::new()
    };
    let (head, tail) = layout.ends(round, &base);
    let mut body: Vec<u32> = {
        let mut at_ends = vec![false; n];
        for b in head.iter().chain(&tail) {
            at_ends[*b as usize] = true;
        }
        (0..n as u32).filter(|b| !at_ends[*b as usize]).collect()
    };
    mixture.shuffle(&mut body, &mut seeds::generator(seed, round));

    let mut order = Preference { order: Vec::new(), taken: vec![false; n], len: sizes.order };
    if straddles {
        order.take(layout.window(round, &base));
    } else {
        body.rotate_left((offset - head.len() as u64) as usize);
    }
    order.take(body);
    order.take(tail);
    order.take(head);
    order.order
}

/// The layout of clients' slices on the rounds.
struct Layout {
    /// Backends.
    n: u64,
    /// Backends per client, at most n.
    k: u64,
}

impl Layout {
    /// Number of backends of the round before `round` in the slice that straddles its beginning; 0
    /// without a straddler.
    fn before(&self, round: u64) -> u64 {
        (round * self.n) % self.k
    }

    /// The backends of the client that straddles the beginning of `round`, those of the round
    /// before first.
    fn window<'a>(&self, round: u64, base: &'a [u32]) -> impl Iterator<Item = u32> + use<'a> {
        let first = (((round - 1) * self.k) % self.n) as usize;
        base.iter().cycle().skip(first).take(self.k as usize).copied()
    }

    /// The backends of `round` that belong to the straddlers of its beginning and its end.
    fn ends(&self, round: u64, base: &[u32]) -> (Vec<u32>, Vec<u32>) {
        let (before, after) = (self.before(round), self.before(round + 1));
        let head = if before == 0 { Vec::new() } else { self.window(round, base).skip(before as usize).collect() };
        let tail = if after == 0 { Vec::new() } else { self.window(round + 1, base).take(after as usize).collect() };
        (head, tail)
    }
}

/// An order under construction.
struct Preference {
    order: Vec<u32>,
    taken: Vec<bool>,
    len: usize,
}

impl Preference {
    /// Appends those of `backends` that the order lacks, up to its length.
    fn take(&mut self, backends: impl IntoIterator<Item = u32>) {
        for backend in backends {
            if self.order.len() < self.len && !core::mem::replace(&mut self.taken[backend as usize], true) {
                self.order.push(backend);
            }
        }
    }
}
