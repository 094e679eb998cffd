//! A rate in 16 bits: the demand of each task for each customer is kept, and there are ten millions.

/// Bits of the exponent.
const EXPONENT: u32 = 5;
/// Bits of the number before it.
const DIGITS: u32 = 16 - EXPONENT;

/// A number that is rounded down, by less than a part in a thousand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Coarse(u16);

impl Coarse {
    /// Rounds a number down to one that fits. Numbers above 2⁴² become the largest.
    pub(super) const fn new(value: u64) -> Self {
        let shift = (u64::BITS - value.leading_zeros()).saturating_sub(DIGITS);
        if shift >= 1 << EXPONENT {
            return Self(u16::MAX);
        }
        Self((shift << DIGITS) as u16 | (value >> shift) as u16)
    }

    pub(super) const fn get(self) -> u64 {
        let (shift, digits) = (self.0 >> DIGITS, self.0 & ((1 << DIGITS) - 1));
        (digits as u64) << shift
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn number_is_rounded_down_by_less_than_a_thousandth(value in 0_u64..1 << 42) {
            let rounded = Coarse::new(value).get();
            prop_assert!(rounded <= value && value - rounded <= value / 1_000);
            prop_assert_eq!(Coarse::new(rounded).get(), rounded);
        }
    }

    #[test]
    fn largest_number_stays() {
        assert_eq!(Coarse::new(u64::MAX), Coarse::new(1 << 43));
        assert_eq!([0, 1, 2_047].map(|small| Coarse::new(small).get()), [0, 1, 2_047]);
    }
}
