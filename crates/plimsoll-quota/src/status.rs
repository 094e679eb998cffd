//! The status with which a stream ends.

use tonic::Status;

use crate::service::StreamError;

pub(crate) fn status(error: StreamError) -> Status {
    let text = error.to_string();
    tracing::debug!(error = text, "stream ended");
    match error {
        StreamError::Replaced => Status::aborted(text),
        StreamError::Slow => Status::resource_exhausted(text),
        StreamError::Lease | StreamError::Outdated(_) => Status::unavailable(text),
        _ => Status::invalid_argument(text),
    }
}
