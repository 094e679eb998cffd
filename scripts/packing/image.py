"""A container image from nothing: the program, its libraries, CA certificates, and a user. No daemon takes part.

The file is an OCI layout in a tar, with the index that `docker load` reads as well. One layer; times, owners and order
are fixed, so that equal input gives equal bytes.
"""

import hashlib
import io
import json
import pathlib
import re
import tarfile
import datetime

from .project import ROOT, Problem, Project, run
from .tree import compressed, copyright_file, strip
from . import notices

# As in other images without a shell.
USER = 65532
CERTIFICATES = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")
CONFIG = "/etc/plimsoll/plimsoll.toml"


def libraries(program: pathlib.Path) -> list[pathlib.Path]:
    """The shared libraries of a program and its loader, by the paths at which it looks for them. None if it is static."""
    head = run("readelf", "--program-headers", "--dynamic", program)
    if "(NEEDED)" not in head:
        return []
    found = [pathlib.Path(path) for path in re.findall(r"(/\S+) \(0x", run("ldd", program))]
    if not found:
        raise Problem(f"ldd lists no library of {program}")
    return sorted(set(found))


def _files(project: Project) -> dict[str, tuple[bytes, int]]:
    """Every file of the layer, with its mode."""
    program = strip(project)
    if not CERTIFICATES.exists():
        raise Problem(f"{CERTIFICATES} is missing; on Debian: apt install ca-certificates")
    files = {
        "usr/bin/plimsoll": (program.read_bytes(), 0o755),
        "etc/ssl/certs/ca-certificates.crt": (CERTIFICATES.read_bytes(), 0o644),
        "etc/passwd": (f"root:x:0:0:root:/:/sbin/nologin\nplimsoll:x:{USER}:{USER}:plimsoll:/:/sbin/nologin\n".encode(), 0o644),
        "etc/group": (f"root:x:0:\nplimsoll:x:{USER}:\n".encode(), 0o644),
        # Without it, glibc asks DNS before /etc/hosts.
        "etc/nsswitch.conf": (b"hosts: files dns\n", 0o644),
        "usr/share/doc/plimsoll/copyright": (copyright_file().encode(), 0o644),
        "usr/share/doc/plimsoll/THIRD-PARTY": (notices.text(project).encode(), 0o644),
        "usr/share/doc/plimsoll/LICENSE-APACHE": ((ROOT / "LICENSE-APACHE").read_bytes(), 0o644),
    }
    for library in libraries(program):
        files[str(library).lstrip("/")] = (library.resolve().read_bytes(), 0o755)
    return files


def _entry(name: str, mode: int, epoch: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.mode, entry.mtime = mode, epoch
    return entry


def _tar(files: dict[str, tuple[bytes, int]], folders: dict[str, int], epoch: int) -> bytes:
    """An archive of files and their folders, in order."""
    for name in files:
        for parent in list(pathlib.PurePosixPath(name).parents)[:-1]:
            folders.setdefault(str(parent), 0o755)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in sorted([*files, *folders]):
            if name in folders:
                entry = _entry(name, folders[name], epoch)
                entry.type = tarfile.DIRTYPE
                archive.addfile(entry)
            else:
                content, mode = files[name]
                entry = _entry(name, mode, epoch)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _descriptor(media: str, content: bytes) -> dict:
    return {"mediaType": f"application/vnd.oci.image.{media}", "digest": f"sha256:{_digest(content)}", "size": len(content)}


def make(project: Project) -> pathlib.Path:
    """Builds the image."""
    layer_tar = _tar(_files(project), {"tmp": 0o1777, "etc/plimsoll": 0o755}, project.epoch)
    layer = compressed(layer_tar, project.effort)
    created = datetime.datetime.fromtimestamp(project.epoch, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    labels = {
        "org.opencontainers.image.title": "plimsoll",
        "org.opencontainers.image.version": project.version,
        "org.opencontainers.image.licenses": "Apache-2.0 OR MIT",
        "org.opencontainers.image.description": "Load balancer that keeps overloaded servers useful",
    }
    config = _json(
        {
            "architecture": project.machine.oci,
            "os": "linux",
            "created": created,
            "config": {
                "User": f"{USER}:{USER}",
                "Env": ["PATH=/usr/bin"],
                "Entrypoint": ["/usr/bin/plimsoll"],
                "Cmd": ["proxy", "-c", CONFIG],
                "StopSignal": "SIGTERM",
                "Labels": labels,
            },
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{_digest(layer_tar)}"]},
            "history": [{"created": created, "created_by": "scripts/packages"}],
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": _descriptor("config.v1+json", config),
            "layers": [_descriptor("layer.v1.tar+gzip", layer)],
        }
    )
    name = f"localhost/plimsoll:{project.version}"
    tagged = {**_descriptor("manifest.v1+json", manifest), "annotations": {"org.opencontainers.image.ref.name": name}}
    blobs = {f"blobs/sha256/{_digest(content)}": (content, 0o644) for content in (layer, config, manifest)}
    docker = [{"Config": f"blobs/sha256/{_digest(config)}", "RepoTags": [name], "Layers": [f"blobs/sha256/{_digest(layer)}"]}]
    whole = {
        **blobs,
        "oci-layout": (b'{"imageLayoutVersion":"1.0.0"}', 0o644),
        "index.json": (_json({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [tagged]}), 0o644),
        "manifest.json": (_json(docker), 0o644),
    }
    file = project.out / f"plimsoll-{project.version}-{project.machine.rust}.oci.tar"
    file.write_bytes(_tar(whole, {}, project.epoch))
    return file
