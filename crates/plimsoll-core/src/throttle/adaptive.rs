//! The adaptive throttle of SRE ch. 21: how likely a client is to turn its own request away.
//!
//! ```text
//! p = max(0, (requests − K · accepts) ÷ (requests + 1))        (21-1)
//! ```
//!
//! over the last two minutes. As long as the backend accepts at least one in K, nothing is turned away here; below that, what
//! the client sends tends to K times what the backend accepts. So K − 1 of each accepted request's worth of rejections is
//! what the backend pays to have its clients know how it is; the book takes K = 2.

/// The K of SRE ch. 21.
pub const DEFAULT_K: f64 = 2.0;

/// The probability, in [0, 1), with which a client turns a request away, after `requests` of its application of which the
/// backend accepted `accepts`; `k` is the multiple of the latter that it still lets through, at least 1.
#[must_use]
pub fn rejection_probability(requests: f64, accepts: f64, k: f64) -> f64 {
    ((requests - k * accepts) / (requests + 1.0)).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_turned_away_while_one_in_k_is_accepted() {
        assert_eq!(rejection_probability(0.0, 0.0, 2.0), 0.0);
        assert_eq!(rejection_probability(100.0, 100.0, 2.0), 0.0);
        assert_eq!(rejection_probability(100.0, 50.0, 2.0), 0.0);
        assert_eq!(rejection_probability(99.0, 29.0, 2.0), 0.41);
        assert_eq!(rejection_probability(99.0, 29.0, 1.0), 0.7);
        assert_eq!(rejection_probability(99.0, 0.0, 2.0), 0.99);
    }

    #[test]
    fn what_is_sent_tends_to_k_times_what_is_accepted() {
        // A backend that accepts 100 a second of 1,000: what goes through is 1000 · (1 − p), and of that 100 are accepted.
        let sent = 1000.0 * (1.0 - rejection_probability(120_000.0, 12_000.0, 2.0));
        assert!((sent - 200.0).abs() < 0.01, "{sent}");
    }
}
