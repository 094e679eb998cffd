"""`--watch`: a changed config is in force by itself, and a half-written, wrong or missing one changes nothing."""

import json
import os
import pathlib
import time

from harness.fleet import PLIMSOLL, Fleet, Proxy, config, http
from harness.process import free_port, run, wait_until

# A second until the change is seen, 200 ms until it counts, and five if only the content tells.
SEEN = 8


def start(fleet: Fleet, file: pathlib.Path, addresses: list[str]) -> tuple[Proxy, str]:
    port, admin = free_port(), free_port()
    text = config(port, admin, addresses)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    proxy = fleet._keep(Proxy("watching", ["-c", str(file), "--watch"], port, admin, fleet.directory))
    proxy.wait_for_port(port)
    proxy.admin.wait_for_healthy(len(addresses))
    return proxy, text


def reloads(proxy: Proxy) -> tuple[float, float]:
    return tuple(proxy.admin.metric("plimsoll_reloads_total", result=result) for result in ("taken", "refused"))


def wait_for_reloads(proxy: Proxy, taken: int, refused: int) -> None:
    """A reload counts when it has ended: some of its changes are in force before."""
    wait_until("the reload has ended", lambda: reloads(proxy) == (taken, refused), SEEN)


def replace(file: pathlib.Path, text: str) -> None:
    new = file.with_name(f"{file.name}.new")
    new.write_text(text)
    new.rename(file)


def warnings(proxy: Proxy) -> list[dict]:
    lines = map(json.loads, proxy.output().splitlines())
    return [line for line in lines if line["level"] in ("WARN", "ERROR") and "config" in line["message"].split()]


def test_changed_config_is_in_force_and_a_wrong_one_is_one_warning(fleet: Fleet) -> None:
    first, second = fleet.backend().address, fleet.backend().address
    file = fleet.directory / "watched.toml"
    proxy, text = start(fleet, file, [first])
    both = text.replace(f'"{first}"', f'"{first}", "{second}"')
    replace(file, both)
    wait_for_reloads(proxy, 1, 0)
    assert set(proxy.admin.backends()) == {first, second}

    # Half of it is no TOML, and changes nothing.
    file.write_text(both[: both.index(second)])
    wait_for_reloads(proxy, 1, 1)
    time.sleep(6)  # Longer than the time after which it is read in any case.
    assert reloads(proxy) == (1, 1)
    assert set(proxy.admin.backends()) == {first, second} and http(proxy.url)[0] == 200
    (warning,) = warnings(proxy)
    assert warning["message"] == "changed config refused, nothing has changed"
    assert warning["file"] == str(file) and "help" in warning, warning

    # Nor does a missing one.
    file.unlink()
    wait_until("it is missed", lambda: "config file not read" in proxy.output(), SEEN)
    replace(file, both.replace('"127.0.0.1', '"127.0.0.1.1', 1))
    wait_for_reloads(proxy, 1, 2)
    assert len(warnings(proxy)) == 3, warnings(proxy)

    # The content that is in force is a change again.
    replace(file, text)
    wait_for_reloads(proxy, 2, 2)
    assert set(proxy.admin.backends()) == {first}


def test_reload_by_command_is_not_repeated_by_the_watch(fleet: Fleet) -> None:
    first, second = fleet.backend().address, fleet.backend().address
    proxy, text = start(fleet, fleet.directory / "watched.toml", [first])
    replace(fleet.directory / "watched.toml", text.replace(first, second))
    assert proxy.admin.post("/api/v1/process/reload")[0] == 200
    time.sleep(6)
    assert reloads(proxy) == (1, 0)
    assert set(proxy.admin.backends()) == {second}


def test_swapped_folder_of_a_config_map_is_seen(fleet: Fleet) -> None:
    first, second = fleet.backend().address, fleet.backend().address
    mount = fleet.directory / "mount"
    port, admin = free_port(), free_port()
    text = config(port, admin, [first])
    for name, address in (("..1", first), ("..2", second)):
        (mount / name).mkdir(parents=True)
        (mount / name / "plimsoll.toml").write_text(text.replace(first, address))
    os.symlink("..1", mount / "..data")
    os.symlink("..data/plimsoll.toml", mount / "plimsoll.toml")
    file = str(mount / "plimsoll.toml")
    proxy = fleet._keep(Proxy("mounted", ["-c", file, "--watch"], port, admin, fleet.directory))
    proxy.wait_for_port(port)
    assert set(proxy.admin.backends()) == {first}
    os.symlink("..2", mount / "..data_tmp")
    (mount / "..data_tmp").rename(mount / "..data")
    wait_for_reloads(proxy, 1, 0)
    assert set(proxy.admin.backends()) == {second}


def test_watch_without_a_file_is_an_error_with_the_fix() -> None:
    done = run([PLIMSOLL, "proxy", "--from", "127.0.0.1:0", "--to", "127.0.0.1:1", "--watch"])
    assert done.returncode == 2 and "--watch: there is no config file" in done.stderr, done.stderr
    assert "help: name one with -c FILE" in done.stderr, done.stderr
