"""`plimsoll check`: right files pass, wrong ones are told all that is wrong with them at once."""

import pathlib

import pytest

from harness.fleet import PLIMSOLL, ROOT
from harness.process import run

EXAMPLES = sorted((ROOT / "examples").glob("*.toml"))
BAD = sorted((ROOT / "tests" / "bad-configs").glob("*.toml"))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_example_passes(file: pathlib.Path) -> None:
    done = run([PLIMSOLL, "check", "-c", str(file)])
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_printed_config_is_a_config_that_prints_the_same(file: pathlib.Path, tmp_path: pathlib.Path) -> None:
    first = run([PLIMSOLL, "check", "-c", str(file), "--print"])
    assert first.returncode == 0, first.stderr
    printed = tmp_path / "printed.toml"
    printed.write_text(first.stdout)
    second = run([PLIMSOLL, "check", "-c", str(printed), "--print"])
    assert second.returncode == 0, f"{second.stdout}{second.stderr}"
    assert second.stdout == first.stdout


def test_there_are_examples_and_many_kinds_of_mistake() -> None:
    assert EXAMPLES
    assert len(BAD) >= 25


@pytest.mark.parametrize("file", BAD, ids=lambda file: file.stem)
def test_bad_config_exits_1_and_names_the_place(file: pathlib.Path) -> None:
    done = run([PLIMSOLL, "check", "-c", str(file)])
    said = done.stdout + done.stderr
    assert done.returncode == 1, f"{done.returncode}: {said}"
    assert file.name in said, said
    assert "help: " in said, said
    assert "panicked" not in said, said


def test_all_problems_of_a_file_are_told_in_one_run(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "three.toml"
    file.write_text("""
[[listeners]]
address = "127.0.0.1:99999"

[[routes]]
cluster = "wbe"

[clusters.web]
polciy = "weighted"
backends = ["127.0.0.1:8080"]
""")
    done = run([PLIMSOLL, "check", "-c", str(file)])
    said = done.stdout + done.stderr
    assert done.returncode == 1
    # The place of each, and for the two misspelt names the mend.
    for expected in ("listeners[0].address", "99999", "routes[0].cluster", "wbe", "clusters.web", "polciy", "policy", "web"):
        assert expected in said, f"{expected!r} is missing in:\n{said}"


def test_missing_file_is_named() -> None:
    done = run([PLIMSOLL, "check", "-c", "/nonexistent/plimsoll.toml"])
    assert done.returncode in (1, 2)
    assert "/nonexistent/plimsoll.toml" in done.stdout + done.stderr
