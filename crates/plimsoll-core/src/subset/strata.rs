//! Spreading a subset over failure domains and over sizes of machines.
//!
//! A client whose whole subset stands in one zone has an outage when the zone has one; one whose subset is all small
//! machines overloads them. So backends are sorted into **strata**, each of one domain and one size, and a subset of k
//! takes its share of each: of a stratum with n_s of the n backends
//!
//! ```text
//! q_s = ⌊F_s + u⌋ − ⌊F_s₋₁ + u⌋,   F_s = k·(n_0 + … + n_s)/n,   u = the client's phase, in [0, 1)
//! ```
//!
//! which is k·n_s/n rounded down or up, adds up to k, and over clients of all phases is right on average: no backend gets
//! more for standing in a small domain. Domains are rounded as a whole as well, since their strata follow each other.
//!
//! Within its stratum each algorithm chooses as it does without any. Why not let it choose among all, and pass over those
//! whose domain has its share: what `ringsteady` and `rocksteadier` take is even only when they walk on without gaps. Where
//! odd backends stand in one zone and even ones in the other, one half of the circle is one zone, and the
//! backends behind the border would get five times their share.
//!
//! `deterministic`, whose slices must share one order, mixes the strata into that order instead ([`Mixture`]).
//!
//! Sizes are weights within a half octave of each other: [1, 1.5), [1.5, 2), [2, 3), [3, 4) ... Why not quantiles of the
//! weights that there are: one machine more would re-sort others, and move their connections. Why not each weight by
//! itself: where weights are measured no two are equal, and of a stratum of one backend nothing can be taken evenly.

use alloc::vec;
use alloc::vec::Vec;
use core::num::NonZeroU32;

use rand_core::Rng;
use rand_pcg::Pcg64Mcg;

use super::{Backend, order_len, seeds};

/// What tells backends apart here: domain and size.
pub(super) type Kind = (u32, u16);

/// The kind of a backend.
pub(super) fn kind(backend: &Backend) -> Kind {
    // Exponent and leading digit.
    (backend.domain, (backend.weight.as_f64().to_bits() >> (f64::MANTISSA_DIGITS - 2)) as u16)
}

/// The backends of one kind, by number.
struct Stratum {
    kind: Kind,
    members: Vec<u32>,
}

/// The strata of `backends`, by domain, then size.
fn strata(backends: &[Backend]) -> Vec<Stratum> {
    if let Some(first) = backends.first().map(kind)
        && backends.iter().all(|backend| kind(backend) == first)
    {
        // As most often: nothing to sort.
        return vec![Stratum { kind: first, members: (0..backends.len() as u32).collect() }];
    }
    let mut sorted: Vec<(Kind, u32)> = backends.iter().map(kind).zip(0..).collect();
    sorted.sort_by_key(|(kind, _)| *kind);
    sorted
        .chunk_by(|a, b| a.0 == b.0)
        .map(|alike| Stratum { kind: alike[0].0, members: alike.iter().map(|(_, number)| *number).collect() })
        .collect()
}

/// How many out of `n` each of `strata` gives to a subset of `size`, at most `n`.
fn quotas(strata: &[Stratum], size: usize, n: usize, phase: u32) -> impl Iterator<Item = usize> {
    let (mut before, mut rounded_before) = (0, 0);
    strata.iter().map(move |stratum| {
        before += stratum.members.len();
        let share = ((size as u128 * before as u128) << 32) / n as u128;
        let rounded = ((share + u128::from(phase)) >> 32) as usize;
        let quota = rounded - rounded_before;
        rounded_before = rounded;
        quota
    })
}

/// The order of a client: of each stratum its share, in the order in which `walk` gives the stratum's members, and then, in
/// the same way, as many to replace them.
///
/// `walk` gets a seed and the backends to choose from, and gives all of their positions. `phase` is u, in 2⁻³².
pub(super) fn spread<W: Iterator<Item = u32>>(
    size: NonZeroU32,
    seed: u64,
    phase: u32,
    backends: &[Backend],
    walk: impl Fn(u64, &[u32]) -> W,
) -> Vec<u32> {
    let (n, len) = (backends.len(), order_len(size, backends.len()));
    let strata = strata(backends);
    if let [stratum] = &strata[..] {
        return walk(seed, &stratum.members).take(len).collect();
    }
    let mut walks: Vec<_> = strata
        .iter()
        .map(|stratum| {
            walk(seeds::mix(seed, u64::from(stratum.kind.0) << 16 | u64::from(stratum.kind.1)), &stratum.members)
        })
        .collect();
    // Not all clients take the first replacement from the same stratum.
    let first = ((u64::from(phase) * strata.len() as u64) >> 32) as usize;
    let mut order = Vec::with_capacity(len);
    while order.len() < len {
        let upto = (order.len() + size.get() as usize).min(len);
        let mut left: Vec<usize> = quotas(&strata, upto - order.len(), n, phase).collect();
        let mut progress = true;
        while order.len() < upto {
            if !progress {
                // Strata whose members are all in the order: the others give more.
                left.fill(1);
            }
            progress = false;
            for i in (first..strata.len()).chain(0..first) {
                if left[i] > 0
                    && order.len() < upto
                    && let Some(member) = walks[i].next()
                {
                    left[i] -= 1;
                    progress = true;
                    order.push(strata[i].members[member as usize]);
                }
            }
        }
    }
    order
}

/// Backends sorted into groups, by something that they have in common.
struct Groups {
    /// By backend.
    of: Vec<u32>,
    /// How many groups there are.
    count: usize,
}

impl Groups {
    /// Puts `numbers` in an order of which any stretch has about its share of each group: the j-th of the n_g of a group goes
    /// to (j + offset)/n_g of the way. In a group the order stays.
    fn interleave(&self, numbers: &mut [u32], generator: &mut Pcg64Mcg) {
        let group = |number: u32| self.of[number as usize] as usize;
        let mut sizes = vec![0_u32; self.count];
        for number in numbers.iter() {
            sizes[group(*number)] += 1;
        }
        // By group, in 2⁻³² of the way: from one to the next, and of the first.
        let steps: Vec<u64> = sizes.iter().map(|size| (1 << 32) / u64::from(*size).max(1)).collect();
        let mut next: Vec<u64> = steps.iter().map(|step| (step * u64::from(generator.next_u32())) >> 32).collect();
        let placed = numbers.iter().map(|number| {
            let g = group(*number);
            let place = next[g];
            next[g] += steps[g];
            (place as u32, *number)
        });
        let placed = sorted_by_place(placed.collect());
        for (number, (_, placed)) in numbers.iter_mut().zip(placed) {
            *number = placed;
        }
    }
}

/// Sorts places, in 2⁻³² of the way, that are about evenly spread: each goes where it belongs, and then past a neighbour or
/// two. Half of the time that comparing takes, with thousands.
fn sorted_by_place(placed: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    let bucket = |place: u32| ((u64::from(place) * placed.len() as u64) >> 32) as usize;
    let mut starts = vec![0; placed.len() + 1];
    for (place, _) in &placed {
        starts[bucket(*place) + 1] += 1;
    }
    for i in 1..starts.len() {
        starts[i] += starts[i - 1];
    }
    let mut sorted = vec![(0, 0); placed.len()];
    for item in &placed {
        let at = &mut starts[bucket(item.0)];
        sorted[*at] = *item;
        *at += 1;
    }
    for i in 1..sorted.len() {
        let mut j = i;
        while j > 0 && sorted[j - 1] > sorted[j] {
            sorted.swap(j - 1, j);
            j -= 1;
        }
    }
    sorted
}

/// How to mix backends of all domains and sizes.
pub(super) struct Mixture {
    /// The strata, and the domains: within each domain the sizes alternate, and then the domains as a whole do.
    levels: Vec<Groups>,
}

impl Mixture {
    /// Of `backends`.
    pub(super) fn of(backends: &[Backend]) -> Self {
        let strata = strata(backends);
        let mut by_stratum = Groups { of: vec![0; backends.len()], count: strata.len() };
        let mut by_domain = Groups { of: vec![0; backends.len()], count: 0 };
        for (i, alike) in strata.iter().enumerate() {
            let begins = i == 0 || strata[i - 1].kind.0 != alike.kind.0;
            by_domain.count += usize::from(begins);
            for member in &alike.members {
                by_stratum.of[*member as usize] = i as u32;
                by_domain.of[*member as usize] = by_domain.count as u32 - 1;
            }
        }
        let mut levels = vec![by_stratum, by_domain];
        // Strata that are domains are not mixed twice, and what is all alike not at all.
        levels.dedup_by_key(|groups| groups.count);
        levels.retain(|groups| groups.count > 1);
        Self { levels }
    }

    /// Puts `numbers` of backends in random order, such that any stretch has about its share of each domain and size.
    pub(super) fn shuffle(&self, numbers: &mut [u32], generator: &mut Pcg64Mcg) {
        seeds::shuffle(numbers, generator);
        for level in &self.levels {
            level.interleave(numbers, generator);
        }
    }
}
