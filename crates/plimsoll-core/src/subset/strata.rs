//! Spread of a subset over failure domains and sizes of machines.
//!
//! A client with its whole subset in one zone has an outage when the zone has one. A client with
//! only small machines overloads them. So backends are sorted into **strata**, each of one domain
//! and one size, and a subset of k takes its share of each. Of a stratum with n_s of the n backends
//! it takes
//!
//! ```text
//! q_s = ⌊F_s + u⌋ − ⌊F_s₋₁ + u⌋,   F_s = k·(n_0 + … + n_s)/n,   u = the client's phase, in [0, 1)
//! ```
//!
//! which is k·n_s/n rounded down or up, adds up to k, and is exact on average over clients of all
//! phases. No backend gets more because its domain is small. Domains are rounded as a whole as
//! well, since their strata follow each other.
//!
//! Within its stratum each algorithm chooses as it does without any. Why not choose among all
//! backends, and skip domains that have their share? `ringsteady` and `rocksteadier` are even only
//! if they walk on without gaps. Suppose that one zone has the odd backends and another the even
//! ones. Then each half of the circle is one zone, and the backends behind the border would get
//! five times their share.
//!
//! The slices of `deterministic` must share one order, so it mixes the strata into that order
//! instead ([`Mixture`]).
//!
//! Sizes are weights within a half octave of each other: [1, 1.5), [1.5, 2), [2, 3), [3, 4) ...
//! Quantiles of the weights were rejected: one machine more would re-sort others, and move their
//! connections. Single weights were rejected: measured weights are never equal, and a stratum of
//! one backend cannot be taken evenly.

use alloc::vec;
use alloc::vec::Vec;

use super::seeds::Generator;
use super::{Backend, Sizes, seeds};
use crate::Random;

/// The kind of a backend: its domain and size.
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
        // The most frequent case: nothing to sort.
        return vec![Stratum { kind: first, members: (0..backends.len() as u32).collect() }];
    }
    let mut sorted: Vec<(Kind, u32)> = backends.iter().map(kind).zip(0..).collect();
    sorted.sort_by_key(|(kind, _)| *kind);
    sorted
        .chunk_by(|a, b| a.0 == b.0)
        .map(|alike| Stratum { kind: alike[0].0, members: alike.iter().map(|(_, number)| *number).collect() })
        .collect()
}

/// Backends that each of `strata` gives to a subset of `size` out of `n`, at most `n` in all.
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

/// The order of a client: its share of each stratum, in the order of `walk`, and then as many
/// replacements in the same way.
///
/// `walk` gets a seed and the backends to choose from, and gives all of their positions. `phase` is
/// u, in 2⁻³².
pub(super) fn spread<W: Iterator<Item = u32>>(
    sizes: Sizes,
    seed: u64,
    phase: u32,
    backends: &[Backend],
    walk: impl Fn(u64, &[u32]) -> W,
) -> Vec<u32> {
    let (n, len) = (backends.len(), sizes.order);
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
    // The phase decides which stratum gives the first replacement, so that it varies by client.
    let first = ((u64::from(phase) * strata.len() as u64) >> 32) as usize;
    let mut order = Vec::with_capacity(len);
    while order.len() < len {
        let upto = (order.len() + sizes.subset.get() as usize).min(len);
        let mut left: Vec<usize> = quotas(&strata, upto - order.len(), n, phase).collect();
        let mut progress = true;
        while order.len() < upto {
            if !progress {
                // These strata have no members left: the others give more.
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

/// Backends in groups with a common property.
struct Groups {
    /// The group of each backend.
    of: Vec<u32>,
    /// Number of groups.
    count: usize,
}

impl Groups {
    /// Reorders `numbers` so that any stretch has about its share of each group. The j-th of the
    /// n_g of a group goes to (j + offset)/n_g of the way. Within a group the order stays.
    fn interleave(&self, numbers: &mut [u32], generator: &mut Generator) {
        let group = |number: u32| self.of[number as usize] as usize;
        let mut sizes = vec![0_u32; self.count];
        for number in numbers.iter() {
            sizes[group(*number)] += 1;
        }
        // By group, in 2⁻³² of the way: the step from one member to the next, and the first
        // position.
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

/// Sorts places that are about evenly spread, in 2⁻³² of the way. Each goes to its bucket, and then
/// past a neighbour or two. With thousands, it takes half the time of a comparison sort.
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

/// A mixer of backends of all domains and sizes.
pub(super) struct Mixture {
    /// The strata, and the domains: sizes alternate within each domain, then the domains alternate
    /// as a whole.
    levels: Vec<Groups>,
}

impl Mixture {
    /// The mixture of `backends`.
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
        // If each domain is one stratum, mix once; if all are alike, not at all.
        levels.dedup_by_key(|groups| groups.count);
        levels.retain(|groups| groups.count > 1);
        Self { levels }
    }

    /// Puts `numbers` of backends in random order, such that any stretch has about its share of
    /// each domain and size.
    pub(super) fn shuffle(&self, numbers: &mut [u32], generator: &mut Generator) {
        seeds::shuffle(numbers, generator);
        for level in &self.levels {
            level.interleave(numbers, generator);
        }
    }
}
