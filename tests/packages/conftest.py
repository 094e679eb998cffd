"""The packages, built once from the release binary, and clean roots to install them in."""

import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

from harness.fleet import PLIMSOLL
from root import ROOT, Root, Unavailable


# The compression of packages that are installed once takes as much time as it saves.
NEXT = ("--effort", "1", "deb", "rpm", "image", "sbom")


class Packages:
    """Packages of one revision."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder

    @classmethod
    def of(cls, folder: pathlib.Path, revision: int, *options: str) -> "Packages":
        """Builds them from the binary under test."""
        command = [sys.executable, ROOT / "scripts/packages", "--binary", PLIMSOLL, "--out", folder, "--revision", str(revision), *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        return cls(folder)

    def only(self, pattern: str) -> pathlib.Path:
        """The one file with such a name."""
        (file,) = self.folder.glob(pattern)
        return file


@pytest.fixture(scope="session")
def packages() -> Packages:
    """All formats, in target/packages as by hand, or those in the folder that PLIMSOLL_PACKAGES names."""
    if built := os.environ.get("PLIMSOLL_PACKAGES"):
        return Packages(pathlib.Path(built))
    return Packages.of(ROOT / "target" / "packages", 1)


@pytest.fixture(scope="session")
def next_packages(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    """The same program as a later revision."""
    return Packages.of(tmp_path_factory.mktemp("next"), 2, *NEXT)


def unavailable(reason: str) -> None:
    """Skips with the reason, or fails where PLIMSOLL_REQUIRE_ROOT says that the machine is able."""
    if os.environ.get("PLIMSOLL_REQUIRE_ROOT") == "1":
        pytest.fail(reason)
    pytest.skip(f"NOT TESTED: {reason}; test_unpacked.py ran the program from its packages instead")


@pytest.fixture
def root(tmp_path: pathlib.Path) -> Iterator[Root]:
    """A clean Debian."""
    folder = tmp_path / "root"
    folder.mkdir()
    try:
        root = Root(folder)
    except Unavailable as reason:
        unavailable(str(reason))
        return
    try:
        yield root
    finally:
        root.close()
