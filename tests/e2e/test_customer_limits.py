"""Customers that are kept within their limits, by a backend itself and by the proxy beside it."""

import contextlib
import json
import urllib.error
import urllib.request

import grpc
import pytest

from harness.fleet import PLIMSOLL, Backend, Fleet, Proxy, http
from harness.process import run, wait_until
from harness.rpc import work

pytestmark = pytest.mark.alone

CRAWLER, SHOP = {"x-customer": "crawler"}, {"x-customer": "shop"}
# Any failure may be tried again, as far as the client's own policy goes.
RETRIES = {
    "methodConfig": [
        {
            "name": [{}],
            "retryPolicy": {
                "maxAttempts": 5,
                "initialBackoff": "0.01s",
                "maxBackoff": "0.01s",
                "backoffMultiplier": 1,
                "retryableStatusCodes": ["RESOURCE_EXHAUSTED", "UNAVAILABLE"],
            },
        }
    ]
}


def limited_backend(fleet: Fleet) -> Backend:
    """A crawler gets nothing, everybody else what there is."""
    return fleet.backend("--protect", "--customer-limit", "crawler=0", "--cost", "fixed:1ms")


def limited_proxy(fleet: Fleet) -> Proxy:
    """The same, by the proxy beside a backend that knows nothing of it."""
    backend = fleet.backend("--cost", "fixed:1ms")
    limits = f"[clusters.main.inbound]\npid = {backend.pid}\ncpus = 1.0\n[customers.crawler]\nhard_limit = 0\n"
    proxy = fleet.proxy([backend.address], listener='customer_header = "x-customer"', further=limits)
    proxy.admin.wait_for_healthy(1)
    seen = lambda: proxy.admin.metric("plimsoll_inbound_process_seen", cluster="main") == 1  # noqa: E731
    wait_until("the process is seen", seen)
    return proxy


def refused(url: str) -> urllib.error.HTTPError:
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(urllib.request.Request(url, headers=CRAWLER), timeout=5)
    return caught.value


@pytest.mark.parametrize("where", ["library", "proxy"])
def test_who_is_over_its_limit_is_told_when_to_come_again_and_nobody_else_notices(fleet: Fleet, where: str) -> None:
    url = f"http://{limited_backend(fleet).address}/" if where == "library" else limited_proxy(fleet).url
    waits = set()
    for _ in range(20):
        with contextlib.closing(refused(url)) as answer:
            assert answer.code == 429 and answer.headers["x-plimsoll-shed"].startswith("reason=quota, retry=after")
            waits.add(int(answer.headers["retry-after"]))
        assert http(url, headers=SHOP)[0] == 200
        assert http(url)[0] == 200
    assert min(waits) >= 1 and len(waits) > 1, "a crowd that is told to wait does not come again at once"


def test_shed_customer_is_found_in_log_report_explain_and_metrics(fleet: Fleet) -> None:
    # It measures what a request costs, and reports it.
    backend = fleet.backend("--protect", "--cost", "fixed:1ms")
    log = fleet.directory / "access.log"
    further = (
        f"[clusters.main.inbound]\npid = {backend.pid}\ncpus = 1.0\n[customers.crawler]\nhard_limit = 0\n"
        f'[access_log]\npath = "{log}"\nformat = "json"\n'
    )
    listener = 'customer_header = "x-customer"\ntrust_criticality = "critical-plus"'
    proxy = fleet.proxy([backend.address], listener=listener, further=further)
    proxy.admin.wait_for_healthy(1)
    wait_until("the process is seen", lambda: proxy.admin.metric("plimsoll_inbound_process_seen", cluster="main") == 1)
    with contextlib.closing(refused(proxy.url)) as answer:
        request_id = answer.headers["x-request-id"]
    assert http(proxy.url, headers={**SHOP, "x-criticality": "sheddable-plus", "x-request-id": "shop-1"})[0] == 200
    assert http(proxy.url)[0] == 200

    lines = lambda: [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []  # noqa: E731
    wait_until("all are logged", lambda: len(lines()) == 3)
    shed, served, nameless = lines()
    assert (shed["status"], shed["reason"], shed["request_id"]) == (429, "quota", request_id)
    assert (shed["customer"], shed["criticality"], shed["attempts"]) == ("crawler", "critical", 0)
    assert shed["expected_cpu_s"] > 0 and "used_cpu_s" not in shed
    assert (served["customer"], served["criticality"], served["attempts"]) == ("shop", "sheddable-plus", 1)
    assert served["request_id"] == "shop-1" and served["expected_cpu_s"] > 0 and served["used_cpu_s"] > 0, served
    assert "customer" not in nameless and nameless["attempts"] == 1

    address = proxy.admin.url.removeprefix("http://")
    told = run([PLIMSOLL, "explain", "--admin", address, request_id], 20).stdout
    assert "quota: the customer uses 0 of 0 CPUs" in told.replace("0.0 of 0.0", "0 of 0"), told
    (cluster,) = proxy.admin.json("/api/v1/throttling")["clusters"]
    customers = {customer["name"]: customer for customer in cluster["customers"]}
    crawler = customers["crawler"]
    assert crawler["hard_limit_cpus"] == 0 and crawler["used_cpus"] == 0 and crawler["shed"]["quota"] > 0, crawler
    assert customers["shop"]["hard_limit_cpus"] is None and customers["shop"]["used_cpus"] > 0, customers

    def counted(customer: str, decision: str) -> float:
        return proxy.admin.metric("plimsoll_customer_requests_total", cluster="main", customer=customer, decision=decision)

    assert (counted("crawler", "quota"), counted("crawler", "admitted"), counted("other", "admitted")) == (1, 0, 2)
    text = proxy.admin.get("/metrics")[1]
    assert 'customer="shop"' not in text, "only customers of the file have series"


def test_a_limit_is_kept_while_there_is_room_for_more(fleet: Fleet) -> None:
    backend = fleet.backend("--protect", "--customer-limit", "crawler=0.1", "--cost", "fixed:2ms", "--cores", "1")
    asked = ["--rate", "200", "--criticality", "critical=100", "-H", "x-customer: crawler", "--warmup", "2s", "--duration", "5s"]
    counted = fleet.load_now(f"http://{backend.address}/", *asked)
    # A tenth of a core is fifty requests a second, less what serving takes beside them.
    group = counted.raw["groups"]["by_criticality"]["critical"]
    assert 0.05 * group["requests"] < group["ok"] < 0.27 * group["requests"], group
    assert group["ok"] + group["shed"] == group["requests"], group


def test_grpcio_does_not_try_again_what_is_over_a_limit(fleet: Fleet) -> None:
    backend = limited_backend(fleet)
    proxy = fleet.proxy([backend.address], cluster='protocol = "http2"')
    before = proxy.admin.metric("plimsoll_requests_total")
    options = [("grpc.service_config", json.dumps(RETRIES))]
    with grpc.insecure_channel(f"127.0.0.1:{proxy.port}", options=options) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            work(channel)(b"x", timeout=30, metadata=tuple(CRAWLER.items()))
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert work(channel)(b"x", timeout=30, metadata=tuple(SHOP.items())) == b"x"
    # One of each.
    wait_until("both are counted", lambda: proxy.admin.metric("plimsoll_requests_total") - before == 2)
