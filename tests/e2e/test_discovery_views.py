"""The state of a source in the API, in metrics and in the log, while it fails, loses most backends and recovers."""

import json
import signal

from harness.fleet import Fleet, Proxy, config, http
from harness.process import accepts, free_port, wait_until
from test_discovery import SEEN, start, wait_for_members, write

# A failing file is read every 5 s.
FAILS = SEEN + 6


def discovery(proxy: Proxy) -> dict:
    answer = proxy.admin.json("/api/v1/clusters/main")
    assert isinstance(answer, dict)
    return answer["discovery"]


def backends_by_state(proxy: Proxy) -> dict[str, float]:
    states = ("ready", "held", "draining", "starting")
    return {state: proxy.admin.metric("plimsoll_discovery_backends", state=state) for state in states}


def lines(proxy: Proxy, message: str) -> list[dict]:
    return [line for line in map(json.loads, proxy.output().splitlines()) if line["message"].startswith(message)]


def test_views_tell_a_failure_a_held_loss_and_a_recovery(fleet: Fleet) -> None:
    addresses = [fleet.backend().address for _ in range(6)]
    path = fleet.directory / "web.json"
    write(path, addresses[:5])
    proxy = start(fleet, path, 'hold = "4s"')
    wait_for_members(proxy, addresses[:5])
    proxy.admin.wait_for_healthy(5)

    view = discovery(proxy)
    assert (view["kind"], view["source"], view["state"], view["stale"]) == ("file", str(path), "ok", False)
    assert view["last_error"] is None
    assert view["backends"] == {"known": 5, "ready": 5, "held": 0, "draining": 0, "starting": 0}
    assert view["changes"]["added"] == 5
    assert proxy.admin.metric("plimsoll_discovery_info", kind="file", source=str(path)) == 1
    (first,) = lines(proxy, "backends changed")
    assert (first["added"], first["members"], first["source"]) == (5, 5, f"file {path}"), first

    # It fails: everything stays, and one line says so, however often the file is read.
    path.unlink()
    wait_until("it fails again and again", lambda: proxy.admin.metric("plimsoll_discovery_errors_total") >= 2, FAILS)
    view = discovery(proxy)
    assert (view["state"], view["backends"]["ready"]) == ("failing", 5)
    assert "cannot be read" in view["last_error"]["error"] and view["last_error"]["age_s"] < FAILS
    assert proxy.admin.metric("plimsoll_discovery_failing") == 1
    assert len(lines(proxy, "discovery failed")) == 1
    assert http(proxy.url)[0] == 200

    # It recovers with a loss of most: the missing ones are held, and another one comes.
    write(path, [addresses[0], addresses[5]])
    wait_until("the loss is held", lambda: discovery(proxy)["backends"]["held"] == 4, SEEN)
    view = discovery(proxy)
    assert (view["state"], view["backends"]["known"], view["backends"]["ready"]) == ("ok", 6, 2)
    assert "cannot be read" in view["last_error"]["error"], "kept after the recovery"
    assert (view["changes"]["held"], view["changes"]["removed"]) == (4, 0)
    assert backends_by_state(proxy) == {"ready": 2, "held": 4, "draining": 0, "starting": 0}
    assert proxy.admin.metric("plimsoll_discovery_failing") == 0
    assert len(lines(proxy, "discovery works again")) == 1
    assert lines(proxy, "backends changed")[-1]["held"] == 4

    # One is listed again in time; the time of the others ends.
    write(path, [addresses[0], addresses[5], addresses[1]])
    wait_for_members(proxy, [addresses[0], addresses[5], addresses[1]], 4 + SEEN)
    view = discovery(proxy)
    changes = {"added": 6, "changed": 0, "removed": 0, "drained": 0, "held": 4, "expired": 3}
    assert view["changes"] == changes
    for reason, count in changes.items():
        assert proxy.admin.metric("plimsoll_discovery_changes_total", reason=reason) == count, reason
    released, expired = lines(proxy, "backends changed")[-2:]
    assert (released["released"], released["expired"]) == (1, 0), released
    assert (expired["reason"], expired["expired"], expired["members"]) == ("hold-expired", 3, 3), expired


def test_changes_by_hand_are_apart_from_the_source(fleet: Fleet) -> None:
    addresses = [fleet.backend().address for _ in range(3)]
    path = fleet.directory / "web.json"
    write(path, addresses[:2])
    proxy = start(fleet, path)
    wait_for_members(proxy, addresses[:2])
    url = f"{proxy.admin.url}/api/v1/clusters/main/backends"
    assert http(f"{url}/{addresses[2]}", method="PUT", body=b"{}")[0] == 200
    assert http(f"{url}/{addresses[0]}", method="DELETE")[0] == 200
    wait_for_members(proxy, addresses[1:])
    view = discovery(proxy)
    assert view["backends"] == {"known": 2, "ready": 2, "held": 0, "draining": 0, "starting": 0}
    assert view["overrides"] == {"added": 1, "removed": 1, "weight": 0, "drained": 0}
    assert view["changes"]["added"] == 2 and view["changes"]["removed"] == 0
    assert len(lines(proxy, "backends changed")) == 1


def test_reload_that_changes_no_backend_counts_no_change(fleet: Fleet) -> None:
    proxy = fleet.proxy([fleet.backend().address])
    proxy.admin.wait_for_healthy(1)
    assert discovery(proxy)["kind"] == "static"
    for taken in (1, 2):
        assert proxy.admin.post("/api/v1/process/reload")[0] == 200
        assert proxy.admin.metric("plimsoll_reloads_total", result="taken") == taken
    assert discovery(proxy)["changes"]["added"] == 1
    assert len(lines(proxy, "backends changed")) == 1, lines(proxy, "backends changed")


def test_ready_waits_for_the_lists_and_names_clusters_without_backends(fleet: Fleet) -> None:
    backend = fleet.backend().address
    path = fleet.directory / "later.json"
    port, admin = free_port(), free_port()
    later = f'[[routes]]\nhost = "later.test"\ncluster = "later"\n[clusters.later.discovery]\nfile = "{path}"\n'
    file = fleet.directory / "later.toml"
    file.write_text(config(port, admin, [backend], further=later))
    proxy = fleet._keep(Proxy("waiting", ["-c", str(file)], port, admin, fleet.directory))
    # The other cluster is healthy long before; the proxy waits all the same, and says for what.
    proxy.wait_for_port(admin)
    proxy.admin.wait_for_healthy(1, cluster="main")
    wait_until("the reason is known", lambda: "cannot be read" in proxy.admin.get("/readyz")[1])
    status, text = proxy.admin.get("/readyz")
    warning = f'warning: cluster "later" has no backend: {path}: cannot be read'
    assert (status, text.splitlines()[0]) == (503, "starting") and warning in text, text
    assert not accepts(port)
    # After ten seconds that cluster keeps it from nothing.
    wait_until("it is ready", lambda: proxy.admin.get("/readyz")[0] == 200, 15)
    status, text = proxy.admin.get("/readyz")
    assert text.splitlines()[0] == "ready" and warning in text, text
    assert http(proxy.url)[0] == 200
    assert http(proxy.url, headers={"host": "later.test"})[0] == 503
    write(path, [backend])
    wait_until("nothing is left to warn of", lambda: proxy.admin.get("/readyz") == (200, "ready\n"), FAILS)
    proxy.admin.wait_for_healthy(1, cluster="later")
    assert http(proxy.url, headers={"host": "later.test"})[0] == 200


def test_proxy_that_waits_for_a_list_ends_when_told(fleet: Fleet) -> None:
    port, admin = free_port(), free_port()
    file = fleet.directory / "waits.toml"
    file.write_text(config(port, admin, [], further=f'[clusters.main.discovery]\nfile = "{fleet.directory}/no.json"\n'))
    proxy = fleet._keep(Proxy("waiting", ["-c", str(file)], port, admin, fleet.directory))
    proxy.wait_for_port(admin)
    wait_until("it answers", lambda: proxy.admin.get("/healthz")[0] == 200)
    proxy.signal(signal.SIGTERM)
    assert proxy.wait(5) == 0
