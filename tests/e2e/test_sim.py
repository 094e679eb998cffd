"""`plimsoll sim`: scenarios are listed, run, checked and reported, and the same run gives the same bytes."""

import json
import pathlib

import pytest

from harness.fleet import PLIMSOLL, ROOT
from harness.process import run

SCENARIOS = sorted(file.stem for file in (ROOT / "scenarios").glob("*.toml"))
BAD = sorted((ROOT / "tests" / "bad-scenarios").glob("*.toml"))
FAILING = """
name = "failing"
kind = "worked"
least_loaded = [0, 0, 1]
[[checks]]
metric = "least_loaded.twice"
low = 1
why = "it is not so"
"""


def sim(*args: str) -> tuple[int, str, str]:
    done = run([PLIMSOLL, "sim", *args])
    assert "panicked" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


def test_list_names_all_with_title_and_group() -> None:
    code, out, _ = sim("list", "--json")
    listed = json.loads(out)
    assert code == 0
    assert sorted(entry["name"] for entry in listed) == SCENARIOS
    assert all(set(entry) == {"name", "title", "group"} and all(entry.values()) for entry in listed)
    code, out, _ = sim("list")
    assert code == 0
    assert all(name in out for name in SCENARIOS)


def test_json_on_stdout_has_the_promised_form() -> None:
    code, out, err = sim("run", "two-speeds", "--seed", "1", "--json")
    found = json.loads(out)
    assert code == 0, err
    assert list(found) == ["scenario", "seeds", "metrics", "checks"]
    assert (found["scenario"], found["seeds"]) == ("two-speeds", [1])
    assert all(isinstance(value, (int, float)) for value in found["metrics"].values())
    for check in found["checks"]:
        assert list(check) == ["name", "got", "low", "high", "ok"]
        assert check["got"] == found["metrics"][check["name"]]


def test_same_seeds_give_the_same_bytes_on_any_number_of_threads() -> None:
    outputs = {sim("run", "two-speeds", "--seeds", "4", "--threads", threads, "--json")[1] for threads in ("1", "2", "1")}
    assert len(outputs) == 1
    assert json.loads(outputs.pop())["seeds"] == [1, 2, 3, 4]


def test_unknown_name_is_usage_and_says_which_was_meant() -> None:
    code, out, err = sim("run", "two-sppeds")
    assert (code, out) == (2, "")
    assert "did you mean `two-speeds`?" in err and "plimsoll sim list" in err


def test_check_that_fails_exits_1_and_is_marked(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "failing.toml"
    file.write_text(FAILING)
    code, out, _ = sim("run", str(file))
    assert code == 1
    assert any(line.split()[:2] == ["OFF", "least_loaded.twice"] for line in out.splitlines()), out
    code, out, _ = sim("run", str(file), "--json")
    assert code == 1
    assert json.loads(out)["checks"] == [
        {"name": "least_loaded.twice", "got": 0.0, "low": 1.0, "high": None, "ok": False}
    ]


def test_out_gets_json_and_figures(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "new" / "folder"
    code, out, _ = sim("run", "subset-small", "--json", "--out", str(folder))
    assert code == 0
    assert (folder / "subset-small.json").read_text() == out
    figures = list(folder.glob("subset-small-*.svg"))
    assert figures and all(figure.read_text().startswith("<svg ") for figure in figures)


def test_report_is_one_page_with_all_that_was_asked_for(tmp_path: pathlib.Path) -> None:
    failing = tmp_path / "failing.toml"
    failing.write_text(FAILING)
    code, out, _ = sim("report", "--out", str(tmp_path), "subset-small", "two-speeds", str(failing))
    assert code == 1
    assert out.strip() == str(tmp_path / "index.html")
    page = (tmp_path / "index.html").read_text()
    for part in ('id="subset-small"', 'id="two-speeds"', 'id="failing"', "✗ off", "✓ ok", "<svg "):
        assert part in page, part


@pytest.mark.parametrize("file", BAD, ids=lambda file: file.stem)
def test_bad_scenario_exits_1_and_names_the_place(file: pathlib.Path) -> None:
    for command in ("check", "run"):
        code, out, err = sim(command, str(file))
        assert (code, out) == (1, ""), err
        assert file.name in err and "mend: " in err, err


def test_good_scenario_passes_the_check() -> None:
    for file in (ROOT / "scenarios").glob("*.toml"):
        code, out, err = sim("check", str(file))
        assert code == 0 and f"scenario: {file.stem}" in out, err
