"""The list of all crates in the binary (SBOM), as CycloneDX 1.6 in JSON.

From `cargo metadata` and Cargo.lock: the crates that are compiled into the binary, with their licences, hashes and
dependencies. Equal input gives an equal file: its serial number is a hash of its content.
"""

import datetime
import json
import pathlib
import re
import tomllib
import uuid

from .project import ROOT, Project, metadata, shipped, write

_NAMESPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")  # of URLs, RFC 9562


def expression(licence: str | None) -> str | None:
    """The SPDX expression of a crate. Old crates write `MIT/Apache-2.0`."""
    return re.sub(r"\s*/\s*", " OR ", licence) if licence else None


def _checksums() -> dict[tuple[str, str], str]:
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    return {(row["name"], row["version"]): row["checksum"] for row in lock["package"] if "checksum" in row}


def _reference(package: dict) -> str:
    return f"pkg:cargo/{package['name']}@{package['version']}"


def _component(package: dict, checksums: dict[tuple[str, str], str]) -> dict:
    component: dict = {
        "type": "library",
        "bom-ref": _reference(package),
        "name": package["name"],
        "version": package["version"],
        "purl": _reference(package),
        "scope": "required",
    }
    if package["description"]:
        component["description"] = " ".join(package["description"].split())
    if licence := expression(package["license"]):
        component["licenses"] = [{"expression": licence}]
    if checksum := checksums.get((package["name"], package["version"])):
        component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package["repository"]:
        component["externalReferences"] = [{"type": "vcs", "url": package["repository"].strip()}]
    return component


def document(project: Project) -> dict:
    """The whole list."""
    packages = {package["id"]: package for package in metadata(project.machine.rust)["packages"]}
    uses = shipped(project.machine.rust)
    checksums = _checksums()
    components = sorted((_component(packages[crate], checksums) for crate in uses), key=lambda row: row["bom-ref"])
    (program,) = (row for row in components if row["name"] == "plimsoll-cli")
    components.remove(program)
    del program["scope"]
    found = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": datetime.datetime.fromtimestamp(project.epoch, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {**program, "type": "application"},
        },
        "components": components,
        "dependencies": sorted(
            (
                {"ref": _reference(packages[crate]), "dependsOn": sorted({_reference(packages[used]) for used in used_by})}
                for crate, used_by in uses.items()
            ),
            key=lambda row: row["ref"],
        ),
    }
    serial = uuid.uuid5(_NAMESPACE, json.dumps(found, sort_keys=True))
    return {**found, "serialNumber": f"urn:uuid:{serial}"}


def make(project: Project) -> pathlib.Path:
    """Writes the list."""
    name = f"plimsoll-{project.version}-{project.machine.rust}.cdx.json"
    return write(project.out / name, json.dumps(document(project), indent=2) + "\n")
