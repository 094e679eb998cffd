"""The program with its pages, completions, unit and licences in one archive, for any other distribution."""

import io
import pathlib
import tarfile

from .project import ROOT, Project
from .tree import ZSH_DEBIAN, compressed, lay_out, normalise


def make(project: Project) -> pathlib.Path:
    """Builds the archive."""
    name = f"plimsoll-{project.version}-{project.machine.rust}-linux"
    folder = project.work / "tarball"
    lay_out(project, folder, ZSH_DEBIAN)
    for licence in ("LICENSE-APACHE", "LICENSE-MIT"):
        (folder / licence).write_bytes((ROOT / licence).read_bytes())
    normalise(folder)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in [folder, *sorted(folder.rglob("*"))]:
            entry = archive.gettarinfo(path, f"{name}/{path.relative_to(folder)}".removesuffix("/."))
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = "root"
            entry.mtime = project.epoch
            with path.open("rb") if path.is_file() else io.BytesIO() as content:
                archive.addfile(entry, content if path.is_file() else None)
    file = project.out / f"{name}.tar.gz"
    file.write_bytes(compressed(out.getvalue(), project.effort))
    return file
