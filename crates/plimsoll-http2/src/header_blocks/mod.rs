//! Faults of a client's header blocks that h2 and http hide when they read them.
//!
//! Three things that RFC 9113 calls malformed pass both unseen. A fragment in `:path` (8.3.1): http
//! cuts it off, so that the backend would get another path than was sent. Pseudo-fields in trailers
//! (8.1): h2 leaves them out. And faults in a frame that ends within a field: h2 forgets them when
//! the block goes on in the next frame. So the blocks are read here as well, as they pass, by HPACK
//! (RFC 7541): names, the ends of values, and whether there is a `#` in a path.
//!
//! - **A fragment** is made one that http refuses: `#` becomes `>`, in place. Both are as long,
//!   plain (a byte) and in Huffman code (12 bits that differ in the last), so nothing else of the
//!   block changes. h2 finds an invalid path, ends the stream by PROTOCOL_ERROR, as it should have,
//!   and stores later references in just that form. Other requests on the connection are
//!   unaffected.
//! - **A pseudo-field in trailers** ends the connection. It is never a mistake. So does a block
//!   that goes on in another frame after it was malformed: by a pseudo-field that came twice or
//!   behind others, or a field of the connection.
//!
//! - **CONNECT with a length** is made one that h2 refuses. The frame is given the flag END_STREAM,
//!   so that h2 finds a length where no body can come, and ends the stream. hyper would end the
//!   whole connection, without GOAWAY. Where the flags came in an earlier read, so that they are
//!   with h2 already, the connection ends.
//!
//! - **A list of addresses in `:authority`**, as gRPC's C core makes of a target that lists them,
//!   is no authority (RFC 3986, 3.2), and http refuses it for its second colon. Colons and brackets
//!   behind the first comma are replaced by characters that http takes. A request with a comma in
//!   its authority names no host (`check`), so the replaced text is of no use to anybody. (A
//!   bracket in Huffman code is left alone, and refused; the C core does not use that for text.)
//!
//! Besides, a request with `expect` is noted ([`HeaderBlocks::expects`]); `interim` is in need of
//! that.
//!
//! To know the names that a client refers to, one has to stay in step with its table, and h2 with
//! both. It does not where it skips a field or a block and goes on: a name that is empty, when the
//! frame ends behind it; a request that depends on itself. (And it reads PUSH_PROMISE, which the
//! guard does not let through.) These end the connection, too, as does a block that cannot be read;
//! h2 ends it then in any case.
//!
//! No value is copied, and a block may come in any pieces: only the last byte read is ever changed.

mod front;
mod huffman;
mod table;

use front::Front;
use huffman::Huffman;
use table::{Kind, MAX_SIZE, Name, Spelling, Table, Value};

use crate::frames::{END_STREAM, Head};

/// The method without request bodies (RFC 9110, 9.3.6).
const CONNECT: &[u8] = b"CONNECT";
/// Bits of a number beyond its first byte: four bytes, as for h2. More might not fit 32 bits.
const MAX_NUMBER_SHIFT: u32 = 4 * 7;

/// The block is malformed, in a way that ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// A change that has the block refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flip {
    /// Which of the bytes that were read.
    pub(crate) at: usize,
    /// The bits of it.
    pub(crate) bits: u8,
}

/// Where a character of a text ends.
#[derive(Clone, Copy, Debug)]
struct Place {
    at: usize,
    /// In Huffman code, where in that byte its last bit is.
    last_bit: Option<u8>,
}

impl Place {
    /// The change that makes another character of the one here: by `bits`, or in Huffman code by
    /// its last bit.
    fn becoming(self, bits: u8) -> Flip {
        Flip { at: self.at, bits: self.last_bit.unwrap_or(bits) }
    }
}

/// Reads the header blocks of one connection's client.
#[derive(Clone, Debug)]
pub(crate) struct HeaderBlocks {
    table: Table,
    so_far: SoFar,
    end: End,
    front: Front,
    step: Step,
    field: Field,
}

/// The parts of a block that have come.
#[derive(Clone, Copy, Debug, Default)]
struct SoFar {
    is_of_trailers: bool,
    /// The pseudo-fields, by the bit of their kind.
    pseudo_fields: u8,
    has_others: bool,
    is_malformed: bool,
    is_connect: bool,
    /// It announces a body, which is not empty.
    has_length: bool,
    expects: bool,
}

/// Whether the frame that began the block says that its request has no body.
#[derive(Clone, Copy, Debug, Default)]
enum End {
    #[default]
    Said,
    /// Not, and the flags stand at this index of the read bytes.
    Open { flags_at: usize },
    /// Not, and the flags came in an earlier read.
    Passed,
}

/// The part that comes next.
#[derive(Clone, Copy, Debug)]
enum Step {
    Field,
    /// More of a number.
    Number {
        of: Number,
        so_far: u32,
        shift: u32,
    },
    Length(Text),
    Text {
        text: Text,
        left: u32,
        is_coded: bool,
    },
}

#[derive(Clone, Copy, Debug)]
enum Number {
    Indexed,
    NameIndex,
    TableSize,
    Length { text: Text, is_coded: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Text {
    Name,
    Value,
}

/// The field that is being read.
#[derive(Clone, Copy, Debug, Default)]
struct Field {
    is_kept: bool,
    spelling: Spelling,
    /// Once all of it has come.
    name: Option<Name>,
    value_length: u32,
    huffman: Huffman,
    is_flipped: bool,
    /// As many characters of the value are those of `CONNECT`; none once one is not.
    connect_length: usize,
    has_digit: bool,
    has_comma: bool,
}

impl HeaderBlocks {
    pub(crate) fn new() -> Self {
        Self {
            table: Table::new(),
            so_far: SoFar::default(),
            end: End::Said,
            front: Front::default(),
            step: Step::Field,
            field: Field::default(),
        }
    }

    /// Further bytes were read: those before are out of reach.
    pub(crate) fn on_read(&mut self) {
        if let End::Open { .. } = self.end {
            self.end = End::Passed;
        }
    }

    /// A HEADERS frame begins. Whether its block is that of trailers is for the caller to know.
    pub(crate) fn on_headers(&mut self, head: Head, flags_at: Option<usize>, is_of_trailers: bool) {
        self.so_far = SoFar { is_of_trailers, ..SoFar::default() };
        self.end = match flags_at {
            _ if head.is_end_of_stream() => End::Said,
            Some(flags_at) => End::Open { flags_at },
            None => End::Passed,
        };
        self.step = Step::Field;
        self.front = Front::of(head);
    }

    /// A CONTINUATION frame begins.
    pub(crate) fn on_continuation(&mut self, head: Head) {
        self.front = Front::of(head);
    }

    /// The next part of such a frame's payload, at `at` of the bytes that were read.
    pub(crate) fn on_payload(&mut self, mut payload: &[u8], at: usize, flips: &mut Vec<Flip>) -> Result<(), Malformed> {
        let length = payload.len();
        self.front.skip(&mut payload)?;
        let skipped = length - payload.len();
        let part = self.front.take(payload);
        self.read(part, at + skipped, flips)
    }

    /// The frame ends, and the block with it or not.
    pub(crate) fn on_end(&self, is_end_of_headers: bool) -> Result<(), Malformed> {
        let is_lost = if is_end_of_headers { !matches!(self.step, Step::Field) } else { self.so_far.is_malformed };
        if is_lost { Err(Malformed) } else { Ok(()) }
    }

    /// The block is that of a request, and had a field `expect`.
    pub(crate) fn expects(&self) -> bool {
        self.so_far.expects && !self.so_far.is_of_trailers
    }

    fn read(&mut self, part: &[u8], at: usize, flips: &mut Vec<Flip>) -> Result<(), Malformed> {
        let mut done = 0;
        while let Some(&byte) = part.get(done) {
            if let Step::Text { text, left, is_coded } = self.step {
                let taken = &part[done..][..(left as usize).min(part.len() - done)];
                self.read_text(text, is_coded, taken, at + done, flips);
                done += taken.len();
                self.step = Step::Text { text, left: left - taken.len() as u32, is_coded };
                if left as usize == taken.len() {
                    self.on_text(text, flips)?;
                }
            } else {
                self.read_byte(byte, flips)?;
                done += 1;
            }
        }
        Ok(())
    }

    fn read_byte(&mut self, byte: u8, flips: &mut Vec<Flip>) -> Result<(), Malformed> {
        match self.step {
            Step::Field => {
                // RFC 7541, 6: the first bits of a field.
                let (of, prefix) = match byte {
                    0x80.. => (Number::Indexed, 0x7f),
                    0x40..0x80 => (Number::NameIndex, 0x3f),
                    0x20..0x40 => (Number::TableSize, 0x1f),
                    0x00..0x20 => (Number::NameIndex, 0x0f),
                };
                self.field = Field { is_kept: byte >= 0x40, ..Field::default() };
                self.begin_number(of, byte & prefix, prefix, flips)
            }
            Step::Length(text) => {
                self.begin_number(Number::Length { text, is_coded: byte & 0x80 != 0 }, byte & 0x7f, 0x7f, flips)
            }
            Step::Number { of, so_far, shift } => {
                let number = so_far + (u32::from(byte & 0x7f) << shift);
                let shift = shift + 7;
                if byte & 0x80 == 0 {
                    return self.on_number(of, number, flips);
                }
                if shift == MAX_NUMBER_SHIFT {
                    return Err(Malformed);
                }
                self.step = Step::Number { of, so_far: number, shift };
                Ok(())
            }
            Step::Text { .. } => unreachable!("texts are not read by the byte"),
        }
    }

    /// RFC 7541, 5.1: a number that does not fit the rest of its first byte goes on in others.
    fn begin_number(&mut self, of: Number, first: u8, most: u8, flips: &mut Vec<Flip>) -> Result<(), Malformed> {
        let number = u32::from(first);
        if first < most {
            return self.on_number(of, number, flips);
        }
        self.step = Step::Number { of, so_far: number, shift: 0 };
        Ok(())
    }

    fn on_number(&mut self, of: Number, number: u32, flips: &mut Vec<Flip>) -> Result<(), Malformed> {
        self.step = match of {
            Number::Indexed => {
                self.on_name(self.table.name(number).ok_or(Malformed)?)?;
                self.on_value(self.table.value(number), flips)?;
                Step::Field
            }
            Number::NameIndex if number == 0 => Step::Length(Text::Name),
            Number::NameIndex => {
                self.on_name(self.table.name(number).ok_or(Malformed)?)?;
                Step::Length(Text::Value)
            }
            Number::TableSize if number > MAX_SIZE => return Err(Malformed),
            Number::TableSize => {
                self.table.resize(number);
                Step::Field
            }
            Number::Length { text, .. } if number == 0 => return self.on_text(text, flips),
            Number::Length { text, is_coded } => {
                self.field.huffman = Huffman::default();
                Step::Text { text, left: number, is_coded }
            }
        };
        Ok(())
    }

    fn on_name(&mut self, name: Name) -> Result<(), Malformed> {
        self.field.name = Some(name);
        self.so_far.on_name(name.kind)?;
        if name.length == 0 { Err(Malformed) } else { Ok(()) }
    }

    fn on_value(&mut self, value: Value, flips: &mut Vec<Flip>) -> Result<(), Malformed> {
        let so_far = &mut self.so_far;
        let was_known = so_far.is_connect && so_far.has_length;
        so_far.is_connect |= value == Value::Connect;
        so_far.has_length |= value == Value::Length;
        if was_known || !(so_far.is_connect && so_far.has_length) {
            return Ok(());
        }
        match self.end {
            End::Said => Ok(()),
            End::Open { flags_at } => {
                flips.push(Flip { at: flags_at, bits: END_STREAM });
                Ok(())
            }
            End::Passed => Err(Malformed),
        }
    }

    /// A text is complete.
    fn on_text(&mut self, text: Text, flips: &mut Vec<Flip>) -> Result<(), Malformed> {
        match text {
            Text::Name => {
                self.step = Step::Length(Text::Value);
                self.on_name(self.field.spelling.name())
            }
            Text::Value => {
                self.step = Step::Field;
                let value = self.field.value();
                if let Some(name) = self.field.name.filter(|_| self.field.is_kept) {
                    self.table.insert(name, value, self.field.value_length);
                }
                self.on_value(value, flips)
            }
        }
    }

    fn read_text(&mut self, text: Text, is_coded: bool, part: &[u8], at: usize, flips: &mut Vec<Flip>) {
        let field = &mut self.field;
        let is_of_interest = text == Text::Name || field.is_of_interest();
        let has_unknown_length = is_coded && field.is_kept;
        if !is_of_interest && !has_unknown_length {
            field.value_length += part.len() as u32;
            return;
        }
        for (at, &byte) in (at..).zip(part) {
            if is_coded {
                field.huffman.push(byte);
                while let Some(symbol) = field.huffman.symbol() {
                    field.on_character(text, symbol.byte, Place { at, last_bit: Some(symbol.last_bit) }, flips);
                }
            } else {
                field.on_character(text, byte, Place { at, last_bit: None }, flips);
            }
        }
    }
}

impl SoFar {
    fn on_name(&mut self, kind: Kind) -> Result<(), Malformed> {
        if !kind.is_pseudo() {
            self.has_others = true;
            self.is_malformed |= kind == Kind::Connection;
            self.expects |= kind == Kind::Expect;
            return Ok(());
        }
        let bit = 1 << kind as u8;
        self.is_malformed |= self.has_others || self.pseudo_fields & bit != 0;
        self.pseudo_fields |= bit;
        if self.is_of_trailers { Err(Malformed) } else { Ok(()) }
    }
}

impl Field {
    fn is(&self, kind: Kind) -> bool {
        self.name.is_some_and(|name| name.kind == kind)
    }

    /// Something may stand in the value that matters.
    fn is_of_interest(&self) -> bool {
        self.name
            .is_some_and(|name| matches!(name.kind, Kind::Path | Kind::Method | Kind::Authority | Kind::ContentLength))
    }

    /// The relevant part of the value, once all of it has come.
    fn value(&self) -> Value {
        if self.is(Kind::Method) && self.connect_length == CONNECT.len() {
            Value::Connect
        } else if self.has_digit {
            Value::Length
        } else {
            Value::Other
        }
    }

    /// The next character of its name or value.
    fn on_character(&mut self, text: Text, character: u8, at: Place, flips: &mut Vec<Flip>) {
        match text {
            Text::Name => self.spelling.push(character),
            Text::Value => {
                let place = self.value_length as usize;
                self.value_length += 1;
                if character == b'#' && self.is(Kind::Path) && !self.is_flipped {
                    self.is_flipped = true;
                    flips.push(at.becoming(b'#' ^ b'>'));
                }
                if self.is(Kind::Authority) {
                    self.has_comma |= character == b',';
                    match character {
                        // In Huffman code a B.
                        b':' if self.has_comma => flips.push(at.becoming(b':' ^ b';')),
                        b']' if self.has_comma => flips.push(at.becoming(b']' ^ b'~')),
                        b'[' if self.has_comma && at.last_bit.is_none() => flips.push(at.becoming(b'[' ^ b'Z')),
                        _ => {}
                    }
                }
                if self.is(Kind::Method) {
                    let is_next = self.connect_length == place && CONNECT.get(place) == Some(&character);
                    self.connect_length = if is_next { place + 1 } else { 0 };
                }
                self.has_digit |= self.is(Kind::ContentLength) && matches!(character, b'1'..=b'9');
            }
        }
    }
}

#[cfg(test)]
mod tests;
