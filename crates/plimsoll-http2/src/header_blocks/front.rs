//! Which part of a frame belongs to a header block: not what stands before it, nor padding.
//!
//! Source: RFC 9113, 6.2 and 6.10.

use super::Malformed;
use crate::frames::Head;

/// What stands in a frame before its part of the block, and behind.
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
    /// RFC 9113, 6.2: the length of the padding, then what the stream depends on and by which weight.
    pub(super) fn of(head: Head) -> Self {
        let need = usize::from(head.is_padded()) + if head.is_prioritized() { 5 } else { 0 };
        Self { stream: head.stream, need, is_padded: head.is_padded(), block_left: head.length, ..Self::default() }
    }

    /// Takes off `payload` what is not of the block.
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

    /// What of `payload` is of the block, and not padding.
    pub(super) fn take<'p>(&mut self, payload: &'p [u8]) -> &'p [u8] {
        let taken = &payload[..(self.block_left as usize).min(payload.len())];
        self.block_left -= taken.len() as u32;
        taken
    }
}
