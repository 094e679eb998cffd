#!/usr/bin/env python3
"""Write tests/probe-vectors.json: datagrams of probes, made without the project's own code.

usage: tests/probe-vectors.py [--check]

The table of docs/probes.md is the only source. --check compares instead of writing.
"""

import argparse
import hashlib
import hmac
import ipaddress
import json
import math
import pathlib
import struct
import sys

FILE = pathlib.Path(__file__).with_name("probe-vectors.json")

QUERY, ANSWER, NOTICE = 1, 2, 3
STATES = {"starting": 1, "healthy": 2, "lame-duck": 3, "no-such-port": 4, "other-version": 255}
NAN, UNKNOWN = math.nan, 0xFFFF_FFFF

SHARED = {"id": 7, "secret": bytes(range(32)), "derived": False}
NEXT = {"id": 8, "secret": b"the next key of the same fleet", "derived": False}
DERIVED = {"id": 200, "secret": b"a secret of one responder alone.", "derived": True}
NONE = {"id": 0, "secret": b"", "derived": False}

CLIENT, SERVER = 0x1122_3344_5566_7788, 0x99AA_BBCC_DDEE_FF01


def key_of(key: dict, client: int) -> bytes:
    secret = key["secret"]
    return hmac.digest(secret, struct.pack("!Q", client), hashlib.sha256) if key["derived"] else secret


def sign(content: bytes, key: dict, client: int) -> bytes:
    return hmac.digest(key_of(key, client), content, hashlib.sha256)[:16] if key["id"] else bytes(16)


def head(kind, key, *, flags=0, state=0, nonce=0, instance=0, port=8080, lease=0, number=0, cookie=0, load=None,
         min_delay=0, version=1, magic=b"\x0fPL") -> bytes:
    in_flight, latency, utilization, qps, eps = load or (0, 0, 0.0, 0.0, 0.0)
    content = magic + struct.pack("!BBBBBQQHHIQ", version, kind, flags, key["id"], state, nonce, instance, port, lease,
                                  number, cookie)
    content += struct.pack("!IIfffI", in_flight, latency, utilization, qps, eps, min_delay)
    assert len(content) == 64
    return content


def datagram(kind, key, extra=b"", **fields) -> bytes:
    content = head(kind, key, **fields) + extra
    return content + sign(content, key, CLIENT)


def hexed(number: int) -> str:
    return f"{number:016x}"


def described(key: dict) -> dict:
    return {"id": key["id"], "secret": key["secret"].hex(), "derived": key["derived"]}


def query(name, key, nonce, *, lease=0, round_trip_us=None, acknowledges=None, cookie=0, port=8080, extra=b"") -> dict:
    number = round_trip_us if acknowledges is None else acknowledges
    raw = datagram(QUERY, key, extra, flags=int(acknowledges is not None), nonce=nonce, instance=CLIENT, port=port,
                   lease=lease, number=number, cookie=cookie)
    return {"name": name, "kind": "query", "key": described(key), "client": hexed(CLIENT), "nonce": hexed(nonce),
            "instance": hexed(CLIENT), "port": port, "lease_s": lease, "cookie": hexed(cookie),
            "round_trip_us": round_trip_us, "acknowledges": acknowledges, "bytes": raw.hex()}


def answer(name, key, nonce, state, seq, *, lease=0, cookie=0, load=None, min_delay=0, port=8080, extra=b"") -> dict:
    raw = datagram(ANSWER, key, extra, flags=2 if load else 0, state=STATES[state], nonce=nonce, instance=SERVER,
                   port=port, lease=lease, number=seq, cookie=cookie, load=load, min_delay=min_delay)
    names = ("in_flight", "latency_us", "utilization", "qps", "eps")
    known = lambda value: None if value == UNKNOWN or value != value else value
    return {"name": name, "kind": "answer", "key": described(key), "client": hexed(CLIENT), "nonce": hexed(nonce),
            "instance": hexed(SERVER), "port": port, "state": state, "seq": seq, "lease_s": lease,
            "cookie": hexed(cookie), "load": load and {name: known(value) for name, value in zip(names, load)},
            "min_delay_ms": min_delay, "bytes": raw.hex()}


def notice(name, key, nonce, state, seq) -> dict:
    raw = datagram(NOTICE, key, state=STATES[state], nonce=nonce, instance=SERVER, number=seq)
    return {"name": name, "kind": "notice", "key": described(key), "client": hexed(CLIENT), "nonce": hexed(nonce),
            "instance": hexed(SERVER), "port": 8080, "state": state, "seq": seq, "bytes": raw.hex()}


def invalid(name: str, fault: str, reader: str, raw: bytes, key: dict = SHARED) -> dict:
    return {"name": name, "fault": fault, "reader": reader, "key": described(key), "client": hexed(CLIENT),
            "bytes": raw.hex()}


def resigned(content: bytes, at: int, value: int, key: dict = SHARED) -> bytes:
    changed = bytearray(content)
    changed[at] = value
    return bytes(changed) + sign(bytes(changed), key, CLIENT)


def invalids() -> list[dict]:
    ask = head(QUERY, SHARED, nonce=1, instance=CLIENT)
    reply = head(ANSWER, SHARED, nonce=1, instance=SERVER, state=2, number=1)
    loaded = dict(nonce=1, instance=SERVER, state=2, number=1, flags=2)
    news = head(NOTICE, SHARED, nonce=1, instance=SERVER, state=3, number=2)
    whole = ask + sign(ask, SHARED, CLIENT)
    flipped = bytearray(whole)
    flipped[79] ^= 1
    field = lambda name, content, at, value, reader: invalid(
        f"{name} of {at}", f"field {name} of a probe out of range", reader, resigned(content, at, value))
    cases = [
        invalid("empty", "length outside 80 to 1,200 bytes", "responder", b""),
        invalid("one byte short", "length outside 80 to 1,200 bytes", "responder", whole[:-1]),
        invalid("too long", "length outside 80 to 1,200 bytes", "responder", datagram(QUERY, SHARED, bytes(1121))),
        invalid("another protocol", "no probe", "responder", resigned(ask, 1, 0x51)),
        invalid("kind 0", "unknown kind of a probe", "responder", resigned(ask, 4, 0)),
        invalid("kind 4", "unknown kind of a probe", "responder", resigned(ask, 4, 4)),
        invalid("answer to a responder", "unknown kind of a probe", "responder", reply + sign(reply, SHARED, CLIENT)),
        invalid("query to a client", "unknown kind of a probe", "client", whole),
        invalid("answer of version 2", "version of a probe not spoken", "client", resigned(reply, 3, 2)),
        invalid("last bit of the MAC", "wrong MAC of a probe", "responder", bytes(flipped)),
        invalid("MAC of another key", "wrong MAC of a probe", "responder", ask + sign(ask, NEXT, CLIENT)),
        invalid("no MAC", "wrong MAC of a probe", "responder", datagram(QUERY, NONE, nonce=1, instance=CLIENT)),
        invalid("unknown key", "unknown key of a probe", "responder", resigned(ask, 6, 99)),
        invalid("keyless with a MAC", "wrong MAC of a probe", "responder", resigned(ask, 6, 0), NONE),
        field("flags", ask, 5, 2, "responder"),
        field("flags", reply, 5, 4, "client"),
        field("flags", news, 5, 1, "client"),
        field("state", ask, 7, 2, "responder"),
        field("state", reply, 7, 0, "client"),
        field("state", reply, 7, 5, "client"),
        field("state", news, 7, 4, "client"),
        field("load", ask, 43, 1, "responder"),
        field("load", reply, 43, 1, "client"),
        field("load", news, 43, 1, "client"),
        field("min_delay", ask, 63, 1, "responder"),
        field("min_delay", news, 63, 1, "client"),
        field("lease", news, 27, 1, "client"),
        field("cookie", news, 39, 1, "client"),
    ]
    zero_instance = datagram(QUERY, SHARED, nonce=1)
    zero_port = datagram(QUERY, SHARED, nonce=1, instance=CLIENT, port=0)
    zero_seq = datagram(NOTICE, SHARED, nonce=1, instance=SERVER, state=3)
    acknowledged_zero = datagram(QUERY, SHARED, nonce=1, instance=CLIENT, flags=1)
    acknowledged_lease = datagram(QUERY, SHARED, nonce=1, instance=CLIENT, flags=1, number=2, lease=60)
    range_of = lambda name: f"field {name} of a probe out of range"
    cases += [
        invalid("no instance", range_of("instance"), "responder", zero_instance),
        invalid("no port", range_of("port"), "responder", zero_port),
        invalid("notice without number", range_of("seq"), "client", zero_seq),
        invalid("acknowledgement without number", range_of("seq"), "responder", acknowledged_zero),
        invalid("acknowledgement with a lease", range_of("lease"), "responder", acknowledged_lease),
    ]
    for place, name in enumerate(("utilization", "qps", "eps")):
        for value in (-1.0, math.inf, -math.inf):
            load = [0, 0, 0.5, 1.0, 0.0]
            load[2 + place] = value
            raw = datagram(ANSWER, SHARED, load=tuple(load), **loaded)
            cases.append(invalid(f"{name} {value}", range_of(name), "client", raw))
    return cases


def cookie(secret: bytes, address: str, port: int, instance: int, hour: int) -> dict:
    ip = ipaddress.ip_address(address)
    octets = ip.packed if ip.version == 6 else bytes(10) + b"\xff\xff" + ip.packed
    mac = hmac.digest(secret, octets + struct.pack("!HQQ", port, instance, hour), hashlib.sha256)
    return {"secret": secret.hex(), "address": address, "port": port, "instance": hexed(instance), "hour": hour,
            "cookie": hexed(max(int.from_bytes(mac[:8]), 1))}


def handed(seed: bytes) -> dict:
    instance = max(int.from_bytes(hashlib.sha256(seed).digest()[:8], "big"), 1)
    return {"seed": seed.hex(), "instance": hexed(instance), "secret": described(DERIVED),
            "request": f'seed="{seed.hex()}"',
            "answer": f'id={DERIVED["id"]}, secret="{key_of(DERIVED, instance).hex()}"'}


def vectors() -> dict:
    load = (12, 3400, 0.75, 1250.5, 2.0)
    return {
        "valid": [
            query("first query", SHARED, 0x0102_0304_0506_0708, round_trip_us=0),
            query("query with a lease", NEXT, 2, lease=60, round_trip_us=2000, cookie=0xC00C_1E00_C00C_1E00),
            query("largest values", SHARED, 2**64 - 1, lease=65535, round_trip_us=2**32 - 1, cookie=2**64 - 1,
                  port=65535),
            query("derived key", DERIVED, 3, round_trip_us=150),
            query("no key", NONE, 4, round_trip_us=0),
            query("acknowledgement", SHARED, 5, acknowledges=2, cookie=9),
            query("fields of a later version", SHARED, 6, round_trip_us=1, extra=b"later" * 20),
            query("longest", SHARED, 6, round_trip_us=1, extra=bytes(1120)),
            answer("healthy with load", SHARED, 2, "healthy", 1, lease=60, cookie=0xC00C_1E00_C00C_1E00, load=load),
            answer("nothing known", SHARED, 2, "lame-duck", 2, load=(UNKNOWN, UNKNOWN, NAN, NAN, NAN)),
            answer("starting without load", DERIVED, 2, "starting", 0, min_delay=1000),
            answer("no such port", SHARED, 2, "no-such-port", 1, port=81),
            answer("version not spoken", NONE, 2, "other-version", 1),
            answer("fields of a later version", SHARED, 2, "healthy", 1, extra=b"later" * 20),
            notice("lame duck", SHARED, 2, "lame-duck", 2),
            notice("healthy after starting", DERIVED, 2, "healthy", 3),
            notice("no key", NONE, 2, "lame-duck", 2**32 - 1),
        ],
        "other_version": {
            "key": described(SHARED),
            "bytes": datagram(QUERY, SHARED, b"new" * 8, version=2, flags=0xF0, state=9, nonce=77, instance=CLIENT,
                              lease=3, number=5, cookie=6, load=(1, 2, -1.0, 0.0, 0.0), min_delay=4).hex(),
            "nonce": hexed(77),
            "instance": hexed(CLIENT),
            "port": 8080,
        },
        "invalid": invalids(),
        "derived": {"secret": DERIVED["secret"].hex(), "client": hexed(CLIENT),
                    "key": key_of(DERIVED, CLIENT).hex()},
        "handed": [handed(bytes(16)), handed(bytes(range(0xF0, 0x100)))],
        "cookies": [
            cookie(bytes(range(32)), "192.0.2.7", 40000, CLIENT, 0),
            cookie(bytes(range(32)), "192.0.2.7", 40000, CLIENT, 495_000),
            cookie(b"\xff" * 32, "2001:db8::7", 1, 1, 1),
        ],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="exit with 1 if the file is not what would be written")
    options = parser.parse_args()
    text = json.dumps(vectors(), indent=1, allow_nan=False) + "\n"
    if options.check:
        if FILE.read_text(encoding="utf-8") != text:
            print(f"{FILE.name} is out of date; run tests/probe-vectors.py", file=sys.stderr)
            return 1
    else:
        FILE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
