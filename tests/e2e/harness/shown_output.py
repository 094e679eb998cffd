"""Whether the output that a page shows below a command is what the command printed, but for its figures."""

import re

# A part of a line that may differ from run to run, and the words between them that may not.
VARIES = re.compile(r"(?P<address>\d+\.\d+\.\d+\.\d+:\d+)|\b(?P<id>[0-9a-f]{16})\b|(?P<share>\d+\.\d+)%|(?P<number>\d+(?:\.\d+)?)")
# Figures that are part of the statement: statuses of HTTP.
STATUSES = {"200", "429", "503"}
# Shares of two runs on different machines.
SHARE_TOLERANCE = 30.0
LEFT_OUT = "…"


def is_shown(shown: str, printed: str) -> bool:
    """Whether two lines have the same words and statuses, and similar shares. `…` in the page is any rest of a line."""
    if LEFT_OUT in shown:
        shown = shown[: shown.index(LEFT_OUT)].rstrip()
        words = len(shown.split())
        printed = " ".join(printed.split()[:words])
    if skeleton(shown) != skeleton(printed):
        return False
    return all(is_near(here, there) for here, there in zip(VARIES.finditer(shown), VARIES.finditer(printed), strict=True))


def skeleton(line: str) -> str:
    return " ".join(VARIES.sub(lambda found: f"<{found.lastgroup}>", line).split())


def is_near(shown: re.Match[str], printed: re.Match[str]) -> bool:
    if shown["share"] is not None:
        return abs(float(shown["share"]) - float(printed["share"])) <= SHARE_TOLERANCE
    # Servers and proxies have fixed ports; clients, and the servers of the demo, have any.
    if shown["address"] is not None and is_fixed(shown[0]):
        return shown[0] == printed[0]
    return shown[0] == printed[0] or not STATUSES & {shown[0], printed[0]}


def is_fixed(address: str) -> bool:
    return int(address.rsplit(":", 1)[1]) < 10_000


def missing(page: str, output: str) -> str | None:
    """The first line of the page's block that the output does not have, in order; `…` alone is any number of lines."""
    printed = iter(output.splitlines())
    for line in page.splitlines():
        if line.strip() in ("", LEFT_OUT):
            continue
        if not any(is_shown(line, candidate) for candidate in printed):
            return line
    return None
