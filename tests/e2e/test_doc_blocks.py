"""Every command block of README and docs/ runs as printed, and every link leads to a heading or a file."""

import json
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable

import pytest

from harness.fleet import PLIMSOLL
from harness.page_steps import RUNNER, isolation, run_steps, steps
from harness.pages import PAGES, ROOT, Block, anchors, blocks, links

# Blocks that are not run, by their first command, each with the reason. The count is printed with those that ran.
NOT_RUN = {
    "bench/predict": "measures for ten minutes; test_predict.py runs six of the set-ups for seconds",
    "cargo build --release": "builds for minutes; scripts/test builds it, test_first_minutes.py runs the demo",
    "plimsoll demo --scene quota": "runs for 40 s; test_first_minutes.py runs it",
    "scripts/packages": "packs for half a minute; tests/packages runs it, and installs its packages",
    "scripts/release": "builds for a quarter of an hour; test_release.py covers it",
    "scripts/test": "it is the program that runs this test",
}
# Pages that another test runs.
ELSEWHERE = {ROOT / "docs" / "tutorial.md": "test_tutorial.py runs it and compares its output"}
RUN = [page for page in PAGES if page not in ELSEWHERE]
# Fewer would mean that blocks are no longer found.
MIN_BLOCKS = 30

# Pages beside the documentation: their links are checked too.
LINKED = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), ROOT / "bench" / "README.md"]


def page_id(page: pathlib.Path) -> str:
    return str(page.relative_to(ROOT).with_suffix(""))


def reason_not_run(block: Block) -> str | None:
    return NOT_RUN.get(block.commands()[0]) if block.commands() else None


class Pages:
    """Runs pages one after the other, each in a folder that looks like a clone with the binary built."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.isolation = isolation()
        self._results: dict[pathlib.Path, list[dict]] = {}

    def results(self, page: pathlib.Path) -> list[dict]:
        if page not in self._results:
            self._results[page] = self._run(page)
        return self._results[page]

    def _run(self, page: pathlib.Path) -> list[dict]:
        clone = self.folder / page_id(page).replace("/", "-")
        plan = steps(page, lambda block: reason_not_run(block) is None)
        return run_steps(plan, clone, pathlib.Path(PLIMSOLL), self.isolation)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    return Pages(tmp_path_factory.mktemp("pages"))


@pytest.mark.parametrize("page", RUN, ids=page_id)
def test_blocks_of_a_page_run_as_printed(pages: Pages, page: pathlib.Path) -> None:
    for result in pages.results(page):
        assert result["code"] == 0, f"{result['place']} ended with {result['code']}:\n{result['output']}"


def test_every_block_is_run_or_listed_with_a_reason(pages: Pages, record_doc_blocks: Callable[[str], None]) -> None:
    shell = [block for page in RUN for block in blocks(page) if block.is_command]
    listed = [block for block in shell if reason_not_run(block) is not None]
    ran = [result for page in RUN for result in pages.results(page) if result["kind"] != "file"]
    assert len(ran) + len(listed) == len(shell)
    assert len(ran) >= MIN_BLOCKS, f"only {len(ran)} command blocks were found"
    assert {block.commands()[0] for block in listed} == set(NOT_RUN), "NOT_RUN names blocks that are on no page"
    record_doc_blocks(f"{len(ran)} command blocks of the documentation ran as printed, {len(listed)} are not run:")
    for block in listed:
        record_doc_blocks(f"  {block.place}: {reason_not_run(block)}")
    for page, reason in ELSEWHERE.items():
        record_doc_blocks(f"  {page_id(page)}: {reason}")


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_shell_blocks_can_be_pasted_whole(page: pathlib.Path) -> None:
    for block in blocks(page):
        assert block.language not in ("bash", "shell", "console", "zsh"), f"{block.place}: shell blocks are marked sh"
        if block.is_command and block.is_foreground:
            assert len(block.commands()) == 1, f"{block.place}: a command that stays in the foreground is not alone"


@pytest.mark.parametrize("page", LINKED, ids=page_id)
def test_links_lead_to_files_and_headings(page: pathlib.Path) -> None:
    for target in links(page):
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), f"{target}: no such file"
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), f"{target}: no such heading"


def test_every_guide_is_in_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    listed = {target.split("#")[0] for target in links(index)}
    missing = {page.name for page in PAGES if page.parent == index.parent and page != index} - listed
    assert not missing, f"docs/README.md lists no {missing}"


def test_a_command_that_fails_makes_its_page_fail(tmp_path: pathlib.Path) -> None:
    plan = tmp_path / "plan.json"
    one = {"place": "page.md:1", "line": 1, "kind": "command"}
    plan.write_text(json.dumps([one | {"text": "false\ntrue\n"}, one | {"text": "true\n"}]))
    done = subprocess.run([*isolation(), sys.executable, str(RUNNER), str(plan)], capture_output=True, text=True, check=True)
    results = json.loads(done.stdout)
    assert [result["code"] for result in results] == [1]


def test_pages_need_no_program_that_is_missing() -> None:
    for program in ("bash", "curl", "python3"):
        assert shutil.which(program), f"{program} is not installed"
