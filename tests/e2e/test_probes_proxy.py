"""Probes of a proxy: idle backends cost nothing, and their lame ducks are known at once."""

import json
import pathlib
import signal
import sys
import time

from harness.fleet import PLIMSOLL, ROOT, Fleet, Proxy, http
from harness.http1 import Connection, Message, answer
from harness.process import Process, run, wait_until

SECRET = "000102030405060708090a0b0c0d0e0f"


def cluster(backends: list[str], settings: str = "", probes: str = "") -> str:
    listed = ", ".join(f'"{address}"' for address in backends)
    return f"[clusters.main]\nbackends = [{listed}]\ninactive_after = \"1s\"\n{settings}\n[clusters.main.probes]\n{probes}"


def idle_proxy(fleet: Fleet, backends: list[str], settings: str = "", probes: str = "") -> Proxy:
    """A proxy with probes of these backends, all of them inactive."""
    proxy = fleet.proxy_of(
        lambda port, admin: (
            f'[[listeners]]\naddress = "127.0.0.1:{port}"\n[admin]\nlisten = "127.0.0.1:{admin}"\n'
            f'[[routes]]\ncluster = "main"\n{cluster(backends, settings, probes)}'
        )
    )
    wait_until(
        "all backends are inactive",
        lambda: proxy.admin.metric("plimsoll_probe_inactive_backends") == len(backends),
        seconds=15,
    )
    return proxy


def changes(proxy: Proxy) -> list[tuple[str, str]]:
    """State and reason of each change in the log."""
    lines = [json.loads(line) for line in proxy.output().splitlines() if line.startswith("{")]
    return [(line["to"], line["reason"]) for line in lines if line["message"] == "backend changed state"]


def test_idle_proxies_learn_of_sigterm_before_the_backend_closes(fleet: Fleet) -> None:
    backend = fleet.backend()
    proxies = [idle_proxy(fleet, [backend.address]) for _ in range(5)]
    for proxy in proxies:
        # The first query finds the path, the second one requests the lease.
        wait_until("it has a lease", lambda proxy=proxy: proxy.admin.metric("plimsoll_probe_answers_total") >= 2)
    backend.signal(signal.SIGTERM)
    for proxy in proxies:
        proxy.admin.wait_for_state(backend.address, "lame-duck", 1)
        assert changes(proxy)[-1] == ("lame-duck", "reported")
        assert proxy.admin.metric("plimsoll_probe_notices_total") == 1
    assert backend.exit_code is None, "its drain has only begun"
    backend.wait(20)
    again = fleet.again(backend)
    for proxy in proxies:
        proxy.admin.wait_for_state(again.address, "healthy", 15)
        assert [state for state, _ in changes(proxy)] == ["healthy", "lame-duck", "refusing", "healthy"]


def test_inactive_backend_gets_no_check_until_a_request_wakes_it(fleet: Fleet) -> None:
    paths: list[str] = []

    def serve(connection: Connection, head: Message) -> None:
        paths.append(head.start.split()[1])
        answer(connection)

    address = fleet.origin(serve)
    command = [sys.executable, str(ROOT / "examples" / "probe-responder.py"), address]
    fleet.processes.append(Process("responder", command, fleet.directory))
    health = '[clusters.main.health]\ncheck = "http"\npath = "/healthz"\ninterval = "200ms"'
    proxy = idle_proxy(fleet, [address], health)
    time.sleep(0.3)
    checks = paths.count("/healthz")
    assert checks > 1
    time.sleep(2)
    assert paths.count("/healthz") == checks, "ten checks would have come"
    assert proxy.admin.backends()[address]["connections"] == 0
    assert http(proxy.url + "/work")[0] == 200
    assert proxy.admin.metric("plimsoll_probe_woken_total") == 1
    wait_until("checks go on", lambda: paths.count("/healthz") > checks)
    wait_until("it is inactive again", lambda: proxy.admin.metric("plimsoll_probe_inactive_backends") == 1)


def test_keys_of_a_file_are_used_and_changed_by_reload(fleet: Fleet, tmp_path: pathlib.Path) -> None:
    keys, proxys = tmp_path / "backend-keys", tmp_path / "proxy-keys"
    keys.write_text(f"1 {SECRET}\n2 {SECRET[::-1]}\n")
    proxys.write_text(f"1 {SECRET}\n")
    backend = fleet.backend("--probe-keys", str(keys))
    proxy = idle_proxy(fleet, [backend.address], probes=f'keys = "{proxys}"\ninterval = "1s"')
    proxys.write_text(f"2 {SECRET[::-1]}\n1 {SECRET}\n")
    proxy.signal(signal.SIGHUP)
    wait_until("it reloads", lambda: proxy.admin.metric("plimsoll_reloads_total", result="taken") == 1)
    answers = proxy.admin.metric("plimsoll_probe_answers_total")
    wait_until("the new key is right", lambda: proxy.admin.metric("plimsoll_probe_answers_total") > answers + 2)
    assert proxy.admin.metric("plimsoll_probe_backends", path="works") == 1
    proxys.write_text("2 abc\n")
    proxy.signal(signal.SIGHUP)
    wait_until("it is refused", lambda: proxy.admin.metric("plimsoll_reloads_total", result="refused") == 1)
    assert "clusters.main.probes.keys" in proxy.output() and "line 1: expected an id" in proxy.output()


def test_rolling_restart_of_idle_backends_fails_no_request_of_a_client_that_wakes_up(fleet: Fleet) -> None:
    backends = [fleet.backend() for _ in range(3)]
    proxy = idle_proxy(fleet, [backend.address for backend in backends], probes='interval = "1s"')
    for number, backend in enumerate(backends):
        backend.signal(signal.SIGTERM)
        proxy.admin.wait_for_state(backend.address, "lame-duck", 2)
        # Busy from one moment to the next, while a backend leaves.
        answers = [http(proxy.url) for _ in range(50)]
        assert [status for status, _ in answers] == [200] * 50
        backend.wait(20)
        backends[number] = fleet.again(backend)
        proxy.admin.wait_for_healthy(3, 15)
        wait_until(
            "all are inactive again", lambda: proxy.admin.metric("plimsoll_probe_inactive_backends") == 3, seconds=15
        )
    assert proxy.admin.metric("plimsoll_requests_total", result="connect-failed") == 0
    assert proxy.admin.metric("plimsoll_probe_woken_total") >= 3


def test_backend_that_is_killed_is_refusing_by_a_check(fleet: Fleet) -> None:
    backend = fleet.backend()
    proxy = idle_proxy(fleet, [backend.address], probes='interval = "1s"')
    backend.kill()
    proxy.admin.wait_for_state(backend.address, "refusing", 5)
    again = fleet.again(backend)
    proxy.admin.wait_for_state(again.address, "healthy", 15)


def test_config_beyond_loopback_requires_keys(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(
        '[[listeners]]\naddress = "127.0.0.1:8080"\n[[routes]]\ncluster = "main"\n' + cluster(["10.0.0.1:80"])
    )
    ended = run([PLIMSOLL, "check", "-c", str(file)])
    assert ended.returncode != 0
    assert "clusters.main.probes.keys: missing, and 10.0.0.1:80 is beyond loopback" in ended.stdout + ended.stderr
