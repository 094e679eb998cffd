"""The package for Debian and Ubuntu, by dpkg-deb."""

import datetime
import hashlib
import os
import pathlib
import re

from .project import CONTRIB, ROOT, Problem, Project, fill, need, run, write
from .tree import CONFIGURATION, ZSH_DEBIAN, compressed, lay_out, normalise

_SCRIPTS = ["postinst", "prerm", "postrm"]
MAINTAINER = "Plimsoll contributors <plimsoll@localhost.localdomain>"


def maintainer() -> str:
    """The address in the package: by DEBFULLNAME and DEBEMAIL, as Debian's own tools take it."""
    name, address = os.environ.get("DEBFULLNAME"), os.environ.get("DEBEMAIL")
    return f"{name} <{address}>" if name and address else MAINTAINER


def libraries(project: Project, program: pathlib.Path) -> str:
    """The packages that hold the shared libraries of the program, with the versions that it needs."""
    need("dpkg-shlibdeps", "dpkg-dev")
    folder = project.work / "shlibdeps"
    write(folder / "debian/control", "Source: plimsoll\n\nPackage: plimsoll\nArchitecture: any\n")
    out = run("dpkg-shlibdeps", "-O", "-e", program, cwd=folder)
    found = re.search(r"shlibs:Depends=(.*)", out)
    if found is None:
        raise Problem(f"dpkg-shlibdeps names no library of {program}: {out!r}")
    return found[1].strip()


def _changelog(project: Project, version: str) -> str:
    date = datetime.datetime.fromtimestamp(project.epoch, datetime.UTC).strftime("%a, %d %b %Y %H:%M:%S +0000")
    return f"""plimsoll ({version}) unstable; urgency=medium

  * Release {project.version}. /usr/share/doc/plimsoll/changelog.gz has the changes.

 -- {maintainer()}  {date}
"""


def make(project: Project) -> pathlib.Path:
    """Builds the package."""
    need("dpkg-deb", "dpkg")
    folder = project.work / "deb"
    lay_out(project, folder, ZSH_DEBIAN)
    version = f"{project.version}-{project.revision}"
    documents = folder / "usr/share/doc/plimsoll"
    write(documents / "changelog.gz", compressed((ROOT / "CHANGELOG.md").read_bytes()))
    write(documents / "changelog.Debian.gz", compressed(_changelog(project, version).encode()))
    normalise(folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    # Debian counts whole KiB of each file, and one for each folder.
    size = sum(-(-file.stat().st_size // 1024) for file in files) + sum(1 for path in folder.rglob("*") if path.is_dir())
    control = folder / "DEBIAN"
    text = fill(
        CONTRIB / "deb/control",
        VERSION=version,
        ARCHITECTURE=project.machine.debian,
        SIZE=size,
        LIBRARIES=libraries(project, folder / "usr/bin/plimsoll"),
        MAINTAINER=maintainer(),
    )
    sums = "".join(f"{hashlib.md5(file.read_bytes()).hexdigest()}  {file.relative_to(folder)}\n" for file in files)
    write(control / "control", text)
    write(control / "conffiles", "".join(f"/{file}\n" for file in CONFIGURATION))
    write(control / "md5sums", sums)
    for script in _SCRIPTS:
        write(control / script, (CONTRIB / "deb" / script).read_text(), 0o755)
    control.chmod(0o755)
    package = project.out / f"plimsoll_{version}_{project.machine.debian}.deb"
    run("dpkg-deb", "--root-owner-group", "-Zxz", f"-z{project.effort}", "--build", folder, package, env=project.environment)
    return package
