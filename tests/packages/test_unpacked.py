"""The packages unpacked, without root: this runs everywhere, also where no package can be installed."""

import hashlib
import os
import pathlib
import platform
import re
import shutil
import subprocess
import tarfile

import pytest

from conftest import Packages
from harness.fleet import Fleet, http
from harness.process import Process, free_port, wait_until
from root import ROOT
from service import by_backend

UNIT = "usr/lib/systemd/system/plimsoll.service"


@pytest.fixture
def fleet(tmp_path: pathlib.Path):
    fleet = Fleet(tmp_path)
    try:
        yield fleet
    finally:
        fleet.stop()


@pytest.fixture
def unpacked(packages: Packages, tmp_path: pathlib.Path) -> pathlib.Path:
    """The files of the .deb."""
    folder = tmp_path / "unpacked"
    subprocess.run(["dpkg-deb", "--extract", packages.only("*.deb"), folder], check=True)
    return folder


def test_unpacked_program_serves_by_the_packaged_file(unpacked: pathlib.Path, fleet: Fleet, tmp_path: pathlib.Path) -> None:
    port, admin = free_port(), free_port()
    text = (unpacked / "etc/plimsoll/plimsoll.toml").read_text()
    backends = [fleet.backend(), fleet.backend()]
    for before, after in {
        "127.0.0.1:8080": f"127.0.0.1:{port}",
        "127.0.0.1:9900": f"127.0.0.1:{admin}",
        "127.0.0.1:8081": backends[0].address,
        "127.0.0.1:8082": backends[1].address,
    }.items():
        assert before in text
        text = text.replace(before, after)
    config = tmp_path / "plimsoll.toml"
    config.write_text(text)
    proxy = Process("proxy", [str(unpacked / "usr/bin/plimsoll"), "proxy", "-c", str(config)], tmp_path)
    try:
        proxy.wait_for_port(port)
        wait_until("both backends answer", lambda: http(f"http://127.0.0.1:{admin}/readyz")[0] == 200)
        load = [str(unpacked / "usr/bin/plimsoll"), "load", f"http://127.0.0.1:{port}/", "--requests", "40", "--concurrency", "2", "--json"]
        done = subprocess.run([*load, "--fail-on-error"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert set(by_backend(done.stdout)) == {backend.address for backend in backends}
    finally:
        proxy.stop()


def test_unit_passes_systemd_analyze(unpacked: pathlib.Path, tmp_path: pathlib.Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("NOT TESTED: systemd-analyze is missing")
    text = (unpacked / UNIT).read_text()
    unit = tmp_path / "plimsoll.service"
    unit.write_text(text.replace("/usr/bin/plimsoll", str(unpacked / "usr/bin/plimsoll")).replace("Documentation=", "#"))
    done = subprocess.run([program, "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "plimsoll.service" not in done.stderr, done.stderr


def test_unit_names_files_of_the_package(unpacked: pathlib.Path) -> None:
    text = (unpacked / UNIT).read_text()
    for line in text.splitlines():
        if line.startswith(("ExecStart", "ExecReload")):
            program = line.split("=", 1)[1].split()[0]
            assert (unpacked / program.lstrip("/")).is_file(), line
    assert "-c /etc/plimsoll/plimsoll.toml" in text and "User=plimsoll" in text
    assert "u plimsoll " in (unpacked / "usr/lib/sysusers.d/plimsoll.conf").read_text()


def test_sums_in_the_package_are_those_of_its_files(unpacked: pathlib.Path, packages: Packages, tmp_path: pathlib.Path) -> None:
    control = tmp_path / "control"
    subprocess.run(["dpkg-deb", "--control", packages.only("*.deb"), control], check=True)
    listed = dict(reversed(line.split("  ")) for line in (control / "md5sums").read_text().splitlines())
    files = {str(path.relative_to(unpacked)): path for path in unpacked.rglob("*") if path.is_file()}
    assert listed.keys() == files.keys()
    for name, path in files.items():
        assert hashlib.md5(path.read_bytes()).hexdigest() == listed[name], name
        assert path.stat().st_mode & 0o7022 == 0, f"{name} is writable by others, or setuid"
    for script in ("postinst", "prerm", "postrm"):
        assert subprocess.run(["sh", "-n", control / script], check=False).returncode == 0
        assert (control / script).stat().st_mode & 0o111 == 0o111


def test_pages_are_read_without_a_warning(packages: Packages) -> None:
    if shutil.which("man") is None:
        pytest.skip("NOT TESTED: man is missing")
    pages = sorted((packages.folder / "man").iterdir())
    assert len(pages) >= 15
    for page in pages:
        done = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", page], capture_output=True, text=True, check=False)
        assert done.returncode == 0 and not done.stderr, f"{page.name}: {done.stderr}"


def test_program_has_no_symbols_and_names_the_file_that_has_them(unpacked: pathlib.Path, packages: Packages) -> None:
    sections = subprocess.run(["readelf", "--sections", "--wide", unpacked / "usr/bin/plimsoll"], capture_output=True, text=True, check=True).stdout
    assert ".debug_line" not in sections and ".symtab" not in sections and ".gnu_debuglink" in sections
    assert packages.only("*.debug").stat().st_size > 1_000_000


def test_archive_for_other_distributions_has_the_same_files(unpacked: pathlib.Path, packages: Packages) -> None:
    with tarfile.open(packages.only("*-linux.tar.gz")) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
        owners = {(member.uid, member.gid) for member in archive}
    assert owners == {(0, 0)}
    assert {"usr/bin/plimsoll", UNIT, "LICENSE-MIT", "LICENSE-APACHE", "usr/share/man/man1/plimsoll.1.gz"} <= names


def test_sums_of_all_packages_are_right(packages: Packages) -> None:
    listed = dict(reversed(line.split("  ")) for line in (packages.folder / "SHA256SUMS").read_text().splitlines())
    assert listed.keys() == {file.name for file in packages.folder.iterdir() if file.is_file()} - {"SHA256SUMS"}
    for name, expected in listed.items():
        assert hashlib.sha256((packages.folder / name).read_bytes()).hexdigest() == expected


def test_program_needs_no_newer_libc_than_the_page_says(unpacked: pathlib.Path) -> None:
    promised = re.search(r"glibc (\d+)\.(\d+) or later", (ROOT / "docs/install.md").read_text())
    assert promised is not None
    if "PLIMSOLL_PACKAGES" not in os.environ and platform.libc_ver()[1] != "2.36":
        pytest.skip(f"NOT TESTED: releases are built on Debian 12, and this machine has glibc {platform.libc_ver()[1]}")
    symbols = subprocess.run(["objdump", "-T", unpacked / "usr/bin/plimsoll"], capture_output=True, text=True, check=True).stdout
    needed = max((int(major), int(minor)) for major, minor in re.findall(r"GLIBC_(\d+)\.(\d+)", symbols))
    assert needed <= (int(promised[1]), int(promised[2])), "build the packages on an older distribution"
