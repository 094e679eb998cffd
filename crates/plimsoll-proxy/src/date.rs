//! The time, as answers say it (RFC 9110, 6.6.1), formatted once a second.

use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

use http::HeaderValue;

thread_local! {
    static LAST: RefCell<(u64, HeaderValue)> = const { RefCell::new((0, HeaderValue::from_static(""))) };
}

/// The value of `Date` for an answer that has none yet.
pub(crate) fn now() -> HeaderValue {
    let now = SystemTime::now();
    let second = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    LAST.with_borrow_mut(|(at, value)| {
        if *at != second || value.is_empty() {
            let text = httpdate::fmt_http_date(now);
            *value = HeaderValue::try_from(text).expect("a date is ASCII");
            *at = second;
        }
        value.clone()
    })
}
