"""Inference servers report load on request, and under names of their own: they are balanced by it (docs/inference.md)."""

import json
import pathlib
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness.fleet import Fleet, Proxy, http
from harness.http1 import Connection, Message, answer
from harness.process import Process, free_port, wait_until

REPORTS = """
[clusters.main.load_reports]
utilization = ["named_metrics.kv_cache_usage_perc"]
"""
# Weights within the time of a test.
SOON = """
[clusters.main.weighted]
blackout = "off"
update = "200ms"
"""
TOKENS = 16
CLIENTS = 12
# By policy: requests until weights have moved, and requests that are counted.
PARTS = {"round-robin": (0, 100), "weighted": (250, 250)}


class InferenceServer(Process):
    """`xpyd-sim` with the load report of vLLM."""

    def __init__(self, fleet: Fleet, decode_ms: float):
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        script = pathlib.Path(__file__).parent / "harness" / "inference.py"
        command = [sys.executable, str(script), "--port", str(self.port), "--decode-ms", str(decode_ms)]
        super().__init__(f"inference-{self.port}", command, fleet.directory)
        self.wait_for_port(self.port)

    def counts(self) -> dict[str, int]:
        return json.loads(http(f"http://{self.address}/harness/counts")[1])


def complete(proxy: Proxy) -> str:
    """One chat completion of `TOKENS` tokens."""
    body = {"model": "dummy", "messages": [{"role": "user", "content": "hello"}], "max_tokens": TOKENS}
    headers = {"content-type": "application/json"}
    url = proxy.url + "/v1/chat/completions"
    status, text = http(url, "POST", json.dumps(body).encode(), timeout=30, headers=headers)
    assert status == 200, text
    return text


def complete_many(proxy: Proxy, count: int) -> None:
    """Completions by `CLIENTS` users, each with one request after the other."""
    with ThreadPoolExecutor(CLIENTS) as users:
        for done in [users.submit(complete, proxy) for _ in range(count)]:
            done.result()


class Seen:
    """A backend that keeps heads of requests and answers with a report."""

    def __init__(self, fleet: Fleet, report: str):
        self.heads: list[Message] = []
        self.report = report
        self.address = fleet.origin(self.handle)

    def handle(self, connection: Connection, message: Message) -> None:
        self.heads.append(message)
        answer(connection, fields=f"endpoint-load-metrics: {self.report}\r\n")


@pytest.mark.parametrize(
    ("settings", "asked"),
    [
        ("", None),
        ('[clusters.main.load_reports]\nrequest = "json"', "json"),
        (REPORTS, "text"),
        (REPORTS + 'request = "off"', None),
    ],
)
def test_report_is_requested_as_configured_and_ends_at_the_proxy(fleet: Fleet, settings: str, asked: str | None) -> None:
    backend = Seen(fleet, "TEXT named_metrics.kv_cache_usage_perc=0.25, cpu_utilization=0.5")
    proxy = fleet.proxy([backend.address], further=settings)
    with Connection.to(proxy.port) as client:
        for fields in ("", "endpoint-load-metrics-format: BIN\r\nendpoint-load-metrics-format: TEXT\r\n"):
            response = client.request("/", fields=fields)
            assert (response.status, response.get("endpoint-load-metrics")) == (200, None)
    assert [head.all("endpoint-load-metrics-format") for head in backend.heads] == [[asked] if asked else []] * 2
    assert used(proxy) == (0.25 if "named_metrics" in settings else 0.5)


@pytest.mark.parametrize("report", ["named_metrics.kv_cache_usage_perc=0.25", '{"named_metrics":{"kv_cache_usage_perc":0.25}}'])
def test_report_without_the_word_of_its_format_is_read(fleet: Fleet, report: str) -> None:
    proxy = fleet.proxy([Seen(fleet, report).address], further=REPORTS)
    with Connection.to(proxy.port) as client:
        assert client.request("/").status == 200
    assert used(proxy) == 0.25
    assert proxy.admin.metric("plimsoll_malformed_load_reports_total") == 0


def test_servers_are_balanced_by_their_own_reports(fleet: Fleet) -> None:
    fast, slow = InferenceServer(fleet, decode_ms=4), InferenceServer(fleet, decode_ms=16)
    shares = {}
    for policy, (first, counted) in PARTS.items():
        cluster = f'policy = "{policy}"'
        proxy = fleet.proxy([fast.address, slow.address], cluster=cluster, further=REPORTS + SOON)
        proxy.admin.wait_for_healthy(2)
        complete_many(proxy, first)
        before = [server.counts() for server in (fast, slow)]
        complete_many(proxy, counted)
        after = [server.counts() for server in (fast, slow)]
        counts = [now["completions"] - then["completions"] for now, then in zip(after, before, strict=True)]
        shares[policy] = counts[1] / sum(counts)
        assert all(now["asked"] == now["completions"] for now in after), "each request asks"
        proxy.stop()
    # A request stays at the slow server four times as long, so equal shares keep its cache four times as full. Equal
    # usage is a fifth of the requests there. Weights approach it with a half-life of 10 s: runs had 0.33 and 0.36.
    assert shares["round-robin"] == 0.5, shares
    assert 0.1 < shares["weighted"] < 0.43, shares


def begin_stream(proxy: Proxy) -> Connection:
    """A stream whose head has come."""
    client = Connection.to(proxy.port)
    body = {"model": "dummy", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 100, "stream": True}
    body = json.dumps(body).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: site.example\r\ncontent-type: application/json\r\n"
    client.send(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    assert client.read_head().status == 200
    return client


def test_report_of_a_stream_counts_with_its_head(fleet: Fleet) -> None:
    server = InferenceServer(fleet, decode_ms=30)
    proxy = fleet.proxy([server.address], further=REPORTS)
    proxy.admin.wait_for_healthy(1)
    with begin_stream(proxy) as first:
        assert first.read_chunk(), "it holds tokens from now on"
        # Some three seconds: the rest of the first stream.
        with begin_stream(proxy) as second:
            wait_until("a report of tokens in use", lambda: (used(proxy) or 0) > 0)
            chunks = 0
            while first.read_chunk():
                chunks += 1
            assert chunks > 10, "the first stream was still under way"
            while second.read_chunk():
                pass
    assert server.counts() == {"completions": 2, "asked": 2}


def used(proxy: Proxy) -> float | None:
    """The utilization of the only backend, as reported."""
    (row,) = proxy.admin.backends().values()
    return row.get("utilization")
