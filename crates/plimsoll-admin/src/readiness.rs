//! Whether a process accepts requests.

/// Whether new requests are welcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// They are.
    Ready,
    /// They are not, for this reason: `"draining"`, `"starting"`.
    NotReady(&'static str),
}

impl Readiness {
    /// `"ready"`, or the reason why not.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::NotReady(reason) => reason,
        }
    }
}
