"""The admin port: probes, metrics that other programs can parse, and the JSON API."""

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from harness.fleet import Fleet, Proxy
from harness.process import free_port, wait_until

# What dashboards and people rely on for each backend.
FIELDS = {"address", "state", "reason", "in_flight", "weight", "qps", "eps", "utilization", "latency_ms"}


def samples(proxy: Proxy) -> dict[str, list[tuple[dict[str, str], float]]]:
    status, text = proxy.admin.get("/metrics")
    assert status == 200
    parse = parse_openmetrics if text.rstrip().endswith("# EOF") else parse_text
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in parse(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_metrics_parse_and_count_every_request(fleet: Fleet) -> None:
    addresses = [fleet.backend().address for _ in range(2)]
    proxy = fleet.proxy_to(addresses)
    proxy.admin.wait_for_healthy(2)
    assert fleet.load_now(proxy.url, "--requests", "500").failed == 0
    found = samples(proxy)
    assert all(name.startswith("plimsoll_") for name in found), sorted(found)
    requests = [value for name in found if name.endswith("requests_total") for _, value in found[name]]
    assert sum(requests) == 500, {name: found[name] for name in found if "requests" in name}


def test_ready_only_with_a_backend_to_send_to(fleet: Fleet) -> None:
    proxy = fleet.proxy_to([fleet.nginx()])
    wait_until("ready", lambda: proxy.admin.get("/readyz")[0] == 200)
    assert proxy.admin.get("/healthz")[0] == 200
    alone = fleet.proxy_to([f"127.0.0.1:{free_port()}"])
    alone.admin.wait_for_state(next(iter(alone.admin.states())), "refusing")
    status, text = alone.admin.get("/readyz")
    assert status == 503 and "starting" in text, text
    assert alone.admin.get("/healthz")[0] == 200


def test_backends_are_described(fleet: Fleet) -> None:
    reporting = fleet.backend("--report", "utilization=.5,rps=100").address
    gone = f"127.0.0.1:{free_port()}"
    proxy = fleet.proxy_to([reporting, gone])
    proxy.admin.wait_for_state(reporting, "healthy")
    fleet.load_now(proxy.url, "--requests", "100")
    rows = proxy.admin.backends()
    assert set(rows) == {reporting, gone}
    for row in rows.values():
        assert FIELDS <= set(row), FIELDS - set(row)
    assert rows[reporting]["requests"] == 100
    assert abs(rows[reporting]["utilization"] - 0.5) < 0.01
    assert rows[gone]["state"] in ("refusing", "connecting")
    assert rows[gone]["requests"] == 0
    (cluster,) = proxy.admin.clusters()
    assert {"name", "policy", "spread", "waste"} <= set(cluster), cluster


def test_unknown_things_are_404_with_a_reason(fleet: Fleet) -> None:
    proxy = fleet.proxy_to([fleet.nginx()])
    cluster = proxy.admin.only_cluster()
    for status, text in (
        proxy.admin.get("/api/v1/clusters/nothing/backends"),
        proxy.admin.post(f"/api/v1/clusters/{cluster}/backends/127.0.0.1:1/drain"),
    ):
        assert status == 404 and "error" in text, text
    assert proxy.admin.get("/nothing")[0] == 404
    assert proxy.admin.get(f"/api/v1/clusters/{cluster}/backends/127.0.0.1:1/drain")[0] == 405
