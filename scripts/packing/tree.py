"""The files that every package installs, laid out under one folder as on the target machine.

The formats differ in where zsh looks and in the names of their documents only.
"""

import gzip
import pathlib
import shutil

from . import notices
from .project import CONTRIB, ROOT, Project, fill, run, write

# Shell, folder and file of its completions. The folder of zsh is that of the distribution.
_COMPLETIONS = [
    ("bash", "usr/share/bash-completion/completions/plimsoll"),
    ("fish", "usr/share/fish/vendor_completions.d/plimsoll.fish"),
]
ZSH_DEBIAN = "usr/share/zsh/vendor-completions/_plimsoll"
ZSH_RPM = "usr/share/zsh/site-functions/_plimsoll"

# Files that the administrator changes: an upgrade keeps them, and so does a removal.
CONFIGURATION = ["etc/plimsoll/plimsoll.toml", "etc/logrotate.d/plimsoll"]


def compressed(content: bytes, effort: int = 9) -> bytes:
    """gzip without a name or a time."""
    return gzip.compress(content, effort, mtime=0)


def strip(project: Project) -> pathlib.Path:
    """The program without symbols, made once. The symbols go into a file beside the packages, for debuggers."""
    stripped = project.work / "plimsoll"
    if not stripped.exists():
        symbols = project.out / f"plimsoll-{project.version}-{project.machine.rust}.debug"
        run("objcopy", "--only-keep-debug", "--compress-debug-sections", project.binary, symbols)
        run("strip", "--strip-unneeded", "--remove-section=.comment", "-o", stripped, project.binary)
        run("objcopy", f"--add-gnu-debuglink={symbols}", stripped)
        stripped.chmod(0o755)
    return stripped


def man_pages(project: Project) -> pathlib.Path:
    """The folder with the pages of this binary, made once."""
    folder = project.out / "man"
    if not folder.exists():
        run(project.binary, "man", "--out", folder)
    return folder


def completions(project: Project, shell: str) -> str:
    """The completions of this binary."""
    return run(project.binary, "completions", shell)


def lay_out(project: Project, folder: pathlib.Path, zsh: str) -> None:
    """Fills an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, mode=0o755)
    program = folder / "usr/bin/plimsoll"
    program.parent.mkdir(parents=True)
    shutil.copy2(strip(project), program)
    write(folder / "etc/plimsoll/plimsoll.toml", (CONTRIB / "plimsoll.toml").read_text())
    write(folder / "etc/logrotate.d/plimsoll", (CONTRIB / "logrotate").read_text())
    write(folder / "usr/lib/systemd/system/plimsoll.service", (CONTRIB / "plimsoll.service").read_text())
    write(folder / "usr/lib/sysusers.d/plimsoll.conf", (CONTRIB / "sysusers.conf").read_text())
    for page in sorted(man_pages(project).iterdir()):
        write(folder / f"usr/share/man/man1/{page.name}.gz", compressed(page.read_bytes()))
    for shell, file in [*_COMPLETIONS, ("zsh", zsh)]:
        write(folder / file, completions(project, shell))
    for example in sorted((ROOT / "examples").glob("*.toml")):
        write(folder / "usr/share/doc/plimsoll/examples" / example.name, example.read_text())
    write(folder / "usr/share/doc/plimsoll/THIRD-PARTY.gz", compressed(notices.text(project).encode()))
    write(folder / "usr/share/doc/plimsoll/copyright", copyright_file())


def copyright_file() -> str:
    """The copyright of Plimsoll in Debian's format, with the whole text of the MIT licence."""
    mit = (ROOT / "LICENSE-MIT").read_text().split("\n\n", 2)
    holder = mit[1].removeprefix("Copyright (c) ")
    body = "\n".join(f" {line}" if line.strip() else " ." for line in mit[2].strip().splitlines())
    return fill(CONTRIB / "copyright", HOLDER=holder, MIT=body)


def normalise(folder: pathlib.Path) -> None:
    """Modes that do not depend on the user's umask."""
    folder.chmod(0o755)
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
