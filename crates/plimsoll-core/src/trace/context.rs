//! The identity of a request within its trace.

use core::num::{NonZeroU64, NonZeroU128};

use crate::Random;

/// The id of a trace. Zero is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceId(NonZeroU128);

/// The id of a span within its trace. Zero is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanId(NonZeroU64);

/// The flags of a request in a trace; unknown ones are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// The caller records its spans.
    pub is_sampled: bool,
    /// The last seven bytes of the trace id are random (level 2 of Trace Context).
    pub is_random: bool,
}

/// The trace of a request, and the span that caused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace: TraceId,
    /// The span that caused the request.
    pub span: SpanId,
    /// Its flags.
    pub flags: Flags,
}

impl TraceId {
    /// The id of these bits; `None` for zero.
    #[must_use]
    pub const fn new(bits: u128) -> Option<Self> {
        match NonZeroU128::new(bits) {
            Some(bits) => Some(Self(bits)),
            None => None,
        }
    }

    /// A new id.
    pub fn random(rng: &mut impl Random) -> Self {
        let bits = u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64());
        Self(NonZeroU128::new(bits).unwrap_or(NonZeroU128::MIN))
    }

    /// Its bits, big-endian on the wire.
    #[must_use]
    pub const fn bits(self) -> u128 {
        self.0.get()
    }
}

impl SpanId {
    /// The id of these bits; `None` for zero.
    #[must_use]
    pub const fn new(bits: u64) -> Option<Self> {
        match NonZeroU64::new(bits) {
            Some(bits) => Some(Self(bits)),
            None => None,
        }
    }

    /// A new id.
    pub fn random(rng: &mut impl Random) -> Self {
        Self(NonZeroU64::new(rng.next_u64()).unwrap_or(NonZeroU64::MIN))
    }

    /// Its bits, big-endian on the wire.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0.get()
    }
}
