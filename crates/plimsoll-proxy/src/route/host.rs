//! The host that a request is for.

use http::header::HOST;
use http::{Request, Version};

/// The host that a request is for; `None` where that is not clear, empty where an old client or
/// HTTP/2 names none.
///
/// HTTP/2 has it in the authority, HTTP/1 in a field, unless the target is in absolute form (RFC
/// 9112, 3.2).
pub(crate) fn host<B>(request: &Request<B>) -> Option<&str> {
    let mut fields = request.headers().get_all(HOST).iter();
    let (field, further) = (fields.next(), fields.next());
    let authority = request.uri().authority();
    if further.is_some() || field.is_none() && request.version() == Version::HTTP_11 {
        return None;
    }
    Some(match (authority, field) {
        (Some(authority), _) => authority.as_str().rsplit_once('@').map_or(authority.as_str(), |(_, host)| host),
        (None, Some(field)) => field.to_str().unwrap_or(""),
        (None, None) => "",
    })
}
