"""The sources of names: a DNS server with faults that a benchmark sets, dnsmasq, and a file."""

import json
import pathlib
import random
import socket
import struct
import threading

from ..processes import Process, Site, find_program, free_port

NAME = "web.test"
SERVICE = f"_http._tcp.{NAME}"
_A, _SRV = 1, 33
_TTL = 1
_CODES = {"servfail": 2, "nxdomain": 3}
_TRUNCATED = 0x0200
# Modes without a TCP server.
_NO_TCP = ("stopped", "truncated, no TCP")


def target(address: str) -> str:
    """The name of one backend: `b7.web.test` for 127.50.0.7."""
    return f"b{address.rpartition('.')[2]}.{NAME}"


def _encode(name: str) -> bytes:
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


def _record(owner: bytes, kind: int, data: bytes) -> bytes:
    return owner + struct.pack(">HHIH", kind, 1, _TTL, len(data)) + data


class FaultyServer:
    """Answers A and SRV over UDP and TCP as `mode` says, in threads of this process.

    Modes: good, stopped (ports closed), silent, nxdomain, servfail, empty, parts (each answer has
    one backend, another each time), truncated (one record and the flag; all records over TCP), and
    "truncated, no TCP".
    """

    def __init__(self, port: int):
        self.port = free_port()
        self.backend_port = port
        self.members: list[str] = []
        self._sockets: dict[str, socket.socket] = {}
        self.set("good")

    def set(self, mode: str) -> None:
        self.mode = mode
        self._open("udp", mode != "stopped")
        self._open("tcp", mode not in _NO_TCP)

    def _open(self, kind: str, wanted: bool) -> None:
        if not wanted and (old := self._sockets.pop(kind, None)):
            # A thread that waits in a call is woken by a shutdown, not by a close.
            try:
                old.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            old.close()
        if wanted and kind not in self._sockets:
            if kind == "tcp":
                new = socket.create_server(("127.0.0.1", self.port))
            else:
                new = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                new.bind(("127.0.0.1", self.port))
            self._sockets[kind] = new
            serve = self._serve_tcp if kind == "tcp" else self._serve_udp
            threading.Thread(target=serve, args=(new,), daemon=True).start()

    def answer(self, question: bytes, is_tcp: bool) -> bytes | None:
        mode = self.mode
        if mode in ("silent", "stopped"):
            return None
        labels, at = [], 12
        while length := question[at]:
            labels.append(question[at + 1 : at + 1 + length].decode().lower())
            at += 1 + length
        name = ".".join(labels)
        (kind,) = struct.unpack(">H", question[at + 1 : at + 3])
        members = self.members
        is_known = name in (NAME, SERVICE, *map(target, members))
        code = _CODES.get(mode, 0 if is_known else 3)
        flags = 0x8180 | code
        if mode == "parts":
            members = [random.choice(members)]
        if mode == "empty" or code:
            members = []
        if mode.startswith("truncated") and not is_tcp and name in (NAME, SERVICE):
            members, flags = members[:1], flags | _TRUNCATED
        answers, further = self._records(name, kind, members)
        head = question[:2] + struct.pack(">HHHHH", flags, 1, len(answers), 0, len(further))
        return head + question[12 : at + 5] + b"".join(answers + further)

    def _records(self, name: str, kind: int, members: list[str]) -> tuple[list[bytes], list[bytes]]:
        """The answers, and the addresses of SRV targets as additional records."""
        owner = b"\xc0\x0c"
        if kind == _A:
            found = [each for each in members if name in (NAME, target(each))]
            return [_record(owner, _A, socket.inet_aton(each)) for each in found], []
        if kind != _SRV or name != SERVICE:
            return [], []
        place = struct.pack(">HHH", 1, 1, self.backend_port)
        answers = [_record(owner, _SRV, place + _encode(target(each))) for each in members]
        return answers, [_record(_encode(target(each)), _A, socket.inet_aton(each)) for each in members]

    def _serve_udp(self, server: socket.socket) -> None:
        while True:
            try:
                question, client = server.recvfrom(4096)
                if not question:
                    return
                if (answer := self.answer(question, is_tcp=False)) is not None:
                    server.sendto(answer, client)
            except OSError:
                return

    def _serve_tcp(self, server: socket.socket) -> None:
        while True:
            try:
                stream, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve_stream, args=(stream,), daemon=True).start()

    def _serve_stream(self, stream: socket.socket) -> None:
        """Questions of one connection until it ends, or is idle for five seconds."""
        with stream, stream.makefile("rb") as reader:
            stream.settimeout(5)
            try:
                while len(size := reader.read(2)) == 2:
                    question = reader.read(struct.unpack(">H", size)[0])
                    answer = self.answer(question, is_tcp=True)
                    if answer is None:
                        return
                    stream.sendall(struct.pack(">H", len(answer)) + answer)
            except OSError:
                return


class Dnsmasq:
    """dnsmasq with the A and SRV records of one service; a change is a restart on the same port."""

    def __init__(self, site: Site, port: int):
        self.site, self.backend_port, self.port, self.runs = site, port, free_port(), 0
        self.process: Process | None = None

    def serve(self, weights: dict[str, int]) -> None:
        """These addresses, each with its weight."""
        self.stop()
        self.runs += 1
        hosts = self.site.directory / "hosts"
        hosts.write_text("".join(f"{each} {NAME} {target(each)}\n" for each in weights))
        command = [find_program("dnsmasq"), "--keep-in-foreground", f"--port={self.port}", "--listen-address=127.0.0.1"]
        command += ["--bind-interfaces", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--user=", "--group="]
        # As much as HAProxy accepts in a datagram, since it does not ask by TCP.
        command += ["--pid-file", f"--local-ttl={_TTL}", "--edns-packet-max=4096", f"--addn-hosts={hosts}", "--local=/test/"]
        command += [f"--srv-host={SERVICE},{target(each)},{self.backend_port},1,{weight}" for each, weight in weights.items()]
        self.process = Process(f"dnsmasq-{self.runs}", command, self.site.directory, self.site.load_cores)
        self.process.wait_for_port(self.port)

    def stop(self) -> None:
        if self.process is not None:
            self.process.stop()
            self.process = None


def write_file(path: pathlib.Path, port: int, weights: dict[str, int]) -> None:
    """A list for plimsoll's source `file`, by a new file and a rename."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(json.dumps({"backends": [{"address": f"{each}:{port}", "weight": weight} for each, weight in weights.items()]}))
    new.rename(path)
