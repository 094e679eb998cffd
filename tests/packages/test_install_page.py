"""docs/install.md names files as they are in the packages."""

import platform
import re
import subprocess

from conftest import Packages
from root import ROOT

PAGE = (ROOT / "docs" / "install.md").read_text()


def test_files_on_the_page_are_those_that_are_built(packages: Packages) -> None:
    # The page has the names for x86-64.
    machine = platform.machine()
    page = PAGE.replace("x86_64", machine).replace("amd64", {"x86_64": "amd64", "aarch64": "arm64"}[machine])
    patterns = set(re.findall(r"plimsoll[-_]\*[\w.-]*\.[\w.]+", page))
    assert len(patterns) >= 5
    for pattern in patterns:
        assert len(list(packages.folder.glob(pattern))) == 1, pattern


def test_paths_on_the_page_are_in_the_package(packages: Packages) -> None:
    done = subprocess.run(["dpkg-deb", "--contents", packages.only("*.deb")], capture_output=True, text=True, check=True)
    inside = {line.split()[5].removeprefix(".") for line in done.stdout.splitlines()}
    named = set(re.findall(r"`(/(?:etc|usr)/[\w/.-]+)`", PAGE)) - {"/etc/plimsoll"}
    assert len(named) >= 4
    assert named <= inside, named - inside


def test_image_on_the_page_is_that_of_this_version() -> None:
    version = re.search(r'^version = "([^"]+)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    assert version is not None
    assert set(re.findall(r"localhost/plimsoll:([\w.]+)", PAGE)) == {version[1]}


def test_compiler_on_the_page_is_the_one_that_the_crates_ask_for() -> None:
    promised = re.search(r'^rust-version = "([^"]+)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    assert promised is not None and f"[Rust {promised[1]}](" in PAGE
