"""The vectors of probes are those that the table of the documentation gives."""

import subprocess
import sys

from harness.pages import ROOT


def test_vectors_are_those_of_their_script() -> None:
    subprocess.run([sys.executable, ROOT / "tests" / "probe-vectors.py", "--check"], check=True)
