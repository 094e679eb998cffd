//! The version that serves a request, when a route splits its requests over clusters by weight.
//!
//! Two ways, and both keep the shares:
//!
//! - *In turn* ([`turn`]), without a key. Request number i goes where i·φ mod 1 falls among the
//!   shares, with φ the golden ratio: a low-discrepancy sequence. After n requests, each side is
//!   within 5 requests of its exact share for every n up to 10⁶, and no side waits long for its next
//!   request. Random draws would be off by √n. Plain rotation (every twentieth request) could beat
//!   with a client that sends requests in a pattern of its own, such as one page and nineteen images.
//! - *By key* ([`Split::by_key`]): the same key always stays on one side. A hash of the key, without
//!   secrets, is its *position* in [0, 1). So all threads, processes and restarts agree. The names of
//!   the sides are the salt of the hash, so the users of a canary are no more likely than others
//!   to be those of another canary ([`Split::named`]). Weights are no part of it.
//!
//! Copies for a mirror take turns of their own ([`turn_of_copy`]), by the fraction of i·√2. 1, φ and √2
//! are linearly independent over the rationals, so both sequences together fill the square evenly: a
//! mirror copies its share of the canary's requests and of the others.
//!
//! The sides lie on [0, 1) with the first one, the main version, at the upper end and the others
//! below it from zero. When the weight of the only canary grows, its part [0, w) grows at its upper
//! end: keys move to the canary and none leaves it. With several canaries this holds for their parts
//! together.
//!
//! A weight of zero gives a side nothing. The weights need not add up to 100.

use alloc::vec::Vec;

use crate::rng::spread;

/// Most sides of a split. Each has a comparison of its own.
pub const MAX_SIDES: usize = 8;

/// The shares of the sides of a split.
///
/// ```
/// use plimsoll_core::split::{Split, turn};
///
/// let versions = ["web", "web-canary"];
/// let split = Split::new(&[95.0, 5.0]).expect("valid").named(versions);
/// let canary = (0..1_000).filter(|number| split.side(turn(*number)) == 1).count();
/// assert_eq!(canary, 50, "requests in turn");
/// let version = versions[split.by_key(b"alice")];
/// assert_eq!(version, versions[split.by_key(b"alice")], "a user stays");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// The upper ends of all sides but the first, in their order; they begin at zero.
    ends: Vec<u64>,
    /// The share of each side, in [0, 1].
    shares: Vec<f64>,
    /// Seed of the positions of keys.
    seed: u64,
}

/// A place in [0, 1), in units of 2⁻⁶⁴.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(u64);

/// Seed of positions: another one would move every user.
const SEED: u64 = 0x706c_696d_736f_6c6c;

impl Split {
    /// A split by these weights, finite and not negative; the first side is the main version.
    /// `None` without a weight above zero.
    #[must_use]
    pub fn new(weights: &[f64]) -> Option<Self> {
        let all: f64 = weights.iter().sum();
        if !(all.is_finite() && all > 0.0) || weights.iter().any(|weight| *weight < 0.0) {
            return None;
        }
        let mut below = 0.0;
        let ends = weights[1..].iter().map(|weight| {
            below += weight;
            // Rounds to 2⁶⁴ at most, which saturates.
            (below / all * 18_446_744_073_709_551_616.0) as u64
        });
        Some(Self { ends: ends.collect(), shares: weights.iter().map(|weight| weight / all).collect(), seed: SEED })
    }

    /// Gives the sides their names, in their order. Keys have other positions than in a split with other
    /// names.
    #[must_use]
    pub fn named<'n>(self, names: impl IntoIterator<Item = &'n str>) -> Self {
        // By length, so that the end of one name is not the start of the next.
        let seed = names.into_iter().fold(SEED, |seed, name| {
            twox_hash::XxHash64::oneshot(seed.wrapping_add(name.len() as u64), name.as_bytes())
        });
        Self { seed, ..self }
    }

    /// The side at a position.
    #[must_use]
    pub fn side(&self, position: Position) -> usize {
        match self.ends.iter().position(|end| position.0 < *end) {
            Some(other) => other + 1,
            // The last position is below no end; without a main version it belongs to the last side
            // with a share.
            None if self.shares[0] > 0.0 => 0,
            None => self.shares.iter().rposition(|share| *share > 0.0).unwrap_or_default(),
        }
    }

    /// The side of a key.
    #[must_use]
    pub fn by_key(&self, key: &[u8]) -> usize {
        self.side(self.position(key))
    }

    /// The position of a key, the same in all processes.
    fn position(&self, key: &[u8]) -> Position {
        Position(spread(twox_hash::XxHash64::oneshot(self.seed, key)))
    }

    /// The share of each side, in [0, 1].
    #[must_use]
    pub fn shares(&self) -> &[f64] {
        &self.shares
    }

    /// Where a request goes whose side can serve nothing: the first side that can, the main version
    /// before canaries; the same side if none can.
    #[must_use]
    pub fn fallback(&self, side: usize, can_serve: impl Fn(usize) -> bool) -> usize {
        if can_serve(side) {
            return side;
        }
        let candidates = (0..self.shares.len()).filter(|other| *other != side && self.shares[*other] > 0.0);
        candidates.into_iter().find(|other| can_serve(*other)).unwrap_or(side)
    }
}

/// The position of request number `number` of a split: a low-discrepancy sequence.
#[must_use]
pub const fn turn(number: u64) -> Position {
    // The fraction of number·φ, exact in 64 bits.
    Position(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// The position of request number `number` for a mirror, independent of its [`turn`].
#[must_use]
pub const fn turn_of_copy(number: u64) -> Position {
    // The fraction of number·√2, exact in 64 bits.
    Position(number.wrapping_mul(0x6a09_e667_f3bc_c909))
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    #[test]
    fn turns_keep_each_share_within_five_requests() {
        for weights in [&[95.0, 5.0][..], &[50.0, 50.0], &[99.9, 0.1], &[1.0, 1.0, 1.0], &[80.0, 15.0, 5.0]] {
            let split = Split::new(weights).unwrap();
            let mut counts = [0_u32; MAX_SIDES];
            for number in 0..1_000_000_u64 {
                counts[split.side(turn(number))] += 1;
                for (count, share) in counts.iter().zip(split.shares()) {
                    let off = f64::from(*count) - share * (number + 1) as f64;
                    assert!(off.abs() < 5.0, "{weights:?}: {off} after {number}");
                }
            }
        }
    }

    #[test]
    fn keys_keep_their_side_and_only_move_to_a_growing_canary() {
        let keys = (0..20_000).map(|i| format!("user-{i}"));
        let splits =
            [0.0, 1.0, 5.0, 20.0, 50.0, 99.0, 100.0].map(|weight| Split::new(&[100.0 - weight, weight]).unwrap());
        let mut counts = [0; 7];
        for key in keys {
            let sides = splits.each_ref().map(|split| split.by_key(key.as_bytes()));
            assert!(sides.is_sorted(), "{key}: {sides:?}");
            sides.iter().zip(&mut counts).for_each(|(side, count)| *count += side);
        }
        // Five standard deviations of a binomial count.
        for (count, share) in counts.iter().zip([0.0, 0.01, 0.05, 0.2, 0.5, 0.99, 1.0_f64]) {
            let deviation = 5.0 * std_of(share * (1.0 - share) * 20_000.0);
            assert!((*count as f64 - share * 20_000.0).abs() <= deviation, "{count} of {share}");
        }
    }

    fn std_of(variance: f64) -> f64 {
        libm::sqrt(variance)
    }

    #[test]
    fn positions_are_the_same_in_every_release() {
        // Other numbers move users between versions at an update of the proxy.
        let split = Split::new(&[95.0, 5.0]).unwrap().named(["web", "web-canary"]);
        let positions = [&b""[..], b"alice", b"bob"].map(|key| split.position(key).0 >> 48);
        assert_eq!(positions, EXPECTED);
    }

    const EXPECTED: [u64; 3] = [25243, 57280, 63694];

    #[test]
    fn users_of_one_canary_are_independent_of_those_of_another() {
        let named = |names: [&str; 2], weight| Split::new(&[100.0 - weight, weight]).unwrap().named(names);
        let web = named(["web", "web-canary"], 20.0);
        for other in [["shop", "shop-canary"], ["web-canary", "web"], ["webw", "eb-canary"]] {
            let other = named(other, 20.0);
            let keys = (0..20_000).map(|i| format!("user-{i}"));
            let both = keys.filter(|key| web.by_key(key.as_bytes()) == 1 && other.by_key(key.as_bytes()) == 1).count();
            // 4% of 20,000, within five standard deviations; all 4,000 if they were the same.
            assert!((660..=940).contains(&both), "{other:?}: {both}");
        }
        let more = named(["web", "web-canary"], 60.0);
        assert!((0..1000_u32).all(|i| web.by_key(&i.to_le_bytes()) <= more.by_key(&i.to_le_bytes())));
    }

    #[test]
    fn mirror_copies_its_share_of_every_side() {
        for (weight, copied) in [(5.0, 10.0), (10.0, 10.0), (50.0, 20.0)] {
            let split = Split::new(&[100.0 - weight, weight]).unwrap();
            let mirror = Split::new(&[100.0 - copied, copied]).unwrap();
            let numbers = (0..100_000_u64).filter(|number| mirror.side(turn_of_copy(*number)) == 1);
            let (all, of_canary) =
                numbers.fold((0, 0), |(all, of_canary), number| (all + 1, of_canary + split.side(turn(number))));
            assert!((f64::from(all) - 1000.0 * copied).abs() < 5.0, "{all}");
            let expected = 1000.0 * copied * weight / 100.0;
            assert!((of_canary as f64 / expected - 1.0).abs() < 0.05, "{of_canary} for {expected}");
        }
    }

    #[test]
    fn weight_zero_gets_nothing_and_junk_is_no_split() {
        let split = Split::new(&[0.0, 3.0, 0.0]).unwrap();
        assert!((0..1000).all(|number| split.side(turn(number)) == 1));
        assert_eq!(split.side(Position(u64::MAX)), 1);
        for junk in [&[][..], &[0.0, 0.0], &[-1.0, 2.0], &[f64::NAN, 1.0], &[f64::INFINITY]] {
            assert_eq!(Split::new(junk), None, "{junk:?}");
        }
    }

    #[test]
    fn dead_side_falls_back_to_one_that_serves() {
        let split = Split::new(&[90.0, 10.0, 0.0]).unwrap();
        assert_eq!(split.fallback(1, |_| true), 1);
        assert_eq!(split.fallback(1, |side| side == 0), 0);
        assert_eq!(split.fallback(0, |side| side == 1), 1);
        assert_eq!(split.fallback(0, |side| side == 2), 0, "a weight of zero gets nothing");
        assert_eq!(split.fallback(1, |_| false), 1);
    }
}
