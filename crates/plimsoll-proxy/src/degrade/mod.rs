//! A route's answer in place of an error: an earlier response of a backend, else one of the
//! configuration.
//!
//! ```text
//! request ──▶ Fallback ─────────────────────────────▶ in place of an error: Store, else FixedAnswer
//!                 └─▶ backend ──▶ 200 ──▶ keep ──▶ BodyCopy, as its body passes ──▶ Store
//! ```
//!
//! A cache would answer instead of backends; this one answers only when they do not
//! (`stale-if-error` of RFC 5861, with an age that the operator sets). So no request is served
//! faster by it, and none is served stale while a backend is there.
//!
//! The danger is to give one client a response that was meant for another. RFC 9111 has the rules
//! for shared caches, and `keep` is strict where it leaves a choice. But many services declare
//! nothing of all this, because no cache was ever in front of them. So a response to one customer,
//! or to a client with a certificate, is given to the same one only. Fields that identify users by
//! other names have to be listed (`vary`).
//!
//! gRPC calls never get any of it: a message that is no answer to them would be taken for one.

mod counts;
mod keep;
mod store;
mod tee;
pub(crate) mod trouble;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AGE, AUTHORIZATION, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use plimsoll_wire::headers::{X_AMZ_RETRY_AFTER, X_PLIMSOLL_DEGRADED, X_PLIMSOLL_SHED};

pub(crate) use self::counts::{Kind, Substitute};
pub use self::store::StaleView;
pub(crate) use self::store::Store;
use self::store::{Fields, Owner};
pub(crate) use self::tee::{BodyCopy, Progress};
use crate::config::{self, Config, Trouble};
use crate::fixed::FixedAnswer;

/// A route's answers in place of errors.
#[derive(Debug)]
pub(crate) struct Degrade {
    on: Box<[Trouble]>,
    stale: Option<Stale>,
    fixed: Option<FixedAnswer>,
}

/// How its backends' answers are kept.
#[derive(Debug)]
struct Stale {
    /// The place that the route asks: its cluster, and the host.
    asked: Box<str>,
    max_stale: Duration,
    vary: Box<[HeaderName]>,
    /// The fields that may name the customer.
    customer_fields: Box<[HeaderName]>,
    store: Arc<Store>,
}

/// The sender of a request, as far as the connection knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker<'a> {
    pub(crate) is_tls: bool,
    /// As the request was routed by it.
    pub(crate) host: &'a str,
    pub(crate) client_names: &'a [Box<str>],
    /// Its customer.
    pub(crate) customer: Option<&'a [u8]>,
}

/// The answers for one request in case of an error.
pub(crate) struct Fallback<'r> {
    degrade: &'r Degrade,
    is_read: bool,
    stale: Option<Box<ForStale<'r>>>,
}

/// The key of stored responses to a request.
struct ForStale<'r> {
    stale: &'r Stale,
    owner: Owner,
    /// The request's fields but those of its connection; `None` for one that may neither be given
    /// such an answer nor leave one.
    fields: Option<HeaderMap>,
}

impl Degrade {
    /// The answers of `route`, if it has any, before this cluster, at a listener where these fields may
    /// name the customer.
    pub(crate) fn new(
        config: &Config,
        route: &config::Route,
        cluster: &str,
        customer_fields: Box<[HeaderName]>,
        store: &Arc<Store>,
    ) -> Option<Self> {
        let degraded = route.degraded.as_ref()?;
        let host = route.host_rewrite.as_ref().map_or("", |host| host.as_str());
        let stale = degraded.max_stale.map(|max_stale| Stale {
            asked: asked(route, cluster, host).into(),
            max_stale,
            vary: degraded.vary.as_slice().into(),
            customer_fields,
            store: Arc::clone(store),
        });
        Some(Self {
            on: degraded.on.as_slice().into(),
            stale,
            fixed: degraded.answer.as_ref().map(|answer| FixedAnswer::new(config, answer)),
        })
    }

    /// The answers for a request that is no gRPC call and asks for no upgrade. Fields of its
    /// connection were removed: a response is stored by the request that its backend saw, or one
    /// client could store it for another.
    pub(crate) fn fallback<B>(&self, request: &Request<B>, has_body: bool, asker: Asker<'_>) -> Fallback<'_> {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let stale = self.stale.as_ref().map(|stale| Box::new(stale.of(request, is_read && !has_body, asker)));
        Fallback { degrade: self, is_read, stale }
    }
}

/// The place that `route` asks, and its changes to requests: two routes may ask for different
/// things with the same path of a client.
fn asked(route: &config::Route, cluster: &str, host: &str) -> String {
    let mut asked = format!("{cluster} {host}");
    if let Some(path) = &route.path_rewrite {
        asked.push_str(&format!(" {path}"));
    }
    if let Some(prefix) = &route.prefix_rewrite {
        asked.push_str(&format!(" {} {prefix}", route.path_prefix));
    }
    if let Some(rules) = &route.request_headers {
        asked.push_str(&format!(" {rules:?}"));
    }
    asked
}

impl Stale {
    fn of<B>(&self, request: &Request<B>, is_read: bool, asker: Asker<'_>) -> ForStale<'_> {
        let headers = request.headers();
        let owner = Owner::new(&self.asked, asker, request.uri(), headers, &self.customer_fields);
        let is_shared = is_read && !headers.contains_key(AUTHORIZATION);
        ForStale { stale: self, owner, fields: is_shared.then(|| headers.clone()) }
    }
}

impl Fallback<'_> {
    /// The answer in place of `error`, which is the proxy's own or a backend's; `None` if there is
    /// none.
    pub(crate) fn instead<B>(&self, trouble: Trouble, error: &Response<B>) -> Option<(Response<Bytes>, Kind)> {
        if !self.degrade.on.contains(&trouble) {
            return None;
        }
        let stale = self.stale.as_ref().and_then(|stale| stale.find()).map(|answer| (answer, Kind::Stale));
        let fixed = || self.fixed(error.status(), error.headers()).map(|answer| (answer, Kind::Static));
        let (mut answer, kind) = stale.or_else(fixed)?;
        let why = format!("{}; reason={}", kind.name(), trouble.name());
        let why = HeaderValue::try_from(why).expect("these names are ASCII");
        answer.headers_mut().insert(X_PLIMSOLL_DEGRADED, why);
        Some((answer, kind))
    }

    /// The configured answer; none where it would tell of a change that was not made.
    fn fixed(&self, otherwise: StatusCode, error: &HeaderMap) -> Option<Response<Bytes>> {
        let fixed = self.degrade.fixed.as_ref()?;
        if fixed.status().is_some_and(|status| status.is_success()) && !self.is_read {
            return None;
        }
        let mut answer = fixed.in_place_of(otherwise);
        if !answer.status().is_success() {
            // Clients that act by these fields still can.
            for name in [X_PLIMSOLL_SHED, RETRY_AFTER, X_AMZ_RETRY_AFTER] {
                if let (Some(value), false) = (error.get(&name), answer.headers().contains_key(&name)) {
                    answer.headers_mut().insert(name, value.clone());
                }
            }
        }
        Some(answer)
    }

    /// Sees a backend's response that goes to the client as it is. Returns the copy that its body
    /// fills, if it is to be stored.
    pub(crate) fn see<B>(&self, may_be_kept: bool, answer: &Response<B>, length: Option<u64>) -> Option<Box<BodyCopy>> {
        let stale = self.stale.as_ref()?;
        if !self.is_read {
            // The request may change the stored response (RFC 9111, 4.4).
            if answer.status().is_success() || answer.status().is_redirection() {
                stale.stale.store.forget(&stale.owner);
            }
            return None;
        }
        if may_be_kept { stale.keep(answer, length) } else { None }
    }
}

impl ForStale<'_> {
    fn find(&self) -> Option<Response<Bytes>> {
        let (kept, age) = self.stale.store.find(&self.owner, self.fields.as_ref()?)?;
        let mut answer = Response::new(kept.body.clone());
        *answer.headers_mut() = kept.headers.clone();
        answer.headers_mut().insert(AGE, age.as_secs().into());
        Some(answer)
    }

    fn keep<B>(&self, answer: &Response<B>, length: Option<u64>) -> Option<Box<BodyCopy>> {
        let request = self.fields.as_ref()?;
        let store = &self.stale.store;
        let life = keep::life(request, answer.status(), answer.headers(), self.stale.max_stale)?;
        let fields = Fields::new(request, self.stale.vary.iter().cloned().chain(keep::vary(answer.headers())));
        // Nobody is the wiser for one that is a moment younger, and a copy has its price.
        if store.is_recent(&self.owner, request) {
            return None;
        }
        BodyCopy::begin(store, &self.owner, fields, answer.headers(), life, length).map(Box::new)
    }
}
