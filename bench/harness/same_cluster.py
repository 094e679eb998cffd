"""`bench/abuse --same-cluster`: attacks that hold slots at backends, with honest users on the same cluster.

Each pair of an attack and a proxy has a proxy process and two backends of its own. Each proxy sends at most 100 requests at a time
to a backend: plimsoll by default, nginx by `max_conns`, HAProxy by `maxconn`. Honest users send a GET a second, each on a new
connection from an address other than the attacker's. Their 99th percentile stands beside that of quiet times.
"""

import http.client
import pathlib
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from harness.fleet import PLIMSOLL, Fleet
from harness.holders import ADDRESS, SLOT_ATTACKS, Holders, command
from harness.process import Process, find_program, free_port, wait_until

MAX_REQUESTS = 100
QUIET_SECONDS, QUIET_PER_SECOND = 60.0, 5.0
HONEST_PER_SECOND = 1.0
# Until processes that have started, or attackers who have connected, are done with that.
SETTLE_SECONDS = 2.0
# An honest user who has no answer by then is not served.
PATIENCE_SECONDS = 10.0
# For proxies with such limits, all that have no default.
TIMEOUT = "60s"


@dataclass
class Target:
    """A proxy, and the ports at which it takes HTTP/1 and HTTP/2 without TLS."""

    command: list[str]
    port: int
    http2_port: int


def _plimsoll(home: pathlib.Path, backends: list[str]) -> Target:
    """Without a file: every setting at its default."""
    del home
    port = free_port()
    to = [word for address in backends for word in ("--to", address)]
    admin = ["--admin", f"127.0.0.1:{free_port()}"]
    return Target([PLIMSOLL, "proxy", "--from", f"127.0.0.1:{port}", *admin, *to], port, port)


def _nginx(home: pathlib.Path, backends: list[str]) -> Target:
    """WebSockets as its documentation sets them up; time limits and buffering of bodies by default."""
    port, http2_port = free_port(), free_port()
    servers = "\n".join(f"server {address} max_conns={MAX_REQUESTS};" for address in backends)
    paths = "\n".join(f"{kind}_temp_path {home}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (home / "nginx.conf").write_text(f"""
        daemon off;
        master_process off;
        worker_rlimit_nofile 8192;
        pid {home}/nginx.pid;
        error_log stderr crit;
        events {{ worker_connections 4096; }}
        http {{
            access_log off;
            {paths}
            map $http_upgrade $connection_upgrade {{ default upgrade; '' close; }}
            upstream backends {{ {servers} }}
            server {{
                listen 127.0.0.1:{port};
                listen 127.0.0.1:{http2_port} http2;
                location / {{
                    proxy_pass http://backends;
                    proxy_http_version 1.1;
                    proxy_set_header Upgrade $http_upgrade;
                    proxy_set_header Connection $connection_upgrade;
                }}
            }}
        }}
    """)
    return Target([find_program("nginx"), "-e", "stderr", "-p", str(home), "-c", str(home / "nginx.conf")], port, http2_port)


def _haproxy(home: pathlib.Path, backends: list[str]) -> Target:
    port = free_port()
    servers = "\n".join(f"    server b{at} {address} maxconn {MAX_REQUESTS}" for at, address in enumerate(backends))
    (home / "haproxy.cfg").write_text(f"""
global
    maxconn 4000
    no strict-limits
defaults
    mode http
    timeout connect 1s
    timeout client {TIMEOUT}
    timeout server {TIMEOUT}
    timeout queue 5s
frontend front
    bind 127.0.0.1:{port}
    default_backend backends
backend backends
    balance leastconn
{servers}
""")
    return Target([find_program("haproxy"), "-db", "-f", str(home / "haproxy.cfg")], port, port)


PEERS: dict[str, Callable[[pathlib.Path, list[str]], Target]] = {
    "nginx": _nginx,
    "haproxy": _haproxy,
    "plimsoll": _plimsoll,
}


def _ask(port: int) -> str:
    """One request on a new connection: what is wrong with its response, or nothing."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
    try:
        connection.request("GET", "/")
        response = connection.getresponse()
        response.read()
        return "" if response.status == 200 else str(response.status)
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__
    finally:
        connection.close()


def _timed(port: int) -> tuple[str, float]:
    began = time.monotonic()
    wrong = _ask(port)
    return wrong, (time.monotonic() - began) * 1e3


def _honest(port: int, seconds: float, per_second: float) -> dict:
    """Requests by the clock, whether or not those before them are answered."""
    began = time.monotonic()
    asked = []
    with ThreadPoolExecutor(int(PATIENCE_SECONDS * per_second) + 1) as pool:
        for number in range(int(seconds * per_second)):
            time.sleep(max(0.0, began + number / per_second - time.monotonic()))
            asked.append(pool.submit(_timed, port))
        made = [each.result() for each in asked]
    latencies = sorted(milliseconds for wrong, milliseconds in made if not wrong)
    failures: dict[str, int] = {}
    for wrong in (wrong for wrong, _ in made if wrong):
        failures[wrong] = failures.get(wrong, 0) + 1
    p99 = latencies[int(len(latencies) * 0.99)] if latencies else None
    return {"asked": len(made), "served": len(latencies), "failures": failures, "p99_ms": p99}


def _pair(attack: str, peer: str, seconds: float, fleet: Fleet, step: threading.Barrier) -> dict:
    """Each step is begun by all pairs that run at the same time: what starts does not disturb what is measured."""
    name = f"{attack}-{peer}"
    home = fleet.directory / name
    home.mkdir()
    ports = [free_port(), free_port()]
    site = Process(f"{name}-site", command("open_site", *map(str, ports)), fleet.directory)
    fleet.processes.append(site)
    for port in ports:
        site.wait_for_port(port, 30)
    target = PEERS[peer](home, [f"127.0.0.1:{port}" for port in ports])
    proxy = Process(name, target.command, fleet.directory)
    fleet.processes.append(proxy)
    proxy.wait_for_port(target.port, 30)
    wait_until(f"{name} serves", lambda: not _ask(target.port), 30)
    step.wait()
    time.sleep(SETTLE_SECONDS)
    quiet = _honest(target.port, min(seconds, QUIET_SECONDS), QUIET_PER_SECOND)
    step.wait()
    goal = target.http2_port if SLOT_ATTACKS[attack].is_http2 else target.port
    holders = Holders(attack, goal, seconds + 60, fleet.directory, f"{name}-holders")
    fleet.processes.append(holders)
    wait_until(f"{name}: all is held", holders.holds, 60)
    step.wait()
    time.sleep(SETTLE_SECONDS)
    attacked = _honest(target.port, seconds, HONEST_PER_SECOND)
    step.wait()
    if holders.exit_code is not None:
        raise RuntimeError(f"{name}: the attack ended early:\n{holders.output()}")
    if proxy.exit_code is not None:
        raise RuntimeError(f"{name} ended with {proxy.exit_code}:\n{proxy.output()}")
    for process in (holders, proxy, site):
        process.kill()
    print(f"{attack} {peer}: {attacked['served']} of {attacked['asked']} served {attacked['failures']}", file=sys.stderr)
    return {"quiet": quiet, "attacked": attacked}


def measure(attacks: list[str], peers: list[str], seconds: float, together: bool, fleet: Fleet) -> dict[str, dict[str, dict]]:
    """By attack and by peer. `together`: all pairs at the same time, which takes as long as one."""
    pairs = [(attack, peer) for attack in attacks for peer in peers]
    at_once = len(pairs) if together else 1
    barrier = threading.Barrier(at_once)

    def run(pair: tuple[str, str]) -> dict:
        try:
            return _pair(*pair, seconds, fleet, barrier)
        except BaseException:
            # The others must not wait for this one.
            barrier.abort()
            raise

    with ThreadPoolExecutor(at_once) as pool:
        made = list(pool.map(run, pairs))
    runs: dict[str, dict[str, dict]] = {attack: {} for attack in attacks}
    for (attack, peer), found in zip(pairs, made, strict=True):
        runs[attack][peer] = found
    return runs


def _cell(pair: dict) -> str:
    quiet, attacked = pair["quiet"], pair["attacked"]
    share = attacked["served"] / attacked["asked"]
    p99 = " → ".join("–" if each["p99_ms"] is None else f"{each['p99_ms']:.1f}" for each in (quiet, attacked))
    return f"{attacked['served']} of {attacked['asked']} ({share:.0%}), {p99}"


def markdown(result: dict) -> str:
    peers, seconds = result["peers"], result["seconds"]
    pairs = "all pairs at the same time" if result["together"] else "one pair after the other"
    lines = [
        f"# Honest users on the cluster that is attacked, {result['date']}",
        "",
        f"{HONEST_PER_SECOND:g} GET a second, each on a new connection, for {seconds:g} s while an attacker with one other address",
        f"({ADDRESS}) holds all that it can: {pairs}. Two backends, {MAX_REQUESTS} requests at most at each: plimsoll's default,",
        "`max_conns` of nginx, `maxconn` of HAProxy. All else is as it comes; HAProxy, which has no default time limits, has",
        f"{TIMEOUT} for each and 5 s for its queue.",
        "",
        f"Requests served within {PATIENCE_SECONDS:g} s, and their 99th percentile in ms, quiet → attacked:",
        "",
        f"| attack | {' | '.join(f'{peer}: honest on the same cluster' for peer in peers)} |",
        f"|---|{'--:|' * len(peers)}",
        *(f"| {attack} | {' | '.join(_cell(of[peer]) for peer in peers)} |" for attack, of in result["runs"].items()),
        "",
        *(f"- `{attack}`: {SLOT_ATTACKS[attack].says}" for attack in result["runs"]),
        "",
        f"- command: `{result['command']}`",
        f"- versions: {', '.join(result['versions'].values())}",
        f"- machine: {result['machine']}; commit {result['commit']}",
        "",
    ]
    return "\n".join(lines)


def misses(runs: dict[str, dict[str, dict]], most_times: float) -> list[str]:
    """Where an honest user of plimsoll noticed the attack."""
    found = []
    for attack, of in runs.items():
        pair = of.get("plimsoll")
        if pair is None:
            continue
        quiet, attacked = pair["quiet"]["p99_ms"], pair["attacked"]["p99_ms"]
        if attacked is None or pair["attacked"]["failures"]:
            found.append(f"{attack}: not served: {pair['attacked']['failures']}")
        elif quiet is not None and attacked > most_times * quiet:
            found.append(f"{attack}: p99 {attacked:.1f} ms, quiet {quiet:.1f} ms")
    return found
