//! The body of a request, as a caller passes it.

use http_body::Body;

/// The bodies that can be sent.
pub trait RequestBody: Body<Data: Send, Error: Into<BoxError>> + Send + Unpin + 'static {}

impl<B> RequestBody for B where B: Body<Data: Send, Error: Into<BoxError>> + Send + Unpin + 'static {}

/// An error of any type.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;
