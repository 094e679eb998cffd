//! Checks of a method: its length, and whether it is a registered one in another case.
//!
//! Methods are case-sensitive (RFC 9110, 9.1), so `post` is not `POST` to a rule. Some servers execute it as `POST` all the same. A proxy
//! that passes it on lets a client avoid every rule on `POST`. Such a method is refused; one that resembles no registered method is
//! passed on as any other.

use http::Method;

/// The longest accepted method, in bytes. The longest registered one has 17 (`UPDATEREDIRECTREF`,
/// RFC 4437), and methods are stored whole.
pub const MAX_METHOD: usize = 64;

/// The methods of IANA's registry that `http` has no constant for.
const REGISTERED: [&str; 32] = [
    "ACL",
    "BASELINE-CONTROL",
    "BIND",
    "CHECKIN",
    "CHECKOUT",
    "COPY",
    "LABEL",
    "LINK",
    "LOCK",
    "MERGE",
    "MKACTIVITY",
    "MKCALENDAR",
    "MKCOL",
    "MKREDIRECTREF",
    "MKWORKSPACE",
    "MOVE",
    "ORDERPATCH",
    "PRI",
    "PROPFIND",
    "PROPPATCH",
    "QUERY",
    "REBIND",
    "REPORT",
    "SEARCH",
    "UNBIND",
    "UNCHECKOUT",
    "UNLINK",
    "UNLOCK",
    "UPDATE",
    "UPDATEREDIRECTREF",
    "VERSION-CONTROL",
    "PURGE",
];

/// The methods that `http` has a constant for.
const COMMON: [Method; 9] = [
    Method::GET,
    Method::POST,
    Method::PUT,
    Method::DELETE,
    Method::HEAD,
    Method::OPTIONS,
    Method::CONNECT,
    Method::PATCH,
    Method::TRACE,
];

/// Whether `method` is a known one with letters of another case: `post`, `Get`, `propFIND`.
#[must_use]
pub fn is_miscased(method: &Method) -> bool {
    let name = method.as_str();
    // Known methods have no small letter.
    name.bytes().any(|byte| byte.is_ascii_lowercase())
        && COMMON.iter().map(Method::as_str).chain(REGISTERED).any(|known| known.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_method_is_miscased_when_any_letter_is_small() {
        let check = |name: &str| is_miscased(&Method::from_bytes(name.as_bytes()).unwrap());
        for known in COMMON.iter().map(Method::as_str).chain(REGISTERED) {
            assert!(!check(known), "{known}");
            assert!(check(&known.to_ascii_lowercase()), "{known}");
            let (first, rest) = known.split_at(1);
            assert!(check(&(first.to_ascii_lowercase() + rest)), "{known}");
        }
        for other in ["BREW", "brew", "gett", "ge", "x-get", "M-SEARCH", "m-search", "!#$%&'*+-.^_`|~09"] {
            assert!(!check(other), "{other}");
        }
    }
}
