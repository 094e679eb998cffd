//! Finagle's deterministic aperture: a subset with fractions, for comparison and worked examples.
//!
//! Both sides stand on a circle, backend b of n over [b/n, (b+1)/n). Client i of C begins at i/C and covers a whole number
//! of C-ths, the fewest that hold `minimum` backends:
//!
//! ```text
//! width = min(1, ⌈minimum/n · C⌉ / C)
//! ```
//!
//! A backend that is covered in part gets that part of a whole one's requests. Each point of the circle is covered by the
//! same number of clients, so load is exactly even, for any C and n. Why it is not one of the algorithms: the unit of
//! balance is the request and not the connection, it needs a policy that honours fractions, and when C or n changes every
//! client's arc does.
//!
//! Source: Finagle, `DeterministicAperture`, whose least aperture is [`FINAGLE_MINIMUM`].

use alloc::vec::Vec;
use core::num::NonZeroU32;

/// The least aperture that Finagle uses.
pub const FINAGLE_MINIMUM: NonZeroU32 = NonZeroU32::new(12).expect("12 is not zero");

/// The backends out of `backends` that client `index` of `clients` covers, beginning with the one at its own point, and
/// which fraction of each, in (0, 1].
///
/// An `index` of `clients` or more is taken round the circle again.
#[must_use]
pub fn cover(index: u32, clients: NonZeroU32, backends: NonZeroU32, minimum: NonZeroU32) -> Vec<(u32, f64)> {
    // In units of 1/(C·n) of the circle everything is whole.
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
            // All of the circle, begun in the middle of a backend: its beginning comes last.
            Some((first, part)) if *first == backend => *part += fraction,
            _ => covered.push((backend, fraction)),
        }
        at = end;
    }
    covered
}
