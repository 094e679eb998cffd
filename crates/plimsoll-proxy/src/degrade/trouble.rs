//! The class of the error in a response or failure, for the choice of a degraded answer.

use http::{HeaderMap, StatusCode};
use plimsoll::client;
use plimsoll_wire::shed::Shed;

use crate::config::Trouble;

/// The class of a request without a response; `None` if the error is the client's own.
pub(crate) fn of_error(error: &client::Error) -> Option<Trouble> {
    match error {
        client::Error::RequestBody(_) | client::Error::Preempted => None,
        error => error.shed_reason().map_or(Some(Trouble::Failed), |reason| reason.row().degraded),
    }
}

/// The class of a backend's answer; `None` for a proper answer.
pub(crate) fn of_answer(status: StatusCode, headers: &HeaderMap) -> Option<Trouble> {
    const ERRORS: [StatusCode; 4] = [
        StatusCode::INTERNAL_SERVER_ERROR,
        StatusCode::BAD_GATEWAY,
        StatusCode::SERVICE_UNAVAILABLE,
        StatusCode::GATEWAY_TIMEOUT,
    ];
    match Shed::read(status, headers) {
        Some(Shed { reason: Some(reason), .. }) => reason.row().degraded,
        Some(_) if status == StatusCode::TOO_MANY_REQUESTS => Some(Trouble::Quota),
        Some(_) if status != StatusCode::BAD_GATEWAY => Some(Trouble::Overloaded),
        // With a 502 it may only say that a retry is useless.
        _ => ERRORS.contains(&status).then_some(Trouble::ServerError),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_that_says_why_is_believed_and_other_errors_are_its_own() {
        let of = |status: u16, pairs: &[(&'static str, &'static str)]| {
            let headers = pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
            of_answer(StatusCode::from_u16(status).unwrap(), &headers)
        };
        for (status, pairs, expected) in [
            (200, vec![], None),
            (404, vec![], None),
            (501, vec![], None),
            (429, vec![], None),
            (500, vec![], Some(Trouble::ServerError)),
            (503, vec![], Some(Trouble::ServerError)),
            (502, vec![("x-plimsoll-shed", "retry=never")], Some(Trouble::ServerError)),
            (503, vec![("retry-after", "1")], Some(Trouble::Overloaded)),
            (429, vec![("retry-after", "1")], Some(Trouble::Quota)),
            (503, vec![("x-plimsoll-shed", "reason=overloaded, retry=elsewhere")], Some(Trouble::Overloaded)),
            (503, vec![("x-plimsoll-shed", "reason=lame-duck, retry=elsewhere")], Some(Trouble::NoBackend)),
            (504, vec![("x-plimsoll-shed", "reason=deadline, retry=never")], Some(Trouble::Deadline)),
        ] {
            assert_eq!(of(status, &pairs), expected, "{status} {pairs:?}");
        }
    }

    #[test]
    fn each_has_a_word_and_a_place_of_its_own() {
        for (place, trouble) in Trouble::ALL.into_iter().enumerate() {
            assert_eq!(trouble as usize, place);
        }
        let names: std::collections::BTreeSet<_> = Trouble::ALL.map(Trouble::name).into();
        assert_eq!(names.len(), Trouble::ALL.len());
    }
}
