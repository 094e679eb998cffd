//! The interim response 100 (Continue) as a frame.

/// HEADERS with END_HEADERS and one literal field that is not kept: name 8 of the static table,
/// `100`.
const CONTINUE: [u8; 14] = [0, 0, 5, 1, 0x4, 0, 0, 0, 0, 0x08, 3, b'1', b'0', b'0'];
/// Where in it the stream stands.
const STREAM_OFFSET: usize = 5;

/// The frame 100 (Continue) for `stream`.
pub(crate) fn continue_frame(stream: u32) -> [u8; CONTINUE.len()] {
    let mut frame = CONTINUE;
    frame[STREAM_OFFSET..STREAM_OFFSET + 4].copy_from_slice(&stream.to_be_bytes());
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_is_a_whole_header_block_on_its_stream() {
        let frame = continue_frame(0x0102_0305);
        assert_eq!(frame[..9], [0, 0, 5, 1, 4, 1, 2, 3, 5]);
        assert_eq!(frame.len(), 9 + 5);
    }
}
