"""The live page of `plimsoll quota`: its figures, its stream and its files."""

import contextlib
import json
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from harness.fleet import Fleet, QuotaServer, RunningLoad
from harness.process import wait_until

# Rates follow the load within some tens of milliseconds, which need a free core.
pytestmark = pytest.mark.alone

# The names of a row's figures in the API, and of metrics.
API = {"limit": "limit_cpus", "demand": "offered_cpus", "used": "used_cpus", "granted": "held_cpus"}


@contextlib.contextmanager
def stream(server: QuotaServer, query: str = "?service=default") -> Iterator[Iterator[tuple[str, dict]]]:
    """The events of a page, by name. Each comes within 5 s."""
    url = f"http://127.0.0.1:{server.admin.port}/api/v1/live/stream{query}"
    with urllib.request.urlopen(url, timeout=5) as response:

        def events() -> Iterator[tuple[str, dict]]:
            name = ""
            for line in response:
                if line.startswith(b"event: "):
                    name = line.removeprefix(b"event: ").strip().decode()
                elif line.startswith(b"data: "):
                    yield name, json.loads(line.removeprefix(b"data: "))

        yield events()


def started(fleet: Fleet) -> tuple[QuotaServer, list[str]]:
    """A server with a limit for acme, and two backends with emulated cores."""
    server = fleet.quota("--limit", "acme=0.4")
    arguments = ["--emulate", "fcfs", "--cores", "4", "--cost", "fixed:2ms", "--protect", "--quota", server.address]
    urls = [f"http://{fleet.backend(*arguments).address}/" for _ in range(2)]
    server.wait_for_tasks(2)
    return server, urls


def overload(fleet: Fleet, urls: list[str], seconds: int) -> list[RunningLoad]:
    """Acme asks for twice its limit."""
    arguments = ["--rate", "250", "--duration", f"{seconds}s", "--customers", "acme=4,web=1"]
    return [fleet.load(url, *arguments) for url in urls]


def of_api(server: QuotaServer) -> dict:
    rows = server.service()["customers"]
    return {row["customer"]: {name: row[field] for name, field in API.items()} for row in rows}


def of_metrics(server: QuotaServer) -> dict:
    def sums(metric: str, customer: str) -> float | None:
        begin = f'plimsoll_quota_{metric}{{service="default",customer="{customer}"'
        found = [float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(begin)]
        return sum(found) if found else None

    lines = server.admin.get("/metrics")[1].splitlines()
    return {name: {field: sums(metric, name) for field, metric in API.items()} for name in of_api(server)}


def test_figures_of_the_page_agree_with_the_api_and_the_metrics(fleet: Fleet) -> None:
    server, urls = started(fleet)
    running = overload(fleet, urls, 10)
    wait_until("both backends have reported", lambda: server.customer("acme")["offered_cpus"] > 0.6)

    def seen() -> tuple[dict, dict, dict, dict] | None:
        """The page and the metrics between two equal answers of the API: no task has reported meanwhile."""
        before = of_api(server)
        live, metrics, acme = server.admin.json("/api/v1/live"), of_metrics(server), server.customer("acme")
        return (live, before, metrics, acme["cut"]) if of_api(server) == before else None

    live, api, metrics, cut = wait_until("a moment without a report", seen)
    service = live["service"]
    rows = {row["name"]: row for row in service["customers"]}
    figures = {name: {field: row[field] for field in API} for name, row in rows.items()}
    assert figures == api
    assert figures.keys() == metrics.keys() and "acme" in figures
    for name, row in figures.items():
        assert row == {field: value and pytest.approx(value, rel=1e-9) for field, value in metrics[name].items()}
    acme = rows["acme"]
    assert (acme["kind"], acme["limit"], acme["soft_limit"], acme["tasks"]) == ("customer", 0.4, 0.4, 2), acme
    assert (acme["cut"], acme["cut_admitted"]) == (cut["criticality"], cut["admitted"])
    assert service["customers"][0] == acme, "most demand over its limit comes first"
    assert (service["tasks"], service["is_unsure"], service["customers_cut"]) == (2, False, 1)
    assert live["services"] == [{"name": "default", "unit": "cpus", "tasks": 2, "customers_cut": 1}]
    assert [load.result() for load in running]


def test_stream_follows_a_customer_over_its_limit_and_back(fleet: Fleet) -> None:
    server, urls = started(fleet)
    with stream(server) as events:
        name, history = next(events)
        assert (name, history["service"], history["step_s"]) == ("history", "default", 1.0)
        before = history["samples"]
        assert all(len(series) == before for series in history["series"].values())
        name, live = next(events)
        assert name == "live" and live["service"]["customers_cut"] == 0

        running = overload(fleet, urls, 6)
        cut = next(live for _, live in events if live["sample"]["customers_cut"] == 1)
        assert cut["service"]["customers"][0]["name"] == "acme"
        # The event of a second has its change too.
        told = [change for change in cut["changes"] if change["kind"] == "cut"]
        assert [(of["service"], of["subject"]) for of in told] == [("default", "acme")], cut["changes"]
        assert told[0]["text"].startswith("cut: demand ") and told[0]["text"].endswith("limit 0.4 CPUs")
        sample = next(live["sample"] for _, live in events if live["sample"]["demand"] > 0.6)
        assert sample["limit"] == pytest.approx(0.4) and sample["used"] < 0.5, sample

        calm = next(live for _, live in events if live["service"]["customers_cut"] == 0)
        assert calm["sample"]["at"] > sample["at"]
        times = [next(events)[1]["sample"]["at"] for _ in range(3)]
        assert all(0.5 < after - at < 1.9 for at, after in zip(times, times[1:], strict=False)), times
    assert [load.result() for load in running]

    # Another page begins with all of it.
    with stream(server) as events:
        name, history = next(events)
        assert name == "history" and history["samples"] > before + 6
        series = history["series"]
        assert max(series["customers_cut"]) == 1 and series["customers_cut"][-1] == 0
        assert max(series["demand"]) > 0.6 and set(series["limit"]) == {0.4}
        changes = [(of["kind"], of["subject"]) for of in next(events)[1]["changes"]]
        assert ("cut", "acme") in changes and ("tasks", "2 tasks") in changes, changes

        # An open page does not delay the end of the server.
        server.signal(signal.SIGTERM)
        draining = [live["process"]["state"] for _, live in events]
        assert "draining" in draining, draining
        assert server.wait(4) == 0


def test_limit_by_an_operator_is_told_and_a_removed_service_ends_its_stream(fleet: Fleet) -> None:
    def text(port: int, admin: int, *services: str) -> str:
        tables = "".join(f"[services.{name}.customers.acme]\nhard_limit = 1\n" for name in services)
        return f'listen = "127.0.0.1:{port}"\nadmin.listen = "127.0.0.1:{admin}"\n{tables}'

    server, path = fleet.quota_with(lambda port, admin: text(port, admin, "mail", "shop"))
    with stream(server, "?service=shop") as events:
        assert [next(events)[0] for _ in range(2)] == ["history", "live"]
        url = f"http://127.0.0.1:{server.admin.port}/api/v1/quota/shop/customers/acme/limit?for=1h"
        body = json.dumps({"hard_limit": 2.5}).encode()
        urllib.request.urlopen(urllib.request.Request(url, data=body, method="PUT"), timeout=10).close()
        live = next(live for _, live in events if live["changes"])
        (change,) = live["changes"]
        assert (change["kind"], change["service"], change["subject"]) == ("override", "shop", "acme")
        assert change["text"] == "limit 2.5 CPUs for 1h"
        assert live["service"]["customers"][0]["limit"] == 2.5

        path.write_text(text(server.port, server.admin.port, "mail"))
        server.signal(signal.SIGHUP)
        # The stream ends by itself: else the next event would come too late.
        assert all(name == "live" for name, _ in events)
    with pytest.raises(urllib.error.HTTPError) as error, stream(server, "?service=shop"):
        pass
    answer = json.load(error.value)
    assert error.value.code == 404 and answer["help"] == "GET /api/v1/quota lists them", answer


def test_browser_gets_the_page_and_curl_the_index(fleet: Fleet) -> None:
    server = fleet.quota("--limit", "acme=0.4")
    base = f"http://127.0.0.1:{server.admin.port}/"
    browser = urllib.request.Request(base, headers={"Accept": "text/html,application/xhtml+xml"})
    with urllib.request.urlopen(browser, timeout=5) as answer:
        page = answer.read().decode()
        assert answer.url == f"{base}live/" and "quota-customers" in page
        assert "default-src 'none'" in answer.headers["content-security-policy"]
    index = server.admin.get("/")[1]
    assert "/api/v1/live/stream" in index and "<html" not in index
    assert server.admin.get("/live/quota.js")[1].startswith("//")
