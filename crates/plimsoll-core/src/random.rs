//! Random numbers, from the caller's generator.

/// A generator of uniform random numbers: the caller's.
///
/// The trait is this crate's own, so that a new version of a library of generators changes nothing
/// here. The feature `rand_core_0_10` implements it for each generator of rand_core 0.10, and so of
/// rand 0.10. Any other generator is a closure in [`RandomFn`], or implements it.
///
/// No machine of this crate needs secrecy of the numbers, so a small, fast generator is right.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no generator of random numbers for `plimsoll-core`",
    note = "for a generator of `rand_core` or `rand` 0.10, add the feature `rand_core_0_10` of `plimsoll-core`",
    note = "for any other, wrap a closure that returns 64 random bits in `plimsoll_core::RandomFn`"
)]
pub trait Random {
    /// 64 random bits.
    fn next_u64(&mut self) -> u64;

    /// 32 random bits. Most decisions draw these.
    fn next_u32(&mut self) -> u32 {
        // The upper half: the lower bits of some small generators are weak.
        (self.next_u64() >> 32) as u32
    }
}

#[cfg(feature = "rand_core_0_10")]
impl<R: rand_core::Rng> Random for R {
    fn next_u64(&mut self) -> u64 {
        rand_core::Rng::next_u64(self)
    }

    fn next_u32(&mut self) -> u32 {
        rand_core::Rng::next_u32(self)
    }
}

/// A generator from a closure that returns 64 random bits:
///
/// ```
/// use plimsoll_core::RandomFn;
/// use plimsoll_core::trace::SpanId;
///
/// // xorshift64; `|| fastrand::u64(..)` would do as well.
/// let mut state = 88_172_645_463_325_252_u64;
/// let mut rng = RandomFn(|| {
///     state ^= state << 13;
///     state ^= state >> 7;
///     state ^= state << 17;
///     state
/// });
/// assert_ne!(SpanId::random(&mut rng), SpanId::random(&mut rng));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RandomFn<F>(pub F);

impl<F: FnMut() -> u64> Random for RandomFn<F> {
    fn next_u64(&mut self) -> u64 {
        (self.0)()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closure_of_64_bits_gives_its_upper_half_as_32() {
        let mut rng = RandomFn(|| 0x1234_5678_9abc_def0);
        assert_eq!((rng.next_u64(), rng.next_u32()), (0x1234_5678_9abc_def0, 0x1234_5678));
    }

    /// The sequence of a generator is that of its library: seeds in scenarios and tests stay valid.
    #[test]
    fn generator_of_rand_core_keeps_its_sequence() {
        use rand_core::Rng as Theirs;
        use rand_pcg::Pcg64Mcg;

        let [mut ours, mut theirs] = [Pcg64Mcg::new(7), Pcg64Mcg::new(7)];
        for _ in 0..10 {
            assert_eq!(Random::next_u32(&mut ours), Theirs::next_u32(&mut theirs));
            assert_eq!(Random::next_u64(&mut ours), Theirs::next_u64(&mut theirs));
        }
    }
}
