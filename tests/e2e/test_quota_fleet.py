"""Two quota servers with one etcd: the owner of a service is lost, and limits hold."""

import json
import pathlib
import signal
import time
from collections.abc import Iterator

import grpc
import pytest

from harness.etcd import Etcd
from harness.fleet import PLIMSOLL, UNTIL_FINISHED, Backend, Fleet, Load, QuotaServer, RunningLoad, http
from harness.process import run, wait_until

# The load is measured.
pytestmark = pytest.mark.alone

KEYS = "/plimsoll/v1/quota/"
# The shard of the service `default`: a constant of the layout.
SHARD = f"{KEYS}shards/40"
LIMIT = 0.4
# CPU-seconds of a request.
COST = 0.002
TASKS = 4
# A lease in etcd is 5 s. A busy machine takes longer.
TAKEOVER_SECONDS = 20


@pytest.fixture
def etcd(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[Etcd]:
    with Etcd(tmp_path, version=getattr(request, "param", "3.5")) as etcd:
        yield etcd


def limits(acme: float = LIMIT) -> str:
    return f"[customers.acme]\nhard_limit = {acme}\n[customers.web]\nhard_limit = {LIMIT}\n"


def server(fleet: Fleet, etcd: str, *, services: bool = True, more: str = "") -> QuotaServer:
    in_file = limits().replace("[customers", "[services.default.customers") if services else ""

    def text(port: int, admin: int) -> str:
        return (
            f'listen = "127.0.0.1:{port}"\nadvertise = "127.0.0.1:{port}"\n{more}\nadmin.listen = "127.0.0.1:{admin}"\n'
            f'[etcd]\nendpoints = ["{etcd}"]\n{in_file}'
        )

    return fleet.quota_with(text)[0]


def owner_of(etcd: Etcd, servers: list[QuotaServer]) -> tuple[QuotaServer, list[QuotaServer]]:
    """The owner of the service, and the other servers."""

    def found() -> QuotaServer | None:
        address = etcd.get(SHARD)
        return next((each for each in servers if each.address == address), None)

    owner = wait_until("the service has an owner", found, TAKEOVER_SECONDS)
    return owner, [each for each in servers if each is not owner]


def backends(fleet: Fleet, servers: list[QuotaServer], count: int = TASKS) -> list[Backend]:
    named = [argument for each in servers for argument in ("--quota", each.address)]
    arguments = ["--emulate", "fcfs", "--cores", "4", "--cost", "fixed:2ms", "--protect", *named]
    return [fleet.backend(*arguments) for _ in range(count)]


def begin_load(fleet: Fleet, tasks: list[Backend]) -> list[RunningLoad]:
    """Acme asks for one and a half of its limit, most of it at the first task, and web for half of its own."""
    rates = [(200, "acme=3,web=1"), (100, "acme=3,web=1"), (60, "acme=3,web=1"), (40, "acme=3,web=1")]
    load = [
        (f"http://{task.address}/", "--rate", str(rate), "--arrival", "uniform", "--customers", mix)
        for task, (rate, mix) in zip(tasks, rates, strict=True)
    ]
    return [fleet.load(*arguments, "--duration", UNTIL_FINISHED) for arguments in load]


def end_load(loads: list[RunningLoad]) -> list[Load]:
    for load in loads:
        assert load.running(), load.output()
        load.interrupt()
    return [load.result() for load in loads]


def groups(loads: list[Load], customer: str) -> tuple[int, int]:
    """Requests of a customer that were answered well, and all of them."""
    of = [load.raw["groups"]["by_customer"][customer] for load in loads]
    return sum(group["ok"] for group in of), sum(group["requests"] for group in of)


def check(loads: list[Load], seconds: float) -> None:
    """The limit holds over a time, and a customer below its own is not refused."""
    ok, _ = groups(loads, "acme")
    # The bound in docs/quotas.md.
    most = LIMIT * seconds + 0.6 * LIMIT + (3 * TASKS + 16) * COST
    assert 0.85 * LIMIT * seconds < ok * COST < most, (ok * COST, seconds)
    ok, requests = groups(loads, "web")
    # Nobody lends while there is no owner, and a busy machine makes bursts.
    assert requests - ok < 0.05 * requests + 5, (ok, requests)


def fleet_of_two(fleet: Fleet, etcd: Etcd, *endpoints: str) -> tuple[QuotaServer, QuotaServer, list[Backend]]:
    """The owner, the other server, and tasks that have their parts. `endpoints`: of etcd, for each server."""
    servers = [server(fleet, endpoint) for endpoint in endpoints or etcd.endpoints * 2]

    def is_shared() -> bool:
        owners = list(etcd.values(f"{KEYS}shards/").values())
        return sorted(owners.count(each.address) for each in servers) == [32, 32]

    # A server that comes is given shards after 10 s.
    wait_until("each server has half of the shards", is_shared, 30)
    owner, (other,) = owner_of(etcd, servers)
    tasks = backends(fleet, servers)
    owner.wait_for_tasks(TASKS)
    return owner, other, tasks


def connected(of: QuotaServer) -> int:
    """Tasks with a stream at the owner."""
    return sum(task["connected"] for task in of.service()["instances"])


def own(of: QuotaServer) -> dict:
    """The owner of the service by one server."""
    (owner,) = (each for each in of.admin.json("/api/v1/quota")["owners"] if each["service"] == "default")
    return owner


def warm_up(fleet: Fleet, owner: QuotaServer, tasks: list[Backend]) -> list[RunningLoad]:
    loads = begin_load(fleet, tasks)
    wait_until("acme is cut", lambda: owner.customer("acme")["cut"] and owner.customer("acme")["tasks"] == TASKS)
    end_load(loads)
    return begin_load(fleet, tasks)


@pytest.mark.parametrize(("fault", "etcd"), [("killed", "3.4"), ("silent", "3.5")], indirect=["etcd"])
def test_limits_hold_while_another_server_takes_over(fleet: Fleet, etcd: Etcd, fault: str) -> None:
    owner, other, tasks = fleet_of_two(fleet, etcd)
    assert own(owner)["here"] and own(other)["owner"] == owner.address
    assert own(owner)["epoch"] == own(other)["epoch"] == (1 << 52) + etcd.records(SHARD)[SHARD].create_revision
    loads = warm_up(fleet, owner, tasks)
    taken = other.admin.metric("plimsoll_quota_takeovers_total")
    lost = owner.admin.metric("plimsoll_quota_losses_total")
    begun = time.monotonic()
    owner.kill() if fault == "killed" else owner.signal(signal.SIGSTOP)
    wait_until("the other server is the owner", lambda: own(other)["here"], TAKEOVER_SECONDS)
    other.wait_for_tasks(TASKS, seconds=TAKEOVER_SECONDS)
    print("all tasks are at the other server after", time.monotonic() - begun)
    time.sleep(4)
    seconds = time.monotonic() - begun
    check(end_load(loads), seconds)
    state = other.customer("acme")
    assert state["held_cpus"] <= LIMIT and state["cut"], state
    assert other.admin.metric("plimsoll_quota_owner", service="default") == 1
    assert other.admin.metric("plimsoll_quota_takeovers_total") == taken + 1
    if fault == "silent":
        # It wakes up with tasks that left, and learns that it is not the owner any more.
        owner.signal(signal.SIGCONT)
        wait_until("it knows the owner", lambda: own(owner)["owner"] == other.address, TAKEOVER_SECONDS)
        assert owner.admin.metric("plimsoll_quota_losses_total") == lost + 1
        assert connected(other) == TASKS


def test_owner_without_etcd_goes_on_until_its_tasks_know_the_next_one(fleet: Fleet, etcd: Etcd) -> None:
    relays = [fleet.relay(etcd.endpoints[0]) for _ in range(2)]
    cut_off, other, tasks = fleet_of_two(fleet, etcd, *(relay.address for relay in relays))
    relay = next(relay for relay in relays if relay.address in pathlib.Path(cut_off.arguments[1]).read_text())
    loads = warm_up(fleet, cut_off, tasks)
    begun = time.monotonic()
    relay.signal(signal.SIGSTOP)
    wait_until("the other server is the owner", lambda: own(other)["here"], TAKEOVER_SECONDS)
    other.wait_for_tasks(TASKS, seconds=TAKEOVER_SECONDS)
    print("all tasks are at the other server after", time.monotonic() - begun)
    # It still believes that it is the owner, and says that it may not be.
    assert own(cut_off)["here"] and own(cut_off)["overdue"]
    time.sleep(4)
    seconds = time.monotonic() - begun
    check(end_load(loads), seconds)
    relay.signal(signal.SIGCONT)
    wait_until("it knows the owner", lambda: own(cut_off)["owner"] == other.address, TAKEOVER_SECONDS)


# The bench has an outage of 60 s; leases of tasks are as long.
@pytest.mark.parametrize("seconds", [15])
def test_paused_etcd_is_a_warning_and_nothing_else(fleet: Fleet, etcd: Etcd, seconds: float) -> None:
    owner, other, tasks = fleet_of_two(fleet, etcd)
    loads = warm_up(fleet, owner, tasks)
    begun = time.monotonic()
    etcd.pause_all()
    wait_until("the owner warns", lambda: "no contact with etcd for a lease" in owner.output(), TAKEOVER_SECONDS)
    wait_until("the outage is long enough", lambda: time.monotonic() > begun + seconds, seconds + 5)
    assert own(owner)["overdue"] and owner.admin.metric("plimsoll_quota_owner_overdue", service="default") == 1
    assert connected(owner) == TASKS, "no task left"
    etcd.resume_all()
    wait_until("one of them is the owner for sure", lambda: sure(owner, other), TAKEOVER_SECONDS)
    time.sleep(3)
    lasted = time.monotonic() - begun
    check(end_load(loads), lasted)
    assert all("quota server unreachable" not in task.output() for task in tasks)
    warned = [line for line in owner.output().splitlines() if '"WARN"' in line or '"ERROR"' in line]
    assert all("etcd" in line for line in warned), warned


def sure(*servers: QuotaServer) -> bool:
    states = [own(each) for each in servers]
    owners = [each for each, state in zip(servers, states, strict=True) if state["here"] and not state["overdue"]]
    if len(owners) != 1:
        return False
    return not owners[0].service()["unsure"] and connected(owners[0]) == TASKS


def test_task_is_redirected_and_a_server_hands_over_when_it_ends(fleet: Fleet, etcd: Etcd) -> None:
    owner, other, tasks = fleet_of_two(fleet, etcd)
    [task.kill() for task in tasks]
    # The task knows the address of the other server only.
    (task,) = backends(fleet, [other], 1)
    wait_until("the task is at the owner", lambda: connected(owner) == 1)
    assert "quota server unreachable" not in task.output()
    status, text = http(f"{other.admin.url}/api/v1/quota/default")
    assert status == 421 and f'has its owner at {owner.address}' in json.loads(text)["error"], text

    # As any client sees it: the status, and its metadata.
    hello = b"\x0a" + _field(1, b"default") + _field(2, b"probe") + b"\x19" + b"\x00\x00\x00\x00\x00\x00\xf0\x3f"
    message = b"\x0a" + bytes([len(hello) - 1]) + hello[1:]
    with grpc.insecure_channel(other.address) as channel:
        join = channel.stream_stream("/plimsoll.quota.v1.Quota/Join")
        with pytest.raises(grpc.RpcError) as refused:
            list(join(iter([message]), timeout=10))
    metadata = dict(refused.value.trailing_metadata())
    assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION, refused.value
    assert metadata["plimsoll-quota-owner"] == owner.address, metadata
    assert int(metadata["plimsoll-quota-owner-epoch"]) == own(owner)["epoch"]

    begun = time.monotonic()
    owner.signal(signal.SIGTERM)
    wait_until("the other server is the owner", lambda: own(other)["here"])
    assert time.monotonic() - begun < 4, "it did not wait for a lease"
    wait_until("the task is at the other server", lambda: connected(other) == 1)
    assert owner.wait(10) == 0
    assert "quota server unreachable" not in task.output()


def _field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2, len(value)]) + value


def quota(*arguments: str, stdin: str | None = None) -> tuple[int, str, str]:
    done = run([PLIMSOLL, "quota", *arguments], 20, stdin)
    return done.returncode, done.stdout, done.stderr


def test_limits_in_etcd_change_at_all_servers_and_have_a_history(fleet: Fleet, etcd: Etcd) -> None:
    of_etcd = ["--etcd", etcd.endpoints[0]]
    one = server(fleet, etcd.endpoints[0], services=False)
    # Without services it waits for those in etcd, which has none yet.
    wait_until("it is ready", lambda: one.admin.get("/readyz")[0] == 200)
    assert quota("get", "shop", *of_etcd)[0] == 1
    code, out, _ = quota("set", "shop", "-", "--author", "ann", "--dry-run", *of_etcd, stdin=limits(0.1))
    assert code == 0 and "+hard_limit = 0.1" in out and quota("get", *of_etcd)[1] == ""
    code, out, _ = quota("set", "shop", "-", "--author", "ann", *of_etcd, stdin=limits(0.1))
    assert code == 0 and "+hard_limit = 0.1" in out, out
    wait_until("the server has the service", lambda: one.admin.get("/api/v1/quota/shop")[0] == 200)
    backend = fleet.backend("--protect", "--cost", "fixed:1ms", "--quota", one.address, "--quota-service", "shop")
    one.wait_for_tasks(1, "shop")
    assert one.customer("acme", "shop")["limit_cpus"] == 0.1

    # The same reader and messages as those of check.
    bad = limits(-1)
    code, _, error = quota("set", "shop", "-", *of_etcd, stdin=bad)
    assert code == 1 and "stdin:2:14: customers.acme.hard_limit: is not a number of CPUs" in error, error
    code, out, _ = quota("set", "shop", "-", "--author", "bob", *of_etcd, stdin=limits(0.3))
    assert code == 0 and "-hard_limit = 0.1\n+hard_limit = 0.3" in out, out
    wait_until("the limit is in force", lambda: one.customer("acme", "shop")["limit_cpus"] == 0.3, 20)
    code, out, _ = quota("set", "shop", "-", *of_etcd, stdin=limits(0.3))
    assert code == 0 and "has these settings already" in out

    # Another program writes what cannot be read: the last good settings stay.
    etcd.put(f"{KEYS}config/shop", bad)
    wait_until("the server refuses it", lambda: one.admin.metric("plimsoll_quota_refused_settings", service="shop") == 1)
    assert "settings in etcd refused" in one.output() and one.customer("acme", "shop")["limit_cpus"] == 0.3
    assert "quota server unreachable" not in backend.output()
    code, out, _ = quota("get", "shop", *of_etcd)
    assert code == 0 and out == bad

    # etcd is lost, and limits stay.
    etcd.kill_all()
    wait_until("the server warns", lambda: "etcd unreachable" in one.output() or "no contact" in one.output(), 20)
    assert one.customer("acme", "shop")["limit_cpus"] == 0.3
    etcd.start()
    code, out, _ = quota("set", "shop", "--remove", "--author", "cy", *of_etcd)
    assert code == 0 and "-hard_limit = -1" in out, out
    wait_until("the service is gone", lambda: one.admin.get("/api/v1/quota/shop")[0] == 404)
    lines = quota("history", "shop", *of_etcd)[1].splitlines()
    events = [line.split("  ")[-1] for line in lines]
    assert events == ["removed by cy", "set by another program", "set by bob", "set by ann"], lines
    changes = json.loads(quota("history", "shop", "--json", *of_etcd)[1])["changes"]
    assert [each["settings"] for each in changes] == [None, bad, limits(0.3), limits(0.1)]
    assert "+hard_limit = 0.3" in quota("history", "shop", "--diff", *of_etcd)[1]
    etcd.compact()
    assert len(quota("history", "shop", *of_etcd)[1].splitlines()) == 1


def test_server_without_etcd_at_its_start_waits_for_services(fleet: Fleet, etcd: Etcd) -> None:
    etcd.kill_all()
    with_file, without = server(fleet, etcd.endpoints[0]), server(fleet, etcd.endpoints[0], services=False)
    assert with_file.admin.get("/readyz")[0] == 200
    assert without.admin.get("/readyz") == (503, "starting\n")
    assert "waiting for the services in etcd" in without.output()
    assert own(with_file) == {
        "service": "default", "here": False, "owner": None, "epoch": None, "overdue": False, "refused_settings": False,
    }
    (task,) = backends(fleet, [with_file], 1)
    wait_until("the task is told", lambda: "no owner of service" in task.output())
    etcd.start()
    wait_until("it is ready", lambda: without.admin.get("/readyz")[0] == 200, 20)
    # Either may be the owner, and only one of them knows the service.
    wait_until("it has an owner", lambda: etcd.get(SHARD), TAKEOVER_SECONDS)
