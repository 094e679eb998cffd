"""Backends from a watched file: they come and go under load, and a wrong file changes nothing."""

import json
import os
import pathlib

from harness.fleet import PLIMSOLL, UNTIL_FINISHED, Fleet, Proxy, config, finish, http
from harness.process import run, wait_until

BACKEND = ("--cost", "fixed:200us", "--wait", "fixed:10ms")
# A second until the change is seen, 200 ms until it counts, 200 ms until it is in force.
SEEN = 5


def write(path: pathlib.Path, addresses: list[str], **more: object) -> None:
    """By a new file and a rename, so that no half of it can be read."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(json.dumps({"backends": [{"address": address, **more} for address in addresses]}))
    new.rename(path)


def start(fleet: Fleet, path: pathlib.Path, discovery: str = "", addresses: list[str] | None = None) -> Proxy:
    further = f'[clusters.main.discovery]\nfile = "{path}"\n{discovery}\n'
    return fleet.proxy_of(lambda port, admin: config(port, admin, addresses or [], further=further))


def wait_for_members(proxy: Proxy, addresses: list[str], seconds: float = SEEN) -> None:
    wait_until(f"members are {addresses}", lambda: set(proxy.admin.backends()) == set(addresses), seconds)


def test_backends_come_and_go_under_load_without_a_failed_request(fleet: Fleet) -> None:
    backends = [fleet.backend(*BACKEND).address for _ in range(9)]
    path = fleet.directory / "web.json"
    write(path, backends[:3])
    proxy = start(fleet, path)
    proxy.admin.wait_for_healthy(3)
    load = fleet.load(proxy.url, "--rate", "300", "--duration", UNTIL_FINISHED, "--connections", "8")
    stays = backends[0]
    # Never more than half less at once: that would be held. Then as many others, and back.
    for members in (backends, backends[:5], backends[:3], [stays, *backends[5:7]], backends[:3]):
        write(path, members)
        wait_for_members(proxy, members)
    before = proxy.admin.backends()[stays]
    write(path, backends[:3], weight=2)
    wait_until("the weight changed", lambda: proxy.admin.backends()[stays]["weight"] == 2, SEEN)
    after = proxy.admin.backends()[stays]
    # The same backend: nothing that is known of it began anew.
    assert after["state"] == "healthy"
    assert after["since_s"] > before["since_s"]
    assert after["requests"] >= before["requests"] > 0
    assert after["connections"] >= before["connections"] > 0
    (counted,) = finish(proxy, load)
    assert counted.failed == 0, counted.raw


def test_wrong_files_change_nothing(fleet: Fleet) -> None:
    addresses = [fleet.backend().address for _ in range(4)]
    path = fleet.directory / "web.json"
    write(path, addresses)
    proxy = start(fleet, path)
    proxy.admin.wait_for_healthy(4)
    whole = path.read_text()
    for text, message in [
        (whole[: len(whole) // 2], "discovery failed"),
        ("", None),
        ('{"backends": []}', "discovery lists no backend"),
        ('[{"targets": ["10.0.0.1"]}]', "is no address with a port"),
        (f'[{{"targets": ["{addresses[0]}",\n"no.such.name.invalid:80"]}}]', "line 2: [0].targets[1]: cannot resolve no.such.name.invalid"),
    ]:
        path.write_text(text)
        if message:
            wait_until(f"the log has {message}", lambda message=message: message in proxy.output(), SEEN + 5)
        assert set(proxy.admin.backends()) == set(addresses)
        # Between two errors, so that each is a warning of its own.
        write(path, addresses)
        wait_until("it works again", lambda: proxy.admin.metric("plimsoll_discovery_failing") == 0, SEEN + 5)
    path.unlink()
    assert http(proxy.url)[0] == 200
    # Most of them are lost at once: they stay, and serve.
    write(path, addresses[:1])
    wait_until("the loss is held", lambda: "lost most backends" in proxy.output(), SEEN + 5)
    assert set(proxy.admin.backends()) == set(addresses)


def test_swapped_folder_of_a_config_map_is_seen(fleet: Fleet) -> None:
    first, second = fleet.backend().address, fleet.backend().address
    mount = fleet.directory / "mount"
    for name, address in (("..1", first), ("..2", second)):
        (mount / name).mkdir(parents=True)
        write(mount / name / "web.json", [address])
    os.symlink("..1", mount / "..data")
    os.symlink("..data/web.json", mount / "web.json")
    proxy = start(fleet, mount / "web.json")
    wait_for_members(proxy, [first])
    os.symlink("..2", mount / "..data_tmp")
    (mount / "..data_tmp").rename(mount / "..data")
    wait_for_members(proxy, [second])


def test_proxy_starts_before_its_file(fleet: Fleet) -> None:
    static, later = fleet.backend().address, fleet.backend().address
    path = fleet.directory / "web.json"
    proxy = start(fleet, path, addresses=[static])
    proxy.admin.wait_for_healthy(1)
    assert http(proxy.url)[0] == 200
    write(path, [later])
    wait_for_members(proxy, [static, later], SEEN + 5)


def test_check_resolve_prints_the_backends_of_each_source(fleet: Fleet) -> None:
    folder = fleet.directory
    path, file = folder / "web.json", folder / "check.toml"
    path.write_text('{"backends": [{"address": "10.0.0.1:80", "weight": 2, "zone": "a"}, {"address": "10.0.0.2:80", "state": "draining"}]}')
    further = f"""[clusters.other]
backends = ["localhost:81"]
[clusters.main.discovery]
file = "{path}"
"""
    text = config(80, 81, [], further=further)
    file.write_text(text)
    done = run([PLIMSOLL, "check", "-c", str(file), "--resolve"])
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == [f'cluster "main": file {path}: 2 backends', "  10.0.0.1:80 weight 2 zone a", "  10.0.0.2:80 draining"]
    assert lines[3].startswith('cluster "other": backends of the configuration: ') and "  127.0.0.1:81 host localhost:81" in lines
    path.write_text("{")
    done = run([PLIMSOLL, "check", "-c", str(file), "--resolve"])
    assert done.returncode == 1 and f'cluster "main": file {path}: no list: ' in done.stdout, done.stdout
    file.write_text(text.replace("localhost:81", "no.such.name.invalid:81"))
    done = run([PLIMSOLL, "check", "-c", str(file), "--resolve"])
    assert done.returncode == 1 and "could not be looked up" in done.stderr and "help: " in done.stderr
    assert f'cluster "main": file {path}: no list: ' in done.stdout, "the others are shown all the same"
    # A source may list any text, and a terminal obeys some of it.
    path.write_text('{"backends": [{"address": "10.0.0.1:80", "zone": "\\u001b[2J"}]}')
    file.write_text(text)
    done = run([PLIMSOLL, "check", "-c", str(file), "--resolve"])
    assert f'cluster "main": file {path}: 1 backend\n  10.0.0.1:80 zone \\u001b[2J\n' in done.stdout, done.stdout
