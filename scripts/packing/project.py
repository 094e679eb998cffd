"""What is packed: the version, the machine, the time, and the programs that pack it."""

import json
import os
import pathlib
import shutil
import struct
import subprocess
import tomllib
from dataclasses import dataclass
from functools import cache

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONTRIB = ROOT / "contrib" / "packages"

# Machines by the number in the head of an ELF file: Rust, Debian, RPM and OCI have a name each.
_MACHINES = {
    62: ("x86_64", "amd64", "x86_64", "amd64"),
    183: ("aarch64", "arm64", "aarch64", "arm64"),
}


class Problem(Exception):
    """Why a package cannot be made, and what to do about it."""


@dataclass(frozen=True)
class Machine:
    """A kind of processor."""

    rust: str
    debian: str
    rpm: str
    oci: str


@dataclass(frozen=True)
class Project:
    """One version of the project for one machine."""

    binary: pathlib.Path
    version: str
    revision: int
    effort: int
    machine: Machine
    epoch: int
    work: pathlib.Path
    out: pathlib.Path

    @property
    def environment(self) -> dict[str, str]:
        """For programs that write the time of a build."""
        return {**os.environ, "SOURCE_DATE_EPOCH": str(self.epoch), "LC_ALL": "C.UTF-8", "TZ": "UTC"}


def run(*command: str | pathlib.Path, cwd: pathlib.Path = ROOT, env: dict[str, str] | None = None) -> str:
    """The output of a command that has to succeed."""
    done = subprocess.run([str(part) for part in command], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Problem(f"{' '.join(map(str, command))} ended with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def need(program: str, package: str) -> None:
    """Ends with help unless a program is installed."""
    if shutil.which(program) is None:
        raise Problem(f"{program} is missing; on Debian: apt install {package}")


def machine_of(binary: pathlib.Path) -> Machine:
    """The processor of a program, by its ELF head."""
    with binary.open("rb") as file:
        head = file.read(20)
    if head[:4] != b"\x7fELF":
        raise Problem(f"{binary} is no program for Linux")
    (number,) = struct.unpack_from("<H", head, 18)
    if number not in _MACHINES:
        raise Problem(f"{binary} is for machine {number} of ELF; packages are made for x86_64 and aarch64")
    return Machine(*_MACHINES[number])


def version() -> str:
    """The version of all crates."""
    return tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]


def epoch() -> int:
    """Seconds since 1970 that stand for the build: those given, else the last commit, else the last lock file."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    done = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0 and done.stdout.strip():
        return int(done.stdout)
    return int((ROOT / "Cargo.lock").stat().st_mtime)


@cache
def metadata(rust_machine: str) -> dict:
    """`cargo metadata` for a machine."""
    target = f"{rust_machine}-unknown-linux-gnu"
    return json.loads(run("cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", target))


@cache
def shipped(rust_machine: str) -> dict[str, list[str]]:
    """The crates within the binary by id, each with the ids that it uses: no tests, no build scripts."""
    found = metadata(rust_machine)
    nodes = {node["id"]: node for node in found["resolve"]["nodes"]}
    (start,) = (package["id"] for package in found["packages"] if package["name"] == "plimsoll-cli")
    uses: dict[str, list[str]] = {}
    waiting = [start]
    while waiting:
        crate = waiting.pop()
        if crate in uses:
            continue
        normal = [dep["pkg"] for dep in nodes[crate]["deps"] if any(kind["kind"] is None for kind in dep["dep_kinds"])]
        uses[crate] = sorted(normal)
        waiting += normal
    return uses


def fill(template: pathlib.Path, **values: object) -> str:
    """A template with each @NAME@ replaced."""
    text = template.read_text()
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    return text


def write(file: pathlib.Path, content: str | bytes, mode: int = 0o644) -> pathlib.Path:
    """Writes a file with its folders."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    file.chmod(mode)
    return file
