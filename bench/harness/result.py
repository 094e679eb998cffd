"""A result: what was asked for, on what, what came out; and its files."""

import argparse
import datetime
import json
import pathlib
import shlex
import sys

from . import allocations, machine, memory, page, report, rounds, verdict
from .allocations import AllocationShape
from .backends import GrpcBackend, NginxBackend
from .load import LoadFailed
from .memory import MemoryShape
from .peers import PEERS, Plimsoll
from .processes import StartFailed, find_program, first_line, settle_on
from .shapes import Shape

AnyShape = Shape | MemoryShape | AllocationShape
ROOT = pathlib.Path(__file__).resolve().parents[2]


def add_common_options(parser: argparse.ArgumentParser, peers: str) -> None:
    """What every command takes that compares proxies."""
    parser.add_argument("--peers", default=peers, help=f"which, comma separated (default {peers})")
    parser.add_argument("--proxy-core", type=int, default=0, help="the core of the proxy (default 0)")
    parser.add_argument("--load-cores", help="cores of load and backends, comma separated (default: all others)")
    parser.add_argument("--plimsoll", default=str(ROOT / "target/release/plimsoll"), help="the binary to measure")
    parser.add_argument("--no-syscalls", action="store_true", help="do not count system calls")
    parser.add_argument("--check", action="store_true", help="exit 1 if plimsoll misses a goal")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "bench/results", help="where the result goes")


def prepare(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> rounds.Effort:
    """Checks the common options, and settles this process where the load lives."""
    arguments.peers = arguments.peers.split(",")
    for name in arguments.peers:
        if name not in PEERS:
            parser.error(f"no peer named {name!r}; there are {', '.join(PEERS)}")
    if Plimsoll.name in arguments.peers and not pathlib.Path(arguments.plimsoll).exists():
        parser.error(f"{arguments.plimsoll} does not exist; run cargo build --release")
    Plimsoll.program = GrpcBackend.program = arguments.plimsoll
    if arguments.load_cores is None:
        load_cores = set(range(machine.describe()["cores"])) - {arguments.proxy_core} or {0}
    else:
        load_cores = {int(core) for core in arguments.load_cores.split(",")}
    settle_on(load_cores)
    return rounds.Effort(
        arguments.rounds, arguments.seconds, arguments.proxy_core, load_cores, syscalls=not arguments.no_syscalls
    )


def measure(command: str, title: str, shapes: list[AnyShape], names: list[str], effort: rounds.Effort) -> dict:
    """Runs all shapes, one after the other."""
    missing = {name: reason for name in names if (reason := PEERS[name].missing())}
    names = [name for name in names if name not in missing]
    tools = sorted({shape.load.tool for shape in shapes if isinstance(shape, Shape)})
    result = {
        "title": title,
        "date": datetime.date.today().isoformat(),
        "command": shlex.join([command, *sys.argv[1:]]),
        "commit": machine.commit(ROOT),
        "machine": machine.describe(),
        "versions": {name: PEERS[name].version() for name in names}
        | {"backends": NginxBackend.version()}
        | {tool: _tool_version(tool) for tool in tools},
        "missing": missing,
        "rounds": effort.rounds,
        "seconds": effort.seconds,
        "proxy_core": effort.proxy_core,
        "load_cores": sorted(effort.load_cores),
        "shapes": {},
        "refused": {},
    }
    for shape in shapes:
        try:
            result["shapes"][shape.name] = _measure_shape(shape, names, effort)
        except (LoadFailed, StartFailed, OSError) as problem:
            # The others may still be worth their time. Half a shape is not: it would compare those that are left.
            result["refused"][shape.name] = str(problem)
            print(f"{shape.name} refused: {problem}", file=sys.stderr)
    return result


def _measure_shape(shape: AnyShape, names: list[str], effort: rounds.Effort) -> dict:
    match shape:
        case Shape():
            return rounds.measure(shape, names, effort)
        case MemoryShape():
            return memory.measure(shape, names, effort)
        case AllocationShape():
            return allocations.measure()


def _tool_version(name: str) -> str:
    # wrk prints its version with its usage, and a copyright.
    option = "version" if name == "openssl" else "--version"
    return first_line(find_program(name), option).partition(" Copyright")[0]


def exit_code(result: dict, check: bool) -> int:
    """1 if a shape could not be measured, or if goals count and one is missed; says which."""
    missed = [found for found in verdict.of(result["shapes"]) if not found.kept]
    for found in missed:
        print(f"missed: {found}", file=sys.stderr)
    return 1 if result["refused"] or (check and missed) else 0


def write(result: dict, out: pathlib.Path, name: str) -> pathlib.Path:
    """`DATE-NAME` as .json, .md and .html; the page's path."""
    out.mkdir(parents=True, exist_ok=True)
    base = out / f"{result['date']}-{name}"
    base.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    base.with_suffix(".md").write_text(report.markdown(result))
    base.with_suffix(".html").write_text(page.page(result))
    return base.with_suffix(".html")
