"""The list of crates: valid by the schema of CycloneDX, and the crates that are in the binary."""

import json
import tomllib

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from conftest import Packages
from root import ROOT


@pytest.fixture
def text(packages: Packages) -> str:
    return packages.only("*.cdx.json").read_text()


def test_it_is_valid_by_the_schema(text: str) -> None:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None


def test_an_unknown_field_is_not_valid(text: str) -> None:
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text.replace('"purl"', '"url"')) is not None


def test_components_are_crates_of_the_lock_file_with_their_hashes(text: str) -> None:
    lock = {(row["name"], row["version"]): row.get("checksum") for row in tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]}
    components = json.loads(text)["components"]
    assert len(components) > 100
    for row in components:
        checksum = lock[(row["name"], row["version"])]
        assert [value["content"] for value in row.get("hashes", [])] == ([checksum] if checksum else []), row["name"]
        assert row["licenses"], row["name"]


def test_tools_of_the_tests_are_not_listed(text: str) -> None:
    names = {row["name"] for row in json.loads(text)["components"]}
    assert {"tokio", "rustls", "plimsoll-core", "clap"} <= names
    assert not {"criterion", "proptest", "insta", "plimsoll-testkit", "cc"} & names


def test_each_dependency_is_a_component(text: str) -> None:
    document = json.loads(text)
    known = {row["bom-ref"] for row in document["components"]} | {document["metadata"]["component"]["bom-ref"]}
    for row in document["dependencies"]:
        assert row["ref"] in known and set(row["dependsOn"]) <= known
    assert {row["ref"] for row in document["dependencies"]} == known
