"""Allocations of plimsoll per request, by a benchmark in Rust that counts them: `cargo bench -p plimsoll-proxy`.

The proxy runs in the benchmark's process under an allocator that counts what the proxy's threads ask for. From outside
it cannot be counted: the release binary has its allocator linked in, and only the source tells which calls are its own.
"""

import json
import pathlib
import subprocess
import sys
from dataclasses import dataclass

from .processes import StartFailed

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_COMMAND = ["cargo", "bench", "--quiet", "-p", "plimsoll-proxy", "--bench", "allocations", "--", "--json"]


@dataclass(frozen=True)
class AllocationShape:
    """Plimsoll alone: no peer offers the figure."""

    name: str = "allocations"
    title: str = "Allocations per request"


SHAPE = AllocationShape()


def measure() -> dict:
    """Builds the benchmark and runs it."""
    done = subprocess.run(_COMMAND, cwd=_ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise StartFailed(f"the benchmark of allocations ended with {done.returncode}:\n{done.stderr}")
    rows = json.loads(done.stdout)
    for row in rows:
        print(f"allocations, {row['name']}: {row['allocations_per_request']:.2f} per request", file=sys.stderr)
    return {
        "title": SHAPE.title,
        "note": "Plimsoll alone; on the proxy's own threads, once all connections are open. A reallocation counts as one",
        "absent": {},
        "goals": {},
        "allocations": rows,
    }
