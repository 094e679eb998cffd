"""A second process at the same address: refused unless it was asked for, and known to both from their logs."""

import json
import signal

from harness.fleet import Fleet, Proxy, http
from harness.http1 import Connection
from harness.process import Process, free_port, wait_until


def shares(proxy: Process) -> list[str]:
    """What the log says of other processes at the address."""
    lines = [json.loads(line) for line in proxy.output().splitlines() if line.startswith("{")]
    return [line["message"] for line in lines if "another process" in line["message"] or "other process" in line["message"]]


def second(fleet: Fleet, first: Proxy, backend: str, *arguments: str) -> Proxy:
    """A further proxy at the port of the first one."""
    admin_port = free_port()
    command = ["--from", f"127.0.0.1:{first.port}", "--to", backend, "--admin", f"127.0.0.1:{admin_port}", *arguments]
    proxy = Proxy("second", command, first.port, admin_port, fleet.directory)
    fleet.processes.append(proxy)
    return proxy


def test_second_process_at_an_address_is_refused(fleet: Fleet) -> None:
    backend = fleet.nginx()
    first = fleet.proxy_to([backend], "--threads", "2")
    late = second(fleet, first, backend)
    assert late.wait(10) == 1
    for part in ("another process listens there", "plimsoll upgrade", "share_port = true", "--share-port"):
        assert part in late.output(), late.output()
    assert http(first.url)[0] == 200
    first.stop()
    again = second(fleet, first, backend)
    again.wait_for_port(first.port)
    wait_until("its own connections do not count", lambda: http(again.url)[0] == 200)


def test_address_is_free_again_when_connections_outlive_their_process(fleet: Fleet) -> None:
    backend = fleet.nginx()
    first = fleet.proxy_to([backend])
    with Connection.to(first.port) as client:
        assert client.request("/").status == 200
        first.kill()
        again = second(fleet, first, backend)
        wait_until("it serves", lambda: http(again.url + "/")[0] == 200 if again.exit_code is None and ready(again) else False)


def ready(proxy: Proxy) -> bool:
    try:
        return proxy.admin.get("/readyz")[0] == 200
    except OSError:
        return False


def test_shared_address_is_told_in_the_logs_of_both(fleet: Fleet) -> None:
    backend = fleet.nginx()
    first = fleet.proxy_to([backend], "--threads", "2")
    late = second(fleet, first, backend, "--share-port", "--threads", "3")
    for proxy in (first, late):
        wait_until(f"{proxy.name} tells", lambda proxy=proxy: shares(proxy), 10)
        (told,) = shares(proxy)
        assert told == "another process listens at this address: it gets a part of the connections"
    late.stop()
    wait_until("the first tells its end", lambda: len(shares(first)) == 2, 10)
    assert shares(first)[1] == "no other process listens at this address any more"


def test_reload_may_change_the_form_of_an_address(fleet: Fleet) -> None:
    """From one address to all addresses of the machine, at the same port, and back: the process shares it with itself."""
    proxy = fleet.proxy([fleet.nginx()])
    file = next(fleet.directory.glob("plimsoll-*.toml"))
    text = file.read_text()
    for reloads, address in enumerate(("0.0.0.0", "127.0.0.1"), 1):
        file.write_text(text.replace(f'address = "127.0.0.1:{proxy.port}"', f'address = "{address}:{proxy.port}"'))
        proxy.signal(signal.SIGHUP)
        wait_until(
            f"{address} is taken",
            lambda count=reloads: proxy.admin.metric("plimsoll_reloads_total", result="taken") == count,
        )
        assert http(proxy.url)[0] == 200
    assert shares(proxy) == []
