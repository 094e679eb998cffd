//! Draws from the caller's generator.

use crate::Random;

/// A uniform index below `n`, which must not be zero.
///
/// It is Lemire's multiplication without its rejection step. With 32 random bits and n up to 10⁵
/// the bias is below 3·10⁻⁵, far below the resolution of any measure of balance.
pub(crate) fn below(rng: &mut impl Random, n: usize) -> usize {
    debug_assert!(n > 0 && u32::try_from(n).is_ok(), "n fits 32 bits and is not zero");
    ((u64::from(rng.next_u32()) * n as u64) >> 32) as usize
}

/// A uniform number in [0, 1).
pub(crate) fn unit(rng: &mut impl Random) -> f64 {
    f64::from(rng.next_u32()) / (f64::from(u32::MAX) + 1.0)
}

/// Hashes a number (the finaliser of SplitMix64): similar numbers become very different ones, so
/// that callers' keys need not be hashes.
pub(crate) fn spread(number: u64) -> u64 {
    let x = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A generator that draws this number only.
    struct Always(u32);

    impl Random for Always {
        fn next_u64(&mut self) -> u64 {
            u64::from(self.0) << 32 | u64::from(self.0)
        }
    }

    #[test]
    fn draws_stay_below_their_end() {
        assert_eq!([0, 1 << 31].map(|number| unit(&mut Always(number))), [0.0, 0.5]);
        assert!(unit(&mut Always(u32::MAX)) < 1.0);
        assert_eq!([0, 1 << 31, u32::MAX].map(|number| below(&mut Always(number), 7)), [0, 3, 6]);
    }
}
