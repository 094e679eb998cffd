//! The split of a route, on one thread: the cluster of a request, by its turn or by its user.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::COOKIE;
use http::{HeaderMap, Request, Response};
use plimsoll::client::{self, Cluster};
use plimsoll_core::canary::RequestEnd;

use crate::config::SplitKey;
use crate::route::destination::Target;
use crate::split::{Fact, LiveSplit};

/// The clusters of a split, the main version first.
pub(crate) struct Sides {
    live: Arc<LiveSplit>,
    sides: Vec<(Arc<Target>, Cluster)>,
}

impl Sides {
    /// `None` unless there is a target for each side.
    pub(crate) fn new(live: &Arc<LiveSplit>, sides: Vec<(Arc<Target>, Cluster)>) -> Option<Self> {
        (sides.len() == live.sides()).then(|| Self { live: Arc::clone(live), sides })
    }

    /// Where a request goes. `customer` and `address` are those of its client.
    ///
    /// A request without the key, such as the first one of a user without a cookie, takes turns.
    pub(crate) fn choose<B>(&self, request: &Request<B>, customer: Option<&[u8]>, address: &[u8]) -> &Arc<Target> {
        let key = match self.live.by() {
            None => None,
            Some(SplitKey::Customer) => customer,
            Some(SplitKey::Address) => Some(address),
            Some(SplitKey::Header(name)) => request.headers().get(name).map(|value| value.as_bytes()),
            Some(SplitKey::Cookie(name)) => cookie(request.headers(), name),
        };
        let clusters = |side: usize| &self.sides[side].1;
        let side = self.live.side(key, |side| clusters(side).can_serve(), |side| clusters(side).is_drained());
        &self.sides[side].0
    }

    /// Whether a path may lead here that servers read in different ways.
    pub(crate) fn takes_ambiguous_paths(&self) -> bool {
        self.sides.iter().all(|(target, _)| target.takes_ambiguous_paths())
    }
}

/// The value of a cookie; the first one of several.
fn cookie<'r>(headers: &'r HeaderMap, name: &str) -> Option<&'r [u8]> {
    let pairs = headers.get_all(COOKIE).iter().flat_map(|field| field.as_bytes().split(|byte| *byte == b';'));
    pairs.map(<[u8]>::trim_ascii).find_map(|pair| pair.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

/// The side of a split that a target is.
pub(crate) struct SideOf {
    pub(crate) live: Arc<LiveSplit>,
    pub(crate) side: usize,
}

impl SideOf {
    /// Begins a request. `deadline` is its client's own: the time until it, if there is one.
    ///
    /// Boxed, because few requests have one, and the future of every request would hold it.
    pub(crate) fn begin(&self, deadline: Option<Duration>) -> Box<Pending> {
        let Self { live, side } = self;
        Box::new(Pending { live: Some(Arc::clone(live)), side: *side, begun: Instant::now(), deadline })
    }
}

/// A request that waits for its response. Dropped before, it is a request that its client abandoned.
pub(crate) struct Pending {
    /// `None` once it has ended.
    live: Option<Arc<LiveSplit>>,
    side: usize,
    begun: Instant,
    deadline: Option<Duration>,
}

impl Pending {
    /// The fact for the comparison; `None` if its side had no part in the end.
    pub(crate) fn end(
        mut self,
        answer: &Result<Response<client::ResponseBody>, client::Error>,
        is_clients_fault: bool,
    ) -> Option<Box<Fact>> {
        let live = self.live.take()?;
        let latency = self.begun.elapsed();
        match answer {
            Ok(response) => {
                Some(Box::new(Fact::answered(&live, self.side, latency, response, self.deadline.is_some())))
            }
            Err(_) if is_clients_fault => None,
            Err(error) => Some(Box::new(Fact::ended(&live, self.side, latency, end_of(error, self.deadline)?))),
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(live) = self.live.take() {
            drop(Fact::ended(&live, self.side, self.begun.elapsed(), RequestEnd::Abandoned));
        }
    }
}

/// The end of a request with this error; `None` if its side had no part in it: the proxy ended it
/// before it asked a backend of the side, or the client was slow.
fn end_of(error: &client::Error, deadline: Option<Duration>) -> Option<RequestEnd> {
    use client::Error::{Connect, NoRoom, Preempted, RequestBody, Saturated, Throttled, Timeout, TurnedAway};
    match error {
        Saturated { .. } | Throttled { .. } | NoRoom { .. } | TurnedAway { attempts: 0, .. } => None,
        Timeout { attempts: 0, .. } | RequestBody(_) | Preempted => None,
        Connect { cause, .. } if cause.is_own_shortage() => None,
        Timeout { after, .. } if deadline.is_some_and(|deadline| *after >= deadline) => Some(RequestEnd::Abandoned),
        _ => Some(RequestEnd::Failed),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use http::HeaderValue;
    use plimsoll::client::ConnectError;
    use plimsoll_core::{Criticality, Ratio, Rejection};

    use super::*;

    #[test]
    fn cookie_is_found_among_others_by_its_whole_name() {
        let mut headers = HeaderMap::new();
        headers.append(COOKIE, HeaderValue::from_static("xsession=1; session=abc=;theme=dark"));
        headers.append(COOKIE, HeaderValue::from_static("user=7; session=other"));
        assert_eq!(cookie(&headers, "session"), Some(&b"abc="[..]));
        assert_eq!(cookie(&headers, "user"), Some(&b"7"[..]));
        assert_eq!((cookie(&headers, "ses"), cookie(&headers, "Session")), (None, None));
    }

    #[test]
    fn only_errors_of_a_side_are_its_failures() {
        let second = Duration::from_secs(1);
        let address = "192.0.2.1:80".parse().unwrap();
        let timeout = |attempts| client::Error::Timeout { after: second, address: None, attempts };
        let connect = |error: rustix::io::Errno| client::Error::Connect {
            address,
            cause: ConnectError::Io(Arc::new(io::Error::from(error))),
            attempts: 1,
            was_seen: false,
        };
        let shed = |attempts| client::Error::TurnedAway {
            reason: Rejection::Overloaded,
            waited: second,
            after: second,
            attempts,
        };
        let throttled = client::Error::Throttled { criticality: Criticality::Critical, held: Ratio::ZERO };
        for (error, expected) in [
            (client::Error::NoBackend, Some(RequestEnd::Failed)),
            (connect(rustix::io::Errno::CONNREFUSED), Some(RequestEnd::Failed)),
            (connect(rustix::io::Errno::MFILE), None),
            (client::Error::CutOff { address }, Some(RequestEnd::Failed)),
            (client::Error::Saturated { waited: second }, None),
            (client::Error::NoRoom { criticality: Criticality::Critical }, None),
            (throttled, None),
            (shed(0), None),
            (shed(1), Some(RequestEnd::Failed)),
            (client::Error::Preempted, None),
            (timeout(0), None),
            (timeout(1), Some(RequestEnd::Failed)),
        ] {
            assert_eq!(end_of(&error, None), expected, "{error}");
        }
        // The route's limit was shorter than the client's deadline, and the other way round.
        assert_eq!(end_of(&timeout(1), Some(2 * second)), Some(RequestEnd::Failed));
        assert_eq!(end_of(&timeout(1), Some(second)), Some(RequestEnd::Abandoned));
    }
}
