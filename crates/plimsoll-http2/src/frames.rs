//! Walks over the frames of one direction of an HTTP/2 connection, in any pieces of its bytes.
//!
//! It reads the nine bytes in front of each frame and skips by the length in them, so its cost is
//! per frame, not per byte. It copies only a head that two reads share, allocates nothing and
//! judges nothing: h2, which reads the same bytes, decides whether the frames are lawful HTTP/2.
//!
//! Source: RFC 9113, 3.4 (preface) and 4.1 (frame format).

/// Length of a client's preface, `PRI * HTTP/2.0` and so on.
const PREFACE_LENGTH: u8 = 24;
/// Length of the head in front of each frame.
const HEAD_LENGTH: usize = 9;
/// Where in it the flags stand.
const FLAGS_OFFSET: usize = 4;
/// Of HEADERS and DATA: the sender sends nothing more on this stream.
pub(crate) const END_STREAM: u8 = 0x1;

/// The type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of RFC 9113, section 6")]
pub enum Kind {
    Data,
    Headers,
    Priority,
    Reset,
    Settings,
    PushPromise,
    Ping,
    GoAway,
    WindowUpdate,
    Continuation,
    /// Any other; a receiver ignores it (RFC 9113, 5.5).
    Unknown,
}

impl Kind {
    const ALL: [Self; 10] = [
        Self::Data,
        Self::Headers,
        Self::Priority,
        Self::Reset,
        Self::Settings,
        Self::PushPromise,
        Self::Ping,
        Self::GoAway,
        Self::WindowUpdate,
        Self::Continuation,
    ];
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The type of the frame.
    pub kind: Kind,
    /// Length of the payload, in bytes.
    pub length: u32,
    /// The stream that it is about; 0 for the connection.
    pub stream: u32,
    flags: u8,
}

impl Head {
    /// That of a frame of `kind`.
    #[cfg(test)]
    pub(crate) fn of(kind: u8, flags: u8, stream: u32, length: usize) -> Self {
        let [_, a, b, c] = u32::try_from(length).unwrap().to_be_bytes();
        let [s0, s1, s2, s3] = stream.to_be_bytes();
        Self::parse([a, b, c, kind, flags, s0, s1, s2, s3])
    }

    fn parse(bytes: [u8; HEAD_LENGTH]) -> Self {
        let [a, b, c, kind, flags, s0, s1, s2, s3] = bytes;
        Self {
            kind: Kind::ALL.get(usize::from(kind)).copied().unwrap_or(Kind::Unknown),
            length: u32::from_be_bytes([0, a, b, c]),
            // The first bit is reserved, and to be ignored.
            stream: u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]),
            flags,
        }
    }

    /// The sender sends nothing more on this stream.
    #[must_use]
    pub fn is_end_of_stream(self) -> bool {
        matches!(self.kind, Kind::Data | Kind::Headers) && self.flags & END_STREAM != 0
    }

    /// It has a part of a block of headers that a client may send.
    #[must_use]
    pub fn is_of_headers(self) -> bool {
        matches!(self.kind, Kind::Headers | Kind::Continuation)
    }

    /// The block of headers ends with this frame.
    #[must_use]
    pub fn is_end_of_headers(self) -> bool {
        matches!(self.kind, Kind::Headers | Kind::Continuation | Kind::PushPromise) && self.flags & 0x4 != 0
    }

    /// The payload begins with the length of the padding at its end.
    #[must_use]
    pub fn is_padded(self) -> bool {
        matches!(self.kind, Kind::Data | Kind::Headers | Kind::PushPromise) && self.flags & 0x8 != 0
    }

    /// The payload has a dependency of the stream, behind the length of the padding.
    #[must_use]
    pub fn is_prioritized(self) -> bool {
        self.kind == Kind::Headers && self.flags & 0x20 != 0
    }

    /// It confirms a frame of the other side.
    #[must_use]
    pub fn is_ack(self) -> bool {
        matches!(self.kind, Kind::Settings | Kind::Ping) && self.flags & 0x1 != 0
    }
}

/// A step of the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'b> {
    /// A frame begins.
    Head {
        /// The head of the frame.
        head: Head,
        /// Where its flags stand in the bytes that are walked over; `None` if they came before
        /// those.
        flags_at: Option<usize>,
    },
    /// The next bytes of its payload, never empty.
    Payload {
        /// The bytes.
        bytes: &'b [u8],
        /// Where they stand in those that are walked over.
        at: usize,
    },
    /// It is complete.
    End,
}

/// Where in the frames of one direction a connection is.
#[derive(Clone, Debug)]
pub struct Walker {
    preface_left: u8,
    /// A head that has come in part.
    head: [u8; HEAD_LENGTH],
    head_length: usize,
    /// Missing bytes of the current frame's payload.
    payload_left: Option<u32>,
}

impl Walker {
    /// For the bytes that a client sends: a preface, then frames.
    #[must_use]
    pub fn of_client() -> Self {
        Self { preface_left: PREFACE_LENGTH, ..Self::of_server() }
    }

    /// For the bytes that a server sends.
    #[must_use]
    pub fn of_server() -> Self {
        Self { preface_left: 0, head: [0; HEAD_LENGTH], head_length: 0, payload_left: None }
    }

    /// The steps over `bytes`, which come right behind those of the walk before. To be used up, or
    /// bytes are missed.
    pub fn walk<'w, 'b>(&'w mut self, bytes: &'b [u8]) -> Walk<'w, 'b> {
        Walk { walker: self, bytes, length: bytes.len() }
    }

    /// Whether no frame is half through.
    #[must_use]
    pub fn is_between_frames(&self) -> bool {
        self.preface_left == 0 && self.head_length == 0 && self.payload_left.is_none()
    }
}

/// A walk over bytes, see [`Walker::walk`].
#[derive(Debug)]
pub struct Walk<'w, 'b> {
    walker: &'w mut Walker,
    /// The remaining bytes.
    bytes: &'b [u8],
    length: usize,
}

impl<'b> Walk<'_, 'b> {
    /// Bytes that are not walked over yet.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len()
    }

    /// Up to `most` of the bytes that are left.
    fn take(&mut self, most: usize) -> &'b [u8] {
        let (taken, left) = self.bytes.split_at(most.min(self.bytes.len()));
        self.bytes = left;
        taken
    }

    /// The next head, once all of it has come.
    fn head(&mut self) -> Option<Head> {
        let have = self.walker.head_length;
        let part = self.take(HEAD_LENGTH - have);
        self.walker.head[have..have + part.len()].copy_from_slice(part);
        self.walker.head_length += part.len();
        (self.walker.head_length == HEAD_LENGTH).then(|| Head::parse(self.walker.head))
    }
}

impl<'b> Iterator for Walk<'_, 'b> {
    type Item = Piece<'b>;

    fn next(&mut self) -> Option<Piece<'b>> {
        if self.walker.preface_left > 0 {
            let skipped = self.take(usize::from(self.walker.preface_left));
            self.walker.preface_left -= u8::try_from(skipped.len()).expect("at most as many as are left");
        }
        match self.walker.payload_left {
            Some(0) => {
                self.walker.payload_left = None;
                Some(Piece::End)
            }
            _ if self.bytes.is_empty() => None,
            Some(left) => {
                let at = self.length - self.bytes.len();
                let bytes = self.take(left as usize);
                self.walker.payload_left = Some(left - bytes.len() as u32);
                Some(Piece::Payload { bytes, at })
            }
            None => {
                let head = self.head()?;
                self.walker.head_length = 0;
                self.walker.payload_left = Some(head.length);
                let flags_at = (self.length - self.bytes.len()).checked_sub(HEAD_LENGTH - FLAGS_OFFSET);
                Some(Piece::Head { head, flags_at })
            }
        }
    }
}

/// The first bytes of a payload, in any pieces: the number in them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Field {
    bytes: [u8; 8],
    length: usize,
}

impl Field {
    /// Takes from `payload` until there are `N` bytes; hands them over, and begins anew.
    pub(crate) fn take<const N: usize>(&mut self, payload: &mut &[u8]) -> Option<[u8; N]> {
        let (taken, left) = payload.split_at((N - self.length).min(payload.len()));
        self.bytes[self.length..self.length + taken.len()].copy_from_slice(taken);
        self.length += taken.len();
        *payload = left;
        (self.length == N).then(|| {
            self.length = 0;
            std::array::from_fn(|i| self.bytes[i])
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

    /// A frame as it stands on the wire.
    pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let [_, length @ ..] = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length, &[kind, flags][..], &stream.to_be_bytes(), payload].concat()
    }

    /// Heads with whole payloads, and how far the last frame is.
    fn frames(walker: &mut Walker, pieces: &[&[u8]]) -> Vec<(Head, Vec<u8>, bool)> {
        let mut found = Vec::new();
        for piece in pieces {
            for step in walker.walk(piece) {
                match step {
                    Piece::Head { head, flags_at } => {
                        assert!(flags_at.is_none_or(|at| piece[at] == head.flags));
                        found.push((head, Vec::new(), false));
                    }
                    Piece::Payload { bytes, at } => {
                        assert_eq!(bytes, &piece[at..at + bytes.len()]);
                        found.last_mut().unwrap().1.extend(bytes);
                    }
                    Piece::End => found.last_mut().unwrap().2 = true,
                }
            }
        }
        found
    }

    #[test]
    fn a_frame_is_seen_with_all_that_its_head_says() {
        let bytes =
            [PREFACE, &frame(1, 0x2d, 0x8000_0005, b"block"), &frame(6, 1, 0, &[0; 8]), &frame(0x10, 0, 0, &[])];
        let whole = bytes.concat();
        let heads: Vec<Option<usize>> = Walker::of_client()
            .walk(&whole)
            .filter_map(|piece| if let Piece::Head { flags_at, .. } = piece { Some(flags_at) } else { None })
            .collect();
        assert_eq!(heads, [28, 42, 59].map(Some));
        let found = frames(&mut Walker::of_client(), &[&whole]);
        let [(headers, block, true), (ping, _, true), (other, _, true)] = &found[..] else { panic!("{found:?}") };
        assert_eq!((headers.kind, headers.stream, headers.length, &block[..]), (Kind::Headers, 5, 5, &b"block"[..]));
        assert!(headers.is_end_of_stream() && headers.is_end_of_headers() && headers.is_padded());
        assert!(ping.kind == Kind::Ping && ping.is_ack() && !ping.is_end_of_stream());
        assert_eq!(other.kind, Kind::Unknown);
    }

    #[test]
    fn walker_is_between_frames_only_where_a_frame_may_begin() {
        let mut walker = Walker::of_server();
        assert!(walker.is_between_frames());
        for (i, byte) in frame(0, 0, 1, b"ab").iter().enumerate() {
            assert_eq!(walker.is_between_frames(), i == 0, "{i}");
            walker.walk(&[*byte]).for_each(drop);
        }
        assert!(walker.is_between_frames());
    }

    proptest! {
        #[test]
        fn frames_are_the_same_in_any_pieces(
            sent in prop::collection::vec((0_u8..12, any::<u8>(), any::<u32>(), prop::collection::vec(any::<u8>(), 0..40)), 0..8),
            cuts in prop::collection::vec(0_usize..400, 0..30),
        ) {
            let mut bytes = PREFACE.to_vec();
            for (kind, flags, stream, payload) in &sent {
                bytes.extend(frame(*kind, *flags, *stream, payload));
            }
            let whole = frames(&mut Walker::of_client(), &[&bytes]);
            prop_assert_eq!(whole.len(), sent.len());
            for ((head, payload, complete), (_, flags, stream, sent)) in whole.iter().zip(&sent) {
                prop_assert!(*complete && payload == sent && head.flags == *flags && head.stream == stream & 0x7fff_ffff);
            }
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
            prop_assert_eq!(frames(&mut Walker::of_client(), &pieces), whole);
        }
    }
}
