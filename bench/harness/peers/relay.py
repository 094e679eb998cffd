"""Relay: the least that a proxy can cost here, built from `bench/peers/relay`. No proxy: it passes on what a read holds,
to the next backend in turn, and knows nothing of HTTP. What it costs is what the kernel takes for two connections, and so
what it costs more with a thousand backends is no proxy's to save.
"""

import pathlib

from .base import Peer, Setup

_HOME = pathlib.Path(__file__).resolve().parents[2] / "peers/relay"
_PROGRAM = _HOME / "target/release/relay-peer"


class Relay(Peer):
    name = "relay"

    @classmethod
    def missing(cls) -> str | None:
        return None if _PROGRAM.exists() else "not built; cargo build --release --manifest-path bench/peers/relay/Cargo.toml"

    @classmethod
    def version(cls) -> str:
        return "relay of bench/peers"

    @classmethod
    def cannot(cls, setup: Setup) -> str | None:
        if setup.certificate or setup.http2_clients or setup.http2_backends or not setup.short_messages:
            return "passes on small messages of HTTP/1 without TLS only"
        return None

    def command(self) -> list[str]:
        return [str(_PROGRAM), f"127.0.0.1:{self.port}", *self.setup.backends]
