"""A DNS server whose answers a test sets: addresses and SRV records, and wrong answers."""

import socket
import struct
import threading
from collections import Counter

from .process import free_port

A, SRV = 1, 33
SERVFAIL, NXDOMAIN = 2, 3


def encode(name: str) -> bytes:
    labels = [label for label in name.split(".") if label]
    return b"".join(bytes([len(label)]) + label.encode() for label in labels) + b"\0"


def address(text: str) -> bytes:
    return socket.inet_aton(text)


def srv(port: int, target: str, weight: int = 1, priority: int = 1) -> bytes:
    return struct.pack(">HHH", priority, weight, port) + encode(target)


class DnsServer:
    """Serves UDP and TCP on one port, in threads of this process. With `port`, in place of a server that was stopped."""

    def __init__(self, port: int | None = None) -> None:
        self.port = port or free_port()
        # By name and type: the data of the records.
        self.records: dict[tuple[str, int], list[bytes]] = {}
        self.code = 0
        self.truncates = False
        self.silent = False
        self.by_tcp = 0
        # Questions by name and type.
        self.asked: Counter[tuple[str, int]] = Counter()
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind(("127.0.0.1", self.port))
        self._tcp = socket.create_server(("127.0.0.1", self.port))
        for serve in (self._serve_udp, self._serve_tcp):
            threading.Thread(target=serve, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def stop(self) -> None:
        # A thread that waits in a call is woken by a shutdown, not by a close.
        for each in (self._udp, self._tcp):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            each.close()

    def _answer(self, question: bytes, is_tcp: bool) -> bytes | None:
        if self.silent:
            return None
        labels, at = [], 12
        while length := question[at]:
            labels.append(question[at + 1 : at + 1 + length].decode().lower())
            at += 1 + length
        (kind,) = struct.unpack(">H", question[at + 1 : at + 3])
        name = ".".join(labels)
        self.asked[(name, kind)] += 1
        records = self.records.get((name, kind), [])
        known = any(name == other for other, _ in self.records)
        code = self.code or (0 if known else NXDOMAIN)
        truncated = self.truncates and not is_tcp
        flags = 0x8180 | (0x0200 if truncated else 0) | code
        count = 0 if truncated or code else len(records)
        header = question[:2] + struct.pack(">HHHHH", flags, 1, count, 0, 0)
        body = b"".join(b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 1, len(data)) + data for data in records[:count])
        return header + question[12 : at + 5] + body

    def _serve_udp(self) -> None:
        while True:
            try:
                question, peer = self._udp.recvfrom(4096)
            except OSError:
                return
            if not question:
                return
            if (answer := self._answer(question, is_tcp=False)) is not None:
                self._udp.sendto(answer, peer)

    def _serve_tcp(self) -> None:
        while True:
            try:
                stream, _ = self._tcp.accept()
            except OSError:
                return
            with stream:
                stream.settimeout(5)
                question = stream.recv(4096)
                self.by_tcp += 1
                if len(question) > 14 and (answer := self._answer(question[2:], is_tcp=True)) is not None:
                    stream.sendall(struct.pack(">H", len(answer)) + answer)
