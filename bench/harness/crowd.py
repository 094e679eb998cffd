"""A crowd of clients that connect at once, with TLS: started beside a proxy, as a process of its own.

What a client can do beforehand (its keys, the first message of its handshake) is done before the crowd is let go, so that all
of it arrives as fast as the kernel takes it. Reads `go` from its input, prints what became of it as JSON, and stays connected
until its input ends. Clients come from several loopback addresses, as a proxy may limit the connections of one.
"""

import argparse
import contextlib
import errno
import json
import os
import resource
import selectors
import socket
import ssl
import sys
import time

ADDRESSES = 20


class Client:
    """One handshake."""

    def __init__(self, context: ssl.SSLContext, source: str):
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost")
        self.source = source
        self.socket = socket.socket()
        self.is_greeted = False
        self.step()
        self.hello = self.outgoing.read()

    def step(self) -> bool:
        """Whether the handshake is over."""
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def connect(self, port: int) -> None:
        self.socket.setblocking(False)
        # A port is chosen when it is known where the connection leads, or there would be too few.
        self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_BIND_ADDRESS_NO_PORT, 1)
        self.socket.bind((self.source, 0))
        code = self.socket.connect_ex(("127.0.0.1", port))
        if code not in (0, errno.EINPROGRESS):
            raise OSError(code, os.strerror(code))

    def proceed(self) -> bool:
        """Goes on as far as can be; whether the handshake is over."""
        if not self.is_greeted:
            self.socket.send(self.hello)
            self.is_greeted = True
            return False
        data = self.socket.recv(16_384)
        if not data:
            raise ConnectionResetError("closed during the handshake")
        self.incoming.write(data)
        is_over = self.step()
        answer = self.outgoing.read()
        if answer:
            self.socket.send(answer)
        return is_over


def run(clients: list[Client], port: int, patience: float) -> dict:
    began = time.monotonic()
    failures: dict[str, int] = {}
    done = []
    with selectors.DefaultSelector() as selector:
        for client in clients:
            client.connect(port)
            selector.register(client.socket, selectors.EVENT_WRITE, client)
        while selector.get_map() and time.monotonic() - began < patience:
            for key, _ in selector.select(1):
                client = key.data
                try:
                    was_greeted = client.is_greeted
                    is_over = client.proceed()
                except OSError as error:
                    selector.unregister(client.socket)
                    name = type(error).__name__
                    failures[name] = failures.get(name, 0) + 1
                    continue
                if is_over:
                    selector.unregister(client.socket)
                    done.append(time.monotonic() - began)
                elif not was_greeted:
                    selector.modify(client.socket, selectors.EVENT_READ, client)
        if late := len(selector.get_map()):
            failures["late"] = late
    return {"connected": len(done), "failures": failures, "seconds": max(done, default=0.0)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--clients", type=int, default=5_000)
    parser.add_argument("--patience", type=float, default=20.0, help="seconds that handshakes may take")
    arguments = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    # On the core of honest clients only when they leave it: it is not their contention that is to be measured.
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    clients = [Client(context, f"127.0.0.{2 + at % ADDRESSES}") for at in range(arguments.clients)]
    print("ready", flush=True)
    if sys.stdin.readline().strip() != "go":
        return
    print(json.dumps(run(clients, arguments.port, arguments.patience)), flush=True)
    with contextlib.suppress(OSError):
        sys.stdin.read()


if __name__ == "__main__":
    main()
