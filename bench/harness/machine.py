"""What a result has to say about the machine and the code it was measured on, and how much others took of the machine."""

import os
import pathlib
import platform
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

# The share of the machine's time that others may have during a measurement, and how often is tried for it.
UNDISTURBED = 0.02
MOST_ATTEMPTS = 3


@dataclass(frozen=True)
class Ticks:
    """Of all cores since they started."""

    stolen: int
    total: int

    def stolen_since(self, earlier: "Ticks") -> float:
        """The share of the time since then that the hypervisor had for others."""
        return (self.stolen - earlier.stolen) / max(self.total - earlier.total, 1)


def ticks() -> Ticks:
    """As they are now."""
    fields = [int(field) for field in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return Ticks(fields[7], sum(fields))


def idle() -> int:
    """Ticks of all cores without work."""
    fields = [int(field) for field in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return fields[3] + fields[4]


def little_stolen(made: dict) -> bool:
    """Of a measurement that says how much was `stolen`."""
    return made["stolen"] <= UNDISTURBED


def until_undisturbed(attempt: Callable[[], dict], is_undisturbed: Callable[[dict], bool] = little_stolen) -> list[dict]:
    """Measurements up to the first that was not disturbed, or as many as are allowed."""
    made = [attempt()]
    while not is_undisturbed(made[-1]) and len(made) < MOST_ATTEMPTS:
        made.append(attempt())
    return made


def least_disturbed(made: list[dict]) -> dict:
    """The one of which least was stolen."""
    return min(made, key=lambda each: each["stolen"])


def describe() -> dict[str, str | int | float]:
    """Kernel, CPU, cores, and how busy the machine was before the run."""
    cpu = "unknown"
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    return {
        "kernel": platform.release(),
        "cpu": cpu,
        "cores": os.cpu_count() or 0,
        "load_before": round(os.getloadavg()[0], 2),
    }


def commit(root: pathlib.Path) -> str:
    """The commit measured, marked when files differ from it."""
    done = subprocess.run(
        ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "none"
