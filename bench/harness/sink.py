"""A server for large bodies: `POST` is swallowed to its end before it is answered, `GET /N` brings N bytes.

Not nginx, which answers a request for a fixed text before it has read the body, and so measures how a proxy deals with
early answers. A thread for each connection and large blocks keep Python's own cost small beside that of the kernel.
"""

import re
import socketserver
import sys

BLOCK = bytes(1 << 20)
BODY = b"the quick brown fox jumps over it\n"


class Sink(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.block = memoryview(bytearray(1 << 20))
        self.waiting = b""
        while (head := self.head()) is not None:
            length = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
            if b"\r\ntransfer-encoding:" in head.lower():
                self.request.sendall(b"HTTP/1.1 501 Not Implemented\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                return
            self.swallow(int(length[1]) if length else 0)
            wanted = re.match(rb"GET /(\d+) ", head)
            if wanted:
                self.send(int(wanted[1]))
            else:
                self.request.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY))

    def head(self) -> bytes | None:
        while b"\r\n\r\n" not in self.waiting:
            piece = self.request.recv(65536)
            if not piece:
                return None
            self.waiting += piece
        head, _, self.waiting = self.waiting.partition(b"\r\n\r\n")
        return head

    def swallow(self, left: int) -> None:
        here = min(left, len(self.waiting))
        self.waiting = self.waiting[here:]
        left -= here
        while left > 0:
            got = self.request.recv_into(self.block, min(left, len(self.block)))
            if got == 0:
                raise ConnectionError("the body ended early")
            left -= got

    def send(self, left: int) -> None:
        self.request.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % left)
        while left > 0:
            self.request.sendall(BLOCK[: min(left, len(BLOCK))])
            left -= min(left, len(BLOCK))


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 4096

    def handle_error(self, request: object, client_address: object) -> None:
        # A load that is over closes its connections; that is no fault.
        pass


if __name__ == "__main__":
    with Server(("127.0.0.1", int(sys.argv[1])), Sink) as server:
        server.serve_forever()
