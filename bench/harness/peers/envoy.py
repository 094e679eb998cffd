"""Envoy: one worker, round robin (its default), health checks on.

As its guide to benchmarking advises: no circuit breakers, no request ids, no per-request statistics of the router, no
hot restart (https://www.envoyproxy.io/docs/envoy/latest/faq/performance/how_to_benchmark_envoy).
"""

import json
import pathlib
import re

from ..processes import find_program, first_line
from .base import HEALTH_INTERVAL_SECONDS, Peer

_BENCH = pathlib.Path(__file__).resolve().parents[2]
_NO_LIMIT = 1_000_000_000
_HTTP_MANAGER = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
_ROUTER = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
_PROTOCOL_OPTIONS = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
_TLS = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext"


def _program() -> str | None:
    """The binary itself, not the script in `bin` that starts it: one process less to tell apart."""
    found = sorted((_BENCH / ".venv").glob("lib/python*/site-packages/envoy/_bin/envoy"))
    return str(found[-1]) if found else None


class Envoy(Peer):
    name = "envoy"

    def further_filters(self) -> list[dict]:
        """What a request passes before the router."""
        return []

    def router_options(self) -> dict:
        """Beside those that make it cheap."""
        return {}

    @classmethod
    def missing(cls) -> str | None:
        return None if _program() else "not installed; bench/run --install brings it"

    @classmethod
    def version(cls) -> str:
        line = first_line(_program() or find_program("envoy"), "--version")
        found = re.search(r"/(\d+\.\d+\.\d+)", line)
        return f"Envoy {found[1]}" if found else line

    def command(self) -> list[str]:
        config = {"static_resources": {"listeners": [self._listener()], "clusters": [self._cluster()]}}
        path = self.write("envoy.json", json.dumps(config, indent=1))
        program = _program()
        assert program, "callers ask `missing` first"
        return [program, "-c", path, "--concurrency", "1", "--disable-hot-restart", "--log-level", "error"]

    def _listener(self) -> dict:
        manager = {
            "@type": _HTTP_MANAGER,
            "stat_prefix": "bench",
            "generate_request_id": False,
            # `openssl s_time` speaks nothing later.
            "http_protocol_options": {"accept_http_10": True, "default_host_for_http_10": "localhost"},
            "common_http_protocol_options": {"idle_timeout": "3600s"},
            "stream_idle_timeout": "3600s",
            "route_config": {
                "virtual_hosts": [
                    {
                        "name": "all",
                        "domains": ["*"],
                        "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "backends", "timeout": "0s"}}],
                    }
                ]
            },
            "http_filters": [
                *self.further_filters(),
                {
                    "name": "envoy.filters.http.router",
                    "typed_config": {
                        "@type": _ROUTER,
                        "dynamic_stats": False,
                        "suppress_envoy_headers": True,
                        **self.router_options(),
                    },
                }
            ],
        }
        chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        certificate = self.setup.certificate
        if certificate:
            context = {
                "tls_params": {"tls_minimum_protocol_version": "TLSv1_2", "tls_maximum_protocol_version": "TLSv1_3"},
                "alpn_protocols": ["h2", "http/1.1"],
                "tls_certificates": [
                    {
                        "certificate_chain": {"filename": str(certificate.chain)},
                        "private_key": {"filename": str(certificate.key)},
                    }
                ],
            }
            chain["transport_socket"] = {
                "name": "envoy.transport_sockets.tls",
                "typed_config": {"@type": _TLS, "common_tls_context": context},
            }
        return {
            "address": {"socket_address": {"address": "127.0.0.1", "port_value": self.port}},
            "tcp_backlog_size": 4096,
            "filter_chains": [chain],
        }

    def _cluster(self) -> dict:
        setup = self.setup
        hosts = [address.rsplit(":", 1) for address in setup.backends]
        every = f"{HEALTH_INTERVAL_SECONDS}s"
        check = {
            "timeout": "2s",
            "interval": every,
            "no_traffic_interval": every,
            "unhealthy_threshold": 3,
            "healthy_threshold": 1,
        }
        if setup.grpc:
            check["grpc_health_check"] = {}
        else:
            check["http_health_check"] = {"path": "/", "codec_client_type": "HTTP2" if setup.http2_backends else "HTTP1"}
        limits = dict.fromkeys(("max_connections", "max_pending_requests", "max_requests", "max_retries"), _NO_LIMIT)
        return {
            "name": "backends",
            "type": "STATIC",
            "connect_timeout": "1s",
            "circuit_breakers": {"thresholds": [{"priority": "DEFAULT", **limits}]},
            "health_checks": [check],
            "typed_extension_protocol_options": {
                _PROTOCOL_OPTIONS: {
                    "@type": f"type.googleapis.com/{_PROTOCOL_OPTIONS}",
                    "explicit_http_config": {
                        "http2_protocol_options" if setup.http2_backends else "http_protocol_options": {}
                    },
                }
            },
            "load_assignment": {
                "cluster_name": "backends",
                "endpoints": [
                    {
                        "lb_endpoints": [
                            {"endpoint": {"address": {"socket_address": {"address": host, "port_value": int(port)}}}}
                            for host, port in hosts
                        ]
                    }
                ],
            },
        }
