"""An inference server: `xpyd-sim` from PyPI, with the load report of vLLM, which it lacks.

The simulator batches requests and holds their tokens as a real server does, and serves the OpenAI API. Added here is
the header of vLLM: `endpoint-load-metrics`, in the format that the request names in
`endpoint-load-metrics-format`, with `kv_cache_usage_perc` and `num_requests_waiting`. A request that names none gets
none. `/harness/counts` has the counts of completions, and of those that asked.
"""

import argparse
import json
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn
from xpyd_sim.server import ServerConfig, create_app

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

FORMAT, REPORT = b"endpoint-load-metrics-format", b"endpoint-load-metrics"


def report(wanted: str, metrics: dict[str, float]) -> str | None:
    """The header value in this format; none in an unknown one."""
    if wanted.lower() == "text":
        return "TEXT " + ", ".join(f"named_metrics.{name}={value}" for name, value in metrics.items())
    if wanted.lower() == "json":
        return "JSON " + json.dumps({"named_metrics": metrics})
    return None


class Reporting:
    """The simulator's application, with reports."""

    def __init__(self, config: ServerConfig, kv_tokens: int):
        self.app = create_app(config)
        self.scheduler = config._scheduler
        self.kv_tokens = kv_tokens
        self.counts = {"completions": 0, "asked": 0}

    def metrics(self) -> dict[str, float]:
        # No public method has the requests between prefill and decode.
        running, waiting = self.scheduler._decode_batch, self.scheduler._decode_waiting
        used = sum(request.context_length for request in [*running, *self.scheduler._prefill_batch])
        queued = len(self.scheduler._prefill_queue) + len(waiting)
        return {"kv_cache_usage_perc": min(1.0, used / self.kv_tokens), "num_requests_waiting": float(queued)}

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        if scope["path"] == "/harness/counts":
            body = json.dumps(self.counts).encode()
            head = [(b"content-length", str(len(body)).encode())]
            await send({"type": "http.response.start", "status": 200, "headers": head})
            return await send({"type": "http.response.body", "body": body})
        wanted = dict(scope["headers"]).get(FORMAT)
        if scope["path"].startswith("/v1/"):
            self.counts["completions"] += 1
            self.counts["asked"] += wanted is not None

        async def reporting(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start" and wanted is not None:
                value = report(wanted.decode("latin-1"), self.metrics())
                if value is not None:
                    message["headers"] = [*message["headers"], (REPORT, value.encode())]
            await send(message)

        await self.app(scope, receive, reporting)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--decode-ms", type=float, required=True, help="milliseconds for each token")
    parser.add_argument("--kv-tokens", type=int, default=256, help="tokens that the KV cache holds")
    arguments = parser.parse_args()
    config = ServerConfig(
        prefill_delay_ms=2, decode_delay_per_token_ms=arguments.decode_ms, scheduling_enabled=True, eos_min_ratio=1.0
    )
    server = Reporting(config, arguments.kv_tokens)
    uvicorn.run(server, host="127.0.0.1", port=arguments.port, log_level="warning")


if __name__ == "__main__":
    main()
