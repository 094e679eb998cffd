"""`scripts/release`: the work by which the deployed binary is optimised goes without errors, or the build ends there."""

import sys

import pytest

from harness.fleet import PLIMSOLL, ROOT
from harness.process import run

pytestmark = pytest.mark.alone

RELEASE = [sys.executable, str(ROOT / "scripts" / "release")]


def test_every_part_of_the_training_works() -> None:
    done = run([*RELEASE, "--rehearse", PLIMSOLL], seconds=100)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    for part in ("HTTP/1.1", "gRPC", "TLS", "a sidecar under overload", "the library under overload"):
        assert f"scripts/release: {part}\n" in done.stdout


def test_a_program_that_does_not_work_ends_it() -> None:
    done = run([*RELEASE, "--rehearse", "/bin/false"])
    assert done.returncode == 1
    assert "the training failed" in done.stderr
