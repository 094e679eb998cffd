"""HAProxy of this machine, for comparisons."""

import contextlib
import pathlib
from collections.abc import Iterator

from harness.process import Process, find_program, free_port


@contextlib.contextmanager
def haproxy(directory: pathlib.Path, backends: list[str], settings: str) -> Iterator[int]:
    """HAProxy in front of `backends`, with these lines in its `defaults`. Yields its port."""
    port = free_port()
    servers = "\n".join(f"    server s{i} {address}" for i, address in enumerate(backends))
    path = directory / "haproxy.cfg"
    path.write_text(f"""
defaults
    mode http
    timeout connect 1s
    timeout client 30s
    {settings}
frontend all
    bind 127.0.0.1:{port}
    default_backend servers
backend servers
    balance roundrobin
{servers}
""")
    process = Process("haproxy", [find_program("haproxy"), "-db", "-f", str(path)], directory)
    try:
        process.wait_for_port(port)
        yield port
    finally:
        process.stop()
