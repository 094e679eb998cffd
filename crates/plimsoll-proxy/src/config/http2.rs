//! The limits of a client on one HTTP/2 connection.

use std::num::NonZeroU32;
use std::time::Duration;

use plimsoll_config::table;
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

/// Time for the answer to a PING that asks whether a silent client is still there. hyper's default.
const DEFAULT_PING_TIMEOUT: Duration = Duration::from_secs(20);

table! {
    /// The limits of a client on one HTTP/2 connection.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct Http2 {
        /// Requests at once.
        pub max_streams: NonZeroU32 = DEFAULT_MAX_STREAMS, value;
        /// Requests that it takes back, in a second.
        pub max_resets_per_second: NonZeroU32 = DEFAULT_MAX_RESETS, value;
        /// Frames that carry no request, in a second.
        pub max_control_frames_per_second: NonZeroU32 = DEFAULT_MAX_CONTROL_FRAMES, value;
        /// Silence after which the client is asked by a PING whether it is there; `None`: `idle_timeout`.
        pub ping_interval: Option<Duration> = None, optional;
        /// Time for the answer.
        pub ping_timeout: Duration = DEFAULT_PING_TIMEOUT, value;
    }
}

impl Http2 {
    /// As the guard of a connection has them.
    pub(crate) fn allowance(self) -> Allowance {
        Allowance {
            max_streams: self.max_streams,
            max_resets_per_second: self.max_resets_per_second,
            max_control_frames_per_second: self.max_control_frames_per_second,
        }
    }
}
