"""HPACK (RFC 7541) for the strict parser of HTTP/2: a decoder that shares no code with the one of h2.

One tolerance: a change of the table's size within a block. It belongs at the beginning (4.2), but has one meaning wherever it stands.
"""

from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH

from harness.hpack import STATIC, TABLE_SIZE, Table

from .message import Fields, Malformed

_SYMBOLS = {(REQUEST_CODES_LENGTH[symbol], REQUEST_CODES[symbol]): symbol for symbol in range(256)}
_LONGEST_CODE = 30
# A block that is larger when decoded is refused by everybody.
_MAX_SIZE = 1 << 20


class Decoder:
    """The receiver's side of a connection."""

    def __init__(self) -> None:
        self._table = Table(TABLE_SIZE)
        self.fields: Fields = []
        """Of the last block, as far as it could be read."""

    def decode(self, data: bytes) -> Fields:
        fields = self.fields = []
        at = size = 0
        while at < len(data):
            first = data[at]
            if first & 0x80:
                index, at = _integer(data, at, 7)
                field = self._entry(index)
            elif first & 0xE0 == 0x20:
                limit, at = _integer(data, at, 5)
                if limit > TABLE_SIZE:
                    raise Malformed("HPACK: table too large")
                self._table.resize(limit)
                continue
            else:
                index, at = _integer(data, at, 6 if first & 0x40 else 4)
                if index:
                    name = self._entry(index)[0]
                else:
                    name, at = _text(data, at)
                value, at = _text(data, at)
                field = (name, value)
                if first & 0x40:
                    self._table.add(name, value)
            fields.append(field)
            size += len(field[0]) + len(field[1])
            if size > _MAX_SIZE:
                raise Malformed("HPACK: block too large")
        return fields

    def _entry(self, index: int) -> tuple[bytes, bytes]:
        if 1 <= index <= len(STATIC):
            return STATIC[index - 1]
        if 1 <= index - len(STATIC) <= len(self._table.entries):
            return self._table.entries[index - len(STATIC) - 1]
        raise Malformed(f"HPACK: no entry {index}")


def _integer(data: bytes, at: int, prefix: int) -> tuple[int, int]:
    if at >= len(data):
        raise Malformed("HPACK: cut off")
    most = (1 << prefix) - 1
    value = data[at] & most
    at += 1
    if value < most:
        return value, at
    for shift in range(0, 63, 7):
        if at >= len(data):
            break
        value += (data[at] & 0x7F) << shift
        at += 1
        if not data[at - 1] & 0x80:
            return value, at
    raise Malformed("HPACK: integer")


def _text(data: bytes, at: int) -> tuple[bytes, int]:
    if at >= len(data):
        raise Malformed("HPACK: cut off")
    coded = data[at] & 0x80
    size, at = _integer(data, at, 7)
    if size > len(data) - at:
        raise Malformed("HPACK: cut off")
    text = data[at : at + size]
    return (_huffman(text) if coded else text), at + size


def _huffman(data: bytes) -> bytes:
    out = bytearray()
    code = length = 0
    for octet in data:
        for bit in range(7, -1, -1):
            code, length = code << 1 | octet >> bit & 1, length + 1
            symbol = _SYMBOLS.get((length, code))
            if symbol is not None:
                out.append(symbol)
                code = length = 0
            elif length > _LONGEST_CODE:
                raise Malformed("HPACK: Huffman code")
    if length > 7 or code != (1 << length) - 1:
        raise Malformed("HPACK: Huffman padding")
    return bytes(out)
