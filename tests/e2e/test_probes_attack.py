"""Attacks on a proxy that probes: replays, forged notices, wrong sizes, a flood. Nothing changes, and CPU is bounded."""

import hmac
import pathlib
import socket
import struct
import threading
import time

import pytest

from harness.fleet import Fleet, Proxy
from harness.http1 import Connection, Message, answer
from harness.probes import ANSWER, HEALTHY, LAME_DUCK, NOTICE
from harness.process import wait_until

SECRET = bytes(range(16))
INSTANCE = 77
HEAD = struct.Struct("!3sBBBBBQQHHIQIIfffI")


def signed(content: bytes, secret: bytes = SECRET) -> bytes:
    return content + hmac.digest(secret, content, "sha256")[:16]


def datagram(kind: int, state: int, nonce: int, port: int, number: int, secret: bytes = SECRET) -> bytes:
    head = (b"\x0fPL", 1, kind, 0, 1, state, nonce, INSTANCE, port, 0, number, 5 if kind == ANSWER else 0)
    return signed(HEAD.pack(*head, 0, 0, 0.0, 0.0, 0.0, 0), secret)


class Responder:
    """Answers the probes of one proxy as healthy. An attacker uses its address, since UDP is easily spoofed."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", port))
        self.client: tuple[str, int] | None = None
        self.nonces: list[int] = []
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                query, self.client = self.socket.recvfrom(2048)
            except OSError:
                return
            fields = HEAD.unpack(query[:64])
            if fields[3] == 0:
                self.nonces.append(fields[6])
                self.socket.sendto(datagram(ANSWER, HEALTHY, self.nonces[-1], self.port, 1), self.client)

    def spoof(self, *datagrams: bytes) -> None:
        assert self.client is not None
        for each in datagrams:
            self.socket.sendto(each, self.client)


def probed(fleet: Fleet, tmp_path: pathlib.Path) -> tuple[Proxy, Responder, str]:
    def serve(connection: Connection, _: Message) -> None:
        answer(connection)

    address = fleet.origin(serve)
    keys = tmp_path / "keys"
    keys.write_text(f"1 {SECRET.hex()}\n")
    responder = Responder(int(address.split(":")[1]))
    proxy = fleet.proxy_of(
        lambda port, admin: (
            f'[[listeners]]\naddress = "127.0.0.1:{port}"\n[admin]\nlisten = "127.0.0.1:{admin}"\n'
            f'[[routes]]\ncluster = "main"\n[clusters.main]\nbackends = ["{address}"]\ninactive_after = "1s"\n'
            f'[clusters.main.probes]\nkeys = "{keys}"\ninterval = "1s"\n'
        )
    )
    wait_until("it is inactive", lambda: proxy.admin.metric("plimsoll_probe_inactive_backends") == 1)
    return proxy, responder, address


def test_replays_forgeries_and_wrong_sizes_change_nothing(fleet: Fleet, tmp_path: pathlib.Path) -> None:
    proxy, responder, address = probed(fleet, tmp_path)
    port, old = responder.port, responder.nonces[0]
    wait_until("some queries", lambda: len(responder.nonces) > 3)
    # Of a captured process that was a lame duck: valid, and of another time, process or port.
    responder.spoof(datagram(ANSWER, LAME_DUCK, old, port, 9))
    responder.spoof(datagram(NOTICE, LAME_DUCK, responder.nonces[-1], port, 1))
    responder.spoof(signed(datagram(NOTICE, LAME_DUCK, old, port + 1, 9)[:64]))
    # Without the key.
    forged = [datagram(kind, LAME_DUCK, responder.nonces[-1], port, 9, b"guessed, guessed") for kind in (ANSWER, NOTICE)]
    responder.spoof(*forged)
    valid = datagram(NOTICE, LAME_DUCK, responder.nonces[-1], port, 9)
    wrong = [valid[:size] for size in range(80)] + [valid + bytes(1121), signed(valid[:63] + b"\1" + valid[64:])[:80]]
    responder.spoof(*wrong)
    wait_until(
        "all are counted",
        lambda: proxy.admin.metric("plimsoll_probe_dropped_total") >= 3 + len(forged) + len(wrong),
    )
    time.sleep(0.2)
    assert proxy.admin.states() == {address: "healthy"}
    assert proxy.admin.metric("plimsoll_probe_inactive_backends") == 1
    assert proxy.admin.metric("plimsoll_probe_notices_total") == 0


@pytest.mark.alone
def test_flood_of_forged_notices_causes_few_queries_and_takes_no_core(fleet: Fleet, tmp_path: pathlib.Path) -> None:
    proxy, responder, address = probed(fleet, tmp_path)
    forged = datagram(NOTICE, LAME_DUCK, responder.nonces[-1], responder.port, 9, b"guessed, guessed")
    asked, cpu = len(responder.nonces), cpu_seconds(proxy)
    end, sent = time.monotonic() + 3, 0
    while time.monotonic() < end:
        responder.spoof(*[forged] * 100)
        sent += 100
    used = cpu_seconds(proxy) - cpu
    assert sent > 10_000
    # One a second by its schedule, and ten that forgeries may cause.
    assert len(responder.nonces) - asked <= 3 * 12 + 12
    # Measured: 0.4 s, of an unoptimized build.
    assert used < 1.5, f"{used:.2f} s of CPU in 3 s, for {sent} datagrams"
    assert proxy.admin.states() == {address: "healthy"}
    # The flood may have displaced three answers: the path is then silent for 20 s ± 20%.
    answers = proxy.admin.metric("plimsoll_probe_answers_total")
    wait_until("answers go on", lambda: proxy.admin.metric("plimsoll_probe_answers_total") > answers + 2, seconds=40)
    wait_until("it is inactive", lambda: proxy.admin.metric("plimsoll_probe_inactive_backends") == 1)


def cpu_seconds(proxy: Proxy) -> float:
    return proxy.admin.metric("plimsoll_process_cpu_seconds_total")
