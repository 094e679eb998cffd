//! The words for why a request was not served.
//!
//! A client sees one word: in `x-plimsoll-shed`, in `x-plimsoll-degraded`, or at the beginning of
//! the response's text. The same word finds the request in `plimsoll explain`, in the access log
//! and in the log. The library knows narrower words for some causes, such as `connect-failed` for
//! one kind of `no-backend`; they find it, too.

use plimsoll::client;
use plimsoll_core::Rejection;
use plimsoll_http1::Fault;

use crate::config::Trouble;

/// Why a request was not served. One event may have up to three names; a request is found by each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The word in the response: in `x-plimsoll-shed`, else at the beginning of its text.
    pub word: &'static str,
    /// A narrower word for the cause, such as `connect-failed` of a `no-backend`.
    pub cause: Option<&'static str>,
    /// The word in `x-plimsoll-degraded`, where the route may give something in place of the error.
    pub degraded: Option<&'static str>,
}

impl Reason {
    /// The word in the response, and the same as cause.
    pub(crate) const fn of(word: &'static str) -> Self {
        Self { word, cause: None, degraded: None }
    }

    /// That of a request without a response.
    pub(crate) fn of_error(error: &client::Error) -> Self {
        let (word, cause) = (error.answered_reason(), error.reason());
        Self { word, cause: (cause != word).then_some(cause), degraded: None }
    }

    /// The same, where the route may give something in place of this error.
    pub(crate) fn degraded_as(self, trouble: Option<Trouble>) -> Self {
        Self { degraded: trouble.map(Trouble::name), ..self }
    }

    /// All of its words.
    #[must_use]
    pub const fn words(&self) -> [Option<&'static str>; 3] {
        [Some(self.word), self.cause, self.degraded]
    }
}

/// Whether a request with this reason may have had an unreadable head. Such a request has no
/// explanation and no id: it is only counted.
#[must_use]
pub fn may_be_only_counted(word: &str) -> bool {
    word == Rejection::SlowHead.name() || Fault::ALL.iter().any(|fault| fault.name() == word)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use http::{Response, StatusCode};
    use plimsoll::client::{Cause, ConnectError};
    use plimsoll_core::rejection::Retry;
    use plimsoll_core::retry::CallerAnswer;
    use plimsoll_core::{Criticality, Ratio};
    use plimsoll_wire::headers::X_PLIMSOLL_SHED;

    use super::*;
    use crate::counts::Label as _;
    use crate::degrade::trouble;
    use crate::reason::Refusal;
    use crate::request::answer;

    /// The words in a response of the proxy: in its header, and at the beginning of its text.
    fn words(head: &Response<impl Sized>, text: &str) -> Vec<String> {
        let shed = head.headers().get(X_PLIMSOLL_SHED).map(|value| value.to_str().unwrap());
        let members = shed.into_iter().flat_map(|shed| shed.split(", "));
        let mut words: Vec<String> = members.filter_map(|it| it.strip_prefix("reason=")).map(str::to_owned).collect();
        words.extend(text.split_once(':').map(|(word, _)| word.to_owned()));
        words
    }

    /// Errors of the library, of each kind one.
    pub(crate) fn errors() -> Vec<client::Error> {
        use client::Error::{
            BadResponse, BodyIdle, Closed, Connect, CutOff, NoBackend, NoRoom, Preempted, Refused as ByBackend,
            RequestBody, Saturated, Throttled, Timeout, TurnedAway,
        };
        let address = "127.0.0.1:9".parse().unwrap();
        let (criticality, waited, attempts) = (Criticality::Critical, Duration::ZERO, 1);
        let cause = || Cause::from(Fault::CutOff);
        let refused = |why| client::Refusal {
            status: StatusCode::SERVICE_UNAVAILABLE,
            code: None,
            why,
            retry: Retry::Elsewhere,
            after: None,
            is_certain: true,
        };
        let mut errors = vec![
            NoBackend,
            Saturated { waited },
            Throttled { criticality, held: Ratio::ONE },
            NoRoom { criticality },
            Connect { address, cause: ConnectError::Timeout(waited), attempts, was_seen: false },
            Timeout { after: waited, address: None, attempts },
            BodyIdle { after: waited },
            Preempted,
            RequestBody(cause()),
            CutOff { address },
            BadResponse { address, cause: cause(), attempts },
        ];
        for caller_answer in [CallerAnswer::Answer, CallerAnswer::DoNotRetry] {
            errors.push(Closed { address, cause: cause(), attempts, caller_answer });
            for why in Rejection::SHED.iter().copied().map(Some).chain([None]) {
                errors.push(ByBackend { address, refused: refused(why), attempts, caller_answer });
            }
        }
        let after = waited;
        errors.extend(Rejection::SHED.iter().map(|&reason| TurnedAway { reason, waited, after, attempts }));
        errors
    }

    #[test]
    fn every_reason_in_a_response_is_a_word_of_its_explanation() {
        for &refusal in Refusal::ALL {
            let response = answer::for_refusal(refusal, false);
            let text = refusal.text();
            let known = Reason::of(refusal.name()).words();
            let said = words(&response, &text);
            assert!(!said.is_empty(), "{refusal:?}");
            for word in &said {
                assert!(known.contains(&Some(word)), "{refusal:?}: {word} is not in {known:?}");
            }
        }
        for error in errors() {
            let response = error.to_response(false);
            let known = Reason::of_error(&error).words();
            let said = words(&response, response.body());
            assert!(!said.is_empty(), "{error:?}");
            for word in &said {
                assert!(known.contains(&Some(word)), "{error:?}: {word} is not in {known:?}");
            }
            assert!(known.contains(&Some(error.reason())), "the library's word: {error:?}");
            let degraded = trouble::of_error(&error);
            let known = Reason::of_error(&error).degraded_as(degraded).words();
            assert!(degraded.is_none_or(|trouble| known.contains(&Some(trouble.name()))), "{error:?}");
        }
    }

    #[test]
    fn a_head_that_cannot_be_read_has_a_word_that_is_only_counted() {
        assert!(may_be_only_counted("slow-head") && may_be_only_counted(Fault::Host.name()));
        assert!(!may_be_only_counted("overloaded") && !may_be_only_counted("no-route"));
    }
}
