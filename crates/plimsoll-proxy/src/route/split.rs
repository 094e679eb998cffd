//! The split of a route, on one thread: the cluster of a request, by its turn or by its user.

use std::sync::Arc;
use std::time::Duration;

use http::header::COOKIE;
use http::{HeaderMap, Request, Response};
use plimsoll::client::{self, Cluster};

use crate::config::SplitKey;
use crate::route::destination::Target;
use crate::split::{Fact, LiveSplit};

/// The clusters of a split, the main version first.
pub(crate) struct Sides {
    live: Arc<LiveSplit>,
    sides: Vec<(Arc<Target>, Cluster)>,
}

impl Sides {
    pub(crate) fn new(live: &Arc<LiveSplit>, sides: Vec<(Arc<Target>, Cluster)>) -> Self {
        Self { live: Arc::clone(live), sides }
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
        let side = self.live.side(key, |side| self.sides[side].1.can_serve());
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
    /// What a request tells the comparison; `None` if its client broke it off.
    pub(crate) fn fact(
        &self,
        latency: Duration,
        answer: &Result<Response<client::ResponseBody>, client::Error>,
        is_clients_fault: bool,
    ) -> Option<Box<Fact>> {
        match answer {
            Ok(response) => Some(Box::new(Fact::answered(&self.live, self.side, latency, response))),
            Err(_) if is_clients_fault => None,
            Err(_) => Some(Box::new(Fact::failed(&self.live, self.side, latency))),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

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
}
