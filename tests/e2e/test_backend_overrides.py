"""Single backends changed by hand through the admin API: under load, over reloads and over restarts."""

import json
import os
import time

import pytest
from harness.fleet import PLIMSOLL, UNTIL_FINISHED, Fleet, Proxy, config, finish, http
from harness.process import find_program, run, wait_until

BACKEND = ("--cost", "fixed:200us", "--wait", "fixed:10ms")


def change(proxy: Proxy, method: str, address: str, body: dict | None = None, query: str = "", **headers: str) -> tuple[int, dict]:
    url = f"{proxy.admin.url}/api/v1/clusters/main/backends/{address}{query}"
    data = json.dumps(body).encode() if body is not None else None
    status, text = http(url, method=method, body=data, headers=headers)
    return status, json.loads(text)


def changed(proxy: Proxy, method: str, address: str, body: dict | None = None, query: str = "") -> dict:
    status, answer = change(proxy, method, address, body, query)
    assert status == 200, answer
    return answer


def overrides(proxy: Proxy) -> list[tuple[str, str]]:
    return [(each["address"], each["kind"]) for each in proxy.admin.json("/api/v1/clusters/main/overrides")["overrides"]]


def reload(proxy: Proxy) -> None:
    status, text = proxy.admin.post("/api/v1/process/reload")
    assert status == 200, text


def test_changes_under_load_fail_no_request_and_leave_others_alone(fleet: Fleet) -> None:
    backends = [fleet.backend(*BACKEND).address for _ in range(4)]
    first, second, third, fourth = backends
    proxy = fleet.proxy([first, second, third])
    proxy.admin.wait_for_healthy(3)
    # Four callers: however busy the machine is, no backend needs more than four connections at a time.
    load = fleet.load(proxy.url, "--concurrency", "4", "--duration", UNTIL_FINISHED)
    wait_until("all are used", lambda: all(row["requests"] > 20 for row in proxy.admin.backends().values()))

    # In force when the command is answered: no wait below is for the proxy.
    answer = changed(proxy, "PUT", fourth, {"weight": 2, "zone": "b"})
    assert answer["warnings"] == [] and answer["overrides"][0]["kind"] == "added", answer
    proxy.admin.wait_for_healthy(4)
    wait_until("the added one is used", lambda: proxy.admin.backends()[fourth]["requests"] > 20)
    before = proxy.admin.backends()[first]

    assert changed(proxy, "PATCH", second, {"weight": 0.25})["backend"]["weight"] <= 0.25
    assert changed(proxy, "PATCH", third, {"state": "draining"})["backend"]["reason"] == "drained"
    wait_until("the drained one is idle", lambda: proxy.admin.backends()[third]["in_flight"] == 0)
    drained = proxy.admin.backends()[third]["requests"]
    assert changed(proxy, "DELETE", second)["backend"] is None
    assert set(proxy.admin.backends()) == {first, third, fourth}
    time.sleep(1)
    assert proxy.admin.backends()[third]["requests"] == drained
    assert proxy.admin.metric("plimsoll_backend_overrides", cluster="main") == 4

    after = proxy.admin.backends()[first]
    assert (after["state"], after["overrides"]) == ("healthy", [])
    assert after["since_s"] > before["since_s"] and after["requests"] > before["requests"]
    assert after["connections"] >= before["connections"] > 0
    opened = proxy.admin.metric("plimsoll_backend_connections_opened_total", backend=first)

    changed(proxy, "PATCH", third, {"state": "ready"})
    changed(proxy, "DELETE", second, query="?revoke")
    changed(proxy, "DELETE", fourth)
    assert overrides(proxy) == []
    proxy.admin.wait_for_healthy(3)
    wait_until("the drained one is used", lambda: proxy.admin.backends()[third]["requests"] > drained + 10)
    assert proxy.admin.metric("plimsoll_backend_connections_opened_total", backend=first) <= opened + 8
    (counted,) = finish(proxy, load)
    assert counted.failed == 0, counted.raw
    assert counted.by_backend.get(fourth, 0) > 0
    events = [line for line in proxy.output().splitlines() if "backend override set" in line]
    assert len(events) == 7 and "127.0.0.1" in events[0], events


def test_change_ends_after_its_time_and_commands_may_be_repeated(fleet: Fleet) -> None:
    addresses = [fleet.backend(*BACKEND).address for _ in range(2)]
    proxy = fleet.proxy(addresses)
    proxy.admin.wait_for_healthy(2)
    for _ in range(2):
        answer = changed(proxy, "DELETE", addresses[0], query="?for=2s")
    begun = time.monotonic()
    assert answer["overrides"][0]["until"].endswith("Z"), answer
    assert list(proxy.admin.backends()) == [addresses[1]]
    wait_until("it is a member again", lambda: addresses[0] in proxy.admin.backends(), 4)
    assert 1 <= time.monotonic() - begun <= 3
    assert overrides(proxy) == [] and "backend override ended" in proxy.output()
    for _ in range(2):
        assert len(changed(proxy, "PUT", addresses[0], {"weight": 3})["overrides"]) == 1


def test_all_backends_are_taken_out_when_the_operator_says_so(fleet: Fleet) -> None:
    addresses = [fleet.backend(*BACKEND).address for _ in range(2)]
    proxy = fleet.proxy(addresses)
    proxy.admin.wait_for_healthy(2)
    assert changed(proxy, "DELETE", addresses[0])["warnings"] == []
    answer = changed(proxy, "PATCH", addresses[1], {"state": "draining"})
    assert "no backend left" in answer["warnings"][0], answer
    assert http(proxy.url)[0] == 503
    changed(proxy, "DELETE", addresses[0], query="?revoke")
    proxy.admin.wait_for_healthy(1)
    assert http(proxy.url)[0] == 200


def test_changes_stay_over_reloads_and_new_lists(fleet: Fleet) -> None:
    addresses = [fleet.backend(*BACKEND).address for _ in range(4)]
    path = fleet.directory / "web.json"
    write = lambda listed: path.write_text(json.dumps({"backends": [{"address": address} for address in listed]}))  # noqa: E731
    write(addresses[:3])
    proxy = fleet.proxy_of(lambda port, admin: config(port, admin, [], further=f'[clusters.main.discovery]\nfile = "{path}"'))
    proxy.admin.wait_for_healthy(3)
    changed(proxy, "DELETE", addresses[0])
    changed(proxy, "PATCH", addresses[1], {"state": "draining", "weight": 2})
    changed(proxy, "PUT", addresses[3])
    proxy.admin.wait_for_healthy(2)
    expected = sorted([(addresses[0], "removed"), (addresses[1], "drained"), (addresses[1], "weight"), (addresses[3], "added")])
    members = set(addresses[1:])
    reload(proxy)
    assert set(proxy.admin.backends()) == members and sorted(overrides(proxy)) == expected
    # A sudden loss holds the others, and not the removed one.
    write(addresses[2:3])
    wait_until("the loss is held", lambda: "lost most backends" in proxy.output(), 10)
    assert set(proxy.admin.backends()) == members
    write(addresses[:3])
    time.sleep(3)
    assert set(proxy.admin.backends()) == members and sorted(overrides(proxy)) == expected
    assert proxy.admin.states()[addresses[1]] == "lame-duck"


def test_bad_commands_change_nothing_and_say_what_is_wrong(fleet: Fleet) -> None:
    address = fleet.backend(*BACKEND).address
    proxy = fleet.proxy([address])
    for method, where, body, query, status, message in [
        ("PUT", "localhost:80", None, "", 400, "is no address"),
        ("PUT", address, {"wieght": 2}, "", 400, "unknown field"),
        ("PUT", address, {"zone": "z" * 5000}, "", 413, "limit"),
        ("PATCH", address, {"weight": 0}, "", 400, "out of range"),
        ("PUT", address, {"speed": 0}, "", 400, "out of range"),
        ("PATCH", address, {"speed": 2}, "", 400, "unknown field"),
        ("DELETE", "127.0.0.1:9", None, "", 404, "there is no backend"),
        ("DELETE", address, None, "?for=2", 400, "not a duration"),
        ("POST", address, None, "", 405, "method"),
    ]:
        got, answer = change(proxy, method, where, body, query)
        assert got == status and message in answer["error"] and answer["help"], answer
    for headers in ({"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}, {"host": "evil.example"}):
        for method in ("PUT", "PATCH", "DELETE"):
            assert change(proxy, method, address, {"weight": 2}, **headers)[0] == 403
    assert overrides(proxy) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_changes_no_backend(fleet: Fleet) -> None:
    address = fleet.backend(*BACKEND).address
    proxy = fleet.proxy([address])
    url = f"{proxy.admin.url}/api/v1/clusters/main/backends/{address}"
    other = [find_program("setpriv"), "--reuid", "65534", "--regid", "65534", "--clear-groups", "--", find_program("curl"), "-s", "-X"]
    for method in ("PUT", "PATCH", "DELETE"):
        done = run([*other, method, url, "-d", '{"weight": 2}'])
        assert "its own user and from root only" in done.stdout, done.stdout
    assert address in run([*other, "GET", url]).stdout, "anybody may read"
    assert overrides(proxy) == []


def with_state(fleet: Fleet, addresses: list[str]) -> tuple[Proxy, str]:
    """A proxy that saves changes by hand, and the text of its config."""
    folder = fleet.directory / "state"
    folder.mkdir(exist_ok=True)
    texts: list[str] = []

    def text(port: int, admin: int) -> str:
        texts.append(f'state_dir = "{folder}"\n' + config(port, admin, addresses))
        return texts[-1]

    return fleet.proxy_of(text), texts[-1]


def test_changes_are_in_force_after_a_crash(fleet: Fleet) -> None:
    addresses = [fleet.backend(*BACKEND).address for _ in range(4)]
    proxy, _ = with_state(fleet, addresses[:3])
    proxy.admin.wait_for_healthy(3)
    assert changed(proxy, "DELETE", addresses[0])["persistent"] is True
    changed(proxy, "PATCH", addresses[1], {"state": "draining"}, "?for=1h")
    changed(proxy, "PUT", addresses[3], {"weight": 2, "zone": "b", "speed": 1.5})
    changed(proxy, "PATCH", addresses[2], {"weight": 3}, "?for=1s")
    before = overrides(proxy)
    proxy.kill()
    time.sleep(1.1)
    again, _ = with_state(fleet, addresses[:3])
    again.admin.wait_for_healthy(2)
    expected = [each for each in before if each != (addresses[2], "weight")]
    assert sorted(overrides(again)) == sorted(expected), "the time of the weight went on while there was no process"
    assert set(again.admin.backends()) == set(addresses[1:])
    rows = again.admin.json("/api/v1/clusters/main/overrides")["overrides"]
    assert [(row["weight"], row["zone"], row["speed"]) for row in rows if row["kind"] == "added"] == [(2, "b", 1.5)]
    assert again.admin.backends()[addresses[3]]["speed"] == 1.5
    assert again.admin.states()[addresses[1]] == "lame-duck"
    assert changed(again, "DELETE", addresses[0], query="?revoke")["persistent"] is True
    again.admin.wait_for_healthy(3)


def test_check_diff_lists_saved_changes_and_their_end(fleet: Fleet) -> None:
    addresses = [fleet.backend(*BACKEND).address for _ in range(2)]
    proxy, text = with_state(fleet, addresses)
    proxy.admin.wait_for_healthy(2)
    changed(proxy, "DELETE", addresses[0])
    old, new = fleet.directory / "old.toml", fleet.directory / "new.toml"
    old.write_text(text)
    new.write_text(text.replace("[clusters.main", "[clusters.other").replace('cluster = "main"', 'cluster = "other"'))
    for file, effect in ((old, "stays in force"), (new, "ends with its cluster")):
        done = run([PLIMSOLL, "check", "-c", str(file), "--diff", str(old)])
        assert f'cluster "main": {addresses[0]} removed until it is revoked: {effect}' in done.stdout, done.stdout + done.stderr
    done = run([PLIMSOLL, "check", "-c", str(old), "--diff", str(old), "--json"])
    assert json.loads(done.stdout)["by_hand"][0]["kind"] == "removed"
    (fleet.directory / "state" / "overrides.json").write_text("{")
    done = run([PLIMSOLL, "check", "-c", str(old), "--diff", str(old)])
    assert "overrides.json: it has no saved overrides" in done.stderr and done.returncode == 0
