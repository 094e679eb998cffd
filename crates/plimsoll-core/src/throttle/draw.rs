//! One random number per request, shared by all histories that decide on it.

use crate::{Random, rng};

/// A number in [0, 1), drawn at its first use and fixed from then on. With one number for all
/// histories, a request passes with the smallest of their shares. With one number each, it would
/// pass with the product.
pub(super) struct Draw<'a, R> {
    rng: &'a mut R,
    drawn: Option<f64>,
}

impl<'a, R: Random> Draw<'a, R> {
    pub(super) fn new(rng: &'a mut R) -> Self {
        Self { rng, drawn: None }
    }

    pub(super) fn unit(&mut self) -> f64 {
        *self.drawn.get_or_insert_with(|| rng::unit(self.rng))
    }
}
