#!/usr/bin/env python3
"""A responder of probes by UDP, in the standard library alone: a model for other languages.

usage: probe-responder.py HOST:PORT [--key ID:HEX]

It answers for the TCP port of the same number until SIGTERM; then it tells clients with a lease that
the server is a lame duck, until each has acknowledged. docs/probes.md describes the datagram. A server
of your own would keep the load fields and limit the queries of each source as well.
"""

import hmac
import os
import signal
import socket
import struct
import sys
import time

HEAD = struct.Struct("!3sBBBBBQQHHIQ24x")  # 24 bytes of load, which this one does not know
QUERY, ANSWER, NOTICE, ACKNOWLEDGES = 1, 2, 3, 1
HEALTHY, LAME_DUCK, NO_SUCH_PORT, OTHER_VERSION = 2, 3, 4, 255
MAX_LEASE, MAX_LEASES, MAX_SENDS, DRAIN = 120, 65_536, 9, 3.0

host, port = sys.argv[1].rsplit(":", 1)
key_id, secret = (int((key := sys.argv[3].split(":"))[0]), bytes.fromhex(key[1])) if len(sys.argv) > 3 else (0, b"")
own, instance, leases, state, number = os.urandom(32), int.from_bytes(os.urandom(8)) | 1, {}, HEALTHY, 1
server = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
server.bind((host.strip("[]"), int(port)))


def mac(content: bytes) -> bytes:
    return hmac.digest(secret, content, "sha256")[:16] if key_id else bytes(16)


def cookie(peer: tuple, client: int, hour: int) -> int:
    return int.from_bytes(hmac.digest(own, f"{peer} {client} {hour}".encode(), "sha256")[:8]) or 1


def send(peer: tuple, kind: int, state: int, nonce: int, about: int, lease: int = 0, cookie: int = 0) -> None:
    content = HEAD.pack(b"\x0fPL", 1, kind, 0, key_id, state, nonce, instance, about, lease, number, cookie)
    server.sendto(content + mac(content), peer)


def on_query(datagram: bytes, peer: tuple, now: float) -> None:
    if not 80 <= len(datagram) <= 1200 or not hmac.compare_digest(mac(datagram[:-16]), datagram[-16:]):
        return
    magic, version, kind, flags, key, _, nonce, client, about, lease, seq, given = HEAD.unpack(datagram[:64])
    if (magic, kind, key) != (b"\x0fPL", QUERY, key_id) or flags > ACKNOWLEDGES or 0 in (client, about):
        return
    if version != 1 or about != int(port):
        send(peer, ANSWER, OTHER_VERSION if version != 1 else NO_SUCH_PORT, nonce, about)
        return
    hour = int(now // 3600)
    is_proved = given in (cookie(peer, client, hour), cookie(peer, client, hour - 1))
    if flags & ACKNOWLEDGES:
        if is_proved and peer in leases and seq == number:
            leases[peer]["sends"] = MAX_SENDS
        return
    is_granted = is_proved and lease > 0 and (peer in leases or len(leases) < MAX_LEASES)
    if is_granted:
        sends = leases.get(peer, {"sends": MAX_SENDS})["sends"]
        leases[peer] = {"until": now + min(lease, MAX_LEASE), "nonce": nonce, "sends": sends, "at": now}
    elif is_proved:
        leases.pop(peer, None)
    granted = min(lease, MAX_LEASE) if is_granted else 0
    send(peer, ANSWER, state, nonce, about, granted, cookie(peer, client, hour))


def notify(now: float) -> None:
    for peer, lease in list(leases.items()):
        if lease["until"] <= now:
            del leases[peer]
        elif lease["sends"] < MAX_SENDS and lease["at"] <= now:
            send(peer, NOTICE, state, lease["nonce"], int(port))
            lease["at"] = now + 0.01 * 2 ** lease["sends"]
            lease["sends"] += 1


def drain(*_: object) -> None:
    global state, number
    if state == HEALTHY:
        state, number = LAME_DUCK, number + 1
        for lease in leases.values():
            lease["sends"] = 0
            lease["at"] = 0.0


signal.signal(signal.SIGTERM, drain)
server.settimeout(0.01)  # the resolution of resends
drained = None
while drained is None or time.monotonic() < drained:
    if state == LAME_DUCK and drained is None:
        drained = time.monotonic() + DRAIN
    notify(time.monotonic())
    try:
        on_query(*server.recvfrom(2048), time.monotonic())
    except TimeoutError:
        pass
