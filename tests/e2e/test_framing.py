"""Random valid messages between independent implementations (h11, h2), through the proxy, in every pair of versions: what is
read on one side is what was written on the other, however it is cut into chunks, frames and segments.

Hypothesis draws the messages from a fixed seed and shrinks what fails.
"""

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.exchange import BACKENDS, CLIENTS, Backend, Exchange, Message
from harness.fleet import Fleet, Proxy
from harness.process import free_port

PAIRS = list(itertools.product(CLIENTS, BACKENDS))
EXAMPLES = 60
_number = itertools.count()

names = st.from_regex(rb"x-e-[a-z0-9!#$%&'*+.^_`|~-]{1,12}", fullmatch=True)
# Visible characters at both ends, blanks and Latin-1 within.
values = st.from_regex(rb"[!-~\x80-\xff]([ -~\t\x80-\xff]{0,40}[!-~\x80-\xff])?|", fullmatch=True)
fields = st.lists(st.tuples(names, values), max_size=6)
trailers = st.lists(st.tuples(names, values), max_size=3)
targets = st.from_regex(
    rb"/[A-Za-z0-9._~!$&'()*+,;=:@%/-]{0,60}(\?[A-Za-z0-9._~!$&'()*+,;=:@%/?-]{0,40})?", fullmatch=True
).filter(
    # Percent signs stand before two digits; what stands there otherwise is in the table of malformed requests.
    lambda target: b"%" not in target
)
methods = st.sampled_from([b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"BREW"])
bodies = st.one_of(
    st.lists(st.binary(min_size=1, max_size=200), max_size=6),
    st.lists(st.integers(1, 40_000).map(lambda size: bytes(range(256)) * (size // 256 + 1)), min_size=1, max_size=3),
)


@st.composite
def exchanges(draw: st.DrawFn) -> Exchange:
    method = draw(methods)
    # A body of GET or HEAD means nothing, and may be refused.
    pieces = [] if method in (b"GET", b"HEAD", b"DELETE") else draw(bodies)
    chunked = bool(pieces) and draw(st.booleans())
    request = Message((method, draw(targets)), draw(fields), pieces, draw(trailers) if chunked else [])
    status = draw(st.sampled_from([b"200", b"201", b"204", b"206", b"299", b"302", b"304", b"404", b"418", b"500"]))
    framing = draw(st.sampled_from(["length", "chunked", "close"]))
    answer = Message(
        (status,),
        draw(fields),
        draw(bodies),
        draw(trailers) if framing == "chunked" else [],
        draw(st.sampled_from([[], [103], [103, 103]])),
    )
    return Exchange(request, answer, chunked, framing, draw(st.lists(st.integers(1, 300), min_size=1, max_size=4)))


class Pair:
    """A proxy and its backend, for clients of one version."""

    def __init__(self, fleet: Fleet, client: str, backend: str):
        self.backend = Backend(free_port(), BACKENDS[backend])
        self.run = CLIENTS[client]
        # A 500 is an answer like others here.
        outliers = '[clusters.main.outlier]\nconsecutive_failures = "off"\nsuccess_rate_stdev = "off"'
        self.proxy: Proxy = fleet.proxy([self.backend.address], cluster=f'protocol = "{backend}"', further=outliers)
        self.proxy.admin.wait_for_healthy(1)
        self.versions = (client, backend)

    def play(self, batch: list[Exchange]) -> None:
        named = {b"e%d" % next(_number): exchange for exchange in batch}
        self.backend.planned |= named
        answers = self.run(self.proxy.port, named)
        assert self.backend.problems == []
        for name, exchange in named.items():
            if "http2" in self.versions:
                # Over HTTP/2 interim answers are dropped, see `test_interim`; lengths are not changed by it.
                answers[name].interim = exchange.answer.interim
            check(exchange, self.backend.received[name], answers[name])
        assert self.proxy.exit_code is None


@pytest.fixture(scope="module", params=PAIRS, ids=lambda pair: "-to-".join(pair))
def pair(request: pytest.FixtureRequest, module_fleet: Fleet) -> Iterator[Pair]:
    pair = Pair(module_fleet, *request.param)
    yield pair
    pair.backend.stop()


def in_order(fields: list[tuple[bytes, bytes]]) -> dict[bytes, list[bytes]]:
    """Values by name: the order of fields of different names means nothing (RFC 9110, 5.3)."""
    grouped: dict[bytes, list[bytes]] = {}
    for name, value in fields:
        grouped.setdefault(name, []).append(value)
    return grouped


def check(exchange: Exchange, received: Message, answer: Message) -> None:
    request = exchange.request
    assert received.start == request.start
    assert in_order(received.ours()) == in_order(request.ours())
    assert received.body == request.body
    assert in_order(received.trailers) == in_order(request.trailers)
    assert answer.start == exchange.answer.start
    assert answer.interim == exchange.answer.interim
    assert in_order(answer.ours()) == in_order(exchange.answer.ours())
    assert answer.body == (exchange.answer.body if exchange.has_body else b"")
    assert in_order(answer.trailers) == in_order(exchange.answer.trailers if exchange.has_body else [])


bounded = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


@bounded
@given(batch=st.lists(exchanges(), min_size=1, max_size=4))
def test_what_is_written_on_one_side_is_read_on_the_other(pair: Pair, batch: list[Exchange]) -> None:
    pair.play(batch)


def test_large_bodies_both_ways(pair: Pair) -> None:
    block = bytes(range(256)) * 256
    pieces = [block] * 128
    request = Message((b"POST", b"/large"), [], pieces)
    for chunked, framing in ((False, "length"), (True, "chunked")):
        answer = Message((b"200",), [], pieces)
        pair.play([Exchange(request, answer, chunked, framing, [1 << 20])])
