"""Mutated messages pass no smuggled request, no split response and no crossed answer through the proxy; and stub proxies with
deliberate mistakes are found out by the same run, so that it can fail. See `fuzz` for the properties.
"""

import asyncio
import random

import pytest

from fuzz import strict_http1, strict_http2, stubs
from fuzz.lane import BATCH, DIRECTIONS, Finding, Lane
from fuzz.message import Request
from fuzz.run import fuzz, start_proxy
from harness.fleet import Fleet
from harness.http2 import DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, Fields, block, data, frame, headers, request, settings

SEED = 23
PER_DIRECTION = 500
# Far below what passes (a third and more), far above what a run passes in which nothing works.
LEAST_PASSED = 0.15


def test_proxy_smuggles_splits_and_crosses_nothing() -> None:
    findings, tallies = fuzz(SEED, list(DIRECTIONS), PER_DIRECTION, jobs=1)
    assert not findings, "\n\n".join(map(str, findings))
    assert {direction: tally.messages for direction, tally in tallies.items()} == dict.fromkeys(DIRECTIONS, PER_DIRECTION)
    for direction, tally in tallies.items():
        assert tally.passed >= LEAST_PASSED * tally.messages, f"{direction}: only {tally.passed} messages reached the other side"


def run_against(stub: stubs.Stub, direction: str, **generators: object) -> list[Finding]:
    """One batch with these generators in place of the random ones."""

    async def go() -> list[Finding]:
        lane = Lane(SEED, stub.start, patience=1)
        for name, generator in generators.items():
            if name == "requests":
                lane.requests[direction] = generator
            else:
                setattr(lane, name, generator)
        await lane.open()
        try:
            return (await lane.run(direction, list(range(BATCH))))[0]
        finally:
            lane.close()

    return asyncio.run(go())


def kinds(findings: list[Finding]) -> set[str]:
    return {finding.kind for finding in findings}


@pytest.mark.parametrize("direction", ["http1-requests", "http1-responses"])
def test_strict_stub_passes(direction: str) -> None:
    findings = run_against(stubs.Stub(), direction)
    assert not findings, "\n\n".join(map(str, findings))


def clean(rng: random.Random, tag: bytes) -> bytes:
    del rng
    return b"GET /f/" + tag + b" HTTP/1.1\r\nhost: site.example\r\nx-id: " + tag + b"\r\n\r\n"


def two_lengths(rng: random.Random, tag: bytes) -> bytes:
    del rng
    hidden = b"GET /hidden/" + tag + b" HTTP/1.1\r\nhost: a\r\n\r\n"
    lengths = b"content-length: 0\r\ncontent-length: %d\r\n" % len(hidden)
    return b"POST /f/" + tag + b" HTTP/1.1\r\nhost: site.example\r\nx-id: " + tag + b"\r\n" + lengths + b"\r\n" + hidden


def length_and_coding(rng: random.Random, tag: bytes) -> bytes:
    del rng
    body = b"0\r\n\r\nGET /hidden/" + tag + b" HTTP/1.1\r\nhost: a\r\n\r\n"
    framing = b"content-length: %d\r\ntransfer-encoding: chunked\r\n" % len(body)
    return b"POST /f/" + tag + b" HTTP/1.1\r\nhost: site.example\r\n" + framing + b"\r\n" + body


def line_in_a_value(rng: random.Random, tag: bytes) -> bytes:
    del rng
    fields = request(b"GET", b"/f/" + tag, (b"x-a", b"1\r\n\r\nGET /hidden/" + tag + b" HTTP/1.1\r\nhost: a"))
    return PREFACE + settings() + headers(1, fields)


@pytest.mark.parametrize(
    ("stub", "generator"),
    [(stubs.ForwardsUnread, length_and_coding), (stubs.ForwardsUnread, two_lengths), (stubs.MergesLengths, two_lengths)],
    ids=["unread-coding", "unread-lengths", "merged-lengths"],
)
def test_stub_that_reads_leniently_is_found_to_smuggle(stub: type[stubs.Stub], generator: object) -> None:
    assert kinds(run_against(stub(), "http1-requests", requests=generator)) & {"smuggled", "ambiguous"}


def test_random_messages_find_stub_that_reads_leniently() -> None:
    assert kinds(run_against(stubs.ForwardsUnread(), "http1-requests")) & {"smuggled", "ambiguous"}


def test_stub_that_writes_http2_fields_unread_is_found_to_smuggle() -> None:
    assert "smuggled" in kinds(run_against(stubs.WritesFieldsUnread(), "http2-requests", requests=line_in_a_value))


def test_stub_that_swaps_answers_is_found_to_cross() -> None:
    assert "crossed" in kinds(run_against(stubs.SwapsAnswers(), "http1-requests", requests=clean))


def surplus(rng: random.Random, tag: bytes) -> tuple[bytes, bool]:
    del rng
    one = b"HTTP/1.1 200 OK\r\nx-of: %s\r\ncontent-length: 2\r\n\r\nok"
    return one % tag + one % b"hidden", False


def cut_off(rng: random.Random, tag: bytes) -> tuple[bytes, bool]:
    del rng
    return b"HTTP/1.1 200 OK\r\nx-of: " + tag + b"\r\ncontent-length: 10\r\n\r\nhalf", True


def test_stub_that_keeps_leftovers_is_found_to_cross() -> None:
    assert kinds(run_against(stubs.KeepsLeftovers(), "http1-responses", http1_response=surplus)) & {"crossed", "split"}


def test_stub_that_trusts_ends_is_found_to_split() -> None:
    assert "split" in kinds(run_against(stubs.TrustsEnds(), "http1-responses", http1_response=cut_off))


# Responses over HTTP/2 that h2 accepts and the proxy once passed on.
MALFORMED: dict[str, tuple[Fields, bytes, Fields | None]] = {
    "two-lengths": ([(b":status", b"200"), (b"content-length", b"2"), (b"content-length", b"2")], b"ok", None),
    "empty-length": ([(b":status", b"200"), (b"content-length", b"")], b"ok", None),
    "length-of-2-to-63": ([(b":status", b"200"), (b"content-length", b"9223372036854775808")], b"", None),
    "quote-in-name": ([(b":status", b"200"), (b'x"', b"1")], b"ok", None),
    "blank-around-value": ([(b":status", b"200"), (b"x-a", b" 1")], b"ok", None),
    "body-of-204": ([(b":status", b"204")], b"body", None),
    "body-of-304": ([(b":status", b"304")], b"body", None),
    "quote-in-trailer": ([(b":status", b"200")], b"ok", [(b'x"', b"1")]),
    "empty-length-in-trailer": ([(b":status", b"200")], b"ok", [(b"content-length", b"")]),
    "blank-around-trailer": ([(b":status", b"200")], b"ok", [(b"x-a", b"1 ")]),
}


@pytest.mark.parametrize("client", ["http1", "http2"])
@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_http2_response_is_not_passed_on(fleet: Fleet, name: str, client: str) -> None:
    fields, body, trailers = MALFORMED[name]

    def response(rng: random.Random, tag: bytes, stream: int) -> bytes:
        del rng
        head = frame(HEADERS, END_HEADERS, stream, block([*fields, (b"x-of", tag)]))
        content = data(stream, body, end=trailers is None)
        return head + content + (headers(stream, trailers) if trailers is not None else b"")

    async def go() -> list[Finding]:
        lane = Lane(SEED, start_proxy(fleet))
        lane.http2_response = response
        await lane.open()
        try:
            first = BATCH if client == "http2" else 0
            return (await lane.run("http2-responses", [first, first + 1, first + 2]))[0]
        finally:
            lane.close()

    findings = asyncio.run(go())
    assert not findings, "\n\n".join(map(str, findings))


@pytest.mark.parametrize(
    ("sent", "bodies", "fault"),
    [
        (b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", [b""], False),
        (b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nokGET / HTTP/1.1\r\nhost: a\r\n\r\n", [b"ok", b""], False),
        (b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n2;x\r\nok\r\n0\r\n\r\n", [b"ok"], False),
        (b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\nok", [], True),
        (b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", [], True),
        (b"GET / HTTP/1.1\nhost: a\n\n", [], True),
        (b"GET / HTTP/1.1\r\nhost : a\r\n\r\n", [], True),
        (b"GET / HTTP/1.1\r\nhost: a\r\nx: 1\r\n 2\r\n\r\n", [], True),
        (b"GET /#a HTTP/1.1\r\nhost: a\r\n\r\n", [], True),
    ],
)
def test_strict_parser_reads_http1_requests(sent: bytes, bodies: list[bytes], fault: bool) -> None:
    reading = strict_http1.read_requests(sent)
    assert [message.body for message in reading.messages] == bodies
    assert bool(reading.fault) == fault


def test_strict_parser_reads_http2_requests() -> None:
    reader = strict_http2.Reader()
    bad = request(b"GET", b"/b", (b"X-Upper", b"1"))
    reader.feed(PREFACE + settings() + headers(1, request(b"POST", b"/a"), end=False) + frame(DATA, END_STREAM, 1, b"ok"))
    reader.feed(headers(3, bad) + headers(5, request(b"GET", b"/c"))[:-3])
    assert reader.completed == [1] and isinstance(reader.streams[1].message, Request)
    assert (reader.streams[1].message.target, reader.streams[1].message.body) == (b"/a", b"ok")
    assert reader.streams[3].malformed and 5 not in reader.streams and not reader.fault
