"""The proxies that are compared, each as a configuration and a command.

A peer is set up as its own documentation advises for this use: upstream keep-alive on, one worker or thread, logs of
single requests off, health checks on where it has them, bodies streamed. TLS is equal for all (`certificate.py`).
"""

from .base import HEALTH_INTERVAL_SECONDS, Peer, Setup
from .envoy import Envoy
from .haproxy import HAProxy
from .nginx import Nginx
from .pingora import Pingora
from .plimsoll import Plimsoll
from .relay import Relay

PEERS: dict[str, type[Peer]] = {peer.name: peer for peer in (Nginx, HAProxy, Envoy, Pingora, Relay, Plimsoll)}

__all__ = [
    "HEALTH_INTERVAL_SECONDS",
    "PEERS",
    "Envoy",
    "HAProxy",
    "Nginx",
    "Peer",
    "Pingora",
    "Plimsoll",
    "Relay",
    "Setup",
]
