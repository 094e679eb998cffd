"""Requests over HTTP/2 in every form that HPACK has for them, in frames and segments cut anywhere: those with `#` in `:path`, and
those with pseudo-fields in trailers, are refused in each of them, and all others arrive as they were sent.

What is drawn depends on the seed alone, which is in the name of the test; what a connection sends does not depend on what comes
back.
"""

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from hpack import Decoder

from harness import hpack
from harness.fleet import Fleet, Proxy
from harness.hpack import Encoder, Table, Written
from harness.http2 import DATA, END_STREAM, PADDED, PING, Answer, Connection, Fields, frame, headers, request
from harness.process import free_port
from malformed.backend import Received, RecordingBackend
from malformed.drive import OURS, SENTINEL

# Seeds, and how many requests a connection has. Short ones always end with a pseudo-field in trailers, some long ones too.
LONG = [(seed, 40) for seed in range(60)]
SHORT = [(1_000 + seed, 3) for seed in range(200)]
# So many are malformed; few enough for the budget of resets of a connection.
BAD_SHARE = 0.2
PATIENCE_SECONDS = 5.0
HEADER_TABLE_SIZE = 0x1
# What the proxy adds itself is sent by no request here.
ADDED = OURS | {"x-request-id"}
# What may be mistaken for a path: `#` in a field's name, a name like it without the colon, names that stand in the static table.
NAMES = [
    *(b"x-color", b"x-#", b"path", b"x-path", b"x-a", b"x-b", b"a", b"b", b"c", b"d"),
    *(b"referer", b"location", b"link", b"cookie", b"user-agent", b"accept", b"accept-charset", b"etag", b"www-authenticate"),
]
VALUES = [b"#fff", b"#", b"https://a.example/x#y", b"/a#b", b":path", b":path: /a#b", b"", b"</a#b>; rel=next"]
WHOLE: Fields = [(b"accept-encoding", b"gzip, deflate"), (b"accept-charset", b""), (b"etag", b""), (b"www-authenticate", b"")]
PSEUDO_IN_TRAILERS: Fields = [
    *((b":path", b"/"), (b":path", b"/index.html"), (b":path", b"/a#b"), (b":method", b"GET"), (b":scheme", b"http")),
    *((b":status", b"200"), (b":authority", b"site.example"), (b":authority", b""), (b":protocol", b"websocket")),
    *((b":x", b"1"), (b":a-name-that-nobody-knows", b""), (b":", b"1")),
]
PATH = b"ABCXYZabcxyz0189-._~!$&'()*+,;=:@/?"
TEXT = bytes(range(0x20, 0x7F)) + bytes(range(0x80, 0x100))


@dataclass
class Planned:
    """One request, and what is written of it: each unit comes whole, and others may come between two."""

    stream: int
    number: bytes
    fields: Fields
    body: list[bytes] = field(default_factory=list)
    trailers: Fields | None = None
    written: list[Written] = field(default_factory=list)
    """How its fields were written; `updates` are the sizes that the table was given before."""
    trailers_written: list[Written] = field(default_factory=list)
    updates: list[int] = field(default_factory=list)

    def get(self, name: bytes) -> bytes:
        return next(value for key, value in self.fields if key == name)

    @property
    def fragment(self) -> bool:
        return b"#" in self.get(b":path")

    def __str__(self) -> str:
        how = "\n".join(f"    {written}" for written in self.written + self.trailers_written)
        return f"stream {self.stream}, {self.get(b':method')!r} {self.get(b':path')!r}, new sizes {self.updates}:\n{how}"


class Plan:
    """What one connection sends: `sent`, and where `last` is a request that is malformed in its trailers, `sent_last` after all
    others were answered."""

    def __init__(self, seed: int, count: int):
        self.rng = random.Random(seed)
        self.encoder = Encoder(self.rng, self.rng.choice((hpack.TABLE_SIZE, hpack.TABLE_SIZE, hpack.TABLE_SIZE, 150, 300)))
        # With short fields the table has many entries, and indices of more than one byte.
        self.short = self.rng.random() < 0.25
        self.seen: Fields = []
        self.bad_paths: list[bytes] = []
        self.good_paths = [b"/", b"/index.html"]
        self.requests = [self._request(2 * number + 1, f"{seed}-{number}".encode()) for number in range(count)]
        self.sent = self._interleaved(self.requests)
        late = count < 10 or self.rng.random() < 0.5
        self.last = self._late(2 * count + 1, f"{seed}-last".encode()) if late else None
        self.sent_last = self._interleaved([self.last]) if self.last else b""
        # In bytes; by few connections byte by byte, which takes its time.
        self.longest_piece = self.rng.choice((1, 5, 40, 40, 300, 300, 2_000, 100_000))

    def pieces(self, data: bytes) -> Iterator[bytes]:
        at = 0
        while at < len(data):
            size = self.rng.randint(1, self.longest_piece)
            yield data[at : at + size]
            at += size

    def _text(self, alphabet: bytes, longest: int) -> bytes:
        return bytes(self.rng.choices(alphabet, k=self.rng.randint(1, longest)))

    def _path(self, good: bool) -> bytes:
        known = self.good_paths if good else self.bad_paths
        if known and self.rng.random() < 0.5:
            return self.rng.choice(known)
        # Few are longer than a length of one byte can say.
        parts = [self._text(PATH, self.rng.choice((3, 12, 12, 60, 130, 400)))]
        parts += self.rng.choices((b"%23", b"%2F", b"%00", b"?", b"??", b"~"), k=self.rng.randint(0, 2))
        self.rng.shuffle(parts)
        path = b"/" + b"".join(parts)
        if not good:
            path = self.rng.choice(
                (
                    lambda: path + b"#",
                    lambda: path[:-1] + b"#" + path[-1:],
                    lambda: b"/#" + path[1:],
                    lambda: b"/#" + path[1:] + b"#",
                    lambda: path + b"##",
                    lambda: b"/#",
                    lambda: path + b"?q=1#top",
                )
            )()
        known.append(path)
        return path

    def _value(self) -> bytes:
        if self.short:
            return self.rng.choice((b"", b"1", b"#", b"##", b"/#"))
        kind = self.rng.random()
        if kind < 0.3:
            return self.rng.choice(VALUES)
        # Rarely larger than the whole table.
        longest = 30 if kind < 0.85 else 600 if kind < 0.985 else hpack.TABLE_SIZE + 100
        value = self._text(TEXT, longest).strip()
        if longest > hpack.TABLE_SIZE:
            value = value.ljust(hpack.TABLE_SIZE - 40, b"#")
        elif self.rng.random() < 0.4:
            at = self.rng.choice((0, len(value), self.rng.randint(0, len(value))))
            value = value[:at] + b"#" + value[at:]
        return value

    def _fields(self, at_most: int, names: list[bytes]) -> Fields:
        fields = []
        for _ in range(self.rng.randint(0, at_most)):
            known = [(name, value) for name, value in self.seen if name in names]
            if known and self.rng.random() < 0.5:
                fields.append(self.rng.choice(known))
            elif self.short:
                fields.append((self._text(b"abcdefgh", 2), self._value()))
            else:
                fields.append((self.rng.choice(names), self._value()))
            self.seen.append(fields[-1])
        return fields

    def _pseudo(self, method: bytes, path: bytes) -> Fields:
        authority = self.rng.choice((b"site.example", b"site.example", b"other.example:8080", b"a-name-that-is-long.example"))
        fields = [(b":method", method), (b":scheme", b"http"), (b":authority", authority), (b":path", path)]
        self.rng.shuffle(fields)
        return fields

    def _request(self, stream: int, number: bytes) -> Planned:
        path = self._path(self.rng.random() >= BAD_SHARE)
        # The second has what a token may have.
        method = self.rng.choice((b"GET", b"GET", b"B#EW", b"POST", b"POST", b"POST"))
        fields = [*self._fields(16 if self.short else 5, NAMES), *self.rng.sample(WHOLE, self.rng.choice((0, 0, 1, 2)))]
        fields.insert(self.rng.randint(0, len(fields)), (b"x-number", number))
        planned = Planned(stream, number, self._pseudo(method, path) + fields)
        if method == b"POST":
            planned.body = self._body()
            if self.rng.random() < 0.7:
                planned.trailers = self._trailers()
        return planned

    def _body(self) -> list[bytes]:
        """Bytes that look like a request, where somebody lost count of where frames begin."""
        lure = headers(2 * self.rng.randint(0, 40) + 1, request(b"GET", b"/a#b"))
        return [self.rng.choice((lure, lure[9:], b"", b"abc" + lure)) for _ in range(self.rng.randint(0, 2))]

    def _trailers(self) -> Fields:
        return self._fields(4, [name for name in NAMES if name.startswith(b"x-")]) or [(b"x-sum", b"#1")]

    def _late(self, stream: int, number: bytes) -> Planned:
        trailers = self._trailers()
        before = [entry for planned in self.requests for entry in planned.fields if entry[0].startswith(b":")]
        bad = self.rng.choice(before if self.rng.random() < 0.5 else PSEUDO_IN_TRAILERS)
        # One that comes after other fields is wrong for another reason too.
        trailers = self.rng.choice(([bad], [bad, *trailers], [bad, *trailers], [*trailers, bad]))
        fields = [*self._pseudo(b"POST", self._path(good=True)), (b"x-number", number)]
        return Planned(stream, number, fields, self._body(), trailers)

    def _units(self, planned: Planned) -> Iterator[bytes]:
        """Header blocks with nothing in between, and frames. What was drawn for the table is drawn as it is sent."""
        trailers = planned.trailers is not None
        yield self._block(planned, planned.fields, end=not trailers and not planned.body)
        for at, piece in enumerate(planned.body, 1):
            flags = END_STREAM if at == len(planned.body) and not trailers else 0
            if self.rng.random() < 0.2:
                yield frame(DATA, flags | PADDED, planned.stream, b"\x23" + piece + bytes(0x23))
            else:
                yield frame(DATA, flags, planned.stream, piece)
        if planned.trailers is not None:
            yield self._block(planned, planned.trailers, end=True)

    def _block(self, planned: Planned, fields: Fields, end: bool) -> bytes:
        block = self.encoder.block(fields)
        (planned.trailers_written if fields is planned.trailers else planned.written).extend(self.encoder.written)
        planned.updates += self.encoder.updates
        return b"".join(hpack.frames(self.rng, planned.stream, block, end))

    def _interleaved(self, requests: list[Planned]) -> bytes:
        """Streams begin in their order, and go on in any."""
        waiting, begun, out = list(requests), [], b""
        while waiting or begun:
            if waiting and (not begun or self.rng.random() < 0.5):
                begun.append(self._units(waiting.pop(0)))
                unit = next(begun[-1])
            else:
                units = self.rng.choice(begun)
                unit = next(units, b"")
                if not unit:
                    begun.remove(units)
            out += unit
            if self.rng.random() < 0.03:
                # A frame of a type that nobody knows means nothing, whatever it looks like.
                out += frame(0xBE, 0x5, 1, headers(1, request(b"GET", b"/a#b")))
        return out


def refused(answer: Answer) -> bool:
    return answer.reset is not None or (answer.status or 0) >= 400


def by_name(fields: Fields) -> dict[str, list[str]]:
    """The order of fields of different names means nothing; pieces of a cookie are one (RFC 9113, 8.2.3)."""
    grouped: dict[str, list[str]] = {}
    for name, value in fields:
        if not name.startswith(b":"):
            grouped.setdefault(name.decode(), []).append(value.decode("latin-1"))
    if "cookie" in grouped:
        grouped["cookie"] = ["; ".join(grouped["cookie"])]
    return grouped


def as_received(fields: list[tuple[str, str]]) -> dict[str, list[str]]:
    return by_name([(name.encode(), value.encode("latin-1")) for name, value in fields if name not in ADDED])


def differs(planned: Planned, got: Received) -> str | None:
    """In what the backend's request is not what was sent."""
    wanted = {
        "method": (planned.get(b":method").decode(), got.method),
        "path": (planned.get(b":path").decode("latin-1"), got.target),
        "host": ([planned.get(b":authority").decode()], got.all("host")),
        "fields": (by_name(planned.fields), as_received(got.fields)),
        "body": (b"".join(planned.body), got.body),
        "trailers": (by_name(planned.trailers or []), as_received(got.trailers)),
    }
    wrong = [f"{what} is {is_!r} instead of {sent!r}" for what, (sent, is_) in wanted.items() if sent != is_]
    return "; ".join(wrong) or None


def ended(client: Connection, stream: int) -> bool:
    return client.answer(stream).ended or client.answer(stream).reset is not None


class Run:
    """A plan's connection to the proxy, and what came of it on both sides."""

    def __init__(self, port: int, backend: RecordingBackend, plan: Plan):
        self.plan = plan
        backend.take()
        with Connection.to(port, PATIENCE_SECONDS) as self.client:
            self._send(plan.sent)
            self._read(lambda: all(ended(self.client, planned.stream) for planned in plan.requests))
            self.over = self.client.closed or self.client.goaway is not None
            # What has come to nothing by the time that this is answered will come to nothing.
            later = 2 * len(plan.requests) + 3
            if plan.last and not self.over:
                self._send(plan.sent_last)
                self._read(lambda: ended(self.client, plan.last.stream) or self.client.goaway is not None)
            self._send(frame(PING, 0, 0, b"sentinel") + headers(later, request(path=SENTINEL.encode())))
            self._read(lambda: ended(self.client, later) or self.client.goaway is not None)
            self.still_good = self.client.answer(later).status == 200
            self.over_at_last = self.client.closed or self.client.goaway is not None
        backend.settle()
        self.record = backend.take()
        self.received = [got for got in self.record.requests if got.target != SENTINEL]

    def _send(self, data: bytes) -> None:
        try:
            for piece in self.plan.pieces(data):
                self.client.send(piece)
        except OSError:
            pass  # its end is seen by the next read

    def _read(self, until: Callable[[], bool]) -> None:
        self.client.reading(until, PATIENCE_SECONDS)

    def problems(self) -> Iterator[str]:
        if self.record.ambiguous:
            yield f"the backend got what can be read in two ways: {self.record.ambiguous}"
        if self.over:
            yield f"the connection ended, goaway {self.client.goaway}"
        elif not self.plan.last and not self.still_good:
            yield "the connection serves nothing any more"
        if self.client.peer_settings.get(HEADER_TABLE_SIZE, hpack.TABLE_SIZE) < hpack.TABLE_SIZE:
            yield "the proxy allows a smaller table than these tests take for granted"
        numbers = Counter(number.encode() for got in self.received for number in got.all("x-number") or ["none"])
        for planned in self.plan.requests:
            answer = self.client.answer(planned.stream)
            count = numbers.pop(planned.number, 0)
            if planned.fragment:
                if count:
                    yield f"a path with # reached the backend, status {answer.status}: {planned}"
                elif not refused(answer):
                    yield f"a path with # was not refused: {planned}"
            elif answer.status != 200 or not answer.ended or count != 1:
                yield f"not served: status {answer.status}, reset {answer.reset}, {count} times at the backend: {planned}"
            elif answer.body != planned.get(b":method") + b" " + planned.get(b":path"):
                yield f"has the answer {answer.body!r}: {planned}"
        yield from self._problems_of_last(numbers)
        yield from (f"the backend saw {number!r}, which was not sent" for number in numbers)
        for got in self.received:
            planned = next((planned for planned in self.plan.requests if planned.number.decode() in got.all("x-number")), None)
            problem = differs(planned, got) if planned and not planned.fragment else None
            if problem:
                yield f"{problem}: {planned}"
        good = sum(not planned.fragment for planned in self.plan.requests)
        if self.record.begun > good + (self.plan.last is not None) + self.still_good:
            yield f"the backend saw {self.record.begun} requests begin, of which {good} are good"

    def _problems_of_last(self, numbers: Counter[bytes]) -> Iterator[str]:
        last = self.plan.last
        if last is None:
            return
        if numbers.pop(last.number, 0):
            yield f"with a pseudo-field in trailers it reached the backend: {last}"
        elif not refused(self.client.answer(last.stream)) and not self.over_at_last:
            yield f"a pseudo-field in trailers was not refused: {last}"
        elif not self.still_good and not self.over_at_last:
            yield f"after a pseudo-field in trailers nothing is served: {last}"


@pytest.fixture(scope="module")
def backend() -> Iterator[RecordingBackend]:
    backend = RecordingBackend(free_port())
    yield backend
    backend.stop()


@pytest.fixture(scope="module")
def proxy(module_fleet: Fleet, backend: RecordingBackend) -> Proxy:
    outliers = '[clusters.main.outlier]\nconsecutive_failures = "off"\nsuccess_rate_stdev = "off"'
    proxy = module_fleet.proxy([backend.address], further=outliers)
    proxy.admin.wait_for_healthy(1)
    return proxy


@pytest.mark.parametrize(("seed", "count"), LONG + SHORT)
def test_header_blocks(proxy: Proxy, backend: RecordingBackend, seed: int, count: int) -> None:
    problems = list(Run(proxy.port, backend, Plan(seed, count)).problems())
    assert not problems, f"seed {seed}, {len(problems)} problems, the first of them:\n" + "\n".join(problems[:3])
    assert proxy.exit_code is None


def is_bad_path(one: Written) -> bool:
    return one.field[0] == b":path" and b"#" in one.field[1]


# How often something has to be drawn at least.
SOME = 3
RARE = {
    "index of two bytes": lambda one: one.kind == "indexed" and one.number >= 127,
    "name of an entry that is evicted": lambda one: one.evicts_name,
    "name of an entry that is evicted by a path with #": lambda one: one.evicts_name and is_bad_path(one),
    "field larger than the table": lambda one: one.empties,
    "# in another field by its index": lambda one: one.kind == "indexed" and b"#" in one.field[1] and not is_bad_path(one),
    "long path with #": lambda one: is_bad_path(one) and len(one.field[1]) > 200 and one.kind != "indexed",
}


def test_every_form_occurs() -> None:
    plans = [Plan(seed, count) for seed, count in LONG + SHORT]
    requests = [planned for plan in plans for planned in plan.requests]
    assert 0.15 < sum(planned.fragment for planned in requests) / len(requests) < 0.25
    assert max(sum(planned.fragment for planned in plan.requests) for plan in plans) < 20
    written = [one for planned in requests for one in planned.written]
    paths = Counter((one.kind, one.name, one.value) for one in written if is_bad_path(one))
    literals = ("incremental", "without", "never")
    wanted = itertools.product(literals, ("static 4", "static 5", "dynamic", "raw", "huffman"), ("raw", "huffman"))
    assert [form for form in (("indexed", "dynamic", ""), *wanted) if not paths[form]] == []

    last = [one for plan in plans if plan.last for one in plan.last.trailers_written if one.field[0].startswith(b":")]
    pseudo = Counter((one.kind, one.name.split()[0]) for one in last)
    wanted = itertools.product(literals, ("static", "dynamic", "raw", "huffman"))
    assert [form for form in (("indexed", "static"), ("indexed", "dynamic"), *wanted) if not pseudo[form]] == []

    assert {what: sum(map(is_it, written)) for what, is_it in RARE.items() if sum(map(is_it, written)) < SOME} == {}
    assert {len(planned.updates) for planned in requests} >= {1, 2}
    assert any(0 in planned.updates for planned in requests)


def test_integers() -> None:
    # RFC 7541, C.1.
    assert (hpack.integer(10, 5), hpack.integer(1337, 5), hpack.integer(42, 8)) == (b"\x0a", b"\x1f\x9a\x0a", b"\x2a")
    assert (hpack.integer(127, 7), hpack.integer(127, 7, 0x80, 2)) == (b"\x7f\x00", b"\xff\x80\x80\x00")


def test_huffman() -> None:
    # RFC 7541, C.4.1 and C.6.1.
    assert hpack.huffman(b"www.example.com").hex() == "f1e3c2e5f23a6ba0ab90f4ff"
    assert hpack.huffman(b"Mon, 21 Oct 2013 20:13:21 GMT").hex() == "d07abe941054d444a8200595040b8166e082a62d1bff"


def test_table_evicts_the_oldest() -> None:
    table = Table(2 * hpack.ENTRY_OVERHEAD + 4)
    for name in (b"a", b"b", b"c"):
        table.add(name, b"1")
    assert table.entries == [(b"c", b"1"), (b"b", b"1")] and table.size == table.limit
    table.add(b"d", bytes(40))
    assert table.entries == [] and table.size == 0


@pytest.mark.parametrize("seed", range(10))
def test_encoder_is_read_by_another_decoder(seed: int) -> None:
    rng = random.Random(seed)
    encoder, decoder = Encoder(rng), Decoder()
    for planned in (planned for number in range(5) for planned in Plan(100 * seed + number, 40).requests):
        for fields in (planned.fields, planned.trailers or []):
            assert list(decoder.decode(encoder.block(fields), raw=True)) == fields
            assert list(decoder.header_table.dynamic_entries) == encoder.table.entries
            assert decoder.header_table.maxsize == encoder.table.limit
