//! The limits of a client on one HTTP/2 connection.

use std::num::NonZeroU32;

use plimsoll_config::{Table, Visitor};
use plimsoll_http2::Allowance;

/// RFC 9113 recommends 100 at least; nginx has 128, Envoy recommends 100. More would let one client
/// hold more, and clients that need more open a further connection.
const DEFAULT_MAX_STREAMS: NonZeroU32 = NonZeroU32::new(128).expect("not zero");
/// A browser abandons up to a hundred requests when its user leaves a page, which no user does
/// every second for long. Busier clients earn more by the responses that they wait for. Envoy
/// allows no rate beyond such a share.
const DEFAULT_MAX_RESETS: NonZeroU32 = NonZeroU32::new(20).expect("not zero");
/// An idle client sends a PING every few seconds. A busy one sends as many frames as its requests
/// and responses earn, which do not count. A hundred cost a ten-thousandth of a core.
const DEFAULT_MAX_CONTROL_FRAMES: NonZeroU32 = NonZeroU32::new(100).expect("not zero");

/// The limits of a client on one HTTP/2 connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Http2(pub(super) Allowance);

impl Default for Http2 {
    fn default() -> Self {
        Self(Allowance {
            max_streams: DEFAULT_MAX_STREAMS,
            max_resets_per_second: DEFAULT_MAX_RESETS,
            max_control_frames_per_second: DEFAULT_MAX_CONTROL_FRAMES,
        })
    }
}

impl Table for Http2 {
    fn settings<V: Visitor>(&mut self, visitor: &mut V) {
        visitor.value("max_streams", &mut self.0.max_streams);
        visitor.value("max_resets_per_second", &mut self.0.max_resets_per_second);
        visitor.value("max_control_frames_per_second", &mut self.0.max_control_frames_per_second);
    }
}
