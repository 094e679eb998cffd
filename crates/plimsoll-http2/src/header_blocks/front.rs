//! The part of a frame that belongs to a header block: without the fields before it, and padding.
//!
//! Source: RFC 9113, 6.2 and 6.10.

use super::Malformed;
use crate::frames::Head;

/// The fields of a frame before its part of the block, and the padding behind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Front {
    stream: u32,
    bytes: [u8; 6],
    have: usize,
    need: usize,
    is_padded: bool,
    /// Bytes of the block in this frame; with padding, until its length is known.
    block_left: u32,
}

impl Front {
    /// RFC 9113, 6.2: the length of the padding, then the stream's dependency and weight.
    pub(super) fn of(head: Head) -> Self {
        let need = usize::from(head.is_padded()) + if head.is_prioritized() { 5 } else { 0 };
        Self { stream: head.stream, need, is_padded: head.is_padded(), block_left: head.length, ..Self::default() }
    }

    /// Removes the fields before the block from `payload`.
    pub(super) fn skip(&mut self, payload: &mut &[u8]) -> Result<(), Malformed> {
        if self.have == self.need {
            return Ok(());
        }
        let (taken, left) = payload.split_at((self.need - self.have).min(payload.len()));
        self.bytes[self.have..][..taken.len()].copy_from_slice(taken);
        self.have += taken.len();
        *payload = left;
        if self.have < self.need {
            return Ok(());
        }
        let (padding, priority) = self.bytes[..self.need].split_at(usize::from(self.is_padded));
        let padding = padding.first().copied().map_or(0, u32::from);
        self.block_left = self.block_left.checked_sub(self.need as u32 + padding).ok_or(Malformed)?;
        match priority.first_chunk() {
            Some(depends_on) if u32::from_be_bytes(*depends_on) & 0x7fff_ffff == self.stream => Err(Malformed),
            _ => Ok(()),
        }
    }

    /// The part of `payload` that belongs to the block.
    pub(super) fn take<'p>(&mut self, payload: &'p [u8]) -> &'p [u8] {
        let taken = &payload[..(self.block_left as usize).min(payload.len())];
        self.block_left -= taken.len() as u32;
        taken
    }
}
