"""The release workflow: readable, with pinned actions, and of commands that exist."""

import re

import pytest
import yaml

from root import ROOT

FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PINNED = re.compile(r"^[\w.-]+/[\w./-]+@[0-9a-f]{40}$")

each_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


def workflow(file) -> dict:
    return yaml.safe_load(file.read_text())


def steps(file) -> list[dict]:
    return [step for job in workflow(file)["jobs"].values() for step in job["steps"]]


def release() -> dict:
    return workflow(ROOT / ".github/workflows/release.yml")


@each_file
def test_actions_are_pinned_to_a_commit_with_its_version(file) -> None:
    used = [step["uses"] for step in steps(file) if "uses" in step]
    assert used and all(PINNED.match(action) for action in used), used
    lines = [line for line in file.read_text().splitlines() if "uses:" in line]
    assert all(re.search(r"# v\d+\.\d+\.\d+$", line) for line in lines), "a comment names the version of the commit"


@each_file
def test_every_script_exists_and_is_a_program(file) -> None:
    named = {script for step in steps(file) for script in re.findall(r"(?<![\w/.])scripts/\w+", step.get("run", ""))}
    assert named
    for script in named:
        assert (ROOT / script).stat().st_mode & 0o111, script


@each_file
def test_every_file_named_exists(file) -> None:
    for step in steps(file):
        for name in re.findall(r"(?<![\w/.])tests/[\w./-]+|CHANGELOG\.md", step.get("run", "")):
            assert (ROOT / name).exists(), name


@each_file
def test_jobs_have_a_time_limit_and_few_rights(file) -> None:
    found = workflow(file)
    assert found["permissions"] == {"contents": "read"}
    for name, job in found["jobs"].items():
        assert job["timeout-minutes"] <= 120, name
        for other in [job["needs"]] if isinstance(job.get("needs"), str) else job.get("needs", []):
            assert other in found["jobs"], f"{name} needs {other}"
    writers = {name for name, job in found["jobs"].items() if "write" in job.get("permissions", {}).values()}
    assert writers <= {"draft"}


def test_a_tag_starts_the_release() -> None:
    # YAML reads the key `on` as true.
    assert list(release()[True]["push"]) == ["tags"]


def test_nothing_is_published_before_all_tests() -> None:
    jobs = release()["jobs"]
    assert set(jobs["draft"]["needs"]) == {"test", "rust-version", "portable", "packages", "try"}
    assert jobs["crates"]["needs"] == "draft" and jobs["crates"]["environment"] == "crates.io"


def test_packages_are_made_for_both_machines() -> None:
    matrix = release()["jobs"]["packages"]["strategy"]["matrix"]["include"]
    assert {row["machine"] for row in matrix} == {"x86_64", "aarch64"}


def test_values_from_outside_are_no_part_of_a_command() -> None:
    for file in FILES:
        for step in steps(file):
            assert "${{" not in step.get("run", ""), step["run"]
