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
    let (mut count, mut sum, mut max, mut min) = (0_u32, 0.0_f64, 0.0_f64, f64::INFINITY);
    for value in values {
        count += 1;
        sum += value;
        max = max.max(value);
        min = min.min(value);
    }
    (count > 0 && max > 0.0).then(|| Spread {
        max_over_mean: max * f64::from(count) / sum,
        max_over_min: max / min,
        waste: max * f64::from(count) - sum,
    })
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
