//! The error of a request that a layer rejects itself.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use plimsoll_core::Rejection;
use plimsoll_core::admit::Shed;
use plimsoll_core::retry::Advice;

/// An error of any type, as tower's own layers return it.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// A request that a layer rejected: nothing was sent, and the service behind the layer does not
/// know of it.
///
/// It is the error of the layer, or the source of the error of a layer above it:
///
/// ```
/// use plimsoll_tower::plimsoll_core::Rejection;
/// use plimsoll_tower::{BoxError, Rejected};
///
/// fn status(error: &BoxError) -> u16 {
///     Rejected::find(&**error).map_or(502, |rejected| rejected.reason().row().http)
/// }
/// # let error: BoxError = Box::new(Rejected::new(Rejection::Throttled));
/// # assert_eq!(status(&error), 503);
/// # assert_eq!(status(&"something else".into()), 502);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejected {
    reason: Rejection,
    after: Option<Duration>,
}

impl Rejected {
    /// A rejection for this reason.
    #[must_use]
    pub const fn new(reason: Rejection) -> Self {
        Self { reason, after: None }
    }

    /// The reason, with its answers in HTTP and gRPC: [`Rejection::row`].
    #[must_use]
    pub const fn reason(&self) -> Rejection {
        self.reason
    }

    /// The time before a retry, if the advice has one.
    #[must_use]
    pub const fn after(&self) -> Option<Duration> {
        self.after
    }

    /// The advice on a retry.
    #[must_use]
    pub const fn advice(&self) -> Advice {
        self.reason.advice(self.after)
    }

    /// The rejection in an error or its sources.
    #[must_use]
    pub fn find<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e Self> {
        sources(error).find_map(|error| error.downcast_ref())
    }
}

/// An error, its source, and so on.
pub(crate) fn sources<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'e (dyn Error + 'static)| {
        let error: &'e (dyn Error + 'static) = *error;
        error.source()
    })
}

impl From<Shed> for Rejected {
    fn from(Shed { reason, after }: Shed) -> Self {
        Self { reason, after }
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason.row().text)
    }
}

impl Error for Rejected {}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Wrapper(Rejected);

    impl fmt::Display for Wrapper {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the call failed")
        }
    }

    impl Error for Wrapper {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn rejection_is_found_behind_the_error_of_another_layer() {
        let rejected = Rejected::new(Rejection::Saturated);
        assert_eq!(Rejected::find(&Wrapper(rejected)), Some(&rejected));
        assert_eq!(Rejected::find(&fmt::Error), None);
        assert_eq!(rejected.to_string(), Rejection::Saturated.row().text);
    }
}
