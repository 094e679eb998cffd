//! The base-2 van der Corput sequence: points on a circle that are evenly apart in any number.
//!
//! The i-th point is i with its binary digits mirrored at the point: 0, 1/2, 1/4, 3/4, 1/8, 5/8 ...
//! Each new point halves one of the widest gaps, and none of the old ones moves. So of n backends
//! at the first n points the gaps are 2⁻ᵐ or 2¹⁻ᵐ with m = ⌈log₂ n⌉. Any C clients at the first C
//! points meet about the same number of backends in any direction. Hashing both sides onto the
//! circle, as in consistent hashing, was rejected. Gaps between random points vary by a factor of
//! ln n, and so would the connections.
//!
//! Backends at the first n points stand on a grid of 2ᵐ slots. The backend in slot s has s with its
//! m digits mirrored as its number. So a walk round the circle needs only counting, no table and no
//! sorting.

/// A point on the circle: this many 2⁻³² of its circumference.
pub(super) type Angle = u32;

/// The `index`-th point.
pub(super) const fn angle(index: u32) -> Angle {
    index.reverse_bits()
}

/// The `index`-th number, in 2⁻³², of a sequence as even as the points and independent of them. The
/// clients in any stretch of the circle have evenly spread numbers. The second dimension of Sobol's
/// sequence.
pub(super) const fn companion(index: u32) -> u32 {
    let (mut rest, mut direction, mut number) = (index, 1 << 31, 0);
    while rest != 0 {
        if rest & 1 == 1 {
            number ^= direction;
        }
        direction ^= direction >> 1;
        rest >>= 1;
    }
    number
}

/// The first `n` points by number, once round the circle, starting at the first one not before
/// `from`.
pub(super) fn walk(n: usize, from: Angle) -> impl Iterator<Item = u32> {
    let slots = n.next_power_of_two() as u64;
    let digits = slots.trailing_zeros();
    let first = (u64::from(from) * slots).div_ceil(1 << 32);
    (first..first + slots).filter_map(move |slot| {
        let number = (slot % slots).reverse_bits().checked_shr(u64::BITS - digits).unwrap_or(0);
        (number < n as u64).then_some(number as u32)
    })
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_point_halves_a_widest_gap() {
        let eighths: Vec<u32> = (0..8).map(|i| angle(i) >> 29).collect();
        assert_eq!(eighths, [0, 4, 2, 6, 1, 5, 3, 7]);
    }

    #[test]
    fn a_walk_begins_at_the_first_point_not_before() {
        let walk = |from| walk(6, from).collect::<Vec<_>>();
        assert_eq!(walk(0), [0, 4, 2, 1, 5, 3]);
        assert_eq!(walk(1), [4, 2, 1, 5, 3, 0]);
        assert_eq!(walk(angle(1)), [1, 5, 3, 0, 4, 2]);
        assert_eq!(walk(u32::MAX), [0, 4, 2, 1, 5, 3]);
    }

    #[test]
    fn points_and_companions_fill_each_box_of_the_square_once() {
        // 2⁶ clients; boxes of 2⁻ᵃ by 2⁻ᵇ with a + b = 6.
        for a in 1..6 {
            let mut boxes: Vec<(u32, u32)> =
                (0..64).map(|i| (angle(i) >> (32 - a), companion(i) >> (32 - (6 - a)))).collect();
            boxes.sort_unstable();
            boxes.dedup();
            assert_eq!(boxes.len(), 64, "a = {a}");
        }
    }

    proptest! {
        #[test]
        fn a_walk_meets_each_point_once_in_order(n in 0..600_usize, from: u32) {
            let met: Vec<u32> = walk(n, from).collect();
            let mut sorted: Vec<u32> = (0..n as u32).collect();
            sorted.sort_by_key(|i| angle(*i).wrapping_sub(from));
            prop_assert_eq!(met, sorted);
        }
    }
}
