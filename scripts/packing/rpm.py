"""The package for Fedora, RHEL and SUSE, by rpmbuild."""

import pathlib
import shutil

from .project import CONTRIB, ROOT, Project, fill, need, run, write
from .tree import CONFIGURATION, ZSH_RPM, lay_out, normalise


# Folders that no other package is sure to own: those of shells that need not be installed.
_FOLDERS = [
    "usr/share/doc/plimsoll",
    "usr/share/doc/plimsoll/examples",
    "usr/share/fish",
    "usr/share/fish/vendor_completions.d",
    "usr/share/zsh",
    "usr/share/zsh/site-functions",
]


def _listed(folder: pathlib.Path) -> str:
    """The lines of %files: only files and folders of our own, since others own /usr and /etc."""
    lines = ["%dir %attr(0755,root,root) /etc/plimsoll"]
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = str(path.relative_to(folder))
        if name in CONFIGURATION:
            lines.append(f"%config(noreplace) /{name}")
        elif name.startswith("usr/share/doc/"):
            lines.append(f"%doc /{name}")
        else:
            lines.append(f"/{name}")
    return "\n".join([*lines, *(f"%dir /{name}" for name in _FOLDERS)])


def make(project: Project) -> pathlib.Path:
    """Builds the package."""
    need("rpmbuild", "rpm")
    top = project.work / "rpm"
    shutil.rmtree(top, ignore_errors=True)
    laid_out = top / "laid-out"
    lay_out(project, laid_out, ZSH_RPM)
    write(laid_out / "usr/share/doc/plimsoll/CHANGELOG.md", (ROOT / "CHANGELOG.md").read_text())
    normalise(laid_out)
    release = f"{project.revision}"
    text = fill(CONTRIB / "rpm/plimsoll.spec", VERSION=project.version, RELEASE=release, FILES=_listed(laid_out), LAID_OUT=laid_out)
    spec = write(top / "plimsoll.spec", text)
    defines = {
        "_topdir": top,
        "_rpmdir": top / "out",
        "_rpmfilename": "%{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm",
        "_binary_payload": f"w{project.effort}.gzdio",
    }
    options = [part for name, value in defines.items() for part in ("--define", f"{name} {value}")]
    run("rpmbuild", "-bb", "--quiet", "--target", project.machine.rpm, *options, spec, env=project.environment)
    (made,) = (top / "out").glob("*.rpm")
    return pathlib.Path(shutil.copy2(made, project.out / made.name))
