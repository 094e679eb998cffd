"""slowhttptest: many connections, each as slow as can be.

What it counts as open says little: one that reads slowly notices late that the other side has closed. The proxy's own
counts say more.
"""

import pathlib

from .process import Process, find_program

# Options of each mode beside those common to all.
MODES = {
    "slow-headers": ["-H", "-i", "1", "-x", "8"],
    "slow-body": ["-B", "-i", "1", "-x", "4", "-s", "100000"],
    "range": ["-R", "-t", "HEAD", "-a", "10", "-b", "3000"],
    "slow-read": ["-X", "-w", "16", "-y", "64", "-n", "1", "-z", "16", "-k", "1"],
}


class SlowHttpTest(Process):
    """A run in the background. It ends when all of its connections are closed, or time is up."""

    def __init__(self, mode: str, url: str, connections: int, seconds: int, directory: pathlib.Path):
        command = [find_program("slowhttptest"), *MODES[mode], "-c", str(connections), "-r", "1000", "-l", str(seconds)]
        super().__init__(f"slowhttptest-{mode}", [*command, "-u", url, "-p", "3"], directory)
