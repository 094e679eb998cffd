//! The kinds of errors in place of which a route may give another answer.

/// Why there is no proper answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Backends have more to do than they can: the gate says so, or a backend does.
    Overloaded,
    /// All backends were at their limit of active requests for too long.
    Saturated,
    /// No backend is usable.
    NoBackend,
    /// No answer came in time.
    Deadline,
    /// The backend closed the connection, or its answer was none.
    Failed,
    /// The backend answered 500, 502, 503 or 504, as far as that is nothing of the above.
    ServerError,
    /// The customer is over its quota.
    Quota,
}

impl Trouble {
    /// All of them, in the order of their declaration.
    pub(crate) const ALL: [Self; 7] = [
        Self::Overloaded,
        Self::Saturated,
        Self::NoBackend,
        Self::Deadline,
        Self::Failed,
        Self::ServerError,
        Self::Quota,
    ];

    /// Those without a response that clients can use. A backend's own error page may be one, and a
    /// customer over its quota should notice.
    pub(crate) const WITHOUT_SERVICE: [Self; 5] =
        [Self::Overloaded, Self::Saturated, Self::NoBackend, Self::Deadline, Self::Failed];

    /// The word for it in the file, in metrics, and in the header.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Overloaded => "overloaded",
            Self::Saturated => "saturated",
            Self::NoBackend => "no-backend",
            Self::Deadline => "deadline",
            Self::Failed => "failed",
            Self::ServerError => "server-error",
            Self::Quota => "quota",
        }
    }
}
