"""The Kubernetes manifests: valid by the published schemas, and consistent in themselves and with the proxy."""

import pathlib
import re
import tomllib
from collections.abc import Iterator

import kubernetes_validate
import pytest
import yaml

from harness.certificates import Authority
from harness.fleet import PLIMSOLL
from harness.process import run
from root import ROOT

FOLDER = ROOT / "contrib" / "kubernetes"
FILES = sorted(FOLDER.glob("*.yaml"))
# Oldest version with sidecars that restart by default, and `sleep` in preStop; and a late one.
VERSIONS = ("1.30", "1.35")
CONTROLLERS = ("Deployment", "StatefulSet")


def documents(file: pathlib.Path) -> list[dict]:
    return list(yaml.safe_load_all(file.read_text()))


def controllers() -> Iterator[tuple[pathlib.Path, dict]]:
    for file in FILES:
        yield from ((file, document) for document in documents(file) if document["kind"] in CONTROLLERS)


def configs(file: pathlib.Path) -> Iterator[tuple[str, str]]:
    for document in documents(file):
        if document["kind"] == "ConfigMap":
            yield from document["data"].items()


def containers(controller: dict) -> list[dict]:
    pod = controller["spec"]["template"]["spec"]
    return [*pod.get("initContainers", []), *pod["containers"]]


def plimsoll(controller: dict) -> dict:
    (container,) = (container for container in containers(controller) if container["name"] == "plimsoll")
    return container


def seconds(text: str) -> int:
    found = re.fullmatch(r"(\d+)s", text)
    assert found, text
    return int(found[1])



each_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
each_controller = pytest.mark.parametrize(("file", "controller"), [*controllers()], ids=lambda value: getattr(value, "stem", "pod"))


def test_there_are_an_edge_a_sidecar_and_a_quota_server() -> None:
    assert {file.stem for file in FILES} == {"edge", "sidecar", "quota"}
    kinds = {(file.stem, document["kind"]) for file in FILES for document in documents(file)}
    assert {("edge", "PodDisruptionBudget"), ("edge", "Service"), ("quota", "StatefulSet"), ("sidecar", "Deployment")} <= kinds


@each_file
@pytest.mark.parametrize("version", VERSIONS)
def test_documents_are_valid_by_the_published_schemas(file: pathlib.Path, version: str) -> None:
    for document in documents(file):
        kubernetes_validate.validate(document, version, strict=True)


def test_a_misspelt_field_is_no_valid_document() -> None:
    (edge,) = (document for document in documents(FOLDER / "edge.yaml") if document["kind"] == "Deployment")
    edge["spec"]["template"]["spec"]["terminationGracePeriod"] = 40
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(edge, VERSIONS[0], strict=True)


@each_file
def test_configurations_pass_check(file: pathlib.Path, tmp_path: pathlib.Path) -> None:
    authority = Authority(tmp_path)
    certificate = authority.issue("server", "DNS:localhost")
    files = {"tls.crt": certificate.certificate, "tls.key": certificate.key, "ca.crt": authority.certificate}
    found = list(configs(file))
    assert found
    for name, text in found:
        for secret, here in files.items():
            text = text.replace(f"/etc/plimsoll/tls/{secret}", str(here))
        config = tmp_path / name
        config.write_text(text)
        done = run([PLIMSOLL, "check", "-c", str(config)])
        assert done.returncode == 0, f"{file.name}: {done.stdout}{done.stderr}"


@each_controller
def test_arguments_name_a_file_that_is_mounted(file: pathlib.Path, controller: dict) -> None:
    container = plimsoll(controller)
    config = pathlib.PurePosixPath(container["args"][container["args"].index("-c") + 1])
    (mount,) = (mount for mount in container["volumeMounts"] if mount["mountPath"] == str(config.parent))
    volumes = controller["spec"]["template"]["spec"]["volumes"]
    (volume,) = (volume for volume in volumes if volume["name"] == mount["name"])
    maps = {document["metadata"]["name"]: document["data"] for document in documents(file) if document["kind"] == "ConfigMap"}
    assert config.name in maps[volume["configMap"]["name"]]


@each_controller
def test_ports_and_probes_are_those_of_the_configuration(file: pathlib.Path, controller: dict) -> None:
    container = plimsoll(controller)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    ((_, text),) = configs(file)
    config = tomllib.loads(text)
    listens = [listener["address"] for listener in config.get("listeners", [])] or [config["listen"]]
    assert set(ports.values()) == {int(address.rsplit(":", 1)[1]) for address in [*listens, config["admin"]["listen"]]}
    assert all(address.startswith("0.0.0.0:") for address in [*listens, config["admin"]["listen"]]), "the kubelet is no client of loopback"
    for probe, path in (("readinessProbe", "/readyz"), ("livenessProbe", "/healthz"), ("startupProbe", "/healthz")):
        if asked := container.get(probe, {}).get("httpGet"):
            assert (asked["path"], asked["port"]) == (path, "admin"), probe
        else:
            assert probe == "startupProbe" or config.get("tls"), f"{probe} may do without HTTP only where HTTP needs a certificate"
    for document in documents(file):
        if document["kind"] == "Service":
            assert {port["targetPort"] for port in document["spec"]["ports"]} <= ports.keys()


@each_controller
def test_a_pod_has_time_to_drain(file: pathlib.Path, controller: dict) -> None:
    pod = controller["spec"]["template"]["spec"]
    ((_, text),) = configs(file)
    drain = tomllib.loads(text).get("drain")
    # The quota server ends within 2 s by docs/quotas.md.
    needed = seconds(drain["timeout"]) if drain else 2
    assert pod["terminationGracePeriodSeconds"] >= needed + 5
    if drain:
        probe = plimsoll(controller)["readinessProbe"]
        assert seconds(drain["announce"]) > probe["periodSeconds"] * probe["failureThreshold"]


@each_controller
def test_containers_run_without_rights(file: pathlib.Path, controller: dict) -> None:
    pod = controller["spec"]["template"]["spec"]["securityContext"]
    assert pod["runAsNonRoot"] is True and pod["runAsUser"] != 0
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in containers(controller):
        context = container["securityContext"]
        assert context == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}, file
        assert container["resources"]["requests"] and container["resources"]["limits"]["memory"]


@each_file
def test_selectors_find_the_pods(file: pathlib.Path) -> None:
    found = documents(file)
    (controller,) = (document for document in found if document["kind"] in CONTROLLERS)
    labels = controller["spec"]["template"]["metadata"]["labels"].items()
    for document in found:
        spec = document.get("spec", {})
        selector = spec.get("podSelector", spec.get("selector"))
        if selector is not None:
            wanted = selector.get("matchLabels", selector)
            assert wanted and wanted.items() <= labels, document["kind"]


def test_roles_are_those_that_discovery_needs() -> None:
    (role,) = (document for document in documents(FOLDER / "edge.yaml") if document["kind"] == "Role")
    assert role["rules"] == [{"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}]


def test_images_are_of_this_version() -> None:
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    for _, controller in controllers():
        assert plimsoll(controller)["image"] == f"registry.example/plimsoll:{version}"
