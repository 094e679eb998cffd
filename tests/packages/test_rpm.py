"""The RPM, by rpm itself. The root is a Debian, which has the shell, libc and the account tools that the RPM asks for."""

import re
import subprocess

import service
from conftest import Packages
from root import Root, changed

# Capabilities that any distribution with RPM has.
PROVIDED = re.compile(
    r"^(/bin/sh|/usr/sbin/groupadd|/usr/sbin/useradd|rpmlib\(\w+\)|rtld\(GNU_HASH\)|config\(plimsoll\)|ld-linux[\w.-]*"
    r"|lib(c|m|gcc_s|dl|pthread|rt)\.so\.\d+)"
)


def rpm(root: Root, *arguments: str) -> str:
    # Debian's root has no database of RPM that could list libraries.
    done = root.run("rpm", "--root", str(root.folder), *arguments, host=True)
    return done.stdout + done.stderr


def test_installs_serves_upgrades_and_goes(root: Root, packages: Packages, next_packages: Packages) -> None:
    clean = root.snapshot()
    rpm(root, "--install", "--nodeps", str(packages.only("*.rpm")))
    config = root.folder / service.CONFIG.lstrip("/")
    config.write_text(f"# Ours.\n{config.read_text()}")
    service.start_backends(root)
    service.start_proxy(root)
    assert set(service.requests(root)) == set(service.BACKENDS)
    before = service.pid(root)
    said = rpm(root, "--upgrade", "--nodeps", str(next_packages.only("*.rpm")))
    assert service.pid(root) != before, f"the earlier process still serves:\n{said}\n{root.log('proxy.log')}"
    assert sum(service.requests(root).values()) == 60
    assert config.read_text().startswith("# Ours.\n"), "the upgrade replaced a changed file"
    rpm(root, "--erase", "--nodeps", "plimsoll")
    assert root.run("plimsoll", "--version", check=False).returncode != 0
    # systemd owns the folder of sysusers, where there is systemd.
    left = {path for path in changed(clean, root.snapshot()) if not path.startswith("etc/")} - {"usr/lib/sysusers.d"}
    assert not left, f"the removal leaves {left}"
    assert config.with_suffix(".toml.rpmsave").read_text().startswith("# Ours.\n")


def test_needs_nothing_that_a_distribution_lacks(packages: Packages) -> None:
    done = subprocess.run(["rpm", "--query", "--requires", "--package", packages.only("*.rpm")], capture_output=True, text=True, check=True)
    needed = done.stdout.split("\n")
    assert any("libc.so.6" in line for line in needed), needed
    strange = [line for line in needed if line and not PROVIDED.match(line)]
    assert not strange, strange


def test_configuration_is_kept_by_upgrades(packages: Packages) -> None:
    done = subprocess.run(["rpm", "--query", "--configfiles", "--package", packages.only("*.rpm")], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["/etc/logrotate.d/plimsoll", "/etc/plimsoll/plimsoll.toml"]
