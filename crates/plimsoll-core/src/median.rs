//! The lower median: a centre that, unlike a mean, one wild value among many does not move.
//!
//! Of an even number it is the lower of the two in the middle, so that of two values the greater is
//! not believed alone.

/// The lower median of `values`, which it reorders; `None` without any.
pub(crate) fn lower(values: &mut [f64]) -> Option<f64> {
    let middle = values.len().checked_sub(1)? / 2;
    let (_, median, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    Some(*median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wild_value_is_not_the_median() {
        assert_eq!(lower(&mut []), None);
        assert_eq!(lower(&mut [3.0]), Some(3.0));
        assert_eq!(lower(&mut [f64::INFINITY, 3.0]), Some(3.0));
        assert_eq!(lower(&mut [1e300, 3.0, 2.0]), Some(3.0));
        assert_eq!(lower(&mut [4.0, 1.0, 3.0, 2.0]), Some(2.0));
    }
}
