//! The lower median: a centre that one wild value among many does not move, as it would a mean.
//!
//! Of an even number the lower of the two in the middle, so that of two values the greater is not believed on its own word.

/// Reorders `values`. `None` without any.
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
