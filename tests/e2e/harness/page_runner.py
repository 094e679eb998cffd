"""Runs the command blocks of one page in their order, in a network and among processes of its own.

It is a program: `page_runner.py STEPS` reads a list of steps as JSON and prints a result for each. A page uses fixed
ports, so the caller starts it in a network namespace of its own, and in one of processes, so that nothing outlives it.
"""

import ctypes
import fcntl
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.request

# A block that ends by itself has so long, and a server until it is ready.
ENDS_WITHIN = 60.0
READY_WITHIN = 20.0
PR_SET_CHILD_SUBREAPER = 36


def bring_up_loopback() -> None:
    """A new network namespace has a loopback device that is down. Without the right to change it, it is up already."""
    request = struct.pack("16sh22x", b"lo", 0x1 | 0x40)  # IFF_UP | IFF_RUNNING
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        try:
            fcntl.ioctl(control, 0x8914, request)  # SIOCSIFFLAGS
        except PermissionError:
            pass


def children() -> list[int]:
    """Children of this process; orphans of the page are among them, as it is their reaper."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(entry.read_text().rsplit(")", 1)[1].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent == os.getpid():
            found.append(int(entry.parent.name))
    return found


def end_everything() -> None:
    """Ends all that the page started, its orphans included."""
    while running := children():
        for pid in running:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def listens(session: int) -> bool:
    """Whether a process of the session listens at a TCP port."""
    listening = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for row in pathlib.Path(table).read_text().splitlines()[1:]:
            fields = row.split()
            if fields[3] == "0A":
                listening.add(f"socket:[{fields[9]}]")
    for folder in pathlib.Path("/proc").glob("[0-9]*/fd"):
        try:
            if os.getsid(int(folder.parent.name)) != session:
                continue
            if any(os.readlink(entry) in listening for entry in folder.iterdir()):
                return True
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return False


def is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as response:
            return response.status == 200
    except OSError:
        return False


class Servers:
    """Blocks that stay in the foreground. One that takes the place of another ends that first, as a reader would."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, step: dict) -> tuple[int, str]:
        if (previous := self.running.pop(step["replaces"], None)) is not None:
            previous.terminate()
            previous.wait(ENDS_WITHIN)
        log = self.folder / f"block-{step['line']}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-c", "exec " + step["text"]],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.running[step["replaces"]] = process
        deadline = time.monotonic() + READY_WITHIN
        while time.monotonic() < deadline:
            if (code := process.poll()) is not None:
                return code or 1, f"it ended by itself:\n{log.read_text(errors='replace')}"
            if listens(process.pid) and (step["ready"] is None or is_ready(step["ready"])):
                return 0, ""
            time.sleep(0.02)
        return 1, f"not ready within {READY_WITHIN} s:\n{log.read_text(errors='replace')}"


def run_to_its_end(step: dict) -> tuple[int, str]:
    """Runs a block as a shell does that a reader pastes it into, but stops at the first command that fails."""
    try:
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", step["text"]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=ENDS_WITHIN,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        return 1, f"still running after {ENDS_WITHIN} s:\n{(late.stdout or b'').decode(errors='replace')}"
    return done.returncode, done.stdout.decode(errors="replace")


def main() -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    bring_up_loopback()
    servers = Servers(pathlib.Path.cwd())
    results = []
    for step in json.loads(pathlib.Path(sys.argv[1]).read_text()):
        began = time.monotonic()
        if step["kind"] == "file":
            pathlib.Path(step["name"]).write_text(step["text"])
            code, output = 0, ""
        elif step["kind"] == "server":
            code, output = servers.start(step)
        else:
            code, output = run_to_its_end(step)
        results.append({"place": step["place"], "kind": step["kind"], "code": code, "output": output, "seconds": time.monotonic() - began})
        if code != 0:
            break
    end_everything()
    print(json.dumps(results))


main()
