//! Finagle's deterministic aperture: a subset with fractions of backends.
//!
//! Both sides stand on a circle, backend b of n over [b/n, (b+1)/n). Client i of C begins at i/C
//! and covers a whole number of C-ths, the fewest that hold `minimum` backends:
//!
//! ```text
//! width = min(1, ⌈minimum/n · C⌉ / C)
//! ```
//!
//! A backend that is covered in part gets that part of the requests of a whole one. The same number
//! of clients covers each point of the circle, so load is exactly even, for any C and n.
//!
//! Why not in the core: the unit of balance is the request and not the connection, and the policy
//! must honour fractions. Each change of C or n moves every client's arc.
//!
//! Source: Finagle, `DeterministicAperture`, with its smallest aperture [`FINAGLE_MINIMUM`].

use std::num::NonZeroU32;

/// The smallest aperture in Finagle.
pub const FINAGLE_MINIMUM: NonZeroU32 = NonZeroU32::new(12).expect("12 is not zero");

/// The backends that client `index` of `clients` covers, each with its covered fraction in (0, 1].
/// The backend at the client's own point comes first.
///
/// An `index` of `clients` or more goes round the circle again.
#[must_use]
pub fn cover(index: u32, clients: NonZeroU32, backends: NonZeroU32, minimum: NonZeroU32) -> Vec<(u32, f64)> {
    // In units of 1/(C·n) of the circle, all lengths are whole.
    let (c, n) = (u64::from(clients.get()), u64::from(backends.get()));
    let circle = c * n;
    let width = ((u64::from(minimum.get()) * c).div_ceil(n) * n).min(circle);
    let start = u64::from(index) % c * n;
    let mut covered: Vec<(u32, f64)> = Vec::new();
    let mut at = start;
    while at < start + width {
        let end = ((at / c + 1) * c).min(start + width);
        let backend = (at % circle / c) as u32;
        let fraction = (end - at) as f64 / c as f64;
        match covered.first_mut() {
            // The arc is the whole circle and begins within a backend, whose start comes last.
            Some((first, part)) if *first == backend => *part += fraction,
            _ => covered.push((backend, fraction)),
        }
        at = end;
    }
    covered
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn count(n: u32) -> NonZeroU32 {
        NonZeroU32::new(n).expect("a test's count is not zero")
    }

    #[test]
    fn arc_covers_a_part_of_the_backend_that_it_ends_in() {
        // ⌈3/10 · 4⌉ = 2 quarters of the circle.
        let cover = |index| cover(index, count(4), count(10), count(3));
        assert_eq!(cover(0), [(0, 1.0), (1, 1.0), (2, 1.0), (3, 1.0), (4, 1.0)]);
        assert_eq!(cover(1), [(2, 0.5), (3, 1.0), (4, 1.0), (5, 1.0), (6, 1.0), (7, 0.5)]);
        assert_eq!(cover(3), [(7, 0.5), (8, 1.0), (9, 1.0), (0, 1.0), (1, 1.0), (2, 0.5)]);
    }

    #[test]
    fn few_backends_are_all_covered_in_whole() {
        for index in 0..3 {
            let mut covered = cover(index, count(3), count(5), FINAGLE_MINIMUM);
            covered.sort_by_key(|(backend, _)| *backend);
            assert!((0..).zip(&covered).all(|(i, (b, part))| i == *b && (part - 1.0).abs() < 1e-9), "{covered:?}");
        }
    }

    proptest! {
        #[test]
        fn backends_are_covered_evenly_and_each_client_by_its_minimum(
            (clients, backends, minimum) in (1..60_u32, 1..60_u32, 1..20_u32),
        ) {
            let mut total = vec![0.0; backends as usize];
            for index in 0..clients {
                let covered = cover(index, count(clients), count(backends), count(minimum));
                let width: f64 = covered.iter().map(|(_, part)| part).sum();
                prop_assert!(width >= f64::from(minimum.min(backends)) - 1e-9, "{covered:?}");
                let mut distinct: Vec<u32> = covered.iter().map(|(backend, _)| *backend).collect();
                distinct.sort_unstable();
                distinct.dedup();
                prop_assert_eq!(distinct.len(), covered.len(), "none twice");
                for (backend, part) in covered {
                    prop_assert!(part > 0.0 && part <= 1.0 + 1e-9);
                    total[backend as usize] += part;
                }
            }
            prop_assert!(total.iter().all(|t| (t - total[0]).abs() < 1e-9), "{total:?}");
        }
    }
}
