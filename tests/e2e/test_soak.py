"""Forty seconds of everything at once; `scripts/soak` does the same for half an hour."""

import pytest

from harness.fleet import Fleet
from harness.soak import Soak, verdict

pytestmark = pytest.mark.alone

SECONDS = 40


def test_mixed_load_with_restarts_reloads_and_kills_gets_no_wrong_answer(fleet: Fleet) -> None:
    report = Soak(fleet, SECONDS).run()
    problem = verdict(report)
    assert problem is None, f"{problem}\n{report}"
