"""The vectors of probes are those that the table of the documentation gives."""

import subprocess
import sys

from harness.pages import ROOT
from harness.process import find_program


def test_vectors_are_those_of_their_script() -> None:
    subprocess.run([sys.executable, ROOT / "tests" / "probe-vectors.py", "--check"], check=True)


def test_codec_of_the_responder_in_node_keeps_the_vectors() -> None:
    subprocess.run([find_program("node"), "--test", ROOT / "tests" / "probe-vectors.mjs"], check=True)
