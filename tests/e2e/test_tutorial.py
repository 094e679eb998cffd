"""docs/tutorial.md, step by step: its commands run as printed, print the output that it shows, and do what it says."""

import pathlib
import re
from collections.abc import Iterator

import pytest

from harness.fleet import PLIMSOLL
from harness.page_steps import isolation, run_steps, steps
from harness.pages import ROOT, Block, blocks
from harness.shown_output import missing

# Two runs at most, see `results`.
pytestmark = [pytest.mark.alone, pytest.mark.timeout(300)]

PAGE = ROOT / "docs" / "tutorial.md"
# The page lets the reader watch for longer. Seconds of the load of each step; in the fifth the queue has to fill.
LOAD_SECONDS = {"4": 3, "5": 8, "6": 5, "7": 5, "8": 6}
MIN_OUTPUTS = 12


def step_of(block: dict) -> str:
    """The number of the step that a block belongs to."""
    return block["heading"].split(".")[0]


def shortened(step: dict) -> dict:
    """The step with a shorter load, and a demo that opens no browser."""
    text = step["text"].replace("plimsoll demo --for 30s", "plimsoll demo --for 6s --no-open")
    if (seconds := LOAD_SECONDS.get(step_of(step))) is not None:
        text = re.sub(r"--duration \d+s", f"--duration {seconds}s", text)
    return step | {"text": text}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    """The result of each step until the first that failed."""
    plan = [shortened(step) for step in steps(PAGE, lambda block: block.commands()[0] != "cargo build --release")]
    folder = tmp_path_factory.mktemp("tutorial")
    found = run_page(plan, folder / "clone")
    # Users lose requests only where other work takes the CPU that the service has by itself in step 7.
    if load_of(found, "7").get("/", {}).get("shed", 0) > 0:
        found = run_page(plan, folder / "again")
    return found


def run_page(plan: list[dict], clone: pathlib.Path) -> list[dict]:
    results = run_steps(plan, clone, pathlib.Path(PLIMSOLL), isolation())
    return [result | {"step": step_of(step)} for step, result in zip(plan, results, strict=False)]


def shown_outputs() -> Iterator[tuple[Block, Block]]:
    """Each command with the output below it."""
    page = blocks(PAGE)
    for command, output in zip(page, page[1:], strict=False):
        if command.is_command and output.language == "text":
            yield command, output


def load_of(results: list[dict], step: str) -> dict[str, dict[str, float]]:
    """The rows of the load's table in a step, by group; of several tables each `all` has the path of its URL."""
    rows: dict[str, dict[str, float]] = {}
    path = "/"
    for line in output_of(results, step).splitlines():
        if url := re.match(r"http://[^/]+(/\S*)  ", line):
            path = url[1]
        if row := re.match(r"  (\w+) +(\d+) +(\d+) +\d+ +([\d.]+)% +(\d+) ", line):
            name = path if row[1] == "all" else row[1]
            requests = int(row[2])
            rows[name] = {"ok": int(row[3]) / requests, "useful": float(row[4]) / 100, "shed": int(row[5]) / requests}
    return rows


def output_of(results: list[dict], step: str) -> str:
    return "\n".join(result["output"] for result in results if result["step"] == step)


def test_every_command_of_the_page_succeeds(results: list[dict]) -> None:
    for result in results:
        assert result["code"] == 0, f"{result['place']} ended with {result['code']}:\n{result['output']}"
    ran = {result["place"] for result in results}
    assert {block.place for block in blocks(PAGE) if block.is_command} - ran == {
        block.place for block in blocks(PAGE) if block.is_command and block.commands()[0] == "cargo build --release"
    }


def test_output_below_a_command_is_what_it_prints(results: list[dict]) -> None:
    printed = {result["place"]: result["output"] for result in results}
    compared = 0
    for command, output in shown_outputs():
        line = missing(output.text, printed[command.place])
        assert line is None, f"{output.place}: not printed: {line!r}; printed was\n{printed[command.place]}"
        compared += 1
    assert compared >= MIN_OUTPUTS


def test_unprotected_service_serves_nearly_nothing_in_time(results: list[dict]) -> None:
    assert load_of(results, "4")["/"]["shed"] == 0
    assert load_of(results, "5")["/"]["useful"] < 0.15


def test_gate_turns_late_answers_into_early_refusals(results: list[dict]) -> None:
    protected = load_of(results, "6")["/"]
    assert protected["useful"] > load_of(results, "5")["/"]["useful"] + 0.05
    assert 0.4 < protected["shed"] < 0.95
    # Nobody waits until the timeout.
    assert protected["ok"] + protected["shed"] == pytest.approx(1, abs=0.01)


def test_reports_are_shed_and_users_are_not(results: list[dict]) -> None:
    load = load_of(results, "7")
    assert load["/"]["shed"] <= 0.02 and load["/reports"]["shed"] > 0.4, load


def test_only_the_crawler_is_refused(results: list[dict]) -> None:
    load = load_of(results, "8")
    assert load["web"]["shed"] == load["app"]["shed"] == 0, load
    assert 0.25 < load["crawler"]["shed"] < 0.85, load


def test_restarts_fail_no_request(results: list[dict]) -> None:
    restart = output_of(results, "10")
    assert " 0 failed" in restart, restart
    assert restart.count(": drained, no request in flight") == restart.count(" of cluster service: healthy") == 2, restart


def test_pictures_are_small_and_have_words_for_readers_without_them() -> None:
    pictures = re.findall(r"!\[([^\]]+)\]\((images/[\w.-]+\.png)\)", PAGE.read_text())
    assert len(pictures) == 3
    for words, name in pictures:
        picture = PAGE.parent / name
        assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size <= 150_000, name
        assert len(words) > 20, name


def test_minutes_of_the_steps_add_up_to_twenty_at_most() -> None:
    rows = re.findall(r"^\| (\d+)\. \[.*\| (\d+) \|$", PAGE.read_text(), re.MULTILINE)
    assert [int(step) for step, _ in rows] == list(range(1, 12))
    assert 0 < sum(int(minutes) for _, minutes in rows) <= 20


TABLE = "status  429   405\n  crawler 580 175 30.2% 405\n"


@pytest.mark.parametrize(
    ("page", "differs"),
    [
        ("status 429 17\n crawler 12 9 50.0% 6\n", None),
        ("…\n crawler 12 9 …\n", None),
        ("status 503 405\n", "status 503 405"),
        ("crawler 580 175 90.0% 405\n", "crawler 580 175 90.0% 405"),
        ("web 580 175 30.2% 405\n", "web 580 175 30.2% 405"),
        ("crawler 580 30.2% 405\n", "crawler 580 30.2% 405"),
        ("crawler 580 175 30.2% 405\nstatus 429 405\n", "status 429 405"),
    ],
)
def test_wrong_word_status_share_or_order_is_found(page: str, differs: str | None) -> None:
    assert missing(page, TABLE) == differs


def test_ids_and_ports_of_clients_may_differ_and_those_of_servers_not() -> None:
    page = "49e17f14bb6300fb, from 127.0.0.1:40932 to 127.0.0.1:9000"
    assert missing(page, "3d87312f5c7118b7, from 127.0.0.1:53086 to 127.0.0.1:9000\n") is None
    assert missing(page, "3d87312f5c7118b7, from 127.0.0.1:53086 to 127.0.0.1:9001\n") == page
