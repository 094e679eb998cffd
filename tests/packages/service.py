"""The steps of an administrator in a clean root: start the proxy with the file of the package, send requests."""

import json
import subprocess

from harness.process import wait_until
from root import Root

CONFIG = "/etc/plimsoll/plimsoll.toml"
PID_FILE = "/run/plimsoll/plimsoll.pid"
BACKENDS = ("127.0.0.1:8081", "127.0.0.1:8082")
URL = "http://127.0.0.1:8080/"


def start_backends(root: Root) -> None:
    """The two servers that the packaged file names."""
    for address in BACKENDS:
        root.start("plimsoll", "backend", "--listen", address, log=f"backend-{address}.log")


def start_proxy(root: Root) -> subprocess.Popen:
    """As the unit does, without systemd: by the user of the package."""
    root.run("install", "-d", "-o", "plimsoll", "-g", "plimsoll", "/run/plimsoll")
    as_user = ("setpriv", "--reuid=plimsoll", "--regid=plimsoll", "--clear-groups")
    proxy = root.start(*as_user, "/usr/bin/plimsoll", "proxy", "-c", CONFIG, "--pid-file", PID_FILE, log="proxy.log")
    root.wait_for("the proxy runs", "plimsoll", "status", "--pid-file", PID_FILE)
    wait_for_backends(root)
    return proxy


def wait_for_backends(root: Root) -> None:
    def both_answer() -> bool:
        done = root.run("plimsoll", "load", URL, "--requests", "10", "--concurrency", "2", "--json", check=False)
        return done.returncode == 0 and set(by_backend(done.stdout)) == set(BACKENDS)

    wait_until("both backends answer", both_answer, 20, every=0.1)


def requests(root: Root, number: int = 60) -> dict[str, int]:
    """Sends requests; how many each backend answered. None may fail."""
    done = root.run("plimsoll", "load", URL, "--requests", str(number), "--concurrency", "2", "--json", "--fail-on-error")
    return by_backend(done.stdout)


def by_backend(counted: str) -> dict[str, int]:
    """Requests by backend of `plimsoll load --json`."""
    return json.loads(counted)["backends"]


def pid(root: Root) -> int:
    """Of the running proxy, in the root."""
    return int(root.run("cat", PID_FILE).stdout.split()[0])
