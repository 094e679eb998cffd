"""A clean Debian root in namespaces of its own, where packages are installed and removed.

The root is a minimal Debian by debootstrap, from the mirror of this machine, and kept in target/ as an archive. A process
that sleeps holds the namespaces: with its own network, the default addresses of the packages are always free, and with
its own processes nothing outlives the test.
"""

import fcntl
import hashlib
import os
import pathlib
import platform
import re
import shutil
import socket
import struct
import subprocess

from harness.process import find_program, wait_until

ROOT = pathlib.Path(__file__).resolve().parents[2]
_FOLDER = ROOT / "target" / "packages-root"
# Of a machine that is neither Debian nor Ubuntu. Theirs is their own: a program that is built there needs its libc.
_SUITE = "bookworm"
_MIRRORS = {"debian": "http://deb.debian.org/debian", "ubuntu": "http://archive.ubuntu.com/ubuntu"}

# Parts that change with any installation, and say nothing about the package.
_NOT_COMPARED = (
    *("proc", "sys", "dev", "tmp", "run/lock", "run/adduser"),
    *("var/cache", "var/lib/apt", "var/log/apt", "var/log/dpkg.log", "var/log/alternatives.log"),
)
# Copies of the version before, and the lists of dpkg, which the tests look at by dpkg-query.
_NOT_COMPARED_NAMES = re.compile(r"^etc/\.pwd\.lock$|^etc/(passwd|group|shadow|gshadow|subuid|subgid)-$|^var/lib/dpkg/|^root/\.rpmdb")


class Unavailable(Exception):
    """Why this machine cannot have a root."""


def _distribution() -> tuple[str, str]:
    """The distribution of the root, `debian` or `ubuntu`, and its version."""
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', pathlib.Path("/etc/os-release").read_text(), re.MULTILINE))
    name = release.get("ID", "")
    return (name, release["VERSION_CODENAME"]) if name in _MIRRORS and "VERSION_CODENAME" in release else ("debian", _SUITE)


def _mirror(name: str) -> str:
    """The mirror of this machine."""
    sources = pathlib.Path("/etc/apt")
    files = [sources / "sources.list", *sorted((sources / "sources.list.d").glob(f"{name}*"))]
    pattern = rf"^(?:URIs:|deb(?: \[.*?\])?) (https?://\S+/{name})/?(?:\s|$)"
    for file in files:
        if file.exists() and (found := re.search(pattern, file.read_text(), re.MULTILINE)):
            return found[1]
    return _MIRRORS[name]


def archive() -> pathlib.Path:
    """The clean root as an archive, made once."""
    if os.geteuid() != 0:
        raise Unavailable("not root here: debootstrap and chroot need it")
    name, suite = _distribution()
    made = _FOLDER / f"{suite}-{platform.machine()}.tar"
    if made.exists():
        return made
    if shutil.which("debootstrap", path=f"{os.environ['PATH']}:/usr/sbin") is None:
        raise Unavailable("debootstrap is missing; on Debian: apt install debootstrap")
    _FOLDER.mkdir(parents=True, exist_ok=True)
    folder = _FOLDER / "making"
    shutil.rmtree(folder, ignore_errors=True)
    done = subprocess.run(
        # adduser: a base package of some versions, and in reach of apt in all others.
        [find_program("debootstrap"), "--variant=minbase", "--include=adduser", suite, folder, _mirror(name)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise Unavailable(f"debootstrap ended with {done.returncode}: {done.stdout[-1000:]}{done.stderr[-1000:]}")
    shutil.rmtree(folder / "var/cache/apt/archives", ignore_errors=True)
    new = made.with_suffix(".new")
    subprocess.run(["tar", "-C", folder, "--numeric-owner", "-cf", new, "."], check=True)
    new.rename(made)
    shutil.rmtree(folder)
    return made


def loopback_up() -> None:
    """In the network of this process."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, 0x8914, struct.pack("16sh22x", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS, IFF_UP | IFF_RUNNING


class Namespaces:
    """A network and processes of their own."""

    def __init__(self, proc: pathlib.Path | None = None) -> None:
        mount = f"mount -t proc proc {proc} && " if proc else ""
        self._holder = subprocess.Popen(
            ["unshare", "--net", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc", "sh", "-c", f"{mount}echo ready && exec sleep 600"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None and self._holder.stderr is not None
        if self._holder.stdout.readline() != "ready\n":
            raise Unavailable(f"no namespaces here: {self._holder.stderr.read().strip()}")
        children = pathlib.Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children").read_text().split()
        self.enter = ["nsenter", "--target", children[0], "--net", "--pid", "--mount", "--"]
        up = "import sys; sys.path.insert(0, sys.argv[1]); from root import loopback_up; loopback_up()"
        here = str(pathlib.Path(__file__).parent)
        code = f"import sys; sys.path.insert(0, {str(ROOT / 'tests/e2e')!r}); {up}"
        subprocess.run([*self.enter, find_program("python3"), "-B", "-c", code, here], check=True)

    def close(self) -> None:
        self._holder.kill()
        self._holder.wait()
        for stream in (self._holder.stdout, self._holder.stderr):
            if stream:
                stream.close()


class Root:
    """A clean root to install packages in. Its network has loopback only."""

    def __init__(self, folder: pathlib.Path) -> None:
        subprocess.run(["tar", "-C", folder, "--numeric-owner", "-xpf", archive()], check=True)
        self.folder = folder
        # Without a daemon manager nothing may try to start one, and a chroot has none.
        self._namespaces = Namespaces(folder / "proc")
        self.chroot = [*self._namespaces.enter, find_program("chroot"), str(folder)]
        self._servers: list[subprocess.Popen] = []
        if (done := self.run("true", check=False)).returncode != 0:
            self.close()
            raise Unavailable(f"chroot does not work here: {done.stderr}")

    def run(self, *command: str, check: bool = True, host: bool = False) -> subprocess.CompletedProcess[str]:
        """Runs a command in the root, or by the programs of this machine beside it."""
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
        before = self._namespaces.enter if host else self.chroot
        done = subprocess.run([*before, *command], capture_output=True, text=True, check=False, env=environment, timeout=120)
        assert not check or done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done

    def start(self, *command: str, log: str) -> subprocess.Popen:
        """Starts a server in the root."""
        with (self.folder / "tmp" / log).open("ab") as output:
            server = subprocess.Popen([*self.chroot, *command], stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        self._servers.append(server)
        return server

    def log(self, name: str) -> str:
        return (self.folder / "tmp" / name).read_text(errors="replace")

    def wait_for(self, condition: str, *command: str) -> None:
        """Waits until a command in the root succeeds."""
        wait_until(condition, lambda: self.run(*command, check=False).returncode == 0, 20, every=0.1)

    def copy_in(self, file: pathlib.Path) -> str:
        """Puts a file into /tmp of the root; returns its path there."""
        shutil.copy2(file, self.folder / "tmp" / file.name)
        return f"/tmp/{file.name}"

    def snapshot(self) -> dict[str, tuple]:
        """Every path with its kind, mode, owner and content, as far as a package may leave traces there."""
        found: dict[str, tuple] = {}
        for path, folders, files in os.walk(self.folder):
            base = pathlib.Path(path).relative_to(self.folder)
            folders[:] = [name for name in folders if str(base / name) not in _NOT_COMPARED]
            for name in [*folders, *files]:
                place = str(base / name)
                if place in _NOT_COMPARED or _NOT_COMPARED_NAMES.match(place):
                    continue
                found[place] = _state(self.folder / place)
        return found

    def close(self) -> None:
        self._namespaces.close()
        for server in self._servers:
            server.wait()


def _state(path: pathlib.Path) -> tuple:
    stat = path.lstat()
    if path.is_symlink():
        return "link", os.readlink(path)
    content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
    return oct(stat.st_mode), stat.st_uid, stat.st_gid, content


def changed(before: dict[str, tuple], after: dict[str, tuple]) -> set[str]:
    """The paths that are new, gone or other than before."""
    return {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
