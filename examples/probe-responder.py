#!/usr/bin/env python3
"""A responder of probes by UDP, in the standard library alone: a model for other languages.

usage: probe-responder.py ADDRESS:PORT [KEY_FILE]

It answers for the TCP port of the same number until SIGTERM; then it tells clients with a lease that
the server is a lame duck, and ends after three seconds. docs/probes.md has the rules. A server of your
own would keep the load fields as well: probe-responder.mjs does.
"""

import collections
import hmac
import ipaddress
import os
import pathlib
import re
import signal
import socket
import struct
import sys
import time

HEAD = struct.Struct("!3sBBBBBQQHHIQ24s")  # 24 bytes of load and delay
QUERY, ANSWER, NOTICE, ACKNOWLEDGES = 1, 2, 3, 1
HEALTHY, LAME_DUCK, NO_SUCH_PORT, OTHER_VERSION = 2, 3, 4, 255
MAX_LEASE, MAX_LEASES, MAX_SENDS, DRAIN = 120, 65_536, 9, 3.0
MAX_QUERIES_PER_SOURCE, MAX_QUERIES = 200, 50_000  # in a second
MIN_WAIT, MAX_ROUND_TRIP_US = 0.01, 250_000

host, port = sys.argv[1].rsplit(":", 1)
host, port = ipaddress.ip_address(host.strip("[]")), int(port)
keys = {}  # by id
for at, line in enumerate(pathlib.Path(sys.argv[2]).read_text().splitlines() if len(sys.argv) > 2 else [], 1):
    if text := line.split("#")[0].strip():
        key = re.fullmatch(r"(\d+)\s+((?:[0-9a-f]{2}){16,64})", text, re.IGNORECASE)
        if not key or not 1 <= int(key[1]) <= 255 or int(key[1]) in keys or len(keys) == 2:
            sys.exit(f"{sys.argv[2]}: line {at}: expected one of two keys: an id of its own from 1 to 255, and "
                     "16 to 64 bytes in hexadecimal")
        keys[int(key[1])] = bytes.fromhex(key[2])
if len(sys.argv) > 2 and not keys:
    sys.exit(f"{sys.argv[2]}: no key; help: write a line of 1 and the output of `openssl rand -hex 32`")
if host.is_unspecified:
    sys.exit("an answer comes from the address that was asked; help: name one address")
if not keys and not host.is_loopback:
    sys.exit(f"probes without a key at {host}; help: name a file of keys, or an address of loopback")

own, instance, leases, state, number = os.urandom(32), int.from_bytes(os.urandom(8)) or 1, {}, HEALTHY, 1
server = socket.socket(socket.AF_INET6 if host.version == 6 else socket.AF_INET, socket.SOCK_DGRAM)
server.bind((str(host), port))
second, queries = 0, collections.Counter()  # of this second, by source; None is all


def address(peer: tuple) -> bytes:
    """IPv4 as ::ffff:a.b.c.d."""
    ip = ipaddress.ip_address(peer[0].split("%")[0])
    return ip.packed if ip.version == 6 else bytes(10) + b"\xff\xff" + ip.packed


def mac(key_id: int, content: bytes) -> bytes:
    return hmac.digest(keys[key_id], content, "sha256")[:16] if key_id else bytes(16)


def cookie(peer: tuple, client: int, hour: int) -> int:
    content = address(peer) + struct.pack("!HQQ", peer[1], client, hour)
    return int.from_bytes(hmac.digest(own, content, "sha256")[:8]) or 1


def send(peer: tuple, kind: int, key_id: int, state: int, nonce: int, about: int, lease: int = 0, cookie: int = 0,
         delay: int = 0) -> None:
    content = HEAD.pack(b"\x0fPL", 1, kind, 0, key_id, state, nonce, instance, about, lease, number, cookie,
                        struct.pack("!20xI", delay))
    try:
        server.sendto(content + mac(key_id, content), peer)
    except OSError:
        pass  # lost, as any other may be


def is_within_limits(peer: tuple) -> bool:
    global second
    if second != int(time.monotonic()):
        second = int(time.monotonic())
        queries.clear()
    ip = address(peer)
    source = ip[:8] if any(ip[:8]) else ip
    if queries[source] >= MAX_QUERIES_PER_SOURCE or queries[None] >= MAX_QUERIES:
        return False
    queries.update([source, None])
    return True


def on_query(datagram: bytes, peer: tuple, now: float) -> None:
    if not 80 <= len(datagram) <= 1200:
        return
    magic, version, kind, flags, key, zero, nonce, client, about, seconds, seq, given, zeros = HEAD.unpack(datagram[:64])
    if (magic, kind) != (b"\x0fPL", QUERY) or (key not in keys if keys else key != 0):
        return
    if not hmac.compare_digest(mac(key, datagram[:-16]), datagram[-16:]) or 0 in (client, about):
        return
    # The fields of another version may have another meaning.
    acknowledges = version == 1 and flags == ACKNOWLEDGES
    if version == 1 and (flags > ACKNOWLEDGES or zero or any(zeros) or (acknowledges and (seq == 0 or seconds))):
        return
    hour = int(time.time() // 3600)
    is_proved = given in (cookie(peer, client, hour), cookie(peer, client, hour - 1))
    lease = leases.get(peer)
    if acknowledges and is_proved and lease and lease["sends"] < MAX_SENDS and seq == number:
        lease["sends"] = MAX_SENDS
        return
    if not is_within_limits(peer) or acknowledges:
        return
    delay = 1000 if queries[None] > MAX_QUERIES / 2 else 0
    if version != 1 or about != port:
        send(peer, ANSWER, key, OTHER_VERSION if version != 1 else NO_SUCH_PORT, nonce, about, delay=delay)
        return
    granted = min(seconds, MAX_LEASE) if is_proved and (lease or len(leases) < MAX_LEASES) else 0
    if granted:
        lease = leases.setdefault(peer, {"sends": MAX_SENDS, "at": now})
        lease |= {"until": now + granted, "nonce": nonce, "key": key, "round_trip_us": min(seq, MAX_ROUND_TRIP_US)}
    elif is_proved:
        leases.pop(peer, None)
    send(peer, ANSWER, key, state, nonce, about, granted, cookie(peer, client, hour), delay)


def notify(now: float) -> None:
    for peer, lease in list(leases.items()):
        if lease["until"] <= now:
            del leases[peer]
        elif lease["sends"] < MAX_SENDS and lease["at"] <= now:
            send(peer, NOTICE, lease["key"], state, lease["nonce"], port)
            lease["at"] = now + max(MIN_WAIT, 2e-6 * lease["round_trip_us"]) * 2 ** lease["sends"]
            lease["sends"] += 1


def drain(*_: object) -> None:
    global state, number
    if state == HEALTHY:
        state, number = LAME_DUCK, number + 1
        for lease in leases.values():
            lease |= {"sends": 0, "at": 0.0}


signal.signal(signal.SIGTERM, drain)
server.settimeout(0.01)  # the resolution of resends
drained, notified = None, 0.0
while drained is None or time.monotonic() < drained:
    if state == LAME_DUCK and drained is None:
        drained = time.monotonic() + DRAIN
    # Rarely, since it inspects every lease.
    if time.monotonic() >= notified + 0.005:
        notified = time.monotonic()
        notify(notified)
    try:
        on_query(*server.recvfrom(2048), time.monotonic())
    except TimeoutError:
        pass
