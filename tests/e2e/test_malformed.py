"""Every row of the table of malformed and ambiguous requests: it gets the answer that the RFC asks for, and no backend sees
what was not sent. Each row is sent in one piece, and short ones byte by byte too: where a segment ends decides nothing.
"""

from collections.abc import Iterator

import pytest

from harness.fleet import Fleet, Proxy
from harness.process import free_port
from malformed import HTTP1, Row, drive_http2, http2
from malformed.backend import RecordingBackend
from malformed.drive import observe, verdict

# Rows end by silence, which is measured.
pytestmark = pytest.mark.alone

# Longer rows would take their time, and differ in nothing but length.
BYTE_BY_BYTE_UP_TO = 600
HTTP2 = http2.ROWS


@pytest.fixture(scope="module")
def backend() -> Iterator[RecordingBackend]:
    backend = RecordingBackend(free_port())
    yield backend
    backend.stop()


@pytest.fixture(scope="module")
def proxy(module_fleet: Fleet, backend: RecordingBackend) -> Proxy:
    # What is sent is what is looked at, not whether the backend seems to fail.
    outliers = '[clusters.main.outlier]\nconsecutive_failures = "off"\nsuccess_rate_stdev = "off"'
    proxy = module_fleet.proxy([backend.address], listener='header_read_timeout = "2s"', further=outliers)
    proxy.admin.wait_for_healthy(1)
    return proxy


def test_table_is_as_long_as_promised() -> None:
    names = [row.name for row in HTTP1]
    assert len(names) >= 150 and len(set(names)) == len(names)
    assert len({row.name for row in HTTP2}) == len(HTTP2) >= 40


@pytest.mark.parametrize("row", HTTP1, ids=lambda row: row.name)
def test_malformed(proxy: Proxy, backend: RecordingBackend, row: Row) -> None:
    for pieces in (1, len(row.sent)) if 0 < len(row.sent) <= BYTE_BY_BYTE_UP_TO else (1,):
        observed = observe(proxy.port, backend, row, pieces)
        problem = verdict(row, observed)
        assert problem is None, f"RFC {row.section}, in {pieces} pieces: {problem}\nsent: {row.sent[:400]!r}"
    assert proxy.exit_code is None


@pytest.mark.parametrize("row", HTTP2, ids=lambda row: row.name)
def test_malformed_http2(proxy: Proxy, backend: RecordingBackend, row: http2.Row) -> None:
    problem = drive_http2.verdict(row, drive_http2.observe(proxy.port, backend, row))
    assert problem is None, f"RFC {row.section}: {problem}\nsent: {row.sent[:400]!r}"
    assert proxy.exit_code is None
