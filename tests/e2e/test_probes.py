"""Probes by UDP at a real backend, asked by a client that was written from the documentation."""

import contextlib
import pathlib
import signal

import pytest

from harness.fleet import PLIMSOLL, Fleet
from harness.probes import HAS_LOAD, HEALTHY, LAME_DUCK, NO_SUCH_PORT, NOTICE, ProbeClient, client
from harness.process import free_port, run, wait_until

SECRET = bytes(range(32))


def test_backend_answers_with_its_state_and_load(fleet: Fleet) -> None:
    backend = fleet.backend()
    with client(backend.port) as probes:
        # It is starting when it begins to listen.
        answer = wait_until("it is healthy", lambda: next((a for a in [probes.ask(1)] if a.state == HEALTHY), None))
        assert (answer.state, answer.number, answer.port) == (HEALTHY, 2, backend.port)
        assert answer.flags == HAS_LOAD and answer.in_flight == 0
        assert answer.lease == 0 and answer.cookie != 0
        assert probes.ask(2, port=backend.port + 1).state == NO_SUCH_PORT


def test_idle_clients_hear_of_sigterm_before_the_backend_ends(fleet: Fleet) -> None:
    backend = fleet.backend()
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(client(backend.port)) for _ in range(50)]
        wait_until("it is healthy", lambda: clients[0].ask(1).state == HEALTHY)
        for each in clients:
            each.ask(1)
            assert each.ask(2, lease=60).lease == 60
        without_lease = stack.enter_context(client(backend.port))
        without_lease.ask(1)
        backend.signal(signal.SIGTERM)
        for each in clients:
            notice = each.receive()
            assert (notice.kind, notice.state, notice.number, notice.nonce) == (NOTICE, LAME_DUCK, 3, 2)
            each.acknowledge(notice)
        assert backend.exit_code is None, "its drain has only begun"
        assert without_lease.ask(3).state == LAME_DUCK, "no notice came before the answer"
        backend.wait(10)
        without_lease.send(nonce=4)
        with pytest.raises(ConnectionRefusedError):
            without_lease.receive()


def test_keys_are_required_where_they_are_given(fleet: Fleet, tmp_path: pathlib.Path) -> None:
    keys = tmp_path / "probe-keys"
    keys.write_text(f"# id secret\n7 {SECRET.hex()}\n8 {bytes(16).hex()}\n")
    backend = fleet.backend("--probe-keys", str(keys))
    with client(backend.port, (7, SECRET)) as probes, client(backend.port) as keyless:
        keyless.send(nonce=1)
        with client(backend.port, (7, SECRET[::-1])) as forger:
            forger.send(nonce=1)
            assert probes.ask(1).state != LAME_DUCK
            for other in (keyless, forger):
                with pytest.raises(TimeoutError):
                    other.receive(0.2)
    with client(backend.port, (8, bytes(16))) as probes:
        wait_until("it is healthy", lambda: probes.ask(1).state == HEALTHY)


def test_file_of_keys_is_refused_with_the_line_and_the_fix(tmp_path: pathlib.Path) -> None:
    keys = tmp_path / "probe-keys"
    keys.write_text("7 abc\n")
    ended = run([PLIMSOLL, "backend", "--listen", f"127.0.0.1:{free_port()}", "--probe-keys", str(keys)])
    assert ended.returncode == 2
    assert f"--probe-keys {keys}: line 1: expected an id and a secret of 16 to 64 bytes in hexadecimal" in ended.stderr
