"""The access log in the format "combined", read as tools for logs of Apache httpd and nginx read it."""

import pathlib
import re
import socket
import threading
from datetime import UTC, datetime, timedelta

from harness import http2
from harness.fleet import Fleet, config
from harness.http1 import Connection, Message
from harness.process import wait_until

# %h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i", with no more freedom than the format has.
COMBINED = re.compile(
    r'(?P<host>[0-9a-f.:]+) - - \[(?P<time>\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d \+0000)\] '
    r'"(?P<method>[A-Z]+) (?P<target>[^" ]+) (?P<version>HTTP/\d\.\d)" (?P<status>[1-5]\d\d) (?P<bytes>\d+) '
    r'"(?P<referer>[^"]+)" "(?P<agent>[^"]+)"'
)


def lines(log: pathlib.Path, count: int) -> list[dict[str, str]]:
    """The first lines, once there are `count`. Each must be of the format."""
    wait_until(f"{count} lines", lambda: log.exists() and log.read_bytes().count(b"\n") >= count)
    found = [(line, COMBINED.fullmatch(line)) for line in log.read_text(encoding="ascii").split("\n")[:-1]]
    assert all(match for _, match in found), found
    assert len(found) == count, found
    return [match.groupdict() for _, match in found if match]


def test_combined_log_has_requests_served_and_refused_on_both_protocols(fleet: Fleet) -> None:
    log = fleet.directory / "access.log"
    further = f'[access_log]\npath = "{log}"\nformat = "combined"'
    address = fleet.nginx()
    proxy = fleet.proxy_of(
        lambda port, admin: config(port, admin, [address], further=further).replace(
            "[[routes]]", '[[routes]]\npath_prefix = "/served"'
        )
    )
    proxy.admin.wait_for_healthy(1)
    agent = 'Mozilla/5.0 (X11; "Linux") \\ \xe9'
    fields = f"user-agent: {agent}\r\nreferer: https://example.com/a?b=1\r\n"
    with Connection.to(proxy.port) as client:
        served = client.request("/served?q=1", fields=fields)
        refused = client.request("/refused")
    assert refused.status == 404
    with http2.Connection.to(proxy.port) as client:
        for stream, path in ((1, b"/served"), (3, b"/refused")):
            client.fetch(stream, http2.request(b"GET", path), seconds=5)
    # Each connection is logged by its own thread, so the two may come in either order.
    first, second, third, fourth = sorted(lines(log, 4), key=lambda line: line["version"])
    assert first == {
        "host": "127.0.0.1",
        "time": first["time"],
        "method": "GET",
        "target": "/served?q=1",
        "version": "HTTP/1.1",
        "status": str(served.status),
        "bytes": str(len(served.body)),
        "referer": "https://example.com/a?b=1",
        "agent": r"Mozilla/5.0 (X11; \x22Linux\x22) \x5C \xC3\xA9",
    }
    at = datetime.strptime(first["time"], "%d/%b/%Y:%H:%M:%S %z")
    assert timedelta(0) <= datetime.now(UTC) - at < timedelta(seconds=30)
    assert (second["target"], second["status"], second["referer"], second["agent"]) == ("/refused", "404", "-", "-")
    assert int(second["bytes"]) == len(refused.body)
    assert [(line["version"], line["target"]) for line in (third, fourth)] == [
        ("HTTP/2.0", "/served"),
        ("HTTP/2.0", "/refused"),
    ]
    assert fourth["status"] == "404"


def test_combined_log_has_connections_that_were_cut(fleet: Fleet) -> None:
    asked = threading.Event()

    def backend(connection: Connection, request: Message) -> None:
        if "/silent" in request.start:
            asked.set()
            threading.Event().wait(2)
        else:
            connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n" + b"x" * 1000)
            threading.Event().wait(2)

    log = fleet.directory / "access.log"
    proxy = fleet.proxy([fleet.origin(backend)], further=f'[access_log]\npath = "{log}"\nformat = "combined"')
    proxy.admin.wait_for_healthy(1)
    with Connection.to(proxy.port) as client:
        client.send("GET /silent HTTP/1.1\r\nhost: a\r\n\r\n")
        assert asked.wait(5)
    (left,) = lines(log, 1)
    assert (left["target"], left["status"], left["bytes"]) == ("/silent", "499", "0")
    with socket.create_connection(("127.0.0.1", proxy.port)) as client:
        client.sendall(b"GET /half HTTP/1.1\r\nhost: a\r\n\r\n")
        received = b""
        while b"x" * 1000 not in received:
            received += client.recv(65536)
    _, half = lines(log, 2)
    assert (half["target"], half["status"], half["bytes"]) == ("/half", "200", "1000")
