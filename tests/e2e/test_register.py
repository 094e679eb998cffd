"""`plimsoll register`: a process in the registry from its start to its end, and errors that say what to do."""

import json
import pathlib
import signal
import time
from collections.abc import Iterator

import pytest

from harness.etcd import Etcd
from harness.etcd_fleet import Register, warnings
from harness.fleet import PLIMSOLL, Backend, Fleet
from harness.process import free_port, run, wait_until

LEASE_SECONDS = 10
BACKENDS = "/plimsoll/v1/services/web/backends/"
NOBODY = 2_000_000_000


@pytest.fixture
def etcd(tmp_path: pathlib.Path) -> Iterator[Etcd]:
    etcd = Etcd(tmp_path)
    try:
        yield etcd
    finally:
        etcd.stop()


def register(fleet: Fleet, etcd: Etcd, backend: Backend, *arguments: str) -> Register:
    common = ["--etcd", ",".join(etcd.endpoints), "--service", "web", "--address", backend.address, "--pid", str(backend.pid)]
    started = Register(f"register-{len(fleet.processes)}", [*common, *arguments], fleet.directory)
    fleet.processes.append(started)
    return started


def state(etcd: Etcd, backend: Backend) -> str | None:
    record = etcd.get(BACKENDS + backend.address)
    return None if record is None else json.loads(record)["state"]


def test_process_is_registered_until_its_end(fleet: Fleet, etcd: Etcd) -> None:
    etcd.start()
    backend = fleet.backend()
    registered = register(fleet, etcd, backend, "--zone", "a", "--weight", "2", "--slot")
    wait_until("it is ready", lambda: state(etcd, backend) == "ready")
    assert f"registered {backend.address} as a backend of web" in registered.output()
    assert json.loads(etcd.get(BACKENDS + backend.address)) == {"address": backend.address, "weight": 2, "zone": "a", "state": "ready"}
    wait_until("it has a slot", lambda: etcd.values("/plimsoll/v1/services/web/slots/") == {"/plimsoll/v1/services/web/slots/0": backend.address})
    # A process that is killed leaves at once, and with it the command.
    backend.kill()
    wait_until("it has left", lambda: state(etcd, backend) is None, 2)
    assert registered.wait(5) == 0
    # Its successor has the slot again, and drains when it is told to.
    backend = fleet.again(backend)
    registered = register(fleet, etcd, backend, "--slot")
    wait_until("it is ready again", lambda: state(etcd, backend) == "ready")
    registered.signal(signal.SIGTERM)
    wait_until("it drains", lambda: state(etcd, backend) == "draining", 2)
    time.sleep(2)
    assert registered.exit_code is None and state(etcd, backend) == "draining", "until the process ends"
    backend.kill()
    assert registered.wait(5) == 0
    assert state(etcd, backend) is None
    assert list(etcd.values("/plimsoll/v1/services/web/slots/").values()) == [backend.address]
    assert warnings(registered) == []


def test_command_that_ends_alone_leaves_the_process_to_the_lease(fleet: Fleet, etcd: Etcd) -> None:
    etcd.start()
    backend = fleet.backend()
    registered = register(fleet, etcd, backend)
    wait_until("it is ready", lambda: state(etcd, backend) == "ready")
    registered.kill()
    killed = time.monotonic()
    wait_until("its lease has ended", lambda: state(etcd, backend) is None, LEASE_SECONDS + 5)
    assert time.monotonic() - killed > LEASE_SECONDS / 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--pid", str(NOBODY)], f"--pid: there is no process {NOBODY}"),
        (["--pid", "0"], "--pid: 0 is no process id"),
        (["--address", "0.0.0.0:80"], "name the address that clients reach the process at"),
        (["--address", "web:80"], "write an IP address and a port, such as 10.0.0.7:8080"),
        (["--service", "a/b"], "use 1 to 128 visible ASCII characters without a slash"),
        (["--weight", "0"], "write a number from 0.001 to 1000"),
        (["--etcd", "https://127.0.0.1:2379"], "--etcd"),
        (["--etcd-user", "u", "--etcd-password-file", "/nonexistent"], "--etcd-password-file: /nonexistent cannot be read: No such file"),
        (["--etcd-user", "u"], "--etcd-password-file"),
        (["--etcd-tls-ca", "/nonexistent"], "--etcd-tls-ca: "),
    ],
)
def test_wrong_arguments_are_named(arguments: list[str], message: str) -> None:
    good = {"--etcd": "127.0.0.1:1", "--service": "web", "--address": "127.0.0.1:80"}
    for name, value in zip(arguments[::2], arguments[1::2], strict=True):
        good[name] = value
    done = run([PLIMSOLL, "register", *(word for pair in good.items() for word in pair)], 5)
    assert done.returncode != 0 and message in done.stderr, done.stderr


def test_etcd_that_is_away_at_the_start_is_waited_for(fleet: Fleet, etcd: Etcd) -> None:
    backend = fleet.backend()
    registered = register(fleet, etcd, backend)
    wait_until("it tells", lambda: warnings(registered))
    time.sleep(3)
    (warning,) = warnings(registered)
    assert warning.startswith("etcd unreachable") and f"{etcd.endpoints[0]}: cannot connect: Connection refused" in warning, warning
    assert registered.exit_code is None
    etcd.start()
    wait_until("it is ready", lambda: state(etcd, backend) == "ready")
    assert len(warnings(registered)) == 1


def test_server_that_is_no_etcd_is_named(fleet: Fleet) -> None:
    backend = fleet.backend()
    arguments = ["--etcd", backend.address, "--service", "web", "--address", backend.address]
    registered = Register("register", arguments, fleet.directory)
    fleet.processes.append(registered)
    wait_until("it tells", lambda: warnings(registered))
    (warning,) = warnings(registered)
    assert "etcd unreachable" in warning or "etcd grants no lease" in warning, warning


def with_users(etcd: Etcd, fleet: Fleet) -> pathlib.Path:
    """An etcd with a user `reader`, who may only read; returns the file of the password."""
    etcd.start()
    for command in ("user add root:secret", "user grant-role root root", "role add reader", "user add reader:secret"):
        etcd.etcdctl(*command.split())
    etcd.etcdctl("role", "grant-permission", "reader", "--prefix=true", "read", "/plimsoll/v1/")
    etcd.etcdctl("user", "grant-role", "reader", "reader")
    etcd.etcdctl("auth", "enable")
    password = fleet.directory / "password"
    password.write_text("secret\n")
    return password


def test_refusals_of_etcd_are_named_once(fleet: Fleet, etcd: Etcd) -> None:
    password = with_users(etcd, fleet)
    backend = fleet.backend()
    wrong = fleet.directory / "wrong"
    wrong.write_text("guess\n")
    cases = {
        "no user": [],
        "unknown": ["--etcd-user", "nobody", "--etcd-password-file", str(password)],
        "wrong password": ["--etcd-user", "reader", "--etcd-password-file", str(wrong)],
        "no right": ["--etcd-user", "reader", "--etcd-password-file", str(password)],
    }
    processes = {name: register(fleet, etcd, backend, "--instance", name.replace(" ", "-"), *arguments) for name, arguments in cases.items()}
    for name, process in processes.items():
        wait_until(f"{name}: it tells", lambda process=process: warnings(process), 15)
    time.sleep(6)
    for name, process in processes.items():
        assert process.exit_code is None, "a person may give the right any time"
        (warning,) = warnings(process)
        # etcd grants leases without a user.
        refused = {"no user": "user name is empty", "no right": "permission denied"}.get(name)
        expected = "etcd grants no lease: check its user and password"
        if refused is not None:
            expected = f"etcd refuses a request: its user needs the right to read and write there etcd refused the request: etcdserver: {refused}"
            assert f'"key":"{BACKENDS}{name.replace(" ", "-")}"' in process.output()
        assert warning.startswith(expected), (name, warning)
    root = ("--user", "root:secret")
    etcd.etcdctl(*root, "role", "grant-permission", "reader", "--prefix=true", "readwrite", "/plimsoll/v1/services/")
    wait_until("it is registered", lambda: "registered" in processes["no right"].output(), 20)
