//! A walk over the elements of a repeated field, one at a time.
//!
//! A decoded message can be many times as large as its bytes: an empty endpoint takes 2 bytes on the wire,
//! and some hundred in memory. A list of all would let a response of 32 MiB take gigabytes. This walk keeps
//! none of them, so that its caller can stop at the first one too many.

use bytes::{Buf as _, Bytes};
use prost::{DecodeError, decode_length_delimiter};

/// Bytes that are no protocol buffer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    /// A field or its length.
    #[error(transparent)]
    Field(#[from] DecodeError),
    /// A field is longer than the message.
    #[error("a field is longer than its message")]
    TooLong,
    /// A type of field without a known length.
    #[error("a field of the unknown wire type {0}")]
    WireType(usize),
}

/// The elements of the field `tag` of a message, which are messages or texts themselves.
#[derive(Debug)]
pub(super) struct Repeated {
    rest: Bytes,
    tag: usize,
}

impl Repeated {
    pub(super) fn new(message: Bytes, tag: u32) -> Self {
        Self { rest: message, tag: tag as usize }
    }

    fn step(&mut self) -> Result<Option<Bytes>, Malformed> {
        while self.rest.has_remaining() {
            let key = decode_length_delimiter(&mut self.rest)?;
            match key & 7 {
                0 => {
                    decode_length_delimiter(&mut self.rest)?;
                }
                1 => {
                    self.take(8)?;
                }
                5 => {
                    self.take(4)?;
                }
                2 => {
                    let length = decode_length_delimiter(&mut self.rest)?;
                    let element = self.take(length)?;
                    if key >> 3 == self.tag {
                        return Ok(Some(element));
                    }
                }
                other => return Err(Malformed::WireType(other)),
            }
        }
        Ok(None)
    }

    fn take(&mut self, length: usize) -> Result<Bytes, Malformed> {
        if length > self.rest.len() {
            return Err(Malformed::TooLong);
        }
        Ok(self.rest.split_to(length))
    }
}

/// After an error there is no other element.
impl Iterator for Repeated {
    type Item = Result<Bytes, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.step().transpose();
        if matches!(step, Some(Err(_))) {
            self.rest.clear();
        }
        step
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    #[derive(Clone, PartialEq, Message)]
    struct All {
        #[prost(uint64, tag = "1")]
        varint: u64,
        #[prost(fixed64, tag = "3")]
        eight: u64,
        #[prost(fixed32, tag = "4")]
        four: u32,
        #[prost(bytes = "bytes", repeated, tag = "2")]
        wanted: Vec<Bytes>,
        #[prost(string, tag = "17")]
        other: String,
    }

    fn elements(message: &[u8]) -> Vec<Result<Bytes, Malformed>> {
        Repeated::new(Bytes::copy_from_slice(message), 2).collect()
    }

    #[test]
    fn elements_of_one_field_are_found_among_all_types_of_fields() {
        let wanted = vec![Bytes::from_static(b"a"), Bytes::new(), Bytes::from(vec![7; 300])];
        let all = All { varint: u64::from(u32::MAX), eight: 2, four: 3, wanted: wanted.clone(), other: "x".to_owned() };
        let expected: Vec<_> = wanted.into_iter().map(Ok).collect();
        assert_eq!(elements(&all.encode_to_vec()), expected);
        assert_eq!(elements(b""), []);
    }

    #[test]
    fn malformed_message_ends_with_one_error() {
        for (message, text) in [
            (&[0x12, 5, 1][..], "longer than its message"),
            (&[0x09, 1], "longer than its message"),
            (&[0x13], "wire type 3"),
            (&[0xff; 12], "varint"),
        ] {
            let [Err(error)] = &elements(message)[..] else { panic!("one error of {message:?}") };
            assert!(error.to_string().contains(text), "{error}");
        }
        assert_eq!(elements(&[0x12, 1, b'a', 0x12]).len(), 2);
    }
}
