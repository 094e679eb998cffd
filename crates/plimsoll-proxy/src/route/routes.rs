//! The routes of one listener: the destination of a request, by all that routes match.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue, Request};

use crate::classify::Claims;
use crate::config::normalise;
use crate::forwarded::Marks;
use crate::reason::Refusal;
use crate::route::destination::Destination;
use crate::route::{RequestFields, RouteQuery, RouteTable};
use plimsoll_core::Rejection;

/// The routes of a listener, and its header for customers.
pub(crate) struct Routes {
    table: RouteTable<Arc<Destination>>,
    /// `None` where senders are not trusted with it.
    customer_header: Option<HeaderName>,
    trusts_senders: bool,
}

impl Routes {
    /// `claims` are those of the listener.
    pub(crate) fn new(table: RouteTable<Arc<Destination>>, claims: &Claims) -> Self {
        let trusts_senders = claims.trusts_senders();
        Self { table, customer_header: claims.customer_header().cloned(), trusts_senders }
    }

    /// Whether senders are trusted with claims that can harm others.
    pub(crate) fn trusts_senders(&self) -> bool {
        self.trusts_senders
    }

    /// Where a request for `host` leads, that comes from a client with these names, on a connection
    /// with these marks.
    ///
    /// The path is compared in its normal form, and goes on as it was sent. So a cluster gets no
    /// path that could be read in another way, unless its route says that it may, or no route looks
    /// at paths.
    pub(crate) fn find<B>(
        &self,
        request: &Request<B>,
        host: &str,
        client_names: &[Box<str>],
        marks: &Marks,
    ) -> Result<Arc<Destination>, Refusal> {
        let customer = self.customer(request.headers())?;
        let (method, fields) =
            (request.method(), &RequestFields::new(request.headers(), request.uri().query(), Some(marks)));
        let find = |path: &str| self.table.find(&RouteQuery { host, path, method, client_names, customer, fields });
        if !self.table.asks_for_paths() {
            return find(request.uri().path()).cloned().ok_or(Refusal::of(Rejection::NoRoute));
        }
        let path = normalise(request.uri().path());
        let found = find(&path.text).ok_or(Refusal::of(Rejection::NoRoute))?;
        let is_found_by = |path: &str| find(path).is_some_and(|other| Arc::ptr_eq(other, found));
        let has_one_reading = !path.is_ambiguous && path.unresolved.as_deref().is_none_or(is_found_by);
        if has_one_reading || found.takes_ambiguous_paths() {
            Ok(Arc::clone(found))
        } else {
            Err(Refusal::of(Rejection::AmbiguousPath))
        }
    }

    /// The name of the customer; none where senders are not trusted with it.
    pub(crate) fn customer<'r>(&self, headers: &'r HeaderMap) -> Result<Option<&'r [u8]>, Refusal> {
        let Some(name) = &self.customer_header else { return Ok(None) };
        let mut names = headers.get_all(name).iter();
        let first = names.next();
        // Backends may take the last one.
        if names.next().is_some() {
            Err(Refusal::of(Rejection::Customers))
        } else {
            Ok(first.map(HeaderValue::as_bytes))
        }
    }
}
