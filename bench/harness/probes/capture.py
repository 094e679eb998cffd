"""The datagrams and connections that reach an interface, before its firewall: which backend, when.

A connection without content is a check by TCP; one with content is a request.
"""

import socket
import threading
import time
from collections import defaultdict

from .namespace import Namespace

_ALL_PROTOCOLS = 0x0003
_UDP, _TCP = 17, 6
_SYN, _ACK = 0x02, 0x10
_ETHERNET = 14


class Capture:
    """Watches an interface from its start to `close`."""

    def __init__(self, network: Namespace, interface: str):
        # Times by port of the backend.
        self.datagrams: dict[int, list[float]] = defaultdict(list)
        # Times by port of the backend and port of the client.
        self._connections: dict[tuple[int, int], float] = {}
        self._requests: set[tuple[int, int]] = set()
        # Times of content by port of the backend.
        self.contents: dict[int, list[float]] = defaultdict(list)
        self._socket = network.call(_open, interface)
        self._is_over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def checks(self, port: int, since: float) -> list[float]:
        """The times of checks of a backend."""
        made = list(self._connections.items())
        return sorted(at for key, at in made if key[0] == port and at >= since and key not in self._requests)

    def close(self) -> None:
        self._is_over = True
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        while not self._is_over:
            try:
                packet, (_, _, kind, *_) = self._socket.recvfrom(256)
            except TimeoutError:
                continue
            # Neither own packets nor IPv6.
            if kind != socket.PACKET_OUTGOING and packet[12:14] == b"\x08\x00":
                self._note(time.time(), packet[_ETHERNET:])

    def _note(self, at: float, packet: bytes) -> None:
        head = 4 * (packet[0] & 0x0F)
        client, backend = (int.from_bytes(packet[head + field : head + field + 2], "big") for field in (0, 2))
        if packet[9] == _UDP:
            self.datagrams[backend].append(at)
        elif packet[9] == _TCP:
            flags = packet[head + 13]
            content = int.from_bytes(packet[2:4], "big") - head - 4 * (packet[head + 12] >> 4)
            if flags & (_SYN | _ACK) == _SYN:
                self._connections[backend, client] = at
            if content > 0:
                self._requests.add((backend, client))
                self.contents[backend].append(at)


def _open(interface: str) -> socket.socket:
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS))
    opened.bind((interface, 0))
    opened.settimeout(0.2)
    return opened
