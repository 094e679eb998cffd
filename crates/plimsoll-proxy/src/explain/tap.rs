//! Follows the explanations as they are recorded.
//!
//! A reader polls, so a request pays nothing for it. It has numbers of the rings rather than the time
//! of the last request: two requests may end at one time, and one may be recorded late.

use std::sync::Arc;

use super::ring::{Followed, Ring};
use super::{Explain, Explanation};

/// A reader of the explanations that are recorded from its beginning on.
#[derive(Debug)]
pub struct Tap {
    explain: Explain,
    rings: Option<Arc<[Ring<Explanation>; 3]>>,
    /// Of each ring, the number of the next explanation.
    from: [u64; 3],
}

/// The explanations since the last look.
#[derive(Debug, Default)]
pub struct Tapped {
    /// The explanations, the earliest first.
    pub explanations: Vec<Arc<Explanation>>,
    /// Explanations that were overwritten before this look.
    pub overwritten: u64,
}

impl Tap {
    pub(crate) fn new(explain: &Explain) -> Self {
        let rings = explain.0.rings.load_full();
        let from = rings.as_ref().map_or([0; 3], |rings| rings.each_ref().map(Ring::next));
        Self { explain: explain.clone(), rings, from }
    }

    /// Whether explanations are recorded at all.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.explain.is_on()
    }

    /// The explanations since the last look.
    pub fn look(&mut self) -> Tapped {
        let rings = self.explain.0.rings.load_full();
        // A reload that changes their size replaces the rings.
        if self.rings.as_ref().map(Arc::as_ptr) != rings.as_ref().map(Arc::as_ptr) {
            self.from = [0; 3];
            self.rings = rings;
        }
        let mut tapped = Tapped::default();
        for (ring, from) in self.rings.iter().flat_map(|rings| rings.iter()).zip(&mut self.from) {
            let Followed { values, next, overwritten } = ring.follow(*from);
            tapped.explanations.extend(values);
            tapped.overwritten += overwritten;
            *from = next;
        }
        tapped.explanations.sort_by_key(|explanation| explanation.ended);
        tapped
    }
}
