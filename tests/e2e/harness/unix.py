"""Unix sockets: clients of one, and servers at one."""

import pathlib
import socket
import ssl
import threading

from . import http1, http2
from .fleet import Fleet
from .http1 import Handler
from .process import wait_until


def connect(path: str, timeout: float = 10) -> socket.socket:
    """A connection to a path, or to the abstract name behind `@`."""
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(timeout)
    sock.connect(f"\0{path[1:]}" if path.startswith("@") else path)
    return sock


def client(path: str) -> http1.Connection:
    """An HTTP/1 connection."""
    return http1.Connection(connect(path))


def secure(path: str, context: ssl.SSLContext, name: str) -> http1.Connection:
    """The same by TLS, to the server of this name."""
    return http1.Connection(context.wrap_socket(connect(path), server_hostname=name))


def client2(path: str) -> http2.Connection:
    """An HTTP/2 connection."""
    return http2.Connection(connect(path))


def is_listening(path: str) -> bool:
    """Whether a process accepts connections there."""
    try:
        connect(path, 1).close()
    except OSError:
        return False
    return True


class Server:
    """An HTTP/1 server at a Unix socket, in this process. It can stop as a killed one does, and come back."""

    def __init__(self, fleet: Fleet, path: str, handler: Handler, context: ssl.SSLContext | None = None):
        self.path, self.address = path, f"unix:{path}"
        self.connections = 0
        self._handler, self._context = handler, context
        self._open: list[socket.socket] = []
        self.start()
        fleet._origins.append(self)

    def start(self) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"\0{self.path[1:]}" if self.path.startswith("@") else self.path)
        self._listener.listen(256)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(sock)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        connection = http1.Connection(sock)
        try:
            if self._context is not None:
                connection.sock = self._context.wrap_socket(sock, server_side=True)
            while True:
                self._handler(connection, connection.read_head())
        except (http1.Closed, OSError, ValueError):
            connection.close()

    def stop(self) -> None:
        """Ends it and leaves its file, as a kill does."""
        # The thread that waits for a connection would keep the socket open.
        for sock in (self._listener, *self._open):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            sock.close()
        self._open.clear()

    def again(self) -> None:
        """Comes back after its end."""
        pathlib.Path(self.path).unlink(missing_ok=True)
        self.start()


def wait_for(path: str) -> None:
    """Waits until a process accepts connections there."""
    wait_until(f"{path} is open", lambda: is_listening(path))
