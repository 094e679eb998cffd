//! How often a request is tried, and where it was.

use core::num::NonZeroU8;

use crate::BackendId;

/// How many attempts one request may have, the first included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MaxAttempts(NonZeroU8);

impl MaxAttempts {
    /// The book's: whoever was turned away by three backends would be by a fourth.
    pub const DEFAULT: Self = Self(NonZeroU8::new(3).expect("not zero"));
    /// One: nothing is tried again.
    pub const ONE: Self = Self(NonZeroU8::MIN);
    /// The most that can be set. What is not served by then is not served by trying.
    pub const MOST: u8 = 8;

    /// `attempts`, or `None` for none or more than [`MaxAttempts::MOST`].
    #[must_use]
    pub fn new(attempts: u8) -> Option<Self> {
        NonZeroU8::new(attempts).filter(|attempts| attempts.get() <= Self::MOST).map(Self)
    }

    /// As a number.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0.get()
    }
}

impl Default for MaxAttempts {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The backends that a request was sent to: [`Balancer::pick_except`](crate::Balancer::pick_except) is to choose another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tried {
    backends: [Option<BackendId>; MaxAttempts::MOST as usize],
}

impl Tried {
    /// Notes one. Beyond [`MaxAttempts::MOST`] different ones there is no room, and nothing is noted.
    pub fn push(&mut self, backend: BackendId) {
        if !self.contains(backend)
            && let Some(free) = self.backends.iter_mut().find(|place| place.is_none())
        {
            *free = Some(backend);
        }
    }

    /// Whether it was tried.
    #[must_use]
    pub fn contains(&self, backend: BackendId) -> bool {
        self.backends.contains(&Some(backend))
    }

    /// Those that were tried, in order.
    pub fn iter(&self) -> impl Iterator<Item = BackendId> + '_ {
        self.backends.iter().map_while(|backend| *backend)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_attempts_cannot_be_set() {
        assert_eq!((MaxAttempts::new(0), MaxAttempts::new(9)), (None, None));
        assert_eq!(MaxAttempts::new(8).map(MaxAttempts::get), Some(8));
    }

    #[test]
    fn each_backend_is_noted_once_and_a_successor_in_its_slot_is_another() {
        let mut tried = Tried::default();
        for id in [BackendId::new(1, 0), BackendId::new(1, 0), BackendId::new(7, 2)] {
            tried.push(id);
        }
        assert!(tried.iter().eq([BackendId::new(1, 0), BackendId::new(7, 2)]));
        assert!(!tried.contains(BackendId::new(1, 1)));
        (0..20).for_each(|slot| tried.push(BackendId::new(slot, 9)));
        assert_eq!(tried.iter().count(), usize::from(MaxAttempts::MOST));
    }
}
