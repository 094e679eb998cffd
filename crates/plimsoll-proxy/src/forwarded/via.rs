//! Whether a request goes in circles, by `Via` (RFC 9110, 7.6.3).
//!
//! A backend that leads back to the proxy makes a loop: one request of a client becomes requests
//! without end, each with a connection and a slot. Each pass adds the proxy's name to `Via`, so the
//! number of passes is known.
//!
//! One earlier pass is no loop yet. All tiers of a fleet, an edge and two sidecars say, have the
//! same name unless told otherwise. A backend may pass a request on to another host of the same
//! proxy. So [`MAX_PASSES`] are allowed, and a loop costs no more than that. A name that is unique
//! to the process would find a loop sooner, and take a legitimate second pass for one.
//!
//! Weak where a proxy in the loop drops `Via`, or this one sends none (`via = "off"`).

use http::header::{HeaderMap, VIA};

/// Passes through proxies of one name that a request may have behind it. Chains of proxies have two
/// or three members.
pub(crate) const MAX_PASSES: usize = 8;

/// Whether a request with these fields has passed proxies called `name` too often.
pub(crate) fn is_loop(headers: &HeaderMap, name: &str) -> bool {
    let elements = headers.get_all(VIA).iter().flat_map(|list| list.as_bytes().split(|byte| *byte == b','));
    let is_own = |element: &[u8]| {
        let mut words = element.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
        words.nth(1).is_some_and(|by| by.eq_ignore_ascii_case(name.as_bytes()))
    };
    elements.filter(|element| is_own(element)).nth(MAX_PASSES).is_some()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(lists: &[String]) -> HeaderMap {
        lists.iter().map(|list| (VIA, HeaderValue::from_str(list).unwrap())).collect()
    }

    #[test]
    fn request_is_in_a_loop_when_it_has_passed_one_name_too_often() {
        let lines = |count: usize, element: &str| headers(&vec![element.to_owned(); count]);
        for element in ["1.1 edge", "2.0 EDGE (comment)", " HTTP/1.1\tedge"] {
            assert!(!is_loop(&lines(MAX_PASSES, element), "edge"), "{element}");
            assert!(is_loop(&lines(MAX_PASSES + 1, element), "edge"), "{element}");
        }
        assert!(is_loop(&headers(&[["1.1 edge"; MAX_PASSES + 1].join(",")]), "edge"), "one line");
        for other in ["1.1 edge-2", "1.1 other (edge)", "edge", "1.1", "", "1.1 other edge"] {
            assert!(!is_loop(&lines(50, other), "edge"), "{other}");
        }
    }
}
