"""Limits of customers over several backends, by `plimsoll quota`."""

import json
import signal
import struct
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from harness.fleet import PLIMSOLL, Backend, Fleet, Load, QuotaServer, RunningLoad
from harness.process import run, wait_until

# Rates follow the load within some tens of milliseconds, which need a free core.
pytestmark = pytest.mark.alone

JOIN = "/plimsoll.quota.v1.Quota/Join"
# CPU-seconds of a request.
COST = 0.002
# The bound in docs/quotas.md over 6 s, for a limit of 0.4 CPUs and two tasks: L + (0.6 s · L + 22 · COST) / 6 s.
MOST_IN_6 = 0.4 + (0.6 * 0.4 + 22 * COST) / 6


def backends(fleet: Fleet, server: QuotaServer, count: int) -> list[Backend]:
    """Backends with emulated cores: a request costs the same on any machine, and no CPU."""
    arguments = ["--emulate", "fcfs", "--cores", "4", "--cost", "fixed:2ms", "--protect", "--quota", server.address]
    return [fleet.backend(*arguments) for _ in range(count)]


def load(fleet: Fleet, backend: Backend, rate: int, seconds: int, *more: str) -> RunningLoad:
    arguments = ["--rate", str(rate), "--duration", f"{seconds}s", *more]
    return fleet.load(f"http://{backend.address}/", *arguments)


def used(loads: list[Load], customer: str, seconds: float) -> float:
    """CPUs of a customer over all backends."""
    return sum(of.raw["groups"]["by_customer"][customer]["ok"] for of in loads) * COST / seconds


def shed(loads: list[Load], customer: str) -> float:
    """The part of a customer's requests that was not answered well."""
    groups = [of.raw["groups"]["by_customer"][customer] for of in loads if customer in of.raw["groups"]["by_customer"]]
    return 1 - sum(group["ok"] for group in groups) / sum(group["requests"] for group in groups)


def request(url: str, method: str = "GET", body: dict | None = None) -> tuple[int, dict]:
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data=data, method=method), timeout=50) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_customer_has_its_limit_over_all_backends_and_others_notice_nothing(fleet: Fleet) -> None:
    server = fleet.quota("--limit", "acme=0.4")
    some = backends(fleet, server, 2)
    server.wait_for_tasks(2)
    # Acme asks for 0.8 CPUs, four fifths of it at one backend, and has half of that.
    mixes = [(some[0], 400, "acme=4,web=1"), (some[1], 160, "acme=1,web=1")]
    warm = [load(fleet, backend, rate, 4, "--customers", mix) for backend, rate, mix in mixes]
    [each.result() for each in warm]
    loads = [load(fleet, backend, rate, 7, "--customers", mix) for backend, rate, mix in mixes]
    wait_until("the cut is known", lambda: server.customer("acme")["cut"])
    results = [each.result() for each in loads]
    # The requests of ten seconds are 2,000; five standard deviations of the offered load are a tenth.
    assert 0.36 < used(results, "acme", 7) < 0.42, used(results, "acme", 7)
    assert shed(results, "web") == 0
    state = server.customer("acme")
    assert state["cut"]["criticality"] == "critical" and 0.3 < state["cut"]["admitted"] < 0.7, state
    assert state["held_cpus"] <= 0.4 and state["tasks"] == 2, state
    rates = sorted(task["held_cpus"] for task in state["holders"])
    assert rates[1] > 2 * rates[0], "the rate follows the load"


def test_less_critical_requests_are_refused_first_at_every_backend(fleet: Fleet) -> None:
    server = fleet.quota("--limit", "acme=0.4")
    some = backends(fleet, server, 2)
    server.wait_for_tasks(2)
    # Critical load of 0.32 CPUs fits, with all of it at one backend.
    customer = ["-H", "x-customer: acme"]
    mixes = [(some[0], 160, "critical=1"), (some[1], 300, "sheddable=1")]
    more = ["--warmup", "4s", *customer]
    loads = [load(fleet, backend, rate, 7, "--criticality", mix, *more) for backend, rate, mix in mixes]
    critical, sheddable = (each.result() for each in loads)
    # None is expected: bursts of a loaded machine are admitted up to half a second of the rate.
    assert critical.failed / critical.requests < 0.01, (critical.raw["groups"]["by_criticality"], critical.raw["send_lag_ms"])
    assert sheddable.failed / sheddable.requests > 0.6, sheddable.raw["groups"]["by_criticality"]


def test_customer_of_one_backend_has_the_share_of_one_at_all(fleet: Fleet) -> None:
    limits = "[services.default.customers]\nfew = { soft_limit = 1 }\nall = { soft_limit = 1 }\n"
    server, _ = fleet.quota_with(lambda port, admin: text(port, admin, limits))
    arguments = ["--emulate", "fcfs", "--cost", "fixed:2ms", "--protect", "--quota", server.address]
    some = [fleet.backend(*arguments) for _ in range(3)]
    server.wait_for_tasks(3)
    # Each of the three cores can do 500 requests a second. Both ask the first for that, and one of them all.
    mixes = [(some[0], 1000, "few=1,all=1"), (some[1], 500, "all=1"), (some[2], 500, "all=1")]
    [each.result() for each in [load(fleet, backend, rate, 4, "--customers", mix) for backend, rate, mix in mixes]]
    first, *others = [load(fleet, backend, rate, 6, "--customers", mix) for backend, rate, mix in mixes]
    groups = first.result().raw["groups"]["by_customer"]
    few, every = (groups[name]["ok"] / groups[name]["requests"] for name in ("few", "all"))
    # Three quarters and one, of a core less 2%; admission favours the lighter one by a tenth. With shares of this
    # backend alone both had half.
    assert 0.65 < few < 0.88 and 0.12 < every < 0.33, groups
    assert all(of.failed / of.requests < 0.08 for of in (other.result() for other in others)), others
    assert server.customer("few")["soft_limit_cpus"] == 1 and server.customer("few")["limit_cpus"] is None


def test_requests_go_on_without_the_server_and_limits_hold_by_leases(fleet: Fleet) -> None:
    server = fleet.quota("--limit", "acme=0.4")
    some = backends(fleet, server, 2)
    server.wait_for_tasks(2)
    mixes = [(some[0], 400, "acme=4,web=1"), (some[1], 160, "acme=1,web=1")]
    [each.result() for each in [load(fleet, backend, rate, 4, "--customers", mix) for backend, rate, mix in mixes]]
    server.kill()
    loads = [load(fleet, backend, rate, 6, "--customers", mix) for backend, rate, mix in mixes]
    results = [each.result() for each in loads]
    assert 0.34 < used(results, "acme", 6) < MOST_IN_6, used(results, "acme", 6)
    assert shed(results, "web") == 0, "no request fails for lack of a server"
    assert "quota server unreachable" in some[0].output()

    server = fleet.quota_again(server)
    server.wait_for_tasks(2)
    loads = [load(fleet, backend, rate, 6, "--customers", mix) for backend, rate, mix in mixes]
    results = [each.result() for each in loads]
    assert 0.34 < used(results, "acme", 6) < MOST_IN_6 and shed(results, "web") == 0


def test_backend_without_a_server_refuses_nothing(fleet: Fleet) -> None:
    server = fleet.quota("--limit", "acme=0")
    server.kill()
    (backend,) = backends(fleet, server, 1)
    assert load(fleet, backend, 100, 1, "--customers", "acme=1").result().failed == 0
    server = fleet.quota_again(server)
    server.wait_for_tasks(1)
    counted = load(fleet, backend, 100, 1, "--customers", "acme=1").result()
    assert counted.failed == counted.requests, "a limit of zero refuses all"


def test_sidecar_shares_the_limit_and_explains_a_refusal(fleet: Fleet) -> None:
    server = fleet.quota("--limit", "acme=0.1")
    backend = fleet.backend("--cost", "fixed:2ms")
    further = f"""
[clusters.main.inbound]
pid = {backend.pid}
cpus = 1.0
[quota]
servers = ["{server.address}"]
service = "default"
"""
    proxy = fleet.proxy([backend.address], listener='customer_header = "x-customer"', further=further)
    proxy.admin.wait_for_healthy(1)
    wait_until("the process is seen", lambda: proxy.admin.metric("plimsoll_inbound_process_seen", cluster="main") == 1)
    server.wait_for_tasks(1)
    arguments = ["--rate", "150", "--duration", "4s", "--customers", "acme=2,web=1"]
    fleet.load_now(proxy.url, *arguments)
    groups = fleet.load_now(proxy.url, *arguments).raw["groups"]["by_customer"]
    # Acme asks for 0.2 CPUs, and what serving takes beside them.
    assert 0.2 < groups["acme"]["ok"] / groups["acme"]["requests"] < 0.6, groups
    assert groups["web"]["ok"] == groups["web"]["requests"], groups
    ask = [PLIMSOLL, "explain", "--admin", proxy.admin.url.removeprefix("http://")]
    refused_id = json.loads(run([*ask, "--reason", "quota", "--customer", "acme", "--json"], 20).stdout)["requests"][0]["id"]
    told = run([*ask, refused_id], 20).stdout
    assert "quota: limit over the fleet: " in told and "of 0.1 CPUs" in told, told
    (cluster,) = proxy.admin.json("/api/v1/throttling")["clusters"]
    acme, web = ({of["name"]: of for of in cluster["customers"]}[name] for name in ("acme", "web"))
    assert acme["fleet_limit_cpus"] == 0.1 and 0 < acme["fleet_used_cpus"] < 0.13 and acme["fleet_rate_cpus"] <= 0.1, acme
    assert "fleet_limit_cpus" not in web, web

    # Without the table there is no limit over the fleet.
    path = next(fleet.directory.glob("plimsoll-*.toml"))
    path.write_text(path.read_text().split("[quota]")[0])
    proxy.signal(signal.SIGHUP)
    wait_until("the reload", lambda: "config reloaded" in proxy.output())
    wait_until("it has left", lambda: not any(task["connected"] for task in server.service()["instances"]))
    assert fleet.load_now(proxy.url, "--rate", "100", "--duration", "1s", "--customers", "acme=1").failed == 0


def text(port: int, admin: int, body: str) -> str:
    return f'listen = "127.0.0.1:{port}"\nadmin.listen = "127.0.0.1:{admin}"\n{body}'


def file(dry_run: bool, limit: float) -> str:
    return f"""
[services.shop]
dry_run = {str(dry_run).lower()}
[services.shop.customers.acme]
hard_limit = {limit}
"""


def test_limits_change_by_reload_and_by_the_api_for_a_time(fleet: Fleet) -> None:
    server, path = fleet.quota_with(lambda port, admin: text(port, admin, file(True, 0)))
    backend = fleet.backend("--protect", "--cost", "fixed:1ms", "--quota", server.address, "--quota-service", "shop")
    server.wait_for_tasks(1, "shop")
    # One that is only counted.
    assert load(fleet, backend, 100, 1, "--customers", "acme=1").result().failed == 0

    def failed() -> float:
        counted = load(fleet, backend, 50, 1, "--customers", "acme=1").result()
        return counted.failed / counted.requests

    path.write_text(text(server.port, server.admin.port, file(False, 0)))
    server.signal(signal.SIGHUP)
    wait_until("the reload", lambda: "config reloaded" in server.output())
    wait_until("all are refused", lambda: failed() == 1, 20)

    # A file with a problem changes nothing.
    path.write_text(text(server.port, server.admin.port, file(False, 5)) + 'hard_limt = 1\n')
    server.signal(signal.SIGHUP)
    wait_until("the refusal", lambda: "nothing has changed" in server.output())
    assert failed() == 1

    url = f"{server.admin.url}/api/v1/quota/shop/customers/acme/limit"
    status, state = request(f"{url}?for=1h", "PUT", {"hard_limit": 5})
    assert status == 200 and state["limit_cpus"] == 5 and 3_590 < state["limit_ends_in_s"] <= 3_600, state
    wait_until("none is refused", lambda: failed() == 0, 20)
    status, state = request(url, "DELETE")
    assert status == 200 and state["limit_cpus"] == 0 and state["limit_ends_in_s"] is None, state
    wait_until("all are refused again", lambda: failed() == 1, 20)

    for path_, method, body, expected in [
        (f"{url}?for=soon", "PUT", {"hard_limit": 5}, (400, "for=soon is not a duration")),
        (f"{url}?for=1y", "PUT", {"hard_limit": 5}, (400, "for=1y is longer than 7 days")),
        (f"{url}?til=1h", "PUT", {"hard_limit": 5}, (400, "unknown field `til`")),
        (url, "PUT", {"hard_limit": -1}, (400, "hard_limit -1 is not from 0 to 100000000")),
        (url, "PUT", {"limit": 1}, (400, "unknown field `limit`")),
        (url, "DELETE", None, (404, 'the limit of "acme" was not changed by API')),
        (url, "POST", {}, (405, "this page does not take this method")),
        (url.replace("shop", "ship"), "PUT", {"hard_limit": 5}, (404, 'there is no service "ship"')),
    ]:
        status, answer = request(path_, method, body)
        assert status == expected[0] and expected[1] in answer["error"] and answer["help"], (path_, answer)


GROUPED = """
[services.default.groups.free]
hard_limit = 0.4
[services.default.other_customers]
group = "free"
[services.default.customers.acme]
hard_limit = 0.2
group = "free"
[services.default.customers.vip]
hard_limit = 1
"""


def grouped(port: int, admin: int) -> str:
    return f'listen = "127.0.0.1:{port}"\nadmin.listen = "127.0.0.1:{admin}"\n{GROUPED}'


def test_group_has_its_limit_over_all_backends_and_others_notice_nothing(fleet: Fleet) -> None:
    server, _ = fleet.quota_with(grouped)
    some = backends(fleet, server, 2)
    server.wait_for_tasks(2)

    def loads(seconds: int) -> list[Load]:
        # Acme asks for 0.4 CPUs, twice its own limit, web for 0.4 and the vip for 0.2, most of them at one backend.
        mix = "acme=2,web=2,vip=1"
        running = [load(fleet, backend, rate, seconds, "--customers", mix) for backend, rate in zip(some, (400, 100))]
        return [each.result() for each in running]

    loads(4)
    results = loads(7)
    acme, web = used(results, "acme", 7), used(results, "web", 7)
    # The bound in docs/quotas.md over 7 s. The requests of the group are 2,800; five standard deviations are a tenth.
    assert 0.36 < acme + web < 0.4 + (0.6 * 0.4 + 22 * COST) / 7, (acme, web)
    # Within the group acme counts with its own limit: 0.2 of 0.6 CPUs.
    assert 0.26 < acme / (acme + web) < 0.42, (acme, web)
    assert shed(results, "vip") == 0
    url = f"{server.admin.url}/api/v1/quota/default"
    (state,) = server.service()["groups"]
    assert state["group"] == "free" and "customer" not in state and 0.4 < state["offered_cpus"] < 0.75, state
    assert state["held_cpus"] <= 0.4 and state["cut"]["criticality"] == "critical", state
    status, state = request(f"{url}/groups/free")
    assert status == 200 and len(state["holders"]) == 2, state
    assert server.customer("acme")["group"] == "free" and "group" not in server.customer("vip")
    assert server.admin.metric("plimsoll_quota_group_limit_cpus", service="default", group="free") == 0.4

    # An operator lifts the limit of the group. Acme keeps its own.
    status, state = request(f"{url}/groups/free/limit?for=1h", "PUT", {"hard_limit": 4})
    assert status == 200 and state["limit_cpus"] == 4 and state["limit_ends_in_s"] > 3_500, state
    loads(3)
    results = loads(4)
    assert shed(results, "web") < 0.01 and 0.3 < shed(results, "acme") < 0.7, results
    status, state = request(f"{url}/groups/free/limit", "DELETE")
    assert status == 200 and state["limit_cpus"] == 0.4 and state["limit_ends_in_s"] is None, state
    for name, method, body, expected in [
        ("groups/paid", "GET", None, (404, 'no group "paid" is known')),
        ("groups/paid/limit", "PUT", {"hard_limit": 4}, (404, 'no group "paid" is known')),
        ("groups/free/limit", "DELETE", None, (404, 'the limit of "free" was not changed by API')),
        ("groups/free/limit", "POST", {}, (405, "this page does not take this method")),
        ("teams/free", "GET", None, (404, "there is no page")),
    ]:
        status, answer = request(f"{url}/{name}", method, body)
        assert status == expected[0] and expected[1] in answer["error"] and answer["help"], (name, answer)


def test_refusal_by_a_group_names_it(fleet: Fleet) -> None:
    server, _ = fleet.quota_with(lambda port, admin: grouped(port, admin).replace("hard_limit = 0.4", "hard_limit = 0.1"))
    backend = fleet.backend("--cost", "fixed:2ms")
    further = f"""
[clusters.main.inbound]
pid = {backend.pid}
cpus = 1.0
[quota]
servers = ["{server.address}"]
service = "default"
"""
    proxy = fleet.proxy([backend.address], listener='customer_header = "x-customer"', further=further)
    proxy.admin.wait_for_healthy(1)
    wait_until("the process is seen", lambda: proxy.admin.metric("plimsoll_inbound_process_seen", cluster="main") == 1)
    server.wait_for_tasks(1)
    for _ in range(2):
        counted = fleet.load_now(proxy.url, "--rate", "100", "--duration", "3s", "--customers", "web=1")
    assert 0.2 < counted.failed / counted.requests < 0.8, counted.raw
    ask = [PLIMSOLL, "explain", "--admin", proxy.admin.url.removeprefix("http://")]
    refused = json.loads(run([*ask, "--reason", "quota", "--customer", "web", "--json"], 20).stdout)["requests"][0]
    assert refused["gate"]["fleet_group"] == "free", refused
    told = run([*ask, refused["id"]], 20).stdout
    assert "quota: limit of group free over the fleet: " in told and "of 0.1 CPUs" in told, told
    (cluster,) = proxy.admin.json("/api/v1/throttling")["clusters"]
    (web,) = (of for of in cluster["customers"] if of["name"] == "web")
    assert web["fleet_group"]["name"] == "free" and web["fleet_group"]["fleet_limit_cpus"] == 0.1, web
    assert "fleet_limit_cpus" not in web, "it has no limit of its own"


def test_limit_that_breaks_two_tasks_reaches_no_other(fleet: Fleet) -> None:
    server = fleet.quota("--limit", "acme=4")
    some = backends(fleet, server, 4)
    server.wait_for_tasks(4)
    service = f"{server.admin.url}/api/v1/quota/default"
    with ThreadPoolExecutor(1) as change:
        answer = change.submit(request, f"{service}/customers/acme/limit", "PUT", {"hard_limit": 0})
        # Each task that gets the limit dies of it.
        for count in (1, 2):
            wait_until("a task tries it", lambda: len(request(service)[1]["trying"] or []) == count)
            pid = int(request(service)[1]["trying"][-1].split("/")[1])
            next(backend for backend in some if backend.pid == pid).signal(signal.SIGKILL)
        status, problem = answer.result(timeout=60)
    assert status == 409 and "not in force" in problem["error"] and "former limit stays" in problem["help"], problem
    state = request(service)[1]
    assert state["trying"] is None and len(state["refused_after"]) == 2, state
    assert server.customer("acme")["limit_cpus"] == 4
    assert "new limits not in force" in server.output()
    alive = [backend for backend in some if backend.exit_code is None]
    assert len(alive) == 2
    for backend in alive:
        # A new customer may lose a request before its first rate; the limit of zero would refuse all.
        assert shed([load(fleet, backend, 100, 1, "--customers", "acme=1").result()], "acme") < 0.1


def test_file_is_checked_and_printed(fleet: Fleet) -> None:
    path = fleet.directory / "quota.toml"
    path.write_text(file(False, 2))
    done = run([PLIMSOLL, "check", "-c", str(path)])
    assert done.returncode == 0 and "ok (services: 1, customers: 1)" in done.stdout, done
    printed = run([PLIMSOLL, "check", "-c", str(path), "--print"]).stdout
    assert 'lease = "1m"' in printed and "hard_limit = 2.0" in printed, printed
    path.write_text('listen = ":9800"\n' + file(False, -2))
    done = run([PLIMSOLL, "check", "-c", str(path)])
    assert done.returncode == 1, done
    for text in ['listen: ":9800" is not an address', "services.shop.customers.acme.hard_limit: is not a number of CPUs"]:
        assert text in done.stderr, done.stderr
    path.write_text(file(False, 2) + 'group = "free"\n')
    done = run([PLIMSOLL, "check", "-c", str(path)])
    assert done.returncode == 1 and 'there is no group "free" in this service' in done.stderr, done
    assert "add [services.shop.groups.free] with hard_limit" in done.stderr, done
    done = run([PLIMSOLL, "quota"])
    assert done.returncode == 2 and "--limit NAME=CPUS" in done.stderr, done
    done = run([PLIMSOLL, "quota", "--limit", "acme=1", "--listen", "0.0.0.0:0"])
    assert done.returncode == 2 and "is open to the network" in done.stderr, done


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def field(number: int, value: bytes | int | float) -> bytes:
    """A field of a protocol buffer."""
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def hello(service: bytes = b"default", instance: bytes = b"attacker", cpus: float = 1.0) -> bytes:
    return field(1, field(1, service) + field(2, instance) + field(3, cpus) + field(4, 1.0))


def report(epoch: int, number: int, acknowledged: int = 0, entries: bytes = b"") -> bytes:
    fixed = varint(1 << 3 | 1) + struct.pack("<Q", epoch)
    return field(2, fixed + field(2, number) + field(3, acknowledged) + entries)


def entry(id: int, name: bytes, demand: int) -> bytes:
    numbers = b"".join(varint(each) for each in (0, demand, 0, 0))
    return field(4, field(1, id) + field(2, name) + field(3, numbers) + field(4, 1_000))


class Stream:
    """A stream of a task, of bytes."""

    def __init__(self, address: str, *messages: bytes) -> None:
        self.channel = grpc.insecure_channel(address)
        join = self.channel.stream_stream(JOIN, request_serializer=lambda it: it, response_deserializer=lambda it: it)
        self.answers = join(iter(messages), timeout=10)

    def end(self) -> tuple[grpc.StatusCode, str]:
        """Reads to the end."""
        try:
            for _ in self.answers:
                pass
        except grpc.RpcError:
            pass
        self.channel.close()
        return self.answers.code(), self.answers.details()


def epoch_of(address: str) -> int:
    """The epoch in the first answer."""
    stream = Stream(address, hello(instance=b"curious"))
    first = next(stream.answers)
    stream.channel.close()
    # ToTask { limits { epoch: fixed64 } }
    start = first.index(b"\x09")
    return struct.unpack("<Q", first[start + 1 : start + 9])[0]


@pytest.fixture
def limited(fleet: Fleet) -> Iterator[tuple[QuotaServer, Backend, int]]:
    server = fleet.quota("--limit", "acme=0.4")
    (backend,) = backends(fleet, server, 1)
    server.wait_for_tasks(1)
    yield server, backend, epoch_of(server.address)


def test_messages_without_sense_end_their_stream_and_move_nothing(limited: tuple[QuotaServer, Backend, int], fleet: Fleet) -> None:
    server, backend, epoch = limited
    load(fleet, backend, 100, 3, "--customers", "acme=1").result()
    running = load(fleet, backend, 100, 6, "--customers", "acme=1")
    invalid = grpc.StatusCode.INVALID_ARGUMENT
    for messages, code, text in [
        ([b"\xff\xff"], grpc.StatusCode.INTERNAL, "decode"),
        ([b""], invalid, "the first message of a stream is to be a hello"),
        ([report(epoch, 1)], invalid, "the first message of a stream is to be a hello"),
        ([hello(service=b"other")], grpc.StatusCode.NOT_FOUND, 'no service "other" here; there are: default'),
        ([hello(instance=b"")], invalid, "hello.instance: is empty"),
        ([hello(cpus=float("nan"))], invalid, "hello.cpus: NaN is not a number of CPUs"),
        ([hello(), hello()], invalid, "after the hello each message is to be a report"),
        ([hello(), report(epoch + 1, 1)], invalid, f"epoch: {epoch + 1} is not that of this owner"),
        ([hello(), report(epoch, 2)], invalid, "report: report 2 where 1 is due"),
        ([hello(), report(epoch, 1), report(epoch, 1)], invalid, "report: report 1 where 2 is due"),
        ([hello(), report(epoch, 1, 9)], invalid, "report: assignment 9 is acknowledged"),
        ([hello(), report(epoch, 1, 0, field(4, field(1, 5)))], invalid, "report.entries.id: 5 was never named"),
        ([hello(), report(epoch, 1, 0, entry(1, b"x" * 257, 1))], invalid, "report.entries.name: has 257 bytes"),
        ([hello(), report(epoch, 1, 0, entry(1, b"acme", 1 << 60))], invalid, "report.entries.demand"),
        ([hello(), b"\x00" * (5 << 20)], grpc.StatusCode.OUT_OF_RANGE, "4194304"),
    ]:
        ended = Stream(server.address, *messages).end()
        assert ended[0] == code and text in ended[1], (text, ended)
    counted = running.result()
    assert counted.failed / counted.requests < 0.005, "a task below its limit loses next to nothing"
    assert server.admin.metric("plimsoll_quota_streams_total", service="default", result="invalid") >= 9
    assert server.exit_code is None


def test_task_that_lies_about_its_demand_counts_up_to_its_cpus(limited: tuple[QuotaServer, Backend, int], fleet: Fleet) -> None:
    server, backend, epoch = limited
    # It has 0.01 CPUs, and asks for a thousand: four times its CPUs are believed.
    liar = Stream(server.address, hello(instance=b"liar", cpus=0.01), report(epoch, 1, 0, entry(1, b"acme", 10**9)))
    next(liar.answers), next(liar.answers)
    holders = {task["instance"]: task for task in server.customer("acme")["holders"]}
    assert holders["liar"]["offered_cpus"] <= 0.04, holders
    counted = load(fleet, backend, 140, 5, "--customers", "acme=1").result()
    # It leaves 0.36 CPUs, and the backend needs 0.28.
    assert counted.failed / counted.requests < 0.03, counted.raw["groups"]["by_customer"]
    liar.channel.close()
