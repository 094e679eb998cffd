//! The routes of one listener: the destination of a request, by all that routes match.

use std::sync::Arc;

use http::Request;
use plimsoll_core::Rejection;

use crate::classify::Claims;
use crate::config::{CustomerSource, NormalPath, normalise};
use crate::reason::Refusal;
use crate::route::customer::{self, Customer, CustomerFacts};
use crate::route::destination::Destination;
use crate::route::{RequestFields, RouteQuery, RouteTable};

/// The routes of a listener, and the facts that name customers.
pub(crate) struct Routes {
    table: RouteTable<Arc<Destination>>,
    /// None where customers are not known.
    customer: Arc<[CustomerSource]>,
    trusts_senders: bool,
}

impl Routes {
    /// `claims` are those of the listener.
    pub(crate) fn new(table: RouteTable<Arc<Destination>>, claims: &Claims) -> Self {
        Self { table, customer: Arc::clone(claims.customer()), trusts_senders: claims.trusts_senders() }
    }

    /// Whether senders are trusted with claims that can harm others.
    pub(crate) fn trusts_senders(&self) -> bool {
        self.trusts_senders
    }

    /// Where a request with these facts leads, and its customer, which is known of some refused
    /// requests, too.
    ///
    /// The path is compared in its normal form, and goes on as it was sent. So a cluster gets no
    /// path that could be read in another way, unless its route says that it may, or neither a route
    /// nor a customer depends on paths.
    pub(crate) fn find<B>(
        &self,
        request: &Request<B>,
        facts: &CustomerFacts<'_>,
    ) -> (Result<Arc<Destination>, Refusal>, Option<Customer>) {
        let sent = request.uri().path();
        let path = (self.table.asks_for_paths() || self.is_customer_of_path()).then(|| normalise(sent));
        let text = path.as_ref().map_or(sent, |path| &path.text);
        match customer::find(&self.customer, facts, text) {
            Ok(customer) => (self.find_for(request, facts, customer.as_ref(), path.as_ref()).cloned(), customer),
            Err(refusal) => (Err(refusal), None),
        }
    }

    /// Where a request of this customer leads. `path` is `None` where nothing depends on it.
    fn find_for<B>(
        &self,
        request: &Request<B>,
        facts: &CustomerFacts<'_>,
        customer: Option<&Customer>,
        path: Option<&NormalPath<'_>>,
    ) -> Result<&Arc<Destination>, Refusal> {
        let fields = &RequestFields::new(facts.headers, request.uri().query(), Some(facts.marks));
        let find_at = |path: &str| self.find_at(request, facts, fields, customer, path);
        let no_route = Refusal::of(Rejection::NoRoute);
        let Some(path) = path else { return find_at(request.uri().path()).ok_or(no_route) };
        let found = find_at(&path.text).ok_or(no_route)?;
        let is_found_by = |other: &str| {
            find_at(other).is_some_and(|other| Arc::ptr_eq(other, found)) && self.has_one_customer(path, other)
        };
        let has_one_reading = !path.is_ambiguous && path.unresolved.as_deref().is_none_or(is_found_by);
        if has_one_reading || found.takes_ambiguous_paths() {
            Ok(found)
        } else {
            Err(Refusal::of(Rejection::AmbiguousPath))
        }
    }

    fn find_at<B>(
        &self,
        request: &Request<B>,
        facts: &CustomerFacts<'_>,
        fields: &RequestFields<'_>,
        customer: Option<&Customer>,
        path: &str,
    ) -> Option<&Arc<Destination>> {
        self.table.find(&RouteQuery {
            host: facts.host,
            path,
            method: request.method(),
            client_names: facts.peer.client_names(),
            customer: customer.map(|customer| &**customer),
            fields,
        })
    }

    /// The customer of a request; none where customers are not known.
    pub(crate) fn customer<B>(
        &self,
        request: &Request<B>,
        facts: &CustomerFacts<'_>,
    ) -> Result<Option<Customer>, Refusal> {
        let sent = request.uri().path();
        if self.is_customer_of_path() {
            customer::find(&self.customer, facts, &normalise(sent).text)
        } else {
            customer::find(&self.customer, facts, sent)
        }
    }

    fn is_customer_of_path(&self) -> bool {
        self.customer.iter().any(|source| matches!(source, CustomerSource::PathSegment(_)))
    }

    /// Whether another reading of the path names the same customers.
    fn has_one_customer(&self, path: &NormalPath<'_>, other: &str) -> bool {
        self.customer.iter().all(|source| match source {
            CustomerSource::PathSegment(number) => {
                customer::segment(&path.text, number.get()) == customer::segment(other, number.get())
            }
            _ => true,
        })
    }
}
