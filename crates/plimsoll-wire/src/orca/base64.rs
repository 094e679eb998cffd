//! Base64 into a buffer on the stack, for the path of every response.
//!
//! A general decoder spends most of its time on short texts before and after its fast loop. This one
//! looks up four digits at a time and checks them once at the end. It judges nothing: for whatever
//! is not plain base64 (RFC 4648 §4, padded or not, unused bits zero) it says `None`, and the caller
//! asks the general decoder.

/// Marks a byte that is no digit; above all values of digits, so that it shows in a sum of bits.
const NO_DIGIT: u8 = 0x80;

const VALUES: [u8; 256] = {
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut values = [NO_DIGIT; 256];
    let mut value = 0;
    while value < digits.len() {
        values[digits[value] as usize] = value as u8;
        value += 1;
    }
    values
};

/// Decodes `text` into `buffer`; `None` when it is not plain base64 or too long for the buffer.
pub(super) fn decode<'a>(text: &[u8], buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let text = match text {
        [digits @ .., b'=', b'='] if text.len().is_multiple_of(4) => digits,
        [digits @ .., b'='] if text.len().is_multiple_of(4) => digits,
        digits => digits,
    };
    let (words, rest) = text.as_chunks::<4>();
    let (triples, _) = buffer.as_chunks_mut::<3>();
    if words.len() >= triples.len() {
        return None;
    }
    let value = |digit: u8| VALUES[usize::from(digit)];
    let mut seen = 0;
    for (&[a, b, c, d], triple) in words.iter().zip(&mut *triples) {
        let (a, b, c, d) = (value(a), value(b), value(c), value(d));
        seen |= a | b | c | d;
        *triple = [a << 2 | b >> 4, b << 4 | c >> 2, c << 6 | d];
    }
    let last = &mut triples[words.len()];
    let (more, unused) = match *rest {
        [] => (0, 0),
        [a, b] => {
            let (a, b) = (value(a), value(b));
            seen |= a | b;
            last[0] = a << 2 | b >> 4;
            (1, b << 4)
        }
        [a, b, c] => {
            let (a, b, c) = (value(a), value(b), value(c));
            seen |= a | b | c;
            [last[0], last[1]] = [a << 2 | b >> 4, b << 4 | c >> 2];
            (2, c << 6)
        }
        _ => return None,
    };
    (seen & NO_DIGIT == 0 && unused == 0).then(|| &buffer[..words.len() * 3 + more])
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, STANDARD_PAD_INDIFFERENT};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_not_plain_is_left_to_others() {
        for text in ["A", "AB=", "A===", "====", "=", "QQ=Q", "QUJ\n", "QR==", "QUJ=Q===", "Q-J_"] {
            assert_eq!(decode(text.as_bytes(), &mut [0; 24]), None, "{text}");
        }
        assert_eq!(decode(b"QUJDQUJD", &mut [0; 6]), None, "no room for the end");
        assert_eq!(decode(b"", &mut [0; 6]), Some(&b""[..]));
    }

    proptest! {
        #[test]
        fn decodes_what_was_encoded(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let mut buffer = [0; 128];
            prop_assert_eq!(decode(STANDARD.encode(&bytes).as_bytes(), &mut buffer), Some(&bytes[..]));
            prop_assert_eq!(decode(STANDARD_NO_PAD.encode(&bytes).as_bytes(), &mut buffer), Some(&bytes[..]));
        }

        #[test]
        fn accepts_nothing_that_the_general_decoder_refuses(text in "[A-Da-d01+/=]{0,12}") {
            let mut buffer = [0; 64];
            if let Some(bytes) = decode(text.as_bytes(), &mut buffer) {
                prop_assert_eq!(STANDARD_PAD_INDIFFERENT.decode(&text), Ok(bytes.to_vec()));
            }
        }
    }
}
