"""The container image: run by podman, or, where podman cannot run, unpacked and run in a chroot."""

import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator

import pytest

from conftest import Packages, unavailable
from harness.fleet import PLIMSOLL
from root import Namespaces, Unavailable
from service import by_backend

# Options of podman, the first one before `run`: one set works where control groups are of version 2, one where both
# versions are mounted or the right to raise limits is missing.
RUNTIMES = [
    ["--runtime=crun", "--cgroups=disabled"],
    ["--runtime=runc", "--ulimit=nofile=4096:4096", "--ulimit=nproc=1024:1024"],
]

CONFIG = """
[[listeners]]
address = "127.0.0.1:8080"

[[routes]]
cluster = "web"

[clusters.web]
backends = ["127.0.0.1:8081", "127.0.0.1:8082"]
"""


@pytest.fixture
def namespaces() -> Iterator[Namespaces]:
    """A network in which the addresses of the file are free."""
    if os.geteuid() != 0:
        unavailable("not root here: namespaces need it")
    try:
        made = Namespaces()
    except Unavailable as reason:
        unavailable(str(reason))
        return
    try:
        yield made
    finally:
        made.close()


class Image:
    """The image of a file: its documents, and its files."""

    def __init__(self, file: pathlib.Path) -> None:
        self.archive = tarfile.open(file)
        index = json.loads(self._read("index.json"))
        self.manifest = json.loads(self._blob(index["manifests"][0]["digest"]))
        self.config = json.loads(self._blob(self.manifest["config"]["digest"]))
        self.name = index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"]

    def _read(self, name: str) -> bytes:
        file = self.archive.extractfile(name)
        assert file is not None
        return file.read()

    def _blob(self, digest: str) -> bytes:
        content = self._read(f"blobs/sha256/{digest.removeprefix('sha256:')}")
        assert hashlib.sha256(content).hexdigest() == digest.removeprefix("sha256:")
        return content

    def unpack(self, folder: pathlib.Path) -> None:
        for layer in self.manifest["layers"]:
            blob = folder.parent / "layer.tar.gz"
            blob.write_bytes(self._blob(layer["digest"]))
            subprocess.run(["tar", "-C", folder, "--numeric-owner", "-xpzf", blob], check=True)


@pytest.fixture
def image(packages: Packages) -> Image:
    return Image(packages.only("*.oci.tar"))


@pytest.fixture
def storage() -> Iterator[pathlib.Path]:
    """A folder for images and containers. podman takes no path of more than 50 characters."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="plimsoll-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def balanced(namespaces: Namespaces, command: list[str], log: pathlib.Path) -> dict[str, int]:
    """Starts the image's proxy by `command` and two backends beside it; how many requests each of them answered."""
    backends = [[PLIMSOLL, "backend", "--listen", f"127.0.0.1:{port}"] for port in (8081, 8082)]
    with log.open("wb") as output:
        started = [
            subprocess.Popen([*namespaces.enter, *server], stdin=subprocess.DEVNULL, stdout=output, stderr=output)
            for server in [*backends, command]
        ]
    load = [*namespaces.enter, PLIMSOLL, "load", "http://127.0.0.1:8080/", "--concurrency", "1", "--json", "--fail-on-error", "--requests"]
    deadline = time.monotonic() + 30
    while subprocess.run([*load, "1"], capture_output=True, check=False).returncode != 0:
        assert started[-1].poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
    done = subprocess.run([*load, "60"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    # nsenter passes no signals on.
    (child,) = pathlib.Path(f"/proc/{started[-1].pid}/task/{started[-1].pid}/children").read_text().split()
    os.kill(int(child), signal.SIGTERM)
    assert started[-1].wait(20) == 0, f"the container does not end by SIGTERM:\n{log.read_text()}"
    for server in started[:-1]:
        server.kill()
        server.wait()
    return by_backend(done.stdout)


def test_podman_runs_it(namespaces: Namespaces, packages: Packages, image: Image, storage: pathlib.Path, tmp_path: pathlib.Path) -> None:
    podman = shutil.which("podman")
    if podman is None:
        unavailable("podman is missing; on Debian: apt install podman. The image is unpacked and run by the next test")
        return
    config = tmp_path / "config"
    config.mkdir()
    (config / "plimsoll.toml").write_text(CONFIG)
    own = [podman, "--root", str(storage / "images"), "--runroot", str(storage / "run"), "--storage-driver", "vfs"]
    own += ["--cgroup-manager", "cgroupfs", "--events-backend", "none"]
    loaded = subprocess.run([*own, "load", "--input", packages.only("*.oci.tar")], capture_output=True, text=True, check=False)
    assert loaded.returncode == 0, loaded.stderr
    assert image.name in loaded.stdout
    errors = []
    for runtime in RUNTIMES:
        run = [*own, *runtime[:1], "run", "--rm", "--network=host", "--read-only", "--cap-drop=all", "--security-opt=no-new-privileges", *runtime[1:]]
        tried = subprocess.run([*namespaces.enter, *run, image.name, "--version"], capture_output=True, text=True, check=False)
        if tried.returncode == 0:
            break
        errors.append(tried.stderr.strip()[-200:])
    else:
        unavailable(f"podman cannot run containers here: {errors}. The image is unpacked and run by the next test")
    counted = balanced(namespaces, [*run, "--volume", f"{config}:/etc/plimsoll:ro", image.name], tmp_path / "log")
    assert len(counted) == 2 and sum(counted.values()) == 60, counted


def test_its_files_alone_are_enough(namespaces: Namespaces, image: Image, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    image.unpack(folder)
    (folder / "etc/plimsoll/plimsoll.toml").write_text(CONFIG)
    user = image.config["config"]["User"].split(":")
    command = ["chroot", f"--userspec={user[0]}:{user[1]}", str(folder), *image.config["config"]["Entrypoint"], *image.config["config"]["Cmd"]]
    counted = balanced(namespaces, command, tmp_path / "log")
    assert len(counted) == 2 and sum(counted.values()) == 60, counted


def test_it_holds_a_program_certificates_and_a_user(image: Image, tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    image.unpack(folder)
    assert "BEGIN CERTIFICATE" in (folder / "etc/ssl/certs/ca-certificates.crt").read_text()
    user = image.config["config"]["User"].split(":")[0]
    assert user != "0" and f"plimsoll:x:{user}:" in (folder / "etc/passwd").read_text()
    programs = [path.name for path in (folder / "usr/bin").iterdir()]
    assert programs == ["plimsoll"], "a shell is of use to an attacker"
    assert not [path for path in folder.rglob("*") if path.is_file() and path.stat().st_mode & 0o6022], "no setuid, none writable by others"


def test_documents_of_the_image_match_its_layer(packages: Packages, image: Image) -> None:
    (layer,) = image.manifest["layers"]
    blob = packages.only("*.oci.tar")
    with tarfile.open(blob) as archive:
        file = archive.extractfile(f"blobs/sha256/{layer['digest'].removeprefix('sha256:')}")
        assert file is not None
        unpacked = subprocess.run(["gzip", "-d"], input=file.read(), capture_output=True, check=True).stdout
        names = archive.getnames()
    assert image.config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(unpacked).hexdigest()}"]
    assert {"oci-layout", "index.json", "manifest.json"} <= set(names)
