"""A sidecar answers probes by UDP for its service: its state, its load, its drain, its upgrade and its keys."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import threading
import time

import pytest

from harness.fleet import PLIMSOLL, UNTIL_FINISHED, Admin, Backend, Fleet, Proxy, config
from harness.probes import ANSWER, HAS_LOAD, HEALTHY, LAME_DUCK, NO_SUCH_PORT, NOTICE, STARTING, Datagram, ProbeClient
from harness.process import accepts, find_program, free_port, run, wait_until
from test_probes import client
from test_upgrade import is_running, upgrade, upgrading  # noqa: F401

KEYLESS = "probes = {}"
FIRST, SECOND = bytes(range(32)), bytes(range(32, 64))
QUERIES = "plimsoll_probe_responder_"


def inbound(backend: Backend, directory: pathlib.Path) -> str:
    file = directory / "backend.pid"
    file.write_text(f"{backend.pid}\n")
    return f'[clusters.main.inbound]\npid_file = "{file}"\ncpus = 1.0\n'


def sidecar(fleet: Fleet, backend: Backend, listener: str = KEYLESS, further: str = "") -> Proxy:
    gate = inbound(backend, fleet.directory)
    proxy = fleet.proxy([backend.address], listener=listener, further=gate + further, health='interval = "100ms"')
    proxy.admin.wait_for_healthy(1)
    return proxy


def wait_for_state(probes: ProbeClient, state: int, seconds: float = 10) -> Datagram:
    def answer() -> Datagram | None:
        # A notice may come before the answer.
        datagram = probes.ask_after_notices(1)
        return datagram if datagram.state == state else None

    return wait_until(f"state {state}", answer, seconds)


def lease(probes: ProbeClient) -> None:
    probes.ask(1)
    assert probes.ask(2, lease=60).lease == 60


def test_sidecar_answers_with_the_state_and_load_of_its_service(fleet: Fleet) -> None:
    proxy = sidecar(fleet, fleet.backend("--cost", "fixed:2ms", "--cores", "1"))
    with client(proxy.port) as probes:
        wait_for_state(probes, HEALTHY)
        load = fleet.load(proxy.url, "--rate", "200", "--duration", UNTIL_FINISHED)

        def loaded() -> Datagram | None:
            answer = probes.ask(3)
            return answer if answer.utilization > 0.1 else None

        answer = wait_until("the load is known", loaded)
        assert (answer.kind, answer.flags, answer.state, answer.port) == (ANSWER, HAS_LOAD, HEALTHY, proxy.port)
        # 200 requests a second of 2 ms are 0.4 of the one CPU; a busy machine takes longer for some.
        assert answer.utilization < 1.5 and answer.in_flight < 200
        assert probes.ask(4, port=proxy.port + 1).state == NO_SUCH_PORT
        load.interrupt()
        assert load.result().failed == 0
    counted = proxy.admin.metric(f"{QUERIES}answers_total")
    assert counted >= 3 and proxy.admin.metric(f"{QUERIES}dropped_total", reason="invalid") == 0


def test_clients_hear_of_the_end_of_the_service_and_of_its_return(fleet: Fleet) -> None:
    backend = fleet.backend()
    proxy = sidecar(fleet, backend)
    with client(proxy.port) as probes:
        healthy = wait_for_state(probes, HEALTHY)
        lease(probes)
        backend.kill()
        notice = probes.receive()
        assert (notice.kind, notice.state, notice.instance) == (NOTICE, LAME_DUCK, healthy.instance)
        probes.acknowledge(notice)
        assert accepts(proxy.port), "the sidecar itself goes on"
        fleet.again(backend)
        assert wait_for_state(probes, HEALTHY).number == notice.number + 1


def test_sidecar_is_starting_until_its_service_is_healthy(fleet: Fleet) -> None:
    port, admin_port, service = free_port(), free_port(), free_port()
    text = config(port, admin_port, [f"127.0.0.1:{service}"], listener=KEYLESS)
    fleet.proxy_with(text + "[clusters.main.inbound]\npid = 1\n", port, admin_port)
    with client(port) as probes:
        wait_for_state(probes, STARTING)
        wait_until("its service is refused", lambda: "refusing" in Admin(admin_port).states().values())
        assert probes.ask(5).state == STARTING


def test_clients_hear_of_sigterm_well_before_the_listener_refuses(fleet: Fleet) -> None:
    proxy = sidecar(fleet, fleet.backend())
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(client(proxy.port)) for _ in range(50)]
        wait_for_state(clients[0], HEALTHY)
        for each in clients:
            lease(each)
        without_lease = stack.enter_context(client(proxy.port))
        without_lease.ask(1)
        begun = time.monotonic()
        proxy.signal(signal.SIGTERM)
        for each in clients:
            notice = each.receive()
            assert (notice.kind, notice.state, notice.nonce) == (NOTICE, LAME_DUCK, 2)
            each.acknowledge(notice)
        told = time.monotonic() - begun
        assert accepts(proxy.port), f"all were told after {told} s, and the listener refuses already"
        assert without_lease.ask(3).state == LAME_DUCK, "no notice came before the answer"
        assert proxy.wait(10) == 0
        without_lease.send(nonce=4)
        with pytest.raises(ConnectionRefusedError):
            without_lease.receive()


class Asker(threading.Thread):
    """Asks again and again, and notes the answers in their order."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._probes = ProbeClient("127.0.0.1", port)
        self._ended = threading.Event()
        self.answers: list[Datagram] = []
        self.lost: list[int] = []
        self.longest = 0.0
        self.start()

    def run(self) -> None:
        nonce, last = 1, time.monotonic()
        while not self._ended.is_set():
            nonce += 1
            self._probes.send(nonce=nonce, lease=60)
            try:
                datagram = self._probes.receive(0.5)
            except TimeoutError:
                self.lost.append(nonce)
                continue
            assert datagram.kind != ANSWER or datagram.nonce == nonce, "an answer to each query, and one alone"
            self._probes.cookie = datagram.cookie or self._probes.cookie
            self.answers.append(datagram)
            now = time.monotonic()
            self.longest, last = max(self.longest, now - last), now
            # Below the limit of a source, for several askers.
            time.sleep(0.02)

    def end(self) -> None:
        self._ended.set()
        self.join(5)
        self._probes.close()


def changes(answers: list[Datagram]) -> int:
    return sum(one.instance != other.instance for one, other in zip(answers, answers[1:], strict=False))


def test_upgrade_loses_no_query_and_changes_the_instance_once(upgrading: Fleet) -> None:  # noqa: F811
    proxy = sidecar(upgrading, upgrading.backend(), further='[drain]\ntimeout = "2s"\n')
    with client(proxy.port) as probes:
        wait_for_state(probes, HEALTHY)
    askers = [Asker(proxy.port) for _ in range(3)]
    process = proxy.pid
    for upgrades in (1, 2):
        wait_until("queries are answered", lambda: all(len(asker.answers) > 20 * upgrades for asker in askers))
        successor = upgrade(proxy, process)
        before = [len(asker.answers) for asker in askers]
        wait_until("the predecessor has left", lambda old=process: not is_running(old), 10)
        wait_until(
            "queries are answered on",
            lambda before=before: all(len(a.answers) > count + 20 for a, count in zip(askers, before, strict=True)),
        )
        process = successor
    for asker in askers:
        asker.end()
        assert [answer for answer in asker.answers if (answer.kind, answer.state) != (ANSWER, HEALTHY)] == []
        assert asker.lost == []
        assert changes(asker.answers) == 2, "once for each upgrade, and never back"
        assert asker.longest < 0.5, asker.longest
    with client(proxy.port) as probes:
        lease(probes)
        os.kill(process, signal.SIGTERM)
        assert probes.receive().state == LAME_DUCK, "the last one has the leases"
    wait_until("the last one has drained", lambda: not is_running(process), 10)


def test_failed_upgrade_leaves_answers_and_leases_as_they_were(upgrading: Fleet) -> None:  # noqa: F811
    proxy = sidecar(upgrading, upgrading.backend())
    path = upgrading.directory / "plimsoll-1.toml"
    text = path.read_text()
    with client(proxy.port) as probes:
        instance = wait_for_state(probes, HEALTHY).instance
        lease(probes)
        path.write_text(text.replace("main", "none", 1))
        proxy.signal(signal.SIGUSR2)
        wait_until("it is given up", lambda: "no upgrade: this process goes on" in proxy.output(), 20)
        assert probes.ask(3, lease=60).instance == instance
        path.write_text(text)
        proxy.signal(signal.SIGTERM)
        notice = probes.receive()
        assert (notice.state, notice.instance) == (LAME_DUCK, instance)


def test_keys_are_rotated_by_reloads_without_losing_leases(fleet: Fleet) -> None:
    keys = fleet.directory / "probe-keys"
    keys.write_text(f"1 {FIRST.hex()}\n")
    proxy = sidecar(fleet, fleet.backend(), listener=f'probes = {{ keys = "{keys}" }}')

    def reload(text: str) -> None:
        keys.write_text(text)
        taken = proxy.output().count("config reloaded")
        proxy.signal(signal.SIGHUP)
        wait_until("it is reloaded", lambda: proxy.output().count("config reloaded") > taken)

    with client(proxy.port, (1, FIRST)) as old, client(proxy.port, (2, SECOND)) as new, client(proxy.port) as keyless:
        instance = wait_for_state(old, HEALTHY).instance
        lease(old)
        reload(f"1 {FIRST.hex()}\n2 {SECOND.hex()}\n")
        assert wait_for_state(new, HEALTHY).instance == instance
        lease(new)
        assert proxy.admin.metric(f"{QUERIES}leases") == 2
        reload(f"2 {SECOND.hex()}\n")
        wait_until("the new keys count", lambda: is_silent(old))
        dropped = proxy.admin.metric(f"{QUERIES}dropped_total", reason="unauthentic")
        keyless.send(nonce=1)
        wait_until(
            "it is counted", lambda: proxy.admin.metric(f"{QUERIES}dropped_total", reason="unauthentic") == dropped + 1
        )
        assert new.ask(3, lease=60).instance == instance
        keys.write_text("2 abc\n")
        proxy.signal(signal.SIGHUP)
        wait_until("it is refused", lambda: "config refused, nothing has changed" in proxy.output())
        assert new.ask(4, lease=60).instance == instance
        proxy.signal(signal.SIGTERM)
        assert new.receive().state == LAME_DUCK
        for other in (old, keyless):
            with pytest.raises(TimeoutError):
                other.receive(0.1)


def is_silent(probes: ProbeClient) -> bool:
    probes.send(nonce=7)
    try:
        probes.receive(0.2)
    except TimeoutError:
        return True
    return False


def test_answers_follow_the_listeners_of_a_reload(fleet: Fleet) -> None:
    proxy = sidecar(fleet, fleet.backend(), listener="")
    path = fleet.directory / "plimsoll-1.toml"
    text, other = path.read_text(), free_port()

    def reload(text: str) -> None:
        path.write_text(text)
        taken = proxy.output().count("config reloaded")
        proxy.signal(signal.SIGHUP)
        wait_until("it is reloaded", lambda: proxy.output().count("config reloaded") > taken)

    with client(proxy.port) as probes, client(other) as second:
        probes.send(nonce=1)
        with pytest.raises(ConnectionRefusedError):
            probes.receive()
        listener = f'address = "127.0.0.1:{proxy.port}"\n'
        added = f'[[listeners]]\naddress = "127.0.0.1:{other}"\n{KEYLESS}\n'
        reload(text.replace(listener, f"{listener}{KEYLESS}\n") + added)
        wait_for_state(probes, HEALTHY)
        wait_for_state(second, HEALTHY)
        lease(probes)
        lease(second)
        # One loses its table, the other one goes: clients of the latter have to turn elsewhere.
        reload(text)
        notice = second.receive()
        assert (notice.kind, notice.state) == (NOTICE, LAME_DUCK)
        probes.send(nonce=2)
        with pytest.raises(ConnectionRefusedError):
            probes.receive()


def test_passed_udp_socket_answers_the_queries_that_waited_in_it(upgrading: Fleet) -> None:  # noqa: F811
    backend = upgrading.backend()
    port, admin_port = free_port(), free_port()
    passed = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    passed.bind(("127.0.0.1", port))
    path = upgrading.directory / "activated.toml"
    path.write_text(config(port, admin_port, [backend.address], listener=KEYLESS))
    log = (upgrading.directory / "activated.log").open("ab")
    shell = f'exec 3<&{passed.fileno()}; LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"'
    with client(port) as probes:
        probes.send(nonce=77)
        command = [find_program("bash"), "-c", shell, "bash", PLIMSOLL, "proxy", "-c", str(path)]
        child = subprocess.Popen(command, pass_fds=[passed.fileno()], stdout=log, stderr=log)
        try:
            passed.close()
            assert probes.receive().nonce == 77
            wait_for_state(probes, HEALTHY)
        finally:
            child.terminate()
            assert child.wait(10) == 0


def test_taken_udp_port_is_named_with_the_place_and_the_fix(fleet: Fleet) -> None:
    port = free_port()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", port))
        path = fleet.directory / "taken.toml"
        path.write_text(config(port, free_port(), ["127.0.0.1:9"], listener="[listeners.probes]"))
        ended = run([PLIMSOLL, "proxy", "-c", str(path)])
    assert ended.returncode == 1
    assert f"listeners[0].probes: cannot answer probes at UDP 127.0.0.1:{port}" in ended.stderr
    assert f"help: stop the process that has UDP port {port} (ss -ulnp 'sport = {port}' names it)" in ended.stderr


def test_file_of_keys_is_refused_with_its_line_and_the_fix(fleet: Fleet) -> None:
    keys = fleet.directory / "probe-keys"
    keys.write_text("7 abc\n")
    path = fleet.directory / "keys.toml"
    path.write_text(config(free_port(), free_port(), ["127.0.0.1:9"], listener=f'probes = {{ keys = "{keys}" }}'))
    for command in ("check", "proxy"):
        ended = run([PLIMSOLL, command, "-c", str(path)])
        assert ended.returncode != 0
        named = f"listeners[0].probes.keys: {keys}: line 1: expected an id and a secret of 16 to 64 bytes in hexadecimal"
        assert named in ended.stderr, ended.stderr
        assert "help: write a line of an id from 1 to 255" in ended.stderr
