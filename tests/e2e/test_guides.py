"""The guides in docs/: what they tell the reader to type works, and their numbers are what scenarios give."""

import os
import pathlib
import re
import time

import pytest

from harness.fleet import PLIMSOLL, ROOT
from harness.process import run
from harness.scenarios import WAIT, Scenarios

GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SCENARIOS = {file.stem for file in (ROOT / "scenarios").glob("*.toml")}
IMAGES = {file.name for file in (ROOT / "docs" / "images").iterdir()}


def blocks(guide: str) -> list[str]:
    """The TOML in a guide, without the comment that names its file."""
    return re.findall(r"```toml\n(?:# [\w.-]+\n)?(.*?)```", (ROOT / "docs" / guide).read_text(), re.DOTALL)


@pytest.mark.alone
@pytest.mark.timeout(WAIT)
def test_figures_and_tables_are_what_the_scenarios_give(scenarios: Scenarios) -> None:
    done = scenarios.figures
    assert done.code == 0, f"{done.out}{done.err}"


def test_every_figure_is_shown_and_every_figure_shown_is_there() -> None:
    shown = {name for guide in GUIDES for name in re.findall(r"\]\((?:docs/)?images/([^)]+)\)", guide.read_text())}
    assert shown == IMAGES


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: str(guide.relative_to(ROOT)))
def test_scenarios_that_are_named_exist(guide: pathlib.Path) -> None:
    text = guide.read_text()
    named = set(re.findall(r"scenarios/([a-z0-9-]+)\.toml", text))
    for command, arguments in re.findall(r"\bsim (run|report)((?: +[^\s`#]+)*)", text):
        scenarios = re.sub(r"--(?:out|seeds?|threads) +\S+|--\S+", "", arguments).split()
        assert command == "report" or len(scenarios) <= 1, f"`sim run` takes one scenario:{arguments}"
        named |= {name for name in scenarios if re.fullmatch(r"[a-z0-9][a-z0-9-]*", name)}
    assert named <= SCENARIOS, named - SCENARIOS


@pytest.mark.parametrize("guide", ["capacity-planning.md", "subsets.md", "scenarios.md"])
def test_scenarios_written_out_in_guides_run(guide: str, tmp_path: pathlib.Path) -> None:
    whole = [block for block in blocks(guide) if block.startswith("name = ")]
    assert whole
    for block in whole:
        file = tmp_path / "guide.toml"
        file.write_text(block)
        done = run([PLIMSOLL, "sim", "run", str(file)], seconds=60)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"


def test_pieces_of_the_worked_example_are_those_of_its_file() -> None:
    file = (ROOT / "scenarios" / "what-if-zone-count.toml").read_text()
    pieces = [block for block in blocks("capacity-planning.md") if not block.startswith("name = ")]
    assert len(pieces) >= 2
    for piece in pieces:
        assert piece in file, piece


def test_python_load_report_of_a_process_with_one_full_thread_is_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """The block in the guide, on a machine of 16 cores and by a clock that stands still otherwise."""
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "policies.md").read_text(), re.DOTALL)
    clock = {"wall": 100.0, "cpu": 7.0}
    monkeypatch.setattr(time, "monotonic", lambda: clock["wall"])
    monkeypatch.setattr(time, "process_time", lambda: clock["cpu"])
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    guide: dict = {}
    exec(block, guide)
    for seconds, used, requests, expected in (
        (1.0, 1.0, 500, "TEXT application_utilization=1.0000,rps_fractional=500.00"),
        (0.5, 0.0, 600, "TEXT application_utilization=1.0000,rps_fractional=500.00"),
        (1.5, 0.5, 700, "TEXT application_utilization=0.2500,rps_fractional=100.00"),
    ):
        clock["wall"] += seconds
        clock["cpu"] += used
        assert guide["load_report"](requests) == expected
