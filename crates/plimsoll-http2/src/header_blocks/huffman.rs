//! The Huffman code of header strings, read as its bytes come.
//!
//! The code is canonical: codes of one length are consecutive, in the order of their symbols, and
//! those of the next length begin where these end. So how many symbols have a length is all that
//! has to be known to tell where each one ends.
//!
//! Source: RFC 7541, 5.2 and appendix B.

/// The symbols with codes of up to 15 bits, by length, in the order of their codes.
const COMMON: [(u32, &[u8]); 10] = [
    (5, b"012aceiost"),
    (6, b" %-./3456789=A_bdfghlmnpru"),
    (7, b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz"),
    (8, b"&*,;XZ"),
    (10, b"!\"()?"),
    (11, b"'+|"),
    (12, b"#>"),
    (13, b"\0$@[]~"),
    (14, b"^}"),
    (15, b"<`{"),
];
/// How many symbols there are with longer codes, by length. The last is the end of a string, which
/// must not occur; that h2 refuses it is enough.
const RARE: [(u32, u32); 11] =
    [(19, 3), (20, 8), (21, 13), (22, 26), (23, 29), (24, 12), (25, 4), (26, 15), (27, 19), (28, 29), (30, 4)];
/// The stand-in for a symbol with such a code: none of those that matter here.
const OTHER: u8 = 0xff;
const SHORTEST: u32 = 5;

/// The code that bytes begin with: its length in bits and its symbol; of length 0 where it is
/// longer than the byte.
const BY_FIRST_BYTE: [(u8, u8); 256] = by_first_byte();

const fn by_first_byte() -> [(u8, u8); 256] {
    let mut found = [(0, 0); 256];
    let (mut next, mut row) = (0, 0);
    while COMMON[row].0 <= 8 {
        let (length, symbols) = COMMON[row];
        let mut i = 0;
        while i < symbols.len() << (8 - length) {
            found[next] = (length as u8, symbols[i >> (8 - length)]);
            next += 1;
            i += 1;
        }
        row += 1;
    }
    found
}

/// A symbol that is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Symbol {
    /// The symbol's byte; [`OTHER`] for unusual ones.
    pub(super) byte: u8,
    /// Where in the byte that came last its last bit is.
    pub(super) last_bit: u8,
}

/// A string that is being read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Huffman {
    /// Bits that have come, the last of them lowest; all but `length` of them are used.
    bits: u64,
    length: u32,
}

impl Huffman {
    /// The next byte has come; [`Self::symbol`] is to be called until there is none.
    pub(super) fn push(&mut self, byte: u8) {
        self.bits = self.bits << 8 | u64::from(byte);
        self.length += 8;
    }

    /// The next symbol, if it is complete. Bits left at the end of a string are padding.
    pub(super) fn symbol(&mut self) -> Option<Symbol> {
        if self.length < SHORTEST {
            return None;
        }
        // Missing bits count as zeros; if they decide the length, the symbol is longer than the
        // bits at hand.
        let ahead = ((self.bits << (64 - self.length)) >> 32) as u32;
        let (length, byte) = match BY_FIRST_BYTE[(ahead >> 24) as usize] {
            (0, _) => longer(ahead),
            (length, byte) => (u32::from(length), byte),
        };
        self.length = self.length.checked_sub(length)?;
        // It was not complete before that byte.
        Some(Symbol { byte, last_bit: 1 << self.length })
    }
}

/// Length and symbol of the code at the head of `ahead`, which is longer than a byte.
#[cold]
fn longer(ahead: u32) -> (u32, u8) {
    let common = COMMON.iter().map(|(length, symbols)| (*length, symbols.len() as u32, *symbols));
    let rare = RARE.iter().map(|(length, count)| (*length, *count, &[][..]));
    let (mut first, mut before) = (0, 0);
    for (length, count, symbols) in common.chain(rare) {
        first <<= length - before;
        before = length;
        let place = (ahead >> (32 - length)) - first;
        if place < count {
            return (length, symbols.get(place as usize).copied().unwrap_or(OTHER));
        }
        first += count;
    }
    unreachable!("the code is complete: its last length has what no other has")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(bytes: &[u8]) -> Vec<u8> {
        let mut huffman = Huffman::default();
        let mut found = Vec::new();
        for byte in bytes {
            huffman.push(*byte);
            found.extend(std::iter::from_fn(|| huffman.symbol()).map(|symbol| symbol.byte));
        }
        assert!(huffman.length < 8, "more than padding is left");
        found
    }

    /// RFC 7541, appendix C.4 and C.6.
    #[test]
    fn the_examples_of_the_rfc_are_read() {
        let examples: [(&[u8], &[u8]); 4] = [
            (&[0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff], b"www.example.com"),
            (&[0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf], b"no-cache"),
            (&[0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xa9, 0x7d, 0x7f], b"custom-key"),
            (
                &[
                    0xd0, 0x7a, 0xbe, 0x94, 0x10, 0x54, 0xd4, 0x44, 0xa8, 0x20, 0x05, 0x95, 0x04, 0x0b, 0x81, 0x66,
                    0xe0, 0x82, 0xa6, 0x2d, 0x1b, 0xff,
                ],
                b"Mon, 21 Oct 2013 20:13:21 GMT",
            ),
        ];
        for (encoded, plain) in examples {
            assert_eq!(decoded(encoded), plain);
        }
    }

    /// The codes of a few symbols as appendix B lists them, among the longest of each length.
    #[test]
    fn codes_longer_than_a_byte_are_read() {
        let listed: [(u32, u32, u8); 12] = [
            (0x3fc, 10, b'?'),
            (0x7fc, 11, b'|'),
            (0xffa, 12, b'#'),
            (0xffb, 12, b'>'),
            (0x1ffd, 13, b'~'),
            (0x3ffd, 14, b'}'),
            (0x7ffe, 15, b'{'),
            (0x7fff0, 19, OTHER),
            (0xfffe6, 20, OTHER),
            (0x3f_ffe5, 22, OTHER),
            (0xfff_fff0, 28, OTHER),
            (0x3fff_fffc, 30, OTHER),
        ];
        for (code, length, byte) in listed {
            // Behind it 'a' (00011), and ones for padding.
            let bits = (u64::from(code) << 5 | 0b00011) << (64 - length - 5) | u64::MAX >> (length + 5);
            let bytes = (length + 5).div_ceil(8) as usize;
            assert_eq!(decoded(&bits.to_be_bytes()[..bytes]), [byte, b'a'], "{code:#x}");
        }
    }

    #[test]
    fn symbol_names_its_last_bit() {
        // '#' twice: 1111 1111 1010 1111 1111 1010.
        let mut huffman = Huffman::default();
        let mut found = Vec::new();
        for byte in [0xff, 0xaf, 0xfa] {
            huffman.push(byte);
            found.push(huffman.symbol().map(|symbol| (symbol.byte, symbol.last_bit)));
        }
        assert_eq!(found, [None, Some((b'#', 0b1_0000)), Some((b'#', 1))]);
    }
}
