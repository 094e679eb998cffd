//! Random numbers by label: one seed, many independent streams.
//!
//! Each thing that draws (the arrivals of client 7, the speed of machine 3) has a stream of its own, named by a label
//! and an index. So two policies meet the same arrivals, costs and machines, though one draws more numbers than the
//! other: *common random numbers*, under which the difference of two policies varies far less from seed to seed than
//! either does. And a draw more in one place changes nothing elsewhere.
//!
//! The seed of a stream is a hash of (seed, label, index), by a mixer that is fixed here and not by the standard
//! library's hashers, which may change: a seed gives the same run on every machine and under every version.

use rand_core::Rng;
use rand_pcg::Pcg64Mcg;

/// The streams of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Streams {
    seed: u64,
}

impl Streams {
    /// Those of the run with this seed.
    #[must_use]
    pub(crate) const fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// The stream of the `index`-th thing of its kind.
    #[must_use]
    pub(crate) fn stream(&self, label: &str, index: u64) -> Pcg64Mcg {
        let high = self.number(label, index);
        let low = mix(high ^ 0x5851_f42d_4c95_7f2d);
        Pcg64Mcg::new(u128::from(high) << 64 | u128::from(low))
    }

    /// A seed for somebody who makes a generator of their own.
    #[must_use]
    pub(crate) fn number(&self, label: &str, index: u64) -> u64 {
        let labelled = label.bytes().fold(mix(self.seed), |state, byte| mix(state ^ u64::from(byte)));
        mix(labelled ^ index)
    }
}

/// A bijection in which each bit of the input changes half of those of the output: the finaliser of SplitMix64
/// (Steele, Lea, Flood, 2014), after its increment.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A uniform number in [0, 1), of 53 bits.
pub(crate) fn unit(rng: &mut impl Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_never_change() {
        let draw = |label, index| Streams::new(7).stream(label, index).next_u64();
        assert_eq!(draw("arrivals", 0), 18_306_216_032_717_565_615);
        assert_eq!(draw("arrivals", 1), 5_364_531_518_672_983_457);
        assert_eq!(draw("costs", 0), 14_757_483_524_197_363_906);
    }

    /// Seed 1, n = 10,000 pairs of bits from neighbouring streams: agreements are binomial with p = 1/2; 5 standard
    /// deviations are 250, false alarm 6e-7.
    #[test]
    fn neighbouring_streams_are_independent() {
        let streams = Streams::new(1);
        for other in [("a", 1), ("b", 0)] {
            let (mut one, mut two) = (streams.stream("a", 0), streams.stream(other.0, other.1));
            let agree: u32 = (0..10_000).map(|_| u32::from((one.next_u64() ^ two.next_u64()) & 1 == 0)).sum();
            assert!(agree.abs_diff(5_000) < 250, "{other:?}: {agree}");
        }
    }

    #[test]
    fn another_seed_is_another_run() {
        assert_ne!(Streams::new(1).number("a", 0), Streams::new(2).number("a", 0));
        assert_ne!(Streams::new(1).number("ab", 0), Streams::new(1).number("ba", 0));
    }

    #[test]
    fn unit_numbers_are_below_one() {
        let mut rng = Streams::new(3).stream("unit", 0);
        assert!((0..10_000).map(|_| unit(&mut rng)).all(|x| (0.0..1.0).contains(&x)));
    }
}
