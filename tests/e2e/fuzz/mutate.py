"""Mutations of bytes that know nothing of a grammar, and the random numbers of one message."""

import random

# Whatever some parser takes for the end of a line, a blank or the end of a string.
_TRICKY = (b"\r\n", b"\n", b"\r", b"\x00", b"\t", b" ", b"\x0b", b"\x0c", b":", b",", b";", b"\r\n ", b"\r\n\t", b"\x7f", b"\xff", b"\xc3\xa9", b"\xe2\x80\xa8", b"#", b"0", b"\r\n\r\n")  # fmt: skip


def stream_of(seed: int, direction: str, index: int) -> random.Random:
    """The random numbers of one message, and of no other."""
    return random.Random(f"{seed}/{direction}/{index}")


def mutate_bytes(rng: random.Random, data: bytes, times: int) -> bytes:
    """Inserts, deletes, doubles, swaps and changes bytes and lines."""
    for _ in range(times):
        if len(data) < 4:
            return data
        at = rng.randrange(len(data))
        kind = rng.randrange(9)
        if kind == 0:
            data = data[:at] + rng.choice(_TRICKY) + data[at:]
        elif kind == 1:
            data = data[:at] + data[at + rng.choice((1, 1, 1, 2, 5)) :]
        elif kind == 2:
            data = data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
        elif kind == 3:
            data = data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
        elif kind == 4:
            other = rng.randrange(len(data))
            low, high = sorted((at, other))
            if low != high:
                data = data[:low] + data[high : high + 1] + data[low + 1 : high] + data[low : low + 1] + data[high + 1 :]
        elif kind == 5:
            size = rng.choice((1, 2, 8, 30))
            data = data[:at] + data[at : at + size] + data[at:]
        elif kind == 6:
            data = data[:at] + rng.choice(_TRICKY) + data[at + 1 :]
        elif kind == 7:
            data = _lines(rng, data)
        elif data.find(b"\r\n", at) >= 0:
            end = data.find(b"\r\n", at)
            data = data[:end] + rng.choice((b"\n", b"\r", b"\r\r\n", b" \r\n", b"\r\n ", b"\r\n\r\n", b"")) + data[end + 2 :]
    return data


def _lines(rng: random.Random, data: bytes) -> bytes:
    """Doubles, drops or swaps whole lines."""
    lines = data.split(b"\r\n")
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    kind = rng.randrange(3)
    if kind == 0:
        lines.insert(other, lines[at])
    elif kind == 1:
        del lines[at]
    else:
        lines[at], lines[other] = lines[other], lines[at]
    return b"\r\n".join(lines)


def pieces(rng: random.Random, data: bytes) -> list[bytes]:
    """Mostly one piece; else up to five, each of which is written by itself."""
    if len(data) < 2 or rng.random() < 0.75:
        return [data]
    cuts = sorted(rng.sample(range(1, len(data)), min(rng.randint(1, 4), len(data) - 1)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
