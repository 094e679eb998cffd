"""Servers whose worker serves one connection at a time, each as a program of its own.

    python single.py wsgiref PORT            the reference server: one thread, closes after each response
    python single.py prefork PORT IDLE       one worker: serves a connection until it is closed, or idle for IDLE seconds
"""

import socket
import sys
from collections.abc import Callable, Iterable
from wsgiref.simple_server import WSGIRequestHandler, make_server

# The time that a worker waits for the first request of a connection: gunicorn waits 30 s, Apache up to 60 s.
FIRST_REQUEST_SECONDS = 20.0

Start = Callable[[str, list[tuple[str, str]]], object]
_is_out_of_service = False
_checks = 0


def app(environ: dict, start: Start) -> Iterable[bytes]:
    """`/out` and `/back` say whether the server is in service: `/healthz` answers by that, and `/checks` counts its requests."""
    global _is_out_of_service, _checks
    path = environ["PATH_INFO"]
    if path in ("/out", "/back"):
        _is_out_of_service = path == "/out"
    _checks += path == "/healthz"
    status = "503 Service Unavailable" if path == "/healthz" and _is_out_of_service else "200 OK"
    body = b"%d\n" % _checks if path == "/checks" else b"ok\n"
    start(status, [("content-type", "text/plain"), ("content-length", str(len(body)))])
    return [body]


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        del format, args


def wsgiref(port: int) -> None:
    make_server("127.0.0.1", port, app, handler_class=_Quiet).serve_forever()


def _serve(connection: socket.socket, idle_seconds: float) -> None:
    """Requests without a body, until the client closes, asks for that, or is silent for too long."""
    connection.settimeout(FIRST_REQUEST_SECONDS)
    pending = b""
    while True:
        while b"\r\n\r\n" not in pending:
            received = connection.recv(1 << 16)
            if not received:
                return
            pending += received
        head, _, pending = pending.partition(b"\r\n\r\n")
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok\n")
        if b"\r\nconnection: close" in head.lower():
            return
        connection.settimeout(idle_seconds)


def prefork(port: int, idle_seconds: float) -> None:
    listener = socket.create_server(("127.0.0.1", port), backlog=64)
    while True:
        connection, _ = listener.accept()
        with connection:
            try:
                _serve(connection, idle_seconds)
            except OSError:
                pass


if __name__ == "__main__":
    if sys.argv[1] == "wsgiref":
        wsgiref(int(sys.argv[2]))
    else:
        prefork(int(sys.argv[2]), float(sys.argv[3]))
