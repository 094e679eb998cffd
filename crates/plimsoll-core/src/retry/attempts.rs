//! Limit on the attempts of one request.

use core::num::NonZeroU8;

/// Largest number of attempts of one request, the first included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MaxAttempts(NonZeroU8);

impl MaxAttempts {
    /// The book's: a request that three backends rejected would be rejected by a fourth.
    pub const DEFAULT: Self = Self(NonZeroU8::new(3).expect("not zero"));
    /// One attempt: no retry.
    pub const ONE: Self = Self(NonZeroU8::MIN);
    /// Largest limit. More attempts do not help a request that failed this often.
    pub const MAX: u8 = 8;

    /// `attempts`, or `None` for none or more than [`MaxAttempts::MAX`].
    #[must_use]
    pub fn new(attempts: u8) -> Option<Self> {
        NonZeroU8::new(attempts).filter(|attempts| attempts.get() <= Self::MAX).map(Self)
    }

    /// The limit as a number.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_between_one_and_eight() {
        assert_eq!((MaxAttempts::new(0), MaxAttempts::new(9)), (None, None));
        assert_eq!(MaxAttempts::new(8).map(MaxAttempts::get), Some(8));
    }
}
