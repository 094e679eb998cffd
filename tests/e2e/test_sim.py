"""`plimsoll sim`: scenarios are listed, run, checked and reported, and the same run gives the same bytes."""

import html
import html.parser
import json
import math
import pathlib
import re
import shlex
import tomllib
import xml.etree.ElementTree as xml

import pytest

from harness.fleet import PLIMSOLL, ROOT
from harness.process import run
from harness.scenarios import NAMES as SCENARIOS
from harness.scenarios import WAIT, Scenarios, kind

pytestmark = pytest.mark.alone

SVG = "{http://www.w3.org/2000/svg}"
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


# Seconds of CPU for one scenario. The longest takes less than a minute.
LONGEST = 400
# Seconds of CPU for all of them: five minutes on two cores, which is longer than one likes to wait. They take 350 on a quiet machine.
ALL_OF_THEM = 700


def sim(*args: str, seconds: float = 60) -> tuple[int, str, str]:
    done = run([PLIMSOLL, "sim", *args], seconds)
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
    assert any(line.split()[:2] == ["FAIL", "least_loaded.twice"] for line in out.splitlines()), out
    code, out, _ = sim("run", str(file), "--json")
    assert code == 1
    assert json.loads(out)["checks"] == [
        {"name": "least_loaded.twice", "got": 0.0, "low": 1.0, "high": None, "ok": False}
    ]


def test_run_without_checks_says_so_and_exits_0(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "explored.toml"
    file.write_text(FAILING.split("[[checks]]")[0])
    code, out, _ = sim("run", str(file))
    assert code == 0 and "Nothing is checked" in out, out
    code, out, _ = sim("check", str(file))
    assert code == 0 and "checks: 0" in out, out
    code, out, _ = sim("run", str(file), "--json")
    assert code == 0 and json.loads(out)["checks"] == []


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
    for part in ('id="subset-small"', 'id="two-speeds"', 'id="failing"', "✗ fail", "✓ ok", "<svg "):
        assert part in page, part


TWO_PHASES = """
name = "two-phases"
kind = "fleet"
duration = "6s"
warmup = "off"
arrivals = { kind = "rate", per_second = 120 }
[[backends]]
count = 2
[[phases]]
name = "calm"
at = "0s"
[[phases]]
name = "flood"
at = "3s"
load = 3
[[arms]]
name = "weighted"
[[arms]]
name = "round-robin"
policy = "round-robin"
[[checks]]
metric = "weighted.calm.p99"
high = 100000
why = "any"
"""


def again_command(page: str) -> list[str]:
    """The words of the command with which a page's last section can be run again."""
    return shlex.split(html.unescape(re.findall(r"[Aa]gain: <code>(.*?)</code>", page)[-1]))


@pytest.mark.parametrize("seeds", [("--seed", "7"), ("--seeds", "2"), ()])
def test_report_of_own_file_gives_the_command_that_repeats_it(tmp_path: pathlib.Path, seeds: tuple[str, ...]) -> None:
    file = tmp_path / "a dir & more" / "it's mine.toml"
    file.parent.mkdir()
    file.write_text(TWO_PHASES)
    code, _, err = sim("report", "--out", str(tmp_path), str(file), *seeds)
    assert code == 0, err
    command = again_command((tmp_path / "index.html").read_text())
    assert command == ["plimsoll", "sim", "run", str(file), *seeds]
    code, out, err = sim(*command[2:], "--json")
    assert (code, out) == (0, (tmp_path / "two-phases.json").read_text()), err


def test_report_of_own_file_has_its_name_as_title_and_phases_by_name(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(TWO_PHASES)
    code, _, err = sim("report", "--out", str(tmp_path), str(file))
    assert code == 0, err
    page = (tmp_path / "index.html").read_text()
    assert re.findall(r"<title>(.*?)</title>|<h1>(.*?)</h1>", page) == [("two-phases", ""), ("", "two-phases")]
    for phase in ("calm", "flood"):
        assert re.search(rf"<td>{phase}</td><td>weighted</td>", page), f"no row for {phase}"
    # The figure by phase has the names along its axis, and no numbers in their place.
    (figure,) = tmp_path.glob("two-phases-errors-by-phase.svg")
    texts = [(text.text or "").strip() for text in xml.fromstring(figure.read_text()).iter(f"{SVG}text")]
    assert {"calm", "flood"} <= set(texts), texts
    assert not any("number" in text for text in texts), texts


def test_report_refuses_two_scenarios_of_one_name_and_names_both_files(tmp_path: pathlib.Path) -> None:
    files = [tmp_path / "a.toml", tmp_path / "b.toml"]
    for file in files:
        file.write_text(TWO_PHASES)
    code, out, err = sim("report", "--out", str(tmp_path / "page"), *map(str, files))
    assert (code, out) == (2, ""), err
    assert all(str(file) in err for file in files) and "help: " in err, err
    assert not (tmp_path / "page").exists(), "nothing is run, and nothing is written"


def test_run_prints_a_row_for_each_phase_and_arm_with_units(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(TWO_PHASES)
    code, out, err = sim("run", str(file))
    assert code == 0, err
    found = json.loads(sim("run", str(file), "--json")[1])["metrics"]
    lines = out.splitlines()
    (heading,) = [i for i, line in enumerate(lines) if line.split()[:2] == ["phase", "arm"]]
    assert re.split(r"  +", lines[heading]) == ["phase", "arm", "p50 (ms)", "p99 (ms)", "errors", "CPU", "CPU max/mean"]
    table = lines[heading + 1 : lines.index("", heading)]
    rows = [line.split() for line in table if "min-max" not in line]
    spreads = [line.split() for line in table if "min-max" in line]
    names = [["calm", "weighted"], ["calm", "round-robin"], ["flood", "weighted"], ["flood", "round-robin"]]
    assert [row[:2] for row in rows] == names
    assert float(rows[0][2]) == pytest.approx(found["weighted.calm.p50"], abs=0.06)
    assert float(rows[3][6]) == pytest.approx(found["round-robin.flood.max_over_mean"], abs=0.006)
    assert all(row[4].endswith("%") for row in rows)
    # The column of p99, of the flood: below the mean of each row stand its extremes.
    least, greatest = (float(end) for end in spreads[2][2].split("-"))
    assert (least, greatest) == pytest.approx([found[f"weighted.flood.p99.{end}"] for end in ("min", "max")], abs=0.6)
    assert max(map(len, lines)) <= 80, out
    assert not any(line.startswith("weighted.calm.in_flight_p99") for line in lines), "all metrics only with --all"


def test_run_all_prints_every_metric_with_its_unit() -> None:
    code, out, err = sim("run", "two-speeds", "--seeds", "2", "--all")
    assert code == 0, err
    found = json.loads(sim("run", "two-speeds", "--seeds", "2", "--json")[1])["metrics"]
    lines = out.splitlines()
    table = [line.split() for line in lines[lines.index(next(line for line in lines if line.startswith("metric "))) :]]
    assert table[0] == ["metric", "mean", "min", "max", "unit"]
    assert {row[0] for row in table[1:]} == {name for name in found if not name.endswith((".min", ".max"))}
    units = {row[0]: " ".join(row[4:]) for row in table[1:]}
    assert all(units.values()), units
    assert (units["weighted.p99"], units["weighted.error_share"]) == ("ms", "share")


@pytest.mark.parametrize("file", BAD, ids=lambda file: file.stem)
def test_bad_scenario_exits_1_and_names_the_place(file: pathlib.Path) -> None:
    for command in ("check", "run"):
        code, out, err = sim(command, str(file))
        assert (code, out) == (1, ""), err
        assert file.name in err and "help: " in err, err


def test_good_scenario_passes_the_check() -> None:
    for file in (ROOT / "scenarios").glob("*.toml"):
        code, out, err = sim("check", str(file))
        assert code == 0 and f"scenario: {file.stem}" in out, err


@pytest.mark.timeout(WAIT)
@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_is_as_expected_and_its_json_is_as_promised(name: str, scenarios: Scenarios) -> None:
    """Each that comes with the binary; what it is expected to show stands in its file."""
    done = scenarios[name]
    assert "panicked" not in done.err, done.err
    assert done.cpu_seconds < LONGEST
    found = json.loads(done.out)
    off = [check for check in found["checks"] if not check["ok"]]
    assert done.code == 0 and not off, f"{off}\n{done.err}"
    assert list(found) == ["scenario", "seeds", "metrics", "checks"]
    file = tomllib.loads((ROOT / "scenarios" / f"{name}.toml").read_text())
    assert found["scenario"] == name == file["name"]
    assert found["seeds"] == file.get("seeds", [1, 2, 3])
    metrics = found["metrics"]
    assert metrics and all(type(value) in (int, float) and math.isfinite(value) for value in metrics.values())
    if len(found["seeds"]) > 1:
        means = [metric for metric in metrics if not metric.endswith((".min", ".max"))]
        assert len(metrics) == 3 * len(means)
        # Of equal values the mean is them but for the last digit.
        for mean in means:
            slack = 1e-9 * abs(metrics[mean])
            assert metrics[f"{mean}.min"] - slack <= metrics[mean] <= metrics[f"{mean}.max"] + slack, mean
    # In the order of the file, each with the range of the file, and judged by it.
    names = [check["metric"] + (f" over {check['over']}" if "over" in check else "") for check in file["checks"]]
    assert [check["name"] for check in found["checks"]] == names
    for check, expected in zip(found["checks"], file["checks"], strict=True):
        assert list(check) == ["name", "got", "low", "high", "ok"]
        plain = check["name"] if len(found["seeds"]) > 1 else re.sub(r"\.(min|max)$", "", check["name"])
        # A ratio is that of each run, of which only the mean and the extremes are told.
        assert "over" in expected or check["got"] == metrics[plain]
        assert (check["low"], check["high"]) == (expected.get("low"), expected.get("high"))
        low = -math.inf if check["low"] is None else check["low"]
        high = math.inf if check["high"] is None else check["high"]
        assert check["ok"] == (low <= check["got"] <= high)
        assert expected["why"].strip()


@pytest.mark.timeout(WAIT)
def test_all_scenarios_together_take_less_than_four_minutes_of_two_cores(scenarios: Scenarios) -> None:
    for name in SCENARIOS:
        print(f"{scenarios[name].cpu_seconds:6.1f} s  {name}")
    assert sum(scenarios[name].cpu_seconds for name in SCENARIOS) < ALL_OF_THEM


# Quantities of which a number says nothing without its unit.
OF_A_UNIT = re.compile(r"\b(time|latency|CPU|cost|load of|share|duration|memory)\b")


@pytest.mark.timeout(WAIT)
@pytest.mark.parametrize("name", SCENARIOS)
def test_figures_are_well_formed_and_their_axes_named(name: str, scenarios: Scenarios) -> None:
    assert scenarios[name].out
    figures = sorted(scenarios.folder.glob(f"{name}-*.svg"))
    # Of scenarios whose names begin alike, only this one's.
    longer = tuple(f"{other}-" for other in SCENARIOS if other.startswith(f"{name}-"))
    figures = [figure for figure in figures if not longer or not figure.name.startswith(longer)]
    assert figures, "nothing to look at"
    for figure in figures:
        text = figure.read_text()
        root = xml.fromstring(text)
        assert root.tag == f"{SVG}svg" and root.get("aria-label"), figure.name
        assert "NaN" not in text and "inf" not in re.sub(r">[^<]*<", "><", text), figure.name
        bottom = float(root.get("height", "0")) - 1
        texts = list(root.iter(f"{SVG}text"))
        vertical = [t for t in texts if (t.get("transform") or "").startswith("rotate(")]
        horizontal = [t for t in texts if t not in vertical and float(t.get("y", "0")) >= bottom]
        for labels in (vertical, horizontal):
            (label,) = [(t.text or "").strip() for t in labels]
            assert label, figure.name
            assert not OF_A_UNIT.search(label) or "over" in label or re.search(r"\(.+\)$", label), f"{figure.name}: {label}"
        # Numbers or names along both axes, and something drawn.
        assert len(texts) >= 6, figure.name
        assert any(root.iter(f"{SVG}{shape}") for shape in ("polyline", "circle", "rect")), figure.name


@pytest.mark.timeout(WAIT)
def test_every_kind_of_scenario_gives_the_same_bytes_again_on_two_threads(scenarios: Scenarios) -> None:
    for name, again in scenarios.again.items():
        assert again.out == scenarios[name].out, name
    kinds = {"fleet", "probes", "quota", "rollout", "shedding", "spill", "subset", "tiers", "worked"}
    assert {kind(name) for name in scenarios.again} == kinds


def test_other_seed_gives_other_numbers_and_stands_in_the_json() -> None:
    runs = [json.loads(sim("run", "two-speeds", "--seed", seed, "--json")[1]) for seed in ("1", "2")]
    assert [found["seeds"] for found in runs] == [[1], [2]]
    assert runs[0]["metrics"] != runs[1]["metrics"]
    assert runs[0]["metrics"].keys() == runs[1]["metrics"].keys()


class References(html.parser.HTMLParser):
    """What a page would load or lead to, and the tags that are open."""

    VOID = {"meta", "br", "img", "hr", "link", "input"}

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.ids: set[str] = set()
        self.tags: set[str] = set()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in self.VOID:
            self.open.append(tag)
        self._look(attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self._look(attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def _look(self, attrs: list[tuple[str, str | None]]) -> None:
        for key, value in attrs:
            if key in ("src", "href", "xlink:href", "srcset", "action", "data", "poster"):
                self.found.append(value or "")
            if key == "id":
                self.ids.add(value or "")


def test_report_stands_alone_and_shows_each_figure_beside_what_was_published(tmp_path: pathlib.Path) -> None:
    # What a user writes is text on the page, whatever it looks like.
    own = tmp_path / "own.toml"
    hostile = '<script src="https://example.com/x.js"></script>&amp; "quoted"'
    own.write_text(f"""
name = "own"
kind = "worked"
title = '{hostile}'
source = '{hostile}'
says = '{hostile}'
least_loaded = [0, 1]
[[checks]]
metric = "least_loaded.twice"
high = 0
why = '{hostile}'
""")
    named = ("subset-small", "two-speeds", "worked-examples")
    out = tmp_path / "page"
    code, said, err = sim("report", "--out", str(out), *named, str(own))
    assert (code, said.strip()) == (0, str(out / "index.html")), err
    text = (out / "index.html").read_text()
    page = References()
    page.feed(text)
    assert not page.open, f"left open: {page.open}"
    assert all(reference.startswith("#") and reference[1:] in page.ids for reference in page.found), page.found
    assert not page.tags & {"script", "link", "img", "iframe", "object", "embed"}, page.tags
    assert "@import" not in text and "url(" not in text
    for name in (*named, "own"):
        assert name in page.ids
    for name in named:
        file = tomllib.loads((ROOT / "scenarios" / f"{name}.toml").read_text())
        section = text[text.index(f'id="{name}"') :]
        plain = re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", "", section)))
        for part in (file["title"], file["source"], file["says"], *(check["why"] for check in file["checks"])):
            assert re.sub(r"\s+", " ", part).strip() in plain, part
        for figure in out.glob(f"{name}-*.svg"):
            title = xml.fromstring(figure.read_text()).get("aria-label")
            assert title is not None and title in plain, f"{name}: no figure {title}"
    assert text.count("<svg ") == len(list(out.glob("*.svg")))


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("run", "subset-smal"), 2, "did you mean `subset-small`?"),
        (("report", "--out", "unused", "policy-spred"), 2, "did you mean `policy-spread`?"),
        (("run", "/nonexistent/mine.toml"), 1, "/nonexistent/mine.toml"),
        (("run", "two-speeds", "--seeds", "0"), 2, "--seeds"),
        (("run", "two-speeds", "--seeds", "4000000000"), 2, "--seeds"),
        (("run", "two-speeds", "--threads", "0"), 2, "--threads"),
        (("run", "two-speeds", "--seed", "1", "--seeds", "2"), 2, "--seed"),
        (("check", "/nonexistent/mine.toml"), 1, "/nonexistent/mine.toml"),
    ],
)
def test_what_cannot_be_run_is_said_with_the_right_exit_code(args: tuple[str, ...], code: int, said: str) -> None:
    got, out, err = sim(*args)
    assert (got, out) == (code, ""), err
    assert said in err, err


def test_a_folder_that_cannot_be_written_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("in the way")
    code, _, err = sim("run", "subset-small", "--json", "--out", str(tmp_path / "file" / "folder"))
    assert code != 0 and str(tmp_path / "file") in err, err


@pytest.mark.parametrize("file", BAD, ids=lambda file: file.stem)
def test_bad_scenario_is_told_all_at_once_as_written_down(file: pathlib.Path) -> None:
    """Each problem with its place, if it is one of a line, and its mend, all of them in one run: the lines beside the file."""
    _, _, err = sim("check", str(file))
    expected = file.with_suffix(".expect").read_text().strip()
    got = err.replace(str(file), file.name)
    assert expected in got, err
    problems = expected.count("help: ")
    assert f"{problems} problem{'' if problems == 1 else 's'}" in got, err
    assert all(re.match(rf"{re.escape(file.name)}:(\d+:\d+:)? |    help: ", line) for line in expected.splitlines()), expected
