"""The steps of a page (files to write, servers to start, blocks to run), and a run of them in a copy of a clone."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable

from .pages import ROOT, Block, blocks

RUNNER = ROOT / "tests" / "e2e" / "harness" / "page_runner.py"


def admin_address(command: str, files: dict[str, str]) -> str:
    """The admin address of a proxy by its command line or its file, which is on the page or in examples/."""
    if named := re.search(r"--admin[ =](\S+)", command):
        return named[1]
    config = re.search(r"(?:-c|--config) (\S+)", command)
    if config is None:
        return "127.0.0.1:9900"
    text = files.get(config[1]) or (ROOT / config[1]).read_text()
    return tomllib.loads(text).get("admin", {}).get("listen", "127.0.0.1:9900")


def steps(page: pathlib.Path, is_run: Callable[[Block], bool]) -> list[dict]:
    """The steps of a page: files to write, servers to start, blocks to run to their end if `is_run`."""
    files: dict[str, str] = {}
    found: list[dict] = []
    for block in blocks(page):
        step = {"place": block.place, "line": block.line, "heading": block.heading, "text": block.text}
        if block.file is not None:
            files[block.file] = block.text
            found.append(step | {"kind": "file", "name": block.file})
        elif block.is_command and is_run(block):
            if block.is_foreground:
                found.append(step | server(block, files, has_backends=any(step["kind"] == "server" for step in found)))
            else:
                found.append(step | {"kind": "command"})
    return found


def server(block: Block, files: dict[str, str], *, has_backends: bool) -> dict:
    """A step that starts a server. A proxy is ready when it takes requests; on a page without backends, when it runs."""
    command = block.commands()[0]
    text = "\n".join(block.commands())
    if command.startswith("plimsoll proxy"):
        admin = admin_address(command, files)
        return {"kind": "server", "text": text, "replaces": f"proxy {admin}", "ready": f"http://{admin}/{'readyz' if has_backends else 'healthz'}"}
    return {"kind": "server", "text": text, "replaces": text, "ready": None}


def isolation() -> list[str]:
    """The command that gives a page a network and processes of its own, as far as this machine allows."""
    for options in (["--net", "--pid", "--fork", "--kill-child", "--mount-proc"], ["--net"]):
        for user in ([], ["--map-root-user"]):
            command = ["unshare", *user, *options]
            if subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
                return command
    return []


def run_steps(plan: list[dict], clone: pathlib.Path, binary: pathlib.Path, isolated: list[str]) -> list[dict]:
    """The results of steps, run in `clone`: a new folder that looks like a clone with the binary built."""
    clone.mkdir()
    for entry in ROOT.iterdir():
        if entry.name not in ("target", ".git"):
            (clone / entry.name).symlink_to(entry)
    (clone / "target" / "release").mkdir(parents=True)
    (clone / "target" / "release" / "plimsoll").symlink_to(binary.resolve())
    file = clone.with_suffix(".json")
    file.write_text(json.dumps(plan))
    environment = os.environ | {"PATH": f"{clone}/target/release:{os.environ['PATH']}"}
    done = subprocess.run(
        [*isolated, sys.executable, str(RUNNER), str(file)],
        cwd=clone,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return json.loads(done.stdout)
