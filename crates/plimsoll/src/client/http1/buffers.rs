//! Memory for reading and writing, on loan while it is needed.
//!
//! A waiting connection (idle, or for an answer) holds no buffer: the many that wait share the few
//! of their thread. Bytes that are read become slices of the buffer, which goes back with the rest
//! of its space. Once the slices are dropped, its memory is used again from the start, so that a
//! steady state allocates nothing for reading.

use std::cell::RefCell;

use bytes::BytesMut;
use plimsoll_http1::write;

/// Size of a buffer for reading: a head and most bodies in one read, as HAProxy has it. Few are in use at a time.
pub(super) const INPUT: usize = 16 * 1024;

/// A buffer for reading that was made larger than this is not kept: a body made it so.
pub(super) const MAX_INPUT: usize = 64 * 1024;

/// Maximum number of buffers of each kind that a thread keeps. A buffer is on loan within one poll,
/// or holds bytes that the socket did not accept at once. A few suffice; more are a burst.
const MAX_KEPT: usize = 8;

/// A buffer for writing that has grown beyond this is not kept: the body that made it grow was an exception.
const MAX_OUTPUT: usize = 64 * 1024;

thread_local! {
    static INPUTS: RefCell<Vec<BytesMut>> = const { RefCell::new(Vec::new()) };
    static OUTPUTS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// An empty buffer to read into.
pub(super) fn input() -> BytesMut {
    // A thread that ends has none left.
    INPUTS.try_with(|kept| kept.borrow_mut().pop()).ok().flatten().unwrap_or_default()
}

/// Returns the buffer of [`input`], which is empty again.
pub(super) fn return_input(buffer: BytesMut) {
    let _ = INPUTS.try_with(|kept| {
        let mut kept = kept.borrow_mut();
        if kept.len() < MAX_KEPT {
            kept.push(buffer);
        }
    });
}

/// An empty buffer to write a head into.
pub(super) fn output() -> Vec<u8> {
    let kept = OUTPUTS.try_with(|kept| kept.borrow_mut().pop()).ok().flatten();
    kept.unwrap_or_else(|| Vec::with_capacity(2 * write::TYPICAL_HEAD))
}

/// Returns the buffer of [`output`].
pub(super) fn return_output(mut buffer: Vec<u8>) {
    if (1..=MAX_OUTPUT).contains(&buffer.capacity()) {
        buffer.clear();
        let _ = OUTPUTS.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() < MAX_KEPT {
                kept.push(buffer);
            }
        });
    }
}
