"""Splits of a route: the shares beside nginx's `split_clients`, users that stay, a dead canary, the verdict."""

import json

import pytest
from harness.fleet import PLIMSOLL, Fleet, Proxy, one_listener
from harness.http1 import Connection
from harness.process import free_port, run, wait_until

USERS = [f"user-{number}" for number in range(1000)]


def split_tables(sides: dict[str, tuple[str, float]], more: str = "") -> str:
    parts = "".join(f'[[routes.split]]\ncluster = "{name}"\nweight = {weight}\n' for name, (_, weight) in sides.items())
    clusters = "".join(f'[clusters.{name}]\nbackends = ["{address}"]\n' for name, (address, _) in sides.items())
    return f"[[routes]]\n{more}\n{parts}{clusters}"


def split_proxy(fleet: Fleet, main: str, canary: str, weight: float, more: str = "") -> Proxy:
    sides = {"web": (main, 100 - weight), "web-canary": (canary, weight)}
    return fleet.proxy_by(split_tables(sides, more), dict.fromkeys(sides, 1))


def split_of(proxy: Proxy) -> dict:
    splits = proxy.admin.json("/api/v1/splits")
    assert isinstance(splits, dict)
    [split] = splits["splits"]
    return split


def asked(port: int, users: list[str]) -> list[tuple[int, str | None, bytes]]:
    """Status, backend and body of the response to each user, on one connection."""
    with Connection.to(port) as client:
        responses = [client.request("/", fields=f"x-user: {user}\r\n") for user in users]
        return [(response.status, response.get("x-backend"), response.body) for response in responses]


def nginx_split(fleet: Fleet, main: str, canary: str, percent: float) -> int:
    """nginx with the same task: `split_clients` by the same field. Returns its port."""
    http = f"split_clients $http_x_user $side {{ {percent}% {canary}; * {main}; }}"
    return fleet.nginx_server("nginx-split", "keepalive_requests 100000; location / { proxy_pass http://$side; }", http)


def test_users_are_split_and_stay_as_with_nginx(fleet: Fleet) -> None:
    main, canary = fleet.nginx(), fleet.nginx()
    proxy = split_proxy(fleet, main, canary, 20, 'split_by = "header:x-user"')
    nginx = nginx_split(fleet, main, canary, 20)
    for port in (proxy.port, nginx):
        first = asked(port, USERS)
        # A user stays on one side, on other connections and threads as well.
        assert asked(port, USERS) == first
        on_canary = sum(backend == canary for _, backend, _ in first)
        # Five standard deviations of 1,000 users at 20%.
        assert 137 <= on_canary <= 263, f"port {port}: {on_canary}"
        # The same responses, whichever proxy asked.
        assert {(status, body) for status, _, body in first} == {(200, f"{side}\n".encode()) for side in (main, canary)}


def test_requests_take_turns_exactly(fleet: Fleet) -> None:
    main, canary = fleet.nginx(), fleet.nginx()
    proxy = split_proxy(fleet, main, canary, 5)
    backends = [backend for _, backend, _ in asked(proxy.port, USERS)]
    # Within five requests of 5%; by chance it would be up to 35 off.
    assert abs(backends.count(canary) - 50) <= 5
    sides = {side["cluster"]: side["requests"] for side in split_of(proxy)["sides"]}
    assert sides == {"web": backends.count(main), "web-canary": backends.count(canary)}


def test_greater_weight_moves_users_to_the_canary_only(fleet: Fleet) -> None:
    main, canary = fleet.nginx(), fleet.nginx()
    port, admin = free_port(), free_port()
    before: set[str] = set()
    proxy = None
    for weight in (5, 30, 100):
        sides = {"web": (main, 100 - weight), "web-canary": (canary, weight)}
        text = one_listener(port, admin, split_tables(sides, 'split_by = "cookie:session"'))
        if proxy is None:
            proxy = fleet.proxy_with(text, port, admin)
            for name in sides:
                proxy.admin.wait_for_healthy(1, cluster=name)
        else:
            (fleet.directory / "plimsoll-1.toml").write_text(text)
            assert proxy.admin.post("/api/v1/process/reload")[0] == 200
        with Connection.to(port) as client:
            responses = {user: client.request("/", fields=f"cookie: a=b; session={user}\r\n") for user in USERS}
        on_canary = {user for user, response in responses.items() if response.get("x-backend") == canary}
        assert before <= on_canary, before - on_canary
        before = on_canary
    assert len(before) == len(USERS)


def test_dead_canary_fails_no_request(fleet: Fleet) -> None:
    main, canary = fleet.nginx(), fleet.backend()
    proxy = split_proxy(fleet, main, canary.address, 50)
    canary.kill()
    proxy.admin.wait_for_state(canary.address, "refusing", cluster="web-canary")
    answers = asked(proxy.port, USERS[:200])
    assert {(status, backend) for status, backend, _ in answers} == {(200, main)}
    fallbacks = proxy.admin.metric("plimsoll_split_fallbacks_total", route="/", cluster="web-canary")
    assert 95 <= fallbacks <= 105
    assert split_of(proxy)["sides"][1]["fallbacks"] == fallbacks


def test_drained_canary_fails_no_request_and_is_not_compared(fleet: Fleet) -> None:
    main, canary = fleet.nginx(), fleet.backend()
    proxy = split_proxy(fleet, main, canary.address, 50)
    drain = [PLIMSOLL, "drain", "--admin", f"127.0.0.1:{proxy.admin.port}", "--backend", canary.address]
    assert run(drain, 20).returncode == 0
    answers = asked(proxy.port, USERS[:200])
    assert {(status, backend) for status, backend, _ in answers} == {(200, main)}
    split = split_of(proxy)
    of_main, of_canary = split["sides"]
    assert (of_main["drained"], of_canary["drained"]) == (False, True)
    assert 95 <= of_canary["fallbacks"] <= 105
    comparison = split["comparisons"][0]
    assert (comparison["verdict"], comparison["canary_requests"]) == ("undecided", 0)
    assert run([PLIMSOLL, "undrain", *drain[2:]], 20).returncode == 0
    on_canary = sum(backend != main for _, backend, _ in asked(proxy.port, USERS[:20]))
    split = split_of(proxy)
    assert on_canary > 5 and not split["sides"][1]["drained"]
    assert split["comparisons"][0]["canary_requests"] == on_canary


def metric_of(comparison: dict, name: str) -> dict:
    return next(metric for metric in comparison["metrics"] if metric["metric"] == name)


# Each rollout: its canary, and the metric that finds it.
ROLLOUTS = {"cpu": "cpu", "errors": "errors", "crashed": "errors", "hanging": "latency-median"}


def rollouts_tables(main: str, canaries: dict[str, str]) -> str:
    """A route for each rollout, below its name."""
    routes = "".join(
        f'[[routes]]\npath_prefix = "/{name}"\nsplit = [\n'
        f'    {{ cluster = "web", weight = 50 }}, {{ cluster = "{name}", weight = 50 }},\n]\n'
        for name in canaries
    )
    clusters = "".join(f'[clusters.{name}]\nbackends = ["{address}"]\n' for name, address in canaries.items())
    return f'{routes}[clusters.web]\nbackends = ["{main}"]\n{clusters}'


def comparisons(proxy: Proxy) -> dict[str, dict]:
    splits = proxy.admin.json("/api/v1/splits")
    assert isinstance(splits, dict)
    return {split["sides"][1]["cluster"]: split["comparisons"][0] for split in splits["splits"]}


@pytest.mark.timeout(300)
def test_worse_canaries_of_four_kinds_are_found(fleet: Fleet) -> None:
    # At once, because a verdict takes two minutes.
    def backend(used: float, *arguments: str) -> str:
        return fleet.backend("--cost", "fixed:0.01ms", "--report", f"utilization={used},rps=100", *arguments).address

    canaries = {
        "cpu": backend(0.6),
        "errors": backend(0.5, "--error-rate", "0.1"),
        "crashed": f"127.0.0.1:{free_port()}",
        # Its clients leave after a tenth of a second.
        "hanging": backend(0.5, "--wait", "fixed:60s"),
    }
    main = backend(0.5)
    proxy = fleet.proxy_by(rollouts_tables(main, canaries), dict.fromkeys(("web", "cpu", "errors", "hanging"), 1))
    for name in canaries:
        fleet.load(f"{proxy.url}/{name}", "--rate", "100", "--timeout", "100ms", "--duration", "200s")
    wait_until("four verdicts", lambda: all(of["verdict"] != "undecided" for of in comparisons(proxy).values()), 180)
    found = comparisons(proxy)
    for name, metric in ROLLOUTS.items():
        assert (found[name]["verdict"], metric_of(found[name], metric)["finding"]) == ("worse", "worse"), found[name]
        labels = {"route": f"/{name}", "cluster": name}
        assert proxy.admin.metric("plimsoll_split_verdict", **labels, verdict="worse") == 1
    cpu = metric_of(found["cpu"], "cpu")
    assert abs(cpu["difference"] - 0.2) < 0.01 and abs(cpu["main"] - 0.005) < 1e-4
    errors = metric_of(found["errors"], "errors")
    assert errors["low"] < 0.1 < errors["high"]
    # No request of the canary failed a client, and all would have.
    assert metric_of(found["crashed"], "errors")["canary"] == 1
    assert metric_of(found["hanging"], "errors")["finding"] != "worse", "clients that leave are no errors"
    assert "canary is worse than the main version" in proxy.output()
    explain = [PLIMSOLL, "explain", "--admin", f"127.0.0.1:{proxy.admin.port}"]
    failed = json.loads(run([*explain, "--outcome", "failed", "--json"], 10).stdout)["requests"][0]
    assert (failed["split"]["side"], failed["split"]["verdict"]) == ("canary", "worse")
    told = run([*explain, failed["id"]], 10).stdout
    assert "canary, 50% of requests; the canary is worse: error rate +" in told, told
