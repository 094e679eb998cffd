"""Pingora: the smallest proxy that its quick start makes, built from `bench/peers/pingora`; one thread, round robin.

A library and not a proxy, so this is what it costs before anything is built on it. Optional, since it takes minutes and
hundreds of crates to build; `bench/README.md` says how.
"""

import pathlib
import re

from .base import Peer, Setup

_HOME = pathlib.Path(__file__).resolve().parents[2] / "peers/pingora"
_PROGRAM = _HOME / "target/release/pingora-peer"


class Pingora(Peer):
    name = "pingora"

    @classmethod
    def missing(cls) -> str | None:
        return None if _PROGRAM.exists() else "not built; cargo build --release --manifest-path bench/peers/pingora/Cargo.toml"

    @classmethod
    def version(cls) -> str:
        found = re.search(r'name = "pingora"\nversion = "([^"]+)"', (_HOME / "Cargo.lock").read_text())
        return f"pingora {found[1] if found else 'of unknown version'}"

    @classmethod
    def cannot(cls, setup: Setup) -> str | None:
        if setup.certificate or setup.http2_clients or setup.http2_backends:
            return "set up for HTTP/1 without TLS only"
        return None

    def command(self) -> list[str]:
        return [str(_PROGRAM), f"127.0.0.1:{self.port}", *self.setup.backends]
