//! The changes of a route to the messages that pass between client and backend.

use http::Request;

use crate::config;
use crate::reason::Refusal;
use crate::route::header_rules::HeaderRules;
use crate::route::path_rewrite::PathRewrite;

/// The changes of a route; it has at least one.
#[derive(Clone, Debug)]
pub(crate) struct Changes {
    path: Option<PathRewrite>,
    request: Option<HeaderRules>,
    /// To the fields of each response, the proxy's own too.
    pub(super) response: Option<HeaderRules>,
}

impl Changes {
    /// Those of `route`; `None` if it has none.
    pub(crate) fn new(route: &config::Route) -> Option<Box<Self>> {
        let path = PathRewrite::new(route.path_rewrite.as_ref(), route.prefix_rewrite.as_ref(), route);
        let request = route.request_headers.as_ref().map(HeaderRules::new);
        let response = response_rules(route);
        let has_any = path.is_some() || request.is_some() || response.is_some();
        has_any.then(|| Box::new(Self { path, request, response }))
    }

    /// Changes the fields of a request. Call it after the fields of the client's connection were
    /// removed, and before the proxy adds its own.
    pub(crate) fn request_fields<B>(&self, request: &mut Request<B>) {
        if let Some(rules) = &self.request {
            rules.apply(request.headers_mut());
        }
    }

    /// Gives a request the path for its backend.
    pub(crate) fn path<B>(&self, request: &mut Request<B>) -> Result<(), Refusal> {
        self.path.as_ref().map_or(Ok(()), |rewrite| rewrite.apply(request))
    }
}

/// The changes of `route` to its responses.
pub(crate) fn response_rules(route: &config::Route) -> Option<HeaderRules> {
    route.response_headers.as_ref().map(HeaderRules::new)
}
