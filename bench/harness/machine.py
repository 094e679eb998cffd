"""What a result has to say about the machine and the code it was measured on."""

import os
import pathlib
import platform
import subprocess


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
