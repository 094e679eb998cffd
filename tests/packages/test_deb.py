"""`apt install ./plimsoll.deb` on a clean Debian: the first balanced request, an upgrade, a removal without traces."""

import pathlib
import subprocess

import pytest

import service
from conftest import NEXT, Packages
from root import Root, changed

# Everything that a removal may leave. The accounts go with the purge.
CONFIGURATION = {
    "etc/plimsoll",
    "etc/plimsoll/plimsoll.toml",
    "etc/logrotate.d/plimsoll",
}
ACCOUNTS = {"etc/passwd", "etc/group", "etc/shadow", "etc/gshadow"}


def apt(root: Root, *arguments: str) -> str:
    done = root.run("apt-get", "-y", "-q", "--no-install-recommends", *arguments)
    return done.stdout + done.stderr


def version(root: Root) -> str:
    return root.run("dpkg-query", "--show", "--showformat=${Version} ${db:Status-Abbrev}", "plimsoll", check=False).stdout.strip()


def install(root: Root, package: pathlib.Path) -> str:
    return apt(root, "install", root.copy_in(package))


def test_clean_debian_balances_its_first_requests(root: Root, packages: Packages) -> None:
    install(root, packages.only("*.deb"))
    root.run("plimsoll", "check", "-c", service.CONFIG)
    service.start_backends(root)
    service.start_proxy(root)
    counted = service.requests(root)
    assert set(counted) == set(service.BACKENDS) and sum(counted.values()) == 60, counted
    user = root.run("ps", "-o", "user=", "-p", str(service.pid(root)), check=False).stdout.strip()
    assert user in ("plimsoll", ""), user
    assert root.run("stat", "-c", "%U", f"/proc/{service.pid(root)}").stdout.strip() == "plimsoll"
    for file in ("usr/share/man/man1/plimsoll-proxy.1.gz", "usr/share/bash-completion/completions/plimsoll"):
        # Debian's minimal root for containers leaves out documentation; this one does not.
        assert (root.folder / file).is_file(), file


def test_upgrade_replaces_the_running_proxy_and_loses_no_request(root: Root, packages: Packages, next_packages: Packages) -> None:
    install(root, packages.only("*.deb"))
    config = root.folder / service.CONFIG.lstrip("/")
    config.write_text(f"# Ours.\n{config.read_text()}")
    service.start_backends(root)
    service.start_proxy(root)
    before = service.pid(root)
    load = subprocess.Popen(
        [*root.chroot, "plimsoll", "load", service.URL, "--rate", "200", "--duration", "8s", "--fail-on-error"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    said = install(root, next_packages.only("*.deb"))
    out, _ = load.communicate(timeout=60)
    assert load.returncode == 0, out
    assert version(root).startswith("0.1.0-2 ii"), version(root)
    assert service.pid(root) != before, f"the earlier process still serves:\n{said}\n{root.log('proxy.log')}"
    assert config.read_text().startswith("# Ours.\n"), "the upgrade replaced a changed file"
    assert sum(service.requests(root).values()) == 60


def test_upgrade_succeeds_while_the_file_has_a_problem(root: Root, packages: Packages, next_packages: Packages) -> None:
    install(root, packages.only("*.deb"))
    service.start_backends(root)
    service.start_proxy(root)
    before = service.pid(root)
    (root.folder / service.CONFIG.lstrip("/")).write_text("nonsense = 1\n")
    said = install(root, next_packages.only("*.deb"))
    assert "the running proxy is still the earlier version" in said
    assert service.pid(root) == before
    assert sum(service.requests(root).values()) == 60


def test_removal_ends_the_proxy_and_leaves_configuration_only(root: Root, packages: Packages) -> None:
    clean = root.snapshot()
    install(root, packages.only("*.deb"))
    assert changed(clean, root.snapshot()) > CONFIGURATION | ACCOUNTS
    service.start_backends(root)
    proxy = service.start_proxy(root)
    assert service.requests(root)
    apt(root, "remove", "plimsoll")
    assert proxy.wait(20) == 0, "the removal drains the proxy"
    left = changed(clean, root.snapshot()) - {"etc/logrotate.d"}
    assert left == CONFIGURATION | ACCOUNTS
    assert version(root).endswith("rc")
    apt(root, "purge", "plimsoll")
    left = changed(clean, root.snapshot())
    assert not left, f"the purge leaves {left}"
    assert not list((root.folder / "var/lib/dpkg/info").glob("plimsoll.*"))


def test_reinstallation_takes_the_configuration_that_was_kept(root: Root, packages: Packages) -> None:
    install(root, packages.only("*.deb"))
    config = root.folder / service.CONFIG.lstrip("/")
    config.write_text(f"# Ours.\n{config.read_text()}")
    apt(root, "remove", "plimsoll")
    install(root, packages.only("*.deb"))
    assert config.read_text().startswith("# Ours.\n")


def test_purge_keeps_files_that_others_put_beside_the_configuration(root: Root, packages: Packages) -> None:
    install(root, packages.only("*.deb"))
    key = root.folder / "etc/plimsoll/www.key"
    key.write_text("secret\n")
    apt(root, "purge", "plimsoll")
    assert key.read_text() == "secret\n"


@pytest.mark.parametrize("field", ["Depends", "Maintainer", "Installed-Size", "Section", "Description"])
def test_fields_of_the_package_are_set(packages: Packages, field: str) -> None:
    done = subprocess.run(["dpkg-deb", "--field", packages.only("*.deb"), field], capture_output=True, text=True, check=True)
    assert done.stdout.strip() and "@" not in done.stdout.replace("@localhost", "")


def test_equal_input_gives_equal_packages(next_packages: Packages, tmp_path: pathlib.Path) -> None:
    again = Packages.of(tmp_path / "again", 2, *NEXT)
    for pattern in ("*.deb", "*.rpm", "*.oci.tar", "*.cdx.json"):
        assert again.only(pattern).read_bytes() == next_packages.only(pattern).read_bytes(), pattern
