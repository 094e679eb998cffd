"""Fixtures of the end-to-end tests, and the logs of every process under a test that failed."""

import os
import pathlib
from collections.abc import Callable, Iterator

# Children are started by exec right after fork; grpc's own handling of fork only gets in the way. Before grpc is loaded.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

import pytest  # noqa: E402

from harness.fleet import PLIMSOLL, Fleet  # noqa: E402
from harness.scenarios import Scenarios  # noqa: E402

# Enough to see what led to a failure, few enough to read.
LOG_LINES = 60


def pytest_configure(config: pytest.Config) -> None:
    del config
    if not pathlib.Path(PLIMSOLL).exists():
        raise pytest.UsageError(f"{PLIMSOLL} does not exist; run cargo build --release or set PLIMSOLL_BIN")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # What looks at scenarios comes last: until then they have run beside all else.
    items.sort(key=lambda item: "scenarios" in item.fixturenames)


@pytest.fixture
def fleet(tmp_path: pathlib.Path) -> Iterator[Fleet]:
    """Starts processes for one test and ends them after it."""
    fleet = Fleet(tmp_path)
    try:
        yield fleet
    finally:
        fleet.stop()


@pytest.fixture(scope="module")
def module_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Starts processes for all tests of a module: for those that leave a proxy as they found it."""
    fleet = Fleet(tmp_path_factory.mktemp("fleet"))
    try:
        yield fleet
    finally:
        fleet.stop()


@pytest.fixture(scope="session")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scenarios]:
    """Every scenario, run once."""
    scenarios = Scenarios(tmp_path_factory.mktemp("scenarios"))
    try:
        yield scenarios
    finally:
        scenarios.stop()


@pytest.fixture(scope="session", autouse=True)
def scenarios_begin_early(request: pytest.FixtureRequest) -> None:
    """With the session, if any of its tests looks at them."""
    if any("scenarios" in item.fixturenames for item in request.session.items):
        request.getfixturevalue("scenarios")


# Lines of the summary that say how many command blocks of the documentation ran.
DOC_BLOCKS: list[str] = []


# Name of the property that brings such a line from a test, which may run in another process, to the summary.
DOC_BLOCKS_PROPERTY = "doc-blocks"


@pytest.fixture
def record_doc_blocks(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Records a line that is printed at the end of the session."""
    return lambda line: record_property(DOC_BLOCKS_PROPERTY, line)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call":
        DOC_BLOCKS.extend(str(line) for name, line in report.user_properties if name == DOC_BLOCKS_PROPERTY)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in DOC_BLOCKS:
        terminalreporter.write_line(line)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    arguments = getattr(item, "funcargs", {})
    fleet = arguments.get("fleet") or arguments.get("module_fleet")
    if report.failed and isinstance(fleet, Fleet):
        for log in sorted(fleet.directory.glob("*.log")):
            text = log.read_text(errors="replace").splitlines()
            if text:
                report.sections.append((f"end of {log.name}", "\n".join(text[-LOG_LINES:])))
    return report
