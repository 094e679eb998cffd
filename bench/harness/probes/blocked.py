"""A network that drops UDP: all of it, or one datagram in ten each way.

A proxy and twenty backends have a network namespace each, with a pair of virtual interfaces between them
and nftables at the backends. A request comes every two seconds, so backends are woken and rest again.
"""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..peers import Plimsoll
from ..processes import Process, Site, free_port
from .capture import Capture
from .fleet import (
    WITH_PROBES,
    Place,
    Proxy,
    ending,
    metric,
    start_backend,
    wait_until,
    wait_until_inactive,
    write_keys,
)
from .lame_duck import seconds_of
from .namespace import Namespace, ip, namespace

BACKENDS = 20
RATE = 0.5
# A backend becomes inactive then, with a query at once.
INACTIVE_AFTER_S = 1
GOAL_S = 5.0
# A shorter interval than the default, for more queries in the time.
LOSS_INTERVAL_S = 5
_CLIENT, _SERVER = "10.111.0.1", "10.111.0.2"
_INTERFACE = "veth-backends"
_TOLD = "probes get no answer"
_DROP_ALL = """
table inet probes {
    chain input { type filter hook input priority 0; meta l4proto udp drop; }
}
"""
_DROP_SOME = """
table inet probes {
    chain input { type filter hook input priority 0; meta l4proto udp numgen random mod 100 < 10 drop; }
    chain output { type filter hook output priority 0; meta l4proto udp numgen random mod 100 < 10 drop; }
}
"""


@dataclass
class Fleet:
    proxy: Proxy
    ports: list[int]
    client: Namespace
    server: Namespace

    def metrics(self) -> dict:
        """Counts of probes, and backends by path."""
        text = self.proxy.metrics()
        paths = {path: metric(text, "plimsoll_probe_backends", f'path="{path}"') for path in ("unknown", "works", "no-answer")}
        return paths | {
            "inactive": metric(text, "plimsoll_probe_inactive_backends"),
            "queries": metric(text, "plimsoll_probe_queries_total"),
            "answers": metric(text, "plimsoll_probe_answers_total"),
            "woken": metric(text, "plimsoll_probe_woken_total"),
        }

    def state_changes(self, since: float) -> list[str]:
        """Lines of the log about states of backends."""
        lines = (line for line in self.proxy.log() if line.get("message") == "backend changed state" and seconds_of(line) >= since)
        return [f"{line['backend']}: {line['from']} to {line['to']}, {line['reason']}" for line in lines]

    def told(self, since: float) -> list[dict]:
        """Lines of the log about probes without answers."""
        return [line for line in self.proxy.log() if line.get("message", "").startswith(_TOLD) and seconds_of(line) >= since]

    @contextlib.contextmanager
    def load(self, seconds: float) -> Iterator[dict]:
        """Requests beside; counted when it ends by itself."""
        options = ["--rate", str(RATE), "--duration", f"{seconds:g}s", "--timeout", "10s", "--seed", "1", "--json"]
        command = self.client.command([Plimsoll.program, "load", *options, f"http://127.0.0.1:{self.proxy.port}/"])
        load = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        counts: dict = {}
        try:
            yield counts
            out, _ = load.communicate(timeout=seconds + 30)
            made = json.loads(out)
            counts |= {"requests": made["requests"] + made["dropped"], "failed": made["failed"] + made["dropped"]}
        finally:
            if load.poll() is None:
                load.kill()
                load.wait()


@contextlib.contextmanager
def fleet(site: Site, probes: str) -> Iterator[Fleet]:
    """A proxy whose backends are all inactive."""
    with namespace("proxy") as client, namespace("backends") as server:
        ip("link", "add", "veth-proxy", "netns", client.name, "type", "veth", "peer", "name", _INTERFACE, "netns", server.name)
        for side, interface, address in ((client, "veth-proxy", _CLIENT), (server, _INTERFACE, _SERVER)):
            ip("-n", side.name, "address", "add", f"{address}/24", "dev", interface)
            ip("-n", side.name, "link", "set", interface, "up")
        processes: list[Process] = []
        with ending(processes):
            keys, ports = write_keys(site.directory), [free_port() for _ in range(BACKENDS)]
            for port in ports:
                processes.append(start_backend(Place(site, server), f"{_SERVER}:{port}", keys))
            for port, process in zip(ports, processes, strict=True):
                server.call(process.wait_for_port, port, 20, _SERVER)
            watch = replace(WITH_PROBES, probes=probes)
            proxy = Proxy(Place(site, client), "proxy", [f"{_SERVER}:{port}" for port in ports], watch, f"{INACTIVE_AFTER_S}s", keys)
            processes.append(proxy.process)
            proxy.wait()
            wait_until_inactive(proxy, BACKENDS)
            yield Fleet(proxy, ports, client, server)


def drop_all(site: Site) -> dict:
    """All UDP is dropped, from one moment on."""
    with fleet(site, "") as made, contextlib.closing(Capture(made.server, _INTERFACE)) as capture:
        # A query is due within 24 s, is lost three times in 3 s, and the next checks follow within 11 s.
        seconds = 60.0
        began = time.time()
        with made.load(seconds) as counts:
            time.sleep(6)
            at = time.time()
            made.server.nft(_DROP_ALL)
            wait_until("checks of all backends resume", lambda: all(len(capture.checks(port, at)) >= 2 for port in made.ports), 50)
            metrics = made.metrics()
            time.sleep(max(began + seconds - time.time(), 0))
        resumed, woken = [], []
        for port in made.ports:
            query = min((each for each in capture.datagrams[port] if each >= at), default=at)
            check = capture.checks(port, at)[0]
            # The connection of a request is as good as a check: the next one comes by the schedule.
            is_woken = any(query - 0.9 * INACTIVE_AFTER_S <= each <= check for each in capture.contents[port])
            (woken if is_woken else resumed).append(check - query)
        return counts | {
            "resumed_s": sorted(resumed),
            "woken_s": sorted(woken),
            "all_checked_s": max(capture.checks(port, at)[0] for port in made.ports) - at,
            "told": [{"after_s": seconds_of(line) - at, "help": line.get("help", "")} for line in made.told(began)],
            "silent": metrics["no-answer"],
            "state_changes": made.state_changes(began),
        }


def drop_some(site: Site, seconds: float) -> dict:
    """One datagram in ten is dropped each way, for some seconds."""
    with fleet(site, f'interval = "{LOSS_INTERVAL_S}s"') as made:
        made.server.nft(_DROP_SOME)
        began = time.time()
        before, series = made.metrics(), []
        with made.load(seconds) as counts:
            while (passed := time.time() - began) < seconds:
                series.append({"at_s": round(passed, 1)} | made.metrics())
                time.sleep(min(2.0, max(seconds - passed, 0.1)))
        after = made.metrics()
        return counts | {
            "seconds": seconds,
            "queries": after["queries"] - before["queries"],
            "answers": after["answers"] - before["answers"],
            "woken": after["woken"] - before["woken"],
            "series": series,
            "told": len(made.told(began)),
            "state_changes": made.state_changes(began),
        }


def measure(site: Site, seconds: float) -> dict:
    """Both kinds of loss."""
    made = {}
    for name, measured in (("all", drop_all), ("some", lambda at: drop_some(at, seconds))):
        print(f"blocked UDP: {name} of it dropped", file=sys.stderr)
        home = site.directory / f"blocked-{name}"
        home.mkdir()
        made[name] = measured(Site(home, site.proxy_cores, site.load_cores))
    return made
