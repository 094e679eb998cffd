"""The licences of all crates in the binary, which their terms ask to be passed on with it.

Equal texts are printed once, under the names of their crates.
"""

import pathlib
import re

from .project import ROOT, Project, metadata, shipped
from .sbom import expression

_NAMES = re.compile(r"(licen[cs]e|copying|notice|unlicense|copyright)", re.IGNORECASE)
_HEAD = """The binary plimsoll contains the crates below. Each is under the licence in its line; the texts that the crates
bring follow. Plimsoll itself is under Apache-2.0 or MIT, at your choice.
"""


def _texts(folder: pathlib.Path) -> list[str]:
    """The licences in the folder of a crate."""
    files = [file for file in sorted(folder.iterdir()) if file.is_file() and _NAMES.match(file.name)]
    return [file.read_text(errors="replace").strip() for file in files if file.suffix not in (".rs", ".py", ".html")]


def text(project: Project) -> str:
    """Names, then texts."""
    packages = {package["id"]: package for package in metadata(project.machine.rust)["packages"]}
    crates = sorted((packages[crate] for crate in shipped(project.machine.rust)), key=lambda row: (row["name"], row["version"]))
    others = [crate for crate in crates if not pathlib.Path(crate["manifest_path"]).is_relative_to(ROOT)]
    parts = [_HEAD]
    parts.append("\n".join(f"{crate['name']} {crate['version']}: {expression(crate['license'])}" for crate in others))
    used: dict[str, list[str]] = {}
    for crate in others:
        for licence in _texts(pathlib.Path(crate["manifest_path"]).parent):
            used.setdefault(licence, []).append(f"{crate['name']} {crate['version']}")
    for licence, names in used.items():
        line = "=" * 80
        parts.append(f"{line}\n{', '.join(names)}\n{line}\n\n{licence}")
    return "\n\n".join(parts) + "\n"
