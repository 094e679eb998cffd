"""Lists of backends in `state_dir`: a restart while every source fails serves, and two processes agree."""

import json
import os
import pathlib
import signal
import stat
import time

from harness.fleet import PLIMSOLL, Fleet, Proxy, config, http
from harness.process import free_port, run, wait_until
from test_discovery import BACKEND, SEEN, wait_for_members, write
from test_upgrade import upgrade, upgrading  # noqa: F401


def text_of(fleet: Fleet, path: pathlib.Path, state: pathlib.Path, port: int, admin: int) -> str:
    return f'state_dir = "{state}"\n' + config(port, admin, [], further=f'[clusters.main.discovery]\nfile = "{path}"\n')


def start(fleet: Fleet, path: pathlib.Path, state: pathlib.Path) -> Proxy:
    return fleet.proxy_of(lambda port, admin: text_of(fleet, path, state, port, admin))


def saved(state: pathlib.Path) -> set[str]:
    try:
        content = json.loads((state / "list-main.json").read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return set()
    return {backend["address"] for backend in content["backends"]}


def wait_for_saved(state: pathlib.Path, addresses: list[str]) -> None:
    wait_until(f"{addresses} are saved", lambda: saved(state) == set(addresses), SEEN)


def folder(fleet: Fleet) -> pathlib.Path:
    state = fleet.directory / "state"
    state.mkdir()
    return state


def test_restart_without_source_serves_from_the_saved_list(fleet: Fleet) -> None:
    backends = [fleet.backend(*BACKEND).address for _ in range(3)]
    path, state = fleet.directory / "web.json", folder(fleet)
    write(path, backends, zone="a", weight=2)
    first = start(fleet, path, state)
    wait_for_saved(state, backends)
    # As with a crash: nothing is saved at the end.
    first.kill()
    path.unlink()
    begun = time.monotonic()
    second = start(fleet, path, state)
    wait_until("it serves", lambda: http(second.url)[0] == 200, 5, every=0.005)
    took = time.monotonic() - begun
    print(f"served {took:.3f} s after its start")
    assert took < 2, f"{took} s"
    assert set(second.admin.backends()) == set(backends)
    assert {backend["weight"] for backend in second.admin.backends().values()} == {2}
    assert "the saved list is in force" in second.output()
    assert "cannot be read" in second.output()
    # Its first answer is in force in place of the saved list.
    write(path, backends[:2])
    wait_for_members(second, backends[:2])
    wait_for_saved(state, backends[:2])


def test_wrong_saved_list_is_a_warning_and_the_start_goes_on(fleet: Fleet) -> None:
    address = fleet.backend().address
    path, state = fleet.directory / "web.json", folder(fleet)
    write(path, [address])
    file = state / "list-main.json"
    other = json.dumps({"version": 1, "cluster": "main", "source": "dns a", "saved": "", "backends": []})
    for content, message in [("{", "it is no saved list"), (other, "it is from another source: dns a")]:
        file.write_text(content)
        proxy = start(fleet, path, state)
        wait_for_members(proxy, [address])
        warnings = [line for line in proxy.output().splitlines() if "saved list not used" in line]
        assert len(warnings) == 1 and message in warnings[0] and str(file) in warnings[0], proxy.output()
        wait_for_saved(state, [address])
        proxy.kill()


def test_folder_that_cannot_be_used_ends_the_start_with_its_place(fleet: Fleet) -> None:
    file = fleet.directory / "plimsoll.toml"
    missing = fleet.directory / "missing"
    file.write_text(text_of(fleet, fleet.directory / "web.json", missing, free_port(), free_port()))
    # `check` runs on another machine than the proxy.
    assert run([PLIMSOLL, "check", "-c", str(file)]).returncode == 0
    ended = run([PLIMSOLL, "proxy", "-c", str(file)])
    assert ended.returncode == 1
    output = ended.stdout + ended.stderr
    assert f"plimsoll.toml:1:13: state_dir: {missing} cannot be used" in output, output
    assert "help: create the folder" in output


def test_full_folder_is_one_warning_and_lists_change_all_the_same(fleet: Fleet) -> None:
    addresses = [fleet.backend().address for _ in range(2)]
    path, state = fleet.directory / "web.json", folder(fleet)
    write(path, addresses[:1])
    proxy = start(fleet, path, state)
    wait_for_saved(state, addresses[:1])
    # In the way of the new file, for root too.
    (state / ".list-main.json.new").mkdir()
    write(path, addresses)
    wait_for_members(proxy, addresses)
    wait_until("it warns", lambda: "backends not saved" in proxy.output(), SEEN)
    time.sleep(1.5)
    assert proxy.output().count("backends not saved") == 1
    (state / ".list-main.json.new").rmdir()
    wait_until("it is saved later", lambda: saved(state) == set(addresses), 15)


def test_drain_saves_the_last_list_and_leaves_no_other_file(fleet: Fleet) -> None:
    addresses = [fleet.backend().address for _ in range(2)]
    path, state = fleet.directory / "web.json", folder(fleet)
    write(path, addresses)
    proxy = start(fleet, path, state)
    wait_for_members(proxy, addresses)
    proxy.signal(signal.SIGTERM)
    assert proxy.wait(20) == 0
    assert saved(state) == set(addresses)
    assert sorted(os.listdir(state)) == ["list-main.json", "lock"]
    assert stat.S_ISREG((state / "list-main.json").stat().st_mode)


def test_upgrade_leaves_the_folder_to_the_successor(upgrading: Fleet) -> None:  # noqa: F811
    fleet = upgrading
    addresses = [fleet.backend(*BACKEND).address for _ in range(4)]
    path, state = fleet.directory / "web.json", folder(fleet)
    write(path, addresses[:3])
    proxy = start(fleet, path, state)
    wait_for_saved(state, addresses[:3])
    process = proxy.pid
    for members in (addresses, addresses[1:]):
        process = upgrade(proxy, process)
        write(path, members)
        wait_for_members(proxy, members, 10)
        wait_for_saved(state, members)
    assert "not saved" not in proxy.output()
