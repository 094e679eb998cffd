//! What a route gives in place of an error: an answer that a backend gave a while ago, else one that stands in the
//! configuration.
//!
//! ```text
//! request ──▶ Fallback ─────────────────────────────▶ in place of an error: Store, else FixedAnswer
//!                 └─▶ backend ──▶ 200 ──▶ keep ──▶ BodyCopy, as its body passes ──▶ Store
//! ```
//!
//! A cache would answer instead of backends; this one answers only when they do not (`stale-if-error` of RFC 5861, with an age that
//! the operator sets). So no request is served faster by it, and none is served stale while a backend is there.
//!
//! What may go wrong is to give one client what was meant for another. RFC 9111 has the rules for shared caches, and `keep` is
//! strict where it leaves a choice; but many a service says nothing of all this, as no cache ever stood in front of it. So what was
//! given to one customer, or to a client with a certificate, is given to the same again and to nobody else, and fields that
//! tell users apart by names of their own have to be listed (`vary`).
//!
//! gRPC calls never get any of it: a message that is no answer to them would be taken for one.

mod counts;
mod keep;
mod store;
mod tee;
mod trouble;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AGE, AUTHORIZATION, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use plimsoll_wire::headers::{X_PLIMSOLL_DEGRADED, X_PLIMSOLL_SHED};

pub(crate) use self::counts::{Kind, Substitute};
pub use self::store::StaleView;
pub(crate) use self::store::Store;
use self::store::{Fields, Owner};
pub(crate) use self::tee::{BodyCopy, Progress};
use crate::config::{self, Config, Trouble};
use crate::fixed::FixedAnswer;

/// What a route gives in place of errors.
#[derive(Debug)]
pub(crate) struct Degrade {
    on: Box<[Trouble]>,
    stale: Option<Stale>,
    fixed: Option<FixedAnswer>,
}

/// How its backends' answers are kept.
#[derive(Debug)]
struct Stale {
    /// Whom the route asks: its cluster, and by which host.
    asked: Box<str>,
    max_stale: Duration,
    vary: Box<[HeaderName]>,
    customer_header: Option<HeaderName>,
    store: Arc<Store>,
}

/// Who asks for what, as far as the connection knows it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker<'a> {
    pub(crate) is_tls: bool,
    /// As the request was routed by it.
    pub(crate) host: &'a str,
    pub(crate) client_names: &'a [Box<str>],
}

/// What is at hand for one request, should it come to an error.
pub(crate) struct Fallback<'r> {
    degrade: &'r Degrade,
    is_read: bool,
    stale: Option<Box<ForStale<'r>>>,
}

/// By what an answer to the request is found, and kept.
struct ForStale<'r> {
    stale: &'r Stale,
    owner: Owner,
    /// The request's fields but those of its connection; `None` for one that may neither be given such an answer nor leave one.
    fields: Option<HeaderMap>,
}

impl Degrade {
    /// That of `route`, if it gives anything, at a listener that is told of customers by this header.
    pub(crate) fn new(
        config: &Config,
        route: &config::Route,
        customer_header: Option<&HeaderName>,
        store: &Arc<Store>,
    ) -> Option<Self> {
        let degraded = route.degraded.as_ref()?;
        let host = route.host_rewrite.as_ref().map_or("", |host| host.0.as_str());
        let stale = degraded.max_stale.map(|max_stale| Stale {
            asked: format!("{} {host}", route.cluster.as_deref().unwrap_or_default()).into(),
            max_stale,
            vary: degraded.vary.iter().map(|name| name.0.clone()).collect(),
            customer_header: customer_header.cloned(),
            store: Arc::clone(store),
        });
        Some(Self {
            on: degraded.on.iter().map(|trouble| trouble.0).collect(),
            stale,
            fixed: degraded.answer.as_ref().map(|answer| FixedAnswer::new(config, answer)),
        })
    }

    /// What is at hand for a request that is no gRPC call and asks for no upgrade. What concerns only the connection that it came
    /// on was taken off: an answer is kept by what its backend saw, or one could keep it for somebody else.
    pub(crate) fn fallback<B>(&self, request: &Request<B>, has_body: bool, asker: Asker<'_>) -> Fallback<'_> {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        let stale = self.stale.as_ref().map(|stale| Box::new(stale.of(request, is_read && !has_body, asker)));
        Fallback { degrade: self, is_read, stale }
    }
}

impl Stale {
    fn of<B>(&self, request: &Request<B>, is_read: bool, asker: Asker<'_>) -> ForStale<'_> {
        let headers = request.headers();
        let customer = self.customer_header.as_ref().and_then(|name| headers.get(name));
        let owner = Owner::new(&self.asked, asker, request.uri(), customer.map(HeaderValue::as_bytes));
        let is_shared = is_read && !headers.contains_key(AUTHORIZATION);
        ForStale { stale: self, owner, fields: is_shared.then(|| headers.clone()) }
    }
}

impl Fallback<'_> {
    /// The answer in place of `error`, which is one of the proxy's own or a backend's and tells of `trouble`; `None` if there is
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
            // Who acts by them is to do so still.
            for name in [X_PLIMSOLL_SHED, RETRY_AFTER] {
                if let (Some(value), false) = (error.get(&name), answer.headers().contains_key(&name)) {
                    answer.headers_mut().insert(name, value.clone());
                }
            }
        }
        Some(answer)
    }

    /// Sees a backend's answer that goes to the client as it is, and hands out what its body has to be shown to, if it is to be
    /// kept.
    pub(crate) fn see<B>(&self, may_be_kept: bool, answer: &Response<B>, length: Option<u64>) -> Option<Box<BodyCopy>> {
        let stale = self.stale.as_ref()?;
        if !self.is_read {
            // What was kept may be changed by it (RFC 9111, 4.4).
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
