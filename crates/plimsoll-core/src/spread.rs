//! Evenness of a load over its backends.
//!
//! With CPU\[0\] the most loaded backend, the **waste** is Σ(CPU\[0\] − CPU\[i\]): the unused
//! capacity of the others when the first is full. It is the measure of the SRE book (ch. 20, figure
//! 20-2), beside max/mean and max/min, which do not depend on the unit.

/// The spread of one quantity over the backends of a cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Largest over mean; 1 = perfectly even.
    pub max_over_mean: f64,
    /// Largest over smallest; infinite if one backend has nothing.
    pub max_over_min: f64,
    /// Sum of the differences to the largest, in the unit of the values.
    pub waste: f64,
}

/// The spread of `values`, each finite and at least zero; `None` if there are none or all are zero.
pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
    let mut tally = Tally::default();
    values.into_iter().for_each(|value| tally.add(value));
    tally.spread()
}

/// The sums behind a spread, for values that come one after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tally {
    count: u32,
    sum: f64,
    max: f64,
    min: f64,
}

impl Default for Tally {
    fn default() -> Self {
        Self { count: 0, sum: 0.0, max: 0.0, min: f64::INFINITY }
    }
}

impl Tally {
    /// Adds a value, finite and at least zero.
    pub fn add(&mut self, value: f64) {
        self.count += 1;
        self.sum += value;
        self.max = self.max.max(value);
        self.min = self.min.min(value);
    }

    /// The spread so far; `None` without values, or if all are zero.
    #[must_use]
    pub fn spread(&self) -> Option<Spread> {
        let Self { count, sum, max, min } = *self;
        (count > 0 && max > 0.0).then(|| Spread {
            max_over_mean: max * f64::from(count) / sum,
            max_over_min: max / min,
            waste: max * f64::from(count) - sum,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_load_wastes_nothing() {
        assert_eq!(of([2.0; 4]), Some(Spread { max_over_mean: 1.0, max_over_min: 1.0, waste: 0.0 }));
    }

    #[test]
    fn most_loaded_backend_sets_the_measure() {
        let spread = of([4.0, 2.0, 2.0, 0.0]).unwrap();
        assert_eq!((spread.max_over_mean, spread.waste), (2.0, 8.0));
        assert!(spread.max_over_min.is_infinite());
    }

    #[test]
    fn spread_is_none_without_load() {
        assert_eq!(of([]), None);
        assert_eq!(of([0.0, 0.0]), None);
    }
}
